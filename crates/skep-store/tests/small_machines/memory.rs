//! The memory that reclamation gives back, as the models have it: frames are numbers, and a space counts those that are free.

/// The module that the store's files import as `super::frame`: a frame is a number, and how often it is in use.
pub(crate) mod frame {
    pub(crate) const GRANULE_SIZE: usize = 512;

    #[derive(Debug)]
    pub(crate) struct Replaced(pub(crate) u32);

    impl Replaced {
        pub(crate) fn granules(&self) -> usize {
            1
        }

        pub(crate) fn reuse(self) -> u32 {
            self.0
        }
    }
}

/// The module that the store's files import as `super::header`.
pub(crate) mod header {
    #[derive(Debug)]
    pub(crate) struct Lid;
}

/// The module that the store's files import as `super::space`: it only counts.
pub(crate) mod space {
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

        pub(crate) fn free_lid(&mut self, _: super::header::Lid) {}

        pub(crate) fn statistics(&self) -> SpaceStatistics {
            self.0
        }
    }
}
