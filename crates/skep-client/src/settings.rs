//! The settings of a client: its user and password, its timeouts, and how often it connects again.

use std::time::Duration;

use skep_wire::native::Password;

use crate::tls::ClientTlsSettings;

/// The shortest and the longest timeout. The system has no timeout of zero, and adding a longer one could overflow.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How a client connects, how long it waits, and how often it connects again.
///
/// Timeouts are between a millisecond and a year; others count as the nearer one.
///
/// ```
/// use std::time::Duration;
///
/// use skep_client::{ClientSettings, Password};
///
/// let settings = ClientSettings {
///     password: Password::new(b"ham"),
///     reply_timeout: Duration::from_secs(2),
///     ..ClientSettings::default()
/// };
/// # let _ = settings;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// The name of the user, of at most 128 bytes; empty: the user `default`. It needs a password. Empty by default.
    pub user: String,
    /// The password of the user, if it has one. None by default.
    pub password: Option<Password>,
    /// The authorities to trust and the certificate of the client, for an address `tls:HOST:PORT`. Those of the system,
    /// and none, by default.
    pub tls: ClientTlsSettings,
    /// The longest wait for a connection to one shard, and then for the welcome of the server. 5 s by default.
    pub connect_timeout: Duration,
    /// The longest time in which a call neither sends nor receives a byte. Then it fails. A call with a large batch may
    /// take longer as long as bytes move. 30 s by default.
    pub reply_timeout: Duration,
    /// The largest number of times that one call connects again after a failure. With 0, the call fails, and only the
    /// next call connects again. 10 by default.
    pub retries_max: u32,
    /// The longest wait before a call connects again. The wait begins at about 10 ms and doubles with each retry of the
    /// call. 1 s by default, so that a call waits for about 4 s in total.
    pub retry_delay_max: Duration,
}

impl Default for ClientSettings {
    fn default() -> Self {
        ClientSettings {
            user: String::new(),
            password: None,
            tls: ClientTlsSettings::default(),
            connect_timeout: Duration::from_secs(5),
            reply_timeout: Duration::from_secs(30),
            retries_max: 10,
            retry_delay_max: Duration::from_secs(1),
        }
    }
}

impl ClientSettings {
    /// Returns the settings with all timeouts within their bounds.
    pub(crate) fn within_bounds(&self) -> Self {
        ClientSettings {
            user: self.user.clone(),
            password: self.password.clone(),
            tls: self.tls.clone(),
            connect_timeout: self.connect_timeout.clamp(TIMEOUT_MIN, TIMEOUT_MAX),
            reply_timeout: self.reply_timeout.clamp(TIMEOUT_MIN, TIMEOUT_MAX),
            retries_max: self.retries_max,
            retry_delay_max: self.retry_delay_max.min(TIMEOUT_MAX),
        }
    }
}
