//! The bound of each command: the work that it may take, and the bytes of its reply, before it is executed.
//!
//! ```text
//!   BITCOUNT k               a pass over the value                        reply: a number
//!   SETRANGE k 1000000 v     the part, and what k may grow by             reply: a number
//!   MGET k…                  2 passes over each value                     reply: all values
//!   KEYS pattern             all buckets, the slabs and keys of a space   reply: all keys, at most a few mebibytes
//! ```
//!
//! [`CommandName::kind`] is a column of the table of commands: a match that names each command, so that none can be
//! added without a bound. A bound is never less than what the command really takes. Work is in bytes touched, see
//! [`crate::account`]; the factors are about what the stores and the encoding of replies cost beside that.

use skep_core::function::{CALL_WORK_MAX, Layout};
use skep_core::operation::{KEY_SIZE_MAX, PAGE_SIZE_GOAL, PAGE_SKIPPED_MAX, VALUE_SIZE_MAX};
use skep_wire::rdb::payload;

use super::lengths::Lengths;
use super::table::CommandName;
use super::{Arguments, part};
use crate::command_metrics::COMMAND_COUNT;
use crate::limits::{
    CLIENT_LIST_SIZE_MAX, CLIENT_SIZE, COUNT_TIMES, FUNCTIONS_REPLY_MAX, ISOLATED_REPLY_MAX, KEYSPACE_PAGE_SIZE,
    OPERATION_WORK, RANDOM_KEYS_MAX, SHORT_REPLY_SIZE, SLOW_LOG_REPLY_MAX, TEXT_WORK,
};
use crate::vocabulary::{Extent, Extents, Functions, Space, Spaces};

/// The most that a command may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bound {
    /// Work, in bytes touched.
    pub(crate) work: usize,
    /// Bytes of the reply, unless it is an error.
    pub(crate) reply: usize,
}

impl Bound {
    /// Adds the bound of another command.
    pub(crate) fn add(&mut self, other: Bound) {
        self.work = self.work.saturating_add(other.work);
        self.reply = self.reply.saturating_add(other.reply);
    }
}

/// The keys of a command that are added up so far. Those of a long command are added up in parts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeySums {
    pub(crate) count: usize,
    longest: usize,
    /// Bytes of values over which the command makes passes.
    pub(crate) touched: usize,
    /// Work on parts of values.
    of_parts: usize,
    /// Bytes of all values as replies.
    returned: usize,
}

/// A column of the table of commands: what the bound of a command depends on.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// On keys: operations for each, passes over each value, how the values change, and the reply. Commands that touch only a
    /// part of a value of the hash space make no passes over it: see [`CommandName::part_touched`].
    Keys(usize, usize, Growth, ReplySize),
    /// The server replies itself: operations that take as long, and bytes of the reply.
    Server(usize, usize),
    /// The same, and its work grows with the number of connections.
    Clients,
    /// The reply has the arguments.
    Echo,
    /// The reply describes commands.
    Descriptions,
    /// On all keys, or on those of a range.
    Many(Walk),
}

/// The length of a value after a command.
#[derive(Clone, Copy, Debug)]
enum Growth {
    /// Not longer than before.
    None,
    /// As long as this argument.
    Argument(usize),
    /// As long as the argument after the key.
    Next,
    /// A number of this length.
    Number(usize),
    /// The sum of two decimal fractions.
    Fraction,
    Append,
    Overwrite,
    Bit,
    Fields,
    Restored,
    /// As many elements as there are arguments.
    Vector,
    /// The second key gets the value of the first.
    Moved,
    /// The first key gets a value as long as the longest of the others.
    Combined,
}

#[derive(Clone, Copy, Debug)]
enum ReplySize {
    /// A number or a status.
    Short,
    /// The value.
    Value,
    /// The part of the value between two positions.
    Range,
    /// An array of all values.
    Values,
    /// The elements of the value as text.
    Elements,
    /// A number for each field.
    Fields,
    /// At most these bytes.
    Most(usize),
}

