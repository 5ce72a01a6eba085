//! All limits of the server: bytes, counts and times, each with its unit and the reason for its value.
//!
//! Limits that depend on each other are compared at the end of the file, when the crate is compiled. What the user
//! chooses is in [`crate::ServerSettings`]; the limits of keys, values and frames belong to `skep-core` and
//! `skep-wire`.

use std::time::Duration;

use skep_core::operation::{KEY_SIZE_MAX, PAGE_SIZE_GOAL, VALUE_SIZE_MAX};
use skep_store::ordered::SESSION_COUNT_MAX;
use skep_wire::native::REQUEST_FRAME_SIZE_MAX;

// Settings.

/// Shards: each pair of them has rings, so that their memory grows with the square of this number.
pub(crate) const SHARDS_MAX: u16 = 256;
/// Shards beside an ordered space: each has a session of the store, and `INFO` has one.
pub(crate) const ORDERED_SHARDS_MAX: u16 = SESSION_COUNT_MAX as u16 - 1;
/// The shortest bound of the delay. A batch of the smallest window takes a part of a millisecond.
pub(crate) const DELAY_BOUND_MIN: Duration = Duration::from_millis(1);
/// The longest bound of the delay: clients give up before.
pub(crate) const DELAY_BOUND_MAX: Duration = Duration::from_secs(60);
/// The shortest time of a lease: a client needs some of it to ask for the next page.
pub(crate) const LEASE_TIME_MIN: Duration = Duration::from_millis(1);
/// The longest time of a lease: it pins all that was replaced since.
pub(crate) const LEASE_TIME_MAX: Duration = Duration::from_secs(3600);
/// File descriptors that are no connections: listeners, events and wakers of shards, files of the process.
pub(crate) const OTHER_DESCRIPTORS: usize = 100;

// The start from a data directory.

/// Effects of the ordered space that recovery keeps until they are merged with the snapshot: one in this many bytes of the
/// memory of that space, and at least this many, so that the log of a small one is read once.
pub(crate) const EFFECTS_PART: u64 = 4;
pub(crate) const EFFECTS_SIZE_MIN: u64 = 16 << 20;

// Accepting connections, and their end.

/// Connections that the kernel completes before the server accepts them.
pub(crate) const BACKLOG: i32 = 1024;
/// Connections that are accepted in a turn: more would keep the connections of the shard waiting.
pub(crate) const ACCEPTED_IN_TURN_MAX: usize = 64;
/// The time between two passes that look for idle connections.
pub(crate) const IDLE_PASS_TIME: Duration = Duration::from_secs(1);
/// Connections that a pass looks at in a tick.
pub(crate) const IDLE_LOOKS_MAX: usize = 1024;
/// The kernel asks for a silent peer, whose machine may be off, after `tcp-keepalive` seconds, and again after this part.
pub(crate) const KEEPALIVE_INTERVAL_PART: u64 = 3;
/// The most seconds of silence that Linux takes. A longer `tcp-keepalive` counts as this.
pub(crate) const KEEPALIVE_MAX: u64 = 32_767;
/// Questions without a reply after which the connection is closed.
pub(crate) const KEEPALIVE_RETRIES: u32 = 3;
/// The time for which nothing is accepted after the system refused, usually for lack of file descriptors.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The time for which a connection that has sent everything still reads: a reset would destroy the last replies.
pub(crate) const DRAIN_TIME: Duration = Duration::from_millis(500);
/// The bytes that it reads in that time.
pub(crate) const DRAIN_SIZE_MAX: usize = 4 << 20;
/// The time that a stopping server waits for peers to take their last replies.
pub(crate) const FLUSH_TIME: Duration = Duration::from_secs(2);

/// The time in which a client over UDP or RDMA sends its hello. A session costs its client nothing, and takes a
/// connection.
pub(crate) const SESSION_HELLO_TIME: Duration = Duration::from_secs(5);

// Shared memory.

/// Connections over shared memory, at most. Their rings are memory beside that for connections, which the start counts.
pub(crate) const SHARED_MEMORY_CONNECTIONS_MAX: usize = 1024;
/// Turns in which a connection over shared memory does not change, until its shard waits for a doorbell instead of polling
/// its words. That is about a millisecond of a shard that serves others.
pub(crate) const EMPTY_POLLS_MAX: u32 = 1024;
/// Polls of the words of all connections over shared memory, before a shard without work gives its core to others.
pub(crate) const POLLS_BEFORE_YIELD: usize = 64;
/// The time between two polls of epoll while the shard polls words: other transports wait for as long.
pub(crate) const KERNEL_POLL_TIME: Duration = Duration::from_micros(20);

// A turn of a shard.

