//! A batch of requests that is encoded once. Keys and values are replaced for every batch that is sent.
//!
//! ```text
//! native     size │ sequence │ space │ count │ op, sizes, key, value │ op, key, value │ …
//! RESP       *2 $3 GET $8 key │ *2 $3 GET $8 key │ …
//!            MULTI │ INCR key │ INCR key │ … five of them │ EXEC │ MULTI │ …
//! memcached  get key key key …      set key 0 0 2 │ value │ set key 0 0 2 │ value │ …
//! ```
//!
//! All keys have one size, and so have all values. The encoded batch therefore has a fixed size, and so have its
//! replies if all keys exist. The batch for memcached gets all its keys with one `get`, which is the fastest command of
//! memcached. It sets each key with its own command.

use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_wire::native::{ReplyFrameWriter, RequestFrameWriter};

use crate::keys::{KEY_SIZE_MAX, PairForm, VALUE_SIZE_MAX};

/// A wire protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Skep's frames.
    Native,
    /// The Redis protocol.
    Resp,
    /// memcached's text protocol.
    Memcached,
    /// Requests of the native protocol; the replies are zeros.
    Echo,
}

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Gets of keys that exist.
    Get,
    /// Puts.
    Set,
    /// Puts with an expiry; RESP only.
    SetExpiring,
    /// Transactions of five increments, each of which counts as a request; RESP only.
    Transaction,
    /// Gets in commands of their own, and a command that does nothing after them; memcached's protocol only.
    GetEach,
}

/// Increments in a transaction.
pub(crate) const INCREMENTS: usize = 5;

impl Verb {
    fn has_value(self) -> bool {
        matches!(self, Verb::Set | Verb::SetExpiring)
    }
}

/// An encoded batch.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pub(crate) protocol: Protocol,
    verb: Verb,
    form: PairForm,
    bytes: Vec<u8>,
    /// Offsets of the keys.
    key_offsets: Vec<usize>,
    /// Offsets of the values; empty for gets.
    value_offsets: Vec<usize>,
    /// Bytes of the replies to a batch.
    pub(crate) reply_size: usize,
}

impl Template {
    /// Encodes a batch of `depth` requests, at least one. Of transactions, it is a multiple of [`INCREMENTS`].
    pub(crate) fn new(protocol: Protocol, verb: Verb, form: PairForm, depth: usize) -> Self {
        // Each placeholder differs from the one before; otherwise the native protocol would omit the repeated bytes.
        let pairs: Vec<(Vec<u8>, Vec<u8>)> = (0..depth)
            .map(|index| {
                let mut key = vec![0; form.key_size()];
                form.write_key(index as u64, &mut key);
                (key, vec![0xF0 | (index % 2) as u8; form.value_size()])
            })
            .collect();
        let bytes = match protocol {
            Protocol::Native | Protocol::Echo => native_request(verb, &pairs),
            Protocol::Resp => resp_request(verb, &pairs),
            Protocol::Memcached => memcached_request(verb, &pairs),
        };
        let (mut key_offsets, mut value_offsets) = (Vec::new(), Vec::new());
        let mut end = 0;
        for (key, value) in &pairs {
            let start = find(&bytes, key, end);
            key_offsets.push(start);
            end = start + key.len();
            if verb.has_value() {
                let start = find(&bytes, value, end);
                value_offsets.push(start);
                end = start + value.len();
            }
        }
        let mut template = Template { protocol, verb, form, bytes, key_offsets, value_offsets, reply_size: 0 };
        template.reply_size = template.reply(&vec![0; depth]).len();
        template
    }

    /// Returns the number of requests in a batch.
    pub(crate) fn depth(&self) -> usize {
        self.key_offsets.len()
    }

    /// Returns the bytes of a batch.
    pub(crate) fn request_size(&self) -> usize {
        self.bytes.len()
    }

    /// Writes these records into the batch and returns it. The number of records is the depth.
    #[inline]
    pub(crate) fn fill(&mut self, records: &[u64]) -> &[u8] {
        let (key_size, value_size) = (self.form.key_size(), self.form.value_size());
        for (record, offset) in records.iter().zip(&self.key_offsets) {
            self.form.write_key(*record, &mut self.bytes[*offset..*offset + key_size]);
        }
        for (record, offset) in records.iter().zip(&self.value_offsets) {
            self.form.write_value(*record, &mut self.bytes[*offset..*offset + value_size]);
        }
        &self.bytes
    }

