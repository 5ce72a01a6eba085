//! Commands that go through a range of the ordered space, which Redis does not have for its keys.
//!
//! ```text
//!   SKEP.SCAN start end [option…]        the pairs of a range       [LIMIT n] [REV] [KEYS]
//!   SKEP.PREFIX prefix [option…]         the pairs with a prefix    [LEASE OPEN | LEASE n] [AFTER key]
//!   SKEP.COUNT start end                 how many there are
//!   SKEP.COUNT PREFIX prefix
//!   SKEP.FLOOR key                       the pair with the greatest key not above this one
//!
//!   start, end   [key included   (key not included   - the lowest   + the greatest     as ZRANGEBYLEX has them
//!   reply        next, pairs of the page; after them, if LEASE was given, the number of the lease
//! ```
//!
//! A page ends with the range, with `LIMIT`, or when it is long. *Next* is null if nothing follows, otherwise the last
//! key: the same command with `AFTER` and this key continues. With `LEASE OPEN` all pages show one state of the space;
//! the next ones are asked for with the number. A count goes through as many pages as it takes, of one state, before it
//! replies.

use skep_core::operation::{
    KEY_SIZE_MAX, Operation, Page, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart,
};
use skep_wire::resp::ReplyWriter;

use super::{Arguments, Progress, excerpt};

/// A scan as it was asked for; its bytes are those of the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanCommand {
    range: Range,
    reverse: bool,
    limit: u32,
    answer: ScanAnswer,
    lease: ScanLease,
    /// The argument with the key after which the scan continues.
    after: Option<usize>,
    reply: ReplyForm,
}

/// The range of the pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    /// Between the first two arguments.
    Between(Bound, Bound),
    /// Those with the prefix in this argument.
    Prefix(usize),
    /// At or below the first argument.
    Floor,
}

/// An end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    /// `-`
    Lowest,
    /// `+`
    Greatest,
    /// `[key`
    Included,
    /// `(key`
    Excluded,
}

/// The form of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyForm {
    /// Next and the pairs.
    Page,
    /// The same and the lease.
    LeasedPage,
    /// A number.
    Count,
    /// A key and its value, or null.
    Pair,
}

/// The position of a command that takes more than one page.
#[derive(Debug)]
pub(crate) struct Resume {
    after: Vec<u8>,
    lease: ScanLease,
}

impl Resume {
    fn after(page: &Page<'_>) -> Resume {
        let lease = page.lease().map_or(ScanLease::None, ScanLease::Continue);
        Resume { after: page.last_key().to_vec(), lease }
    }
}

/// The plain scan that the commands differ from.
const WHOLE: ScanCommand = ScanCommand {
    range: Range::Floor,
    reverse: false,
    limit: u32::MAX,
    answer: ScanAnswer::Pairs,
    lease: ScanLease::None,
    after: None,
    reply: ReplyForm::Page,
};

/// Decodes `SKEP.SCAN start end [option…]`.
pub(super) fn scan(arguments: Arguments<'_>) -> Result<ScanCommand, String> {
    options(ScanCommand { range: between(arguments)?, ..WHOLE }, arguments, 3)
}

/// Decodes `SKEP.PREFIX prefix [option…]`.
pub(super) fn prefix(arguments: Arguments<'_>) -> Result<ScanCommand, String> {
    options(ScanCommand { range: Range::Prefix(1), ..WHOLE }, arguments, 2)
}

/// Decodes `SKEP.COUNT start end` and `SKEP.COUNT PREFIX prefix`.
pub(super) fn count(arguments: Arguments<'_>) -> Result<ScanCommand, String> {
    let range = if arguments.is(1, "PREFIX") { Range::Prefix(2) } else { between(arguments)? };
    Ok(ScanCommand { range, answer: ScanAnswer::Count, lease: ScanLease::Open, reply: ReplyForm::Count, ..WHOLE })
}

/// Decodes `SKEP.FLOOR key`.
pub(super) fn floor() -> ScanCommand {
    ScanCommand { limit: 1, reply: ReplyForm::Pair, ..WHOLE }
}

/// No other key is above this one.
const ABOVE_ALL: &[u8] = &[0xff; KEY_SIZE_MAX];

