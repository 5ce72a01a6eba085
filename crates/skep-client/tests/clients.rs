//! Tests both clients against Skep's server and against a test server, which is built on the codec and a naive store.
//! Checks their replies, how they divide a batch, and their error messages.

#[path = "support/either.rs"]
mod either;
mod support;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use either::{EitherClient, call};
use skep_client::{
    AsyncClient, Client, ClientError, ClientSettings, Element, Filter, Fold, HASH_SPACE, KeyRange, NotWelcome,
    ORDERED_SPACE, Operation, OperationError, Pair, Password, Predicate, ProtocolError, PutCondition, Reduce, Refusal,
    Reply, Request, ResolvedAddress, Responses, ServerAddress, Shape, Update, UpdateFunction, WireError,
};
use skep_server::{Server, ServerSettings};
use skep_store::naive::{EXPIRIES_END, Generator, GeneratorSettings, Mix, NaiveStore, OwnedRequest};
use skep_store::ordered::LEASE_COUNT_MAX;
use support::{Behaviour, as_response, start, start_stranger};

const ADD: Update<'_> = Update {
    function: UpdateFunction::Add,
    element: Element::U8,
    shape: Shape::ScalarToVector,
    operand: &[1],
    initial: None,
    return_old: true,
};

/// Connects both clients with default settings.
fn connect_both(address: SocketAddr, space: u16) -> [Result<EitherClient, ClientError>; 2] {
    EitherClient::connect_both(address, space, &ClientSettings::default())
}

/// Starts a server for each client and connects it.
fn with_servers(behaviour: Behaviour) -> [EitherClient; 2] {
    [false, true].map(|is_async| {
        EitherClient::connect(is_async, start(behaviour), 0, &ClientSettings::default()).expect("the server replies")
    })
}

/// Returns the seed of the environment, or a few fixed ones.
fn seeds() -> Vec<u64> {
    match std::env::var("SKEP_SEED") {
        Ok(seed) => vec![seed.parse().expect("SKEP_SEED is a number")],
        Err(_) => vec![1, 2, 3],
    }
}

fn agrees_with_the_naive_store(client: &mut EitherClient, seed: u64) {
    let mut naive = NaiveStore::new();
    naive.set_now(EXPIRIES_END);
    let mut responses = Responses::new();
    let settings =
        GeneratorSettings { seed, key_count: 300, invalid_per_mille: 50, mix: Mix::built_in(), ..Default::default() };
    let mut generator = Generator::new(settings);
    let batch_sizes = [1, 2, 3, 700, 0, 1, 2500, 30];
    for (batch_number, batch_size) in batch_sizes.into_iter().cycle().take(3 * batch_sizes.len()).enumerate() {
        let owned: Vec<OwnedRequest> = generator.by_ref().take(batch_size).collect();
        let requests: Vec<_> = owned.iter().map(OwnedRequest::as_request).collect();
        call!(*client, execute(&requests, &mut responses)).unwrap();
        assert_eq!(responses.len(), requests.len());
        for (index, (request, response)) in requests.iter().zip(responses.iter()).enumerate() {
            let expected = naive.execute(request);
            assert!(
                response == as_response(&expected),
                "SKEP_SEED={seed}, request {index} of batch {batch_number} has another reply"
            );
        }
    }
}

#[test]
fn both_clients_agree_with_the_naive_store() {
    for (index, seed) in seeds().into_iter().enumerate() {
        for shard_count in [1, 3] {
            // Replies in one frame, in a few, in many.
            let replies_max = [usize::MAX, 100, 1][index % 3];
            for mut client in with_servers(Behaviour { shard_count, replies_max, ..Default::default() }) {
                agrees_with_the_naive_store(&mut client, seed);
            }
        }
    }
}

/// Starts Skep itself, on free ports.
fn start_skep(shards: u16) -> Server {
    start_skep_at(SocketAddr::from(([127, 0, 0, 1], 0)), shards)
}

