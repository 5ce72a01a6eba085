//! Leases of scans that expire, by the clock of the test: no test has to sleep for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use skep_core::operation::{
    Operation, OperationError, Page, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart,
};
use skep_store::ordered::OrderedStore;
use skep_wire::native::{ORDERED_SPACE, ReplyFrame, RequestFrameWriter, Response};

use crate::access::Login;
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::native_batch::NativeBatch;
use crate::parsed_batch::ParsedBatch;
use crate::resp_batch::RespBatch;
use crate::resp_command::Session;
use crate::settings::ServerSettings;
use crate::shard::driven::{Driven, driven_shards};
use crate::shared::Shared;
use crate::start::Steps;
use crate::transport::Transport;
use crate::transport::pipe::{ClientEnd, pipe};
use crate::unix_time::{SharedClock, read_clocks};

/// A scan of all pairs.
const WHOLE: Scan<'static> = Scan {
    start: ScanStart::AtOrAbove,
    end: ScanEnd::Last,
    reverse: false,
    limit: u32::MAX,
    answer: ScanAnswer::Pairs,
    lease: ScanLease::None,
};

/// A shard with a client for each protocol, and the time.
struct Scene<'s> {
    shard: Driven<'s>,
    resp: ClientEnd,
    native: ClientEnd,
    now: Instant,
}

impl<'s> Scene<'s> {
    fn new(shared: &'s Arc<Shared>) -> Scene<'s> {
        let now = Instant::now();
        let shard = driven_shards(shared, now, &mut Steps::default()).expect("it starts").remove(0);
        let connect = |parsed| {
            let (client, server_end) = pipe(1 << 20, 1 << 20, now);
            let address = SocketAddr::from(([127, 0, 0, 1], 1));
            let connection = Connection::new(shared.enter(address, address, 2), parsed, now);
            shard.hand_over(Endpoint::new(connection, Transport::Simulated(server_end)));
            client
        };
        let resp = connect(ParsedBatch::Resp(RespBatch::boxed(shared.spaces(), Session::default())));
        let native = connect(ParsedBatch::Native(NativeBatch::new(shared.spaces(), Login::default())));
        Scene { shard, resp, native, now }
    }

    /// Lets the shard work until all is done.
    fn work(&mut self) {
        for _ in 0..10 {
            self.resp.advance(self.now, Duration::ZERO);
            self.native.advance(self.now, Duration::ZERO);
            self.shard.deliver_events(self.now);
            self.shard.turn(self.now);
        }
    }

    /// Sends a command and returns the reply.
    fn ask(&mut self, command: &str) -> String {
        let bytes = format!("{command}\r\n").into_bytes();
        assert_eq!(self.resp.send(&bytes, self.now), bytes.len());
        self.work();
        String::from_utf8(self.resp.take(usize::MAX)).expect("text")
    }

    /// Sends scans in one frame, and calls `f` with the replies.
    fn scan(&mut self, scans: &[Scan<'_>], mut f: impl FnMut(usize, Response<'_>)) {
        let mut bytes = Vec::new();
        let mut writer = RequestFrameWriter::new(&mut bytes, 1, ORDERED_SPACE);
        for scan in scans {
            assert!(writer.push(&Request { key: b"", operation: Operation::Scan(*scan) }));
        }
        writer.finish();
        assert_eq!(self.native.send(&bytes, self.now), bytes.len());
        self.work();
        let received = self.native.take(usize::MAX);
        let (frame, size) = ReplyFrame::decode(&received).unwrap().expect("a whole frame");
        assert_eq!(size, received.len());
        frame.replies().enumerate().for_each(|(index, response)| f(index, response.unwrap()));
    }
}

#[test]
fn a_page_that_is_asked_for_too_late_is_refused() {
    let lease_time = Duration::from_secs(60);
    let settings =
        ServerSettings { memory: 16 << 20, ordered_memory: 8 << 20, lease_time, ..ServerSettings::default() };
    let ordered = settings.ordered(1).map(|settings| OrderedStore::new(&settings).expect("there is memory"));
    let shared = Arc::new(Shared::new(settings, ordered, None, 1, 2, SharedClock::new(read_clocks(), 0)));
    let mut scene = Scene::new(&shared);
    assert_eq!(scene.ask("SELECT 1"), "+OK\r\n");
    assert_eq!(scene.ask("MSET a 1 b 2 c 3"), "+OK\r\n");
    for seconds in [59, 61] {
        let is_late = seconds > lease_time.as_secs();
        let page = scene.ask("SKEP.SCAN - + KEYS LIMIT 1 LEASE OPEN");
        let resp_lease = page.trim_end().rsplit(':').next().expect("a number").to_owned();
        let mut native_lease = None;
        scene.scan(&[Scan { limit: 1, lease: ScanLease::Open, ..WHOLE }], |_, response| {
            let Ok(Reply::Value(page)) = response else { panic!("{response:?}") };
            native_lease = Page::decode(page).unwrap().lease();
        });
        scene.now += Duration::from_secs(seconds);
        let continued = Scan { lease: ScanLease::Continue(native_lease.expect("more follows")), ..WHOLE };
        scene.scan(&[continued, WHOLE], |index, response| match index {
            0 if is_late => assert_eq!(response, Ok(Reply::Failed(OperationError::LeaseExpired))),
            _ => assert!(matches!(response, Ok(Reply::Value(_))), "{response:?}"),
        });
        let reply = scene.ask(&format!("SKEP.SCAN - + KEYS AFTER a LEASE {resp_lease}"));
        let expected = "-ERR the lease of the scan has expired, or there never was one with this number: begin the scan \
                        again\r\n";
        if is_late {
            assert_eq!(reply, expected);
        } else {
            assert!(reply.contains("$1\r\nb\r\n$1\r\nc\r\n"), "{reply}");
        }
        // The scan can begin again.
        assert!(scene.ask("SKEP.SCAN - + KEYS").contains("$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"));
    }
    let info = scene.ask("INFO ordered");
    let leases = "skep_ordered_leases:0\r\nskep_ordered_leases_expired:2\r\nskep_ordered_leases_ended_for_memory:0\r\n";
    assert!(info.contains(leases), "{info}");
}
