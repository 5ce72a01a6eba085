//! The host of a card: the store with its writers, its memory as the links read it, and what it sends to the card.
//!
//! ```text
//! store ── changes of an operation, in order ─┬─ bytes ───────────────────────▶ memory, at their time
//!                                             └─ entries, version, ask ─ link ─▶ card, later, in the same order
//! ```
//!
//! A write is executed by the product's store at once. Its changes reach memory one after the other, in the order in which
//! the store has made them. So a card that reads meanwhile finds some of them and not the others.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{PutCondition, Reply};
use skep_store::counted::ordered::{LogBlock, OrderedSettings, OrderedStore, Session, Window};
use skep_store::counted::{Observer, observed};

use crate::time::Time;

/// Bytes of the store's region.
const REGION_SIZE: u64 = 16 << 20;
/// Bytes of an allocation unit, which frames count.
const UNIT_SIZE: usize = 512;

/// One in this many changes comes late: its writer was stopped.
const STOPS: u32 = 64;
const STOP_NS_MAX: f64 = 5000.0;
/// The most time between two changes of a writer that is not stopped.
const CHANGE_NS_MAX: f64 = 20.0;
/// The latency of a message.
const MESSAGE_NS: std::ops::Range<f64> = 200.0..900.0;

/// A change that the card is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// An entry of the page table: the frame of a LID.
    Entry(usize, u32),
    /// The version that readers read from now on.
    Version(u64),
    /// A writer asks for the newest request.
    Ask(u64),
}

/// A write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    /// The key.
    pub(super) key: Vec<u8>,
    /// The value, or `None` for a delete.
    pub(super) value: Option<Vec<u8>>,
}

/// A change of a store by its writer.
#[derive(Debug)]
enum Change {
    Bytes(usize, Vec<u8>),
    Message(Message),
}

/// Records the changes of the store.
#[derive(Debug, Default)]
pub(super) struct Recorder(Mutex<Vec<Change>>);

impl Recorder {
    fn push(&self, change: Change) {
        self.0.lock().expect("no thread panicked while it recorded").push(change);
    }
}

impl Observer for Recorder {
    fn touch(&self, _offset: usize, _size: usize) {}

    fn wrote(&self, offset: usize, bytes: &[u8]) {
        self.push(Change::Bytes(offset, bytes.to_vec()));
    }

    fn set_entry(&self, lid: usize, frame: u32) {
        self.push(Change::Message(Message::Entry(lid, frame)));
    }

    fn set_read_version(&self, version: u64) {
        self.push(Change::Message(Message::Version(version)));
    }
}

/// How messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// Each at once, in the order of the changes.
    AtOnce,
    /// Versions and asks together at multiples of this time in nanoseconds, entries at once.
    VersionsBatched(u32),
    /// All together at multiples of this time. Broken: a card that finds a new sibling in memory may not know its frame.
    AllBatched(u32),
    /// The version of a write before its entries. Broken: a request may have a version that the page table does not show.
    VersionFirst,
}

/// The host: its memory, and what is on the way to the card.
#[derive(Debug)]
pub(super) struct Host<'s> {
    store: &'s OrderedStore,
    session: Session<'s>,
    window: Option<Window<'s>>,
    recorder: Arc<Recorder>,
    sending: Sending,
    memory: Vec<u8>,
    /// The time of the last change.
    at: Time,
    /// Changes of memory and the times at which they are made.
    changes: VecDeque<(Time, usize, Vec<u8>)>,
    /// Entries, and then other messages, on the way. Each of the two arrives in its order, and no version before an entry
    /// that was sent before it.
    messages: [VecDeque<OnTheWay>; 2],
    /// Asks of writers that were sent.
    asked: u64,
    /// The version of the last write, and the time at which it arrives.
    version: u64,
    arrival: Time,
    /// Every write that had an effect, with its version.
    writes: Vec<(u64, Write)>,
}

/// A message on the way to the card.
#[derive(Clone, Copy, Debug)]
struct OnTheWay {
    sent: Time,
    arrival: Time,
    message: Message,
}

/// A write that was executed and not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// The version that readers need to see it.
    pub(super) version: u64,
    /// The time at which the card has that version: then the write is answered.
    pub(super) arrival: Time,
}

/// Makes a store whose changes are recorded.
pub(super) fn recorded_store(log_block_size: usize) -> (OrderedStore, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let log_block = LogBlock::new(log_block_size, LogBlock::ENTRY_COUNT_MAX).expect("a log block has a largest size");
    let settings = OrderedSettings { log_block, ..OrderedSettings::new(REGION_SIZE) };
    let store = observed(&settings, Arc::clone(&recorder) as Arc<dyn Observer>).expect("the region is reserved");
    (store, recorder)
}

impl<'s> Host<'s> {
    /// Returns the host of a store.
    pub(super) fn new(store: &'s OrderedStore, recorder: Arc<Recorder>, sending: Sending) -> Self {
        Host {
            store,
            session: store.session().expect("there is one"),
            window: None,
            recorder,
            sending,
            memory: Vec::new(),
            at: Time::ZERO,
            changes: VecDeque::new(),
            messages: Default::default(),
            asked: 0,
            version: 0,
            arrival: Time::ZERO,
            writes: Vec::new(),
        }
    }

