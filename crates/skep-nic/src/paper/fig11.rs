//! Figure 11: memory accesses of a GET and of a PUT, for pairs of 10 B (a, b) and 254 B (c, d). The tables are
//! KV-Direct's chaining, MemC3's bucketed cuckoo hashing and FaRM's chained associative hopscotch hashing.
//!
//! Run: the three tables on counted memory, filled to each utilization. The measured PUTs insert the last new
//! keys up to that utilization. For the baselines, keys are inline and values are separate, as the paper assumes.

use skep_store::hash::Settings;

use super::counted_store::{Accesses, Corpus, add};
use super::fig11_baseline::{Table, count, utilization_max};
use super::fig11_pairs::{LARGE, PUT_SAMPLE, Pairs, STEP, TEN};
use super::{Axis, Context, Findings, Item, Point, Tolerance};
use crate::baseline::hopscotch::SEARCH_MAX;

pub(super) const GET_10: Item = Item {
    name: "fig11a",
    title: "Memory accesses of a GET, 10 B pairs",
    paper: include_str!("../../papers/fig11a-10b-get.csv"),
    x: Axis::linear("memory utilization (%)"),
    y: Axis::linear("memory accesses"),
    tolerance: Tolerance::Relative(0.05),
    run: |context| measure(context, &GET_10, &TEN),
};

pub(super) const PUT_10: Item = Item {
    name: "fig11b",
    title: "Memory accesses of a PUT, 10 B pairs",
    paper: include_str!("../../papers/fig11b-10b-put.csv"),
    run: |context| measure(context, &PUT_10, &TEN),
    ..GET_10
};

pub(super) const GET_254: Item = Item {
    name: "fig11c",
    title: "Memory accesses of a GET, 254 B pairs",
    paper: include_str!("../../papers/fig11c-254b-get.csv"),
    run: |context| measure(context, &GET_254, &LARGE),
    ..GET_10
};

pub(super) const PUT_254: Item = Item {
    name: "fig11d",
    title: "Memory accesses of a PUT, 254 B pairs",
    paper: include_str!("../../papers/fig11d-254b-put.csv"),
    run: |context| measure(context, &PUT_254, &LARGE),
    ..GET_10
};

fn measure(context: &mut Context<'_>, item: &Item, pairs: &Pairs) -> Findings {
    let puts = item.title.contains("PUT");
    let references = item.references();
    let mut findings = Findings::default();
    let mut curves = Vec::new();
    let (mut bars, mut equal_bars, mut slab) = (0, 0, 0.0);
    let mut charged = [("MemC3", 0.0_f64), ("FaRM", 0.0_f64)];
    for (done, reference) in references.iter().enumerate() {
        context.progress(done, references.len());
        let x = reference.x();
        let utilization = x / 100.0;
        let series = reference.series.as_str();
        let accesses = if series == "KV-Direct" {
            let (accesses, traffic) = chaining(pairs, pairs.hash_index_ratio, utilization, puts, context.seed);
            slab = traffic;
            bars += 1;
            let ends = [accesses.percentile(0.05), accesses.percentile(0.95)].map(|end| end as f64);
            equal_bars += usize::from(reference.bounds == Some((ends[0], ends[1])));
            add(&mut curves, series, "closed form: Poisson", x, pairs.closed_form(utilization, puts));
            // A few per mille of room. Without it, the last random chains would not get their buckets.
            let chosen = Settings::for_utilization(pairs.memory, pairs.size, utilization + 0.005, context.seed);
            if let Some(chosen) = chosen {
                let (best, _) = chaining(pairs, chosen.hash_index_ratio, utilization, puts, context.seed);
                add(&mut curves, series, "the ratio that the store chooses", x, best.mean());
            }
            accesses
        } else {
            let table = if series == "MemC3" { Table::Cuckoo } else { Table::Hopscotch };
            let counts = count(table, pairs, utilization, context.seed).expect("the figure's tables hold their pairs");
            let at_charge = if puts { counts.puts_charged } else { counts.gets_charged };
            if puts || table == Table::Cuckoo {
                add(&mut curves, series, "our operations at the figure's charges", x, at_charge);
            }
            let worst = &mut charged[usize::from(table == Table::Hopscotch)].1;
            *worst = worst.max((at_charge / reference.y - 1.0).abs());
            if puts { counts.puts } else { counts.gets }
        };
        add(&mut curves, series, "95th percentile", x, accesses.percentile(0.95) as f64);
        findings.points.push(Point::new(reference, accesses.mean()));
    }
    findings.curves = curves;
    findings.setting = setting(pairs, [bars, equal_bars], slab);
    findings.explanation = explanation(puts, charged.map(|(_, worst)| 100.0 * worst));
    if pairs.is_inline() {
        let [cuckoo, hopscotch] =
            [Table::Cuckoo, Table::Hopscotch].map(|table| 100.0 * utilization_max(table, pairs, context.seed));
        findings.setting.push_str(&format!(
            " MemC3 holds such pairs up to {cuckoo:.0} % and FaRM up to {hopscotch:.0} %. The text says 55 %, and the \
             bars end at 50 %."
        ));
    } else if !puts {
        findings.explanation.push_str(
            " KV-Direct at 85 %: the figure repeats its value for 80 %, while ours and the closed form continue to \
             rise. Ours exceeds the closed form by the cost of chance matches of the 9-bit secondary hash.",
        );
    }
    findings
}

