//! Who may use the server: the password, the protected mode, and the certificates.
//!
//! A server with a password serves clients that send it. A server without one is in *protected mode*, unless that is
//! switched off: it serves only clients on its own machine, also if it listens on other addresses.
//!
//! The password may change while the server runs. Connections that have sent the old one stay, as in Redis.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use skep_wire::native::{Hello, Password, Refusal};

use crate::certificates::Certificates;

/// The access to a server.
#[derive(Debug)]
pub(crate) struct Access {
    /// True if there is a password: for each batch of requests this flag is enough.
    needs_password: AtomicBool,
    is_protected: AtomicBool,
    password: Mutex<Option<Password>>,
    /// The certificates, if the TCP ports speak TLS.
    pub(crate) certificates: Option<Certificates>,
}

impl Access {
    /// Creates the access at the start.
    pub(crate) fn new(password: Option<Password>, is_protected: bool) -> Access {
        Access {
            needs_password: AtomicBool::new(password.is_some()),
            is_protected: AtomicBool::new(is_protected),
            password: Mutex::new(password),
            certificates: None,
        }
    }

    /// Returns true if there is a password.
    pub(crate) fn needs_password(&self) -> bool {
        self.needs_password.load(Ordering::Relaxed)
    }

    /// Changes or removes the password.
    pub(crate) fn set_password(&self, password: Option<Password>) {
        let mut current = self.password.lock().unwrap_or_else(PoisonError::into_inner);
        self.needs_password.store(password.is_some(), Ordering::Relaxed);
        *current = password;
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

    /// Returns true if the bytes are the password, or if there is none.
    pub(crate) fn accepts(&self, bytes: &[u8]) -> bool {
        let password = self.password.lock().unwrap_or_else(PoisonError::into_inner);
        password.as_ref().is_none_or(|password| Password::new(bytes).is_some_and(|given| given == *password))
    }

    /// Returns true if the bytes are the name of the only user, a blank and the password: memcached's clients send both.
    pub(crate) fn accepts_user(&self, bytes: &[u8]) -> bool {
        bytes.strip_prefix(b"default ").is_some_and(|password| self.accepts(password))
    }

    /// Checks a client of the native protocol; one that is known has a certificate. A password that the server does not
    /// need is accepted.
    pub(crate) fn check_hello(&self, address: IpAddr, is_known: bool, hello: &Hello) -> Result<(), Refusal> {
        match &hello.password {
            _ if !is_known && !self.admits(address) => Err(Refusal::Protected),
            Some(password) if !self.accepts(password.bytes()) => Err(Refusal::PasswordWrong),
            None if self.needs_password() => Err(Refusal::PasswordNeeded),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use skep_wire::native::{Hello, Password, Refusal};

    use super::Access;

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
            assert_eq!(access.check_hello(ip(address), false, &Hello::new(None)), Err(Refusal::Protected));
            assert_eq!(access.check_hello(ip(address), true, &Hello::new(None)), Ok(()), "it has a certificate");
            access.set_protected(false);
            assert!(access.admits(ip(address)), "{address}");
            access.set_protected(true);
            access.set_password(Password::new(b"ham"));
            assert!(access.admits(ip(address)), "{address}");
            access.set_password(None);
        }
    }

    #[test]
    fn the_hello_has_the_password() {
        let access = Access::new(Password::new(b"ham"), true);
        let check = |password: &[u8]| {
            let hello = Hello { shard: None, password: Password::new(password) };
            access.check_hello(ip("192.0.2.1"), false, &hello)
        };
        assert_eq!(check(b""), Err(Refusal::PasswordNeeded));
        assert_eq!(check(b"egg"), Err(Refusal::PasswordWrong));
        assert_eq!(check(b"ham"), Ok(()));
        access.set_password(Password::new(b"egg"));
        assert_eq!(check(b"ham"), Err(Refusal::PasswordWrong));
        assert_eq!(check(b"egg"), Ok(()));
        access.set_password(None);
        access.set_protected(false);
        assert_eq!(check(b"ham"), Ok(()), "a password that is not needed");
    }
}