/// Work of a turn, in bytes touched: see [`crate::account`]. It takes a millisecond or two.
pub(crate) const TURN_WORK: usize = 4 << 20;
/// Work of an operation beside the bytes that it touches: that of a small one, of about 100 ns.
pub(crate) const OPERATION_WORK: usize = 512;
/// Work for which a turn takes on connections: the other half is for their operations, and for the commands that the server
/// executes itself.
pub(crate) const TURN_INTAKE_WORK: usize = TURN_WORK / 2;
/// In one of this many turns, connections with large operations are before the other ready ones. In all other turns they
/// follow.
pub(crate) const TURNS_WITH_LARGE_FIRST: u64 = 8;
/// Work of a connection in a turn from which on it waits after connections with less: see `shard/ready.rs`.
pub(crate) const COSTLY_WORK: usize = TURN_WORK / 64;
/// Work for which a turn takes connections on beside a command that has the store.
pub(crate) const BESIDE_WORK: usize = TURN_INTAKE_WORK / 4;
/// Work for which it takes datagrams before.
pub(crate) const TURN_ARRIVALS_WORK: usize = TURN_INTAKE_WORK / 2;
/// The commands of the server have this part of a turn for each connection.
pub(crate) const TURN_PART_OF_CONNECTION: usize = 4;
/// Work of decoding a request, beside its bytes.
pub(crate) const DECODE_WORK: usize = OPERATION_WORK / 4;
/// Work of a byte of an operand that is decompressed or converted: about a nanosecond.
pub(crate) const OPERAND_BYTE_WORK: usize = 4;
/// Work of a byte of a text that the server makes itself: numbers are formatted, and names are looked up.
pub(crate) const TEXT_WORK: usize = 16;
/// Work of a number that is converted from text, beside the bytes of the text: about 20 ns.
pub(crate) const NUMBER_WORK: usize = 64;
/// Elements that are written as text at a time. A longer reply is written in parts, of which a turn writes as many as a
/// connection has work.
pub(crate) const ELEMENTS_PART: usize = 4096;
/// Elements that are written like a short reply of the server.
pub(crate) const ELEMENTS_FEW: usize = 64;
/// Bytes that a turn reads, and that it submits, and that it writes.
pub(crate) const TURN_SIZE_MAX: usize = 2 << 20;
/// Operations of a connection in a batch while nearly no memory is free. With one operation, no reply has to be
/// buffered after a deferred one.
pub(crate) const OPERATIONS_WITHOUT_MEMORY_MAX: usize = 1;
/// Postponed connections that are tried in a turn, and returned connections, each at most this number.
pub(crate) const RESUMED_MAX: usize = 64;
/// The same of returned connections with large operations: more would not fit the bytes of those that come first.
pub(crate) const LARGE_RESUMED_MAX: usize = TURN_SIZE_MAX / RESUMED_PART / COSTLY_WORK;
/// Postponed connections may take this part of a turn's operations before those of the queue. Together with returned
/// connections, they may take this part of its bytes.
pub(crate) const RESUMED_PART: usize = 4;
/// Stuck connections that are tried in a turn: as many as the smallest window has operations.
pub(crate) const STUCK_MAX: usize = WINDOW_MIN;
/// Events that are taken from epoll at a time.
pub(crate) const EVENTS_MAX: usize = 256;
/// The time for which a shard looks for work before it sleeps: about twice what a wake-up takes.
pub(crate) const SPIN_TIME: Duration = Duration::from_micros(50);
/// If a thread to which a shard gives its core keeps it for longer than the first, the shard keeps it for the second, except
/// that it sleeps when it has no work.
pub(crate) const YIELD_MAX: Duration = Duration::from_micros(500);
pub(crate) const CORE_SHARED_TIME: Duration = Duration::from_millis(100);
/// The longest time that a shard sleeps while keys have an expiry: the clock may be set meanwhile.
pub(crate) const SLEEP_MAX: Duration = Duration::from_secs(1);
/// A busy shard makes a step of looking for expired keys in each turn, and another one for this number of operations.
pub(crate) const OPERATIONS_PER_RECLAIM: usize = 32;
/// Steps of a turn while writes of the hash space are refused for lack of memory.
pub(crate) const URGENT_RECLAIM_STEPS: usize = 32;
/// The time that a shard sleeps when a store deferred all of its work: nothing wakes it when there is memory again.
pub(crate) const NAP: Duration = Duration::from_micros(200);
/// The time between two looks at the clock while connections drain, wait for memory, or cannot be accepted.
pub(crate) const TICK: Duration = Duration::from_millis(50);

// The window: operations in flight.

/// The smallest window, in operations: the store has as many in flight. Smaller batches lose their purpose.
pub(crate) const WINDOW_MIN: usize = 256;
/// The largest window, in operations. More would not make batches faster.
pub(crate) const WINDOW_MAX: usize = 4096;
/// A connection has at most this part of the window.
pub(crate) const WINDOW_PART: usize = 4;
/// The window changes by this part of it at a time.
pub(crate) const WINDOW_STEP: usize = 8;
/// The running average of the delay takes over this part of the last mean.
pub(crate) const DELAY_GAIN: u32 = 4;
/// The delay by which the window is judged if there is no bound.
pub(crate) const DELAY_GOAL: Duration = Duration::from_millis(100);
/// Turns whose median is the cost of an operation: an odd number, so that there is a middle one.
pub(crate) const COST_COUNT: usize = 15;

// Input, output and parsed batches of a connection.

