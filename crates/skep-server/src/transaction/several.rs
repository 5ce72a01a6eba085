//! Isolated commands whose later operations depend on the replies to earlier ones.
//!
//! ```text
//!   command           first window                    later windows
//!   MSET, MSETNX, …   does each key exist?            room for all is reserved; put each
//!   RENAME, COPY      value, expiry; does the new     set the new key; delete the old one
//!                     key exist?
//!   BITOP             each key, folded into one value put, or delete
//! ```
//!
//! All or nothing: `RENAME`, `COPY` and `BITOP` have one write that may fail, and it is the first one. A command that sets many
//! keys reserves room for all of them before the first write.

use skep_core::operation::{
    Condition, ConditionKind, Expiry, ExpiryChange, Operation, OperationError, PutCondition, Reply, Request,
    StringRead, StringWrite,
};
use skep_store::hash::Room;
use skep_wire::resp::ReplyWriter;

use super::run::{Course, Environment, Step};
use super::{BitFunction, SetMany};
use crate::limits::ISOLATED_PART_MAX;
use crate::resp_command::{Arguments, store_error};
use crate::spaces::Space;

impl SetMany {
    /// Continues the command.
    pub(super) fn step(
        &self,
        course: &mut Course,
        arguments: Arguments<'_>,
        space: Space,
        environment: &mut Environment<'_, '_, '_>,
        writer: &mut ReplyWriter<'_>,
    ) -> Result<(), Step> {
        let key = |index: usize| arguments.get(self.first + 2 * index);
        if course.phase == 0 {
            while self.condition != ConditionKind::Always && course.next < self.count {
                let next = course.begin_part(self.count);
                environment.complete(&mut course.window, |index| {
                    (space, Request { key: key(next + index), operation: Operation::Contains })
                })?;
                let window = &course.window;
                let exists = |index: usize| window.response(index) == Ok(Reply::Done);
                if (0..window.len()).any(|index| exists(index) == (self.condition == ConditionKind::IfAbsent)) {
                    writer.integer(0);
                    return Ok(());
                }
                course.end_part();
            }
            (course.phase, course.next) = (1, 0);
        }
        let put = |index: usize| {
            let value = arguments.get(self.first + 2 * index + 1);
            let operation = match self.expiry {
                ExpiryChange::CLEAR => Operation::Put { value, condition: PutCondition::Always },
                expiry => Operation::StringWrite(StringWrite::Set {
                    value,
                    condition: Condition::ALWAYS,
                    expiry,
                    return_old: false,
                }),
            };
            (space, Request { key: key(index), operation })
        };
        if course.phase < 3 {
            let reserved = match space {
                Space::Hash => self.reserve(course, put, environment)?,
                Space::Ordered => self.check_ordered(course, put, environment)?,
                // A cache refuses no pair.
                Space::Cache => Ok(()),
            };
            if let Err(error) = reserved {
                writer.error(&store_error(error));
                return Ok(());
            }
            (course.phase, course.next) = (3, 0);
            course.window.end();
        }
        while course.next < self.count {
            let next = course.begin_part(self.count);
            environment.complete(&mut course.window, |index| put(next + index))?;
            if let Some(error) = (0..course.window.len()).find_map(|index| failure(course, index)) {
                end_reservations(&course.rooms, environment);
                writer.error(&store_error(error));
                return Ok(());
            }
            course.end_part();
        }
        end_reservations(&course.rooms, environment);
        if self.has_flag {
            writer.integer(1);
        } else {
            writer.simple("OK");
        }
        Ok(())
    }
}

