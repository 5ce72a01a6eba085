//! What happened when: spans of virtual time, written down while operations run.
//!
//! ```text
//! operation  ├──────────────────────────────────────┤
//! read         ├──────────────────────────────┤           a span that begins in another ends in it,
//! tag, link …  ├┤├──────┤├──────────┤├──┤├────┤           unless both are parts that run side by side
//! ```
//!
//! A [`crate::clock::Clock`] has one recorder, which is off: then a span costs the look at a flag. Whoever switches it on
//! sees to it that only what is of interest is under way.

use std::cell::{Cell, RefCell};

use crate::clock::Clock;
use crate::time::Time;

/// Where something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    /// As the client and the network see it.
    Network,
    /// In the NIC and the host. It may go on when the answer is under way.
    Nic,
}

/// Something that took time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Where it was.
    pub track: Track,
    /// What it was.
    pub name: String,
    /// Its begin, since the start of the clock.
    pub begin: Time,
    /// Its end.
    pub end: Time,
}

/// Writes events down.
#[derive(Debug, Default)]
pub struct Recorder {
    is_on: Cell<bool>,
    events: RefCell<Vec<Event>>,
}

/// An event that is under way; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the event ends when this is dropped"]
pub struct UnderWay<'a> {
    clock: &'a Clock,
    place: Option<usize>,
}

impl Recorder {
    /// From now on events are written down.
    pub fn switch_on(&self) {
        self.is_on.set(true);
    }

    /// From now on none are. Answers with those that took time, by their begins, the longer ones first.
    pub fn switch_off(&self) -> Vec<Event> {
        self.is_on.set(false);
        let mut events = self.events.take();
        events.retain(|event| event.begin < event.end);
        events.sort_by_key(|event| (event.begin, std::cmp::Reverse(event.end)));
        events
    }

    /// Writes down an event whose times are known.
    pub fn add(&self, track: Track, name: &str, begin: Time, end: Time) {
        if self.is_on.get() {
            self.events.borrow_mut().push(Event { track, name: name.to_owned(), begin, end });
        }
    }

    /// Begins an event in the NIC now.
    pub(crate) fn begin<'a>(&self, clock: &'a Clock, name: impl FnOnce() -> String) -> UnderWay<'a> {
        let place = self.is_on.get().then(|| {
            let mut events = self.events.borrow_mut();
            events.push(Event { track: Track::Nic, name: name(), begin: clock.now(), end: clock.now() });
            events.len() - 1
        });
        UnderWay { clock, place }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place
            && let Some(event) = self.clock.recorder().events.borrow_mut().get_mut(place)
        {
            event.end = self.clock.now();
        }
    }
}

/// For each of these events, which have to be in the order of [`Recorder::switch_off`], the lane that it is drawn in and
/// how many others of that lane it lies in. In a lane, two events are of one track, and apart or one in the other.
pub fn lanes(events: &[Event]) -> Vec<(usize, usize)> {
    let mut lanes: Vec<(Track, Vec<Time>)> = Vec::new();
    let place = |event: &Event| {
        for (number, (track, ends)) in lanes.iter_mut().enumerate() {
            if *track != event.track {
                continue;
            }
            while ends.last().is_some_and(|end| *end <= event.begin) {
                ends.pop();
            }
            if ends.last().is_none_or(|end| event.end <= *end) {
                ends.push(event.end);
                return (number, ends.len() - 1);
            }
        }
        lanes.push((event.track, vec![event.end]));
        (lanes.len() - 1, 0)
    };
    events.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{both, run};

    #[test]
    fn events_have_their_times_and_lie_in_one_another_or_side_by_side() {
        let clock = Clock::default();
        let part = async |name: &str, ns: f64| {
            let _part = clock.span(|| name.to_owned());
            clock.after(Time::from_ns(ns)).await;
        };
        let whole = async || {
            let _whole = clock.span(|| "whole".to_owned());
            part("first", 5.0).await;
            both(part("short", 3.0), part("long", 7.0)).await;
            drop(clock.span(|| "nothing".to_owned()));
        };
        run(&clock, 1, [whole()]);
        assert_eq!(clock.recorder().switch_off(), [], "it was off");
        clock.recorder().switch_on();
        run(&clock, 1, [whole()]);
        let events = clock.recorder().switch_off();
        let told: Vec<_> = events
            .iter()
            .zip(lanes(&events))
            .map(|(event, lane)| (event.name.as_str(), event.begin.as_ns(), event.end.as_ns(), lane))
            .collect();
        let expected = [
            ("whole", 12.0, 24.0, (0, 0)),
            ("first", 12.0, 17.0, (0, 1)),
            ("long", 17.0, 24.0, (0, 1)),
            ("short", 17.0, 20.0, (0, 2)),
        ];
        assert_eq!(told, expected);
        let crossing = [("a", 0, 5), ("b", 3, 8)].map(|(name, begin, end)| Event {
            track: Track::Nic,
            name: name.to_owned(),
            begin: Time::from_ps(begin),
            end: Time::from_ps(end),
        });
        assert_eq!(lanes(&crossing), [(0, 0), (1, 0)]);
    }
}
