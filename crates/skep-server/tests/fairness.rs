//! Connections that ask for much, beside one that asks for little: the little is not kept waiting until the much is
//! done, whichever budget the much uses up.

mod support;

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use skep_core::function::{Element, Fold};
use skep_core::operation::{Operation, PutCondition, Reduce, Reply, Request};
use skep_server::Server;
use skep_wire::partition::shard_of;
use support::{Native, Resp, command, frame, receive, server};

/// Many replies, asked for in one go on several connections.
struct Greedy<'a> {
    connections: usize,
    shard: u16,
    requests: &'a [Request<'a>],
    /// How often each connection asks for the replies to `requests`.
    frames: usize,
    /// Bytes of a reply, at least.
    reply_size: usize,
}

/// Lets a connection to `shard` ask for a key that does not exist, twenty times, one after the other, while the
/// greedy ones take their replies. Returns how much of those had come when the last of the twenty came, of 1.
fn progress_meanwhile(server: &Server, greedy: &Greedy<'_>, shard: u16, key: &[u8]) -> f64 {
    let arrived = AtomicUsize::new(0);
    let bytes = frame(1, greedy.requests).repeat(greedy.frames);
    let size = greedy.requests.len() * greedy.frames * greedy.reply_size;
    let mut modest = Native::connect(server, Some(shard));
    std::thread::scope(|scope| {
        for _ in 0..greedy.connections {
            let mut reader = Native::connect(server, Some(greedy.shard)).stream;
            let mut writer = reader.try_clone().unwrap();
            let (bytes, arrived) = (&bytes, &arrived);
            scope.spawn(move || writer.write_all(bytes).unwrap());
            scope.spawn(move || {
                let mut piece = vec![0; 1 << 20];
                let mut sum = 0;
                while sum < size {
                    let count = receive(&mut reader, &mut piece).unwrap();
                    assert!(count > 0, "the connection ended");
                    sum += count;
                    arrived.fetch_add(count, Ordering::Relaxed);
                }
            });
        }
        while arrived.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let request = Request { key, operation: Operation::Get };
        for sequence in 0..20 {
            modest.execute(sequence, &[request], |_, response| assert_eq!(response, Ok(Reply::NotFound)));
        }
        let progress = arrived.load(Ordering::Relaxed) as f64 / (greedy.connections * size) as f64;
        println!("{progress}");
        progress
    })
}

/// Returns keys that this shard owns.
fn keys_of(server: &Server, shard: u16) -> Vec<Vec<u8>> {
    let welcome = Native::connect(server, None).welcome;
    let keys = (0..1000_u32).map(|number| number.to_le_bytes().to_vec());
    keys.filter(|key| shard_of(key, welcome.partition_seed, welcome.shard_count) == shard).collect()
}

/// Stores a value of this size.
fn put_large(server: &Server, key: &[u8], size: usize) {
    let put = Operation::Put { value: &vec![7; size], condition: PutCondition::Always };
    Native::connect(server, None).execute(1, &[Request { key, operation: put }], |_, response| {
        assert_eq!(response, Ok(Reply::Done));
    });
}

#[test]
fn large_replies_do_not_keep_small_ones_waiting() {
    let server = server(1, 32 << 20);
    for (connections, reply_size, count, frames) in [(1, 300_000, 3000, 1), (3, 3000, 1000, 100)] {
        put_large(&server, b"large", reply_size);
        let requests = vec![Request { key: b"large", operation: Operation::Get }; count];
        let greedy = Greedy { connections, shard: 0, requests: &requests, frames, reply_size };
        let progress = progress_meanwhile(&server, &greedy, 0, b"small");
        assert!(progress < 0.7, "{progress}");
    }
}

#[test]
fn large_replies_for_other_shards_do_not_keep_small_ones_waiting() {
    let server = server(2, 32 << 20);
    let keys = keys_of(&server, 0);
    for (connections, reply_size, count, frames) in [(6, 300_000, 500, 1), (6, 3000, 1000, 50)] {
        put_large(&server, &keys[0], reply_size);
        let requests = vec![Request { key: &keys[0], operation: Operation::Get }; count];
        let greedy = Greedy { connections, shard: 1, requests: &requests, frames, reply_size };
        let progress = progress_meanwhile(&server, &greedy, 0, &keys[1]);
        assert!(progress < 0.7, "{progress}");
    }
}

#[test]
fn requests_of_other_shards_do_not_keep_connections_waiting() {
    let server = server(2, 32 << 20);
    let keys = keys_of(&server, 0);
    let get = |number: usize| Request { key: &keys[1 + number % 100], operation: Operation::Get };
    let requests: Vec<Request<'_>> = (0..20_000).map(get).collect();
    let greedy = Greedy { connections: 20, shard: 1, requests: &requests, frames: 20, reply_size: 1 };
    let progress = progress_meanwhile(&server, &greedy, 0, &keys[0]);
    assert!(progress < 0.7, "{progress}");
}

#[test]
fn frames_of_many_operations_do_not_keep_others_waiting() {
    let server = server(1, 32 << 20);
    put_large(&server, b"large", 4000);
    let sum = Reduce { fold: Fold::Sum, element: Element::U8, initial: &[0], constants: &[] };
    let requests = vec![Request { key: b"large", operation: Operation::Reduce(sum) }; 65_000];
    let greedy = Greedy { connections: 1, shard: 0, requests: &requests, frames: 10, reply_size: 2 };
    let progress = progress_meanwhile(&server, &greedy, 0, b"small");
    assert!(progress < 0.7, "{progress}");
}

#[test]
fn commands_of_many_keys_keep_a_get_waiting_for_few_turns() {
    const COUNT: usize = 200_000;
    let server = server(1, 32 << 20);
    let mut request: Vec<&[u8]> = vec![b"missing"; COUNT + 1];
    request[0] = b"EXISTS";
    let request = command(&request);
    let replied = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..5 {
            let (server, request, replied) = (&server, &request, &replied);
            scope.spawn(move || {
                Resp::connect(server).expect(request, ":0\r\n");
                replied.fetch_add(1, Ordering::Relaxed);
            });
        }
        let mut modest = Resp::connect(&server);
        while replied.load(Ordering::Relaxed) < 5 {
            modest.expect("GET small\r\n", "$-1\r\n");
        }
    });
    let text = Resp::connect(&server).text("INFO congestion");
    let number = |field: &str| {
        let (_, rest) = text.split_once(field).unwrap_or_else(|| panic!("{field}: {text}"));
        rest.split(['\r', ',']).next().unwrap().parse::<usize>().unwrap()
    };
    let waited = number("skep_turns_waited_max:");
    // Each of six connections has a quarter of a turn, and requests are read in parts of a quarter of a megabyte.
    assert!(waited <= 3, "{waited} turns");
    assert!(number("skep_shard0:window=") <= 4096 && number(",turns=") >= 5 * COUNT / 4096, "{text}");
}
