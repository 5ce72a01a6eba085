//! What decoding the input of a connection has found.

use skep_wire::native::Hello;

/// The position of an operation among those that have one reply together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) index: usize,
    pub(crate) count: usize,
}

/// The content of the input.
pub(crate) enum Decoded {
    /// The hello of a native connection has not arrived.
    NoHello,
    /// The hello of a native connection, and its size.
    Hello(Hello, usize),
    /// A part of a long request, of with its bytes: the next call continues.
    Part(usize),
    /// Requests, perhaps none.
    Requests {
        /// Operations of the first reply queue.
        queue_size: usize,
        /// Operations, or commands if these are more.
        request_count: usize,
        /// The rest of the input is no complete request.
        exhausted: bool,
    },
    /// A request is complete that needs this many bytes more to be parsed.
    NeedsMemory(usize),
}
