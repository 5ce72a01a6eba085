//! The reader as a value: it finds what the store's own GETs and scans find, from copies of the blocks that it names.
//!
//! ```text
//! store ── bytes that writers have changed, page table ──▶ image
//! reader ── wants a block ──▶ image ── copy ──▶ reader
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::PutCondition;
use skep_store::counted::ordered::{
    Block, Content, End, FoundPair, FrameBuffer, Inconsistent, LogBlock, OrderedSettings, OrderedStore, Range, Reader,
    Session, Start,
};
use skep_store::counted::{Observer, observed};

/// Bytes of an allocation unit, which frames count.
const UNIT_SIZE: usize = 512;

/// A copy of the store's memory, as its writers report it.
#[derive(Clone, Debug, Default)]
struct Memory {
    bytes: Vec<u8>,
    page_table: BTreeMap<usize, u32>,
    read_version: u64,
}

#[derive(Debug, Default)]
struct Image {
    memory: Mutex<Memory>,
    reads: Mutex<Reads>,
}

/// What the store itself has read.
#[derive(Debug, Default)]
struct Reads {
    /// LIDs whose entries were read.
    entries: Vec<usize>,
    /// Offsets and sizes of bytes, also those of the page table.
    bytes: Vec<(usize, usize)>,
}

impl Observer for Image {
    fn touch(&self, offset: usize, size: usize) {
        self.reads.lock().unwrap().bytes.push((offset, size));
    }

    fn enter_node(&self, lid: usize) {
        let reads = &mut *self.reads.lock().unwrap();
        // The read of the entry itself.
        reads.bytes.pop();
        reads.entries.push(lid);
    }

    fn wrote(&self, offset: usize, bytes: &[u8]) {
        let memory = &mut self.memory.lock().unwrap().bytes;
        memory.resize(memory.len().max(offset + bytes.len()), 0);
        memory[offset..][..bytes.len()].copy_from_slice(bytes);
    }

    fn set_entry(&self, lid: usize, frame: u32) {
        self.memory.lock().unwrap().page_table.insert(lid, frame);
    }

    fn set_read_version(&self, version: u64) {
        let memory = &mut *self.memory.lock().unwrap();
        memory.read_version = memory.read_version.max(version);
    }
}

impl Image {
    fn take_reads(&self) -> Reads {
        std::mem::take(&mut self.reads.lock().unwrap())
    }
}

/// Checks that a reader wants the entries that the store reads, and blocks that have all bytes that the store reads.
fn check_reads(reads: &Reads, blocks: &[Block]) {
    let entries = blocks.iter().filter(|block| block.content == Content::Entry).map(|block| block.lid);
    // The store reads an overflow value before the next pair, the reader after the segment.
    let (mut expected, mut entries) = (reads.entries.clone(), entries.collect::<Vec<_>>());
    expected.sort_unstable();
    entries.sort_unstable();
    assert_eq!(entries, expected);
    for (offset, size) in &reads.bytes {
        let has_them = blocks.iter().any(|block| {
            let start = block.frame as usize * UNIT_SIZE;
            start + block.bytes.start <= *offset && offset + size <= start + block.bytes.end
        });
        assert!(has_them, "{size} bytes at {offset} are in none of {blocks:?}");
    }
}

impl Memory {
    /// Returns the frame that an entry names, or the bytes of another block.
    fn serve(&self, block: &Block) -> (u32, &[u8]) {
        if block.content == Content::Entry {
            return (self.page_table.get(&block.lid).copied().unwrap_or(0), &[]);
        }
        let start = block.frame as usize * UNIT_SIZE + block.bytes.start;
        (block.frame, self.bytes.get(start..start + block.bytes.len()).unwrap_or(&[]))
    }
}

/// Serves a reader from one memory until it has ended. Returns what it has found, and the blocks that it wanted.
fn finish(mut reader: Reader<'_>, memory: &Memory) -> Result<(Vec<FoundPair>, Vec<Block>), Inconsistent> {
    let mut blocks = Vec::new();
    while let Some(block) = reader.wants() {
        let (frame, bytes) = memory.serve(&block);
        reader.give(frame, bytes)?;
        blocks.push(block);
    }
    Ok((reader.pairs().to_vec(), blocks))
}