fn between(arguments: Arguments<'_>) -> Result<Range, String> {
    let bound = |index: usize| match arguments.get(index) {
        b"-" => Ok(Bound::Lowest),
        b"+" => Ok(Bound::Greatest),
        [b'[', ..] => Ok(Bound::Included),
        [b'(', ..] => Ok(Bound::Excluded),
        _ => Err("ERR min or max not valid string range item: write [key, (key, - or +".to_owned()),
    };
    Ok(Range::Between(bound(1)?, bound(2)?))
}

fn options(mut command: ScanCommand, arguments: Arguments<'_>, first: usize) -> Result<ScanCommand, String> {
    let mut index = first;
    while index < arguments.count() {
        let has_operand = index + 1 < arguments.count();
        if arguments.is(index, "REV") {
            command.reverse = true;
        } else if arguments.is(index, "KEYS") {
            command.answer = ScanAnswer::Keys;
        } else if arguments.is(index, "LIMIT") && has_operand {
            index += 1;
            let limit = arguments.integer(index).and_then(|limit| u32::try_from(limit).ok());
            command.limit = limit.ok_or("ERR LIMIT is not an integer or out of range")?;
        } else if arguments.is(index, "LEASE") && has_operand {
            index += 1;
            command.reply = ReplyForm::LeasedPage;
            command.lease = match arguments.integer(index) {
                _ if arguments.is(index, "OPEN") => ScanLease::Open,
                Some(number) => ScanLease::Continue(number.cast_unsigned()),
                None => return Err("ERR LEASE is neither OPEN nor the number of a lease".to_owned()),
            };
        } else if arguments.is(index, "AFTER") && has_operand {
            index += 1;
            command.after = Some(index);
        } else {
            return Err(format!(
                "ERR syntax error at '{}': the options are LIMIT n, REV, KEYS, LEASE OPEN or LEASE n, AFTER key",
                excerpt(arguments.get(index), 128)
            ));
        }
        index += 1;
    }
    Ok(command)
}

/// Returns true if a range that ends there continues below this key.
fn is_within(key: &[u8], end: ScanEnd<'_>) -> bool {
    match end {
        ScanEnd::Last => true,
        ScanEnd::AtOrBelow(end) | ScanEnd::Below(end) => key <= end,
        ScanEnd::Prefix(prefix) => key < prefix || key.starts_with(prefix),
    }
}

impl ScanCommand {
    /// Returns the scan, from the position of its count if that has begun.
    pub(super) fn request<'a>(&self, arguments: Arguments<'a>, resume: Option<&'a Resume>) -> Request<'a> {
        let key = |index: usize| &arguments.get(index)[1..];
        let (mut start, mut end) = match self.range {
            Range::Between(start, end) => (
                match start {
                    Bound::Lowest => (ScanStart::AtOrAbove, &[][..]),
                    Bound::Included => (ScanStart::AtOrAbove, key(1)),
                    Bound::Excluded => (ScanStart::Above, key(1)),
                    Bound::Greatest => (ScanStart::Above, ABOVE_ALL),
                },
                match end {
                    Bound::Lowest => ScanEnd::Below(&[]),
                    Bound::Included => ScanEnd::AtOrBelow(key(2)),
                    Bound::Excluded => ScanEnd::Below(key(2)),
                    Bound::Greatest => ScanEnd::Last,
                },
            ),
            Range::Prefix(index) => {
                ((ScanStart::AtOrAbove, arguments.get(index)), ScanEnd::Prefix(arguments.get(index)))
            }
            Range::Floor => ((ScanStart::Floor, arguments.get(1)), ScanEnd::AtOrBelow(arguments.get(1))),
        };
        let after = resume.map(|resume| &resume.after[..]).or(self.after.map(|index| arguments.get(index)));
        match after {
            // The keys since the last floor have expired.
            Some(after) if matches!(self.range, Range::Floor) => start.1 = after,
            // Nothing of a range follows a key that is beyond its other end. A range whose ends are exchanged stays so.
            Some(after) if is_within(start.1, end) && self.is_beyond(after, start.1, end) => {
                (start, end) = ((ScanStart::Above, after), ScanEnd::AtOrBelow(after));
            }
            Some(after) if !self.reverse && after >= start.1 => start = (ScanStart::Above, after),
            Some(after) if self.reverse && is_within(after, end) => end = ScanEnd::Below(after),
            _ => {}
        }
        let scan = Scan {
            start: start.0,
            end,
            reverse: self.reverse,
            limit: self.limit,
            answer: self.answer,
            lease: resume.map_or(self.lease, |resume| resume.lease),
        };
        Request { key: start.1, operation: Operation::Scan(scan) }
    }