/// Starts Skep at this address, and with shared memory at a path that only this process uses.
fn start_skep_at(native: SocketAddr, shards: u16) -> Server {
    let settings = ServerSettings {
        native,
        resp: None,
        shared_memory: Some(unused_path()),
        memory: u64::from(shards) << 26,
        shards,
        pin_threads: false,
        ..ServerSettings::default()
    };
    Server::start(&settings).expect("the server starts")
}

/// Returns a path for the socket of a server.
fn unused_path() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("skep-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    std::env::temp_dir().join(name)
}

/// Connects the blocking client to a server over shared memory.
fn connect_shared_memory(server: &Server, space: u16) -> EitherClient {
    let path = server.shared_memory_path().expect("the server has shared memory").to_owned();
    EitherClient::Blocking(Client::connect(ServerAddress::SharedMemory(path), space).unwrap())
}

#[test]
fn all_clients_agree_with_the_naive_store_when_the_server_is_skep() {
    for shards in [1, 3] {
        for which in [0, 1, 2] {
            let server = start_skep(shards);
            let mut client = match which {
                0 | 1 => {
                    let settings = ClientSettings::default();
                    EitherClient::connect(which == 1, server.native_address(), HASH_SPACE, &settings).unwrap()
                }
                _ => connect_shared_memory(&server, HASH_SPACE),
            };
            agrees_with_the_naive_store(&mut client, 4);
            // The pairs of one space are not in another.
            client.select(ORDERED_SPACE);
            agrees_with_the_naive_store(&mut client, 5);

            server.stop();
            let error = call!(client, put(b"k", b"v")).unwrap_err();
            assert!(matches!(error, ClientError::Connect { .. }), "nothing was sent: {error:?}");
        }
    }
}

/// Returns the pairs of a range of a map: those between two keys, both included, or those with a prefix.
fn expected(pairs: &BTreeMap<Vec<u8>, Vec<u8>>, range: &RangeAsked) -> Vec<Pair> {
    let is_within = |key: &[u8]| match range {
        RangeAsked { prefix: Some(prefix), .. } => key.starts_with(prefix),
        RangeAsked { start, end, .. } => key >= &start[..] && key <= &end[..],
    };
    let mut found: Vec<Pair> =
        pairs.iter().filter(|(key, _)| is_within(key)).map(|(key, value)| (key.clone(), value.clone())).collect();
    if range.reverse {
        found.reverse();
    }
    found.truncate(range.limit.unwrap_or(usize::MAX));
    found
}

/// A range to request.
#[derive(Debug)]
struct RangeAsked {
    start: Vec<u8>,
    end: Vec<u8>,
    prefix: Option<Vec<u8>>,
    reverse: bool,
    limit: Option<usize>,
}

impl RangeAsked {
    fn as_range(&self) -> KeyRange<'_> {
        let mut range = match &self.prefix {
            Some(prefix) => KeyRange::prefix(prefix),
            None => KeyRange::all().at_or_above(&self.start).at_or_below(&self.end),
        };
        if let Some(limit) = self.limit {
            range = range.limit(limit as u64);
        }
        if self.reverse { range.reverse() } else { range }
    }
}