impl SetMany {
    /// Reserves room for all puts in the parts of the hash space. Returns the error if there is not enough.
    fn reserve<'a>(
        &self,
        course: &mut Course,
        put: impl Fn(usize) -> (Space, Request<'a>),
        environment: &mut Environment<'_, '_, '_>,
    ) -> Result<Result<(), OperationError>, Step> {
        // A single put is done or not.
        let mut count = if self.count > 1 { self.count } else { 0 };
        if course.phase == 1 && course.next == 0 && count > 0 {
            let slab_count = (0..count).map(|index| Room::slab_count_max(put(index).1.size())).sum();
            count = if environment.stores.have_plenty(slab_count) { 0 } else { count };
        }
        while course.phase == 1 && course.next < count {
            let part = course.next..count.min(course.next + ISOLATED_PART_MAX);
            environment.work(part.len())?;
            for index in part.clone() {
                let request = put(index).1;
                let shard = environment.partition.shard_of(request.key);
                let room = match course.rooms.iter_mut().position(|(of, _)| *of == shard) {
                    Some(place) => &mut course.rooms[place].1,
                    None => {
                        course.rooms.push((shard, Room::default()));
                        &mut course.rooms.last_mut().expect("one was pushed").1
                    }
                };
                environment.stores.part(shard).processor.count_room(&[request], room);
            }
            course.next = part.end;
        }
        if course.phase == 1 {
            (course.phase, course.next) = (2, 0);
        }
        while let Some((shard, room)) = course.rooms.get(course.next) {
            match environment.stores.part(*shard).processor.reserve(room, put(0).1.key) {
                Ok(true) => course.next += 1,
                Ok(false) => return Err(Step::Wait),
                Err(error) => {
                    end_reservations(&course.rooms[..course.next], environment);
                    return Ok(Err(error));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Checks that the ordered space has room for all puts: as much as they need at most, or all of them replace values of
    /// their size, which never fails. Returns the error otherwise.
    fn check_ordered<'a>(
        &self,
        course: &mut Course,
        put: impl Fn(usize) -> (Space, Request<'a>),
        environment: &mut Environment<'_, '_, '_>,
    ) -> Result<Result<(), OperationError>, Step> {
        let value_size = |index: usize| put(index).1.size() - put(index).1.key.len();
        let sizes = |index: usize| (put(index).1.key.len(), value_size(index));
        if course.phase == 1 {
            if self.count == 1 || environment.stores.has_ordered_room((0..self.count).map(sizes)) {
                return Ok(Ok(()));
            }
            course.phase = 2;
        }
        while course.next < self.count {
            let next = course.begin_part(self.count);
            environment.complete(&mut course.window, |index| {
                let (space, request) = put(next + index);
                (space, Request { operation: Operation::StringRead(StringRead::Size), ..request })
            })?;
            let has_size = |index: usize| {
                let size = value_size(next + index) as i64;
                course.window.response(index) == Ok(Reply::Value(&size.to_le_bytes()))
            };
            if !(0..course.window.len()).all(has_size) {
                return Ok(Err(OperationError::NodesFull));
            }
            course.end_part();
        }
        Ok(Ok(()))
    }
}

fn end_reservations(rooms: &[(u16, Room)], environment: &mut Environment<'_, '_, '_>) {
    for (shard, _) in rooms {
        environment.stores.part(*shard).processor.end_reservation();
    }
}

/// Continues `RENAME` or `RENAMENX`.
pub(super) fn rename(
    if_absent: bool,
    course: &mut Course,
    arguments: Arguments<'_>,
    space: Space,
    environment: &mut Environment<'_, '_, '_>,
    writer: &mut ReplyWriter<'_>,
) -> Result<(), Step> {
    let (old, new) = (arguments.get(1), arguments.get(2));
    if course.phase == 0 {
        read_pair(course, (space, old), (space, new), environment)?;
        if course.window.response(0) == Ok(Reply::NotFound) {
            writer.error("ERR no such key");
            return Ok(());
        }
        if let Some(error) = (0..3).find_map(|index| failure(course, index)) {
            writer.error(&store_error(error));
            return Ok(());
        }
        let new_exists = course.window.response(2) == Ok(Reply::Done);
        if if_absent && new_exists {
            writer.integer(0);
            return Ok(());
        }
        if old == new {
            writer.simple("OK");
            return Ok(());
        }
        course.phase = 1;
    }
    if course.phase == 1 {
        if let Err(error) = write_pair(course, space, new, environment)? {
            writer.error(&store_error(error));
            return Ok(());
        }
        course.phase = 2;
        course.writes.end();
    }
    if !course.writes.is_open() {
        course.writes.begin(1);
    }
    environment.complete(&mut course.writes, |_| (space, Request { key: old, operation: Operation::Delete }))?;
    if if_absent {
        writer.integer(1);
    } else {
        writer.simple("OK");
    }
    Ok(())
}

/// Continues `COPY`.
pub(super) fn copy(
    (to, replace): (Space, bool),
    course: &mut Course,
    arguments: Arguments<'_>,
    space: Space,
    environment: &mut Environment<'_, '_, '_>,
    writer: &mut ReplyWriter<'_>,
) -> Result<(), Step> {
    let (old, new) = (arguments.get(1), arguments.get(2));
    if course.phase == 0 {
        read_pair(course, (space, old), (to, new), environment)?;
        if let Some(error) = (0..3).find_map(|index| failure(course, index)) {
            writer.error(&store_error(error));
            return Ok(());
        }
        let new_exists = course.window.response(2) == Ok(Reply::Done);
        if course.window.response(0) == Ok(Reply::NotFound) || new_exists && !replace {
            writer.integer(0);
            return Ok(());
        }
        course.phase = 1;
    }
    match write_pair(course, to, new, environment)? {
        Ok(()) => writer.integer(1),
        Err(error) => writer.error(&store_error(error)),
    }
    Ok(())
}

/// Reads the value and the expiry of a key, and whether another key exists.
fn read_pair(
    course: &mut Course,
    (space, key): (Space, &[u8]),
    (to, other): (Space, &[u8]),
    environment: &mut Environment<'_, '_, '_>,
) -> Result<(), Step> {
    if !course.window.is_open() {
        course.window.begin(3);
    }
    environment.complete(&mut course.window, |index| match index {
        0 => (space, Request { key, operation: Operation::Get }),
        1 => (space, Request { key, operation: Operation::StringRead(StringRead::Expiry) }),
        _ => (to, Request { key: other, operation: Operation::Contains }),
    })
}

/// Writes the value and the expiry that [`read_pair`] has read.
fn write_pair(
    course: &mut Course,
    space: Space,
    key: &[u8],
    environment: &mut Environment<'_, '_, '_>,
) -> Result<Result<(), OperationError>, Step> {
    let Course { window, writes, .. } = course;
    let Ok(Reply::Value(value)) = window.response(0) else { unreachable!("the key exists") };
    let expiry = match window.response(1) {
        Ok(Reply::Value(bytes)) => {
            let milliseconds = i64::from_le_bytes(bytes.try_into().expect("a number has eight bytes"));
            ExpiryChange::set(Expiry::at(milliseconds).expect("a key had this expiry"))
        }
        _ => ExpiryChange::CLEAR,
    };
    let set = StringWrite::Set { value, condition: Condition::ALWAYS, expiry, return_old: false };
    if !writes.is_open() {
        writes.begin(1);
    }
    environment.complete(writes, |_| (space, Request { key, operation: Operation::StringWrite(set) }))?;
    Ok(match writes.response(0) {
        Ok(Reply::Failed(error)) => Err(error),
        _ => Ok(()),
    })
}

impl BitFunction {
    /// Continues `BITOP`.
    pub(super) fn step(
        self,
        course: &mut Course,
        arguments: Arguments<'_>,
        space: Space,
        environment: &mut Environment<'_, '_, '_>,
        writer: &mut ReplyWriter<'_>,
    ) -> Result<(), Step> {
        let count = arguments.count() - 3;
        while course.next < count {
            if !course.window.is_open() {
                course.window.begin(1);
            }
            let key = arguments.get(3 + course.next);
            environment.complete(&mut course.window, |_| (space, Request { key, operation: Operation::Get }))?;
            let value = match course.window.response(0) {
                Ok(Reply::Value(value)) => value,
                Ok(Reply::Failed(error)) => {
                    writer.error(&store_error(error));
                    return Ok(());
                }
                _ => &[],
            };
            if course.next == 0 {
                course.kept.extend_from_slice(value);
            } else {
                self.fold(&mut course.kept, value);
            }
            course.end_part();
        }
        if course.phase == 0 {
            if self == BitFunction::Not {
                course.kept.iter_mut().for_each(|byte| *byte = !*byte);
            }
            course.phase = 1;
            course.writes.begin(1);
        }
        let key = arguments.get(2);
        let operation = match &course.kept[..] {
            [] => Operation::Delete,
            value => Operation::Put { value, condition: PutCondition::Always },
        };
        environment.complete(&mut course.writes, |_| (space, Request { key, operation }))?;
        match course.writes.response(0) {
            Ok(Reply::Failed(error)) => writer.error(&store_error(error)),
            _ => writer.integer(course.kept.len() as i64),
        }
        Ok(())
    }

    /// Combines a value with another one. The shorter one is followed by zeros.
    fn fold(self, kept: &mut Vec<u8>, value: &[u8]) {
        kept.resize(kept.len().max(value.len()), 0);
        let (common, rest) = kept.split_at_mut(value.len());
        for (kept, byte) in common.iter_mut().zip(value) {
            match self {
                BitFunction::And => *kept &= byte,
                BitFunction::Or => *kept |= byte,
                BitFunction::Xor | BitFunction::Not => *kept ^= byte,
            }
        }
        if self == BitFunction::And {
            rest.fill(0);
        }
    }
}

/// Returns the error of an operation of the window, if it failed.
pub(super) fn failure(course: &Course, index: usize) -> Option<OperationError> {
    match course.window.response(index) {
        Ok(Reply::Failed(error)) => Some(error),
        _ => None,
    }
}

impl Course {
    /// Begins a window for the next part of `count` operations, unless it has begun. Returns the index of its first
    /// operation.
    fn begin_part(&mut self, count: usize) -> usize {
        if !self.window.is_open() {
            self.window.begin((count - self.next).min(ISOLATED_PART_MAX));
        }
        self.next
    }

    /// Ends the window of a part.
    fn end_part(&mut self) {
        self.next += self.window.len();
        self.window.end();
    }
}

#[cfg(test)]
mod tests {
    use super::BitFunction;

    #[test]
    fn a_shorter_value_is_followed_by_zeros() {
        for (function, one, other, expected) in [
            (BitFunction::And, &[0xff, 0x0f, 1][..], &[0x3c][..], &[0x3c, 0, 0][..]),
            (BitFunction::And, &[0xff], &[1, 2], &[1, 0]),
            (BitFunction::Or, &[1, 2], &[4], &[5, 2]),
            (BitFunction::Xor, &[1], &[3, 4], &[2, 4]),
            (BitFunction::Or, &[], &[], &[]),
        ] {
            let mut kept = one.to_vec();
            function.fold(&mut kept, other);
            assert_eq!(kept, expected, "{function:?} {one:?} {other:?}");
        }
    }
}
