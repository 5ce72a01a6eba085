//! Who may use the server, and for what: users, the protected mode, and the certificates.
//!
//! A connection that names no user is that of the user `default`. If that one has a password or is off, the connection
//! must log in. A server whose default user has no password is in *protected mode*, unless that is switched off: it serves
//! only clients on its own machine, also if it listens on other addresses.
//!
//! ```text
//!   requests ─ decode ─▶ Login::refresh ─┬─ Open ─────▶ executed
//!                                        ├─ Limited ──▶ each is checked with the permissions of the user
//!                                        └─ Locked ───▶ refused, unless it is a login
//! ```
//!
//! Users may change while the server runs. Connections that have logged in stay, as in Redis; what they may do changes
//! with the user. Those of a user that was deleted end.

mod command_set;
mod denials;
mod guesses;
mod key_patterns;
mod log_text;
mod login;
mod password_hash;
mod user;
mod users;
mod users_error;

pub(crate) use command_set::{COMMANDS_MAX, CommandSet};
pub(crate) use denials::{Denial, Denials, DeniedOperation, OBJECT_SIZE_MAX, Reason};
pub(crate) use key_patterns::{KeyAccess, KeyPatterns, PatternError};
pub(crate) use log_text::log_text;
pub(crate) use login::{Gate, LimitedUser, Login};
pub(crate) use password_hash::PasswordHash;
pub(crate) use user::{DEFAULT, PASSWORDS_MAX, SPACES, SpaceSet, User, UserLimits};
pub(crate) use users::{USERS_MAX, UserTable};
pub use users_error::UsersError;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use skep_wire::native::{Hello, PASSWORD_SIZE_MAX, Password, Refusal};

use crate::certificates::Certificates;
use guesses::Guesses;
use users::Users;

/// The access to a server.
#[derive(Debug)]
pub(crate) struct Access {
    users: Users,
    /// The file of the users, if there is one.
    pub(crate) file: Option<PathBuf>,
    guesses: Guesses,
    /// What was denied last.
    pub(crate) denials: Denials,
    is_protected: AtomicBool,
    /// The certificates, if the TCP ports speak TLS.
    pub(crate) certificates: Option<Certificates>,
}

/// A login that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoginRefused {
    pub(crate) reason: LoginRefusal,
    /// The logs tell of it. Of an address with many refusals they leave some out.
    pub(crate) is_told: bool,
}

/// The reason why a login was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginRefusal {
    /// The password is wrong, or there is no such user, or it is off.
    Wrong,
    /// Too many wrong passwords came from the address.
    TooManyGuesses,
    /// The user has as many connections as it may have.
    Full,
}

impl Access {
    /// Creates the access at the start.
    pub(crate) fn new(password: Option<&Password>, is_protected: bool) -> Access {
        let access = Access {
            users: Users::new(User::anonymous()),
            file: None,
            guesses: Guesses::default(),
            denials: Denials::default(),
            is_protected: AtomicBool::new(is_protected),
            certificates: None,
        };
        access.set_password(password);
        access
    }

    /// Returns the access with these certificates.
    pub(crate) fn with_certificates(self, certificates: Option<Certificates>) -> Access {
        Access { certificates, ..self }
    }

    /// Returns true if a connection must log in.
    pub(crate) fn needs_password(&self) -> bool {
        self.users.needs_password()
    }

    /// Changes or removes the password of the default user.
    pub(crate) fn set_password(&self, password: Option<&Password>) {
        let passwords: Vec<PasswordHash> = password.iter().map(|password| PasswordHash::of(password.bytes())).collect();
        let _: Result<(), ()> = self.users.change(|users| {
            let user = User { takes_any_password: passwords.is_empty(), passwords, ..User::clone(&users[DEFAULT]) };
            users.insert(DEFAULT.into(), user.into());
            Ok(())
        });
    }