#[test]
fn scans_agree_with_a_map() {
    let server = start_skep(3);
    for seed in seeds() {
        let clients = connect_both(server.native_address(), ORDERED_SPACE).map(Result::unwrap);
        for mut client in clients.into_iter().chain([connect_shared_memory(&server, ORDERED_SPACE)]) {
            // Keys that share prefixes. A page holds few or many of their values.
            let keys: Vec<Vec<u8>> = (0..600_u32)
                .map(|number| {
                    let mixed = (number ^ seed as u32).wrapping_mul(0x9e37_79b9);
                    format!("{seed}:{:03x}", mixed >> 20).into_bytes()
                })
                .collect();
            let value = |number: usize| vec![number as u8; if number.is_multiple_of(50) { 40_000 } else { number }];
            let pairs: BTreeMap<Vec<u8>, Vec<u8>> =
                keys.iter().enumerate().map(|(number, key)| (key.clone(), value(number))).collect();
            let put = |value| Operation::Put { value, condition: PutCondition::Always };
            let requests: Vec<_> = pairs.iter().map(|(key, value)| Request { key, operation: put(value) }).collect();
            let mut responses = Responses::new();
            call!(client, execute(&requests, &mut responses)).unwrap();
            assert!(responses.iter().all(|response| response == Ok(Reply::Done)));
            for round in 0..120 {
                let key = |at: usize| keys[(round * 37 + at) % keys.len()].clone();
                let (start, end) = (key(0).min(key(11)), key(0).max(key(11)));
                let prefix = (round % 3 == 0).then(|| key(5)[..2 + round % 4].to_vec());
                let limit = [None, Some(1), Some(24), Some(500), Some(0)][round % 5];
                let asked = RangeAsked { start, end, prefix, reverse: round % 2 == 0, limit };
                let expected = expected(&pairs, &asked);
                let range = asked.as_range();
                let found = call!(client, scan(range)).unwrap();
                assert!(found == expected, "SKEP_SEED={seed}: {asked:?}: {} of {}", found.len(), expected.len());
                let keys: Vec<&Vec<u8>> = expected.iter().map(|(key, _)| key).collect();
                assert!(call!(client, scan_keys(range)).unwrap().iter().eq(keys), "SKEP_SEED={seed}: {asked:?}");
                assert_eq!(call!(client, count(range)).unwrap(), expected.len() as u64, "SKEP_SEED={seed}: {asked:?}");
            }
            // The floor of a key, and omitted bounds.
            let (first, last) = (pairs.keys().next().unwrap(), pairs.keys().last().unwrap());
            let between = [&first[..], b"!"].concat();
            let floor = KeyRange::all().from_floor(&between).limit(1);
            assert_eq!(call!(client, scan(floor)).unwrap()[0].0, *first);
            let inner = KeyRange::all().above(first).below(last);
            assert_eq!(call!(client, count(inner)).unwrap(), pairs.len() as u64 - 2);
            for key in pairs.keys() {
                assert!(call!(client, delete(key)).unwrap());
            }
            assert_eq!(call!(client, scan(KeyRange::all())).unwrap(), []);
        }
    }
}

#[test]
fn pages_show_one_moment() {
    let server = start_skep(2);
    let [blocking, asynchronous] = connect_both(server.native_address(), ORDERED_SPACE).map(Result::unwrap);
    let (EitherClient::Blocking(mut writer), EitherClient::Async(mut reader, runtime)) = (blocking, asynchronous)
    else {
        unreachable!("the first is blocking")
    };
    let value = vec![1; 20_000];
    let keys: Vec<[u8; 2]> = (0..20).map(|number| [b'k', number]).collect();
    keys.iter().for_each(|key| writer.put(key, &value).unwrap());
    // With and without a limit, while pairs are written between the pages.
    for range in [KeyRange::all(), KeyRange::all().limit(15), KeyRange::prefix(b"k").reverse()] {
        let mut pages = reader.pages(range);
        let mut found = Vec::new();
        let mut round = 0;
        while let Some(page) = runtime.block_on(pages.next_page()) {
            found.extend(page.unwrap());
            round += 1;
            writer.put(&[b'k', 3, round], b"new").unwrap();
            writer.delete(&keys[19 - usize::from(round)]).unwrap();
        }
        assert!(round > 3, "{round} pages");
        let mut expected: Vec<Pair> = keys.iter().map(|key| (key.to_vec(), value.clone())).collect();
        if range == KeyRange::prefix(b"k").reverse() {
            expected.reverse();
        }
        expected.truncate(if range == KeyRange::all().limit(15) { 15 } else { 20 });
        assert!(found == expected, "{range:?}: {} pairs", found.len());
        for number in 0..=round {
            let _ = writer.delete(&[b'k', 3, number]).unwrap();
        }
        keys.iter().for_each(|key| writer.put(key, &value).unwrap());
    }
    // Leases of one client end its own ones. Those of many clients end the oldest lease.
    let mut pages = writer.pages(KeyRange::all());
    assert!(pages.next().unwrap().is_ok());
    for _ in 0..LEASE_COUNT_MAX {
        assert!(runtime.block_on(reader.pages(KeyRange::all()).next_page()).unwrap().is_ok());
    }
    assert!(pages.next().unwrap().is_ok());
    let settings = ClientSettings::default();
    let connect = |_| Client::connect_with(server.native_address(), ORDERED_SPACE, &settings).unwrap();
    let mut others: Vec<Client> = (0..2 * LEASE_COUNT_MAX).map(connect).collect();
    others.iter_mut().for_each(|other| assert!(other.pages(KeyRange::all()).next().unwrap().is_ok()));
    let error = pages.next().unwrap().unwrap_err();
    assert!(matches!(error, ClientError::Operation(OperationError::LeaseExpired)), "{error:?}");
    assert!(error.to_string().contains("begin the scan again"), "{error}");
    assert!(pages.next().is_none());
    assert_eq!(writer.scan(KeyRange::all()).unwrap().len(), 20);
    // The client refuses an invalid range without the server.
    let error = writer.scan(KeyRange::all().at_or_above(b"b").below(b"a")).unwrap_err();
    assert!(matches!(error, ClientError::Operation(OperationError::RangeReversed)));
    writer.select(HASH_SPACE);
    let error = writer.count(KeyRange::all()).unwrap_err();
    assert!(matches!(error, ClientError::Operation(OperationError::NotOrdered)), "{error:?}");
}

