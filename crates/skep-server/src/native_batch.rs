//! The parsed batch of a native connection: whole request frames.
//!
//! The frames stay where they arrived. They are decoded when their operations are submitted. A frame of tens of
//! thousands of operations is submitted in parts. The positions where the last part began and ended are stored. So the
//! next part, and the few operations that a store deferred, are found without decoding all operations before them.

use std::cell::Cell;

use skep_wire::native::{
    FUNCTIONS_SPACE, Operations, Position, ProtocolError, REPLY_FRAME_SIZE_FULL, ReplyFrameWriter, RequestFrame,
};

use crate::access::{Access, LimitedUser, Login};
use crate::encoding::Encoding;
use crate::limits::{PARSED_OPERATIONS_MAX, PARSED_SIZE_MAX};
use crate::unix_time::UnixTime;
use crate::vocabulary::{Functions, Need, Space, Spaces, make_room};
use functions::FunctionsFrame;

mod functions;
mod permission;

pub(crate) use permission::{describe_denial, permit};

/// The decoded frames.
#[derive(Debug)]
pub(crate) struct NativeBatch {
    spaces: Spaces,
    /// The user of the connection.
    login: Box<Login>,
    frames: Vec<FrameEntry>,
    /// Bytes of the input that the frames take.
    size: usize,
    /// Index of the frame with the first reply that is not in the output.
    frame: usize,
    /// Index of that reply's operation in the frame.
    operation: usize,
    /// The positions where the last submission began and ended.
    submitted: Cell<[FramePosition; 2]>,
    /// The progress of the frame if it is on functions: then it is the only one.
    functions: Option<Box<FunctionsFrame>>,
}

/// A position in one of the frames.
#[derive(Clone, Copy, Debug, Default)]
struct FramePosition {
    frame: usize,
    position: Position,
}

/// The position of a frame in the input.
#[derive(Debug)]
struct FrameEntry {
    start: usize,
    sequence: u32,
    count: u16,
}

impl FrameEntry {
    /// Returns the frame; `input` has the bytes from which it was decoded before.
    fn decode<'a>(&self, input: &'a [u8]) -> RequestFrame<'a> {
        let Ok(Some((frame, _))) = RequestFrame::decode(&input[self.start..]) else {
            unreachable!("the frame was decoded from these bytes before")
        };
        frame
    }
}

impl NativeBatch {
    /// Returns a batch without frames; they may name these spaces.
    pub(crate) fn new(spaces: Spaces, login: Login) -> NativeBatch {
        NativeBatch {
            spaces,
            login: Box::new(login),
            frames: Vec::new(),
            size: 0,
            frame: 0,
            operation: 0,
            submitted: Cell::default(),
            functions: None,
        }
    }

    /// Returns the login of the connection.
    #[inline]
    pub(crate) fn login(&self) -> &Login {
        &self.login
    }

    /// Returns the login of the connection, to be changed.
    #[inline]
    pub(crate) fn login_mut(&mut self) -> &mut Login {
        &mut self.login
    }