#[derive(Clone, Copy, Debug)]
enum Walk {
    Keys,
    Scan,
    Random,
    Count,
    Flush,
    FlushAll,
    Page,
    Pair,
    CountRange,
}

/// Bytes that the encoding of a value takes besides it: `$1048576`, and the ends of both lines.
const ENCODING: usize = 16;
/// Bytes that an element takes as text, for each of its own: `:-128` with the end of its line, and shorter ones.
const ELEMENT_TEXT: usize = 8;
/// Passes over a value whose elements are written as text, with those that read it and select elements.
const TEXT_PASSES: usize = ELEMENT_TEXT * TEXT_WORK + 4;
/// Bytes of the longest text that may be a decimal fraction, its exponent, and bytes of a sum, which has no exponent.
const FRACTION_SIZE: usize = 5 << 10;
const FRACTION_EXPONENT: usize = 4950;
const FRACTION_SUM_SIZE: usize = 4960;
/// Work for each argument: it is decoded.
const ARGUMENT_WORK: usize = 64;
/// Work of a slab that a walk reads, and of a pair of the ordered space.
const PAIR_WORK: usize = 1 << 10;
/// Work of a byte of a key that a walk returns.
const KEY_WORK: usize = 8;
/// Work of a pair that is counted.
const COUNTED_PAIR_WORK: usize = 128;
/// Work on a part of a value besides its bytes: the lines of the index of a long value. A short one is copied instead.
const PART_WORK: usize = 256;
const SHORT_SIZE: usize = 512;
/// Passes over the bytes by which a value grows: they are computed and written, and once more if the key expires between.
const GROWTH_PASSES: usize = 4;
/// Work of a comparison of a byte of a pattern with one of a key.
const MATCH_WORK: usize = 4;
/// Work of a step of a walk, of a count and of a flush besides the keys.
const STEP_WORK: usize = 2 << 20;
/// Keys that a step of a scan may return beyond those that were asked for: the rest of a chain.
const CHAIN_KEYS: usize = 256;
/// Bytes of a reply with the settings, the help or the like.
const TEXT_SIZE: usize = 32 << 10;
/// Bytes of the description of a command.
const DESCRIPTION_SIZE: usize = 2 << 10;
/// Operations that take as long as a reply about all metrics, for a few shards.
const COSTLY: usize = 1 << 10;

