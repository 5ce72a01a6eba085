//! The result of decoding the input of a connection.

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
    },
    /// A complete request needs this many more bytes of memory.
    NeedsMemory(usize),
}
