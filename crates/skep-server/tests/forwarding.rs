//! Several shards through one connection: most operations travel to the shard that owns their key, and still every
//! reply is the naive store's, in order.

mod support;

use skep_core::operation::{Operation, OperationError, PutCondition, Reply, Request};
use skep_store::naive::{EXPIRIES_END, Generator, GeneratorSettings, Mix, NaiveStore, OwnedRequest, SizeWeights};
use skep_wire::native::{HASH_SPACE, ORDERED_SPACE, RequestFrameWriter};
use support::{Native, Resp, command, frame, frame_in, seeds, server};

fn generator(seed: u64) -> Generator {
    Generator::new(GeneratorSettings {
        seed,
        key_count: 200,
        key_size: 1..=40,
        sizes: SizeWeights { empty: 1, inline: 10, slab: 10, large: 4 },
        large_size_max: 60_000,
        mix: Mix {
            get: 8,
            contains: 2,
            put: 8,
            put_if_absent: 2,
            put_if_present: 2,
            delete: 2,
            update: 6,
            reduce: 2,
            filter: 2,
            add_decimal: 2,
            string_read: 4,
            string_write: 6,
            call: 0,
            scan: 4,
        },
        invalid_per_mille: 20,
    })
}

/// Returns as many requests as a frame takes, a few hundred.
fn some_requests(generator: &mut Generator, left_over: &mut Option<OwnedRequest>) -> Vec<OwnedRequest> {
    let mut bytes = Vec::new();
    let mut writer = RequestFrameWriter::new(&mut bytes, 0, 0);
    let mut requests = Vec::new();
    while requests.len() < 400 {
        let Some(request) = left_over.take().or_else(|| generator.next()) else { break };
        if !writer.push(&request.as_request()) {
            // What no frame has room for cannot be asked.
            *left_over = (writer.count() > 0).then_some(request);
            break;
        }
        requests.push(request);
    }
    writer.finish();
    requests
}

#[test]
fn one_connection_agrees_with_the_naive_store_in_every_space() {
    for seed in seeds() {
        let server = server(3, 96 << 20);
        let mut connection = Native::connect(&server, Some(1));
        assert_eq!((connection.welcome.shard, connection.welcome.shard_count), (1, 3));
        let mut spaces =
            [(HASH_SPACE, NaiveStore::new()), (ORDERED_SPACE, NaiveStore::ordered())].map(|(space, mut naive)| {
                naive.set_now(EXPIRIES_END);
                (space, naive, generator(seed + 100 * u64::from(space)), None)
            });
        for round in 0..60 {
            // A frame for each space, both sent before the first has a reply.
            let mut frames = Vec::new();
            for (space, _, generator, left_over) in &mut spaces {
                let requests = some_requests(generator, left_over);
                let borrowed: Vec<Request<'_>> = requests.iter().map(OwnedRequest::as_request).collect();
                connection.send(&frame_in(*space, 2 * round + u32::from(*space), &borrowed));
                frames.push(requests);
            }
            for ((space, naive, ..), requests) in spaces.iter_mut().zip(&frames) {
                connection.receive(2 * round + u32::from(*space), requests.len(), |index, response| {
                    let request = requests[index].as_request();
                    let reply = response.expect("a known operation");
                    if let Err(expected) = naive.check(&request, reply) {
                        panic!(
                            "seed {seed}: space {space}, round {round}, request {index} {request:?}: {reply:?}, expected \
                             {expected:?}"
                        );
                    }
                });
            }
        }
        let mut resp = Resp::connect(&server);
        resp.expect("DBSIZE\r\n", format!(":{}\r\n", spaces[0].1.len()));
        resp.expect("SELECT 1\r\nSKEP.COUNT - +\r\n", format!("+OK\r\n:{}\r\n", spaces[1].1.len()));
    }
}

#[test]
fn every_front_end_and_shard_sees_the_same_keys() {
    let server = server(3, 32 << 20);
    for (shard, space) in [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)] {
        let mut connection = Native::connect(&server, Some(shard));
        let value = [b'0' + shard as u8 + 3 * space as u8];
        let put = |key| Request { key, operation: Operation::Put { value: &value, condition: PutCondition::Always } };
        let requests: Vec<Request<'_>> = [&b"a"[..], b"b", b"c", b"d", b"e"].into_iter().map(put).collect();
        connection.send(&frame_in(space, 7, &requests));
        connection.receive(7, requests.len(), |_, response| assert_eq!(response, Ok(Reply::Done)));
        for _ in 0..4 {
            // RESP connections go to the shards in turn.
            let value = String::from_utf8_lossy(&value).into_owned();
            let expected = format!("+OK\r\n*5\r\n{}", format!("$1\r\n{value}\r\n").repeat(5));
            Resp::connect(&server).expect(format!("SELECT {space}\r\nMGET a b c d e\r\n"), expected);
        }
    }
}

#[test]
fn what_is_too_long_to_travel_is_refused_where_it_arrives() {
    let server = server(3, 32 << 20);
    let mut resp = Resp::connect(&server);
    for key in 0..10_u8 {
        let name = [key; 3];
        let longest = vec![b'v'; (1 << 20) + 1000];
        resp.expect(command(&[b"SET", &name, &longest]), "-ERR value is longer than 1048576 bytes\r\n");
        resp.expect(command(&[b"DEL", &[key; 70_000]]), "-ERR key is longer than 460 bytes\r\n");
        let mut connection = Native::connect(&server, None);
        let request = Request { key: &[key; 500], operation: Operation::Get };
        connection.execute(1, &[request], |_, response| {
            assert_eq!(response, Ok(Reply::Failed(OperationError::KeyTooLong)));
        });
    }
}

#[test]
fn pipelined_frames_have_replies_in_order() {
    let server = server(2, 32 << 20);
    let mut connection = Native::connect(&server, Some(0));
    let mut bytes = Vec::new();
    let add = |key| Request { key, operation: Operation::AddDecimal { delta: 1 } };
    for sequence in 0..500 {
        bytes.extend_from_slice(&frame(sequence, &[add(b"a"), add(b"b"), add(b"c")]));
        bytes.extend_from_slice(&frame(1000 + sequence, &[]));
    }
    connection.send(&bytes);
    for sequence in 0..500 {
        let expected = (sequence + 1).to_string();
        connection.receive(sequence, 3, |_, response| assert_eq!(response, Ok(Reply::Value(expected.as_bytes()))));
        connection.receive(1000 + sequence, 0, |_, _| ());
    }
}

#[test]
fn more_connections_than_places_in_the_rings() {
    let server = server(3, 32 << 20);
    let keys: Vec<Vec<u8>> = (0..50).map(|key| format!("key {key}").into_bytes()).collect();
    let add = |key| Request { key, operation: Operation::AddDecimal { delta: 1 } };
    let requests: Vec<Request<'_>> = keys.iter().map(|key| add(key)).collect();
    let bytes = frame(1, &requests);
    // All come to one shard, which has far fewer places at the others.
    let mut connections: Vec<Native> = (0..200).map(|_| Native::connect(&server, Some(0))).collect();
    for _ in 0..5 {
        for connection in &mut connections {
            connection.send(&bytes);
        }
        for connection in &mut connections {
            connection.receive(1, 50, |_, response| assert!(matches!(response, Ok(Reply::Value(_)))));
        }
    }
    connections[7].execute(2, &requests, |_, response| assert_eq!(response, Ok(Reply::Value(b"1001"))));
}