impl CommandName {
    /// Returns what the bound of the command depends on.
    fn kind(self) -> Kind {
        use CommandName as N;
        use Growth as G;
        use ReplySize as R;
        match self {
            N::Exists
            | N::Touch
            | N::Ttl
            | N::PTtl
            | N::ExpireTime
            | N::PExpireTime
            | N::Type
            | N::StrLen
            | N::Watch => Kind::Keys(1, 0, G::None, R::Short),
            // The beginning of a long value is behind an index.
            N::Object | N::Memory => Kind::Keys(32, 0, G::None, R::Most(TEXT_SIZE)),
            N::Get => Kind::Keys(1, 1, G::None, R::Value),
            N::GetRange | N::SubStr => Kind::Keys(1, 1, G::None, R::Range),
            N::MGet => Kind::Keys(1, 1, G::None, R::Values),
            N::GetBit | N::BitCount | N::BitPos | N::Digest => Kind::Keys(1, 1, G::None, R::Short),
            N::BitFieldRo => Kind::Keys(1, 1, G::None, R::Fields),
            N::BitField => Kind::Keys(1, 3, G::Fields, R::Fields),
            N::Del | N::Unlink => Kind::Keys(1, 2, G::None, R::Short),
            N::DelEx | N::Expire | N::PExpire | N::ExpireAt | N::PExpireAt | N::Persist => {
                Kind::Keys(1, 3, G::None, R::Short)
            }
            N::GetDel | N::GetEx => Kind::Keys(1, 3, G::None, R::Value),
            N::Set | N::GetSet => Kind::Keys(1, 3, G::Argument(2), R::Value),
            N::SetNx => Kind::Keys(1, 3, G::Argument(2), R::Short),
            N::SetEx | N::PSetEx => Kind::Keys(1, 3, G::Argument(3), R::Short),
            // Each key is looked up, gets its room, and is set.
            N::MSet | N::MSetNx | N::MSetEx => Kind::Keys(3, 3, G::Next, R::Short),
            N::Incr | N::Decr | N::IncrBy | N::DecrBy => Kind::Keys(1, 3, G::Number(20), R::Short),
            N::IncrByFloat => Kind::Keys(1, 3, G::Fraction, R::Most(FRACTION_SUM_SIZE + 2 * ENCODING)),
            N::Append => Kind::Keys(1, 3, G::Append, R::Short),
            N::SetRange => Kind::Keys(1, 3, G::Overwrite, R::Short),
            N::SetBit => Kind::Keys(1, 3, G::Bit, R::Short),
            N::BitOp => Kind::Keys(2, 2, G::Combined, R::Short),
            N::Rename | N::RenameNx | N::Copy => Kind::Keys(3, 2, G::Moved, R::Short),
            N::Dump => Kind::Keys(1, 4, G::None, R::Value),
            N::Restore => Kind::Keys(1, 4, G::Restored, R::Short),
            N::SkepSet => Kind::Keys(1, 3, G::Vector, R::Short),
            N::SkepGetV | N::SkepFilter => Kind::Keys(1, TEXT_PASSES, G::None, R::Elements),
            N::SkepUpdate => Kind::Keys(1, TEXT_PASSES, G::Vector, R::Elements),
            N::SkepReduce => Kind::Keys(1, 16, G::None, R::Most(64)),
            N::Keys => Kind::Many(Walk::Keys),
            N::Scan => Kind::Many(Walk::Scan),
            N::RandomKey => Kind::Many(Walk::Random),
            N::DbSize => Kind::Many(Walk::Count),
            N::FlushDb => Kind::Many(Walk::Flush),
            N::FlushAll => Kind::Many(Walk::FlushAll),
            N::SkepScan | N::SkepPrefix => Kind::Many(Walk::Page),
            N::SkepFloor => Kind::Many(Walk::Pair),
            N::SkepCount => Kind::Many(Walk::CountRange),
            N::Ping | N::Echo => Kind::Echo,
            N::Client => Kind::Clients,
            N::Command => Kind::Descriptions,
            N::Hello | N::Lolwut | N::Time | N::Role | N::BgSave | N::BgRewriteAof => Kind::Server(4, 1 << 10),
            N::Info => Kind::Server(COSTLY, TEXT_SIZE),
            N::Config => Kind::Server(COSTLY, TEXT_SIZE),
            N::Acl => Kind::Server(COSTLY, TEXT_SIZE),
            N::SkepFunction => Kind::Server(COSTLY, FUNCTIONS_REPLY_MAX),
            N::SlowLog => Kind::Server(COSTLY, 2 * SLOW_LOG_REPLY_MAX),
            N::Latency => Kind::Server(4 * COSTLY, COMMAND_COUNT * DESCRIPTION_SIZE),
            N::Debug | N::Save | N::WaitAof | N::Monitor | N::Shutdown => Kind::Server(4, TEXT_SIZE),
            N::Multi | N::Exec | N::Discard | N::Unwatch | N::Auth | N::Reset | N::Select | N::Quit => {
                Kind::Server(1, SHORT_REPLY_SIZE)
            }
            N::Wait | N::LastSave => Kind::Server(1, SHORT_REPLY_SIZE),
        }
    }

    /// Returns true if the bound depends on the extents of the spaces, or on the number of connections.
    pub(crate) fn needs_extents(self) -> bool {
        matches!(self.kind(), Kind::Many(_) | Kind::Clients)
    }

    /// Returns true if the bound depends on the lengths of values.
    pub(crate) fn needs_lengths(self) -> bool {
        matches!(self.kind(), Kind::Keys(_, passes, ..) if passes > 0)
    }