/// Fewest bytes that a read asks for: a page.
pub(crate) const READ_MIN: usize = 4 << 10;
/// Most bytes that are read before the requests among them are executed, unless an incomplete request is longer.
pub(crate) const READ_MAX: usize = 256 << 10;
/// Bytes that an operation is assumed to have before the first one has arrived: few, or the first read would bring too
/// many.
pub(crate) const FIRST_OPERATION_SIZE: usize = 8;
/// Bytes of room that a read is given if the input may grow, and the step in which its size grows. With less room the
/// input is compacted.
pub(crate) const INPUT_ROOM_MIN: usize = 16 << 10;
/// Bytes by which an input grows at a time; a smaller one doubles.
pub(crate) const INPUT_GROWTH_MAX: usize = 1 << 20;
/// Bytes of memory that an empty input keeps.
pub(crate) const EMPTY_INPUT_SIZE_MAX: usize = 64 << 10;
/// Bytes of memory that a nearly empty input keeps: enough for a stream of the largest values.
pub(crate) const SPARE_INPUT_SIZE_MAX: usize = 4 << 20;
/// Bytes of the smallest block of an output.
pub(crate) const OUTPUT_BLOCK_MIN: usize = 1 << 10;
/// Bytes of the largest block of an output, unless more is appended at once.
pub(crate) const OUTPUT_BLOCK_MAX: usize = 256 << 10;
/// Bytes of an output that is written at once, even if the turn has written enough.
pub(crate) const SMALL_OUTPUT_SIZE_MAX: usize = 16 << 10;
/// Operations of a parsed batch, beside those of its last request: more than a connection may submit in a turn.
pub(crate) const PARSED_OPERATIONS_MAX: usize = 1024;
/// Bytes of the requests of a parsed batch, beside those of its last request.
pub(crate) const PARSED_SIZE_MAX: usize = 256 << 10;
/// Bytes of memory by which a parsed batch may grow while it is decoded.
pub(crate) const PARSED_GROWTH_MAX: usize = 64 << 10;
/// Arguments of a RESP request that a share always covers.
pub(crate) const FREE_ARGUMENTS_MAX: usize = 64;
/// Bytes that an argument takes at most when it becomes a binary element.
pub(crate) const ELEMENT_SIZE_MAX: usize = 8;
/// Fields of a `BITFIELD`: its reply is small, and its time that of a large value.
pub(crate) const BIT_FIELDS_MAX: usize = 4096;
/// Bytes that an argument of a `BITFIELD` takes at most in the list of its fields: three arguments become 20 bytes.
pub(crate) const BIT_FIELD_ARGUMENT_SIZE: usize = 7;
/// A RESP command of more arguments is alone in its parsed batch, and its operands are converted in parts.
pub(crate) const LONG_COMMAND: usize = 1024;
/// Operands that are converted at a time: about a millisecond of work.
pub(crate) const OPERANDS_PART: usize = 16 << 10;
/// Bytes that an operand counts for beside its text: the framing of an argument, and the work of converting it.
pub(crate) const OPERAND_WORK: usize = 16;

// Submission and replies.

/// Bytes of operations that a connection submits at a time, beside those of the last one. They may have more than has
/// arrived: the copy flags let a frame name one value tens of thousands of times, and what is forwarded is copied.
pub(crate) const SUBMISSION_SIZE_MAX: usize = 1 << 20;
/// Bytes of operations that forwarded batches carry for a connection at a time.
pub(crate) const FORWARDED_SIZE_MAX: usize = SUBMISSION_SIZE_MAX + VALUE_SIZE_MAX;
/// Bytes of large values that the replies of a space to a batch may have, and one value more. The cache has two
/// lists of replies, each with this budget: to operations, and to commands of memcached.
pub(crate) const REPLY_BUDGET: usize = 1 << 20;
/// Bytes of replies of a connection that are encoded at a time, and one reply more.
pub(crate) const ENCODED_MAX: usize = 1 << 20;
/// Bytes of memory that a shard's buffer of encoded replies keeps from turn to turn.
pub(crate) const ENCODE_BUFFER_SIZE_MAX: usize = 1 << 20;
/// Bytes of buffered replies of a connection from which on it submits one operation at a time.
pub(crate) const BUFFERED_SIZE_MAX: usize = 1 << 20;
/// Bytes of memory for replies that a finished reply queue keeps: its connection may be idle for hours.
pub(crate) const IDLE_QUEUE_SIZE_MAX: usize = 64 << 10;
/// Ranges for which a finished reply queue keeps memory.
pub(crate) const IDLE_RANGES_MAX: usize = 1024;

// Isolated commands: see [`crate::transaction`].