    /// Returns true if the scan has passed its whole range when it has passed this key.
    fn is_beyond(&self, after: &[u8], start: &[u8], end: ScanEnd<'_>) -> bool {
        if self.reverse { after < start } else { !is_within(after, end) }
    }

    /// Takes a page. Whether another one is to be asked for before there is a reply.
    pub(super) fn reply(&self, reply: Reply<'_>, progress: &mut Progress, writer: &mut ReplyWriter<'_>) -> bool {
        let Reply::Value(bytes) = reply else { unreachable!("the reply to a scan is a page: {reply:?}") };
        let page = Page::decode(bytes).expect("the store returns a whole page");
        match self.reply {
            ReplyForm::Count => {
                progress.done += i64::from(page.count());
                if page.more() {
                    progress.resume = Some(Resume::after(&page));
                    return true;
                }
                progress.resume = None;
                writer.integer(progress.done);
            }
            ReplyForm::Pair => {
                let pair = page.pairs().next();
                progress.resume = (page.more() && pair.is_none()).then(|| Resume::after(&page));
                match pair {
                    Some((key, value)) => {
                        writer.array(2);
                        writer.bulk(key);
                        writer.bulk(value);
                    }
                    None if progress.resume.is_some() => return true,
                    None => writer.null(),
                }
            }
            ReplyForm::Page | ReplyForm::LeasedPage => {
                writer.array(if self.reply == ReplyForm::Page { 2 } else { 3 });
                if page.more() {
                    writer.bulk(page.last_key());
                } else {
                    writer.null();
                }
                let is_pairs = self.answer == ScanAnswer::Pairs;
                writer.array(page.count() as usize * if is_pairs { 2 } else { 1 });
                for (key, value) in page.pairs() {
                    writer.bulk(key);
                    if is_pairs {
                        writer.bulk(value);
                    }
                }
                if self.reply == ReplyForm::LeasedPage {
                    match page.lease() {
                        Some(number) => writer.integer(number.cast_signed()),
                        None => writer.null(),
                    }
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use skep_core::operation::PageWriter;
    use skep_wire::resp::RequestParser;

    use super::*;

    /// The server has skipped expired keys below the key, and not yet found the floor.
    #[test]
    fn a_floor_is_looked_for_below_expired_keys() {
        let (mut input, mut ranges) = (b"SKEP.FLOOR m\r\n".to_vec(), Vec::with_capacity(16));
        RequestParser::default().parse(&mut input, &mut ranges).unwrap();
        let arguments = Arguments::new(&input, &ranges);
        let (mut progress, mut output) = (Progress::default(), Vec::new());
        for (keys, more, start) in [(&[][..], true, &b"m"[..]), (&[], true, b"k"), (&[&b"c"[..]], false, b"k")] {
            let request = floor().request(arguments, progress.resume.as_ref());
            let Operation::Scan(scan) = request.operation else { panic!("a scan") };
            assert_eq!((scan.start, request.key, scan.end), (ScanStart::Floor, start, ScanEnd::AtOrBelow(b"m")));
            let mut page = Vec::new();
            let mut writer = PageWriter::new(&mut page, ScanAnswer::Pairs);
            keys.iter().for_each(|key| writer.push(key, 1, |out| out.push(b'v')));
            writer.finish(if more { b"k" } else { b"c" }, more, None);
            let mut writer = ReplyWriter::new(&mut output, Default::default());
            assert_eq!(floor().reply(Reply::Value(&page), &mut progress, &mut writer), more);
        }
        assert_eq!(output, b"*2\r\n$1\r\nc\r\n$1\r\nv\r\n");
    }
}