    /// Keeps memory that requests of the card may reach, from now on.
    pub(super) fn open_window(&mut self) {
        self.window = self.store.open_window();
    }

    /// Executes a write that begins now.
    pub(super) fn write(&mut self, write: Write, now: Time, random: &mut Xoshiro256PlusPlus) -> Sent {
        let reply = match &write.value {
            Some(value) => self.session.put(&write.key, value, PutCondition::Always),
            None => self.session.delete(&write.key),
        };
        assert!(matches!(reply, Reply::Done | Reply::NotFound), "there is room: {reply:?}");
        let mut changes = std::mem::take(&mut *self.recorder.0.lock().expect("no thread panicked while it recorded"));
        if let Some(asked) = self.window.as_ref().map(Window::asked).filter(|asked| *asked > self.asked) {
            self.asked = asked;
            changes.push(Change::Message(Message::Ask(asked)));
        }
        if self.sending == Sending::VersionFirst {
            changes.sort_by_key(|change| !matches!(change, Change::Message(Message::Version(_))));
        }
        let version = changes.iter().filter_map(|change| match change {
            Change::Message(Message::Version(version)) => Some(*version),
            _ => None,
        });
        // A write without an effect has seen a version that has perhaps not arrived yet.
        let version = version.max().unwrap_or(self.version);
        self.version = version;
        if reply == Reply::Done {
            self.writes.push((version, write));
        }
        self.arrival = self.arrival.max(now).max(self.send(changes, now, random));
        Sent { version, arrival: self.arrival }
    }

    /// Makes the changes one after the other, and sends the messages. Returns the time at which the version arrives.
    fn send(&mut self, changes: Vec<Change>, now: Time, random: &mut Xoshiro256PlusPlus) -> Time {
        let mut at = now.max(self.at);
        let mut answered = now;
        for change in changes {
            let is_stopped = random.random_range(0..STOPS) == 0;
            at = at + Time::from_ns(random.random_range(1.0..if is_stopped { STOP_NS_MAX } else { CHANGE_NS_MAX }));
            match change {
                Change::Bytes(offset, bytes) => self.changes.push_back((at, offset, bytes)),
                Change::Message(message) => {
                    let arrival = self.post(message, at, random);
                    if let Message::Version(_) = message {
                        answered = arrival;
                    }
                }
            }
        }
        self.at = at;
        answered
    }

    /// Sends a message. Returns the time at which it arrives.
    fn post(&mut self, message: Message, at: Time, random: &mut Xoshiro256PlusPlus) -> Time {
        let is_entry = matches!(message, Message::Entry(..));
        let sent = match self.sending {
            Sending::AtOnce | Sending::VersionFirst => at,
            Sending::VersionsBatched(_) if is_entry => at,
            Sending::VersionsBatched(batch_ns) | Sending::AllBatched(batch_ns) => {
                at.next_edge(Time::from_ns(batch_ns.into()))
            }
        };
        let latency = Time::from_ns(random.random_range(MESSAGE_NS));
        let before = self.messages.iter().filter_map(VecDeque::back).filter(|before| before.sent <= sent);
        let arrival = before.map(|before| before.arrival).fold(sent + latency, Time::max);
        self.messages[usize::from(!is_entry)].push_back(OnTheWay { sent, arrival, message });
        arrival
    }

    /// Makes the changes of memory that are due, and returns the messages that have arrived.
    pub(super) fn advance_to(&mut self, now: Time) -> Vec<Message> {
        while let Some((_, offset, bytes)) = self.changes.pop_front_if(|change| change.0 <= now) {
            self.memory.resize(self.memory.len().max(offset + bytes.len()), 0);
            self.memory[offset..][..bytes.len()].copy_from_slice(&bytes);
        }
        let mut arrived = Vec::new();
        for messages in &mut self.messages {
            while let Some(message) = messages.pop_front_if(|message| message.arrival <= now) {
                arrived.push(message);
            }
        }
        arrived.sort_by_key(|message| message.arrival);
        arrived.iter().map(|message| message.message).collect()
    }

    /// Returns the time before which a read that memory serves now does not complete: no completion passes a message that
    /// was sent before it (PCI Express, transaction ordering).
    pub(super) fn completes_after(&self, now: Time) -> Time {
        let sent = |messages: &VecDeque<OnTheWay>| messages.partition_point(|message| message.sent <= now);
        let last =
            |messages: &VecDeque<OnTheWay>| messages.get(sent(messages).checked_sub(1)?).map(|last| last.arrival);
        self.messages.iter().filter_map(last).fold(now, Time::max)
    }

    /// Copies bytes of a frame, as the links read them now. Bytes that were never written are zero.
    pub(super) fn read(&self, frame: u32, bytes: std::ops::Range<usize>) -> Vec<u8> {
        let start = frame as usize * UNIT_SIZE;
        let memory = self.memory.get(start + bytes.start..).unwrap_or(&[]);
        let mut copy = memory[..bytes.len().min(memory.len())].to_vec();
        copy.resize(bytes.len(), 0);
        copy
    }

    /// Passes the asks of writers up to this one.
    pub(super) fn pass(&self, ask: u64) {
        if let Some(window) = &self.window {
            window.pass(ask);
        }
    }

    /// Returns every write that had an effect, with its version, in order.
    pub(super) fn into_writes(self) -> Vec<(u64, Write)> {
        self.writes
    }
}
