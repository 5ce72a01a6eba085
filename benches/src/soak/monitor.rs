//! Attacks that request the server's statistics, and scans whose leases are left open.

use std::time::Duration;

use super::resp::Resp;
use super::turn::Turn;

/// Commands in a turn.
const COMMANDS: usize = 100;
/// Pause between two INFOs.
const INFO_PAUSE: Duration = Duration::from_millis(10);
/// Pause between two CLIENT LISTs.
const CLIENT_LIST_PAUSE: Duration = Duration::from_millis(50);
/// Leases of a connection that is dropped.
const LEASES: usize = 20;

/// Sends INFO every ten milliseconds.
pub(super) fn info(turn: &mut Turn<'_>) -> Result<(), String> {
    ask(turn, &[b"INFO"], INFO_PAUSE)
}

/// Sends CLIENT LIST every fifty milliseconds.
pub(super) fn client_list(turn: &mut Turn<'_>) -> Result<(), String> {
    ask(turn, &[b"CLIENT", b"LIST"], CLIENT_LIST_PAUSE)
}

fn ask(turn: &Turn<'_>, words: &[&[u8]], pause: Duration) -> Result<(), String> {
    let mut resp = turn.connect()?;
    for _ in 0..COMMANDS {
        call(turn, &mut resp, words)?;
        turn.stage.pause(pause);
        if turn.stage.is_over() {
            break;
        }
    }
    Ok(())
}

/// Begins scans with a lease and requests only their first pages.
pub(super) fn abandoned_leases(turn: &mut Turn<'_>) -> Result<(), String> {
    let mut resp = turn.connect()?;
    call(turn, &mut resp, &[b"SELECT", b"1"])?;
    for _ in 0..LEASES {
        call(turn, &mut resp, &[b"SKEP.SCAN", b"-", b"+", b"LIMIT", b"5", b"LEASE", b"OPEN"])?;
    }
    Ok(())
}

fn call(turn: &Turn<'_>, resp: &mut Resp, words: &[&[u8]]) -> Result<(), String> {
    resp.call(words).map_err(|error| error.to_string())?;
    turn.tally.add(1);
    Ok(())
}
