//! Runs the crate `redis`, unmodified, against a server: values, pipelines, expiry, SCAN while others write, a lock,
//! transactions. Each test runs with RESP2 and RESP3. `SKEP_LONG` multiplies the transfers of each client.

mod support;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redis::{
    Commands, Connection, ErrorKind, ExistenceCheck, RedisResult, ServerErrorKind, SetExpiry, SetOptions, Value,
    ValueComparison,
};
use skep_server::Server;

/// Runs a test with each protocol, on a server of its own with three shards.
fn with_both_protocols(test: impl Fn(&redis::Client)) {
    for protocol in ["resp2", "resp3"] {
        let server = support::server(3, 96 << 20);
        test(&client(&server, protocol));
        server.stop();
    }
}

fn client(server: &Server, protocol: &str) -> redis::Client {
    let address = server.resp_address().expect("the server speaks RESP");
    redis::Client::open(format!("redis://{address}/?protocol={protocol}")).unwrap()
}

fn connect(client: &redis::Client) -> Connection {
    client.get_connection().unwrap()
}

#[test]
fn values_have_the_types_that_the_crate_expects() {
    with_both_protocols(|client| {
        let mut redis = connect(client);
        let value: Vec<u8> = (0..=255).collect::<Vec<u8>>().repeat(4000);
        let () = redis.set("k", &value).unwrap();
        assert_eq!(redis.get::<_, Vec<u8>>("k").unwrap(), value);
        assert_eq!(redis.get::<_, Option<String>>("missing").unwrap(), None);
        assert_eq!(redis.strlen::<_, usize>("k").unwrap(), value.len());
        assert!(redis.exists::<_, bool>("k").unwrap());
        assert_eq!(redis.incr::<_, _, i64>("n", 5).unwrap(), 5);
        assert_eq!(redis.incr::<_, _, f64>("n", 0.5).unwrap(), 5.5);
        let () = redis.mset(&[("a", 1), ("b", 2)]).unwrap();
        assert!(!redis.mset_nx::<_, _, bool>(&[("b", 3), ("c", 4)]).unwrap());
        let found: Vec<Option<i64>> = redis.mget(&["a", "missing", "b"]).unwrap();
        assert_eq!(found, [Some(1), None, Some(2)]);
        assert_eq!(redis.del::<_, i64>(&["a", "b", "missing"]).unwrap(), 2);
        assert!(!redis.setbit::<_, bool>("bits", 7, true).unwrap());
        assert_eq!(redis.bitcount::<_, i64>("bits").unwrap(), 1);
        assert_eq!(redis.get_del::<_, Option<String>>("n").unwrap().as_deref(), Some("5.5"));
        let error = redis.incr::<_, _, i64>("k", 1).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Server(ServerErrorKind::ResponseError), Some("ERR")));
        assert!(error.detail().unwrap().contains("not an integer"), "{error}");
        let error = redis.lpush::<_, _, i64>("list", 1).unwrap_err();
        assert!(error.detail().unwrap().contains("unknown command"), "{error}");
        let timeout: Vec<(String, String)> =
            redis::cmd("CONFIG").arg("GET").arg("timeout").query::<Value>(&mut redis).map(pairs).unwrap();
        assert_eq!(timeout, [("timeout".to_owned(), "0".to_owned())]);
    });
}

/// Returns the pairs of a map, which RESP2 sends as an array.
fn pairs(value: Value) -> Vec<(String, String)> {
    redis::from_redis_value(value).unwrap()
}

#[test]
fn pipelines_have_the_replies_in_order() {
    with_both_protocols(|client| {
        let mut redis = connect(client);
        let mut pipe = redis::pipe();
        for number in 0..5000_i64 {
            let key = format!("k{number}");
            pipe.set(&key, number).ignore().incr(&key, 1).get(&key);
        }
        let replies: Vec<i64> = pipe.query(&mut redis).unwrap();
        assert_eq!(replies, (1..=5000).flat_map(|number| [number, number]).collect::<Vec<i64>>());
        // An error in a pipeline is not that of the other commands.
        let mut pipe = redis::pipe();
        pipe.set("text", "x").incr("text", 1).get("text").ignore_errors();
        let replies: (RedisResult<String>, RedisResult<i64>, RedisResult<String>) = pipe.query(&mut redis).unwrap();
        assert_eq!((replies.0.as_deref(), replies.2.as_deref()), (Ok("OK"), Ok("x")));
        assert!(replies.1.unwrap_err().detail().unwrap().contains("not an integer"));
    });
}