fn store(image: &Arc<Image>, log_block: LogBlock) -> OrderedStore {
    let settings = OrderedSettings { log_block, ..OrderedSettings::new(32 << 20) };
    observed(&settings, Arc::clone(image) as Arc<dyn Observer>).unwrap()
}

fn pairs_of(session: &mut Session<'_>, range: Range<'_>) -> Vec<FoundPair> {
    let mut pairs = Vec::new();
    session.scan(range, |key, value| {
        pairs.push(FoundPair { key: key.to_vec(), value: value.to_vec() });
        true
    });
    pairs
}

/// Keys of all forms: numbers, shared prefixes, very short and very long ones.
fn key(random: &mut Xoshiro256PlusPlus, count: u32) -> Vec<u8> {
    let number = random.random_range(0..count);
    match number % 4 {
        0 => number.to_be_bytes().to_vec(),
        1 => format!("user:{number}").into_bytes(),
        2 => [&[b'k'; 100][..], &number.to_be_bytes()].concat(),
        _ => number.to_le_bytes()[..1 + number as usize % 4].to_vec(),
    }
}

fn value(random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let size = match random.random_range(0..40) {
        0 => random.random_range(470..20_000),
        1..=4 => random.random_range(0..400),
        _ => 16,
    };
    vec![random.random(); size]
}

fn range<'k>(random: &mut Xoshiro256PlusPlus, low: &'k [u8], high: &'k [u8]) -> Range<'k> {
    let start = match random.random_range(0..6) {
        0 => Start::First,
        1 => Start::AtOrAbove(low),
        2 => Start::Above(low),
        _ => Start::Floor(low),
    };
    let end = match random.random_range(0..6) {
        0 => End::AtOrBelow(high),
        1 => End::Below(high),
        2 => End::Prefix(&high[..high.len().min(2)]),
        _ => End::Last,
    };
    Range::new(start, end).limit([0, 1, 3, 24, 300][random.random_range(0..5)])
}

#[test]
fn a_reader_finds_what_the_store_finds() {
    for (seed, log_block) in [(1, LogBlock::default()), (2, LogBlock::new(64, 16).unwrap()), (3, LogBlock::default())] {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let image = Arc::new(Image::default());
        let (store, mut buffer) = (store(&image, log_block), FrameBuffer::new().unwrap());
        let mut session = store.session().unwrap();
        let (mut now, mut contents) = (1, [0_usize; 7]);
        for round in 0..6000 {
            let own = key(&mut random, 4000);
            // Deletes gain at the end, so that leaves are joined and floors are far to the left.
            let deletes = if round > 4500 { 8 } else { 2 };
            if random.random_range(0..10) < deletes {
                session.delete(&own);
            } else {
                session.put(&own, &value(&mut random), PutCondition::Always);
            }
            if round % 3 != 0 {
                continue;
            }
            now += 1;
            let (low, high) = (key(&mut random, 4000), key(&mut random, 4000));
            let range = range(&mut random, &low, &high);
            let memory = &*image.memory.lock().unwrap();
            assert_eq!(memory.read_version, store.read_version());
            let version = memory.read_version;
            let (found, blocks) = finish(Reader::scan(&mut buffer, range, version, now), memory).unwrap();
            blocks.iter().for_each(|block| contents[block.content as usize] += 1);
            image.take_reads();
            assert_eq!(found, pairs_of(&mut session, range), "seed {seed}, round {round}: {range:?}");
            // The store searches for a floor to the left without leaving the leaf of the start.
            if !matches!(range.start, Start::Floor(_)) && range.limit > 0 {
                check_reads(&image.take_reads(), &blocks);
            }
            let mut expected = Vec::new();
            image.take_reads();
            let exists = session.get(&low, &mut expected);
            let (found, blocks) = finish(Reader::get(&mut buffer, &low, version, now), memory).unwrap();
            check_reads(&image.take_reads(), &blocks);
            let found = found.first().map(|pair| pair.value.clone());
            assert_eq!(found, exists.then_some(expected), "seed {seed}, round {round}: {low:x?}");
        }
        let is_wanted = |content: Content| contents[content as usize] > 0;
        let has_log = log_block != LogBlock::new(64, 16).unwrap();
        assert!(is_wanted(Content::Part) && is_wanted(Content::Children) && is_wanted(Content::Log) == has_log);
    }
}