    /// Takes whole frames from the input, as many as a batch may have. Returns the number of operations, and true if no
    /// more frames are complete.
    pub(crate) fn decode(
        &mut self,
        input: &[u8],
        memory_max: usize,
        now: UnixTime,
        access: &Access,
    ) -> Result<(usize, bool), ProtocolError> {
        self.login.refresh(access, now);
        let mut operation_count = 0;
        while operation_count < PARSED_OPERATIONS_MAX && self.size < PARSED_SIZE_MAX {
            match RequestFrame::decode(&input[self.size..]) {
                // The frames before one on functions are executed first, and those after it last.
                Ok(Some((frame, _))) if frame.space == FUNCTIONS_SPACE && !self.frames.is_empty() => break,
                Ok(Some((frame, size))) => {
                    if !make_room(&mut self.frames, 0, memory_max) {
                        break;
                    }
                    let (sequence, count) = (frame.sequence, frame.count);
                    self.frames.push(FrameEntry { start: self.size, sequence, count });
                    self.size += size;
                    if frame.space == FUNCTIONS_SPACE && count > 0 {
                        self.functions = Some(Box::default());
                        break;
                    }
                    operation_count += usize::from(count);
                }
                Ok(None) => return Ok((operation_count, true)),
                // The frames before it are executed first. The next batch finds the error again.
                Err(_) if !self.frames.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok((operation_count, false))
    }

    /// Returns the memory that the frame needs which begins with these bytes and is incomplete.
    pub(crate) fn arriving(&self, input: &[u8]) -> Need {
        Need::of_size(RequestFrame::size_of(input))
    }

    /// Returns the bytes of the input that the frames take.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.frames.capacity() * size_of::<FrameEntry>()
    }

    /// Returns the memory of a finished parsed batch.
    pub(crate) fn release(&mut self) {
        self.frames = Vec::new();
    }

    /// Returns true if all replies are in the output.
    pub(crate) fn is_finished(&self) -> bool {
        self.frame == self.frames.len()
    }

    /// Forgets the frames. Returns the bytes of the input that they took.
    pub(crate) fn finish(&mut self) -> usize {
        self.frames.clear();
        self.frames.shrink_to(PARSED_OPERATIONS_MAX);
        (self.frame, self.operation) = (0, 0);
        self.submitted.take();
        self.functions = None;
        std::mem::take(&mut self.size)
    }

    /// Returns the operations whose replies are not in the output, in order.
    pub(crate) fn operations<'a>(&'a self, input: &'a [u8]) -> NativeOperations<'a> {
        // The last position that is not after the first operation whose reply is not in the output.
        let mut begin = FramePosition { frame: self.frame, position: Position::default() };
        for end in self.submitted.get() {
            if end.frame == self.frame && (begin.position.count()..=self.operation).contains(&end.position.count()) {
                begin = end;
            }
        }
        let mut operations = NativeOperations { parsed: self, input, begin, index: self.frame, frame: None };
        operations.open(begin.position);
        operations.skip(self.operation - begin.position.count());
        operations
    }

    /// Returns the number of operations on functions without a reply.
    pub(crate) fn functions_left(&self) -> usize {
        match (&self.functions, self.frames.get(self.frame)) {
            (Some(functions), Some(entry)) => usize::from(entry.count) - functions.done(),
            _ => 0,
        }
    }

    /// Executes operations on functions, and writes the replies that have arrived, in order, until the output is full.
    pub(crate) fn encode(&mut self, encoding: &mut Encoding<'_, '_>) {
        let Encoding { input, output, end, context, .. } = encoding;
        if let (Some(functions), Some(entry)) = (&mut self.functions, self.frames.get(self.frame)) {
            if functions.run(&entry.decode(input), &mut self.login, output, *end, context) {
                self.frame += 1;
            }
            return;
        }
        match self.login.counts_replies() {
            true => self.encode_frames::<true>(encoding),
            false => self.encode_frames::<false>(encoding),
        }
    }

    /// Writes the replies of frames. If they may count for the limit of the user, errors do not, nor does a frame that has
    /// nothing else: they say that an operation was not executed.
    fn encode_frames<const COUNTS: bool>(&mut self, encoding: &mut Encoding<'_, '_>) {
        let Encoding { queue, replies, output, end, .. } = encoding;
        while let Some(entry) = self.frames.get(self.frame) {
            if output.len() > *end {
                return;
            }
            let count = usize::from(entry.count);
            if count > 0 && queue.next(replies).is_none() {
                return;
            }
            let (begin, mut errors_size, mut has_reply) = (output.len(), 0, false);
            let mut writer = ReplyFrameWriter::new(output, entry.sequence);
            self.operation += queue.take(count - self.operation, replies, |response| {
                let before = if COUNTS { writer.size() } else { 0 };
                writer.push(response);
                if COUNTS {
                    has_reply |= response.is_ok();
                    errors_size += if response.is_ok() { 0 } else { writer.size() - before };
                }
                writer.size() < REPLY_FRAME_SIZE_FULL
            });
            writer.finish();
            if COUNTS {
                self.login.leave_uncounted(if has_reply { errors_size } else { output.len() - begin });
            }
            if self.operation == count {
                self.operation = 0;
                self.frame += 1;
            }
        }
    }
}

/// The operations of a parsed batch from a position on. When it is dropped, it stores the position where it ended.
pub(crate) struct NativeOperations<'a> {
    parsed: &'a NativeBatch,
    input: &'a [u8],
    begin: FramePosition,
    /// Index of the frame that is being decoded.
    index: usize,
    /// That frame, the space that it names, and its operations that are left.
    frame: Option<(RequestFrame<'a>, Option<Space>, Operations<'a>)>,
}

impl<'a> NativeOperations<'a> {
    /// Opens the frame that it is in, if there is one, at a position.
    fn open(&mut self, position: Position) {
        self.frame = self.parsed.frames.get(self.index).map(|entry| {
            let frame = entry.decode(self.input);
            (frame, self.parsed.spaces.find(frame.space), frame.operations_from(position))
        });
    }

    /// Calls `f` with the operations of one frame after another, and the number of them that it may take, until it has
    /// taken `count` or takes none.
    #[inline]
    pub(crate) fn for_each_frame(
        &mut self,
        mut count: usize,
        mut f: impl FnMut(Option<Space>, usize, &mut Operations<'a>),
    ) {
        while count > 0
            && let Some((_, space, operations)) = &mut self.frame
        {
            let left = operations.len();
            if left == 0 {
                self.index += 1;
                self.open(Position::default());
                continue;
            }
            f(*space, count.min(left), operations);
            let taken = left - operations.len();
            if taken == 0 {
                return;
            }
            count -= taken;
        }
    }

    /// Returns the user whose permissions are to be checked, if there is one.
    #[inline]
    pub(crate) fn limited(&self) -> Option<LimitedUser<'a>> {
        self.parsed.login.limited()
    }

    /// Returns the functions that the operations may name.
    pub(crate) fn functions(&self) -> &'static Functions {
        self.parsed.spaces.functions
    }

    /// Skips operations.
    pub(crate) fn skip(&mut self, count: usize) {
        self.for_each_frame(count, |_, count, operations| operations.take(count).for_each(drop));
    }
}

impl Drop for NativeOperations<'_> {
    fn drop(&mut self) {
        if let Some((frame, _, operations)) = &self.frame {
            let end = FramePosition { frame: self.index, position: frame.position(operations) };
            self.parsed.submitted.set([self.begin, end]);
        }
    }
}