    /// Returns the last line of the replies, after the end of the line before, if some keys may be missing: the replies
    /// are then shorter. No value is such a line.
    pub(crate) fn end(&self) -> Option<&'static [u8]> {
        match (self.form, self.verb) {
            (PairForm::Item, Verb::Get) => Some(b"\r\nEND\r\n"),
            (PairForm::Item, Verb::GetEach) => Some(b"\r\nMN\r\n"),
            _ => None,
        }
    }

    /// Returns the number of missing keys in replies of this size, or `None` if they have another size.
    pub(crate) fn misses(&self, size: usize) -> Option<u64> {
        let missing = self.reply_size.checked_sub(size)?;
        match self.end() {
            _ if missing == 0 => Some(0),
            Some(_) if missing.is_multiple_of(self.hit_size()) => Some((missing / self.hit_size()) as u64),
            _ => None,
        }
    }

    /// Returns the bytes of a pair that `get` of memcached's protocol returns.
    fn hit_size(&self) -> usize {
        let (key_size, value_size) = (self.form.key_size(), self.form.value_size());
        b"VALUE  0 \r\n\r\n".len() + key_size + value_size.to_string().len() + value_size
    }

    /// Returns true if these replies to whole batches are equal. Keys of a cache may be missing. Counters may differ in
    /// their digits: their values are not known.
    pub(crate) fn is_same(&self, expected: &[u8], arrived: &[u8]) -> bool {
        if self.end().is_some() && expected.len() > arrived.len() {
            let (mut expected, mut arrived) = (expected, arrived);
            while let (Some((hit, after)), true) = (expected.split_at_checked(self.hit_size()), expected != arrived) {
                arrived = arrived.strip_prefix(hit).unwrap_or(arrived);
                expected = after;
                if self.verb == Verb::GetEach {
                    let Some(rest) = arrived.strip_prefix(b"END\r\n") else { return false };
                    (arrived, expected) = (rest, &expected[b"END\r\n".len()..]);
                }
            }
            return expected == arrived;
        }
        let is_same = |(expected, arrived): (&u8, &u8)| {
            expected == arrived || expected.is_ascii_digit() && arrived.is_ascii_digit()
        };
        match self.verb {
            Verb::Transaction => expected.len() == arrived.len() && expected.iter().zip(arrived).all(is_same),
            _ => expected == arrived,
        }
    }

    /// Returns the bytes that a server must reply with.
    pub(crate) fn reply(&self, records: &[u64]) -> Vec<u8> {
        let mut out = Vec::new();
        let (mut key, mut value) = ([0; KEY_SIZE_MAX], [0; VALUE_SIZE_MAX]);
        let (key, value) = (&mut key[..self.form.key_size()], &mut value[..self.form.value_size()]);
        match self.protocol {
            Protocol::Native | Protocol::Echo => {
                let mut writer = ReplyFrameWriter::new(&mut out, 0);
                for record in records {
                    self.form.write_value(*record, value);
                    writer.push(Ok(if self.verb == Verb::Get { Reply::Value(value) } else { Reply::Done }));
                }
                writer.finish();
                if self.protocol == Protocol::Echo {
                    out.fill(0);
                }
            }
            Protocol::Resp | Protocol::Memcached => {
                for (index, record) in records.iter().enumerate() {
                    self.form.write_key(*record, key);
                    self.form.write_value(*record, value);
                    let size = value.len().to_string();
                    let parts: &[&[u8]] = match (self.protocol, self.verb) {
                        (Protocol::Resp, Verb::Get) => &[b"$", size.as_bytes(), b"\r\n", value, b"\r\n"],
                        (Protocol::Resp, Verb::Set | Verb::SetExpiring) => &[b"+OK\r\n"],
                        (Protocol::Resp, Verb::Transaction) => {
                            if index.is_multiple_of(INCREMENTS) {
                                out.extend_from_slice(b"+OK\r\n");
                                out.extend_from_slice(&b"+QUEUED\r\n".repeat(INCREMENTS));
                                out.extend_from_slice(format!("*{INCREMENTS}\r\n").as_bytes());
                            }
                            &[b":", value, b"\r\n"]
                        }
                        (_, Verb::Get) => &[b"VALUE ", key, b" 0 ", size.as_bytes(), b"\r\n", value, b"\r\n"],
                        (_, Verb::GetEach) => {
                            &[b"VALUE ", key, b" 0 ", size.as_bytes(), b"\r\n", value, b"\r\nEND\r\n"]
                        }
                        (_, Verb::Set) => &[b"STORED\r\n"],
                        (_, Verb::SetExpiring | Verb::Transaction) => unreachable!("RESP only"),
                    };
                    parts.iter().for_each(|part| out.extend_from_slice(part));
                }
                out.extend_from_slice(match (self.protocol, self.verb) {
                    (Protocol::Memcached, Verb::Get) => b"END\r\n",
                    (Protocol::Memcached, Verb::GetEach) => b"MN\r\n",
                    _ => b"",
                });
            }
        }
        out
    }
}