#[test]
fn single_operations() {
    for mut client in with_servers(Behaviour { shard_count: 3, ..Default::default() }) {
        assert_eq!(call!(client, get(b"k")).unwrap(), None);
        assert!(!call!(client, contains(b"k")).unwrap());
        assert!(!call!(client, put_if_present(b"k", b"v")).unwrap());
        assert!(call!(client, put_if_absent(b"k", b"v")).unwrap());
        assert!(!call!(client, put_if_absent(b"k", b"w")).unwrap());
        assert!(call!(client, contains(b"k")).unwrap());
        assert_eq!(call!(client, get(b"k")).unwrap(), Some(b"v".to_vec()));
        assert!(call!(client, put_if_present(b"k", b"w")).unwrap());
        call!(client, put(b"k", &[1, 2, 3])).unwrap();

        assert_eq!(call!(client, update(b"k", ADD)).unwrap(), Some(vec![1, 2, 3]));
        assert_eq!(call!(client, update(b"k", Update { return_old: false, ..ADD })).unwrap(), Some(vec![]));
        assert_eq!(call!(client, update(b"none", ADD)).unwrap(), None);
        let sum = Reduce { fold: Fold::Sum, element: Element::U8, initial: &[100], constants: &[] };
        assert_eq!(call!(client, reduce(b"k", sum)).unwrap(), Some(vec![112]));
        assert_eq!(call!(client, reduce(b"none", sum)).unwrap(), None);
        let greater = Filter { predicate: Predicate::Greater, element: Element::U8, operand: &[3] };
        assert_eq!(call!(client, filter(b"k", greater)).unwrap(), Some(vec![4, 5]));
        assert_eq!(call!(client, filter(b"none", greater)).unwrap(), None);

        assert_eq!(call!(client, add_decimal(b"n", 41)).unwrap(), 41);
        assert_eq!(call!(client, add_decimal(b"n", -42)).unwrap(), -1);
        assert!(call!(client, delete(b"k")).unwrap());
        assert!(!call!(client, delete(b"k")).unwrap());
    }
}

#[test]
fn errors_of_an_operation_leave_the_client_usable() {
    for mut client in with_servers(Behaviour::default()) {
        call!(client, put(b"k", b"text")).unwrap();
        let error = call!(client, add_decimal(b"k", 1)).unwrap_err();
        assert!(matches!(error, ClientError::Operation(OperationError::NotAnInteger)));
        // The client refuses this request before it sends anything.
        let error = call!(client, put(b"", b"v")).unwrap_err();
        assert!(matches!(error, ClientError::Operation(OperationError::KeyEmpty)));
        assert_eq!(call!(client, get(b"k")).unwrap(), Some(b"text".to_vec()));
    }
}

