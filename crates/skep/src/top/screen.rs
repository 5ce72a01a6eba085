//! The terminal of `skep top`. It gets back its own screen and its cursor also if a signal ends the program.

use std::io;
use std::process;
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{LeaveAlternateScreen, disable_raw_mode};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::rates::History;
use super::view;

/// Is locked by the thread that writes to the terminal.
static OUTPUT: Mutex<()> = Mutex::new(());
/// The longest time that a terminal may take, after a signal, to accept what restores it: it may be stopped (Ctrl-S).
const RESTORE_TIME_MAX: Duration = Duration::from_secs(1);

/// Begins to use the terminal. `ratatui::restore` ends it.
pub(super) fn open() -> io::Result<DefaultTerminal> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            end(signal);
        }
    });
    let _output = output();
    ratatui::try_init()
}

/// Draws the metrics.
pub(super) fn draw(terminal: &mut DefaultTerminal, history: &History, address: &str) -> io::Result<()> {
    let _output = output();
    terminal.draw(|frame| view::draw(frame, history, address)).map(drop)
}

fn output() -> MutexGuard<'static, ()> {
    OUTPUT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Restores the terminal and ends the program because of a signal.
fn end(signal: i32) -> ! {
    let (done, restored) = channel();
    thread::spawn(move || {
        let _output = output();
        // The terminal may be closed.
        _ = disable_raw_mode();
        _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        _ = done.send(());
        // Nothing is drawn before the end of the program.
        loop {
            thread::park();
        }
    });
    _ = restored.recv_timeout(RESTORE_TIME_MAX);
    process::exit(128 + signal)
}
