//! Anonymous pages from the kernel, for every region of the stores.
//!
//! ```text
//! reserved:  ├───┬───────────────── size ─────────────────┬───┤
//!                └ aligned to 2 MiB, so that huge pages can back all of it
//! ```
//!
//! The mapping asks for transparent huge pages. If the kernel refuses, only the speed changes. Pages are reserved at
//! once, touched lazily, and arrive zeroed.
//!
//! Pages that may stay unused for ever are [guarded](Mapping::with_guarded): no access to them is allowed, so a kernel
//! that counts what programs may write (`vm.overcommit_memory=2`) does not count them until they are opened.
#![expect(unsafe_code, reason = "pages from the kernel, and prefetches of them")]

use std::ffi::c_void;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use rustix::param::page_size;

use super::region_error::RegionError;

/// Bytes of a huge page on x86-64 and 64-bit Arm with 4 KiB pages.
const HUGE_PAGE_SIZE: usize = 2 << 20;

/// Pages that belong to this value alone. It only returns their address. Its owner decides who may read and write them.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// As the kernel gave it.
    reserved: NonNull<c_void>,
    reserved_size: usize,
    /// The first byte, aligned to a huge page.
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: the pages belong to this value alone, and it does nothing with them but to unmap them when it is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared one only gives its address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `size` bytes.
    pub(crate) fn new(size: u64) -> Result<Self, RegionError> {
        Self::with_guarded(size, size)
    }

    /// Reserves `size` bytes, of which those from the page after `open` on are guarded.
    pub(crate) fn with_guarded(size: u64, open: u64) -> Result<Self, RegionError> {
        let refused = |reason: String| RegionError::Refused { size, reason };
        let size = usize::try_from(size).map_err(|e| refused(e.to_string()))?;
        let reserved_size = size + HUGE_PAGE_SIZE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice overlaps nothing.
        let reserved = unsafe { mmap_anonymous(std::ptr::null_mut(), reserved_size, ProtFlags::empty(), flags) }
            .map_err(|e| refused(e.to_string()))?;
        let reserved = NonNull::new(reserved).ok_or_else(|| refused("a mapping at address zero".into()))?;
        let offset = reserved.cast::<u8>().align_offset(HUGE_PAGE_SIZE);
        // SAFETY: `offset` is below the huge page's size, by which what is reserved exceeds `size`.
        let base = unsafe { reserved.cast::<u8>().add(offset) };
        // SAFETY: the range lies within the mapping that was just made; the advice does not change its content.
        // A kernel that refuses changes speed only.
        let _ = unsafe { madvise(base.as_ptr().cast(), size, Advice::LinuxHugepage) };
        let mapping = Mapping { reserved, reserved_size, base, size };
        mapping.open(0, open as usize).map_err(|e| refused(e.to_string()))?;
        Ok(mapping)
    }

    /// Returns the address of the first byte.
    #[inline(always)]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Makes bytes readable and writable, from the page after `start` on.
    pub(crate) fn open(&self, start: usize, end: usize) -> rustix::io::Result<()> {
        let start = start.next_multiple_of(page_size());
        let Some(size) = end.min(self.size).checked_sub(start).filter(|size| *size > 0) else { return Ok(()) };
        let flags = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the range lies within this mapping; more access takes nothing away from who uses it.
        unsafe { mprotect(self.base.as_ptr().add(start).cast(), size, flags) }
    }

    /// Frees the pages after `start` and guards them: the next to open them finds zeros.
    ///
    /// # Panics
    /// If the kernel refuses: the pages would keep what they had.
    pub(crate) fn guard(&mut self, start: usize) {
        let start = start.next_multiple_of(page_size());
        let Some(size) = self.size.checked_sub(start).filter(|size| *size > 0) else { return };
        // SAFETY: the range lies within this mapping, and the exclusive reference shows that it is not in use now.
        let guarded = unsafe {
            let address = self.base.as_ptr().add(start).cast();
            madvise(address, size, Advice::LinuxDontNeed).and_then(|()| mprotect(address, size, MprotectFlags::empty()))
        };
        guarded.expect("the kernel takes pages back");
    }

    /// Touches every page of the first `size` bytes, so that no operation waits for one later. Returns true if the kernel
    /// could: Linux 5.14 and newer can.
    pub(crate) fn populate(&self, size: usize) -> bool {
        // SAFETY: the range is part of this mapping; populating does not change its content.
        unsafe { madvise(self.base.as_ptr().cast(), size.min(self.size), Advice::LinuxPopulateWrite) }.is_ok()
    }

    /// Returns the bytes from there on.
    #[inline(always)]
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this size, and its owner lets no reference into it live longer.
        let unmapped = unsafe { munmap(self.reserved.as_ptr(), self.reserved_size) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// Prefetches the line at any address.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, for any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Prefetches the line at an address into the second cache, which can wait for more lines at a time than the first.
#[inline(always)]
pub(crate) fn prefetch_outer(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, for any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
