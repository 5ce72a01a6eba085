//! Makes the C library return the memory of freed buffers to the system.
//!
//! 1. The C library's allocator maps each buffer above a threshold separately, and unmaps it when it is freed.
//! 2. By default, freeing such a buffer raises the threshold to its size, up to 32 MiB. Later buffers are then
//!    allocated from heaps. A heap shrinks only at its end, so one small buffer keeps all memory below it.
//! 3. A threshold set by the program is not raised. It is larger than the buffers of small requests, so that these cost
//!    no system call.
//!
//! C libraries other than GNU's map large buffers separately by default.

#![expect(unsafe_code, reason = "the C library's function that sets a parameter of its allocator")]

/// Smallest size of a separately mapped buffer, in bytes.
#[cfg(target_env = "gnu")]
const MAPPED_SIZE: i32 = 32 << 10;

/// Sets the threshold for the whole process. Must be called before it allocates buffers.
#[cfg(target_env = "gnu")]
pub(super) fn return_freed_buffers() {
    unsafe extern "C" {
        fn mallopt(parameter: i32, value: i32) -> i32;
    }
    /// `M_MMAP_THRESHOLD` of `malloc.h`.
    const MMAP_THRESHOLD: i32 = -3;
    // SAFETY: mallopt(3) accepts any two numbers and takes the allocator's own lock.
    let is_set = unsafe { mallopt(MMAP_THRESHOLD, MAPPED_SIZE) };
    debug_assert_eq!(is_set, 1, "the allocator knows the parameter");
}

/// Does nothing: this C library needs no setting.
#[cfg(not(target_env = "gnu"))]
pub(super) fn return_freed_buffers() {}
