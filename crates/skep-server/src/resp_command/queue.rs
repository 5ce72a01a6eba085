//! The commands between `MULTI` and `EXEC`, and what may follow `MULTI`.
//!
//! ```text
//!   MULTI ─▶ commands: QUEUED ─┬─▶ EXEC ─▶ the transaction is run
//!                              ├─▶ DISCARD, RESET, the end of the connection: nothing is executed
//!              wrong command ──┴─▶ EXEC ─▶ EXECABORT: nothing is executed
//! ```
//!
//! A command is queued as it arrived, byte for byte. Only its name and the number of its arguments are checked, as in Redis.
//! It is decoded when the transaction is run: relative times begin then, and `SELECT` may have changed the space.

use skep_wire::partition::Partition;
use skep_wire::resp::Argument;

use super::table::CommandName;
use super::{Arguments, chosen_space};
use crate::limits::{ISOLATED_OPERATIONS_MAX, TRANSACTION_SIZE_MAX};
use crate::vocabulary::{ShardSet, Space, Spaces};

/// The transaction that a connection is about to queue, if it is.
#[derive(Debug, Default)]
pub(crate) struct Multi(Option<Box<Queue>>);

/// The commands of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    bytes: Vec<u8>,
    arguments: Vec<Argument>,
    commands: Vec<QueuedCommand>,
    /// About how many operations the commands have.
    operations: usize,
    /// A command was refused.
    is_aborted: bool,
    /// Memory was asked for, for the next command and for as much again as there is: less may have been granted.
    has_asked: bool,
}

#[derive(Clone, Copy, Debug)]
struct QueuedCommand {
    name: CommandName,
    start: u32,
    first_argument: u32,
    argument_count: u32,
}

/// The bytes of memory that a transaction takes in addition for another command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    /// For the command alone.
    pub(crate) least: usize,
    /// If each list doubles that has no room for it, so that its elements are seldom moved.
    pub(crate) most: usize,
}

/// The transaction would be too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Multi {
    /// Returns true between `MULTI` and the end of the transaction.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Begins a transaction.
    pub(crate) fn open(&mut self) {
        // Room for a few commands, because most transactions have no more.
        self.0 = Some(Box::new(Queue {
            bytes: Vec::with_capacity(512),
            arguments: Vec::with_capacity(16),
            commands: Vec::with_capacity(8),
            ..Queue::default()
        }));
    }

    /// Ends the transaction, and returns its commands.
    pub(crate) fn close(&mut self) -> Option<Box<Queue>> {
        self.0.take()
    }

    /// Lets `EXEC` refuse the transaction, because a command of it was refused.
    pub(crate) fn abort(&mut self) {
        if let Some(queue) = &mut self.0 {
            queue.is_aborted = true;
        }
    }

    /// Adds a command, whose request is `request`. Its lists double if they have no room for it and `room` bytes allow
    /// that, and grow less if not.
    pub(crate) fn push(
        &mut self,
        name: CommandName,
        request: &[u8],
        arguments: &[Argument],
        room: usize,
    ) -> Result<(), TooLong> {
        let queue = self.0.as_mut().expect("a transaction is open");
        // Every argument but the name may be a key.
        queue.operations += arguments.len().saturating_sub(1).max(1);
        if queue.operations > ISOLATED_OPERATIONS_MAX || queue.bytes.len() + request.len() > TRANSACTION_SIZE_MAX {
            queue.is_aborted = true;
            return Err(TooLong);
        }
        queue.reserve(request.len(), arguments.len(), room);
        queue.has_asked = false;
        queue.commands.push(QueuedCommand {
            name,
            start: queue.bytes.len() as u32,
            first_argument: queue.arguments.len() as u32,
            argument_count: arguments.len() as u32,
        });
        queue.bytes.extend_from_slice(request);
        queue.arguments.extend_from_slice(arguments);
        Ok(())
    }

    /// Returns the bytes of memory that a command of this size and number of arguments takes in addition.
    pub(crate) fn growth(&self, size: usize, arguments: usize) -> Growth {
        self.0.as_ref().map_or(Growth { least: 0, most: 0 }, |queue| queue.growth(size, arguments))
    }

    /// Returns true if a command with this growth may be added when there are `room` bytes. Fewer than the most are enough
    /// only after [`Multi::note_asked`].
    pub(crate) fn has_room(&self, growth: Growth, room: usize) -> bool {
        let has_asked = self.0.as_ref().is_some_and(|queue| queue.has_asked);
        room >= if has_asked { growth.least } else { growth.most }
    }

    /// Notes that memory is asked for, for the most that the next command may take.
    pub(crate) fn note_asked(&mut self) {
        if let Some(queue) = &mut self.0 {
            queue.has_asked = true;
        }
    }

    /// Returns the bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| queue.capacity())
    }
}

