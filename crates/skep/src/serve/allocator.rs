//! Gives the memory of buffers back to the system when they are freed.
//!
//! 1. The C library's allocator maps buffers from a threshold up one by one, and unmaps each when it is freed.
//! 2. By default it raises the threshold to the size of each such buffer that is freed, up to 32 MiB. From then on buffers
//!    lie in heaps that shrink only at their end, so one small piece keeps all that is below it.
//! 3. A threshold that is set stays. It is set above the buffers of small requests, so that these cost no system call.
//!
//! Other C libraries than that of GNU map large buffers one by one without being told.

#![expect(unsafe_code, reason = "the C library's function that sets a parameter of its allocator")]

/// Bytes from which a buffer is mapped on its own.
#[cfg(target_env = "gnu")]
const MAPPED_SIZE: i32 = 32 << 10;

/// Sets the threshold, for the whole process and before it has buffers.
#[cfg(target_env = "gnu")]
pub(super) fn return_freed_buffers() {
    unsafe extern "C" {
        fn mallopt(parameter: i32, value: i32) -> i32;
    }
    /// `M_MMAP_THRESHOLD` of `malloc.h`.
    const MMAP_THRESHOLD: i32 = -3;
    // SAFETY: mallopt(3) takes any two numbers; it takes the allocator's own lock.
    let is_set = unsafe { mallopt(MMAP_THRESHOLD, MAPPED_SIZE) };
    debug_assert_eq!(is_set, 1, "the allocator knows the parameter");
}

/// Nothing is to be set.
#[cfg(not(target_env = "gnu"))]
pub(super) fn return_freed_buffers() {}
