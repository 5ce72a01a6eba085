//! Counts the words of text files in a Skep server, from several clients at once.
//!
//! ```text
//! cargo run --release -- serve                                        # in one terminal
//! cargo run --release --example word_count -- FILE…                   # in another
//! ```
//!
//! Each word becomes one fetch-and-add on the counter of that word. The program sends them in batches and does not add
//! up words beforehand. Then it reads the counters back and compares them with its own count. A word is a sequence of
//! ASCII letters, ASCII digits and bytes beyond ASCII, in lower case.
//!
//! All keys of a run begin with its own prefix, so that runs do not interfere. The run deletes them at its end.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::ExitCode;
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use skep::limits::KEY_SIZE_MAX;
use skep::{Client, ClientError, Element, Operation, Reply, Request, Responses, Shape, Update, UpdateFunction};

/// Counts the words of text files in a Skep server.
#[derive(Parser)]
struct Arguments {
    /// Native address of the server.
    #[arg(long, default_value = "127.0.0.1:7379")]
    addr: String,
    /// Clients that count concurrently.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: u16,
    /// Operations sent together.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..=16_384))]
    batch: u16,
    /// Text files.
    files: Vec<std::path::PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("word_count: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    if arguments.files.is_empty() {
        return Err("no text files given: run cargo run --release --example word_count -- FILE...".to_owned());
    }
    let mut text = Vec::new();
    for file in &arguments.files {
        let bytes = std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        text.extend_from_slice(&bytes);
        // The last word of a file and the first of the next are two words.
        text.push(b'\n');
    }
    text.make_ascii_lowercase();
    let mut expected: HashMap<&[u8], u64> = HashMap::new();
    for word in words(&text) {
        *expected.entry(word).or_default() += 1;
    }
    let word_count: u64 = expected.values().sum();
    println!("{} files, {} bytes, {word_count} words, {} different", arguments.files.len(), text.len(), expected.len());

    let keys = Keys::of_this_run();
    let batch = usize::from(arguments.batch);
    let pieces = pieces(&text, usize::from(arguments.clients));
    let clients = pieces.iter().map(|_| connect(&arguments.addr)).collect::<Result<Vec<_>, _>>()?;
    let begun = Instant::now();
    thread::scope(|scope| {
        let counters: Vec<_> = clients
            .into_iter()
            .zip(&pieces)
            .map(|(mut client, piece)| {
                let keys = &keys;
                scope.spawn(move || count(&mut client, keys, piece, batch))
            })
            .collect();
        counters.into_iter().try_for_each(|counter| counter.join().expect("a counting thread does not panic"))
    })?;
    let seconds = begun.elapsed().as_secs_f64();

    let mut client = connect(&arguments.addr)?;
    let different: Vec<_> = expected.keys().copied().collect();
    let counts = read_back(&mut client, &keys, &different, batch)?;
    let wrong = different.iter().zip(&counts).filter(|(word, count)| expected[*word] != **count).count();

    let mut top: Vec<_> = counts.iter().zip(&different).collect();
    top.sort_unstable_by(|(a, word_a), (b, word_b)| b.cmp(a).then(word_a.cmp(word_b)));
    for (count, word) in top.iter().take(10) {
        println!("{count:>10}  {}", String::from_utf8_lossy(&word[..word.len().min(60)]));
    }
    println!(
        "{word_count} fetch-and-adds from {} clients in {seconds:.2} s: {:.0} a second",
        pieces.len(),
        word_count as f64 / seconds
    );
    if wrong > 0 {
        return Err(format!("{wrong} of {} words differ from the local count", different.len()));
    }
    delete(&mut client, &keys, &different, batch)?;
    println!("exact: all {} counts are those of a local count", different.len());
    Ok(())
}

fn connect(address: &str) -> Result<Client, String> {
    Client::connect(address, skep::HASH_SPACE).map_err(|error| match error {
        ClientError::Connect { source, .. } => format!(
            "no server replies at {address}: {source}: start one with `cargo run --release -- serve`, or name its native \
             address with --addr"
        ),
        error => error.to_string(),
    })
}

/// Returns the words of a text in lower case.
fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| !is_of_word(*byte)).filter(|word| !word.is_empty())
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || !byte.is_ascii()
}

/// Cuts a text between words into at most `count` pieces of about the same size.
fn pieces(text: &[u8], count: usize) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    let mut rest = text;
    for left in (1..=count).rev() {
        let wanted = rest.len() / left;
        let end = rest[wanted..].iter().position(|byte| !is_of_word(*byte)).map_or(rest.len(), |more| wanted + more);
        let (piece, after) = rest.split_at(if left == 1 { rest.len() } else { end });
        pieces.push(piece);
        rest = after;
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// The keys of one run.
struct Keys {
    prefix: String,
}

impl Keys {
    fn of_this_run() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        Keys { prefix: format!("words:{:x}:{:x}:", std::process::id(), now) }
    }

    /// Appends the key of a word. The key of a long word consists of its beginning and two hashes.
    fn append(&self, word: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix.as_bytes());
        if self.prefix.len() + word.len() <= KEY_SIZE_MAX {
            out.extend_from_slice(word);
            return;
        }
        let hash = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, word).hash(&mut hasher);
            hasher.finish()
        };
        // No word contains a blank, so this key differs from those of all short words.
        let digest = format!(" {:016x}{:016x}", hash(0), hash(1));
        let beginning = KEY_SIZE_MAX - self.prefix.len() - digest.len();
        out.extend_from_slice(&word[..beginning]);
        out.extend_from_slice(digest.as_bytes());
    }
}