/// Interleaves a reader with writes: before each block, writers change the store.
#[test]
fn a_reader_sees_its_version_while_the_store_changes() {
    let mut older = 0;
    for (seed, log_block) in [(1, LogBlock::new(64, 16).unwrap()), (2, LogBlock::default())] {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let image = Arc::new(Image::default());
        let (store, mut buffer) = (store(&image, log_block), FrameBuffer::new().unwrap());
        let (mut session, window) = (store.session().unwrap(), store.open_window().unwrap());
        assert!(store.open_window().is_none());
        let mut map = BTreeMap::new();
        let change =
            |random: &mut Xoshiro256PlusPlus, map: &mut BTreeMap<Vec<u8>, Vec<u8>>, session: &mut Session<'_>| {
                let (own, is_delete) = (key(random, 3000), random.random_range(0..10) < 4);
                if is_delete {
                    session.delete(&own);
                    map.remove(&own);
                } else {
                    let value = value(random);
                    session.put(&own, &value, PutCondition::Always);
                    map.insert(own, value);
                }
            };
        for round in 0..1500 {
            change(&mut random, &mut map, &mut session);
            let (low, high) = (key(&mut random, 3000), key(&mut random, 3000));
            let range = range(&mut random, &low, &high);
            let (version, expected) = (image.memory.lock().unwrap().read_version, pairs_of(&mut session, range));
            let mut reader = Reader::scan(&mut buffer, range, version, 0);
            while let Some(block) = reader.wants() {
                if reader.pairs().len() < 40 {
                    (0..random.random_range(0..12)).for_each(|_| change(&mut random, &mut map, &mut session));
                }
                older += u32::from(block.content == Content::Older);
                let memory = image.memory.lock().unwrap();
                let (frame, bytes) = memory.serve(&block);
                assert_eq!(reader.give(frame, bytes), Ok(()), "seed {seed}, round {round}: {block:?} as of {version}");
            }
            assert_eq!(reader.pairs(), expected, "seed {seed}, round {round}: {range:?} as of {version}");
            window.pass(window.asked());
        }
    }
    assert!(older > 1000, "{older} old frames were read");
}

/// Serves blocks of other frames, of other offsets, and random bytes.
#[test]
fn inconsistent_blocks_give_a_wrong_result_or_an_error() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let image = Arc::new(Image::default());
    let (store, mut buffer) = (store(&image, LogBlock::default()), FrameBuffer::new().unwrap());
    let mut session = store.session().unwrap();
    for _ in 0..6000 {
        session.put(&key(&mut random, 8000), &value(&mut random), PutCondition::Always);
    }
    let memory = image.memory.lock().unwrap().clone();
    let frames: Vec<u32> = memory.page_table.values().copied().collect();
    let (mut refused, mut ended) = (0, 0);
    for round in 0..20_000 {
        let (low, high) = (key(&mut random, 8000), key(&mut random, 8000));
        let range = range(&mut random, &low, &high);
        let mut reader = match round % 3 {
            0 => Reader::get(&mut buffer, &low, memory.read_version, 0),
            _ => Reader::scan(&mut buffer, range, memory.read_version, 0),
        };
        let mut blocks = 0;
        let outcome = loop {
            let Some(mut block) = reader.wants().filter(|_| blocks < 500) else { break Ok(()) };
            blocks += 1;
            if block.content != Content::Entry && random.random_range(0..6) == 0 {
                block.frame = frames[random.random_range(0..frames.len())];
            }
            let (frame, bytes) = memory.serve(&block);
            let mut bytes = bytes.to_vec();
            match random.random_range(0..12) {
                0 if !bytes.is_empty() => {
                    let index = random.random_range(0..bytes.len());
                    bytes[index] = random.random();
                }
                1 => bytes.iter_mut().for_each(|byte| *byte = random.random()),
                2 if random.random_range(0..8) == 0 => bytes.truncate(bytes.len() / 2),
                _ => {}
            }
            if let Err(error) = reader.give(frame, &bytes) {
                break Err(error);
            }
        };
        match outcome {
            Ok(()) => ended += 1,
            Err(Inconsistent) => refused += 1,
        }
    }
    assert!(refused > 1000 && ended > 1000, "{refused} were refused, {ended} have ended");
}
