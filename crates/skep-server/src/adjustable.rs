//! Settings that `CONFIG SET` changes while the server runs. Every shard reads them; each is one number.

use std::sync::atomic::{AtomicI64, Ordering};

/// A number that any thread changes and every thread reads.
#[derive(Debug)]
pub(crate) struct Setting(AtomicI64);

impl Setting {
    fn new(value: i64) -> Setting {
        Setting(AtomicI64::new(value))
    }

    /// Returns the number.
    pub(crate) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Changes the number.
    pub(crate) fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// The settings that change at run time.
#[derive(Debug)]
pub(crate) struct Adjustable {
    /// Seconds after which a connection without requests is closed; 0: never.
    pub(crate) timeout: Setting,
    /// Seconds of silence after which the kernel asks for the peer of a connection; 0: it does not.
    pub(crate) tcp_keepalive: Setting,
    /// Microseconds from which on a command is entered in the slow log; negative: none is.
    pub(crate) slow_log_from: Setting,
    /// Entries of the slow log.
    pub(crate) slow_log_length: Setting,
}

impl Adjustable {
    /// Creates the settings at the start, from their numbers of seconds.
    pub(crate) fn new(timeout: u32, tcp_keepalive: u32) -> Adjustable {
        Adjustable {
            timeout: Setting::new(i64::from(timeout)),
            tcp_keepalive: Setting::new(i64::from(tcp_keepalive)),
            slow_log_from: Setting::new(10_000),
            slow_log_length: Setting::new(128),
        }
    }
}
