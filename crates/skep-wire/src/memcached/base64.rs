//! Base64 with padding (RFC 4648, section 4), for keys with any bytes.
//!
//! ```text
//!   3 bytes  aaaaaaaa bbbbbbbb cccccccc  ->  4 digits  aaaaaa aabbbb bbbbcc cccccc
//!   2 bytes  aaaaaaaa bbbbbbbb           ->            aaaaaa aabbbb bbbb00 =
//!   1 byte   aaaaaaaa                    ->            aaaaaa aa0000 =      =
//! ```
//!
//! As in memcached, the bits drawn as 0 are ignored. A key is returned in the form drawn here.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const PADDING: u8 = b'=';
const INVALID: u8 = 0xff;

/// The value of each digit.
const VALUES: [u8; 256] = {
    let mut values = [INVALID; 256];
    let mut value = 0;
    while value < DIGITS.len() {
        values[DIGITS[value] as usize] = value as u8;
        value += 1;
    }
    values
};

/// Decodes a text to the start of `out`, which must be as long as the text. Returns the size of the result, or `None`
/// if the text is not base64 or empty.
pub(super) fn decode(text: &[u8], out: &mut [u8]) -> Option<usize> {
    let (groups, []) = text.as_chunks::<4>() else { return None };
    let (last, groups) = groups.split_last()?;
    let mut size = 0;
    let mut put = |digits: &[u8], byte_count: usize| {
        let mut bits = 0_u32;
        for (index, &digit) in digits.iter().enumerate() {
            let value = VALUES[usize::from(digit)];
            if value == INVALID {
                return None;
            }
            bits |= u32::from(value) << (26 - 6 * index);
        }
        out[size..size + byte_count].copy_from_slice(&bits.to_be_bytes()[..byte_count]);
        size += byte_count;
        Some(())
    };
    for group in groups {
        put(group, 3)?;
    }
    match last {
        [digits @ .., PADDING, PADDING] => put(digits, 1)?,
        [digits @ .., PADDING] => put(digits, 2)?,
        digits => put(digits, 3)?,
    }
    Some(size)
}

/// Appends the base64 text of the bytes.
pub(super) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[..group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(padded);
        for index in 0..4 {
            let digit = DIGITS[(bits >> (26 - 6 * index)) as usize % DIGITS.len()];
            out.push(if index > group.len() { PADDING } else { digit });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, prop_assert_eq, proptest};

    use super::{decode, encode};

    fn decoded(text: &str) -> Option<Vec<u8>> {
        let mut out = vec![0; text.len()];
        decode(text.as_bytes(), &mut out).map(|size| out[..size].to_vec())
    }

    #[test]
    fn vectors_of_the_rfc() {
        for (bytes, text) in [
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut out = Vec::new();
            encode(bytes.as_bytes(), &mut out);
            assert_eq!(out, text.as_bytes());
            assert_eq!(decoded(text).as_deref(), Some(bytes.as_bytes()));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "=", "====", "Z===", "Zg=", "Zg", "Zm9", "Zg==Zg==", "Zm=v", "Z!==", "Zm9v ", "YW-_", "\u{ff}a=="]
        {
            assert_eq!(decoded(text), None, "{text}");
        }
        assert_eq!(decoded("Zh==").as_deref(), Some(&b"f"[..]), "bits after the last byte are ignored");
    }

    proptest! {
        #[test]
        fn any_bytes_are_encoded_and_decoded(bytes in prop::collection::vec(any::<u8>(), 1..300)) {
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            prop_assert_eq!(decoded(std::str::from_utf8(&text).unwrap()), Some(bytes));
        }
    }
}
