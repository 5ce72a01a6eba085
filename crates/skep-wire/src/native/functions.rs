//! The functions of users, as a space of keys and values.
//!
//! ```text
//! key               get                        put, put if absent         delete
//! *                 all functions, as text     loads the source, the value
//! module            its source                                            removes it
//! module.function   | number |  u32
//! ```
//!
//! The reply to a put is a value, and so is that to a delete which fails:
//!
//! ```text
//! | 1 | name of the module |      | 0 | the reason why nothing has changed |
//! ```

/// The key of a put, and of the list of all functions. No module has this name.
pub const ALL_FUNCTIONS: &[u8] = b"*";

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOutcome<'a> {
    /// It is made, to the module of this name.
    Made(&'a str),
    /// Nothing has changed, for this reason.
    Refused(&'a str),
}

impl<'a> ChangeOutcome<'a> {
    /// Returns the bytes of the reply.
    pub fn encode(self) -> Vec<u8> {
        let (kind, text) = match self {
            ChangeOutcome::Made(name) => (1, name),
            ChangeOutcome::Refused(reason) => (0, reason),
        };
        [&[kind], text.as_bytes()].concat()
    }

    /// Decodes a reply. Returns `None` if these bytes are none.
    pub fn decode(bytes: &'a [u8]) -> Option<ChangeOutcome<'a>> {
        let (kind, text) = bytes.split_first()?;
        let text = std::str::from_utf8(text).ok()?;
        match kind {
            0 => Some(ChangeOutcome::Refused(text)),
            1 => Some(ChangeOutcome::Made(text)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ChangeOutcome;

    #[test]
    fn outcomes_round_trip() {
        for outcome in
            [ChangeOutcome::Made("limits"), ChangeOutcome::Refused("line 1, column 2: …"), ChangeOutcome::Made("")]
        {
            assert_eq!(ChangeOutcome::decode(&outcome.encode()), Some(outcome));
        }
        for bytes in [&b""[..], b"\x02name", b"\x01\xff"] {
            assert_eq!(ChangeOutcome::decode(bytes), None, "{bytes:?}");
        }
    }
}