    /// Returns the bytes by which the command makes the longest value of a space longer, at most.
    pub(crate) fn value_growth(self, arguments: Arguments<'_>) -> usize {
        let Kind::Keys(_, _, growth, _) = self.kind() else { return 0 };
        match growth {
            Growth::None => 0,
            Growth::Argument(_) | Growth::Next | Growth::Append => arguments.from(1).map(<[u8]>::len).sum(),
            Growth::Number(length) => length,
            Growth::Fraction => FRACTION_SUM_SIZE,
            Growth::Overwrite
            | Growth::Bit
            | Growth::Fields
            | Growth::Restored
            | Growth::Vector
            | Growth::Moved
            | Growth::Combined => VALUE_SIZE_MAX,
        }
    }

    /// Returns the space of a key of the command: that of a copy may be another one.
    pub(crate) fn space_of_key(self, arguments: Arguments<'_>, index: usize, space: Space, spaces: Spaces) -> Space {
        if self != CommandName::Copy || index != 2 {
            return space;
        }
        let named = (3..arguments.count().saturating_sub(1)).find(|index| arguments.is(*index, "DB"));
        let number = named.and_then(|index| u16::try_from(arguments.integer(index + 1)?).ok());
        number.and_then(|number| spaces.find(number)).unwrap_or(space)
    }

    /// Returns the least work of the keys of the command: each is looked up.
    pub(crate) fn least_work(self, arguments: Arguments<'_>) -> usize {
        let Kind::Keys(operations, ..) = self.kind() else { return 0 };
        self.key_indexes(arguments).count() * operations * OPERATION_WORK
    }

    /// Adds up the next keys of the command, at most `most`, and notes how it may change the lengths of their values.
    /// Returns their number: if it is less, all keys are added up.
    pub(crate) fn add_up_keys(
        self,
        sums: &mut KeySums,
        most: usize,
        arguments: Arguments<'_>,
        space: Space,
        lengths: &mut Lengths,
        spaces: Spaces,
    ) -> usize {
        let Kind::Keys(_, passes, growth, _) = self.kind() else { return 0 };
        let before = sums.count;
        for index in self.key_indexes(arguments).skip(before).take(most) {
            let key = arguments.get(index);
            let of = self.space_of_key(arguments, index, space, spaces);
            let before = if passes > 0 { lengths.get(of, key) } else { 0 };
            let after = match growth.length(arguments, index, before) {
                Some(length) => lengths.raise(of, key, length),
                None if matches!(growth, Growth::Moved) && sums.count == 1 => lengths.raise(of, key, sums.longest),
                None => before,
            };
            sums.count += 1;
            sums.longest = sums.longest.max(before);
            let mut is_replaced = true;
            match self.part_touched(growth.length(arguments, 1, 0).unwrap_or(0), arguments, of, before) {
                Some(part) => {
                    let growth = part.growth + lengths.grow(of, key, part.grows_to);
                    sums.of_parts += PART_WORK + 2 * before.min(SHORT_SIZE) + stored_size(part.size);
                    sums.of_parts += GROWTH_PASSES * stored_size(growth);
                    is_replaced = part.is_replaced;
                }
                None => sums.touched += stored_size(before.max(after)) * self.slowness(of, before.max(after)),
            }
            if is_replaced && self.writes() {
                lengths.replace(of, key);
            }
            sums.returned += before + ENCODING;
        }
        sums.count - before
    }

