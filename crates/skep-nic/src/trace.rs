//! Records events: spans of virtual time, written while operations run.
//!
//! ```text
//! operation  ├──────────────────────────────────────┤
//! read         ├──────────────────────────────┤           a span that begins in another ends in it,
//! tag, link …  ├┤├──────┤├──────────┤├──┤├────┤           unless both are parts that run side by side
//! ```
//!
//! A [`crate::clock::Clock`] has one recorder, which is off by default. Then an event costs a test of a flag. The
//! caller that switches it on must ensure that only the operations of interest are in flight.

use std::cell::{Cell, RefCell};

use crate::time::Time;

/// The location of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    /// The client and the network.
    Network,
    /// The NIC and the host. An event may end after the reply was sent.
    Nic,
}

/// An event with a duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its location.
    pub track: Track,
    /// Its name.
    pub name: String,
    /// Its start, since the start of the clock.
    pub begin: Time,
    /// Its end.
    pub end: Time,
}

/// Records events.
#[derive(Debug, Default)]
pub struct Recorder {
    is_on: Cell<bool>,
    events: RefCell<Vec<Event>>,
}

impl Recorder {
    /// Starts recording events.
    pub fn switch_on(&self) {
        self.is_on.set(true);
    }

    /// Stops recording. Returns the events with a duration in the order of their starts, the longer ones first.
    pub fn switch_off(&self) -> Vec<Event> {
        self.is_on.set(false);
        let mut events = self.events.take();
        events.retain(|event| event.begin < event.end);
        events.sort_by_key(|event| (event.begin, std::cmp::Reverse(event.end)));
        events
    }

    /// Records an event with known times.
    pub fn add(&self, track: Track, name: &str, begin: Time, end: Time) {
        if self.is_on.get() {
            self.events.borrow_mut().push(Event { track, name: name.to_owned(), begin, end });
        }
    }

    /// Begins an event in the NIC. Returns its number, if events are recorded; calls `name` only then.
    pub(crate) fn begin(&self, name: impl FnOnce() -> String, now: Time) -> Option<usize> {
        self.is_on.get().then(|| {
            let mut events = self.events.borrow_mut();
            events.push(Event { track: Track::Nic, name: name(), begin: now, end: now });
            events.len() - 1
        })
    }

    /// Ends the event with this number.
    pub(crate) fn end(&self, number: usize, now: Time) {
        if let Some(event) = self.events.borrow_mut().get_mut(number) {
            event.end = now;
        }
    }
}

/// Returns two numbers for each event: the lane that it is drawn in, and its depth, which is the number of events of
/// that lane that contain it. Two events in a lane belong to one track, and are disjoint or nested. Expects the order
/// of [`Recorder::switch_off`].
pub fn lanes(events: &[Event]) -> Vec<(usize, usize)> {
    let mut lanes: Vec<(Track, Vec<Time>)> = Vec::new();
    let lane = |event: &Event| {
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
    events.iter().map(lane).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, both, run};

    #[test]
    fn events_have_their_times_and_are_nested_or_overlap() {
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
