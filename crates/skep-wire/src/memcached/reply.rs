//! The writer of replies. It appends to the output of a connection.
//!
//! A reply of several lines is written line by line: after the pairs or statistics the caller writes `END`.

use skep_core::short::overwrite;

use super::base64::encode;
use super::{ErrorReply, ReturnFlag, ReturnFlags};

/// Appends replies to the output of a connection.
#[derive(Debug)]
pub struct ReplyWriter<'o> {
    out: &'o mut Vec<u8>,
}

/// A reply of one line that depends on nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// `STORED`: a value was stored.
    Stored,
    /// `NOT_STORED`: a value was not stored, since the key exists or does not.
    NotStored,
    /// `EXISTS`: a value was not stored, since the pair has another cas.
    Exists,
    /// `NOT_FOUND`: there is no such pair.
    NotFound,
    /// `DELETED`: a pair was deleted.
    Deleted,
    /// `TOUCHED`: a pair has a new expiry.
    Touched,
    /// `OK`: the command was done.
    Ok,
    /// `RESET`: the statistics were reset.
    Reset,
    /// `END`: the end of pairs or statistics.
    End,
    /// `MN`: the reply to `mn`.
    MetaNoOperation,
}

/// The code of a meta reply without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaCode {
    /// `HD`: the operation was done.
    Done,
    /// `EN`: `mg` found no pair.
    Miss,
    /// `NS`: the pair was not stored.
    NotStored,
    /// `NF`: there is no pair to change.
    NotFound,
    /// `EX`: the pair has another cas.
    Exists,
}

/// Data about a pair for a meta reply. If the client asks for data that is `None`, the reply lacks it, as it does in
/// memcached if the command or its outcome has no such data.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetaItem<'i> {
    /// The key.
    pub key: &'i [u8],
    /// Writes the key as base64.
    pub is_base64: bool,
    /// The size of the value.
    pub size: Option<usize>,
    /// The seconds until the pair expires, or -1 if it never does.
    pub time_to_live: Option<i64>,
    /// The cas. It is 0 if `ms` stored nothing.
    pub cas: Option<u64>,
    /// The client's flags.
    pub flags: Option<u32>,
    /// The pair was read before.
    pub is_hit: Option<bool>,
    /// The seconds since the last access.
    pub idle: Option<u64>,
    /// `Z`: another client has won.
    pub is_won_by_other: bool,
    /// `X`: the value is stale.
    pub is_stale: bool,
    /// `W`: this client has won, and should store a new value.
    pub is_won: bool,
}

/// Data about a pair for the reply to `me`.
#[derive(Clone, Copy, Debug)]
pub struct MetaDebug<'i> {
    /// The key.
    pub key: &'i [u8],
    /// Writes the key as base64.
    pub is_base64: bool,
    /// The seconds until the pair expires, or `None` if it never does.
    pub time_to_live: Option<u64>,
    /// The seconds since the last access.
    pub idle: u64,
    /// The cas.
    pub cas: u64,
    /// The pair was read before.
    pub is_hit: bool,
    /// The size of the pair in memory.
    pub size: usize,
}

/// Most bytes of the key of a short pair.
const SHORT_KEY_SIZE_MAX: usize = 16;
/// Bytes for the lines of a short pair.
const SHORT_PAIR_SIZE: usize = 64;

/// Returns true if the lines of a pair are short, and both of its numbers have one digit.
#[inline(always)]
fn is_short(key: &[u8], flags: u32, value: &[u8]) -> bool {
    key.len() <= SHORT_KEY_SIZE_MAX && flags < 10 && value.len() < 10
}