/// Operations of a command that sets keys, and of all commands of a transaction: longer ones are refused. While they are
/// executed, their shards execute nothing else: some 50 ms.
pub(crate) const ISOLATED_OPERATIONS_MAX: usize = 1 << 18;
/// Operations of a command that reads or deletes: a longer one is executed in parts of this size. As many as a turn has.
pub(crate) const ISOLATED_READS_MAX: usize = ISOLATED_IN_TURN_MAX;
/// Bytes that an isolated command reads of a value at a time: they stay in the cache of a processor until they are used.
pub(crate) const ISOLATED_READ_SIZE: usize = 64 << 10;
/// Bytes of the commands of a transaction: as many as a request may have.
pub(crate) const TRANSACTION_SIZE_MAX: usize = 16 << 20;
/// Work of a transaction, and of any other command that is executed whole, in bytes touched. Meanwhile its shards
/// execute nothing else on keys, for about a tenth of a second. A transaction of [`ISOLATED_OPERATIONS_MAX`] small
/// operations, whose keys are looked up before, takes as long.
pub(crate) const TRANSACTION_WORK_MAX: usize = 256 << 20;
/// Bytes of a reply that is a number or a status.
pub(crate) const SHORT_REPLY_SIZE: usize = 24;
/// Bytes of the error messages of a transaction. Of the errors after them, only the codes are sent.
pub(crate) const ERRORS_SIZE_MAX: usize = 256 << 10;
/// A transaction may have replies of all memory that one connection may ever hold, except for one in this many parts.
pub(crate) const ONE_MAX_PART: usize = 4;
/// The part of what one connection may hold from which on room for more requests is returned before a transaction begins.
pub(crate) const SPARE_PART: usize = 16;
/// Bytes of converted operands of a transaction from which on those commands are executed that are decoded.
pub(crate) const OPERANDS_SIZE_KEPT: usize = 256 << 10;
/// Bytes of replies after which a command that reads or deletes is continued later. The reserve of a shard covers them.
pub(crate) const ISOLATED_REPLY_MAX: usize = 4 << 20;
/// Bytes of replies for which a transaction needs no permit, as a single command with a short reply needs none: a hundred
/// short replies, each of which may be an error.
pub(crate) const SMALL_REPLIES_MAX: usize = 100 * 384;
/// Operations of an isolated command that are executed at a time.
pub(crate) const ISOLATED_PART_MAX: usize = 1 << 10;
/// Commands of a transaction that are executed at a time.
pub(crate) const TRANSACTION_PART_MAX: usize = 1 << 8;
/// Operations of isolated commands that a turn executes: as many as the largest window has.
pub(crate) const ISOLATED_IN_TURN_MAX: usize = WINDOW_MAX;
/// A command that has begun, and is not done in a turn, touches as many times the bytes in each of the next ones.
pub(crate) const BEGUN_PARTS: usize = 8;
/// Work of an isolated command up to which it is a small effort, and its arguments up to which it may be one.
pub(crate) const SMALL_EFFORT_WORK: usize = COSTLY_WORK;
pub(crate) const SMALL_EFFORT_ARGUMENTS: usize = SMALL_EFFORT_WORK / OPERATION_WORK / 2;
/// The same of a medium effort.
pub(crate) const MEDIUM_EFFORT_WORK: usize = TURN_INTAKE_WORK;
pub(crate) const MEDIUM_EFFORT_ARGUMENTS: usize = MEDIUM_EFFORT_WORK / OPERATION_WORK;
/// Turns after a command that took several ones, in which the work of commands is forecast before they begin.
pub(crate) const FORECAST_TURNS: u64 = 1 << 12;
/// Turns, and holds, in succession in which no command of large effort begins while small ones wait.
pub(crate) const TURNS_OF_SMALL_MAX: usize = 8;
/// Bytes that an isolated command reads for which it is counted as having executed another operation.
pub(crate) const ISOLATED_WORK_SIZE: usize = 256;
/// Operations for which a step of a command on all keys is counted in a transaction.
pub(crate) const KEYSPACE_STEP_WORK: usize = 1 << 9;
/// Connections for which other shards are held at a time, whose commands are a small, a medium and a large effort.
pub(crate) const HELD_FOR_MAX: [usize; 3] = [64, 16, 1];
/// Messages about stores that one shard has sent another, and that are not taken: it asks for a store, lends its own one, and
/// gives the other's back.
pub(crate) const MESSAGES_OF_SHARD_MAX: usize = 3;
/// Keys that a connection watches: all of them are looked up when it executes its transaction.
pub(crate) const WATCHED_KEYS_MAX: usize = 1 << 12;

// Replies that the server makes itself.

