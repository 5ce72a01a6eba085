//! The stream that leaves in a session: divides it into packets, and repeats those that were lost.
//!
//! ```text
//!   bytes      acknowledged │ in packets: in flight, acknowledged early or lost │ not sent │ room
//!                           └▶ on_acknowledgement                               └▶ next    └▶ write
//! ```
//!
//! Each arrow is under the boundary that the method moves.
//!
//! - **Content.** A packet always has the bytes with which it was sent first. So a copy is dropped by its number alone.
//! - **Loss.** A packet is lost when one is acknowledged that was sent [`REORDERING_MAX`] or more after it, or when the
//!   retransmission timeout has passed without an acknowledgement of anything new. The timeout follows the measured round
//!   trip, as RFC 6298 computes it, and doubles with each expiry.
//! - **Congestion.** At most `congestion` packets are in flight. It grows as in slow start and congestion avoidance (RFC
//!   5681), is halved once for the losses of a round trip, and is [`CONGESTION_MIN`] after a timeout.
//! - **Silence.** After a number of timeouts in succession nothing is sent until the other side is heard.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::packet::{Data, Dropped, PAYLOAD_SIZE_MAX, WINDOW_MAX};
use super::{SPARE_SIZE_MAX, shrink};

/// Bytes that were written and not acknowledged, at most.
pub(super) const SENT_SIZE_MAX: usize = 2 * WINDOW_MAX * PAYLOAD_SIZE_MAX;
/// A packet is lost when one is acknowledged that was sent this number of packets after it.
const REORDERING_MAX: u64 = 3;
/// Packets in flight at first, and at least.
const CONGESTION_START: usize = 32;
const CONGESTION_MIN: usize = 2;
/// The timeout before the first measurement, and at most.
const TIMEOUT_START: Duration = Duration::from_millis(50);
const TIMEOUT_MAX: Duration = Duration::from_secs(1);
/// A packet that is older is sent again when the other side waits. The round trips that a server measures have the pauses
/// of the client in them.
const RESENT_AGE_MAX: Duration = Duration::from_millis(5);
/// The timeout doubles this number of times.
const DOUBLINGS_MAX: u32 = 10;

/// A packet that is not acknowledged, or was sent after one that is not.
#[derive(Clone, Copy, Debug)]
struct Flight {
    size: u16,
    is_end: bool,
    state: State,
    is_repeated: bool,
    /// Its number among all packets that were sent, copies included.
    order: u64,
    sent_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    Lost,
    Acknowledged,
}

/// A packet to send: its number, and the bytes of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) number: u64,
    pub(super) is_end: bool,
    offset: usize,
    pub(super) size: usize,
}

/// The sending half of a session.
#[derive(Debug)]
pub(super) struct Sender {
    payload_size_max: usize,
    /// The bytes that are not acknowledged, and those that were not sent.
    bytes: VecDeque<u8>,
    /// Bytes of them that are in packets.
    sent: usize,
    /// The packets from `first` on.
    flights: VecDeque<Flight>,
    first: u64,
    in_flight: usize,
    lost: usize,
    has_end: bool,
    is_end_sent: bool,
    /// The packet before which the other side takes packets.
    window_end: u64,
    /// The order of the next packet, and of the newest that was acknowledged.
    next_order: u64,
    acknowledged_order: u64,
    congestion: Congestion,
    round_trip: Option<RoundTrip>,
    timeout_min: Duration,
    /// Timeouts in succession, and the number after which nothing is sent.
    timeouts: u32,
    timeouts_max: u32,
    /// The time from which the timeout counts.
    timer_from: Instant,
    /// Copies of packets that were sent.
    repeated: u64,
}

/// The congestion window: it grows with the packets that are acknowledged, and is halved after a loss.
#[derive(Debug)]
struct Congestion {
    /// Packets that may be in flight.
    window: usize,
    /// The window at which growth becomes slow, and acknowledgements since it grew.
    threshold: usize,
    growth: usize,
    /// Losses of packets that were sent before do not halve the window again.
    recovery_order: u64,
}

impl Congestion {
    fn new() -> Congestion {
        Congestion { window: CONGESTION_START, threshold: WINDOW_MAX, growth: 0, recovery_order: 0 }
    }

    /// Grows after the acknowledgement of this number of packets.
    fn grow(&mut self, count: usize) {
        if self.window < self.threshold {
            self.window += count;
        } else {
            self.growth += count;
            if self.growth >= self.window {
                self.growth = 0;
                self.window += 1;
            }
        }
        self.window = self.window.min(WINDOW_MAX);
    }

    /// Halves the window after the loss of a packet of this order, unless that was done since it was sent.
    fn on_loss(&mut self, order: u64, next_order: u64) {
        if order >= self.recovery_order {
            self.begin_recovery(next_order);
            self.window = self.threshold;
        }
    }