    /// Returns a number that changes with each change of a user.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.users.version()
    }

    /// Returns the user of connections that name none.
    pub(crate) fn default_user(&self) -> Arc<User> {
        self.user(DEFAULT).expect("the table always has it")
    }

    /// Returns its name.
    pub(crate) fn default_name(&self) -> Arc<str> {
        self.default_user().name.clone()
    }

    /// Returns the user of this name.
    pub(crate) fn user(&self, name: &str) -> Option<Arc<User>> {
        self.users.find(name)
    }

    /// Returns all users.
    pub(crate) fn users(&self) -> UserTable {
        self.users.all()
    }

    /// Changes the users, all or nothing: an error leaves them as they were.
    pub(crate) fn change_users<T, E>(&self, change: impl FnOnce(&mut UserTable) -> Result<T, E>) -> Result<T, E> {
        self.users.change(change)
    }

    /// Puts other users in force. Returns the names of those that are no more.
    pub(crate) fn replace_users(&self, users: UserTable) -> Vec<Arc<str>> {
        self.users.replace(users)
    }

    /// Returns true if clients on other machines need a password.
    pub(crate) fn is_protected(&self) -> bool {
        self.is_protected.load(Ordering::Relaxed)
    }

    /// Switches the protected mode.
    pub(crate) fn set_protected(&self, is_protected: bool) {
        self.is_protected.store(is_protected, Ordering::Relaxed);
    }

    /// Returns true if a client at this address may connect.
    pub(crate) fn admits(&self, address: IpAddr) -> bool {
        address.to_canonical().is_loopback() || self.needs_password() || !self.is_protected()
    }

    /// Returns true if the log tells of one more refusal of a client at this address, and counts it.
    pub(crate) fn may_tell(&self, address: IpAddr, now: Instant) -> bool {
        self.guesses.may_tell(address, now)
    }

    /// Checks a user and a password that a client at this address has sent, and returns the login in place of that before.
    /// The log tells of refusals, ten for an address at once and then one a second.
    pub(crate) fn log_in(
        &self,
        name: &[u8],
        password: &[u8],
        before: Option<&Login>,
        address: IpAddr,
        now: Instant,
    ) -> Result<Login, LoginRefused> {
        let user = log_text(name);
        let refuse = |reason: LoginRefusal, is_first: bool, text: &str| {
            // Also if the line is told in any case, it counts.
            let is_told = self.guesses.may_tell(address, now) || is_first;
            if is_told {
                tracing::warn!(user, %address, "login refused: {text}");
            }
            LoginRefused { reason, is_told }
        };
        if !self.guesses.admits(address, name, now) {
            return Err(refuse(LoginRefusal::TooManyGuesses, false, "too many wrong passwords from this address"));
        }
        // Also for a user that does not exist: the time is the same. No password is longer, so a long one costs no more.
        let hash = PasswordHash::of(&password[..password.len().min(PASSWORD_SIZE_MAX)]);
        let known = std::str::from_utf8(name).ok().filter(|_| password.len() <= PASSWORD_SIZE_MAX);
        let known = known.and_then(|name| self.user(name));
        let exists = known.is_some();
        let Some(user) = known.filter(|user| user.accepts(&hash)) else {
            let is_first = self.guesses.count(address, name, now) && exists;
            return Err(refuse(LoginRefusal::Wrong, is_first, "the password or the user is wrong"));
        };
        Login::authenticated(user, before, self)
            .ok_or_else(|| refuse(LoginRefusal::Full, false, "the user has as many connections as it may have"))
    }

    /// Logs in a client of memcached: the bytes are the name of a user, a blank and its password.
    pub(crate) fn log_in_joined(&self, bytes: &[u8], address: IpAddr, now: Instant) -> Result<Login, LoginRefused> {
        let blank = bytes.iter().position(|byte| *byte == b' ').unwrap_or(bytes.len());
        self.log_in(&bytes[..blank], bytes.get(blank + 1..).unwrap_or_default(), None, address, now)
    }

    /// Logs in a client of the native protocol; one that is known has a certificate. A password that the server does not
    /// need is accepted.
    pub(crate) fn check_hello(
        &self,
        address: IpAddr,
        is_known: bool,
        hello: &Hello,
        now: Instant,
    ) -> Result<Login, Refusal> {
        match &hello.password {
            _ if !is_known && !self.admits(address) => Err(Refusal::Protected),
            None if self.needs_password() => Err(Refusal::PasswordNeeded),
            None => Login::anonymous(self).ok_or(Refusal::UserFull),
            Some(password) => {
                let user = if hello.user.is_empty() { DEFAULT } else { &hello.user };
                self.log_in(user.as_bytes(), password.bytes(), None, address, now).map_err(|refused| {
                    match refused.reason {
                        LoginRefusal::Wrong => Refusal::PasswordWrong,
                        LoginRefusal::TooManyGuesses => Refusal::TooManyGuesses,
                        LoginRefusal::Full => Refusal::UserFull,
                    }
                })
            }
        }
    }
}
#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Instant;

    use skep_wire::native::{Hello, Password, Refusal};

    use super::Access;

    fn check(access: &Access, address: &str, is_known: bool, hello: &Hello) -> Result<(), Refusal> {
        access.check_hello(ip(address), is_known, hello, Instant::now()).map(drop)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_server_without_a_password_serves_its_own_machine() {
        let access = Access::new(None, true);
        for address in ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"] {
            assert!(access.admits(ip(address)), "{address}");
        }
        for address in ["192.0.2.1", "10.0.0.1", "fe80::1", "::ffff:10.0.0.1"] {
            assert!(!access.admits(ip(address)), "{address}");
            assert_eq!(check(&access, address, false, &Hello::new(None)), Err(Refusal::Protected));
            assert_eq!(check(&access, address, true, &Hello::new(None)), Ok(()), "it has a certificate");
            access.set_protected(false);
            assert!(access.admits(ip(address)), "{address}");
            access.set_protected(true);
            access.set_password(Password::new(b"ham").as_ref());
            assert!(access.admits(ip(address)), "{address}");
            access.set_password(None);
        }
    }

    #[test]
    fn the_hello_has_the_password() {
        let access = Access::new(Password::new(b"ham").as_ref(), true);
        let with = |password: &[u8]| {
            let hello = Hello { shard: None, user: String::new(), password: Password::new(password) };
            check(&access, "192.0.2.1", false, &hello)
        };
        assert_eq!(with(b""), Err(Refusal::PasswordNeeded));
        assert_eq!(with(b"egg"), Err(Refusal::PasswordWrong));
        assert_eq!(with(b"ham"), Ok(()));
        access.set_password(Password::new(b"egg").as_ref());
        assert_eq!(with(b"ham"), Err(Refusal::PasswordWrong));
        assert_eq!(with(b"egg"), Ok(()));
        access.set_password(None);
        access.set_protected(false);
        assert_eq!(with(b"ham"), Ok(()), "a password that is not needed");
    }
}
