//! The sentences about the results of an item. Their words follow from their numbers, so they are true for every seed.
//!
//! | sentence | content | words |
//! |---|---|---|
//! | [`Sentence::Fact`] | the paper, or the run | fixed: it has no result |
//! | [`Variant`] | another assumption, with the largest deviation of a series before and after | the effect |
//! | [`Figures`] | our figures, beside the paper's if it has them | none: the reader compares |

use std::fmt;

use super::{Curve, Item, Point};

/// A sentence about the results of an item.
#[derive(Clone, Debug, PartialEq)]
pub enum Sentence {
    /// A fact about the paper or about the run. It is the same for every seed.
    Fact(String),
    /// The effect of another assumption.
    Variant(Variant),
    /// Figures, without a judgement.
    Figures(Figures),
}

/// Another assumption than that of the item's run, and the deviation of a series with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The assumption, as a clause: `if every PUT is alone in the pipeline`.
    pub name: String,
    /// The series.
    pub series: String,
    /// The largest deviation of the item's run from the paper, with its sign, where the variant has points.
    pub before: f64,
    /// The same of the variant.
    pub after: f64,
    /// The effect.
    pub effect: Effect,
}

/// The effect of another assumption on the deviation of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The item's run is within the tolerance, and the variant is not.
    Refuted,
    /// Both are within the tolerance.
    NotNeeded,
    /// Only the variant is within the tolerance.
    Explains,
    /// The variant is nearer to the paper by a fifth or more, but not within the tolerance.
    ExplainsPart,
    /// The variant is about as far from the paper, or farther.
    DoesNotExplain,
    /// The seeds disagree.
    Undecided,
}

/// Our figures under one heading, beside the paper's.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// The quantity with its unit.
    pub quantity: String,
    /// The figures.
    pub figures: Vec<Compared>,
}

/// A figure of ours, and the paper's if it has one.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Its name. It is empty if the quantity is enough.
    pub name: String,
    /// Our figure.
    pub ours: f64,
    /// The paper's.
    pub paper: Option<f64>,
}

impl Sentence {
    /// Returns a fact.
    pub(super) fn fact(text: impl Into<String>) -> Self {
        Sentence::Fact(text.into())
    }

    /// Returns the variant, if it is one.
    pub fn as_variant(&self) -> Option<&Variant> {
        match self {
            Sentence::Variant(variant) => Some(variant),
            Sentence::Fact(_) | Sentence::Figures(_) => None,
        }
    }

    /// Returns the figures, if it has some.
    pub fn as_figures(&self) -> Option<&Figures> {
        match self {
            Sentence::Figures(figures) => Some(figures),
            Sentence::Fact(_) | Sentence::Variant(_) => None,
        }
    }

    /// Returns the variant of a series that a curve of the item shows.
    pub(super) fn variant(name: &str, item: &Item, points: &[Point], series: &str, curve: &Curve) -> Self {
        Sentence::Variant(Variant::of(name, item, points, series, &curve.points))
    }
}

impl Effect {
    fn of(is_within: bool, variant_is_within: bool, before: f64, after: f64) -> Self {
        /// A variant that is nearer by less explains nothing.
        const NEARER: f64 = 0.8;
        match (is_within, variant_is_within) {
            (true, true) => Effect::NotNeeded,
            (true, false) => Effect::Refuted,
            (false, true) => Effect::Explains,
            (false, false) if after.abs() <= NEARER * before.abs() => Effect::ExplainsPart,
            (false, false) => Effect::DoesNotExplain,
        }
    }

    /// Returns the words for people, which follow *it*.
    pub fn words(self) -> &'static str {
        match self {
            Effect::Refuted => "is refuted: only without it the series is within the tolerance",
            Effect::NotNeeded => "is not needed: the series is within the tolerance without it too",
            Effect::Explains => "explains the deviation",
            Effect::ExplainsPart => "explains a part of the deviation",
            Effect::DoesNotExplain => "does not explain the deviation",
            Effect::Undecided => "has an effect that depends on the seed",
        }
    }
}

