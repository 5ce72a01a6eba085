//! Every reply of the card is the product's at the same read version. Without one of the safeguards some are not.

use std::ops::Range;

use super::{CardCounts, Compared, Comparison, Safeguards, Sending, compare};

const SAFE: Safeguards = Safeguards { node_address_table: true, invalidation: true };
const COMPARISON: Comparison = Comparison {
    requests: 10_000,
    keys: 3000,
    cache_nodes: 8,
    log_block_size: 1024,
    sending: Sending::AtOnce,
    safeguards: SAFE,
    has_window: true,
};

/// Returns the sums over some seeds.
fn compared(comparison: &Comparison, seeds: Range<u64>) -> Compared {
    seeds.map(|seed| compare(comparison, seed)).fold(Compared::default(), |sum, one| Compared {
        requests: sum.requests + one.requests,
        writes: sum.writes + one.writes,
        wrong: sum.wrong + one.wrong,
        inconsistent: sum.inconsistent + one.inconsistent,
        stale: sum.stale + one.stale,
        card: CardCounts {
            hits: sum.card.hits + one.card.hits,
            moved: sum.card.moved + one.card.moved,
            invalidations: sum.card.invalidations + one.card.invalidations,
            evictions: sum.card.evictions + one.card.evictions,
            stopped_fills: sum.card.stopped_fills + one.card.stopped_fills,
            older: sum.card.older + one.card.older,
        },
    })
}

/// Seeds of the test without controls. `SKEP_LONG` multiplies them.
fn seeds() -> Range<u64> {
    let long: u64 = std::env::var("SKEP_LONG").map_or(1, |factor| factor.parse().expect("SKEP_LONG is a number"));
    0..2 * long
}

#[test]
fn replies_are_those_of_the_product_at_the_same_version() {
    let mut all = CardCounts::default();
    for log_block_size in [1024, 128] {
        for sending in [Sending::AtOnce, Sending::VersionsBatched(2000)] {
            let comparison = Comparison { log_block_size, sending, ..COMPARISON };
            let Compared { requests, writes, wrong, inconsistent, stale, card } = compared(&comparison, seeds());
            assert_eq!((wrong, inconsistent, stale), (0, 0, 0), "{comparison:?}");
            assert!(requests == 10_000 * seeds().end && writes > requests / 20, "{writes} writes, {requests} requests");
            assert!(card.hits > 0 && card.moved > 0 && card.older > 0, "{card:?}");
            all.invalidations += card.invalidations;
            all.evictions += card.evictions;
            all.stopped_fills += card.stopped_fills;
        }
    }
    assert!(all.invalidations > 100 && all.evictions > 100 && all.stopped_fills > 100, "{all:?}");
}

/// Returns the requests with a wrong reply or inconsistent blocks.
fn failures(comparison: Comparison) -> u64 {
    let Compared { wrong, inconsistent, .. } = compared(&comparison, 0..1);
    wrong + inconsistent
}

#[test]
fn without_the_node_address_table_a_node_is_read_from_two_frames() {
    assert!(failures(Comparison { safeguards: Safeguards { node_address_table: false, ..SAFE }, ..COMPARISON }) > 0);
}

#[test]
fn without_invalidation_the_cache_keeps_old_frames() {
    assert!(failures(Comparison { safeguards: Safeguards { invalidation: false, ..SAFE }, ..COMPARISON }) > 0);
}

#[test]
fn a_version_that_is_sent_before_the_page_table_is_read_too_early() {
    assert!(failures(Comparison { sending: Sending::VersionFirst, ..COMPARISON }) > 0);
}

#[test]
fn memory_that_is_freed_by_the_epochs_of_the_threads_alone_is_still_read() {
    assert!(failures(Comparison { has_window: false, ..COMPARISON }) > 0);
}

#[test]
fn entries_that_are_sent_late_are_missed_by_a_request_that_follows_a_new_sibling() {
    let comparison = Comparison { sending: Sending::AllBatched(10_000), ..COMPARISON };
    let Compared { wrong, inconsistent, .. } = compared(&comparison, 0..4);
    assert!(wrong + inconsistent > 0);
}
