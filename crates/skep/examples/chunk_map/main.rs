//! The chunk map of a file system, as an ordered space (Honeycomb, section 6.2).
//!
//! ```text
//! cargo run --release --example chunk_map -- DIRECTORY
//! ```
//!
//! The files of the directory are cut into chunks of different sizes, which are values of the hash space. The map says
//! which chunks a file has:
//!
//! ```text
//! key     | file, u64 | offset of the chunk in the file, u64 |      big-endian: the order of keys is that of offsets
//! value   | number of the chunk, u64 | its first byte, u32 | bytes, u32 |
//! ```
//!
//! A client that wants some bytes of a file knows their offset, and no chunk begins there. So it scans from the floor of
//! (file, offset) to the last byte that it wants: one operation returns all chunks that have the bytes, and no others.
//! A write cuts the chunk where it begins and where it ends, and changes these pairs alone.
//!
//! Without the order, the map of a file is one value. A read gets all of it. A write gets it, and sets it again if it has
//! not changed. The bytes that both read are compared with the files.

#[path = "../application/mod.rs"]
mod application;
mod piece;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use application::{CountingClient, Options, Target, measure, on_threads, print_costs, put, unexpected};
use clap::Parser;
use piece::{Piece, decode_table, encode_table, overlap, replaced};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep::{
    HASH_SPACE, ORDERED_SPACE, Operation, Page, PutCondition, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease,
    ScanStart, StringRead,
};

/// Reads parts of files through a chunk map in a Skep server.
#[derive(Parser)]
struct Arguments {
    /// Its files are read, and those below it.
    directory: PathBuf,
    /// The most bytes of all files.
    #[arg(long, default_value_t = 32 << 20)]
    bytes: usize,
    /// The mean size of a chunk.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    chunk: u32,
    /// Reads of each client.
    #[arg(long, default_value_t = 5_000)]
    reads: usize,
    /// Writes of each client.
    #[arg(long, default_value_t = 500)]
    writes: usize,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    application::exit("chunk_map", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let mut files = Vec::new();
    read_files(&arguments.directory, arguments.bytes, &mut files)?;
    if files.is_empty() {
        return Err(format!("{} has no files with content", arguments.directory.display()));
    }
    let target = Target::open(&arguments.options)?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut data = target.client(HASH_SPACE)?;
    let mut chunks = 0;
    let mut maps: Vec<Vec<Piece>> = Vec::new();
    for file in &files {
        maps.push(Vec::new());
        let mut offset = 0;
        while offset < file.len() {
            let size = random.random_range(1..2 * arguments.chunk as usize).min(file.len() - offset);
            put(&mut data, &target.key(format!("chunk:{chunks}")), &file[offset..offset + size])?;
            let piece = Piece { offset: offset as u64, chunk: chunks, skip: 0, size: size as u32 };
            maps.last_mut().expect("a map was pushed").push(piece);
            (offset, chunks) = (offset + size, chunks + 1);
        }
    }
    let bytes: usize = files.iter().map(Vec::len).sum();
    println!("{} files of {bytes} bytes, {chunks} chunks", files.len());
    let mut costs = Vec::new();
    for (way, space) in [(Way::Scan, ORDERED_SPACE), (Way::Table, HASH_SPACE)] {
        let mut clients = target.clients(&arguments.options, space)?;
        let job = Job { target: &target, way, files: &files, arguments };
        maps.iter().enumerate().try_for_each(|(file, map)| job.set_map(&mut clients[0], file, map))?;
        let (_, cost) = measure(&mut clients, |clients| on_threads(clients, |number, client| job.run(client, number)))?;
        let operations = clients.len() * (arguments.reads + arguments.writes);
        println!("{way:?}: {:.0} bytes of the map for a read or a write", cost.bytes() as f64 / operations as f64);
        costs.push(cost);
    }
    println!("exact: all bytes that were read are those of the files; the traffic is that of the map");
    print_costs(["scan from a floor", "table of a file"], [costs[0], costs[1]]);
    Ok(())
}

/// Reads the files of a directory and of those below it, until they have this many bytes.
fn read_files(directory: &Path, bytes: usize, files: &mut Vec<Vec<u8>>) -> Result<(), String> {
    let fault = |error| format!("cannot read {}: {error}", directory.display());
    let mut entries = fs::read_dir(directory).map_err(fault)?.collect::<Result<Vec<_>, _>>().map_err(fault)?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let kind = entry.file_type().map_err(fault)?;
        let left = bytes - files.iter().map(Vec::len).sum::<usize>();
        if kind.is_dir() {
            read_files(&entry.path(), bytes, files)?;
        } else if kind.is_file() && left > 0 {
            // A file that cannot be read is left out, and the map of a long one is short enough for a value.
            let mut content = fs::read(entry.path()).unwrap_or_default();
            content.truncate(left.min(FILE_SIZE_MAX));
            files.extend((!content.is_empty()).then_some(content));
        }
    }
    Ok(())
}