/// Work of a comparison of a short name, or of a look at the entry of a connection.
pub(crate) const LOOK_WORK: usize = 32;
/// Work of a connection that `CLIENT LIST` or `CLIENT KILL` describes, in part or as a whole, beside its text: its entry is
/// copied, or its addresses are written as text.
pub(crate) const CLIENT_WORK: usize = 2 << 10;
/// Work of `INFO` beside its text: it reads files of the kernel.
pub(crate) const INFO_WORK: usize = 256 << 10;
/// Work of an entry of the slow log, and of a byte of the lines for monitors.
pub(crate) const SLOW_ENTRY_WORK: usize = 8 << 10;
pub(crate) const MONITOR_LINE_WORK: usize = 8;
/// Work of a wake-up of another thread.
pub(crate) const WAKE_WORK: usize = 8 << 10;
/// Arguments of a command that the server replies to itself: its time grows with them, and it is done in one turn.
pub(crate) const SERVER_ARGUMENTS_MAX: usize = 1024;
/// Bytes of the longest argument that is cheap to return.
pub(crate) const SMALL_ARGUMENT_SIZE_MAX: usize = 256;
/// Bytes of a reply that the server makes itself, about: it repeats an argument, or lists what is bounded.
pub(crate) const SERVER_REPLY_MAX: usize = VALUE_SIZE_MAX + (64 << 10);
/// Bytes of a list of connections: a request of a few bytes must not take much memory.
pub(crate) const CLIENT_LIST_SIZE_MAX: usize = 256 << 10;
/// Connections that are copied for a list while the lock is held.
pub(crate) const CLIENTS_COPIED_MAX: usize = 32;
/// Keys that a shard counts while they are watched, the most that are shown, and the bytes that are shown of each.
pub(crate) const HOT_KEY_ENTRIES: usize = 128;
pub(crate) const HOT_KEYS_SHOWN: usize = 10;
pub(crate) const HOT_KEY_SIZE_SHOWN: usize = 64;
/// Entries of the slow log: each takes up to a few kilobytes.
pub(crate) const SLOW_LOG_LENGTH_MAX: usize = 10_000;
/// Bytes of all its entries, and of those in one reply.
pub(crate) const SLOW_LOG_SIZE_MAX: usize = 4 << 20;
pub(crate) const SLOW_LOG_REPLY_MAX: usize = 256 << 10;
/// Functions of the current modules: a reply describes all of them.
pub(crate) const FUNCTIONS_MAX: usize = 512;
/// Bytes of the description of a function or a record.
pub(crate) const FUNCTION_DESCRIPTION_MAX: usize = 512;
/// Bytes of the reply that describes them.
pub(crate) const FUNCTIONS_REPLY_MAX: usize = VALUE_SIZE_MAX;
/// Sources that a server was ever given, and their bytes: their code is never freed.
pub(crate) const FUNCTION_REVISIONS_MAX: usize = 4096;
pub(crate) const FUNCTION_SOURCES_MAX: usize = 32 << 20;
/// Loads of modules that are in progress. Each has a thread.
pub(crate) const FUNCTION_LOADS_MAX: usize = 16;
/// The time between two looks if one is made.
pub(crate) const FUNCTION_LOOK_TIME: Duration = Duration::from_millis(1);
/// The niceness of these threads: on a busy core, they get about a tenth of the time.
pub(crate) const COMPILER_NICENESS: i32 = 10;
/// The longest `CLIENT PAUSE` and `DEBUG SLEEP`: about a hundred years.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);
/// Arguments of a command in the slow log, and the bytes of each, as in Redis.
pub(crate) const SLOW_ARGUMENTS_MAX: usize = 32;
pub(crate) const SLOW_ARGUMENT_SIZE_MAX: usize = 128;
/// Commands that a shard enters in the slow log in a turn. If everything is slow, the log must not make it slower.
pub(crate) const SLOW_ENTRIES_IN_TURN_MAX: usize = 32;
/// The shortest time over which `INFO` tells rates, such as operations a second.
pub(crate) const RATE_TIME_MIN: Duration = Duration::from_millis(100);
/// Monitors: every command is copied for each of them.
pub(crate) const MONITORS_MAX: usize = 16;
/// A feed of a monitor holds at most this part of the memory for connections.
pub(crate) const MONITOR_PART: usize = 64;
/// Bytes in the output of a monitor from which on its feed waits.
pub(crate) const MONITOR_OUTPUT_MAX: usize = 256 << 10;
/// Bytes of a command and of an argument that monitors get.
pub(crate) const MONITOR_LINE_SIZE_MAX: usize = 16 << 10;
pub(crate) const MONITOR_ARGUMENT_SIZE_MAX: usize = 1 << 10;
/// Bytes of a pattern of `CONFIG GET`. Longer ones match nothing: the time that they take grows with their size.
pub(crate) const PATTERN_SIZE_MAX: usize = 64;
/// Patterns of a `CONFIG GET`: no client needs more.
pub(crate) const PATTERNS_MAX: usize = 32;
/// Commands that are described at a time: a description is far longer than a name. There are fewer commands.
pub(crate) const COMMAND_NAMES_MAX: usize = 256;

// Operations on all keys.

/// Bytes of keys from which on a page of a walk ends.
pub(crate) const KEYSPACE_PAGE_SIZE: usize = 64 << 10;
/// Work of the operations of a batch on all keys, in home buckets that are read one after another: about a tenth of a
/// millisecond. The last operation may exceed it.
pub(crate) const KEYSPACE_WORK_MAX: usize = 16 << 10;
/// Steps of removing expired keys that a count makes at a time in a store, and the times that it does so. Of a store in
/// which that is enough, the count is exact.
pub(crate) const COUNT_STEPS: usize = 256;
pub(crate) const COUNT_TIMES: usize = 64;
/// Steps of removing all keys of the ordered space that a shard makes at a time.
pub(crate) const FLUSH_STEPS: usize = 4;
/// Steps of clearing the memory of a flush that an idle shard makes between two looks for work.
pub(crate) const IDLE_FLUSH_STEPS: usize = 32;
/// Bytes of a pattern of keys: the time of matching grows with them.
pub(crate) const KEY_PATTERN_SIZE_MAX: usize = 1 << 10;
/// Bytes of a pattern that is matched with pages of full size. Longer patterns get smaller pages.
pub(crate) const USUAL_PATTERN_SIZE: usize = 64;
/// Keys that a step of `KEYS` asks for.
pub(crate) const KEYS_STEP: u32 = 4096;
/// Keys that a step of `RANDOMKEY` asks for, and those that it looks at in all, if its user may not read all keys.
pub(crate) const RANDOM_KEYS_STEP: u32 = 256;
pub(crate) const RANDOM_KEYS_MAX: usize = 1024;
/// Scans of the ordered space whose cursors are known. The one that was used least recently is forgotten for another.
pub(crate) const CURSOR_SCANS_MAX: usize = 1 << 10;

// Forwarding between shards.

/// Forwarded batches that one shard has at all others together, unless that gives too few or too many for each of them.
/// A batch has the operations of one connection, so this is also the number of connections that can be served at a time.
pub(crate) const FORWARDED_BATCHES_OF_SHARD: usize = 768;
/// Forwarded batches that one shard has at another, at least.
pub(crate) const FORWARDED_BATCHES_MIN: usize = 32;
/// Forwarded batches that one shard has at another, at most.
pub(crate) const FORWARDED_BATCHES_MAX: usize = 256;
/// One of this many slots for batches may have one that is sent again after it was returned: the others are left to
/// connections whose owner has memory.
pub(crate) const FORWARDED_RETRIES_PART: usize = 2;
/// Visits whose commands are more than a small effort have one of this many slots.
pub(crate) const LARGER_VISITS_PART: usize = 4;
/// Bytes of the empty batches that a shard keeps for another one.
pub(crate) const FORWARDED_POOL_SIZE_MAX: usize = 2 << 20;
/// Bytes of memory that an empty batch keeps for requests, and as many for replies.
pub(crate) const POOLED_SIZE_MAX: usize = 64 << 10;
/// Requests for which an empty batch keeps memory, and as many replies.
pub(crate) const POOLED_ENTRIES_MAX: usize = 1024;

