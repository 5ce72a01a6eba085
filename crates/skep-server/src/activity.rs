//! What the shard of a connection tells about it to all others.

use crate::counter::Counter;

/// What the shard of a connection tells about it, in each turn in which it replies to commands.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Milliseconds after the start of the server.
    pub(crate) at: Counter,
    /// The number of the last command in the table, and one more; 0: there was none.
    pub(crate) command: Counter,
    /// 1 while it gets the commands of all others (`MONITOR`).
    pub(crate) monitors: Counter,
}

impl Activity {
    /// Records a turn, at this number of milliseconds after the start, whose last command was `command`, unless it is 0.
    pub(crate) fn record(&self, command: usize, at: u64) {
        if command > 0 {
            self.command.set(command as u64);
            self.at.set(at);
        }
    }
}