    /// Returns the bound of the command, whose keys are added up, and notes how it may change the lengths of values.
    pub(crate) fn bound(
        self,
        arguments: Arguments<'_>,
        space: Space,
        sums: KeySums,
        lengths: &mut Lengths,
        extents: &Extents,
    ) -> Bound {
        let count = arguments.count();
        let size = || arguments.from(1).map(<[u8]>::len).sum::<usize>();
        let bound = match self.kind() {
            Kind::Keys(..) => {
                let mut bound = self.bound_of_keys(arguments, space, sums, lengths);
                bound.add(self.bound_of_function(arguments, sums.longest, extents.spaces.functions));
                bound
            }
            Kind::Server(operations, reply) => {
                Bound { work: operations * OPERATION_WORK * usize::from(extents.spaces.shard_count.div_ceil(8)), reply }
            }
            Kind::Clients => Bound {
                work: (extents.clients + 4) * OPERATION_WORK,
                reply: if arguments.is(1, "list") { CLIENT_LIST_SIZE_MAX + TEXT_SIZE } else { 4 * CLIENT_SIZE },
            },
            Kind::Echo => Bound { work: OPERATION_WORK, reply: size() + 2 * ENCODING },
            Kind::Descriptions => {
                let reply = COMMAND_COUNT.max(count) * DESCRIPTION_SIZE;
                Bound { work: 4 * reply, reply }
            }
            Kind::Many(walk) => {
                if matches!(walk, Walk::Flush | Walk::FlushAll) {
                    lengths.flush();
                }
                walk.bound(arguments, space, extents)
            }
        };
        Bound { work: bound.work.saturating_add(count * ARGUMENT_WORK), ..bound }
    }

    /// Returns the bound of a command on keys.
    fn bound_of_keys(self, arguments: Arguments<'_>, space: Space, sums: KeySums, lengths: &mut Lengths) -> Bound {
        let Kind::Keys(operations, passes, growth, reply) = self.kind() else { return Bound::default() };
        let KeySums { count, longest, mut touched, of_parts, returned } = sums;
        if matches!(growth, Growth::Combined) && arguments.count() > 3 {
            // The longest is that of the new key or of another one.
            let length = lengths.raise(space, arguments.get(2), longest);
            touched += stored_size(length) * self.slowness(space, length);
            lengths.replace(space, arguments.get(2));
        }
        let arguments_size = arguments.from(1).map(<[u8]>::len).sum::<usize>();
        let reply = match reply {
            ReplySize::Short => SHORT_REPLY_SIZE,
            ReplySize::Value if self == CommandName::Set && !returns_old(arguments) => SHORT_REPLY_SIZE,
            ReplySize::Value => longest + 2 * ENCODING + SHORT_REPLY_SIZE,
            ReplySize::Range => part::range_size(arguments, 2, longest) + 2 * ENCODING,
            ReplySize::Values => returned + ENCODING,
            ReplySize::Elements if self == CommandName::SkepUpdate && is_silent(arguments) => SHORT_REPLY_SIZE,
            ReplySize::Elements => longest * ELEMENT_TEXT + 4 * ENCODING,
            ReplySize::Fields => arguments.count() * SHORT_REPLY_SIZE,
            ReplySize::Most(size) => size,
        };
        let passes = if reply == SHORT_REPLY_SIZE { passes.min(16) } else { passes };
        let of_operations = count.max(1) * operations * OPERATION_WORK;
        let is_sum = matches!(growth, Growth::Fraction) && arguments.count() > 2;
        let of_sum = if is_sum { sum_work(longest, arguments.get(2)) } else { 0 };
        Bound { work: of_operations + passes * touched + of_parts + of_sum + 4 * arguments_size, reply }
    }
}

impl CommandName {
    /// Returns what a user function adds to the bound of the command, for a value of this length.
    fn bound_of_function(self, arguments: Arguments<'_>, length: usize, functions: &Functions) -> Bound {
        let takes_function =
            matches!(self, CommandName::SkepUpdate | CommandName::SkepReduce | CommandName::SkepFilter);
        if !takes_function || arguments.count() < 3 {
            return Bound::default();
        }
        let handle = std::str::from_utf8(arguments.get(2)).ok().and_then(|name| functions.find(name));
        let Some(function) = handle.and_then(|handle| handle.function) else { return Bound::default() };
        let signature = &function.signature;
        // The initial value of a missing key has no more elements than there are arguments.
        let count = (length / signature.element.size()).max(arguments.count()) + 1;
        let work = (count as u64 * u64::from(signature.work)).min(CALL_WORK_MAX) as usize;
        let result = signature.result.as_ref().map_or(0, Layout::size) + size_of::<u32>();
        let reply = (count * result).min(VALUE_SIZE_MAX) * ELEMENT_TEXT + 4 * ENCODING;
        Bound { work: work + 4 * count * signature.element.size() + reply * TEXT_WORK, reply }
    }

