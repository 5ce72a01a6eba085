//! Runs every item with three other seeds, and checks each sentence about the results. Takes minutes.

use skep_nic::paper::{Effect, Findings, ITEMS, Item, Point, Sentence, Tolerance, Variant};

#[test]
fn the_sentences_of_every_item_are_true_for_three_other_seeds() {
    if std::env::var_os("SKEP_FULL").is_none() {
        println!("skipped: set SKEP_FULL=1 to run it");
        return;
    }
    // Those of real time are about a machine and not about a seed.
    for item in ITEMS.iter().filter(|item| !item.is_real_time()) {
        let measure = |seed: u64| move || item.measure(seed, &mut |_| ());
        let [first, second, third] = std::thread::scope(|scope| {
            [101, 102, 103]
                .map(|seed| scope.spawn(measure(seed)))
                .map(|measured| measured.join().expect("measuring does not fail"))
        });
        for findings in [&first, &second, &third] {
            assert_eq!(findings.setting, first.setting, "{}: a condition depends on the seed", item.name);
            assert_eq!(facts(findings), facts(&first), "{}: a fact depends on the seed", item.name);
            let unexplained: Vec<_> = item.unexplained(findings).collect();
            assert!(unexplained.is_empty(), "{}: no variant is about {unexplained:?}", item.name);
            for sentence in &findings.sentences {
                check(item, findings, sentence);
            }
        }
    }
}

fn facts(findings: &Findings) -> Vec<&str> {
    let facts = findings.sentences.iter().filter_map(|sentence| match sentence {
        Sentence::Fact(text) => Some(text.as_str()),
        Sentence::Variant(_) | Sentence::Figures(_) => None,
    });
    facts.collect()
}

fn check(item: &Item, findings: &Findings, sentence: &Sentence) {
    match sentence {
        Sentence::Fact(text) => assert!(text.ends_with('.'), "{}: {text}", item.name),
        Sentence::Figures(figures) => {
            assert!(!figures.figures.is_empty(), "{}: {sentence}", item.name);
            assert!(figures.figures.iter().all(|figure| figure.ours.is_finite()), "{}: {sentence}", item.name);
        }
        Sentence::Variant(variant) => {
            let is_of_series = |point: &&Point| point.series == variant.series;
            let deviations = findings.points.iter().filter(is_of_series).map(Point::deviation);
            assert!(
                deviations.into_iter().any(|deviation| deviation == variant.before),
                "{}: no point of the series deviates so: {sentence}",
                item.name
            );
            let Tolerance::Relative(tolerance) = item.tolerance else { unreachable!("its variants are shares") };
            assert!(is_true(variant, tolerance), "{}: {sentence}", item.name);
        }
    }
}

/// Returns true if the effect is that of the deviations. It does not use the code that chose the effect.
fn is_true(variant: &Variant, tolerance: f64) -> bool {
    let [before, after] = [variant.before.abs(), variant.after.abs()];
    match variant.effect {
        Effect::Refuted => before <= tolerance && after > tolerance,
        Effect::NotNeeded => before <= tolerance && after <= tolerance,
        Effect::Explains => before > tolerance && after <= tolerance,
        Effect::ExplainsPart => before > tolerance && after > tolerance && after <= 0.8 * before,
        Effect::DoesNotExplain => before > tolerance && after > tolerance && after > 0.8 * before,
        Effect::Undecided => false,
    }
}
