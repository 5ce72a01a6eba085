//! Isolated commands whose later operations depend on the replies to earlier ones.
//!
//! ```text
//!   command           first window                    later windows
//!   MSET, MSETNX, …   does each key exist?            room for all is reserved; put each
//!   RENAME, COPY      expiry; does the new key        set the new key; delete the old one
//!                     exist? then the value
//! ```
//!
//! All or nothing: `RENAME` and `COPY` have one write that may fail, and it is the first one, as `BITOP` does
//! (`combine.rs`). A command that sets many keys reserves room for all of them before the first write.

use skep_core::operation::{
    Condition, ConditionKind, Expiry, ExpiryChange, Operation, OperationError, Reply, Request, StringRead, StringWrite,
};
use skep_store::hash::Room;
use skep_wire::resp::ReplyWriter;

use super::course::{Course, Halt, Phase};
use super::environment::{Environment, SpaceKey};
use crate::limits::ISOLATED_PART_MAX;
use crate::resp_command::{Invocation, SetMany};
use crate::vocabulary::{Space, Step};

impl SetMany {
    /// Continues the command.
    pub(super) fn step(
        &self,
        course: &mut Course,
        invocation: Invocation<'_>,
        environment: &mut Environment<'_, '_, '_>,
        writer: &mut ReplyWriter<'_>,
    ) -> Result<(), Halt> {
        let Invocation { arguments, space, .. } = invocation;
        let key = |index: usize| arguments.get(self.first + 2 * index);
        if course.phase == Phase::Read {
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
            (course.phase, course.next) = (Phase::Count, 0);
        }
        let put = |index: usize| {
            let value = arguments.get(self.first + 2 * index + 1);
            (space, Request { key: key(index), operation: Operation::put(value, self.expiry) })
        };
        if course.phase < Phase::Write {
            match space {
                Space::Hash => self.reserve(course, put, environment)?,
                Space::Ordered => self.check_ordered(course, put, environment)?,
                // A cache refuses no pair.
                Space::Cache => {}
            }
            (course.phase, course.next) = (Phase::Write, 0);
            course.window.end();
        }
        while course.next < self.count {
            let next = course.begin_part(self.count);
            environment.complete(&mut course.window, |index| put(next + index))?;
            if let Err(error) = course.check(course.window.len()) {
                end_reservations(&course.rooms, environment);
                return Err(error.into());
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
    ) -> Result<(), Halt> {
        // A single put is done or not.
        let mut count = if self.count > 1 { self.count } else { 0 };
        if course.phase == Phase::Count && course.next == 0 && count > 0 {
            let slab_count = (0..count).map(|index| Room::slab_count_max(put(index).1.size())).sum();
            count = if environment.stores.have_plenty(slab_count) { 0 } else { count };
        }
        while course.phase == Phase::Count && course.next < count {
            let part = course.next..count.min(course.next + ISOLATED_PART_MAX);
            environment.work(part.len())?;
            for index in part.clone() {
                let request = put(index).1;
                let shard = environment.context.partition.shard_of(request.key);
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
        if course.phase == Phase::Count {
            (course.phase, course.next) = (Phase::Reserve, 0);
        }
        while let Some((shard, room)) = course.rooms.get(course.next) {
            let processor = &mut environment.stores.part(*shard).processor;
            let reserved = processor.reserve(room, put(0).1.key);
            let merged = processor.bytes_merged();
            environment.spend(0, merged);
            match reserved {
                Ok(true) => course.next += 1,
                Ok(false) => return Err(Step::Wait.into()),
                Err(error) => {
                    end_reservations(&course.rooms[..course.next], environment);
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// Checks that the ordered space has room for all puts: as much as they need at most, or all of them replace values of
    /// their size, which never fails. Returns the error otherwise.
    fn check_ordered<'a>(
        &self,
        course: &mut Course,
        put: impl Fn(usize) -> (Space, Request<'a>),
        environment: &mut Environment<'_, '_, '_>,
    ) -> Result<(), Halt> {
        let value_size = |index: usize| put(index).1.size() - put(index).1.key.len();
        let sizes = |index: usize| (put(index).1.key.len(), value_size(index));
        if course.phase == Phase::Count {
            if self.count == 1 || environment.stores.has_ordered_room((0..self.count).map(sizes)) {
                return Ok(());
            }
            course.phase = Phase::Reserve;
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
                return Err(OperationError::NodesFull.into());
            }
            course.end_part();
        }
        Ok(())
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
    invocation: Invocation<'_>,
    environment: &mut Environment<'_, '_, '_>,
    writer: &mut ReplyWriter<'_>,
) -> Result<(), Halt> {
    let Invocation { arguments, space, .. } = invocation;
    let (old, new) = (arguments.get(1), arguments.get(2));
    if course.phase == Phase::Read {
        read_state(course, SpaceKey { space, key: old }, SpaceKey { space, key: new }, environment)?;
        if course.window.response(0) == Ok(Reply::NotFound) {
            writer.error("ERR no such key");
            return Ok(());
        }
        course.check(2)?;
        let new_exists = course.window.response(1) == Ok(Reply::Done);
        if if_absent && new_exists {
            writer.integer(0);
            return Ok(());
        }
        if old == new {
            writer.simple("OK");
            return Ok(());
        }
        if !read_value(course, SpaceKey { space, key: old }, environment)? {
            writer.error("ERR no such key");
            return Ok(());
        }
        course.phase = Phase::Write;
    }
    if course.phase == Phase::Write {
        write_pair(course, space, new, environment)?;
        course.phase = Phase::Remove;
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
    to: Space,
    replace: bool,
    course: &mut Course,
    invocation: Invocation<'_>,
    environment: &mut Environment<'_, '_, '_>,
    writer: &mut ReplyWriter<'_>,
) -> Result<(), Halt> {
    let Invocation { arguments, space, .. } = invocation;
    let (old, new) = (arguments.get(1), arguments.get(2));
    if course.phase == Phase::Read {
        read_state(course, SpaceKey { space, key: old }, SpaceKey { space: to, key: new }, environment)?;
        course.check(2)?;
        let new_exists = course.window.response(1) == Ok(Reply::Done);
        let is_done = course.window.response(0) == Ok(Reply::NotFound) || new_exists && !replace;
        if is_done || !read_value(course, SpaceKey { space, key: old }, environment)? {
            writer.integer(0);
            return Ok(());
        }
        course.phase = Phase::Write;
    }
    write_pair(course, to, new, environment)?;
    writer.integer(1);
    Ok(())
}

/// Reads the expiry of a key, and whether another key exists.
fn read_state(
    course: &mut Course,
    of: SpaceKey<'_>,
    other: SpaceKey<'_>,
    environment: &mut Environment<'_, '_, '_>,
) -> Result<(), Step> {
    if !course.window.is_open() {
        course.window.begin(2);
    }
    environment.complete(&mut course.window, |index| match index {
        0 => (of.space, Request { key: of.key, operation: Operation::StringRead(StringRead::Expiry) }),
        _ => (other.space, Request { key: other.key, operation: Operation::Contains }),
    })
}

/// Reads a value. Returns false if the key does not exist.
fn read_value(
    course: &mut Course,
    from: SpaceKey<'_>,
    environment: &mut Environment<'_, '_, '_>,
) -> Result<bool, Halt> {
    let kept = environment.buffer(&mut course.kept);
    kept.clear();
    environment.read_value(from, |part| kept.extend_from_slice(part))
}

/// Writes the value and the expiry that [`read_value`] and [`read_state`] have read.
fn write_pair(
    course: &mut Course,
    space: Space,
    key: &[u8],
    environment: &mut Environment<'_, '_, '_>,
) -> Result<(), Halt> {
    let Course { window, writes, kept, .. } = course;
    let expiry = match window.response(0) {
        Ok(Reply::Value(bytes)) => {
            let milliseconds = i64::from_le_bytes(bytes.try_into().expect("a number has eight bytes"));
            ExpiryChange::set(Expiry::at(milliseconds).expect("a key had this expiry"))
        }
        _ => ExpiryChange::CLEAR,
    };
    let set = StringWrite::Set { value: kept, condition: Condition::ALWAYS, expiry, return_old: false };
    if !writes.is_open() {
        writes.begin(1);
    }
    environment.complete(writes, |_| (space, Request { key, operation: Operation::StringWrite(set) }))?;
    match writes.response(0) {
        Ok(Reply::Failed(error)) => Err(error.into()),
        _ => Ok(()),
    }
}