    /// Returns the factor by which a byte of a value takes longer than elsewhere: the ordered space writes a long value to new
    /// frames, also for a change of a part of it. Such a change of a mebibyte took 1.1 to 1.3 ms, which are five passes.
    fn slowness(self, space: Space, length: usize) -> usize {
        if space == Space::Ordered && self.writes() && length > SHORT_SIZE { 2 } else { 1 }
    }
}

/// Returns the bytes of memory of a value of this length: a long one is in parts, and an index of them.
fn stored_size(length: usize) -> usize {
    if length <= 256 { length } else { length + length / 8 + (1 << 10) }
}

/// Returns true if a `SET` returns the old value.
fn returns_old(arguments: Arguments<'_>) -> bool {
    (3..arguments.count()).any(|index| arguments.is(index, "GET"))
}

/// Returns true if a `SKEP.UPDATE` returns nothing.
fn is_silent(arguments: Arguments<'_>) -> bool {
    (4..arguments.count()).any(|index| arguments.is(index, "NORETURN"))
}

/// Returns the work of adding a decimal fraction to a value of this length: the square of the digits of both, as
/// `fraction_work` counts it.
fn sum_work(length: usize, argument: &[u8]) -> usize {
    // That length is of a sum, which an earlier command has left.
    let of_value = if length == FRACTION_SUM_SIZE { 0 } else { FRACTION_EXPONENT };
    let of_argument = if argument.iter().any(u8::is_ascii_alphabetic) { FRACTION_EXPONENT } else { 0 };
    let digits = length.min(FRACTION_SIZE) + of_value + argument.len().min(FRACTION_SIZE) + of_argument;
    digits * digits / 64
}

impl Growth {
    /// Returns the length that the value of a key may have after the command, from this one before, unless it depends on
    /// other keys or is not longer.
    fn length(self, arguments: Arguments<'_>, key: usize, before: usize) -> Option<usize> {
        let size = |index: usize| if index < arguments.count() { arguments.get(index).len() } else { 0 };
        let number =
            |index: usize| arguments.integer(index).map_or(0, |number| number.clamp(0, i64::from(u32::MAX)) as usize);
        match self {
            Growth::None | Growth::Moved | Growth::Combined => None,
            Growth::Argument(index) => Some(size(index)),
            Growth::Next => Some(size(key + 1)),
            Growth::Number(length) => Some(length),
            // The value may have an exponent, or the argument.
            Growth::Fraction => Some(FRACTION_SUM_SIZE),
            Growth::Append => Some(before + size(2)),
            Growth::Overwrite => Some(number(2) + size(3)),
            Growth::Bit => Some(number(2) / 8 + 1),
            Growth::Fields => {
                // An offset in bits, or in fields of at most 64 bits.
                let bits = (2..arguments.count()).map(|index| {
                    let text = arguments.get(index);
                    let (digits, width) = text.strip_prefix(b"#").map_or((text, 1), |digits| (digits, 64));
                    super::decimal(digits).map_or(0, |number| number.clamp(0, i64::from(u32::MAX)) as usize * width)
                });
                bits.max().map(|bits| bits / 8 + 9)
            }
            Growth::Restored => {
                Some(if arguments.count() > 3 { payload::value_size(arguments.get(3)).max(24) } else { 0 })
            }
            Growth::Vector => Some(arguments.count() * size_of::<u64>()),
        }
    }
}

