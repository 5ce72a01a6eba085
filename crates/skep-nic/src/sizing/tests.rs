//! Tests of sizing: bottlenecks, several NICs, sizes and mixes, and what is refused.

use std::sync::Mutex;

use skep_store::hash::Settings;

use super::{Bench, Demand, Sizing, cards_for, median, rate_within, size};
use crate::hardware::{Hardware, Server};
use crate::load::mix::Mix;
use crate::load::pairs::{PAIR_BYTES_MAX, Pairs, SizeRange, Sizes};
use crate::time::Time;

fn demand(kv_bytes: u32, put_share: f64, skew: f64) -> Demand {
    Demand { utilization: Some(0.4), ..Demand::of_puts(kv_bytes, put_share, skew) }
}

fn sized(demand: &Demand) -> Sizing {
    size(&Hardware::kv_direct(), demand, &[7], &|_| ()).unwrap()
}

#[test]
fn the_bottleneck_is_the_one_of_the_papers_figure() {
    for (kv_bytes, put_share, skew, bottleneck) in
        [(5, 0.0, 0.99, "clock"), (10, 0.0, 0.0, "PCIe"), (254, 0.0, 0.99, "network"), (10, 1.0, 0.0, "PCIe")]
    {
        let sizing = sized(&demand(kv_bytes, put_share, skew));
        assert_eq!(sizing.bottleneck, bottleneck, "{kv_bytes} B");
        let of = |name: &str| sizing.resources.iter().find(|resource| resource.name == name).unwrap();
        assert!(of(bottleneck).busiest().busy > 0.9, "{:?}", of(bottleneck));
        assert!(of(bottleneck).mops_if_doubled > 1.03 * sizing.mops, "{:?}", of(bottleneck));
        assert!(sizing.resources.iter().all(|resource| resource.busiest().busy <= 1.03), "{:?}", sizing.resources);
        assert!(sizing.latencies[0].mean_us <= sizing.latencies[1].mean_us);
        assert!(sizing.latencies.iter().all(|one| one.mean_us < one.p95_us && one.p95_us <= one.p99_us));
        if bottleneck == "clock" {
            assert_eq!(sized(&demand(kv_bytes, put_share, skew)), sizing, "the same seed gives the same figures");
        }
    }
}

/// Checks that no load dispatch ratio of a sweep is faster, except for the variation between runs.
#[test]
fn the_dispatch_ratio_is_among_the_best() {
    for (kv_bytes, put_share, skew) in [(10, 0.5, 0.99), (62, 0.5, 0.99), (10, 0.0, 0.0)] {
        let demand = demand(kv_bytes, put_share, skew);
        let mut board = Hardware::kv_direct();
        // No other resource may be the bound.
        board.card.clock_mhz = 1000.0;
        board.network.bandwidth_gb_per_s = 500.0;
        let sizing = size(&board, &demand, &[7], &|_| ()).unwrap();
        let (_, mut bench) = Bench::load(&board, &demand, 7).unwrap();
        let ratios = [0.0, 0.05, 0.1, 0.35, 0.55, 0.75, 1.0];
        let sweep: Vec<f64> = ratios.map(|ratio| bench.run(&board, ratio, Time::ZERO).carried_mops).to_vec();
        let best = sweep.iter().copied().fold(0.0, f64::max);
        assert!(sizing.mops > 0.95 * best, "{kv_bytes} B: {} at {}, {sweep:?}", sizing.mops, sizing.dispatch.ratio);
    }
}

