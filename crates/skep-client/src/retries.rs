//! Decides if a call that failed connects again, and how long it waits before.
//!
//! A call may be repeated only if none of its updates can be executed twice:
//!
//! 1. A request that has its reply is never sent again.
//! 2. A request of which no byte was sent is sent over the new connection.
//! 3. A read that was sent and has no reply is sent again. It changes nothing.
//! 4. An update that was sent and has no reply may have happened. The call fails and says so.
//!
//! The wait doubles with each retry, up to a bound. Half of it is random, so that the clients of a server that was
//! restarted do not all connect at the same moments.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use skep_core::operation::Request;

use crate::error::ClientError;
use crate::exchange::Exchange;
use crate::settings::ClientSettings;

/// The longest wait before the first retry of a call.
const FIRST_DELAY: Duration = Duration::from_millis(10);

/// The retries of one call.
#[derive(Debug)]
pub(crate) struct Retries {
    left: u32,
    /// The longest wait before the next retry.
    delay: Duration,
    delay_max: Duration,
}

impl Retries {
    /// Returns the retries that the settings allow.
    pub(crate) fn new(settings: &ClientSettings) -> Self {
        let delay_max = settings.retry_delay_max;
        Retries { left: settings.retries_max, delay: FIRST_DELAY.min(delay_max), delay_max }
    }

    /// Returns the time to wait before the call is repeated after this error. Returns the error of the call if it must
    /// not be repeated.
    pub(crate) fn delay_after(
        &mut self,
        error: ClientError,
        exchange: &Exchange,
        batch: &[Request<'_>],
    ) -> Result<Duration, ClientError> {
        let is_repeatable = error.is_repeatable() && !exchange.has_update_in_flight(batch);
        match is_repeatable.then(|| self.next_delay(RandomState::new().hash_one(self.left))).flatten() {
            Some(delay) => Ok(delay),
            None if exchange.may_have_updated(batch) => Err(ClientError::MayHaveHappened { source: Box::new(error) }),
            None => Err(error),
        }
    }

    /// Returns the time to wait before the next retry, if there is one left. A random number decides half of it.
    fn next_delay(&mut self, random: u64) -> Option<Duration> {
        self.left = self.left.checked_sub(1)?;
        let half = self.delay / 2;
        self.delay = (2 * self.delay).min(self.delay_max);
        Some(half + half.mul_f64(random as f64 / u64::MAX as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(settings: &ClientSettings, random: u64) -> Vec<u128> {
        let mut retries = Retries::new(settings);
        std::iter::from_fn(|| retries.next_delay(random)).map(|delay| delay.as_millis()).collect()
    }

    #[test]
    fn delays_double_up_to_their_bound_and_half_is_random() {
        let settings = ClientSettings::default();
        assert_eq!(delays(&settings, 0), [5, 10, 20, 40, 80, 160, 320, 500, 500, 500]);
        assert_eq!(delays(&settings, u64::MAX), [10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000]);
        let middle = delays(&settings, u64::MAX / 4);
        assert!(middle.is_sorted() && middle[9] == 625, "{middle:?}");
    }

    #[test]
    fn limits_of_zero_are_possible() {
        let settings = ClientSettings { retries_max: 3, retry_delay_max: Duration::ZERO, ..Default::default() };
        assert_eq!(delays(&settings, u64::MAX), [0, 0, 0]);
        assert!(delays(&ClientSettings { retries_max: 0, ..settings }, 0).is_empty());
    }
}
