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
//!   start        ~key            the greatest key not above it, or the lowest of all: the paper's SCAN
//!   reply        next, pairs of the page; after them, if LEASE was given, the number of the lease
//! ```
//!
//! A page ends with the range, with `LIMIT`, or when it is long. *Next* is null if nothing follows, otherwise the last
//! key: the same command with `AFTER` and this key continues. With `LEASE OPEN` all pages show one state of the space;
//! the next ones are asked for with the number. A count goes through as many pages as it takes, of one state, before it
//! replies.
//!
//! A floor may be below many expired keys, so that a page of the store ends before it is found. The command then asks
//! for the next page itself. A client could not: the key of such a page is not above *start*, as the key of a floor is
//! not, but the scan has to continue below it.

use skep_core::operation::{
    KEY_SIZE_MAX, Operation, Page, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart,
};
use skep_wire::resp::ReplyWriter;

use super::table::CommandName;
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
    /// Between the first two arguments. The end is no floor.
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
    /// `~key`
    Floor,
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
    /// The floor is still to be found: at that key or below it.
    seeks_floor: bool,
    lease: ScanLease,
}

impl Resume {
    fn after(page: &Page<'_>, seeks_floor: bool) -> Resume {
        let lease = page.lease().map_or(ScanLease::None, ScanLease::Continue);
        Resume { after: page.last_key().to_vec(), seeks_floor, lease }
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

/// Returns the longest text with which all keys begin that the command may return, if it goes through a range. `Some(None)`:
/// the range is not well formed, or may have any keys.
pub(super) fn prefix_of(name: CommandName, arguments: Arguments<'_>) -> Option<Option<&[u8]>> {
    Some(match name {
        CommandName::SkepPrefix => Some(arguments.get(1)),
        CommandName::SkepCount if arguments.is(1, "PREFIX") => Some(arguments.get(2)),
        CommandName::SkepScan | CommandName::SkepCount => match (arguments.get(1), arguments.get(2)) {
            ([b'[' | b'(', start @ ..], [kind @ (b'[' | b'('), end @ ..]) => {
                Some(common_prefix(start, end, *kind == b'['))
            }
            _ => None,
        },
        // The key that it finds may be any.
        CommandName::SkepFloor => None,
        _ => return None,
    })
}

/// Returns the longest text with which all keys of a range begin.
pub(crate) fn common_prefix<'k>(start: &'k [u8], end: &[u8], includes_end: bool) -> &'k [u8] {
    let common = start.iter().zip(end).take_while(|(start, end)| start == end).count();
    // Below `user;` are all keys that begin with `user:` and are not below `user:`.
    let is_next = !includes_end
        && end.len() == common + 1
        && start.get(common).is_some_and(|byte| byte.checked_add(1) == end.get(common).copied());
    &start[..common + usize::from(is_next)]
}

/// No other key is above this one.
const ABOVE_ALL: &[u8] = &[0xff; KEY_SIZE_MAX];

fn between(arguments: Arguments<'_>) -> Result<Range, String> {
    let bound = |index: usize, forms: &str| match arguments.get(index) {
        b"-" => Ok(Bound::Lowest),
        b"+" => Ok(Bound::Greatest),
        [b'[', ..] => Ok(Bound::Included),
        [b'(', ..] => Ok(Bound::Excluded),
        [b'~', ..] => Ok(Bound::Floor),
        _ => Err(format!("ERR min or max not valid string range item: write {forms}")),
    };
    match (bound(1, "[key, (key, ~key, - or +")?, bound(2, END_FORMS)?) {
        (_, Bound::Floor) => Err(format!("ERR ~key is a start, not an end: write {END_FORMS}")),
        (start, end) => Ok(Range::Between(start, end)),
    }
}