/// Checks that NICs work in parallel, that the NICs of a memory node share it, and that a long tail is divided
/// unevenly.
#[test]
fn several_nics_are_sized_together() {
    let puts = demand(10, 1.0, 0.0);
    let sized = |nics: u32, gb_per_s: f64, demand: &Demand| {
        let mut board = Hardware::kv_direct_one_link();
        board.server = Server { nics, memory_nodes: 1 };
        board.host_dram.bandwidth_gb_per_s = gb_per_s;
        size(&board, demand, &[7], &|_| ()).unwrap()
    };
    let [one, two] = [1, 2].map(|nics| sized(nics, 60.0, &puts));
    assert!((1.8..2.1).contains(&(two.mops / one.mops)), "{} and {}", one.mops, two.mops);
    assert_eq!((two.pairs / 2, two.bottleneck, one.busiest_nic), (one.pairs, one.bottleneck, 1.0));
    assert!((1.0..1.05).contains(&two.busiest_nic), "{}", two.busiest_nic);
    let shared = sized(2, 4.0, &puts);
    assert_eq!(shared.bottleneck, "host DRAM");
    assert!(shared.mops < 0.8 * two.mops, "{} and {}", shared.mops, two.mops);
    let tail = sized(3, 60.0, &demand(10, 0.0, 0.99));
    assert!(tail.busiest_nic > 1.05, "{}", tail.busiest_nic);
    for sizing in [two, shared, tail] {
        assert!(sizing.resources.iter().all(|resource| resource.busiest().busy <= 1.03), "{:?}", sizing.resources);
        assert!(sizing.latencies[0].mean_us <= sizing.latencies[1].mean_us, "{:?}", sizing.latencies);
    }
}

#[test]
fn cores_that_gather_are_a_resource() {
    let mut board = Hardware::kv_direct_one_link();
    board.host_cpu.cores_per_link = 1;
    board.processor.operations_in_flight = 4096;
    let sizing = size(&board, &demand(10, 0.0, 0.0), &[7], &|_| ()).unwrap();
    assert_eq!((sizing.bottleneck, sizing.resources.len()), ("host cores", 7));
}

#[test]
fn an_impossible_value_is_refused_with_its_field_and_the_reason() {
    let good = demand(10, 0.5, 0.99);
    let pairs = |key: u32, value: u32| Pairs { keys: Sizes::fixed(key), values: Sizes::fixed(value) };
    let backwards = Pairs { values: Sizes(vec![SizeRange { share: 1.0, least: 9, most: 8 }]), ..pairs(4, 4) };
    let weightless = Pairs { values: Sizes(vec![SizeRange { share: 0.0, least: 8, most: 8 }]), ..pairs(4, 4) };
    let mix = |put: f64, insert: f64| Mix { put, insert, ..Mix::default() };
    for (bad, field, reason) in [
        (Demand { pairs: pairs(3, 8), ..good.clone() }, "key-size", "3 is not between 4 and 460"),
        (Demand { pairs: pairs(461, 8), ..good.clone() }, "key-size", "460"),
        (Demand { pairs: pairs(4, 0), ..good.clone() }, "value-size", "0 is not between 1"),
        (Demand { pairs: pairs(4, 65537), ..good.clone() }, "value-size", "65536"),
        (Demand { pairs: backwards, ..good.clone() }, "value-size", "9 is more than 8"),
        (Demand { pairs: weightless, ..good.clone() }, "value-size", "above 0"),
        (Demand { mix: mix(1.1, 0.0), ..good.clone() }, "put", "1.1"),
        (Demand { mix: mix(f64::NAN, 0.0), ..good.clone() }, "put", "NaN"),
        (Demand { mix: mix(0.5, 0.6), ..good.clone() }, "put", "1.10, more than 1"),
        (Demand { hot_share: -0.5, ..good.clone() }, "hot-key", "-0.5"),
        (
            Demand { pairs: pairs(16, 600), mix: Mix { update: 0.1, ..Mix::default() }, ..good.clone() },
            "update",
            "not atomic",
        ),
        (Demand { skew: -0.1, ..good.clone() }, "skew", "-0.1"),
        (Demand { utilization: Some(0.0), ..good.clone() }, "utilization", "above 0"),
        (Demand { utilization: Some(0.79), ..good.clone() }, "utilization", "less than 0.78"),
    ] {
        let refusal = size(&Hardware::kv_direct(), &bad, &[7], &|_| ()).unwrap_err().to_string();
        assert!(refusal.starts_with(field) && refusal.contains(reason), "{refusal}");
    }
    let mut board = Hardware::kv_direct();
    board.pcie.links = 0;
    let refusal = size(&board, &good, &[7], &|_| ()).unwrap_err().to_string();
    assert!(refusal.starts_with("pcie.links"), "{refusal}");
}

