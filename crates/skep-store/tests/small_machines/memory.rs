//! The memory that reclamation gives back, as the models have it: frames are numbers. The page table is the store's.

#[path = "../../src/ordered/memory/page_table.rs"]
pub(crate) mod page_table;

/// Stands for `memory::frame_state`: a frame is a number.
pub(crate) mod frame_state {
    #[derive(Debug)]
    pub(crate) struct RetiredFrame(pub(crate) u32);

    impl RetiredFrame {
        pub(crate) fn units(&self) -> usize {
            1
        }

        pub(crate) fn reuse(self) -> u32 {
            self.0
        }
    }
}

/// Stands for `memory::number`.
pub(crate) mod number {
    pub(crate) const UNIT_512_SIZE: usize = 512;

    #[derive(Debug)]
    pub(crate) struct Lid;
}
