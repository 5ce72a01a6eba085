//! A page of a lease is complete before its lease is let go: also if the thread that reads it is stopped on the way.
//!
//! The thread is stopped by the allocator, where the page grows by its last key. Others then free all that they may, and use
//! it again; the key must be that of the page.
#![expect(unsafe_code, reason = "an allocator that stops a thread is the one way to stop it within a page")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use skep_core::operation::{
    Operation, Page, PutCondition, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart,
};
use skep_store::ordered::{OrderedSettings, OrderedStore};
use skep_store::processor::Replies;

const STOP: u32 = 1;
const STOPPED: u32 = 2;
const GO_ON: u32 = 3;

static STAGE: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static IS_READER: Cell<bool> = const { Cell::new(false) };
}

/// The system's allocator. The reader stops when memory of its grows.
struct Stopping;

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Stopping {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the promises of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the promises of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if IS_READER.get() && STAGE.load(Ordering::SeqCst) == STOP {
            STAGE.store(STOPPED, Ordering::SeqCst);
            while STAGE.load(Ordering::SeqCst) != GO_ON {
                thread::yield_now();
            }
        }
        // SAFETY: the caller keeps the promises of `GlobalAlloc::realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Stopping = Stopping;

const PAIRS: u32 = 200;

fn key(number: u32) -> Vec<u8> {
    format!("{:a>60}{number:08}", "").into_bytes()
}

#[test]
fn a_page_is_complete_before_its_lease_is_let_go() {
    let store = OrderedStore::new(&OrderedSettings::new(64 << 20)).unwrap();
    let mut writer = store.session().unwrap();
    let put = |writer: &mut skep_store::ordered::Session<'_>, key: &[u8], value: u8| {
        assert_eq!(writer.put(key, &[value; 16], PutCondition::Always), Reply::Done);
    };
    (0..PAIRS).for_each(|number| put(&mut writer, &key(number), 1));
    let count = Scan {
        start: ScanStart::AtOrAbove,
        end: ScanEnd::Last,
        reverse: false,
        limit: 1,
        answer: ScanAnswer::Count,
        lease: ScanLease::Open,
    };
    let (opened, is_opened) = channel();
    let (go_on, may_go_on) = channel();
    let store = &store;
    let read = move || {
        let mut session = store.session().unwrap();
        let mut page = |scan| {
            let mut replies = Replies::with_budget(1 << 20);
            session.execute(&[Request { key: b"", operation: Operation::Scan(scan) }], &mut replies, Instant::now());
            let Reply::Value(page) = replies.get(0) else { panic!("{:?}", replies.get(0)) };
            let page = Page::decode(page).unwrap();
            (page.lease(), page.more(), page.last_key().to_vec())
        };
        let lease = page(count).0.expect("more follows");
        opened.send(()).unwrap();
        may_go_on.recv().unwrap();
        IS_READER.set(true);
        STAGE.store(STOP, Ordering::SeqCst);
        let last = page(Scan { limit: u32::MAX, lease: ScanLease::Continue(lease), ..count });
        IS_READER.set(false);
        last
    };
    thread::scope(|scope| {
        let reader = scope.spawn(read);
        is_opened.recv().unwrap();
        // Every leaf gets another frame; the one before waits for the lease.
        for round in 0..10 {
            (0..PAIRS).for_each(|number| put(&mut writer, &key(number), round));
        }
        writer.collect();
        go_on.send(()).unwrap();
        while STAGE.load(Ordering::SeqCst) != STOPPED {
            thread::yield_now();
        }
        // What is free is used again.
        writer.collect();
        for number in 0..60_000_u32 {
            let other = [&[b'Z'; 12][..], &number.wrapping_mul(0x9e37_79b9).to_be_bytes()].concat();
            put(&mut writer, &other, b'#');
        }
        STAGE.store(GO_ON, Ordering::SeqCst);
        let (lease, more, last_key) = reader.join().unwrap();
        assert_eq!((lease, more), (None, false));
        assert_eq!(last_key.escape_ascii().to_string(), key(PAIRS - 1).escape_ascii().to_string());
    });
}