#[test]
fn the_smallest_and_the_largest_pairs_are_sized() {
    for kv_bytes in [5, PAIR_BYTES_MAX] {
        let demand = Demand { utilization: None, ..demand(kv_bytes, 0.05, 0.0) };
        let heard = Mutex::new(0.0);
        let progress = |share: f64| *heard.lock().unwrap() = share;
        let sizing = size(&Hardware::kv_direct_one_link(), &demand, &[7], &progress).unwrap();
        let heard = *heard.lock().unwrap();
        assert_eq!((heard, sizing.utilization), (1.0, Settings::utilization_for(kv_bytes as usize)));
        let server = Settings::for_kv_size(1 << 30, kv_bytes as usize, 7);
        assert_eq!(sizing.hash_index_ratio, server.hash_index_ratio, "the server's default");
    }
}

/// Clients divide a pair of 1 KiB into three. So it is a third as fast as its parts, and has their latency.
#[test]
fn pairs_above_a_slab_are_divided() {
    let sized = |key: u32, value: u32| {
        let pairs = Pairs { keys: Sizes::fixed(key), values: Sizes::fixed(value) };
        sized(&Demand { pairs, ..Demand::of_puts(10, 0.05, 0.99) })
    };
    let [part, whole] = [sized(18, 341), sized(16, 1024)];
    assert_eq!(whole.parts, 3.0);
    assert!((0.9..1.1).contains(&(3.0 * whole.mops / part.mops)), "{} and {}", whole.mops, part.mops);
    assert!(whole.latencies[0].mean_us > part.latencies[0].mean_us);
    assert_eq!((whole.bottleneck, part.bottleneck), ("network", "network"));
}

/// Runs all kinds of operations on pairs of different sizes. Insertions and deletions cost at least as much as PUTs, and
/// leave as many pairs as there were.
#[test]
fn mixes_and_ranges_of_sizes_are_sized() {
    let range = |share: f64, least: u32, most: u32| SizeRange { share, least, most };
    let pairs =
        Pairs { keys: Sizes(vec![range(1.0, 8, 24)]), values: Sizes(vec![range(9.0, 16, 64), range(1.0, 300, 900)]) };
    let mix = Mix { put: 0.1, insert: 0.1, delete: 0.1, update: 0.0 };
    let all = sized(&Demand { pairs, mix, ..Demand::of_puts(10, 0.0, 0.99) });
    assert!(all.parts > 1.0 && all.mops > 5.0, "{all:?}");
    let rate = |mix: Mix| sized(&Demand { mix, ..Demand::of_puts(30, 0.0, 0.0) }).mops;
    let puts = rate(Mix::of_puts(0.5));
    let churn = rate(Mix { insert: 0.25, delete: 0.25, ..Mix::default() });
    assert!((0.6..1.2).contains(&(churn / puts)), "{churn} and {puts}");
}

/// One counter for everybody: the engine adds one in a cycle, and memory is not needed.
#[test]
fn a_counter_for_everybody_has_the_rate_of_the_clock() {
    let counter =
        Demand { mix: Mix { update: 1.0, ..Mix::default() }, hot_share: 1.0, ..Demand::of_puts(12, 0.0, 0.0) };
    let sizing = sized(&counter);
    assert!((170.0..181.0).contains(&sizing.mops), "{sizing:?}");
    assert!(sizing.forwarded_share > 0.9 && sizing.bottleneck == "clock", "{sizing:?}");
}

