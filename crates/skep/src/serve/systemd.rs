//! Messages to the service manager that started this process (systemd, or another one that sets `NOTIFY_SOCKET`).
//!
//! It is told when the server is ready, when it stops, and, if the unit has `WatchdogSec=`, that all shards work. Without
//! `NOTIFY_SOCKET`, there are no messages and no thread.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use std::{env, thread};

use sd_notify::NotifyState;
use skep_server::Pulse;

/// Notifies the service manager, if it started this process.
pub(super) fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}

/// A thread that tells the service manager, twice in each interval of `WATCHDOG_USEC`, that all shards have begun a turn since
/// the last time. If one has not, the thread is silent, and the service manager ends the process and starts it again. The
/// thread ends when this is dropped.
pub(super) struct Watchdog {
    _running: Option<Sender<()>>,
}

impl Watchdog {
    /// Starts the thread, if the service manager wants to hear from it.
    pub(super) fn start(mut pulse: Pulse) -> Watchdog {
        let interval = env::var_os("NOTIFY_SOCKET").and_then(|_| sd_notify::watchdog_enabled());
        let Some(interval) = interval.filter(|interval| *interval > Duration::ZERO) else {
            return Watchdog { _running: None };
        };
        let (running, ended) = channel();
        let watch = move || {
            loop {
                if pulse.take() {
                    notify(NotifyState::Watchdog);
                } else {
                    tracing::error!("a shard makes no progress: the watchdog is not told that the server works");
                }
                if ended.recv_timeout(interval / 2) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("skep-watchdog".to_owned()).spawn(watch) {
            tracing::warn!(%error, "cannot start the thread of the watchdog: systemd will end the server");
        }
        Watchdog { _running: Some(running) }
    }
}