#[test]
fn a_client_with_many_requests_and_replies_reads_while_it_writes() {
    // The replies to the gets exceed the socket buffers, and so do the puts after them.
    let (short, long) = (vec![7; 100_000], vec![8; 1 << 20]);
    let get = Request { key: b"short", operation: Operation::Get };
    let put = |value| Operation::Put { value, condition: PutCondition::Always };
    let keys: Vec<[u8; 1]> = (0..8).map(|number| [number]).collect();
    let mut requests = vec![Request { key: b"short", operation: put(&short) }];
    for _ in 0..2 {
        requests.extend(std::iter::repeat_n(get, 300));
        requests.extend(keys.iter().map(|key| Request { key, operation: put(&long) }));
    }
    for shard_count in [1, 2] {
        for mut client in with_servers(Behaviour { shard_count, ..Default::default() }) {
            let mut responses = Responses::new();
            call!(client, execute(&requests, &mut responses)).unwrap();
            for (request, response) in requests.iter().zip(responses.iter()) {
                let expected = if request.operation == Operation::Get { Reply::Value(&short) } else { Reply::Done };
                assert!(response == Ok(expected));
            }
        }
    }
}

#[test]
fn a_batch_of_gets_whose_replies_are_many_times_its_size() {
    for mut client in with_servers(Behaviour { replies_max: 4, ..Default::default() }) {
        let value = vec![9; 100_000];
        call!(client, put(b"k", &value)).unwrap();
        let requests = vec![Request { key: b"k", operation: Operation::Get }; 400];
        let mut responses = Responses::new();
        call!(client, execute(&requests, &mut responses)).unwrap();
        assert!(responses.len() == 400 && responses.iter().all(|response| response == Ok(Reply::Value(&value))));
    }
}

#[test]
fn a_space_that_does_not_exist_is_named_at_the_operation() {
    let [blocking, asynchronous] = connect_both(start(Behaviour::default()), 9).map(Result::unwrap);
    for mut client in [blocking, asynchronous] {
        let error = call!(client, get(b"k")).unwrap_err();
        assert!(matches!(error, ClientError::Rejected(WireError::UnknownSpace)));
        assert!(error.to_string().starts_with("the server refused the operation: the server does not have this space"));
    }
}

#[test]
fn a_request_over_the_limit_of_the_server_is_not_sent() {
    for mut client in with_servers(Behaviour { frame_size_max: 1000, ..Default::default() }) {
        let long = vec![0; 1000];
        let requests = [
            Request { key: b"a", operation: Operation::Put { value: b"v", condition: PutCondition::Always } },
            Request { key: b"b", operation: Operation::Put { value: &long, condition: PutCondition::Always } },
        ];
        let mut responses = Responses::new();
        let error = call!(client, execute(&requests, &mut responses)).unwrap_err();
        assert!(matches!(error, ClientError::RequestTooLarge { index: 1, size_max: 1000, .. }));
        assert!(responses.is_empty());
        // The other request was not sent either. Requests that fit one frame each are sent in as many frames as needed.
        assert_eq!(call!(client, get(b"a")).unwrap(), None);
        let keys = [[1; 400], [2; 400], [3; 400]];
        let requests: Vec<_> = keys.iter().map(|key| Request { key, operation: Operation::Get }).collect();
        call!(client, execute(&requests, &mut responses)).unwrap();
        assert!(responses.iter().all(|response| response == Ok(Reply::NotFound)));
    }
}

#[test]
fn clients_connect_again_to_a_server_that_was_restarted_with_other_shards() {
    for is_async in [false, true] {
        let mut server = start_skep(3);
        let address = server.native_address();
        let mut client = EitherClient::connect(is_async, address, HASH_SPACE, &ClientSettings::default()).unwrap();
        for (reconnections, shards) in [(1, 1), (2, 4)] {
            call!(client, put(b"k", b"v")).unwrap();
            server.stop();
            server = start_skep_at(address, shards);
            // The client sees that its connections are closed before it sends anything, so it may send an update.
            assert_eq!(call!(client, add_decimal(b"n", 1)).unwrap(), 1);
            assert_eq!(call!(client, get(b"k")).unwrap(), None, "nothing survives a restart");
            let keys: Vec<Vec<u8>> = (0..100_u8).map(|number| vec![number]).collect();
            let requests: Vec<_> = keys.iter().map(|key| Request { key, operation: Operation::Get }).collect();
            let mut responses = Responses::new();
            call!(client, execute(&requests, &mut responses)).unwrap();
            assert!(responses.iter().all(|response| response == Ok(Reply::NotFound)));
            assert_eq!(client.reconnection_count(), reconnections);
        }
    }
}