// Datagrams: see [`crate::transport::datagram`].

/// Buffers of packets that a turn takes, if they are less work than [`TURN_ARRIVALS_WORK`]. Each has the packets that a
/// client sent together.
pub(crate) const ARRIVALS_IN_TURN_MAX: usize = 64;
/// Control packets that a turn sends: each takes a few microseconds, and a flood of hellos asks for many.
pub(crate) const CONTROL_PACKETS_IN_TURN_MAX: usize = 64;
/// Bytes that the sessions of a shard hold together; beyond, each holds two packets.
pub(crate) const SESSION_BUFFERS_MAX: usize = 32 << 20;
/// Bytes that a shard needs for datagrams: the buffers of sessions, and those of the kernel.
pub(crate) const DATAGRAM_MEMORY: u64 = SESSION_BUFFERS_MAX as u64 + (8 << 20);
/// Datagrams of memcached's protocol that are in work at the same time.
pub(crate) const MEMCACHED_DATAGRAMS_MAX: usize = 256;
/// Bytes of a reply to one of them: about what the socket of a client takes that has not asked for more memory.
pub(crate) const MEMCACHED_REPLY_SIZE_MAX: usize = 64 << 10;
/// Bytes that the server needs for them: for each its request of up to 64 KiB, a reply whose buffer has doubled, and a
/// share of the memory for connections.
pub(crate) const MEMCACHED_DATAGRAM_MEMORY: u64 =
    (MEMCACHED_DATAGRAMS_MAX * ((64 << 10) + 2 * MEMCACHED_REPLY_SIZE_MAX + SHARE)) as u64;
/// Attempts to find as many free ports in succession as there are shards.
pub(crate) const SHARD_PORT_ATTEMPTS: usize = 16;

/// The time in which a client must log in, if it must, and the same while over three quarters of all connections are open.
pub(crate) const LOGIN_TIME: Duration = Duration::from_secs(60);
pub(crate) const LOGIN_TIME_WHEN_CROWDED: Duration = Duration::from_secs(1);

// TLS: see [`crate::transport::tls`].

/// Bytes that a session holds encrypted and not sent, and as many that it has decrypted and that were not read.
pub(crate) const TLS_BUFFER_SIZE: usize = 16 << 10;
/// Bytes of a session that is at rest.
pub(crate) const TLS_SESSION_SIZE: usize = 10 << 10;
/// The time after which a client that has not finished its handshake is gone.
pub(crate) const TLS_HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Work of a handshake, which has a signature and an exchange of keys: a turn has room for a few.
pub(crate) const TLS_HANDSHAKE_WORK: usize = TURN_WORK / 4;
/// Work of a byte that arrives and is not one of a request. Each packet has 22 or more of them, and counts as two small
/// operations.
pub(crate) const TLS_OVERHEAD_WORK: usize = 2 * OPERATION_WORK / 22;
/// Bytes of the largest packet.
pub(crate) const TLS_PACKET_MAX: usize = (16 << 10) + 2048 + 5;
/// Work of a call that receives up to about 4 KiB.
pub(crate) const TLS_RECEIVE_WORK: usize = OPERATION_WORK;
/// Work of the packets of a connection after which a turn receives no more of them.
pub(crate) const TLS_READ_WORK_MAX: usize = COSTLY_WORK;

// RDMA: see [`crate::transport::rdma`].

/// Connections over RDMA of a shard, at most. Their slots are memory beside that for connections, which the start counts.
pub(crate) const RDMA_CONNECTIONS_MAX: usize = 256;
/// Bytes that a shard needs for RDMA: the slots, the buffers of sessions, and the queues of the device.
pub(crate) const RDMA_MEMORY: u64 = (RDMA_CONNECTIONS_MAX as u64) * (128 << 10) + SESSION_BUFFERS_MAX as u64;

// Memory of connections: see [`crate::memory_budget`].

