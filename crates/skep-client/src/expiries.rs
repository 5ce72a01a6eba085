//! Keys that expire, the same for the blocking and the asynchronous client.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use skep_core::operation::{
    Condition, Expiry, ExpiryChange, ExpiryCondition, Operation, Reply, StringRead, StringWrite,
};
use skep_wire::native::Response;

use crate::error::ClientError;
use crate::reply;

/// When a key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyExpiry {
    /// The key does not exist, or has expired.
    NotFound,
    /// The key exists until it is removed.
    Never,
    /// The key expires at this time of the server's clock, which is exact to a millisecond.
    At(SystemTime),
}

/// Returns the expiry at a time, rounded down to milliseconds. A time after that of [`Expiry::MAX`] counts as it.
fn expiry_at(time: SystemTime) -> ExpiryChange {
    let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let expiry = i64::try_from(since_1970.as_millis()).ok().and_then(Expiry::at);
    ExpiryChange::set(expiry.unwrap_or(Expiry::MAX))
}

/// Returns the put of a pair that expires at a time.
pub(crate) fn put_until(value: &[u8], time: SystemTime) -> Operation<'_> {
    let (condition, expiry) = (Condition::ALWAYS, expiry_at(time));
    Operation::StringWrite(StringWrite::Set { value, condition, expiry, return_old: false })
}

/// Returns the change of the expiry of a key; `None` removes it.
pub(crate) fn change(time: Option<SystemTime>) -> Operation<'static> {
    let (expiry, condition) = (time.map_or(ExpiryChange::CLEAR, expiry_at), ExpiryCondition::Always);
    Operation::StringWrite(StringWrite::Expire { expiry, condition, return_value: false })
}

/// The read of the expiry of a key.
pub(crate) const READ: Operation<'static> = Operation::StringRead(StringRead::Expiry);

/// Returns the time after this duration from now on.
pub(crate) fn after(duration: Duration) -> SystemTime {
    SystemTime::now().checked_add(duration).unwrap_or(UNIX_EPOCH + Duration::from_millis(Expiry::MAX.milliseconds()))
}

/// Converts the reply to [`READ`].
pub(crate) fn key_expiry(response: Response<'_>) -> Result<KeyExpiry, ClientError> {
    match response {
        Ok(Reply::Done) => Ok(KeyExpiry::Never),
        response => match reply::value(response)? {
            None => Ok(KeyExpiry::NotFound),
            Some(bytes) => {
                let bytes = bytes.try_into().map_err(|_| ClientError::UnexpectedReply)?;
                let milliseconds =
                    u64::try_from(i64::from_le_bytes(bytes)).map_err(|_| ClientError::UnexpectedReply)?;
                Ok(KeyExpiry::At(UNIX_EPOCH + Duration::from_millis(milliseconds)))
            }
        },
    }
}

/// Defines the operations on expiries for a client that has `execute_one` and `exchange`.
macro_rules! expiries {
    ($client:ident, [$($async:ident)?], [$($wait:tt)*]) => {
        /// Keys that expire: from its expiry on, a key does not exist. The server's clock decides; the methods that take
        /// a duration add it to the client's clock, so both should agree.
        impl $client {
            /// Inserts or replaces the value of a key, which expires after this duration.
            pub $($async)? fn put_for(&mut self, key: &[u8], value: &[u8], life: Duration) -> Result<(), ClientError> {
                self.put_until(key, value, expiries::after(life))$($wait)*
            }

            /// Inserts or replaces the value of a key, which expires at this time.
            pub $($async)? fn put_until(
                &mut self,
                key: &[u8],
                value: &[u8],
                time: SystemTime,
            ) -> Result<(), ClientError> {
                self.execute_one(&Request { key, operation: expiries::put_until(value, time) })$($wait)*?;
                reply::done(self.exchange.single())
            }

            /// Lets a key expire after this duration. Returns true if the key exists.
            pub $($async)? fn expire_after(&mut self, key: &[u8], life: Duration) -> Result<bool, ClientError> {
                self.expire_at(key, expiries::after(life))$($wait)*
            }

            /// Lets a key expire at this time. Returns true if the key exists.
            pub $($async)? fn expire_at(&mut self, key: &[u8], time: SystemTime) -> Result<bool, ClientError> {
                self.execute_one(&Request { key, operation: expiries::change(Some(time)) })$($wait)*?;
                reply::is_done(self.exchange.single())
            }

            /// Removes the expiry of a key. Returns true if the key exists.
            pub $($async)? fn persist(&mut self, key: &[u8]) -> Result<bool, ClientError> {
                self.execute_one(&Request { key, operation: expiries::change(None) })$($wait)*?;
                reply::is_done(self.exchange.single())
            }

            /// Returns when a key expires.
            pub $($async)? fn expiry(&mut self, key: &[u8]) -> Result<KeyExpiry, ClientError> {
                self.execute_one(&Request { key, operation: expiries::READ })$($wait)*?;
                expiries::key_expiry(self.exchange.single())
            }
        }
    };
}

pub(crate) use expiries;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_down_and_kept_within_the_limits() {
        let number = |time| expiry_at(time).to_number();
        assert_eq!(number(UNIX_EPOCH + Duration::from_micros(1999)), 1);
        assert_eq!(number(UNIX_EPOCH - Duration::from_secs(1)), 0);
        assert_eq!(number(UNIX_EPOCH + Duration::from_secs(1 << 60)), Expiry::MAX.milliseconds());
        assert_eq!(number(after(Duration::MAX)), Expiry::MAX.milliseconds());
    }

    #[test]
    fn replies_that_are_no_expiry_are_refused() {
        for reply in [&b""[..], &[0; 7], &(-1i64).to_le_bytes()] {
            assert!(matches!(key_expiry(Ok(Reply::Value(reply))), Err(ClientError::UnexpectedReply)), "{reply:?}");
        }
        assert!(matches!(key_expiry(Ok(Reply::NotFound)), Ok(KeyExpiry::NotFound)));
        assert!(matches!(key_expiry(Ok(Reply::Done)), Ok(KeyExpiry::Never)));
    }
}