impl Queue {
    fn growth(&self, size: usize, arguments: usize) -> Growth {
        let lists = [growth_of(&self.bytes, size), growth_of(&self.arguments, arguments), growth_of(&self.commands, 1)];
        let sum = |part: fn(&Growth) -> usize| lists.iter().map(part).sum();
        Growth { least: sum(|growth| growth.least), most: sum(|growth| growth.most) }
    }

    /// Makes room for a command. Lists without room for it double if `room` bytes allow that. If not, half of the bytes
    /// beside the command are left for the next requests in the input.
    fn reserve(&mut self, size: usize, arguments: usize, room: usize) {
        let Growth { least, most } = self.growth(size, arguments);
        let mut spare = room.saturating_sub(least) / if room < most { 2 } else { 1 };
        reserve(&mut self.bytes, size, &mut spare);
        reserve(&mut self.arguments, arguments, &mut spare);
        reserve(&mut self.commands, 1, &mut spare);
    }

    /// Returns true if a command was refused.
    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted
    }

    /// Returns the number of commands.
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Returns the number of arguments of all commands.
    pub(crate) fn argument_count(&self) -> usize {
        self.arguments.len()
    }

    /// Returns the name of a command.
    pub(crate) fn name(&self, index: usize) -> CommandName {
        self.commands[index].name
    }

    /// Returns the arguments of a command.
    pub(crate) fn arguments(&self, index: usize) -> Arguments<'_> {
        let command = self.commands[index];
        let first = command.first_argument as usize;
        let ranges = &self.arguments[first..first + command.argument_count as usize];
        Arguments::new(&self.bytes[command.start as usize..], ranges)
    }

    /// Returns true if a command may change the space of the connection.
    pub(crate) fn selects(&self) -> bool {
        self.commands.iter().any(|command| command.name == CommandName::Select)
    }

    /// Returns true if the commands after the transaction belong to the next parsed batch: a command may change how they
    /// are decoded, or if they must wait.
    pub(crate) fn ends_batch(&self) -> bool {
        use CommandName::{Auth, Client, Hello};
        self.selects() || self.commands.iter().any(|command| matches!(command.name, Auth | Client | Hello))
    }

    /// Returns true if a command may change keys.
    pub(crate) fn writes(&self) -> bool {
        self.commands.iter().any(|command| command.name.writes())
    }

    /// Returns the shards that the commands involve, if the first one is about this space.
    pub(crate) fn shards(&self, mut space: Space, spaces: Spaces, partition: &Partition) -> ShardSet {
        let mut shards = ShardSet::default();
        for (index, command) in self.commands.iter().enumerate() {
            let arguments = self.arguments(index);
            if command.name == CommandName::Select {
                space = chosen_space(arguments, spaces).unwrap_or(space);
            }
            shards.extend(command.name.shards(arguments, space, partition));
        }
        shards
    }

    /// Returns the bytes of memory that have no commands.
    pub(crate) fn spare(&self) -> usize {
        let in_use = self.bytes.len() + size_of_val(&self.arguments[..]) + size_of_val(&self.commands[..]);
        self.capacity() - in_use
    }

    /// Returns them to the allocator: no command follows.
    pub(crate) fn fit(&mut self) {
        self.bytes.shrink_to_fit();
        self.arguments.shrink_to_fit();
        self.commands.shrink_to_fit();
    }

    /// Returns the bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
            + self.arguments.capacity() * size_of::<Argument>()
            + self.commands.capacity() * size_of::<QueuedCommand>()
    }
}

/// Returns the bytes that a list takes in addition for `count` more elements.
fn growth_of<T>(list: &Vec<T>, count: usize) -> Growth {
    let missing = (list.len() + count).saturating_sub(list.capacity());
    let most = if missing > 0 { missing.max(list.capacity()) } else { 0 };
    Growth { least: missing * size_of::<T>(), most: most * size_of::<T>() }
}

/// Makes room for `count` more elements. A list without room for them doubles, as far as `spare` bytes beside these allow,
/// which it reduces.
fn reserve<T>(list: &mut Vec<T>, count: usize, spare: &mut usize) {
    let Growth { least, most } = growth_of(list, count);
    if least > 0 {
        let besides = (most - least).min(*spare);
        *spare -= besides;
        let free = list.capacity() - list.len();
        list.reserve_exact(free + (least + besides) / size_of::<T>());
    }
}

#[cfg(test)]
mod tests {
    use skep_wire::resp::RequestParser;

    use super::{CommandName, Multi, Partition, TooLong};
    use crate::limits::{ISOLATED_OPERATIONS_MAX, TRANSACTION_SIZE_MAX};
    use crate::vocabulary::{Functions, ShardSet, Space, Spaces};