impl Variant {
    /// Compares the item's points of a series with those of a variant, which are pairs of x and y.
    pub(super) fn of(name: &str, item: &Item, points: &[Point], series: &str, variant: &[(f64, f64)]) -> Self {
        let y_at = |x: f64| variant.iter().find(|point| point.0 == x).map(|point| point.1);
        let of_series = points.iter().filter(|point| point.series == series);
        let both: Vec<(&Point, f64)> = of_series.filter_map(|point| Some((point, y_at(point.x)?))).collect();
        let largest = |deviations: &mut dyn Iterator<Item = f64>| {
            deviations.max_by(|one, other| one.abs().total_cmp(&other.abs())).unwrap_or_default()
        };
        let before = largest(&mut both.iter().map(|(point, _)| point.deviation()));
        let after = largest(&mut both.iter().map(|(point, y)| y / point.paper - 1.0));
        let is_within = both.iter().all(|(point, _)| item.is_within(point));
        let variant_is_within = both.iter().all(|(point, y)| item.tolerance_of(point).allows(*y, point.paper));
        let effect = Effect::of(is_within, variant_is_within, before, after);
        Variant { name: name.to_owned(), series: series.to_owned(), before, after, effect }
    }
}

impl Figures {
    /// Returns a heading without figures.
    pub(super) fn new(quantity: impl Into<String>) -> Self {
        Figures { quantity: quantity.into(), figures: Vec::new() }
    }

    /// Appends a figure that the paper does not have.
    pub(super) fn with(mut self, name: impl Into<String>, ours: f64) -> Self {
        self.figures.push(Compared { name: name.into(), ours, paper: None });
        self
    }

    /// Appends a figure that the paper has.
    pub(super) fn beside(mut self, name: impl Into<String>, ours: f64, paper: f64) -> Self {
        self.figures.push(Compared { name: name.into(), ours, paper: Some(paper) });
        self
    }

    /// Returns the sentence.
    pub(super) fn sentence(self) -> Sentence {
        Sentence::Figures(self)
    }
}

impl fmt::Display for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sentence::Fact(text) => f.write_str(text),
            Sentence::Variant(variant) => variant.fmt(f),
            Sentence::Figures(figures) => figures.fmt(f),
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Variant { name, series, before, after, effect } = self;
        let [before, after] = [before, after].map(|share| format!("{:+.1} %", 100.0 * share));
        write!(f, "Variant, {name}: {series} deviates by up to {after} instead of {before}. It {}.", effect.words())
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.quantity)?;
        for (index, Compared { name, ours, paper }) in self.figures.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let space = if name.is_empty() { "" } else { " " };
            write!(f, "{separator}{name}{space}{}", short(*ours))?;
            if let Some(paper) = paper {
                write!(f, " (paper: {})", short(*paper))?;
            }
        }
        f.write_str(".")
    }
}

/// Returns a figure with four significant digits, or with all digits before the decimal point.
fn short(figure: f64) -> String {
    let digits = 3 - (figure.abs().max(1e-3).log10().floor() as i32).clamp(-3, 3);
    let text = format!("{figure:.*}", usize::try_from(digits).unwrap_or_default());
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Returns the largest distance of two figures as a share of the second.
pub(super) fn farthest(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    pairs.map(|(one, other)| (one / other - 1.0).abs()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::super::Tolerance;
    use super::*;

    #[test]
    fn the_words_of_a_variant_follow_from_its_deviations() {
        let item = Item::named("fig14").unwrap();
        assert_eq!(item.tolerance, Tolerance::Relative(0.1));
        for (ours, variant, effect) in [
            (12.0, 10.5, Effect::Explains),
            (20.0, 15.0, Effect::ExplainsPart),
            (20.0, 19.0, Effect::DoesNotExplain),
            (20.0, 2.0, Effect::ExplainsPart),
            (20.0, 30.0, Effect::DoesNotExplain),
            (10.5, 9.5, Effect::NotNeeded),
            (10.5, 13.0, Effect::Refuted),
        ] {
            let points = [Point::further("a", 1.0, 10.0, ours), Point::further("a", 2.0, 10.0, 1e3)];
            let found = Variant::of("if x", item, &points, "a", &[(1.0, variant)]);
            assert_eq!(found.effect, effect, "{found}");
            assert!((found.before - (ours / 10.0 - 1.0)).abs() < 1e-9, "the variant has no point at 2: {found}");
        }
    }

    #[test]
    fn sentences_are_printed() {
        let figures = Figures::new("gain").with("one", 0.123_46).beside("", 1234.4, 1200.0).with("no", 3.0);
        assert_eq!(figures.to_string(), "gain: one 0.1235, 1234 (paper: 1200), no 3.");
        let variant = Variant {
            name: "if x".to_owned(),
            series: "a".to_owned(),
            before: 0.2,
            after: -0.01,
            effect: Effect::Explains,
        };
        let text = "Variant, if x: a deviates by up to -1.0 % instead of +20.0 %. It explains the deviation.";
        assert_eq!(variant.to_string(), text);
    }
}
