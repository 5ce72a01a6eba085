//! The end of a run by a signal: Ctrl-C (SIGINT) or SIGTERM.
//!
//! 1. At the first signal the clients stop after the batches that are in flight.
//! 2. The run deletes its keys, prints what it has measured, and ends with 128 plus the number of the signal.
//! 3. A second signal ends it at once, so that a server which does not reply cannot keep it.

use std::io::{self, Write};
use std::process;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// The number of the first signal; 0 before it.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// A signal that is closer to the first one is a copy of it: `timeout` sends it to the process and to its group.
const COPY_TIME_MAX: Duration = Duration::from_millis(300);

/// Starts the thread that waits for signals, if it does not run. Without it, a signal ends the program at once. The message
/// says what happens after the first one.
pub(super) fn watch(message: &'static str) {
    static START: Once = Once::new();
    START.call_once(|| {
        let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
        thread::spawn(move || {
            let mut first: Option<Instant> = None;
            for signal in signals.forever() {
                match first {
                    None => {
                        first = Some(Instant::now());
                        FIRST.store(signal, Ordering::Relaxed);
                        // The run ends too if standard error is closed.
                        _ = writeln!(io::stderr(), "skep: interrupted: {message}");
                    }
                    Some(at) if at.elapsed() < COPY_TIME_MAX => {}
                    Some(_) => process::exit(128 + signal),
                }
            }
        });
    });
}

/// Returns true after the first signal.
pub(super) fn is_set() -> bool {
    FIRST.load(Ordering::Relaxed) != 0
}

/// Returns the end of the program after a signal. The text is appended to its message.
pub(super) fn failure(rest: &str) -> Option<Failure> {
    let signal = FIRST.load(Ordering::Relaxed);
    (signal != 0).then(|| Failure::Interrupted { signal, message: format!("interrupted{rest}") })
}
