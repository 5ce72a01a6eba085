//! Few bytes that stand for many: the copy flags let a frame of a mebibyte ask for a thousand values of a mebibyte.
//! In a process of its own, whose peak of memory tells.

mod support;

use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_wire::partition::shard_of;
use support::{Native, frame, server};

/// Returns the most bytes of the process that ever were in memory.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_value_that_is_sent_once_is_not_copied_a_thousand_times() {
    let server = server(2, 32 << 20);
    let mut connection = Native::connect(&server, Some(0));
    let seed = connection.welcome.partition_seed;
    let key = (0..100_u8).map(|key| [key]).find(|key| shard_of(key, seed, 2) == 1).unwrap();
    let value = vec![7; 1 << 20];
    let put = Operation::Put { value: &value, condition: PutCondition::Always };
    let mut requests = vec![Request { key: &key, operation: put }; 1000];
    // A put of another value is the last one.
    let last = Operation::Put { value: b"last", condition: PutCondition::Always };
    requests.extend([Request { key: &key, operation: last }, Request { key: &key, operation: Operation::Get }]);
    let bytes = frame(1, &requests);
    assert!(bytes.len() < 1_100_000);
    let before = peak();
    connection.send(&bytes);
    connection.receive(1, requests.len(), |index, response| {
        let expected = if index == 1001 { Reply::Value(b"last") } else { Reply::Done };
        assert_eq!(response, Ok(expected));
    });
    assert!(peak() < before + (64 << 20), "{} bytes more", peak() - before);
}
