//! Tests both clients with servers that close connections in the middle of a request or a reply, never reply, reply too
//! late, or refuse connections. Counts the executions: no update is executed twice, and none that may have happened is
//! taken for lost.

#[path = "support/either.rs"]
#[expect(dead_code, reason = "the other tests of the clients use the rest")]
mod either;
#[path = "support/script.rs"]
mod script;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use either::{EitherClient, call};
use script::{ScriptedServer, Step};
use skep_client::{
    AsyncClient, ClientError, ClientSettings, KeyRange, NotWelcome, Operation, OperationError, PutCondition, Refusal,
    Reply, Request, Responses,
};

/// Settings that wait only for short times. A server that replies does so within the reply timeout.
fn settings() -> ClientSettings {
    ClientSettings { retries_max: 3, retry_delay_max: Duration::from_millis(1), ..ClientSettings::default() }
}

/// Settings for a server that does not reply. The timeout is long enough for one that does, also on a busy machine.
fn impatient() -> ClientSettings {
    ClientSettings { reply_timeout: Duration::from_secs(1), ..settings() }
}

/// Runs a test with each client and a server of its own.
fn with_both(settings: &ClientSettings, script: &[&[Step]], test: impl Fn(ScriptedServer, EitherClient)) {
    for is_async in [false, true] {
        let server = ScriptedServer::start(script);
        let client = EitherClient::connect(is_async, server.address, 0, settings).expect("the server accepts");
        test(server, client);
    }
}

/// Returns the failure of the connection after which an update may have happened.
#[track_caller]
fn may_have_happened(error: &ClientError) -> &ClientError {
    let ClientError::MayHaveHappened { source } = error else { panic!("{error:?}") };
    assert!(error.to_string().contains("may have happened"), "{error}");
    source
}

fn is_closed(error: &ClientError) -> bool {
    // A connection that is closed with unread bytes ends with an error.
    matches!(error, ClientError::Closed { .. })
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    Request { key, operation: Operation::Put { value, condition: PutCondition::Always } }
}

fn count(executed: &[Vec<String>], name: &str) -> usize {
    executed.iter().flatten().filter(|executed| *executed == name).count()
}

#[test]
fn an_update_whose_reply_is_lost_may_have_happened_and_is_not_repeated() {
    for end in [Step::Execute, Step::ReplyHalf] {
        with_both(&settings(), &[&[Step::Welcome, end], &[Step::Welcome, Step::Reply]], |server, mut client| {
            let error = call!(client, add_decimal(b"n", 1)).unwrap_err();
            assert!(is_closed(may_have_happened(&error)), "{error:?}");
            assert_eq!(client.reconnection_count(), 0);
            // The next call connects again. It shows that the update has happened once.
            assert_eq!(call!(client, get(b"n")).unwrap(), Some(b"1".to_vec()));
            assert_eq!(client.reconnection_count(), 1);
            assert_eq!(server.wait(), [["add n"], ["get n"]]);
        });
    }
}

#[test]
fn an_update_that_was_sent_in_part_may_have_happened() {
    with_both(&settings(), &[&[Step::Welcome, Step::ReadPart], &[Step::Welcome, Step::Reply]], |server, mut client| {
        let error = call!(client, put(b"k", &[1; 1 << 20])).unwrap_err();
        assert!(is_closed(may_have_happened(&error)), "{error:?}");
        assert_eq!(call!(client, get(b"k")).unwrap(), None);
        assert_eq!(server.wait(), [vec![], vec!["get k".to_owned()]]);
    });
}

#[test]
fn a_read_is_repeated_until_its_reply_arrives() {
    let script: [&[Step]; 4] = [
        &[Step::Welcome, Step::Reply, Step::Execute],
        &[Step::Welcome, Step::ReplyHalf],
        &[Step::Welcome, Step::ReadPart],
        &[Step::Welcome, Step::Reply],
    ];
    with_both(&settings(), &script, |server, mut client| {
        call!(client, put(b"k", b"v")).unwrap();
        assert_eq!(call!(client, get(b"k")).unwrap(), Some(b"v".to_vec()));
        assert_eq!(client.reconnection_count(), 3);
        let executed = server.wait();
        assert_eq!((count(&executed, "put k"), count(&executed, "get k")), (1, 3), "{executed:?}");
    });
}