/// Sends one operation for each word, in batches of `batch`. Calls `on_reply` with every reply, in order.
fn for_each_word<'a>(
    client: &mut Client,
    keys: &Keys,
    words: impl Iterator<Item = &'a [u8]>,
    batch: usize,
    operation: Operation<'_>,
    mut on_reply: impl FnMut(Reply<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let mut words = words.peekable();
    let mut bytes = Vec::new();
    let mut replies = Responses::default();
    while words.peek().is_some() {
        bytes.clear();
        let ends: Vec<_> = words
            .by_ref()
            .take(batch)
            .map(|word| {
                keys.append(word, &mut bytes);
                bytes.len()
            })
            .collect();
        let mut start = 0;
        let requests: Vec<_> = ends
            .iter()
            .map(|&end| {
                let key = &bytes[start..end];
                start = end;
                Request { key, operation }
            })
            .collect();
        client.execute(&requests, &mut replies).map_err(|error| error.to_string())?;
        for reply in replies.iter() {
            on_reply(reply.map_err(|error| error.to_string())?)?;
        }
    }
    Ok(())
}

fn unexpected(reply: Reply<'_>) -> String {
    match reply {
        Reply::Failed(error) => format!("the server replied: {error}"),
        reply => format!("the server sent a reply to another request: {reply:?}"),
    }
}

/// Adds one to the counter of every word of the piece.
fn count(client: &mut Client, keys: &Keys, piece: &[u8], batch: usize) -> Result<(), String> {
    let add_one = Operation::Update(Update {
        function: UpdateFunction::Add,
        element: Element::U64,
        shape: Shape::ScalarToScalar,
        operand: &1u64.to_le_bytes(),
        initial: Some(&0u64.to_le_bytes()),
        return_old: false,
    });
    for_each_word(client, keys, words(piece), batch, add_one, |reply| match reply {
        Reply::Done => Ok(()),
        reply => Err(unexpected(reply)),
    })
}

/// Returns the counters of the words, in order.
fn read_back(client: &mut Client, keys: &Keys, words: &[&[u8]], batch: usize) -> Result<Vec<u64>, String> {
    let mut counts = Vec::with_capacity(words.len());
    for_each_word(client, keys, words.iter().copied(), batch, Operation::Get, |reply| match reply {
        Reply::Value(value) => {
            let bytes = value.try_into().map_err(|_| format!("a counter has {} bytes", value.len()))?;
            counts.push(u64::from_le_bytes(bytes));
            Ok(())
        }
        reply => Err(unexpected(reply)),
    })?;
    Ok(counts)
}

/// Removes the counters of this run.
fn delete(client: &mut Client, keys: &Keys, words: &[&[u8]], batch: usize) -> Result<(), String> {
    for_each_word(client, keys, words.iter().copied(), batch, Operation::Delete, |reply| match reply {
        Reply::Done => Ok(()),
        reply => Err(unexpected(reply)),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use clap::Parser;
    use skep::{Server, ServerSettings};

    use super::{Arguments, KEY_SIZE_MAX, Keys, pieces, run, words};

    #[test]
    fn pieces_are_cut_between_words() {
        let text = b"one two  three, four five six.";
        for count in 1..40 {
            let pieces = pieces(text, count);
            assert!(pieces.len() <= count);
            assert_eq!(pieces.concat(), text);
            let found: Vec<_> = pieces.iter().flat_map(|piece| words(piece)).collect();
            assert_eq!(found, words(text).collect::<Vec<_>>(), "{count} pieces");
        }
        assert!(pieces(b"", 4).is_empty());
    }

    #[test]
    fn long_words_have_keys_of_their_own() {
        let keys = Keys::of_this_run();
        let long = vec![b'x'; 5000];
        let mut seen = HashSet::new();
        for size in [1, 400, 459, 460, 461, 4999, 5000] {
            let mut key = Vec::new();
            keys.append(&long[..size], &mut key);
            assert!(key.len() <= KEY_SIZE_MAX);
            assert!(seen.insert(key), "{size}");
        }
    }

    #[test]
    fn the_counts_are_exact_run_after_run() {
        let server = Server::start(&ServerSettings {
            native: "127.0.0.1:0".parse().unwrap(),
            resp: None,
            memory: 64 << 20,
            shards: 2,
            ..ServerSettings::default()
        })
        .unwrap();
        let file = std::env::temp_dir().join(format!("skep-word-count-{}", std::process::id()));
        let text: String = (0..20_000).map(|i| format!("the word{} Zwölf ", i % 777)).collect();
        std::fs::write(&file, text + &"y".repeat(3000)).unwrap();
        let (address, path) = (server.native_address().to_string(), file.to_str().unwrap());
        for clients in ["1", "4"] {
            let arguments = ["word_count", "--addr", &address, "--clients", clients, "--batch", "100", path, path];
            assert_eq!(run(&Arguments::parse_from(arguments)), Ok(()), "{clients} clients");
        }
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn without_files_the_error_shows_the_command() {
        assert!(run(&Arguments::parse_from(["word_count"])).unwrap_err().contains("-- FILE..."));
    }

    #[test]
    fn without_a_server_the_error_says_how_to_start_one() {
        let arguments = Arguments::parse_from(["word_count", "--addr", "127.0.0.1:1", env!("CARGO_MANIFEST_PATH")]);
        let message = run(&arguments).unwrap_err();
        assert!(message.contains("127.0.0.1:1") && message.contains("-- serve"), "{message}");
    }
}
