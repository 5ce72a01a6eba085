//! The password of a server. It is never printed, and compared in constant time.

use std::fmt;

use constant_time_eq::constant_time_eq_n;

/// The longest password, in bytes.
pub const PASSWORD_SIZE_MAX: usize = 512;

/// A password of 1 to [`PASSWORD_SIZE_MAX`] bytes.
#[derive(Clone)]
pub struct Password {
    /// The password, then zeros: two passwords are compared as a whole, so the time says nothing about their sizes.
    padded: Box<[u8; PASSWORD_SIZE_MAX]>,
    size: u16,
}

impl Password {
    /// Returns the password with these bytes, or `None` if they are too few or too many.
    pub fn new(bytes: &[u8]) -> Option<Password> {
        if !(1..=PASSWORD_SIZE_MAX).contains(&bytes.len()) {
            return None;
        }
        let mut padded = Box::new([0; PASSWORD_SIZE_MAX]);
        padded[..bytes.len()].copy_from_slice(bytes);
        Some(Password { padded, size: bytes.len() as u16 })
    }

    /// Returns the bytes of the password.
    pub fn bytes(&self) -> &[u8] {
        &self.padded[..usize::from(self.size)]
    }
}

impl PartialEq for Password {
    /// Compares in a time that does not depend on the bytes.
    fn eq(&self, other: &Password) -> bool {
        constant_time_eq_n(&self.padded, &other.padded) & (self.size == other.size)
    }
}

impl Eq for Password {}

impl fmt::Debug for Password {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Password(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::{PASSWORD_SIZE_MAX, Password};

    #[test]
    fn equal_bytes_are_equal_passwords() {
        let password = |bytes: &[u8]| Password::new(bytes).unwrap();
        assert_eq!(password(b"ham"), password(b"ham"));
        for other in [&b"hat"[..], b"ha", b"hams", b"ham\0", b"Ham"] {
            assert_ne!(password(b"ham"), password(other), "{}", other.escape_ascii());
        }
        assert_eq!(password(b"ham").bytes(), b"ham");
        assert_eq!(Password::new(b""), None);
        assert!(Password::new(&[7; PASSWORD_SIZE_MAX]).is_some());
        assert_eq!(Password::new(&[7; PASSWORD_SIZE_MAX + 1]), None);
    }

    #[test]
    fn a_password_is_not_printed() {
        assert_eq!(format!("{:?}", Password::new(b"ham").unwrap()), "Password(hidden)");
    }
}