#[test]
fn retries_are_counted() {
    // The server closes each connection before its welcome.
    for retries_max in [0, 1, 3] {
        let mut script: Vec<&[Step]> = vec![&[Step::Welcome, Step::Reply]];
        script.extend(vec![&[][..]; 1 + retries_max as usize]);
        with_both(&ClientSettings { retries_max, ..settings() }, &script, |server, mut client| {
            call!(client, put(b"k", b"v")).unwrap();
            server.wait_for_end_of(1);
            let error = call!(client, get(b"k")).unwrap_err();
            assert!(matches!(error, ClientError::NotWelcome { reason: NotWelcome::Closed, .. }), "{error:?}");
            assert_eq!(server.wait().len(), 2 + retries_max as usize);
        });
    }
}

#[test]
fn a_server_that_refuses_connections_is_named_and_nothing_was_sent() {
    with_both(&settings(), &[&[Step::Welcome, Step::Reply]], |server, mut client| {
        let address = server.address;
        call!(client, put(b"k", b"v")).unwrap();
        assert_eq!(server.wait(), [["put k"]]);
        for _ in 0..2 {
            let error = call!(client, add_decimal(b"n", 1)).unwrap_err();
            assert!(matches!(error, ClientError::Connect { .. }), "{error:?}");
            assert!(error.to_string().contains(&address.to_string()), "{error}");
        }
    });
}

#[test]
fn a_refused_password_is_not_sent_again() {
    let script: [&[Step]; 2] = [&[Step::Welcome, Step::Reply], &[Step::Refuse]];
    with_both(&settings(), &script, |server, mut client| {
        call!(client, put(b"k", b"v")).unwrap();
        server.wait_for_end_of(1);
        let error = call!(client, get(b"k")).unwrap_err();
        assert!(matches!(error, ClientError::Refused { reason: Refusal::PasswordWrong, .. }), "{error:?}");
        server.wait();
    });
}

#[test]
fn an_update_is_sent_if_the_server_has_closed_the_connection_before() {
    let script: [&[Step]; 2] = [&[Step::Welcome, Step::Reply], &[Step::Welcome, Step::Reply, Step::Reply]];
    with_both(&settings(), &script, |server, mut client| {
        assert_eq!(call!(client, add_decimal(b"n", 1)).unwrap(), 1);
        server.wait_for_end_of(1);
        assert_eq!(call!(client, add_decimal(b"n", 1)).unwrap(), 2);
        assert_eq!(call!(client, add_decimal(b"n", 1)).unwrap(), 3);
        assert_eq!(server.wait(), [vec!["add n"], vec!["add n", "add n"]]);
    });
}

#[test]
fn a_server_that_never_replies_causes_a_timeout() {
    let script: [&[Step]; 3] = [
        &[Step::Welcome, Step::Execute, Step::KeepOpen],
        &[Step::Welcome, Step::Execute, Step::KeepOpen],
        &[Step::Welcome, Step::Reply],
    ];
    with_both(&impatient(), &script, |server, mut client| {
        // A read is not repeated either, because that would take longer than the timeout.
        let error = call!(client, get(b"n")).unwrap_err();
        assert!(
            matches!(error, ClientError::TimedOut { limit, .. } if limit == impatient().reply_timeout),
            "{error:?}"
        );
        let error = call!(client, add_decimal(b"n", 1)).unwrap_err();
        assert!(matches!(may_have_happened(&error), ClientError::TimedOut { .. }), "{error:?}");
        assert_eq!(call!(client, get(b"n")).unwrap(), Some(b"1".to_vec()));
        assert_eq!(server.wait(), [["get n"], ["add n"], ["get n"]]);
    });
}

#[test]
fn a_server_that_stops_reading_causes_a_timeout() {
    // The value is longer than the buffers of both sockets, so the client waits until it can send more.
    let value = vec![7; 1 << 20];
    let requests = vec![put(b"k", &value); 16];
    let script: [&[Step]; 2] = [&[Step::Welcome, Step::ReadPart, Step::KeepOpen], &[Step::Welcome, Step::Reply]];
    with_both(&impatient(), &script, |server, mut client| {
        let error = call!(client, execute(&requests, &mut Responses::new())).unwrap_err();
        assert!(matches!(may_have_happened(&error), ClientError::TimedOut { .. }), "{error:?}");
        assert_eq!(call!(client, get(b"k")).unwrap(), None);
        server.wait();
    });
}

