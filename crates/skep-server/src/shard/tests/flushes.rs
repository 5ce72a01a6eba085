//! Flushes beside the commands of other connections in one turn.

use std::io::Write;
use std::sync::Arc;

use super::Bench;
use crate::access::Login;
use crate::memcached_batch::MemcachedBatch;
use crate::parsed_batch::ParsedBatch;
use crate::settings::ServerSettings;

/// A client may store without waiting for the reply to another client's flush. All operations of a turn are one batch, in
/// which a flush is executed last, so those that were sent after it wait for the next turn.
#[test]
fn what_is_stored_after_a_flush_of_another_connection_stays() {
    let settings = ServerSettings { cache_memory: 16 << 20, ..ServerSettings::default() };
    let mut bench = Bench::new(1, &settings);
    for round in 0..20 {
        for flush in ["flush_all noreply\r\n", "flush_all 1 noreply\r\n"] {
            let [mut first, mut second] = [(); 2].map(|()| {
                let parsed = ParsedBatch::Memcached(MemcachedBatch::boxed(
                    &bench.shared.settings,
                    Login::default(),
                    Arc::clone(&bench.shared.cache_flushes),
                ));
                bench.connect(0, parsed)
            });
            bench.ask(&mut second, b"set old 0 0 1\r\n1\r\n", 8);
            first.stream.write_all(flush.as_bytes()).unwrap();
            second.stream.write_all(b"get old\r\nset k 0 0 1\r\n1\r\n").unwrap();
            assert!(bench.turn(0));
            let replies = bench.ask(&mut second, b"get k\r\n", 34);
            assert_eq!(
                String::from_utf8(replies).unwrap(),
                "END\r\nSTORED\r\nVALUE k 0 1\r\n1\r\nEND\r\n",
                "round {round}"
            );
        }
        let [mut first, mut second] = [(); 2].map(|()| bench.resp(0));
        first.stream.write_all(b"FLUSHALL\r\n").unwrap();
        second.stream.write_all(b"SET k 1\r\n").unwrap();
        assert!(bench.turn(0));
        assert_eq!(bench.ask(&mut second, b"GET k\r\n", 12), b"+OK\r\n$1\r\n1\r\n", "round {round}");
    }
}
