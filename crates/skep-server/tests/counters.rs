//! Many clients at once on the same counters, by both front ends: every increment counts, exactly once.

mod support;

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{Operation, Reply, Request, Shape, Update};
use skep_server::Server;
use skep_wire::native::{HASH_SPACE, ORDERED_SPACE};
use support::{Native, Resp, frame_in, receive, server};

const COUNTERS: usize = 10;

/// What each client does.
#[derive(Clone, Copy)]
struct Work {
    space: u16,
    operations: usize,
    batch: usize,
}

/// Returns the key of a counter of decimal text.
fn text_key(counter: usize) -> Vec<u8> {
    format!("text:{counter}").into_bytes()
}

/// Returns the key of a binary counter.
fn binary_key(counter: usize) -> Vec<u8> {
    format!("binary:{counter}").into_bytes()
}

/// Adds 1 in batches by the native protocol: to decimal text if `text`, else with a fetch-and-add.
fn native_client(server: &Server, shard: u16, text: bool, work: Work, sum: &AtomicU64) {
    let Work { space, operations, batch } = work;
    let mut connection = Native::connect(server, Some(shard));
    let keys: Vec<Vec<u8>> =
        (0..COUNTERS).map(|counter| if text { text_key(counter) } else { binary_key(counter) }).collect();
    let one = 1_u64.to_le_bytes();
    let zero = 0_u64.to_le_bytes();
    let operation = if text {
        Operation::AddDecimal { delta: 1 }
    } else {
        Operation::Update(Update {
            function: UpdateFunction::Add,
            element: Element::U64,
            shape: Shape::ScalarToScalar,
            operand: &one,
            initial: Some(&zero),
            return_old: true,
        })
    };
    let requests: Vec<Request<'_>> =
        (0..batch).map(|index| Request { key: &keys[index % COUNTERS], operation }).collect();
    let bytes = frame_in(space, 1, &requests);
    let mut old_values = 0;
    for _ in 0..operations / batch {
        connection.send(&bytes);
        connection.receive(1, batch, |_, response| match response {
            Ok(Reply::Value(_)) if text => {}
            Ok(Reply::Value(old)) => old_values += u64::from_le_bytes(old.try_into().expect("eight bytes")),
            other => panic!("{other:?}"),
        });
    }
    sum.fetch_add(old_values, Ordering::Relaxed);
}

/// Adds 1 in pipelines of `INCR`.
fn resp_client(server: &Server, Work { space, operations, batch }: Work) {
    let mut resp = Resp::connect(server);
    resp.expect(format!("SELECT {space}\r\n"), "+OK\r\n");
    let pipeline: String =
        (0..batch).map(|index| format!("*2\r\n$4\r\nINCR\r\n$6\r\ntext:{}\r\n", index % COUNTERS)).collect();
    let mut piece = vec![0; 64 << 10];
    for _ in 0..operations / batch {
        resp.0.write_all(pipeline.as_bytes()).unwrap();
        let mut lines = 0;
        while lines < batch {
            let size = receive(&resp.0, &mut piece).unwrap();
            assert!(size > 0, "the connection ended");
            assert!(!piece[..size].contains(&b'-'), "{}", String::from_utf8_lossy(&piece[..size]));
            lines += piece[..size].iter().filter(|&&byte| byte == b'\n').count();
        }
    }
}

/// Runs a hundred clients: forty by RESP and sixty by the native protocol.
fn hundred_clients(shards: u16, work: Work) {
    let server = server(shards, 64 << 20);
    let sum = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for client in 0..100_usize {
            let (server, sum) = (&server, &sum);
            scope.spawn(move || match client % 5 {
                0 | 1 => resp_client(server, work),
                kind => native_client(server, client as u16 % shards, kind == 2, work, sum),
            });
        }
    });
    // Sixty clients incremented text, forty the binary counters.
    let each = |clients: usize| clients * work.operations / COUNTERS;
    let mut resp = Resp::connect(&server);
    resp.expect(format!("SELECT {}\r\n", work.space), "+OK\r\n");
    for counter in 0..COUNTERS {
        let expected = each(60).to_string();
        let key = String::from_utf8(text_key(counter)).unwrap();
        resp.expect(format!("GET {key}\r\n"), format!("${}\r\n{expected}\r\n", expected.len()));
        let key = String::from_utf8(binary_key(counter)).unwrap();
        resp.expect(format!("SKEP.GETV {key} u64\r\n"), format!("*1\r\n:{}\r\n", each(40)));
    }
    // Fetch-and-add gave every number out once.
    let each = each(40) as u64;
    assert_eq!(sum.load(Ordering::Relaxed), COUNTERS as u64 * (each * (each - 1) / 2));
}

#[test]
fn a_hundred_clients_with_a_hundred_thousand_operations_each() {
    hundred_clients(2, Work { space: HASH_SPACE, operations: 100_000, batch: 1000 });
}

#[test]
fn a_hundred_clients_with_small_batches() {
    for space in [HASH_SPACE, ORDERED_SPACE] {
        hundred_clients(3, Work { space, operations: 1000, batch: 10 });
    }
}