#[test]
fn a_late_reply_is_not_taken_for_the_next_one() {
    let script: [&[Step]; 3] = [
        &[Step::Welcome, Step::Reply, Step::ReplyLate],
        &[Step::Welcome, Step::ReplyLate],
        &[Step::Welcome, Step::Reply],
    ];
    with_both(&impatient(), &script, |server, mut client| {
        call!(client, put(b"a", b"reply to a")).unwrap();
        assert!(matches!(call!(client, get(b"a")), Err(ClientError::TimedOut { .. })));
        assert!(matches!(call!(client, get(b"a")), Err(ClientError::TimedOut { .. })));
        assert_eq!(call!(client, get(b"b")).unwrap(), None);
        assert_eq!(server.wait(), [vec!["put a", "get a"], vec!["get a"], vec!["get b"]]);
    });
}

#[test]
fn after_a_dropped_future_the_next_call_has_its_own_reply() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server =
        ScriptedServer::start(&[&[Step::Welcome, Step::Reply, Step::ReplyLate], &[Step::Welcome, Step::Reply]]);
    runtime.block_on(async {
        let mut client = AsyncClient::connect(server.address, 0).await.unwrap();
        client.put(b"a", b"reply to a").await.unwrap();
        {
            let mut future = pin!(client.get(b"a"));
            assert!(matches!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
        }
        // The request of the dropped call was sent.
        server.wait_for_end_of(1);
        assert_eq!(client.get(b"b").await.unwrap(), None);
        assert_eq!(client.reconnection_count(), 1);
    });
    server.wait();
}

/// A batch whose frames are all sent by the first call for them, except for the last ones: reads, then one update.
fn reads_and_an_update(keys: &[Vec<u8>]) -> Vec<Request<'_>> {
    let (last, reads) = keys.split_last().expect("there are keys");
    let mut requests: Vec<_> = reads.iter().map(|key| Request { key, operation: Operation::Get }).collect();
    requests.push(Request { key: last, operation: Operation::AddDecimal { delta: 1 } });
    requests
}

#[test]
fn the_rest_of_a_batch_is_sent_over_the_new_connection() {
    // The update is in one of the last of a dozen frames, and four are in flight.
    let keys: Vec<Vec<u8>> = (0..400).map(|number| format!("{number:0400}").into_bytes()).collect();
    let requests = reads_and_an_update(&keys);
    let rest = [&[Step::Welcome][..], &[Step::Reply; 12]].concat();
    let script: [&[Step]; 3] = [&[Step::Welcome, Step::Reply, Step::ReplyHalf], &[Step::Welcome], &rest];
    with_both(&settings(), &script, |server, mut client| {
        let mut responses = Responses::new();
        call!(client, execute(&requests, &mut responses)).unwrap();
        let (last, reads) = requests.split_last().unwrap();
        assert!((0..reads.len()).all(|index| responses.get(index) == Ok(Reply::NotFound)));
        assert_eq!(responses.get(reads.len()), Ok(Reply::Value(b"1")), "{last:?}");
        drop(client);
        let executed = server.executed();
        assert_eq!(executed.len(), 3);
        assert_eq!(executed.iter().flatten().filter(|name| name.starts_with("add")).count(), 1);
        // The requests of the first frame have their replies. Those of the second one were executed twice.
        let total = |index: usize| executed[index].len();
        let first_frame = total(0) + total(2) - requests.len();
        assert!(first_frame > 0 && first_frame < total(0), "{} and {}", total(0), total(2));
    });
}