/// A bound of arithmetic is at least the simulated rate, and that of the bottleneck is near it.
#[test]
fn bounds_are_above_the_rate() {
    for (kv_bytes, put_share, skew) in [(5, 0.0, 0.99), (10, 0.0, 0.0), (254, 0.0, 0.99), (10, 1.0, 0.0)] {
        let sizing = sized(&demand(kv_bytes, put_share, skew));
        for resource in &sizing.resources {
            assert!(
                resource.narrowest().bound_mops > 0.97 * sizing.mops,
                "{kv_bytes} B: {resource:?} and {}",
                sizing.mops
            );
        }
        let least =
            sizing.resources.iter().map(|resource| resource.narrowest().bound_mops).fold(f64::INFINITY, f64::min);
        assert!(least < 1.25 * sizing.mops, "{kv_bytes} B: {least} and {}", sizing.mops);
        assert_eq!(sizing.widened.is_empty(), sizing.bottleneck != "PCIe");
    }
}

/// Several cards with long replies are as fast as the wire of the busiest one lets them be.
#[test]
fn the_wire_of_the_busiest_card_bounds_several() {
    let mut board = Hardware::kv_direct();
    board.server.nics = 8;
    let sizing = size(&board, &demand(64, 0.05, 0.99), &[7], &|_| ()).unwrap();
    let network = sizing.resources.iter().find(|resource| resource.name == "network").unwrap();
    let bound = network.narrowest().bound_mops;
    assert!(sizing.busiest_nic > 1.1, "{}", sizing.busiest_nic);
    assert!(sizing.mops < 1.03 * bound, "{} and {bound}", sizing.mops);
}

#[test]
fn seeds_agree_on_the_ratio() {
    for demand in [Demand::of_puts(64, 0.05, 0.99), Demand::of_puts(10, 0.5, 0.99), Demand::of_puts(10, 1.0, 0.0)] {
        let ratios: Vec<f64> = (1..=5)
            .map(|seed| {
                let board = Hardware::kv_direct();
                Bench::load(&board, &demand, seed).unwrap().1.tuned(&board).ratio
            })
            .collect();
        let [low, high] = [f64::min, f64::max].map(|f| ratios.iter().copied().reduce(f).unwrap());
        assert!(high - low < 0.11, "{demand:?}: {ratios:?}");
    }
}

#[test]
fn medians_have_a_spread() {
    let together = size(&Hardware::kv_direct(), &demand(10, 0.5, 0.99), &[1, 2, 3], &|_| ()).unwrap();
    let [low, high] = together.mops_range;
    assert!(low <= together.mops && together.mops <= high && low < high && high < 1.05 * low, "{together:?}");
    assert_eq!(median([3.0, 1.0, 2.0, 9.0].into_iter()), 2.0);
}

#[test]
fn cards_are_counted_for_a_rate() {
    let gets = demand(10, 0.0, 0.0);
    let cards = cards_for(&Hardware::kv_direct(), &gets, 300.0, &[7], &|_| ()).unwrap();
    assert!(cards.mops >= 300.0 && (2..=4).contains(&cards.cards), "{cards:?}");
    assert!(cards.tried.iter().all(|tried| tried.cards == cards.cards || tried.mops < 300.0), "{cards:?}");
    // All operations are on one key, which has one card.
    let one_key = Demand { hot_share: 1.0, mix: Mix { update: 1.0, ..Mix::default() }, ..demand(12, 0.0, 0.0) };
    let refusal = cards_for(&Hardware::kv_direct(), &one_key, 400.0, &[7], &|_| ()).unwrap_err().to_string();
    assert!(refusal.starts_with("target") && refusal.contains("at most 1") && refusal.contains("16"), "{refusal}");
}

#[test]
fn the_rate_for_a_latency_is_below_the_full_rate_and_an_idle_card_is_the_limit() {
    let gets = demand(10, 0.05, 0.99);
    let within = rate_within(&Hardware::kv_direct(), &gets, 8.0, &[7], &|_| ()).unwrap();
    assert!(within.at.p99_us <= 8.0 && within.at.mops < within.full_mops, "{within:?}");
    assert!(within.at.mops > 0.3 * within.full_mops && within.idle_p99_us < within.at.p99_us, "{within:?}");
    let refusal = rate_within(&Hardware::kv_direct(), &gets, 2.0, &[7], &|_| ()).unwrap_err().to_string();
    assert!(refusal.starts_with("p99: 2 µs is below the") && refusal.contains("or more"), "{refusal}");
}