const FILE_SIZE_MAX: usize = 2 << 20;

/// The form of the map.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// A pair for each piece, found by a scan from the floor.
    Scan,
    /// A value for each file.
    Table,
}

struct Job<'j> {
    target: &'j Target,
    way: Way,
    files: &'j [Vec<u8>],
    arguments: &'j Arguments,
}

impl Job<'_> {
    /// Returns the key of a piece.
    fn key(&self, file: usize, offset: u64) -> Vec<u8> {
        [&self.target.key("map:")[..], &(file as u64).to_be_bytes(), &offset.to_be_bytes()].concat()
    }

    fn table_key(&self, file: usize) -> Vec<u8> {
        self.target.key(format!("table:{file}"))
    }

    fn set_map(&self, client: &mut CountingClient, file: usize, map: &[Piece]) -> Result<(), String> {
        match self.way {
            Way::Scan => map.iter().try_for_each(|piece| put(client, &self.key(file, piece.offset), &piece.encode())),
            Way::Table => put(client, &self.table_key(file), &encode_table(map)),
        }
    }

    /// Returns the pieces that have bytes of a range, in order.
    fn find(&self, client: &mut CountingClient, file: usize, range: Range<u64>) -> Result<Vec<Piece>, String> {
        if let Way::Table = self.way {
            let table = decode_table(&client.value(&self.table_key(file), Operation::Get)?)?;
            return Ok(table[overlap(&table, &range)].to_vec());
        }
        let end = self.key(file, range.end);
        let scan = Scan {
            start: ScanStart::Floor,
            end: ScanEnd::Below(&end),
            reverse: false,
            limit: u32::MAX,
            answer: ScanAnswer::Pairs,
            lease: ScanLease::None,
        };
        let bytes = client.value(&self.key(file, range.start), Operation::Scan(scan))?;
        let page = Page::decode(&bytes).filter(|page| !page.more()).ok_or("a page does not have the whole range")?;
        let piece = |(key, value): (&[u8], &[u8])| Piece::decode(&key[key.len() - 8..], value);
        page.pairs().map(piece).collect::<Option<Vec<_>>>().ok_or("the map has another form".to_owned())
    }

    /// Replaces the pieces of a range. No other client writes to the file.
    fn write(&self, client: &mut CountingClient, file: usize, range: Range<u64>, chunk: u64) -> Result<(), String> {
        if let Way::Table = self.way {
            return client.get_compute_set(&[&self.table_key(file)], |_, bytes| {
                let mut table = decode_table(bytes.unwrap_or_default())?;
                let old = overlap(&table, &range);
                let new = replaced(&table[old.clone()], range.clone(), chunk);
                table.splice(old, new);
                Ok(encode_table(&table))
            });
        }
        let old = self.find(client, file, range.clone())?;
        let new = replaced(&old, range, chunk);
        let is_left = |piece: &&Piece| new.iter().all(|other| other.offset != piece.offset);
        let gone: Vec<_> = old.iter().filter(is_left).map(|piece| self.key(file, piece.offset)).collect();
        let new: Vec<_> = new.iter().map(|piece| (self.key(file, piece.offset), piece.encode())).collect();
        let put = |value| Operation::Put { value, condition: PutCondition::Always };
        let puts = new.iter().map(|(key, value)| Request { key, operation: put(value) });
        let deletes = gone.iter().map(|key| Request { key, operation: Operation::Delete });
        client.done(&puts.chain(deletes).collect::<Vec<_>>())
    }

    /// Reads and writes the files of a client, and compares all bytes with those of its own copy.
    fn run(&self, client: &mut CountingClient, number: usize) -> Result<(), String> {
        let mut data = self.target.client(HASH_SPACE)?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(number as u64);
        let count = usize::from(self.arguments.options.clients);
        let mut own: Vec<_> =
            (number..self.files.len()).step_by(count).map(|file| (file, self.files[file].clone())).collect();
        let (mut reads, mut writes) = (self.arguments.reads, self.arguments.writes);
        while reads + writes > 0 && !own.is_empty() {
            let index = random.random_range(0..own.len());
            let (file, content) = &mut own[index];
            let begin = random.random_range(0..content.len());
            let end = content.len().min(begin + random.random_range(1..=4 * self.arguments.chunk as usize));
            let range = begin as u64..end as u64;
            if random.random_range(0..reads + writes) < reads {
                reads -= 1;
                let pieces = self.find(client, *file, range.clone())?;
                self.compare(&mut data, &pieces, range, &content[begin..end])?;
            } else {
                writes -= 1;
                content[begin..end].iter_mut().for_each(|byte| *byte = random.random());
                // No other chunk has this number.
                let chunk = (number as u64 + 1) << 32 | writes as u64;
                put(&mut data, &self.chunk_key(chunk), &content[begin..end])?;
                self.write(client, *file, range, chunk)?;
            }
        }
        Ok(())
    }

    fn chunk_key(&self, chunk: u64) -> Vec<u8> {
        self.target.key(format!("chunk:{chunk}"))
    }

    /// Reads the bytes of a range from its pieces, and compares them.
    fn compare(
        &self,
        data: &mut CountingClient,
        pieces: &[Piece],
        range: Range<u64>,
        expected: &[u8],
    ) -> Result<(), String> {
        let keys: Vec<_> = pieces.iter().map(|piece| self.chunk_key(piece.chunk)).collect();
        let reads = pieces.iter().zip(&keys).map(|(piece, key)| {
            let (begin, end) = (range.start.max(piece.offset), range.end.min(piece.end()));
            let of_chunk = |offset: u64| (offset - piece.offset) as i64 + i64::from(piece.skip);
            let slice = StringRead::Slice { start: of_chunk(begin), end: of_chunk(end) - 1 };
            Request { key, operation: Operation::StringRead(slice) }
        });
        let mut found = Vec::with_capacity(expected.len());
        data.execute(&reads.collect::<Vec<_>>(), |_, reply| {
            let Reply::Value(bytes) = reply else { return Err(unexpected(reply)) };
            found.extend_from_slice(bytes);
            Ok(())
        })?;
        if found == expected { Ok(()) } else { Err(format!("bytes {range:?} of a file differ from those written")) }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Arguments, run};

    #[test]
    fn files_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("below")).unwrap();
        for (name, size) in [("a", 1), ("b", 70_000), ("below/c", 5_000), ("empty", 0)] {
            let content: Vec<u8> = (0..size).map(|number: u32| (number % 251) as u8).collect();
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        for clients in ["1", "4"] {
            let settings = ["--clients", clients, "--chunk", "100", "--reads", "300", "--writes", "300"];
            let arguments = ["chunk_map", folder.path().to_str().unwrap()].into_iter().chain(settings);
            assert_eq!(run(&Arguments::parse_from(arguments)), Ok(()), "{clients} clients");
        }
    }
}
