//! A store without versions, beside real threads: what it still promises, and that it promises no more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::super::{OrderedSettings, OrderedStore, Range};
use super::stress::{KEY_COUNT, ScanWith, run_history, scan_as_it_is, scan_backwards};
use crate::naive::{SplitMix64, test_seeds};
use skep_core::operation::{PutCondition, Reply};

fn settings() -> OrderedSettings {
    OrderedSettings { mvcc: false, ..OrderedSettings::new(64 << 20) }
}

/// Each pair that a scan shows was there at some moment while it ran, and each that it leaves out was not.
#[test]
fn every_key_of_a_scan_is_linearizable() {
    for seed in test_seeds() {
        for scan_with in [scan_as_it_is as ScanWith, scan_backwards] {
            let history = run_history(&settings(), seed, 10_000, scan_with);
            println!("seed {seed}: {} writes, {} scans", history.writes.len(), history.scans.len());
            assert!(history.scans.len() > 100);
            assert!(history.key_by_key().is_linearizable(KEY_COUNT), "seed {seed}");
        }
    }
}

/// Why there are versions.
#[test]
fn whole_scans_are_not_linearizable() {
    let history = |seed| run_history(&settings(), seed, 5_000, scan_as_it_is);
    let caught = (1..=20).any(|seed| !history(seed).is_linearizable(KEY_COUNT));
    assert!(caught, "scans without versions were taken for linearizable");
}

/// Pairs that stay are shown once and in order, forwards and backwards, while leaves are divided and joined around them.
#[test]
fn pairs_that_stay_are_shown_once() {
    const STAYING: u64 = 200;
    const BETWEEN: u64 = 40;
    let key_of = |number: u64| number.to_be_bytes();
    for seed in test_seeds() {
        println!("seed {seed}");
        let store = OrderedStore::new(&settings()).unwrap();
        let mut session = store.session().unwrap();
        for number in 0..STAYING {
            assert_eq!(session.put(&key_of(number * BETWEEN), &[1; 100], PutCondition::Always), Reply::Done);
        }
        let done = AtomicBool::new(false);
        let write = |writer: u64| {
            let mut random = SplitMix64::stream(seed, writer);
            let mut session = store.session().unwrap();
            for operation in 0..100_000_u64 {
                let number = random.below(STAYING * BETWEEN);
                if number.is_multiple_of(BETWEEN) {
                    continue;
                }
                // Filling a third of the time, then emptying.
                if operation % 15_000 < 5_000 {
                    assert_eq!(session.put(&key_of(number), &[2; 100], PutCondition::Always), Reply::Done);
                } else {
                    session.delete(&key_of(number));
                }
            }
        };
        let scan = || {
            let mut session = store.session().unwrap();
            let mut scans = 0;
            while !done.load(Ordering::Relaxed) {
                let mut keys: Vec<u64> = Vec::new();
                let mut f = |key: &[u8], _: &[u8]| {
                    keys.push(u64::from_be_bytes(key.try_into().unwrap()));
                    true
                };
                match scans % 2 {
                    0 => session.scan(Range::ALL, &mut f),
                    _ => {
                        session.scan_reverse(Range::ALL, &mut f);
                        keys.reverse();
                    }
                }
                assert!(keys.is_sorted_by(|a, b| a < b), "seed {seed} scan {scans}: keys ascend");
                let staying = keys.iter().filter(|key| key.is_multiple_of(BETWEEN)).count();
                assert_eq!(staying as u64, STAYING, "seed {seed} scan {scans}");
                scans += 1;
            }
            scans
        };
        thread::scope(|scope| {
            let writers = [0, 1].map(|writer| scope.spawn(move || write(writer)));
            let scanner = scope.spawn(scan);
            let outcomes = writers.map(thread::ScopedJoinHandle::join);
            done.store(true, Ordering::Relaxed);
            assert!(scanner.join().unwrap() > 10);
            assert!(outcomes.iter().all(Result::is_ok), "seed {seed}");
        });
        session.check();
        assert!(store.statistics().space.lids > 50, "leaves were divided: {:?}", store.statistics());
    }
}
