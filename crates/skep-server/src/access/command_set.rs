//! A set of commands and subcommands, by their numbers. What a number means is known to `resp_command/permission.rs`.

/// Bits of a word.
const WORD: usize = u64::BITS as usize;

/// The number of commands and subcommands that a set may have.
pub(crate) const COMMANDS_MAX: usize = 4 * WORD;

/// A set of commands and subcommands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandSet([u64; COMMANDS_MAX / WORD]);

impl CommandSet {
    /// All commands, also those that do not exist yet.
    pub(crate) const ALL: CommandSet = CommandSet([u64::MAX; COMMANDS_MAX / WORD]);

    /// Adds or removes a command.
    pub(crate) fn set(&mut self, number: usize, is_in: bool) {
        let bit = 1 << (number % WORD);
        match is_in {
            true => self.0[number / WORD] |= bit,
            false => self.0[number / WORD] &= !bit,
        }
    }

    /// Returns true if the command is in the set.
    #[inline]
    pub(crate) fn has(&self, number: usize) -> bool {
        self.0[number / WORD] >> (number % WORD) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::{COMMANDS_MAX, CommandSet};

    #[test]
    fn each_number_has_a_bit_of_its_own() {
        for number in 0..COMMANDS_MAX {
            let mut set = CommandSet::default();
            set.set(number, true);
            assert!((0..COMMANDS_MAX).all(|other| set.has(other) == (other == number)));
            let mut set = CommandSet::ALL;
            set.set(number, false);
            assert!((0..COMMANDS_MAX).all(|other| set.has(other) == (other != number)));
        }
    }
}