#[test]
fn keys_expire() {
    with_both_protocols(|client| {
        let mut redis = connect(client);
        let () = redis.pset_ex("k", "v", 30).unwrap();
        assert!(matches!(redis.pttl::<_, i64>("k").unwrap(), 0..=30));
        while redis.get::<_, Option<String>>("k").unwrap().is_some() {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(redis.ttl::<_, i64>("k").unwrap(), -2);
        let () = redis.set_ex("k", "v", 100).unwrap();
        let () = redis.set_options("k", "w", SetOptions::default().with_expiration(SetExpiry::KEEPTTL)).unwrap();
        assert!(matches!(redis.ttl::<_, i64>("k").unwrap(), 90..=100));
        assert!(redis.persist::<_, bool>("k").unwrap());
        assert_eq!(redis.ttl::<_, i64>("k").unwrap(), -1);
        assert!(redis.pexpire::<_, bool>("k", 1).unwrap());
        while redis.exists::<_, bool>("k").unwrap() {
            thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn scan_returns_every_key_that_exists_throughout_while_others_write() {
    with_both_protocols(|client| {
        let stable: HashSet<String> = (0..1000).map(|number| format!("stable:{number}")).collect();
        let mut redis = connect(client);
        let items: Vec<(&String, &str)> = stable.iter().map(|key| (key, "v")).collect();
        let () = redis.mset(&items).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for writer in 0..2 {
                let (mut redis, is_over) = (connect(client), &is_over);
                scope.spawn(move || {
                    // The store grows and shrinks while it is scanned.
                    for round in 0.. {
                        let keys: Vec<String> = (0..500).map(|key| format!("writer:{writer}:{round}:{key}")).collect();
                        let mut pipe = redis::pipe();
                        keys.iter().for_each(|key| _ = pipe.set(key, "v".repeat(key.len() * 5)).ignore());
                        pipe.del(&keys).ignore();
                        let () = pipe.query(&mut redis).unwrap();
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                });
            }
            for _ in 0..3 {
                let found: HashSet<String> = redis.scan().unwrap().map(Result::unwrap).collect();
                assert!(found.is_superset(&stable));
                let found: HashSet<String> = redis.scan_match("stable:*").unwrap().map(Result::unwrap).collect();
                assert_eq!(found, stable);
            }
            is_over.store(true, Ordering::Relaxed);
        });
    });
}

/// Takes a lock. It expires, so that a holder that has failed does not keep it. Only the holder knows the token.
fn lock(redis: &mut Connection, name: &str, token: &str) {
    let options = SetOptions::default().conditional_set(ExistenceCheck::NX).with_expiration(SetExpiry::PX(60_000));
    while redis.set_options::<_, _, Option<String>>(name, token, options.clone()).unwrap().is_none() {
        thread::yield_now();
    }
}

/// Releases a lock. Returns false if it has expired; another client may hold it then.
fn unlock(redis: &mut Connection, name: &str, token: &str) -> bool {
    redis.del_ex(name, ValueComparison::ifeq(token)).unwrap()
}

#[test]
fn a_lock_is_held_by_one_client() {
    with_both_protocols(|client| {
        thread::scope(|scope| {
            for thread in 0..4 {
                let mut redis = connect(client);
                scope.spawn(move || {
                    for round in 0..50 {
                        let token = format!("{thread}:{round}");
                        lock(&mut redis, "lock", &token);
                        let count: Option<i64> = redis.get("count").unwrap();
                        let () = redis.set("count", count.unwrap_or(0) + 1).unwrap();
                        assert!(unlock(&mut redis, "lock", &token));
                    }
                });
            }
        });
        let mut redis = connect(client);
        assert_eq!(redis.get::<_, i64>("count").unwrap(), 200);
        lock(&mut redis, "lock", "mine");
        assert!(!unlock(&mut redis, "lock", "another"));
        assert!(unlock(&mut redis, "lock", "mine"));
    });
}

#[test]
fn transactions_happen_as_a_whole_or_not_at_all() {
    with_both_protocols(|client| {
        let mut redis = connect(client);
        let mut pipe = redis::pipe();
        pipe.atomic();
        for number in 0..1000_i64 {
            let key = format!("k{number}");
            pipe.set(&key, number).ignore().incr(&key, 1);
        }
        let replies: Vec<i64> = pipe.query(&mut redis).unwrap();
        assert_eq!(replies, (1..=1000).collect::<Vec<i64>>());
        let mut pipe = redis::pipe();
        let refused = pipe.atomic().set("k0", "changed").ignore().cmd("GET").query::<Value>(&mut redis);
        assert!(refused.is_err());
        assert_eq!(redis.get::<_, i64>("k0").unwrap(), 1);
        // Another client changes a watched key.
        let () = redis::cmd("WATCH").arg("k0").query(&mut redis).unwrap();
        let () = connect(client).set("k0", "other").unwrap();
        let reply: Option<Value> = redis::pipe().atomic().set("k0", "mine").query(&mut redis).unwrap();
        assert_eq!((reply, redis.get::<_, String>("k0").as_deref()), (None, Ok("other")));
    });
}

const ACCOUNTS: usize = 50;
const CLIENTS: usize = 20;
const BALANCE: i64 = 100;
/// Transfers of each client. `SKEP_LONG` multiplies them.
const TRANSFERS: usize = 100;

#[test]
fn transfers_that_watch_their_accounts_keep_the_sum() {
    let transfers =
        TRANSFERS * std::env::var("SKEP_LONG").map_or(1_usize, |factor| factor.parse().expect("SKEP_LONG is a number"));
    with_both_protocols(|client| {
        let accounts: Vec<String> = (0..ACCOUNTS).map(|number| format!("account:{number}")).collect();
        let items: Vec<(&String, i64)> = accounts.iter().map(|account| (account, BALANCE)).collect();
        let () = connect(client).mset(&items).unwrap();
        let total = |redis: &mut Connection| redis.mget::<_, Vec<i64>>(&accounts).unwrap().iter().sum::<i64>();
        thread::scope(|scope| {
            for number in 0..CLIENTS {
                let (mut redis, accounts) = (connect(client), &accounts);
                scope.spawn(move || {
                    for round in 0..transfers {
                        let from = (7 * number + 3 * round) % ACCOUNTS;
                        let to = (from + 1 + (number + round) % (ACCOUNTS - 1)) % ACCOUNTS;
                        let (from, to) = (&accounts[from], &accounts[to]);
                        let amount = 1 + (round % 10) as i64;
                        let () = redis::transaction(&mut redis, &[from, to], |redis, pipe| {
                            let (before, after): (i64, i64) = redis.mget(&[from, to])?;
                            pipe.set(from, before - amount).ignore().set(to, after + amount).ignore().query(redis)
                        })
                        .unwrap();
                    }
                    assert_eq!(total(&mut redis), ACCOUNTS as i64 * BALANCE);
                });
            }
        });
        assert_eq!(total(&mut connect(client)), ACCOUNTS as i64 * BALANCE);
    });
}