fn native_request(verb: Verb, pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = RequestFrameWriter::new(&mut bytes, 0, 0);
    for (key, value) in pairs {
        let operation = match verb {
            Verb::Get => Operation::Get,
            Verb::Set => Operation::Put { value, condition: PutCondition::Always },
            _ => unreachable!("other protocols only"),
        };
        assert!(writer.push(&Request { key, operation }), "a batch fits into a frame");
    }
    writer.finish();
    bytes
}

fn resp_request(verb: Verb, pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut push = |words: &[&[u8]]| {
        bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
    };
    for (index, (key, value)) in pairs.iter().enumerate() {
        match verb {
            Verb::Get => push(&[b"GET", key]),
            Verb::Set => push(&[b"SET", key, value]),
            Verb::SetExpiring => push(&[b"SET", key, value, b"EX", b"1000"]),
            Verb::GetEach => unreachable!("memcached's protocol only"),
            Verb::Transaction => {
                if index.is_multiple_of(INCREMENTS) {
                    push(&[b"MULTI"]);
                }
                push(&[b"INCR", key]);
                if (index + 1).is_multiple_of(INCREMENTS) {
                    push(&[b"EXEC"]);
                }
            }
        }
    }
    bytes
}

fn memcached_request(verb: Verb, pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    match verb {
        Verb::Get => {
            bytes.extend_from_slice(b"get");
            for (key, _) in pairs {
                bytes.push(b' ');
                bytes.extend_from_slice(key);
            }
            bytes.extend_from_slice(b"\r\n");
        }
        Verb::Set => {
            for (key, value) in pairs {
                let size = value.len().to_string();
                let parts: [&[u8]; 7] = [b"set ", key, b" 0 0 ", size.as_bytes(), b"\r\n", value, b"\r\n"];
                parts.iter().for_each(|part| bytes.extend_from_slice(part));
            }
        }
        Verb::GetEach => {
            for (key, _) in pairs {
                [b"get ", &key[..], b"\r\n"].iter().for_each(|part| bytes.extend_from_slice(part));
            }
            bytes.extend_from_slice(b"mn\r\n");
        }
        Verb::SetExpiring | Verb::Transaction => unreachable!("RESP only"),
    }
    bytes
}

