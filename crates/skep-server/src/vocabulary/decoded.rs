//! What decoding an input finds, and the memory that it needs.

use skep_wire::native::Hello;

/// The content of the input.
pub(crate) enum Decoded {
    /// The hello of a native connection has not arrived.
    NoHello,
    /// The hello of a native connection, and its size.
    Hello(Hello, usize),
    /// Part of a long request was decoded: the bytes of that part. The next call continues.
    Part(usize),
    /// Requests, perhaps none.
    Requests {
        /// Operations of the first reply queue.
        queue_size: usize,
        /// The larger one of the numbers of operations and of commands.
        request_count: usize,
        /// The rest of the input has no complete request.
        exhausted: bool,
        /// Work of decoding them, in bytes touched, beside the bytes of the input.
        work: usize,
    },
    /// A complete request needs this many more bytes of memory, and may take more in addition.
    NeedsMemory { bytes: usize, perhaps: usize },
}

/// The memory that a request needs which is arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// Bytes of the request, at least.
    pub(crate) size_min: usize,
    /// It has no more bytes.
    pub(crate) is_size_known: bool,
    /// Bytes besides its own that it certainly takes.
    pub(crate) besides: usize,
    /// Bytes that it may take in addition.
    pub(crate) perhaps: usize,
}

impl Need {
    /// Returns the need of a request of this size, if it is known.
    pub(crate) fn of_size(size: Option<usize>) -> Need {
        Need { size_min: size.unwrap_or(0), is_size_known: size.is_some(), besides: 0, perhaps: 0 }
    }
}

/// Makes room for at least one more element. Doubles the room if the memory allows that. Returns false if even one more
/// would exceed `memory_max` bytes, together with the `held` bytes of other buffers. A first element is always allowed.
pub(crate) fn make_room<T>(elements: &mut Vec<T>, held: usize, memory_max: usize) -> bool {
    if elements.len() < elements.capacity() {
        return true;
    }
    let fits = |more: usize| held + (elements.len() + more) * size_of::<T>() <= memory_max;
    let more = [elements.len().max(4), 1].into_iter().find(|&more| fits(more));
    if more.is_none() && !elements.is_empty() {
        return false;
    }
    elements.reserve_exact(more.unwrap_or(1));
    true
}