#[test]
fn a_batch_whose_update_was_sent_without_a_reply_fails() {
    // The first frame has its reply, the second one does not: both have updates.
    let keys: Vec<Vec<u8>> = (0..20_u8).map(|number| vec![b'a' + number]).collect();
    let values: Vec<Vec<u8>> = (0..20_u8).map(|number| vec![number; 10_000]).collect();
    let requests: Vec<_> = keys.iter().zip(&values).map(|(key, value)| put(key, value)).collect();
    with_both(&settings(), &[&[Step::Welcome, Step::Reply, Step::Execute]], |server, mut client| {
        let mut responses = Responses::new();
        let error = call!(client, execute(&requests, &mut responses)).unwrap_err();
        assert!(is_closed(may_have_happened(&error)), "{error:?}");
        assert!(responses.is_empty());
        let executed = server.wait();
        assert_eq!(executed.len(), 1, "the client does not connect again in this call");
        assert!(keys.iter().all(|key| count(&executed, &format!("put {}", key.escape_ascii())) <= 1));
    });
}

#[test]
fn a_batch_that_cannot_end_says_that_its_updates_have_happened() {
    // The update has its reply, and the reads after it do not.
    let keys: Vec<Vec<u8>> = (0..400).map(|number| format!("{number:0400}").into_bytes()).collect();
    let mut requests = reads_and_an_update(&keys);
    requests.rotate_right(1);
    let script: [&[Step]; 4] = [&[Step::Welcome, Step::Reply, Step::Execute], &[], &[], &[]];
    with_both(&settings(), &script, |server, mut client| {
        let error = call!(client, execute(&requests, &mut Responses::new())).unwrap_err();
        let source = may_have_happened(&error);
        assert!(matches!(source, ClientError::NotWelcome { reason: NotWelcome::Closed, .. }), "{error:?}");
        assert_eq!(server.wait().len(), 4);
    });
}

#[test]
fn the_first_page_of_a_scan_is_repeated_and_later_ones_are_not() {
    let script: [&[Step]; 4] = [
        &[Step::Welcome, Step::Execute],
        &[Step::Welcome, Step::Page, Step::Page, Step::Execute],
        &[Step::Welcome, Step::Reply],
        &[Step::Welcome, Step::Reply],
    ];
    for is_async in [false, true] {
        let server = ScriptedServer::start(&script);
        let mut client = EitherClient::connect(is_async, server.address, 1, &settings()).unwrap();
        // No part of a scan is returned as the whole.
        let error = call!(client, scan(KeyRange::all())).unwrap_err();
        assert!(matches!(error, ClientError::Operation(OperationError::LeaseExpired)), "{error:?}");
        assert_eq!(call!(client, get(b"k")).unwrap(), None);
        drop(client);
        assert_eq!(
            server.executed()[..2],
            [vec!["scan, open "], vec!["scan, open ", "scan, continue +", "scan, continue ++"]]
        );
    }
}

#[test]
fn the_pages_of_a_scan_end_with_an_error_if_the_connection_is_lost_between_them() {
    let script: [&[Step]; 2] = [&[Step::Welcome, Step::Page], &[Step::Welcome, Step::Reply]];
    for is_async in [false, true] {
        let server = ScriptedServer::start(&script);
        let mut client = EitherClient::connect(is_async, server.address, 1, &settings()).unwrap();
        let error = match &mut client {
            EitherClient::Blocking(client) => {
                let mut pages = client.pages(KeyRange::all());
                assert_eq!(pages.next_page().unwrap().unwrap(), [(b"+".to_vec(), vec![])]);
                server.wait_for_end_of(1);
                let error = pages.next_page().unwrap().unwrap_err();
                assert!(pages.next_page().is_none());
                error
            }
            EitherClient::Async(client, runtime) => runtime.block_on(async {
                let mut pages = client.pages(KeyRange::all());
                assert_eq!(pages.next_page().await.unwrap().unwrap(), [(b"+".to_vec(), vec![])]);
                server.wait_for_end_of(1);
                let error = pages.next_page().await.unwrap().unwrap_err();
                assert!(pages.next_page().await.is_none());
                error
            }),
        };
        assert!(matches!(error, ClientError::Operation(OperationError::LeaseExpired)), "{error:?}");
        assert!(error.to_string().contains("begin the scan again"), "{error}");
        assert_eq!(call!(client, get(b"k")).unwrap(), None);
        assert_eq!(server.wait(), [["scan, open "], ["get k"]]);
    }
}