impl Walk {
    fn bound(self, arguments: Arguments<'_>, space: Space, extents: &Extents) -> Bound {
        let shards = if space.is_divided() { usize::from(extents.spaces.shard_count) } else { 1 };
        let extent = match space {
            Space::Hash => extents.hash,
            Space::Ordered => extents.ordered,
            Space::Cache => Extent::default(),
        };
        let Extent { pairs, slabs, key_bytes, index_bytes, expiring, value_size_max } = extent;
        let whole = index_bytes + slabs * PAIR_WORK + (key_bytes + 2 * pairs) * KEY_WORK + shards * STEP_WORK / 2;
        let keys_reply =
            |count: usize| (count * KEY_SIZE_MAX).min(key_bytes) + count.min(pairs) * ENCODING + 4 * ENCODING;
        match self {
            Walk::Keys => {
                let matching = match_work(arguments.get(1), key_bytes, pairs);
                Bound { work: whole + matching, reply: keys_reply(pairs).min(ISOLATED_REPLY_MAX + ENCODING) }
            }
            Walk::Scan => {
                let option = |word| (2..arguments.count() - 1).find(|index| arguments.is(*index, word));
                let count = option("COUNT").and_then(|index| arguments.integer(index + 1)).unwrap_or(10);
                let page = 2 * KEYSPACE_PAGE_SIZE;
                let keys = (count.clamp(1, page as i64) as usize).saturating_add(CHAIN_KEYS);
                let matching = option("MATCH").map_or(0, |index| match_work(arguments.get(index + 1), page, keys));
                let step = whole.min(shards * STEP_WORK) + KEY_WORK * page + matching;
                Bound { work: step, reply: keys_reply(keys) }
            }
            // The gap between two keys is a few times as long as it is on average. A user who may not read all keys looks at
            // more of them.
            Walk::Random => Bound {
                work: ((32 + RANDOM_KEYS_MAX) * (index_bytes / pairs.max(1))).min(2 * index_bytes)
                    + RANDOM_KEYS_MAX.min(pairs) * KEY_WORK
                    + (shards + 1) * STEP_WORK,
                reply: KEY_SIZE_MAX + ENCODING,
            },
            Walk::Count => {
                let times =
                    if expiring == 0 { 1 } else { COUNT_TIMES.min(1 + (pairs + index_bytes / 64) / (16 * 256)) };
                Bound { work: shards * times * STEP_WORK / 4 + expiring * PAIR_WORK, reply: SHORT_REPLY_SIZE }
            }
            Walk::Flush | Walk::FlushAll => {
                let is_ordered = matches!(self, Walk::FlushAll) || space == Space::Ordered;
                let ordered = if is_ordered { extents.ordered.pairs * 2 * PAIR_WORK } else { 0 };
                let all = usize::from(extents.spaces.shard_count);
                Bound { work: (2 * all + 1) * STEP_WORK + ordered, reply: SHORT_REPLY_SIZE }
            }
            Walk::Page | Walk::Pair => {
                let limit = (2..arguments.count().saturating_sub(1)).find(|index| arguments.is(*index, "LIMIT"));
                let limit = limit.and_then(|index| usize::try_from(arguments.integer(index + 1)?).ok());
                let limit = if matches!(self, Walk::Pair) { 1 } else { limit.unwrap_or(usize::MAX) };
                // A page ends with the pair with which it is long enough, or with the last one of the limit.
                let page = PAGE_SIZE_GOAL + value_size_max + 2 * KEY_SIZE_MAX;
                let page = page.min(limit.saturating_mul(KEY_SIZE_MAX + value_size_max).saturating_add(KEY_SIZE_MAX));
                let pairs = limit.min(pairs + 1).min(PAGE_SIZE_GOAL / 4);
                // Keys that have expired are passed over.
                let passed = pairs + expiring.min(PAGE_SKIPPED_MAX);
                Bound {
                    work: 2 * OPERATION_WORK + 2 * page + passed * PAIR_WORK,
                    reply: page + pairs * 2 * ENCODING + 8 * ENCODING,
                }
            }
            Walk::CountRange => Bound { work: pairs * COUNTED_PAIR_WORK + STEP_WORK, reply: SHORT_REPLY_SIZE },
        }
    }
}

/// Returns the work of matching keys with a pattern.
fn match_work(pattern: &[u8], key_bytes: usize, pairs: usize) -> usize {
    let of_pairs = pairs * (pattern.len() + 1);
    let repeated = if pattern.contains(&b'*') { key_bytes.saturating_mul(pattern.len()) } else { key_bytes };
    repeated.saturating_add(of_pairs).saturating_mul(MATCH_WORK)
}