/// Bytes that each connection may always hold.
pub(crate) const SHARE: usize = 8 << 10;
/// Bytes of a share for buffered replies and the output: decoded requests take no more than the rest.
pub(crate) const SHARE_FOR_REPLIES: usize = 3 << 10;
/// Bytes of a share for the input: a connection without other memory reads requests of this size.
pub(crate) const SHARE_FOR_INPUT: usize = 2 << 10;
/// Longest value, and longest incomplete request, of a client of memcached that has not sent the password.
pub(crate) const LOCKED_VALUE_MAX: usize = 1 << 10;
pub(crate) const LOCKED_REQUEST_MAX: usize = 4 << 10;
/// Bytes that `CLIENT LIST` knows of a connection, with names of usual lengths.
pub(crate) const CLIENT_SIZE: usize = 1 << 10;
/// Bytes that the replies of one turn of a shard may take beyond the budget: of each space, a mebibyte, a value of the
/// largest size and a wave of small ones, each in a buffer that has doubled.
pub(crate) const SHARD_RESERVE: usize = 8 << 20;
/// Bytes of freed buffers that a program of the server should keep at most, for the next ones of their size. The start
/// counts them.
pub const FREED_BUFFERS_KEPT: usize = 16 << 20;
/// Bytes of a block from which on it is sealed, although its command is not done.
pub(crate) const BLOCK_BOUND: usize = 64 << 20;
/// Bytes of the log that are not on disk, from which on shards execute nothing until there are fewer.
pub(crate) const UNFLUSHED_MAX: u64 = 64 << 20;
/// Bytes up to which a command goes on that has begun, while the disk makes no progress.
pub(crate) const UNFLUSHED_MAX_OF_COMMAND: u64 = 4 * UNFLUSHED_MAX;
/// Bytes that a forecast needs at most for each key whose length it knows. A shard makes one forecast at a time.
pub(crate) const FORECAST_KEY_MEMORY: usize = 64;
/// Bytes that a shard needs to serve its connections, beside what these hold: the reserve, the buffers of replies, and the
/// lengths of a forecast.
pub(crate) const SHARD_MEMORY: u64 = (2 * SHARD_RESERVE + ISOLATED_OPERATIONS_MAX * FORECAST_KEY_MEMORY) as u64;
/// The smallest budget in bytes: half of it holds the largest value twice.
pub(crate) const BUDGET_MIN: usize = 8 << 20;

/// Returns the least connection memory for as many connections: see
/// [`ServerSettings::connection_memory_min`](crate::ServerSettings::connection_memory_min).
pub(crate) fn connection_memory_min(connections_max: usize) -> u64 {
    (connections_max as u64)
        .saturating_mul(2 * SHARE as u64)
        .div_ceil(1 << 20)
        .saturating_mul(1 << 20)
        .max(BUDGET_MIN as u64)
}
/// Bytes that a shard takes from the common part at a time; less where the budget is small.
pub(crate) const PIECE: usize = 64 << 10;
/// Pieces that a shard keeps when nothing is lent; less where the budget is small for the number of shards.
pub(crate) const PIECES_KEPT: usize = 4;
/// Bytes of large replies that a turn makes as a rule: a mebibyte and one value, or a page of a scan. The reserve
/// covers more.
pub(crate) const TURN_REPLIES_MAX: usize = 2 << 20;
/// While less than a quarter of the common part is free, the large replies of a turn may take this part of what is
/// free. A client that takes a reply of a mebibyte gets the next one before clients that take none have used up what it
/// returned.
pub(crate) const ROOM_PART: usize = 2;
/// While the reserve is in use, large replies may take this part of what is left of its first half.
pub(crate) const RESERVE_PART: usize = 64;
/// The most bytes that they may take of it.
pub(crate) const RESERVE_ROOM_MAX: usize = 64 << 10;
/// Bytes to which a connection of small requests may grow while requests of others wait for memory: when it reads, and when
/// it decodes what it has read.
pub(crate) const PIPELINE_INPUT_MAX: usize = 20 << 10;
pub(crate) const PIPELINE_SIZE_MAX: usize = 48 << 10;
/// This part of the budget beyond the shares is lent only to requests of at most as many bytes. The rest is the common part.
/// A value of 64 KiB is such a request, with its key and what is granted besides.
pub(crate) const SMALL_PART: usize = 16;
pub(crate) const SMALL_REQUEST_MAX: usize = 72 << 10;
/// This part of the common part is lent only for replies.
pub(crate) const KEPT_PART: usize = 16;
/// Bytes that a connection with something to send must be allowed to borrow, so that its requests are executed.
pub(crate) const OUTPUT_ROOM_MIN: usize = 256 << 10;
/// The time between two looks at the memory of connections. One that is silent for as long returns its empty buffers.
pub(crate) const MEMORY_SCAN_TIME: Duration = Duration::from_secs(1);
/// While others wait for memory, a client of a connection that holds some transfers this number of bytes in this time, or
/// the connection may be closed. The time for which the connection waits for the server does not count.
pub(crate) const PROGRESS_SIZE_MIN: u64 = 16 << 10;
pub(crate) const PROGRESS_TIME: Duration = Duration::from_millis(750);
/// What a client transfers between `WATCH` or `MULTI` and `EXEC` counts up to twice what its connection keeps, and this number
/// of bytes.
pub(crate) const KEPT_BESIDES_MAX: u64 = 1 << 20;
/// The most bytes of replies that the peer of a TCP connection acknowledges at once after a pause: its kernel acknowledges
/// none until its reader has made room for a whole segment, and for a sixteenth of its buffer, which is 6 MiB at most by
/// default. A reader that takes that many has the time in which it may take them.
pub(crate) const ACKNOWLEDGED_AT_ONCE_MAX: u64 = 384 << 10;
/// Progress that was not looked at for longer is judged anew.
pub(crate) const PROGRESS_GAP_MAX: Duration = Duration::from_millis(500);
/// The time after which a connection is closed that waits for memory, and whose client has closed its side.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(10);

