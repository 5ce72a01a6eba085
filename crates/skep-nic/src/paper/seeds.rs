//! The findings of several seeds as one: medians, with the range of each point.
//!
//! | of the seeds' findings | in the result |
//! |---|---|
//! | points | median, lowest and highest |
//! | figures and curves | medians |
//! | variants | medians of the deviations; the effect, or *undecided* if the seeds disagree |
//! | facts, conditions | the same for every seed |

use super::{Curve, Effect, Figures, Findings, Point, Sentence, Variant};

/// Returns the findings of an item as one. All have the same points, curves and sentences, except for their figures.
///
/// # Panics
/// If there are none.
pub fn merged(all: &[Findings]) -> Findings {
    let first = all.first().expect("there is a seed");
    if all.len() == 1 {
        return first.clone();
    }
    let point = |index: usize| {
        let ours = || all.iter().map(|findings| findings.points[index].ours);
        let [low, high] = [ours().fold(f64::INFINITY, f64::min), ours().fold(f64::NEG_INFINITY, f64::max)];
        Point { ours: median(ours()), low, high, ..first.points[index].clone() }
    };
    let curve = |index: usize| {
        let y = |at: usize| median(all.iter().filter_map(|findings| Some(findings.curves[index].points.get(at)?.1)));
        let points = first.curves[index].points.iter().enumerate().map(|(at, point)| (point.0, y(at)));
        Curve { points: points.collect(), ..first.curves[index].clone() }
    };
    let sentence = |index: usize| {
        let alike: Vec<&Sentence> = all.iter().filter_map(|findings| findings.sentences.get(index)).collect();
        of_sentences(&alike)
    };
    Findings {
        points: (0..first.points.len()).map(point).collect(),
        curves: (0..first.curves.len()).map(curve).collect(),
        setting: first.setting.clone(),
        sentences: (0..first.sentences.len()).map(sentence).collect(),
    }
}

fn of_sentences(alike: &[&Sentence]) -> Sentence {
    match alike[0] {
        Sentence::Fact(text) => Sentence::Fact(text.clone()),
        Sentence::Variant(first) => {
            let all: Vec<&Variant> = alike.iter().filter_map(|sentence| sentence.as_variant()).collect();
            let effect =
                if all.iter().all(|one| one.effect == first.effect) { first.effect } else { Effect::Undecided };
            let before = median(all.iter().map(|one| one.before));
            let after = median(all.iter().map(|one| one.after));
            Sentence::Variant(Variant { before, after, effect, ..first.clone() })
        }
        Sentence::Figures(first) => {
            let all: Vec<&Figures> = alike.iter().filter_map(|sentence| sentence.as_figures()).collect();
            let mut figures = first.clone();
            for (at, figure) in figures.figures.iter_mut().enumerate() {
                // Seeds may differ in the figures that they name, such as the part that limits a rate.
                let same = all.iter().filter_map(|one| one.figures.get(at)).filter(|one| one.name == figure.name);
                figure.ours = median(same.map(|one| one.ours));
            }
            Sentence::Figures(figures)
        }
    }
}

/// Returns the middle of some figures, or the mean of the two in the middle.
fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    if figures.len().is_multiple_of(2) { f64::midpoint(figures[middle - 1], figures[middle]) } else { figures[middle] }
}

#[cfg(test)]
mod tests {
    use super::super::{Item, Judgement, Tolerance};
    use super::*;

    fn findings(ours: f64, effect: Effect) -> Findings {
        let variant = Variant {
            name: "if x".to_owned(),
            series: "uniform".to_owned(),
            before: ours / 10.0 - 1.0,
            after: 0.0,
            effect,
        };
        Findings {
            points: vec![Point::further("uniform", 1.0, 10.0, ours)],
            curves: vec![Curve::new("a", vec![(1.0, 2.0 * ours)])],
            setting: "Run.".to_owned(),
            sentences: vec![
                Sentence::Fact("So.".to_owned()),
                Sentence::Variant(variant),
                Figures::new("all").with("one", ours).sentence(),
            ],
        }
    }

    #[test]
    fn points_and_sentences_have_the_median_and_points_their_range() {
        let all = [12.0, 10.0, 10.5].map(|ours| findings(ours, Effect::Explains));
        let merged = merged(&all);
        let point = &merged.points[0];
        assert_eq!((point.ours, point.low, point.high), (10.5, 10.0, 12.0));
        assert_eq!(merged.curves[0].points, [(1.0, 21.0)]);
        assert_eq!(merged.sentences[0], all[0].sentences[0]);
        let Sentence::Variant(variant) = &merged.sentences[1] else { panic!("{merged:?}") };
        assert!((variant.before - 0.05).abs() < 1e-9 && variant.effect == Effect::Explains, "{variant}");
        assert_eq!(merged.sentences[2], Figures::new("all").with("one", 10.5).sentence());
        assert_eq!(super::merged(&all[..1]), all[0]);
    }

    #[test]
    fn seeds_that_disagree_leave_an_effect_and_a_point_undecided() {
        let item = Item::named("fig14").unwrap();
        assert_eq!(item.tolerance, Tolerance::Relative(0.1));
        let merged = merged(&[findings(10.5, Effect::NotNeeded), findings(11.5, Effect::Explains)]);
        let Sentence::Variant(variant) = &merged.sentences[1] else { panic!("{merged:?}") };
        assert_eq!(variant.effect, Effect::Undecided);
        assert_eq!(item.judge(&merged.points[0]), Judgement::Undecided);
        for (low, high, judgement) in [
            (9.5, 10.5, Judgement::Within),
            (8.0, 8.5, Judgement::Beyond),
            (12.0, 13.0, Judgement::Beyond),
            (8.0, 12.0, Judgement::Undecided),
            (8.0, 10.0, Judgement::Undecided),
        ] {
            let point = Point { low, high, ..Point::further("uniform", 1.0, 10.0, 10.0) };
            assert_eq!(item.judge(&point), judgement, "{low} to {high}");
        }
    }
}