    /// Begins with the smallest window again.
    fn on_timeout(&mut self, next_order: u64) {
        self.begin_recovery(next_order);
        self.window = CONGESTION_MIN;
    }

    fn begin_recovery(&mut self, next_order: u64) {
        self.recovery_order = next_order;
        self.threshold = (self.window / 2).max(CONGESTION_MIN);
    }
}

/// The measured round trip.
#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    smoothed: Duration,
    variation: Duration,
    shortest: Duration,
}

impl RoundTrip {
    fn update(trip: Option<RoundTrip>, sample: Duration) -> RoundTrip {
        match trip {
            None => RoundTrip { smoothed: sample, variation: sample / 2, shortest: sample },
            Some(RoundTrip { smoothed, variation, shortest }) => RoundTrip {
                smoothed: smoothed * 7 / 8 + sample / 8,
                variation: variation * 3 / 4 + smoothed.abs_diff(sample) / 4,
                shortest: shortest.min(sample),
            },
        }
    }
}

impl Sender {
    /// Creates the half of a new session, whose packets have at most `payload_size_max` bytes, and whose timeout is at least `timeout_min`. After `timeouts_max` of them nothing is
    /// sent.
    pub(super) fn new(payload_size_max: usize, timeout_min: Duration, timeouts_max: u32, now: Instant) -> Sender {
        Sender {
            payload_size_max,
            bytes: VecDeque::new(),
            sent: 0,
            flights: VecDeque::new(),
            first: 0,
            in_flight: 0,
            lost: 0,
            has_end: false,
            is_end_sent: false,
            window_end: WINDOW_MAX as u64,
            next_order: 1,
            acknowledged_order: 0,
            congestion: Congestion::new(),
            round_trip: None,
            timeout_min,
            timeouts: 0,
            timeouts_max,
            timer_from: now,
            repeated: 0,
        }
    }

    /// Returns the number of bytes that can be written, if no more than `size_max` are to be kept.
    pub(super) fn room(&self, size_max: usize) -> usize {
        if self.has_end { 0 } else { size_max.min(SENT_SIZE_MAX).saturating_sub(self.bytes.len()) }
    }

    /// Appends the first of the bytes that there is room for. Returns how many these are.
    pub(super) fn write(&mut self, bytes: &[u8], size_max: usize) -> usize {
        let size = bytes.len().min(self.room(size_max));
        self.bytes.extend(&bytes[..size]);
        size
    }

    /// Ends the stream after the bytes so far.
    pub(super) fn finish(&mut self) {
        self.has_end = true;
    }

    /// Returns true if everything that was written is acknowledged, and the end too if there is one.
    pub(super) fn is_done(&self) -> bool {
        self.bytes.is_empty() && self.flights.is_empty() && self.has_end == self.is_end_sent
    }

    /// Returns true if a packet can be sent now.
    pub(super) fn has_next(&self) -> bool {
        self.may_send() && (self.lost > 0 || self.has_new() && self.is_in_window())
    }

    fn may_send(&self) -> bool {
        self.in_flight < self.congestion.window && self.timeouts < self.timeouts_max
    }

    fn has_new(&self) -> bool {
        self.sent < self.bytes.len() || self.has_end && !self.is_end_sent
    }

    fn is_in_window(&self) -> bool {
        self.flights.len() < WINDOW_MAX && self.first + (self.flights.len() as u64) < self.window_end
    }

    /// Takes the next packet to send: first a lost one, then a new one.
    pub(super) fn next(&mut self, now: Instant) -> Option<Next> {
        if !self.has_next() {
            return None;
        }
        if self.in_flight == 0 && self.timeouts == 0 {
            self.timer_from = now;
        }
        let order = self.next_order;
        self.next_order += 1;
        self.in_flight += 1;
        if self.lost > 0 {
            self.lost -= 1;
            self.repeated += 1;
            let mut offset = 0;
            for (number, flight) in (self.first..).zip(&mut self.flights) {
                if flight.state == State::Lost {
                    *flight = Flight { state: State::InFlight, is_repeated: true, order, sent_at: now, ..*flight };
                    return Some(Next { number, is_end: flight.is_end, offset, size: usize::from(flight.size) });
                }
                offset += usize::from(flight.size);
            }
            unreachable!("the lost packets are counted");
        }
        let size = (self.bytes.len() - self.sent).min(self.payload_size_max);
        let is_end = self.has_end && self.sent + size == self.bytes.len();
        let next = Next { number: self.first + self.flights.len() as u64, is_end, offset: self.sent, size };
        self.sent += size;
        self.is_end_sent |= is_end;
        let state = State::InFlight;
        self.flights.push_back(Flight { size: size as u16, is_end, state, is_repeated: false, order, sent_at: now });
        Some(next)
    }