fn find(bytes: &[u8], part: &[u8], from: usize) -> usize {
    let found = bytes[from..].windows(part.len()).position(|window| window == part);
    from + found.expect("a batch holds its keys and values")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares a filled template with a newly encoded batch, for all protocols.
    #[test]
    fn filling_replaces_keys_and_values_and_nothing_else() {
        for form in [PairForm::Random, PairForm::RedisBenchmark, PairForm::Counter] {
            for verb in [Verb::Get, Verb::Set] {
                for protocol in [Protocol::Native, Protocol::Resp, Protocol::Memcached] {
                    let records: Vec<u64> = (0..20).map(|index| index * 7919).collect();
                    let pairs: Vec<_> = records
                        .iter()
                        .map(|record| {
                            let (mut key, mut value) = (vec![0; form.key_size()], vec![0; form.value_size()]);
                            form.write_key(*record, &mut key);
                            form.write_value(*record, &mut value);
                            (key, value)
                        })
                        .collect();
                    let mut template = Template::new(protocol, verb, form, records.len());
                    let filled = template.fill(&records).to_vec();
                    match protocol {
                        Protocol::Resp => assert_eq!(filled, resp_request(verb, &pairs)),
                        Protocol::Memcached => assert_eq!(filled, memcached_request(verb, &pairs)),
                        // The encoder omits repeated values, so the decoded operations are compared.
                        _ => {
                            let (frame, size) =
                                skep_wire::native::RequestFrame::decode(&filled).unwrap().expect("a complete frame");
                            assert_eq!(size, filled.len());
                            for (operation, (key, value)) in frame.operations().zip(&pairs) {
                                let operation = operation.unwrap();
                                assert_eq!(operation.key, key);
                                let put = Operation::Put { value, condition: PutCondition::Always };
                                assert_eq!(operation.operation, if verb == Verb::Get { Operation::Get } else { put });
                            }
                        }
                    }
                    assert_eq!(template.reply(&records).len(), template.reply_size);
                }
            }
        }
    }

    #[test]
    fn transactions_are_whole_and_their_counters_may_have_any_digits() {
        let mut template = Template::new(Protocol::Resp, Verb::Transaction, PairForm::Counter, 2 * INCREMENTS);
        let filled = String::from_utf8(template.fill(&[7; 2 * INCREMENTS]).to_vec()).unwrap();
        let command = |words: &str| filled.matches(words).count();
        assert_eq!((command("MULTI"), command("INCR"), command("EXEC")), (2, 10, 2));
        let expected = template.reply(&[7; 2 * INCREMENTS]);
        let arrived = String::from_utf8(expected.clone()).unwrap().replace(":1000000000", ":1000000123");
        assert!(template.is_same(&expected, arrived.as_bytes()));
        for wrong in [arrived.replacen("+QUEUED", "-REFUSE", 1), arrived.replacen(":1", "$1", 1)] {
            assert!(!template.is_same(&expected, wrong.as_bytes()));
        }
    }

    /// A cache may have lost keys: the first, the last, all or none of a batch.
    #[test]
    fn keys_of_a_cache_may_be_missing() {
        for verb in [Verb::Get, Verb::GetEach] {
            let template = Template::new(Protocol::Memcached, verb, PairForm::Item, 3);
            let expected = template.reply(&[5, 6, 7]);
            let hits: Vec<Vec<u8>> = [5, 6, 7, 8]
                .map(|record| {
                    let (mut key, mut value) = ([0; 8], [0; 8]);
                    PairForm::Item.write_key(record, &mut key);
                    PairForm::Item.write_value(record, &mut value);
                    [b"VALUE ", &key[..], b" 0 8\r\n", &value, b"\r\n"].concat()
                })
                .into();
            for present in 0..8_usize {
                let mut arrived = Vec::new();
                for (index, hit) in hits[..3].iter().enumerate() {
                    arrived.extend_from_slice(if present >> index & 1 == 1 { hit } else { b"" });
                    arrived.extend_from_slice(if verb == Verb::GetEach { b"END\r\n" } else { b"" });
                }
                arrived.extend_from_slice(if verb == Verb::GetEach { b"MN\r\n" } else { b"END\r\n" });
                assert!(template.is_same(&expected, &arrived), "{present:b}");
                assert_eq!(template.misses(arrived.len()), Some(3 - u64::from(present.count_ones())));
                let end = [b"\r\n", &arrived[..]].concat();
                assert!(end.ends_with(template.end().unwrap()));
                assert_eq!(template.misses(arrived.len() - 1), None);
                assert!(!template.is_same(&expected, &arrived[1..]));
                let wrong = [&hits[3][..], &arrived].concat();
                assert!(!template.is_same(&expected, &wrong), "{present:b}");
            }
        }
    }

    /// Checks that the bytes on the wire have not changed since this was written.
    #[test]
    fn the_batches_have_not_changed() {
        let mut bytes = Vec::new();
        for verb in [Verb::Get, Verb::Set] {
            for protocol in [Protocol::Native, Protocol::Resp, Protocol::Memcached, Protocol::Echo] {
                let mut template = Template::new(protocol, verb, PairForm::Random, 64);
                let records: Vec<u64> = (0..64).map(|index| index * index).collect();
                bytes.extend_from_slice(template.fill(&records));
                bytes.extend_from_slice(&template.reply(&records));
            }
        }
        assert_eq!(format!("{:016x}", rapidhash::v3::rapidhash_v3(&bytes)), "efab3047487f31f8");
    }
}