    fn push(multi: &mut Multi, line: &str) -> Result<(), TooLong> {
        let words: Vec<&str> = line.split(' ').collect();
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
        }
        let mut arguments = Vec::with_capacity(16);
        RequestParser::default().parse(&mut request, &mut arguments).unwrap();
        let name = CommandName::find(&request[arguments[0].range()]).unwrap();
        multi.push(name, &request, &arguments, usize::MAX)
    }

    #[test]
    fn commands_are_kept_as_they_arrived() {
        let mut multi = Multi::default();
        assert!(!multi.is_open() && multi.capacity() == 0);
        multi.open();
        for line in ["SET a value", "GET a", "DEL a b c"] {
            push(&mut multi, line).unwrap();
        }
        assert!(multi.capacity() > 0);
        let queue = multi.close().unwrap();
        assert!(!multi.is_open() && !queue.is_aborted() && !queue.selects());
        assert_eq!(queue.len(), 3);
        assert_eq!(queue.arguments(0).get(2), b"value");
        assert_eq!(queue.arguments(2).from(1).collect::<Vec<_>>(), [b"a", b"b", b"c"]);
    }

    #[test]
    fn a_queue_doubles_as_far_as_there_is_room() {
        const SIZE: usize = 10_000;
        let request = [b'v'; SIZE];
        let mut arguments = Vec::with_capacity(16);
        RequestParser::default()
            .parse(&mut b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n".to_vec(), &mut arguments)
            .unwrap();
        for (room_beside, doublings_min, doublings_max) in [(usize::MAX, 5, 8), (0, 90, 100), (2 * SIZE, 45, 60)] {
            let mut multi = Multi::default();
            multi.open();
            let mut grown = 0;
            for _ in 0..100 {
                let (before, growth) = (multi.capacity(), multi.growth(SIZE, 3));
                assert!(growth.least <= growth.most && growth.most <= before + SIZE + 1000);
                let room = growth.least.saturating_add(room_beside);
                assert_eq!(multi.has_room(growth, growth.least), growth.least == growth.most);
                multi.note_asked();
                assert!(multi.has_room(growth, growth.least));
                multi.push(CommandName::Set, &request, &arguments, room).unwrap();
                let growth_now = multi.capacity() - before;
                assert!(growth_now >= growth.least && growth_now <= growth.most.min(room));
                grown += usize::from(growth_now >= SIZE);
            }
            assert!((doublings_min..=doublings_max).contains(&grown), "{grown} times beside {room_beside} bytes");
        }
    }

    #[test]
    fn the_shards_are_those_of_all_keys() {
        let partition = Partition::new(1, 4);
        let spaces = Spaces { has_ordered: true, has_cache: true, shard_count: 4, functions: Functions::leaked() };
        let shards = |lines: &[&str]| {
            let mut multi = Multi::default();
            multi.open();
            lines.iter().for_each(|line| push(&mut multi, line).unwrap());
            multi.close().unwrap().shards(Space::Hash, spaces, &partition)
        };
        let of = |keys: &[&str]| {
            let mut set = ShardSet::default();
            keys.iter().for_each(|key| set.insert(partition.shard_of(key.as_bytes())));
            set
        };
        assert_eq!(shards(&["PING", "INFO"]), ShardSet::default());
        assert_eq!(shards(&["SET a b", "MGET c d"]), of(&["a", "c", "d"]));
        assert_eq!(shards(&["MSET a b c d", "BITOP AND e f g"]), of(&["a", "c", "e", "f", "g"]));
        assert_eq!(shards(&["MSETEX 2 a b c d EX 10"]), of(&["a", "c"]));
        assert_eq!(shards(&["OBJECT ENCODING a"]), of(&["a"]));
        // The ordered space belongs to all shards.
        assert_eq!(shards(&["SELECT 1", "PING", "SELECT 0", "GET a"]), of(&["a"]));
        assert_eq!(shards(&["SELECT 1", "GET a"]), ShardSet::first(4));
        assert_eq!(shards(&["SELECT 1", "SKEP.COUNT - +"]), ShardSet::first(4));
        assert_eq!(shards(&["COPY a b DB 1"]), ShardSet::first(4));
        assert_eq!(shards(&["DBSIZE"]), ShardSet::first(4));
        assert_eq!(shards(&["SELECT 9", "GET a"]), of(&["a"]));
    }

    #[test]
    fn a_transaction_that_is_too_long_is_refused() {
        let mut multi = Multi::default();
        multi.open();
        for _ in 0..ISOLATED_OPERATIONS_MAX {
            push(&mut multi, "GET a").unwrap();
        }
        assert_eq!(push(&mut multi, "GET a"), Err(TooLong));
        assert!(multi.close().unwrap().is_aborted());
        multi.open();
        let set = format!("SET a {}", "v".repeat(50_000));
        assert!((0..=TRANSACTION_SIZE_MAX / 50_000).any(|_| push(&mut multi, &set) == Err(TooLong)));
        assert!(multi.close().unwrap().is_aborted());
    }
}