    /// Appends the payload of a packet.
    pub(super) fn append_payload(&self, next: &Next, out: &mut Vec<u8>) {
        let (first, second) = self.bytes.as_slices();
        let end = next.offset + next.size;
        out.extend_from_slice(&first[next.offset.min(first.len())..end.min(first.len())]);
        out.extend_from_slice(&second[next.offset.saturating_sub(first.len())..end.saturating_sub(first.len())]);
    }

    /// Takes over what a packet says about the packets that arrived. Returns true if there is room for more bytes, or
    /// packets may be sent that had to wait.
    pub(super) fn on_acknowledgement(&mut self, data: &Data<'_>, now: Instant) -> Result<bool, Dropped> {
        let Some(acknowledged) = data.acknowledgement.checked_sub(self.first) else {
            // An older packet, which has nothing new.
            return Ok(false);
        };
        let in_doubt = (self.flights.len() as u64).checked_sub(acknowledged).ok_or(Dropped::Acknowledgement)?;
        // The packet of the acknowledgement is missing, so the bitmap begins with the one after it.
        if data.bitmap.checked_shr(in_doubt.saturating_sub(1) as u32).is_some_and(|beyond| beyond != 0) {
            return Err(Dropped::Acknowledgement);
        }
        let window_end = self.window_end.max(data.acknowledgement + u64::from(data.window));
        let mut has_changed = window_end > self.window_end;
        self.window_end = window_end;
        let mut newest: Option<Flight> = None;
        let mut new_count = 0;
        let mut acknowledge = |flight: &mut Flight, in_flight: &mut usize, lost: &mut usize| {
            match std::mem::replace(&mut flight.state, State::Acknowledged) {
                State::Acknowledged => return,
                State::InFlight => *in_flight -= 1,
                State::Lost => *lost -= 1,
            }
            new_count += 1;
            if newest.is_none_or(|newest| newest.order < flight.order) {
                newest = Some(*flight);
            }
        };
        for _ in 0..acknowledged {
            let Some(mut flight) = self.flights.pop_front() else { break };
            acknowledge(&mut flight, &mut self.in_flight, &mut self.lost);
            self.bytes.drain(..usize::from(flight.size));
            self.sent -= usize::from(flight.size);
            self.first += 1;
            has_changed = true;
        }
        let mut bitmap = data.bitmap;
        while bitmap != 0 {
            let index = 1 + bitmap.trailing_zeros() as usize;
            acknowledge(&mut self.flights[index], &mut self.in_flight, &mut self.lost);
            bitmap &= bitmap - 1;
        }
        if let Some(newest) = newest {
            shrink(&mut self.bytes, SPARE_SIZE_MAX);
            self.timeouts = 0;
            self.timer_from = now;
            self.acknowledged_order = self.acknowledged_order.max(newest.order);
            if !newest.is_repeated {
                let sample = now.saturating_duration_since(newest.sent_at);
                self.round_trip = Some(RoundTrip::update(self.round_trip, sample));
            }
            self.congestion.grow(new_count);
            self.find_losses();
            has_changed = true;
        }
        Ok(has_changed)
    }

    /// Marks the packets as lost after which enough others have arrived.
    fn find_losses(&mut self) {
        let Some(limit) = self.acknowledged_order.checked_sub(REORDERING_MAX) else { return };
        if let Some(order) = self.mark_lost(|flight| flight.order <= limit) {
            self.congestion.on_loss(order, self.next_order);
        }
    }

    /// Marks the packets in flight as lost for which the function returns true. Returns the newest order of them.
    fn mark_lost(&mut self, mut is_lost: impl FnMut(&Flight) -> bool) -> Option<u64> {
        let mut newest = None;
        for flight in &mut self.flights {
            if flight.state == State::InFlight && is_lost(flight) {
                flight.state = State::Lost;
                (self.in_flight, self.lost) = (self.in_flight - 1, self.lost + 1);
                newest = newest.max(Some(flight.order));
            }
        }
        newest
    }

    /// Sends again what was in flight for longer than a round trip, or [`RESENT_AGE_MAX`]: the other side has shown that it waits.
    pub(super) fn resend(&mut self, now: Instant) {
        self.timeouts = 0;
        let shortest = self.round_trip.map_or(Duration::ZERO, |trip| trip.shortest.min(RESENT_AGE_MAX));
        if self.mark_lost(|flight| flight.sent_at + shortest <= now).is_some() {
            self.timer_from = now;
        }
    }

    /// Records that the other side was heard after a silence.
    pub(super) fn on_heard(&mut self, now: Instant) {
        if self.timeouts >= self.timeouts_max {
            self.timeouts = 0;
            self.timer_from = now;
        }
    }

