//! The input of an import: a file or a pipe.
//!
//! A pipe may be silent for a long time, such as that of `tail -f`. So a read waits only until the changes that were
//! read before are old; then these are sent, and it waits for the pipe alone.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::batch::Batch;
use crate::transfer::Progress;

/// A file or a pipe whose changes are added to a batch.
pub(super) struct Input<'a> {
    pub(super) file: &'a File,
    pub(super) batch: &'a RefCell<Batch>,
    pub(super) progress: &'a Progress,
}

impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut batch = self.batch.borrow_mut();
        if let Some(left) = batch.time_left()
            && !is_readable(self.file, left)
        {
            if let Err(failure) = batch.send() {
                batch.failure = Some(failure);
                return Err(io::Error::other("the server takes no more changes"));
            }
            self.progress.set_resume(batch.acknowledged().to_string());
        }
        self.file.read(buffer)
    }
}

/// Waits for bytes or the end of a file. Returns false after a time without them, and if it cannot wait.
fn is_readable(file: &File, limit: Duration) -> bool {
    let mut files = [PollFd::new(file, PollFlags::IN)];
    Timespec::try_from(limit).is_ok_and(|limit| poll(&mut files, Some(&limit)).is_ok_and(|count| count > 0))
}