impl<'o> ReplyWriter<'o> {
    /// Returns a writer that appends to `out`.
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        ReplyWriter { out }
    }

    /// Writes a pair that `get` or another retrieval has found.
    #[inline]
    pub fn value(&mut self, key: &[u8], flags: u32, value: &[u8], cas: Option<u64>) {
        if cas.is_none() && is_short(key, flags, value) {
            return self.short_value(key, flags, value, b"\r\n");
        }
        self.long_value(key, flags, value, cas);
    }

    /// Writes the only pair of a retrieval, and `END`.
    #[inline]
    pub fn only_value(&mut self, key: &[u8], flags: u32, value: &[u8]) {
        if is_short(key, flags, value) {
            return self.short_value(key, flags, value, b"\r\nEND\r\n");
        }
        self.long_value(key, flags, value, None);
        self.status(Status::End);
    }

    fn long_value(&mut self, key: &[u8], flags: u32, value: &[u8], cas: Option<u64>) {
        self.out.extend_from_slice(b"VALUE ");
        self.out.extend_from_slice(key);
        for number in [Some(flags.into()), Some(value.len() as u64), cas].into_iter().flatten() {
            self.out.push(b' ');
            self.decimal(number);
        }
        self.end_line();
        self.out.extend_from_slice(value);
        self.end_line();
    }

    /// Writes a [short](is_short) pair and what follows its value. The output grows once, by a constant size, whose end is
    /// taken back.
    #[inline(always)]
    fn short_value<const N: usize>(&mut self, key: &[u8], flags: u32, value: &[u8], end: &[u8; N]) {
        let begin = self.out.len();
        self.out.extend_from_slice(&[0; SHORT_PAIR_SIZE]);
        let lines: &mut [u8; SHORT_PAIR_SIZE] = self.out.last_chunk_mut().expect("the output has grown");
        lines[..6].copy_from_slice(b"VALUE ");
        overwrite(&mut lines[6..6 + key.len()], key);
        let numbers = [b' ', b'0' + flags as u8, b' ', b'0' + value.len() as u8, b'\r', b'\n'];
        let (value_at, end_at) = (12 + key.len(), 12 + key.len() + value.len());
        lines[value_at - numbers.len()..value_at].copy_from_slice(&numbers);
        overwrite(&mut lines[value_at..end_at], value);
        lines[end_at..end_at + N].copy_from_slice(end);
        self.out.truncate(begin + end_at + N);
    }

    /// Writes a line that depends on nothing else.
    #[inline]
    pub fn status(&mut self, status: Status) {
        self.out.extend_from_slice(match status {
            Status::Stored => b"STORED\r\n",
            Status::NotStored => b"NOT_STORED\r\n",
            Status::Exists => b"EXISTS\r\n",
            Status::NotFound => b"NOT_FOUND\r\n",
            Status::Deleted => b"DELETED\r\n",
            Status::Touched => b"TOUCHED\r\n",
            Status::Ok => b"OK\r\n",
            Status::Reset => b"RESET\r\n",
            Status::End => b"END\r\n",
            Status::MetaNoOperation => b"MN\r\n",
        });
    }

    /// Writes a statistic.
    pub fn statistic(&mut self, name: &str, value: &str) {
        for part in ["STAT ", name, " ", value] {
            self.out.extend_from_slice(part.as_bytes());
        }
        self.end_line();
    }

    /// Writes the server's version.
    pub fn version(&mut self, version: &str) {
        self.out.extend_from_slice(b"VERSION ");
        self.out.extend_from_slice(version.as_bytes());
        self.end_line();
    }

    /// Writes an error.
    pub fn error(&mut self, error: ErrorReply) {
        use std::io::Write;
        write!(self.out, "{error}\r\n").expect("a vector has room");
    }

    /// Writes a meta reply without a value.
    pub fn meta(&mut self, code: MetaCode, returned: ReturnFlags<'_>, item: &MetaItem<'_>) {
        self.out.extend_from_slice(match code {
            MetaCode::Done => b"HD",
            MetaCode::Miss => b"EN",
            MetaCode::NotStored => b"NS",
            MetaCode::NotFound => b"NF",
            MetaCode::Exists => b"EX",
        });
        self.meta_flags(returned, item);
    }

    /// Writes a meta reply with a value.
    pub fn meta_value(&mut self, value: &[u8], returned: ReturnFlags<'_>, item: &MetaItem<'_>) {
        self.out.extend_from_slice(b"VA ");
        self.decimal(value.len() as u64);
        self.meta_flags(returned, item);
        self.out.extend_from_slice(value);
        self.end_line();
    }

    /// Writes the reply to `me`. As in memcached, a time to live is negative here. The class is always 1: in memcached
    /// it is the number of the slab class.
    pub fn meta_debug(&mut self, item: &MetaDebug<'_>) {
        use std::io::Write;
        self.out.extend_from_slice(b"ME ");
        self.key(item.key, item.is_base64);
        let expiry = item.time_to_live.map_or(-1, |seconds| -(seconds as i64));
        let is_hit = if item.is_hit { "yes" } else { "no" };
        write!(self.out, " exp={expiry} la={} cas={} fetch={is_hit} cls=1 size={}\r\n", item.idle, item.cas, item.size)
            .expect("a vector has room");
    }

    fn meta_flags(&mut self, returned: ReturnFlags<'_>, item: &MetaItem<'_>) {
        for flag in returned.iter() {
            match flag {
                ReturnFlag::Key => {
                    self.out.extend_from_slice(b" k");
                    self.key(item.key, item.is_base64);
                    self.out.extend_from_slice(if item.is_base64 { b" b" } else { b"" });
                }
                ReturnFlag::Opaque(token) => {
                    self.out.extend_from_slice(b" O");
                    self.out.extend_from_slice(token);
                }
                ReturnFlag::TimeToLive if item.time_to_live == Some(-1) => self.out.extend_from_slice(b" t-1"),
                ReturnFlag::TimeToLive => self.meta_number(b" t", item.time_to_live.map(|seconds| seconds as u64)),
                ReturnFlag::Size => self.meta_number(b" s", item.size.map(|size| size as u64)),
                ReturnFlag::Cas => self.meta_number(b" c", item.cas),
                ReturnFlag::Flags => self.meta_number(b" f", item.flags.map(u64::from)),
                ReturnFlag::Hit => self.meta_number(b" h", item.is_hit.map(u64::from)),
                ReturnFlag::Idle => self.meta_number(b" l", item.idle),
            }
        }
        for (is_set, flag) in [(item.is_won_by_other, b" Z"), (item.is_stale, b" X"), (item.is_won, b" W")] {
            self.out.extend_from_slice(if is_set { flag } else { b"" });
        }
        self.end_line();
    }

    fn meta_number(&mut self, flag: &[u8], number: Option<u64>) {
        if let Some(number) = number {
            self.out.extend_from_slice(flag);
            self.decimal(number);
        }
    }

    fn key(&mut self, key: &[u8], is_base64: bool) {
        if is_base64 {
            encode(key, self.out);
        } else {
            self.out.extend_from_slice(key);
        }
    }

    #[inline]
    fn end_line(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn decimal(&mut self, number: u64) {
        match number {
            0..10 => self.out.push(b'0' + number as u8),
            _ => self.long_decimal(number),
        }
    }

    fn long_decimal(&mut self, mut number: u64) {
        /// The digits of the largest number.
        const DIGITS_MAX: usize = u64::MAX.ilog10() as usize + 1;
        let mut digits = [0; DIGITS_MAX];
        let mut start = DIGITS_MAX;
        loop {
            start -= 1;
            digits[start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.out.extend_from_slice(&digits[start..]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::ErrorReply;
    use super::{MetaCode, MetaDebug, MetaItem, ReplyWriter, ReturnFlags, Status};

    fn written(write: impl Fn(&mut ReplyWriter<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut ReplyWriter::new(&mut out));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_replies() {
        type Case = (fn(&mut ReplyWriter<'_>), &'static str);
        let cases: [Case; 15] = [
            (|w| w.value(b"a", 0, b"x", None), "VALUE a 0 1\r\nx\r\n"),
            (|w| w.value(b"a", u32::MAX, b"", Some(1)), "VALUE a 4294967295 0 1\r\n\r\n"),
            (|w| w.value(b"a", 1, b"\r\n", Some(u64::MAX)), "VALUE a 1 2 18446744073709551615\r\n\r\n\r\n"),
            (|w| w.status(Status::End), "END\r\n"),
            (|w| w.status(Status::Stored), "STORED\r\n"),
            (|w| w.status(Status::NotStored), "NOT_STORED\r\n"),
            (|w| w.status(Status::Exists), "EXISTS\r\n"),
            (|w| w.status(Status::NotFound), "NOT_FOUND\r\n"),
            (|w| w.status(Status::Deleted), "DELETED\r\n"),
            (|w| w.status(Status::Touched), "TOUCHED\r\n"),
            (|w| w.status(Status::Ok), "OK\r\n"),
            (|w| w.status(Status::Reset), "RESET\r\n"),
            (|w| w.statistic("curr_items", "10"), "STAT curr_items 10\r\n"),
            (|w| w.version("1.6.18"), "VERSION 1.6.18\r\n"),
            (|w| w.error(ErrorReply::TooLarge), "SERVER_ERROR object too large for cache\r\n"),
        ];
        for (write, text) in cases {
            assert_eq!(written(write), text);
        }
    }

    /// Short and long pairs are written in different ways.
    #[test]
    fn pairs_of_all_sizes() {
        let letters = "abcdefghijklmnopqrstuvwxyz";
        for (key_size, size) in (1..=20).flat_map(|key_size| (0..=20).map(move |size| (key_size, size))) {
            for flags in [0, 9, 10] {
                let (key, value) = (&letters[..key_size], &letters[26 - size..]);
                let pair = written(|writer| writer.value(key.as_bytes(), flags, value.as_bytes(), None));
                assert_eq!(pair, format!("VALUE {key} {flags} {size}\r\n{value}\r\n"));
                let only = written(|writer| writer.only_value(key.as_bytes(), flags, value.as_bytes()));
                assert_eq!(only, pair + "END\r\n");
            }
        }
    }

    #[test]
    fn meta_replies_have_the_flags_in_the_order_of_the_request() {
        let full = MetaItem {
            key: b"foo",
            size: Some(2),
            time_to_live: Some(-1),
            cas: Some(40),
            flags: Some(5),
            is_hit: Some(true),
            idle: Some(3),
            ..MetaItem::default()
        };
        let meta = |code, flags: &str, item: &MetaItem<'_>| {
            written(|writer| writer.meta(code, ReturnFlags::new(flags.as_bytes()), item))
        };
        assert_eq!(meta(MetaCode::Done, " v t s k f c h l u q", &full), "HD t-1 s2 kfoo f5 c40 h1 l3\r\n");
        assert_eq!(meta(MetaCode::Done, "q c f v t s k Oabc", &full), "HD c40 f5 t-1 s2 kfoo Oabc\r\n");
        assert_eq!(meta(MetaCode::Done, "sfoo t1 O", &full), "HD s2 t-1 O\r\n");
        assert_eq!(meta(MetaCode::Done, "", &full), "HD\r\n");

        let missing = MetaItem { key: b"foo", is_base64: true, ..MetaItem::default() };
        assert_eq!(meta(MetaCode::Miss, "k t s c O1 v", &missing), "EN kZm9v b O1\r\n");
        assert_eq!(meta(MetaCode::NotFound, "O1 k", &missing), "NF O1 kZm9v b\r\n");
        assert_eq!(meta(MetaCode::Exists, "", &missing), "EX\r\n");
        assert_eq!(meta(MetaCode::NotStored, "c", &MetaItem { cas: Some(0), ..missing }), "NS c0\r\n");

        let won = MetaItem { is_won: true, time_to_live: Some(30), ..full };
        let stale = MetaItem { is_stale: true, ..won };
        let late = MetaItem { is_stale: true, is_won_by_other: true, ..full };
        assert_eq!(meta(MetaCode::Done, "t", &won), "HD t30 W\r\n");
        assert_eq!(meta(MetaCode::Done, "t", &stale), "HD t30 X W\r\n");
        assert_eq!(meta(MetaCode::Done, "t", &late), "HD t-1 Z X\r\n");
    }

    #[test]
    fn meta_replies_with_a_value() {
        let returned = ReturnFlags::new(b"s v k");
        let item = MetaItem { key: b"a", size: Some(2), ..MetaItem::default() };
        assert_eq!(written(|writer| writer.meta_value(b"\r\n", returned, &item)), "VA 2 s2 ka\r\n\r\n\r\n");
        assert_eq!(written(|writer| writer.status(Status::MetaNoOperation)), "MN\r\n");
        let debug =
            MetaDebug { key: b"foo", is_base64: false, time_to_live: None, idle: 3, cas: 65, is_hit: false, size: 62 };
        let text = |debug| written(|writer| writer.meta_debug(&debug));
        assert_eq!(text(debug), "ME foo exp=-1 la=3 cas=65 fetch=no cls=1 size=62\r\n");
        let other = MetaDebug { is_base64: true, time_to_live: Some(50), is_hit: true, ..debug };
        assert_eq!(text(other), "ME Zm9v exp=-50 la=3 cas=65 fetch=yes cls=1 size=62\r\n");
    }
}