const _: () = {
    // A request of the smallest kind, and a frame of the largest, can be read.
    assert!(READ_MIN <= READ_MAX && READ_MAX <= TURN_SIZE_MAX && REQUEST_FRAME_SIZE_MAX <= BUDGET_MIN / 2);
    assert!(INPUT_ROOM_MIN <= EMPTY_INPUT_SIZE_MAX && EMPTY_INPUT_SIZE_MAX <= SPARE_INPUT_SIZE_MAX);
    assert!(OUTPUT_BLOCK_MIN <= OUTPUT_BLOCK_MAX && SMALL_OUTPUT_SIZE_MAX <= TURN_SIZE_MAX);
    // The kinds of connections have a quarter of the bytes each.
    assert!(RESUMED_PART == 4);
    // The largest window of small operations fits a turn.
    assert!(WINDOW_MAX * OPERATION_WORK <= TURN_WORK - TURN_INTAKE_WORK);
    // A connection within its share reads, decodes and replies.
    assert!(SHARE_FOR_INPUT + SHARE_FOR_REPLIES + CLIENT_SIZE < SHARE && KEY_SIZE_MAX < SHARE_FOR_INPUT);
    assert!(FREE_ARGUMENTS_MAX * (ELEMENT_SIZE_MAX + OPERAND_WORK) <= SHARE_FOR_REPLIES);
    // The smallest small part has room for some requests, each with the largest small value and its key.
    assert!(BUDGET_MIN / 2 / SMALL_PART >= 3 * SMALL_REQUEST_MAX);
    assert!(SMALL_REQUEST_MAX >= (64 << 10) + KEY_SIZE_MAX + SHARE_FOR_INPUT + SHARE_FOR_REPLIES);
    // One connection may hold the largest value in its input and in its output.
    assert!(2 * VALUE_SIZE_MAX <= BUDGET_MIN / 2);
    // The reserve covers the replies of a turn, of all three spaces.
    assert!(TURN_REPLIES_MAX >= REPLY_BUDGET + VALUE_SIZE_MAX && TURN_REPLIES_MAX >= PAGE_SIZE_GOAL);
    assert!(3 * TURN_REPLIES_MAX + 4 * KEYSPACE_PAGE_SIZE <= SHARD_RESERVE && SHARD_RESERVE <= BUDGET_MIN);
    assert!(RESERVE_ROOM_MAX <= SHARD_RESERVE / 2 / RESERVE_PART && SHARE_FOR_REPLIES <= RESERVE_ROOM_MAX);
    assert!(ENCODED_MAX <= TURN_SIZE_MAX && BUFFERED_SIZE_MAX <= TURN_SIZE_MAX && SUBMISSION_SIZE_MAX <= TURN_SIZE_MAX);
    // Pieces are small beside what a shard may keep, and a silent connection returns its memory before it is closed.
    assert!(PIECES_KEPT * PIECE <= BUDGET_MIN / KEPT_PART);
    assert!(MEMORY_SCAN_TIME.as_millis() < SILENCE_MAX.as_millis() && TICK.as_millis() < MEMORY_SCAN_TIME.as_millis());
    // Progress is looked at some times before a client is slow.
    assert!(
        2 * TICK.as_millis() < PROGRESS_GAP_MAX.as_millis() && PROGRESS_GAP_MAX.as_millis() < PROGRESS_TIME.as_millis()
    );
    // A connection's part of the window is never 0, and a parsed batch has as many operations as it may submit.
    assert!(WINDOW_MIN >= WINDOW_PART * WINDOW_STEP && WINDOW_MIN <= WINDOW_MAX);
    assert!(WINDOW_MAX / WINDOW_PART <= PARSED_OPERATIONS_MAX && RESUMED_MAX <= WINDOW_MIN && COST_COUNT % 2 == 1);
    // A shard spins for less than it naps, and a stopping server waits for peers that drain.
    assert!(
        KERNEL_POLL_TIME.as_nanos() < SPIN_TIME.as_nanos()
            && SPIN_TIME.as_nanos() < NAP.as_nanos()
            && NAP.as_nanos() < TICK.as_nanos()
    );
    assert!(DRAIN_TIME.as_millis() <= FLUSH_TIME.as_millis() && TICK.as_millis() <= DRAIN_TIME.as_millis());
    // A step of an isolated command is a part of a turn, and the reserve covers its replies.
    // Each operation, the look-up of its key before, its arguments, and two passes over all of them.
    assert!(ISOLATED_OPERATIONS_MAX * 3 * OPERATION_WORK + 8 * TRANSACTION_SIZE_MAX <= 2 * TRANSACTION_WORK_MAX);
    assert!(WATCHED_KEYS_MAX <= ISOLATED_OPERATIONS_MAX && ISOLATED_PART_MAX <= ISOLATED_IN_TURN_MAX);
    assert!(ISOLATED_REPLY_MAX + TURN_REPLIES_MAX <= SHARD_RESERVE && SERVER_REPLY_MAX <= SHARD_RESERVE / 2);
    assert!(CLIENT_LIST_SIZE_MAX <= SERVER_REPLY_MAX && SLOW_LOG_REPLY_MAX <= SERVER_REPLY_MAX);
    assert!(
        FUNCTIONS_REPLY_MAX <= SERVER_REPLY_MAX && 3 * FUNCTIONS_MAX * FUNCTION_DESCRIPTION_MAX <= FUNCTIONS_REPLY_MAX
    );
    assert!(ISOLATED_REPLY_MAX <= SHARD_RESERVE && TRANSACTION_PART_MAX <= ISOLATED_PART_MAX);
    assert!(FORWARDED_RETRIES_PART > 1 && FORWARDED_RETRIES_PART <= FORWARDED_BATCHES_MIN);
    assert!(FORWARDED_BATCHES_MIN <= FORWARDED_BATCHES_MAX && FORWARDED_BATCHES_MAX <= FORWARDED_BATCHES_OF_SHARD);
    assert!(2 * POOLED_SIZE_MAX <= FORWARDED_POOL_SIZE_MAX);
};
