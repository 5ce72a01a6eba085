//! Stands for the module `space` of the ordered store: it only counts the frames that are free.

use crate::memory::number::Lid;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SpaceStatistics {
    pub(crate) free: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Space(SpaceStatistics);

impl Space {
    pub(crate) fn free(&mut self, _: u32) {
        self.0.free += 1;
    }

    pub(crate) fn recycle(&mut self, _: u32) {
        self.free(1);
    }

    pub(crate) fn free_lid(&mut self, _: Lid) {}

    pub(crate) fn statistics(&self) -> SpaceStatistics {
        self.0
    }
}
