//! Bytes in whole pages of 4 KiB, aligned as disks want them when they are read and written past the page cache.
//!
//! ```text
//! | page: 4096 B | page | page: bytes, then zeros |
//!                                ▲ size
//! ```
//!
//! A page begins at a multiple of its size in memory, because the compiler aligns [`Page`] so. Only the bytes up to the
//! size have a meaning. [`Pages::padded`] writes zeros after them, up to the end of their page.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a page. Every read and write of a file begins and ends at a multiple of it.
pub const PAGE_SIZE: usize = 4096;

/// 4096 bytes at a multiple of 4096 in memory.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
pub struct Page([u8; PAGE_SIZE]);

const _: () = assert!(size_of::<Page>() == PAGE_SIZE && align_of::<Page>() == PAGE_SIZE);

impl Page {
    /// A page of zeros.
    pub const ZERO: Page = Page([0; PAGE_SIZE]);
}

/// A buffer of bytes whose memory is in pages. It keeps its memory when it is cleared.
#[derive(Default)]
pub struct Pages {
    memory: Vec<Page>,
    size: usize,
}

/// Returns the bytes of the pages that contain this number of bytes.
pub fn padded_size(size: u64) -> u64 {
    size.next_multiple_of(PAGE_SIZE as u64)
}

impl Pages {
    /// Returns the number of bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Removes all bytes.
    pub fn clear(&mut self) {
        self.size = 0;
    }

    /// Sets the number of bytes. Bytes beyond the old size have any content.
    pub fn set_size(&mut self, size: usize) {
        let count = size.div_ceil(PAGE_SIZE);
        if self.memory.len() < count {
            self.memory.resize(count, Page::ZERO);
        }
        self.size = size;
    }

    /// Appends bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        let start = self.size;
        self.set_size(start + bytes.len());
        self.bytes_mut()[start..].copy_from_slice(bytes);
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory.as_bytes()[..self.size]
    }

    /// Returns the bytes, to change them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory.as_mut_bytes()[..self.size]
    }

    /// Writes zeros after the bytes up to the end of their page. Returns the pages.
    pub fn padded(&mut self) -> &[Page] {
        let count = self.size.div_ceil(PAGE_SIZE);
        self.memory[..count].as_mut_bytes()[self.size..].fill(0);
        &self.memory[..count]
    }

    /// Returns the pages. The bytes after the size have any content, unless [`padded`](Self::padded) was called since
    /// they were changed.
    pub fn pages(&self) -> &[Page] {
        &self.memory[..self.size.div_ceil(PAGE_SIZE)]
    }

    /// Returns the pages, to read into them.
    pub fn pages_mut(&mut self) -> &mut [Page] {
        &mut self.memory[..self.size.div_ceil(PAGE_SIZE)]
    }
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pages").field("size", &self.size).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_bytes_do_not_follow_new_ones() {
        let mut pages = Pages::default();
        pages.extend(&[7; 5000]);
        assert_eq!((pages.size(), pages.pages().len()), (5000, 2));
        pages.clear();
        pages.extend(&[8; 10]);
        assert_eq!(pages.bytes(), [8; 10]);
        let page = pages.padded().as_bytes();
        assert_eq!((page.len(), page.as_ptr().align_offset(PAGE_SIZE)), (PAGE_SIZE, 0));
        assert!(page[..10] == [8; 10] && page[10..].iter().all(|&byte| byte == 0));
    }
}
