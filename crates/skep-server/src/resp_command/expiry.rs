//! Times in commands, which Redis has in seconds or milliseconds, from now or from 1970 on.

use skep_core::operation::{Expiry, ExpiryChange};

use super::Arguments;
use crate::unix_time::UnixTime;

/// The unit and the beginning of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeForm {
    in_seconds: bool,
    from_now: bool,
}

impl TimeForm {
    /// Seconds from now.
    pub(super) const EX: TimeForm = TimeForm { in_seconds: true, from_now: true };
    /// Milliseconds from now.
    pub(super) const PX: TimeForm = TimeForm { in_seconds: false, from_now: true };
    /// Seconds since 1970.
    pub(super) const EXAT: TimeForm = TimeForm { in_seconds: true, from_now: false };
    /// Milliseconds since 1970.
    pub(super) const PXAT: TimeForm = TimeForm { in_seconds: false, from_now: false };

    /// Returns true if times of this form count from now.
    pub(super) fn counts_from_now(self) -> bool {
        self.from_now
    }

    /// Returns the form of an option with this name.
    pub(super) fn of_option(name: &[u8]) -> Option<TimeForm> {
        let forms = [("EX", TimeForm::EX), ("PX", TimeForm::PX), ("EXAT", TimeForm::EXAT), ("PXAT", TimeForm::PXAT)];
        let mut forms = forms.into_iter();
        forms.find(|(word, _)| name.eq_ignore_ascii_case(word.as_bytes())).map(|(_, form)| form)
    }

    /// Returns the milliseconds since 1970, if 64 bits hold them.
    fn milliseconds(self, number: i64, now: UnixTime) -> Option<i64> {
        let number = if self.in_seconds { number.checked_mul(1000)? } else { number };
        number.checked_add(if self.from_now { now.milliseconds() } else { 0 })
    }

    /// Returns the time of a number that must be positive.
    pub(super) fn positive(self, number: i64, command: &str, now: UnixTime) -> Result<Expiry, String> {
        if number > 0 { self.any(number, command, now) } else { Err(invalid_time(command)) }
    }

    /// Returns the time of a number, which may be long ago.
    pub(super) fn any(self, number: i64, command: &str, now: UnixTime) -> Result<Expiry, String> {
        self.milliseconds(number, now).and_then(Expiry::at).ok_or_else(|| invalid_time(command))
    }
}

/// Returns the change to an expiry that is this many milliseconds later, or the latest.
pub(crate) fn later(change: ExpiryChange, milliseconds: i64) -> ExpiryChange {
    // The change from no expiry has one only if it sets one.
    change.apply(None).map_or(change, |expiry| {
        let later = expiry.milliseconds().cast_signed().saturating_add(milliseconds);
        ExpiryChange::set(Expiry::at(later).unwrap_or(Expiry::MAX))
    })
}

/// Returns true if a key with this expiry is missing.
pub(super) fn has_passed(expiry: Expiry, now: UnixTime) -> bool {
    expiry.has_passed(now.milliseconds().cast_unsigned())
}

/// Returns the number in an argument.
pub(super) fn integer(arguments: Arguments<'_>, index: usize) -> Result<i64, String> {
    arguments.integer(index).ok_or_else(|| "ERR value is not an integer or out of range".to_owned())
}

fn invalid_time(command: &str) -> String {
    format!("ERR invalid expire time in '{command}' command")
}
