//! The expiry of a pair, as memcached's clients write it.
//!
//! ```text
//!   exptime             expires
//!   0                   never
//!   1 ..= 30 days       that many seconds from now
//!   above               at that time: seconds since 1970
//!   below 0             at once
//! ```
//!
//! As in memcached, the number is one of 32 bits with a sign, and higher bits are ignored. So 4294967295 is −1: clients that
//! send a negative number without its sign mean that the pair has expired.

use skep_core::operation::{Expiry, ExpiryChange};

/// Seconds of the longest relative time: 30 days.
const RELATIVE_MAX: i64 = 30 * 24 * 60 * 60;
const RELATIVE_MS_MAX: u64 = 1000 * RELATIVE_MAX as u64;

/// A number of seconds that gives the expiry of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Exptime(pub i64);

impl Exptime {
    /// The pair never expires.
    pub const NEVER: Exptime = Exptime(0);

    /// Returns the change that this makes to the expiry of a pair. `now_ms` is the time of day, in milliseconds since
    /// 1970.
    pub fn change(self, now_ms: u64) -> ExpiryChange {
        let milliseconds = match i64::from(self.0 as i32) {
            0 => return ExpiryChange::CLEAR,
            ..0 => 0,
            seconds @ 1..=RELATIVE_MAX => now_ms.saturating_add(1000 * seconds as u64),
            seconds => 1000_u64.saturating_mul(seconds as u64),
        };
        let expiry = i64::try_from(milliseconds).ok().and_then(Expiry::at);
        ExpiryChange::set(expiry.unwrap_or(Expiry::MAX))
    }

    /// Returns the change of a command that was decoded at the time 0, for its execution at this time. No absolute time is as
    /// small as a relative one.
    pub fn at(change: ExpiryChange, now_ms: u64) -> ExpiryChange {
        match change.apply(None).map(Expiry::milliseconds) {
            Some(after @ 1..=RELATIVE_MS_MAX) => {
                let expiry = i64::try_from(now_ms.saturating_add(after)).ok().and_then(Expiry::at);
                ExpiryChange::set(expiry.unwrap_or(Expiry::MAX))
            }
            _ => change,
        }
    }
}

#[cfg(test)]
mod tests {
    use skep_core::operation::{Expiry, ExpiryChange};

    use super::Exptime;

    #[test]
    fn relative_absolute_never_and_at_once() {
        const NOW: u64 = 1_800_000_000_500;
        let at = |milliseconds| Some(ExpiryChange::set(Expiry::at(milliseconds).unwrap()));
        let late = Some(ExpiryChange::set(Expiry::MAX));
        for (exptime, change) in [
            (0, Some(ExpiryChange::CLEAR)),
            (1, at(NOW as i64 + 1000)),
            (2_592_000, at(NOW as i64 + 2_592_000_000)),
            (2_592_001, at(2_592_001_000)),
            (1_800_000_100, at(1_800_000_100_000)),
            (i32::MAX.into(), at(2_147_483_647_000)),
            (1 << 31, at(0)),
            (4_000_000_000, at(0)),
            (u32::MAX.into(), at(0)),
            (1 << 32, Some(ExpiryChange::CLEAR)),
            ((1 << 32) + 1, at(NOW as i64 + 1000)),
            (-1, at(0)),
            (i64::MIN, Some(ExpiryChange::CLEAR)),
            (i64::MAX, at(0)),
        ] {
            assert_eq!(Some(Exptime(exptime).change(NOW)), change, "{exptime}");
        }
        assert_eq!(Some(Exptime(1).change(u64::MAX)), late);
    }
}