/// Returns the conditions of the run: KV-Direct's error bars, and those that are equal to ours; the lines that a slab
/// allocation accesses.
fn setting(pairs: &Pairs, [bars, equal_bars]: [usize; 2], slab: f64) -> String {
    format!(
        "{} B pairs in {} MiB. Every {STEP}rd pair is read. A PUT is one of the last {PUT_SAMPLE} new keys. KV-Direct \
         has one hash index ratio, {}. Of its {bars} error bars {equal_bars} are equal, as the 5th and 95th \
         percentile. Slab allocation accesses {slab:.3} lines for an allocation. The paper does not state the size of \
         the baselines' indexes. They were fitted to the published GETs, with slots of 13 B (MemC3) and 16 B (FaRM) \
         and packed values. FaRM's search for a free slot ends {SEARCH_MAX} slots from the home bucket, which was \
         fitted too. So the level of the baselines' GETs is no evidence. Their PUTs follow from these parameters \
         without a fit.",
        pairs.size,
        pairs.memory >> 20,
        pairs.ratio_note,
    )
}

/// Explains how MemC3 and FaRM deviate. With the figure's charges, they do by at most these shares in per cent.
fn explanation(puts: bool, [cuckoo, hopscotch]: [f64; 2]) -> String {
    if puts {
        format!(
            "MemC3 and FaRM: ours are the accesses of running tables. According to its error bars, the figure seems \
             to charge more. MemC3's bars end at 3, 6, 21, 29 and 37. So the figure charges 3 more for the second \
             bucket, where ours makes one read. It charges 8 for each move, where ours makes one write and reads the \
             two buckets of the walks. With these charges, our operations are within {cuckoo:.0} % of its curve. \
             FaRM's bars end at 21 for a PUT that moves other keys. Ours reads the lines up to the free slot and \
             writes one slot for each move. With 21, and 5 (chosen to fit) for a chained key, our operations are \
             within {hopscotch:.0} % and rise and fall as published: in a full table no key can be moved."
        )
    } else {
        format!(
            "MemC3: a key in its second bucket costs two buckets and the value, 3 accesses. The figure's error bars \
             end at 4, as if the second bucket cost as much as the first and a value. With this charge the same GETs \
             are within {cuckoo:.1} % of its curve."
        )
    }
}

/// Returns the accesses of GETs or PUTs of the product's store at a utilization, and the lines that one slab allocation
/// accesses.
fn chaining(pairs: &Pairs, hash_index_ratio: f64, utilization: f64, puts: bool, seed: u64) -> (Accesses, f64) {
    let inline_threshold = if pairs.is_inline() { pairs.size } else { 0 };
    let settings = Settings { memory: pairs.memory, hash_index_ratio, inline_threshold, seed };
    let mut corpus = Corpus::new(&settings, pairs.pair_size);
    let pair_count = pairs.count_at(utilization);
    assert!(corpus.fill(pair_count - PUT_SAMPLE), "full at {} instead of {utilization}", corpus.utilization());
    let new = corpus.count_puts(pair_count);
    let slab = corpus.statistics().slab;
    let traffic = slab.lines as f64 / (slab.allocations + slab.releases).max(1) as f64;
    (if puts { new } else { corpus.count_gets(STEP) }, traffic)
}