    /// Returns the time without an acknowledgement after which something is lost.
    pub(super) fn timeout(&self) -> Duration {
        let timeout = self.round_trip.map_or(TIMEOUT_START, |trip| trip.smoothed + 4 * trip.variation);
        (timeout.max(self.timeout_min) * (1 << self.timeouts.min(DOUBLINGS_MAX))).min(TIMEOUT_MAX)
    }

    /// Returns the time at which [`Sender::on_timeout`] is to be called if nothing arrives.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let waits = !self.flights.is_empty() || self.has_new() && !self.is_in_window();
        (waits && self.timeouts < self.timeouts_max).then(|| self.timer_from + self.timeout())
    }

    /// Records that nothing was acknowledged in time. Returns true if the other side has to be asked for its window.
    pub(super) fn on_timeout(&mut self, now: Instant) -> bool {
        self.timeouts = self.timeouts.saturating_add(1);
        self.timer_from = now;
        if self.flights.is_empty() {
            return true;
        }
        self.mark_lost(|_| true);
        self.congestion.on_timeout(self.next_order);
        false
    }

    /// Returns the number of copies that were sent since the last call.
    pub(super) fn take_repeated(&mut self) -> u64 {
        std::mem::take(&mut self.repeated)
    }

    /// Returns the bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity() + self.flights.capacity() * size_of::<Flight>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: Data<'_> = Data {
        session: 7,
        number: None,
        is_end: false,
        is_probe: false,
        acknowledgement: 0,
        bitmap: 0,
        window: WINDOW_MAX as u16,
        payload: &[],
    };

    /// Returns a half that has sent this number of packets.
    fn sender(count: usize, now: Instant) -> Sender {
        let mut sender = Sender::new(PAYLOAD_SIZE_MAX, Duration::from_millis(5), u32::MAX, now);
        sender.write(&vec![7; count * PAYLOAD_SIZE_MAX], usize::MAX);
        let sent = std::iter::from_fn(|| sender.next(now)).count();
        assert_eq!(sent, count);
        sender
    }

    #[test]
    fn packets_that_were_not_sent_cannot_be_acknowledged() {
        let now = Instant::now();
        let mut sender = sender(3, now);
        for (acknowledgement, bitmap) in [(4, 0), (u64::MAX, 0), (0, 4), (0, 1 << 63), (2, 1), (3, 1)] {
            let data = Data { acknowledgement, bitmap, ..BARE };
            assert_eq!(sender.on_acknowledgement(&data, now), Err(Dropped::Acknowledgement), "{data:?}");
        }
        assert_eq!(sender.on_acknowledgement(&Data { bitmap: 3, ..BARE }, now), Ok(true));
        assert_eq!(sender.on_acknowledgement(&Data { acknowledgement: 3, ..BARE }, now), Ok(true));
        assert!(sender.is_done());
    }

    #[test]
    fn a_packet_is_lost_after_three_later_ones_or_a_timeout() {
        let now = Instant::now();
        let mut sender = sender(5, now);
        sender.on_acknowledgement(&Data { bitmap: 0b11, ..BARE }, now).unwrap();
        assert_eq!(sender.next(now), None, "two later ones have arrived");
        sender.on_acknowledgement(&Data { bitmap: 0b111, ..BARE }, now).unwrap();
        assert_eq!(sender.next(now).map(|next| (next.number, next.size)), Some((0, PAYLOAD_SIZE_MAX)));
        assert_eq!(sender.next(now), None);
        let deadline = sender.deadline().unwrap();
        assert!(!sender.on_timeout(deadline));
        let repeated: Vec<u64> = std::iter::from_fn(|| sender.next(deadline)).map(|next| next.number).collect();
        assert_eq!(repeated, [0, 4]);
        assert!(sender.deadline().unwrap() - deadline > deadline - now, "the timeout doubles");
    }

    #[test]
    fn no_more_is_sent_than_the_window_takes() {
        let now = Instant::now();
        let mut sender = sender(1, now);
        sender.write(&vec![7; WINDOW_MAX * PAYLOAD_SIZE_MAX], usize::MAX);
        let mut acknowledgement = 0;
        let mut last = None;
        while last != Some(acknowledgement) {
            last = Some(acknowledgement);
            acknowledgement += sender.flights.len() as u64;
            sender.on_acknowledgement(&Data { acknowledgement, window: 0, ..BARE }, now).unwrap();
            while sender.next(now).is_some() {}
        }
        assert_eq!(acknowledgement, WINDOW_MAX as u64, "the end of the first window does not move back");
        assert!(sender.on_timeout(sender.deadline().expect("it waits for the window")), "it asks for the window");
        sender.on_acknowledgement(&Data { acknowledgement, window: 1, ..BARE }, now).unwrap();
        assert!(sender.next(now).is_some());
    }
}