const END_FORMS: &str = "[key, (key, - or +";

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
                    Bound::Floor => (ScanStart::Floor, key(1)),
                },
                match end {
                    Bound::Lowest => ScanEnd::Below(&[]),
                    Bound::Included => ScanEnd::AtOrBelow(key(2)),
                    Bound::Excluded => ScanEnd::Below(key(2)),
                    Bound::Greatest => ScanEnd::Last,
                    Bound::Floor => unreachable!("a floor is a start"),
                },
            ),
            Range::Prefix(index) => {
                ((ScanStart::AtOrAbove, arguments.get(index)), ScanEnd::Prefix(arguments.get(index)))
            }
            Range::Floor => ((ScanStart::Floor, arguments.get(1)), ScanEnd::AtOrBelow(arguments.get(1))),
        };
        let is_seeking = resume.is_some_and(|resume| resume.seeks_floor);
        let after = resume.map(|resume| &resume.after[..]).or(self.after.map(|index| arguments.get(index)));
        match after {
            // All keys from there to the start have expired.
            Some(after) if is_seeking => {
                start.1 = after;
                if self.reverse {
                    end = ScanEnd::Below(after);
                } else if matches!(self.range, Range::Floor) {
                    end = ScanEnd::AtOrBelow(after);
                }
            }
            // Nothing of a range follows a key that is beyond its other end. A range whose ends are exchanged stays so.
            Some(after) if is_within(start.1, end) && self.is_beyond(after, start.1, end) => {
                (start, end) = ((ScanStart::Above, after), ScanEnd::AtOrBelow(after));
            }
            // A key below the start is the floor.
            Some(after) if !self.reverse && (start.0 == ScanStart::Floor || after >= start.1) => {
                start = (ScanStart::Above, after);
            }
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

    /// Takes a page. Returns true if another one is to be asked for before there is a reply.
    pub(super) fn reply(
        &self,
        arguments: Arguments<'_>,
        reply: Reply<'_>,
        progress: &mut Progress,
        writer: &mut ReplyWriter<'_>,
    ) -> bool {
        let Reply::Value(bytes) = reply else { unreachable!("the reply to a scan is a page: {reply:?}") };
        let page = Page::decode(bytes).expect("the store returns a whole page");
        let seeks_floor = self.seeks_floor(arguments, progress.resume.as_ref(), &page);
        let goes_on = seeks_floor || self.reply == ReplyForm::Count && page.more();
        progress.resume = goes_on.then(|| Resume::after(&page, seeks_floor));
        progress.done += i64::from(page.count());
        if !goes_on {
            self.write(&page, progress.done, writer);
        }
        goes_on
    }

    /// Returns true if the page ended among expired keys before it found the floor of the range.
    fn seeks_floor(&self, arguments: Arguments<'_>, resume: Option<&Resume>, page: &Page<'_>) -> bool {
        let has_floor = matches!(self.range, Range::Floor | Range::Between(Bound::Floor, _));
        if !has_floor || page.count() > 0 {
            return false;
        }
        let Request { key, operation: Operation::Scan(scan) } = self.request(arguments, resume) else {
            unreachable!("it is a scan")
        };
        scan.seeks_floor(key, page)
    }

    /// Writes the reply; its last page, or its only one, is `page`, and `count` is that of all its pairs.
    fn write(&self, page: &Page<'_>, count: i64, writer: &mut ReplyWriter<'_>) {
        match self.reply {
            ReplyForm::Count => writer.integer(count),
            ReplyForm::Pair => match page.pairs().next() {
                Some((key, value)) => {
                    writer.array(2);
                    writer.bulk(key);
                    writer.bulk(value);
                }
                None => writer.null(),
            },
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
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Instant;

    use skep_core::operation::{
        Condition, Expiry, ExpiryChange, PAGE_SKIPPED_MAX, PageWriter, PutCondition, StringWrite,
    };
    use skep_store::ordered::{OrderedSettings, OrderedStore, Session};
    use skep_store::processor::Replies;
    use skep_wire::resp::RequestParser;

    use super::*;
    use crate::resp_command::{CommandName, KeyCommand};

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
            assert_eq!((scan.start, request.key, scan.end), (ScanStart::Floor, start, ScanEnd::AtOrBelow(start)));
            let mut page = Vec::new();
            let mut writer = PageWriter::new(&mut page, ScanAnswer::Pairs);
            keys.iter().for_each(|key| writer.push(key, 1, |out| out.push(b'v')));
            writer.finish(if more { b"k" } else { b"c" }, more, None);
            let mut writer = ReplyWriter::new(&mut output, Default::default());
            assert_eq!(floor().reply(arguments, Reply::Value(&page), &mut progress, &mut writer), more);
        }
        assert_eq!(output, b"*2\r\n$1\r\nc\r\n$1\r\nv\r\n");
    }

    /// The number of keys. A search for a floor below all of them takes three pages.
    const KEYS: usize = 2 * PAGE_SKIPPED_MAX + PAGE_SKIPPED_MAX / 2;

    fn key(number: usize) -> String {
        format!("k{number:05}")
    }

    /// Executes a command on one key. Returns the lines of its reply, and the number of operations that it took.
    fn execute(session: &mut Session<'_>, line: &str) -> (Vec<String>, usize) {
        let (mut input, mut ranges) = (format!("{line}\r\n").into_bytes(), Vec::with_capacity(64));
        RequestParser::default().parse(&mut input, &mut ranges).unwrap();
        let arguments = Arguments::new(&input, &ranges);
        let command = match CommandName::find(arguments.get(0)).unwrap() {
            CommandName::SkepScan => scan(arguments).unwrap(),
            CommandName::SkepCount => count(arguments).unwrap(),
            CommandName::SkepFloor => floor(),
            name => panic!("{name:?} has no range"),
        };
        let command = KeyCommand::Scan(command);
        let (mut progress, mut output, mut operations) = (Progress::default(), Vec::new(), 0);
        let mut replies = Replies::with_budget(1 << 20);
        loop {
            let request = command.request(arguments, &[], 0, progress.resume());
            session.execute(&[request], &mut replies, Instant::now());
            operations += 1;
            assert!(operations < 10, "{line} does not end");
            let mut writer = ReplyWriter::new(&mut output, Default::default());
            if !command.reply(arguments, 0, Ok(replies.get(0)), &mut progress, &mut writer) {
                break;
            }
        }
        (String::from_utf8(output).unwrap().lines().map(str::to_owned).collect(), operations)
    }

    /// Returns the keys of all pages of a scan, each asked for as a client asks for it.
    fn pages(session: &mut Session<'_>, line: &str, is_leased: bool) -> Vec<String> {
        let (mut keys, mut options) = (Vec::new(), if is_leased { " LEASE OPEN".to_owned() } else { String::new() });
        for _ in 0..20 {
            let (lines, _) = execute(session, &format!("{line}{options}"));
            let has_next = lines[1] != "$-1";
            keys.extend(lines[if has_next { 3 } else { 2 }..].iter().filter(|line| line.starts_with('k')).cloned());
            if !has_next {
                return keys;
            }
            options = format!(" AFTER {}", lines[2]);
            if is_leased {
                options += &format!(" LEASE {}", lines.last().unwrap().trim_start_matches(':'));
            }
        }
        panic!("{line} does not end")
    }

    /// Of many keys a few are left: the others have expired, and their memory is not freed yet.
    #[test]
    fn floors_are_found_below_any_number_of_expired_keys() {
        let middle = KEYS / 2;
        for left in [&[][..], &[0], &[middle], &[KEYS - 1], &[0, 1, KEYS - 1], &[3, middle - 1, middle]] {
            let store = OrderedStore::new(&OrderedSettings::new(16 << 20)).unwrap();
            let mut session = store.session().unwrap();
            let mut replies = Replies::with_budget(1 << 20);
            let left: BTreeSet<String> = left.iter().copied().map(key).collect();
            for key in (0..KEYS).map(key) {
                let (value, condition) = (&b"v"[..], Condition::ALWAYS);
                let expiry = ExpiryChange::set(Expiry::at(100).unwrap());
                let operation = match left.contains(&key) {
                    true => Operation::Put { value, condition: PutCondition::Always },
                    false => Operation::StringWrite(StringWrite::Set { value, condition, expiry, return_old: false }),
                };
                session.execute(&[Request { key: key.as_bytes(), operation }], &mut replies, Instant::now());
                assert_eq!(replies.get(0), Reply::Done);
            }
            store.set_now(100);
            for number in [0, 1, 100, PAGE_SKIPPED_MAX, middle, 2 * PAGE_SKIPPED_MAX + 7, KEYS - 1, 2 * KEYS] {
                check_floor(&mut session, &key(number), &left);
            }
        }
    }

    /// Compares all commands that begin at the floor of a key with the keys that are left.
    fn check_floor(session: &mut Session<'_>, key: &str, left: &BTreeSet<String>) {
        let floor = left.range(..=key.to_owned()).next_back();
        let (lines, _) = execute(session, &format!("SKEP.FLOOR {key}"));
        match floor {
            Some(floor) => assert_eq!(lines, ["*2", "$6", floor, "$1", "v"], "the floor of {key} in {left:?}"),
            None => assert_eq!(lines, ["$-1"], "the floor of {key} in {left:?}"),
        }
        let mut range: Vec<String> = match floor {
            Some(floor) => left.range(floor.clone()..).cloned().collect(),
            None => left.iter().cloned().collect(),
        };
        let (lines, _) = execute(session, &format!("SKEP.COUNT ~{key} +"));
        assert_eq!(lines, [format!(":{}", range.len())], "from {key} in {left:?}");
        for order in ["", " REV"] {
            for limit in ["", " LIMIT 1"] {
                for is_leased in [false, true] {
                    let line = format!("SKEP.SCAN ~{key} + KEYS{order}{limit}");
                    assert_eq!(pages(session, &line, is_leased), range, "{line} in {left:?}, lease: {is_leased}");
                }
            }
            range.reverse();
        }
    }
}