#[test]
fn no_server_at_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    for client in connect_both(address, 0) {
        let error = client.err().unwrap();
        assert!(matches!(error, ClientError::Connect { .. }));
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}

#[test]
fn another_server_at_the_address() {
    let another_version = *b"SKEP\x02\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let strangers: [(&'static [u8], Option<ProtocolError>); 4] = [
        (b"-ERR unknown command", Some(ProtocolError::BadHello)),
        (b"HTTP/1.1 400 Bad Request\r\n", Some(ProtocolError::BadHello)),
        (another_version.to_vec().leak(), Some(ProtocolError::UnsupportedVersion(2))),
        (b"", None),
    ];
    for (bytes, expected) in strangers {
        let address = start_stranger(bytes);
        for client in connect_both(address, 0) {
            let error = client.err().unwrap();
            assert!(error.to_string().contains("not a native port of Skep"), "{error}");
            let ClientError::NotWelcome { address: named, reason } = error else { panic!("{error:?}") };
            assert_eq!(named, ResolvedAddress::Tcp(address));
            match expected {
                Some(expected) => assert!(matches!(reason, NotWelcome::Protocol(error) if error == expected)),
                None => assert!(matches!(reason, NotWelcome::Closed)),
            }
        }
    }
}

#[test]
fn clients_can_move_between_threads() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let address = start(Behaviour::default());
    is_send(Client::connect(address, 0).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(is_send(async {
        let mut client = AsyncClient::connect(address, 0).await.unwrap();
        client.put(b"k", b"v").await.unwrap();
    }));
}

#[test]
fn a_server_with_a_password_serves_clients_that_send_it() {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let password = Password::new(b"ham").unwrap();
    let settings = ServerSettings {
        native: any,
        resp: None,
        memory: 48 << 20,
        shards: 3,
        password: Some(password.clone()),
        ..ServerSettings::default()
    };
    let server = Server::start(&settings).unwrap();
    let address = server.native_address();
    for client in connect_both(address, HASH_SPACE) {
        let error = client.err().unwrap();
        assert!(matches!(error, ClientError::Refused { reason: Refusal::PasswordNeeded, .. }), "{error:?}");
        assert!(error.to_string().contains("needs a password"), "{error}");
    }
    let with = |password: &Password| ClientSettings { password: Some(password.clone()), ..ClientSettings::default() };
    for client in EitherClient::connect_both(address, HASH_SPACE, &with(&Password::new(b"egg").unwrap())) {
        let error = client.err().unwrap();
        assert!(matches!(error, ClientError::Refused { reason: Refusal::PasswordWrong, .. }), "{error:?}");
    }
    for client in EitherClient::connect_both(address, HASH_SPACE, &with(&password)) {
        let mut client = client.unwrap();
        for key in 0..100_u8 {
            call!(client, put(&[key], &[key])).unwrap();
            assert_eq!(call!(client, get(&[key])).unwrap(), Some(vec![key]));
        }
    }
    server.stop();
}

#[test]
fn a_full_server_says_so() {
    let native = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = ServerSettings { native, resp: None, connections_max: 1, memory: 64 << 20, ..Default::default() };
    let server = Server::start(&settings).unwrap();
    let address = format!("tcp:{}", server.native_address());
    let _first = Client::connect(address.as_str(), 0).unwrap();
    let error = Client::connect(address.as_str(), 0).unwrap_err();
    assert!(matches!(error, ClientError::Refused { reason: Refusal::Full, .. }), "{error:?}");
    assert!(error.to_string().contains("--max-clients"), "{error}");
}
