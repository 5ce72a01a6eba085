//! The hash of a password of a user: SHA-256, in hexadecimal digits where it is shown, as in Redis.
//!
//! Hashes are compared in constant time, and a password that is compared has always been hashed before: the time of a
//! refusal says nothing about a password, nor about whether a user exists.

use std::fmt;
use std::str::FromStr;

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

/// Hexadecimal digits of a hash.
const DIGITS: usize = 2 * SHA256_OUTPUT_LEN;

/// The hash of a password.
#[derive(Clone, Copy)]
pub(crate) struct PasswordHash([u8; SHA256_OUTPUT_LEN]);

impl PasswordHash {
    /// Returns the hash of a password.
    pub(crate) fn of(password: &[u8]) -> PasswordHash {
        let mut hash = [0; SHA256_OUTPUT_LEN];
        hash.copy_from_slice(digest(&SHA256, password).as_ref());
        PasswordHash(hash)
    }
}

impl PartialEq for PasswordHash {
    /// Compares in a time that does not depend on the bytes.
    fn eq(&self, other: &PasswordHash) -> bool {
        constant_time_eq::constant_time_eq_n(&self.0, &other.0)
    }
}

impl Eq for PasswordHash {}

impl FromStr for PasswordHash {
    type Err = ();

    /// Takes 64 hexadecimal digits in small letters.
    fn from_str(text: &str) -> Result<PasswordHash, ()> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != DIGITS || !text.bytes().all(is_digit) {
            return Err(());
        }
        let mut hash = [0; SHA256_OUTPUT_LEN];
        for (index, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).map_err(|_| ())?;
        }
        Ok(PasswordHash(hash))
    }
}

impl fmt::Display for PasswordHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PasswordHash(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::PasswordHash;

    #[test]
    fn a_hash_is_shown_as_it_is_written() {
        let shown = "30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4";
        assert_eq!(PasswordHash::of(b"pw").to_string(), shown);
        assert_eq!(shown.parse(), Ok(PasswordHash::of(b"pw")));
        for wrong in ["", "12", &shown.to_uppercase(), &shown.replace('3', "g"), &shown[1..], &format!("{shown}0")] {
            assert_eq!(wrong.parse::<PasswordHash>(), Err(()), "{wrong}");
        }
        assert_ne!(PasswordHash::of(b"pw"), PasswordHash::of(b"pW"));
    }
}
