//! The wait of a client for its shards.
//!
//! 1. It polls the words of the shards for [`SPIN_TIME`], and gives its core to other threads in between.
//! 2. It asks the shards for doorbells, and polls once more.
//! 3. It sleeps until a socket is readable. A doorbell may be an old one, so it begins again with step 2.

use std::io::Result;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::End;

/// The time for which a client polls words: about what the wake-ups of the server and of the client take.
const SPIN_TIME: Duration = Duration::from_micros(50);
/// Polls of words before a client gives its core to another thread, perhaps to that of a shard.
const POLLS_BEFORE_YIELD: usize = 64;

/// Waits until one of the ends has bytes to receive, or room if its flag asks for it, or until the other side of one has
/// ended. Returns false if the time is over.
pub fn wait(ends: &[(&End, bool)], limit: Duration) -> Result<bool> {
    let begun = Instant::now();
    if poll_words(ends, begun, SPIN_TIME.min(limit)) {
        return Ok(true);
    }
    loop {
        for (end, for_room) in ends {
            end.begin_wait(*for_room);
        }
        let slept = if is_any_ready(ends) { Ok(true) } else { sleep(ends, limit.saturating_sub(begun.elapsed())) };
        for (end, _) in ends {
            end.end_wait();
        }
        if !slept? {
            return Ok(false);
        }
        if is_any_ready(ends) {
            return Ok(true);
        }
    }
}

fn is_any_ready(ends: &[(&End, bool)]) -> bool {
    ends.iter().any(|(end, for_room)| end.is_ready(*for_room))
}

/// Polls words for this time. Returns true if an end is ready.
fn poll_words(ends: &[(&End, bool)], begun: Instant, time: Duration) -> bool {
    loop {
        for _ in 0..POLLS_BEFORE_YIELD.div_ceil(ends.len()) {
            if is_any_ready(ends) {
                return true;
            }
            std::hint::spin_loop();
        }
        if begun.elapsed() >= time {
            return false;
        }
        thread::yield_now();
    }
}

/// Sleeps until a socket is readable, and takes its doorbells. Returns false if the time is over. A signal ends the
/// sleep too.
fn sleep(ends: &[(&End, bool)], time: Duration) -> Result<bool> {
    let mut polled: Vec<_> = ends.iter().map(|(end, _)| PollFd::new(*end, PollFlags::IN)).collect();
    match poll(&mut polled, Timespec::try_from(time).ok().as_ref()) {
        Ok(0) => return Ok(false),
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    for ((end, _), fd) in ends.iter().zip(&polled) {
        if !fd.revents().is_empty() {
            end.take_doorbells();
        }
    }
    Ok(true)
}
