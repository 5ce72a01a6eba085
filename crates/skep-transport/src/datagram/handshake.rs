//! The begin of a session: a client proves that its address is its own before the server keeps anything for it.
//!
//! 1. The client sends a hello with a number that it chose.
//! 2. The server replies with a cookie: a keyed hash of the client's address, its number and the time. It keeps nothing.
//! 3. The client sends the hello again, with the cookie. Only a client that receives packets at its address has it.
//! 4. The server begins a session and replies with its number. If this hello arrives again, so does the reply.
//!
//! The number of a session cannot be guessed, and no number is used twice. So packets of an ended session are never
//! taken for those of a later one.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::packet::Control;

/// A cookie is valid in the period in which it was made, and in the next one.
const COOKIE_PERIOD: Duration = Duration::from_secs(8);
/// The time after which a hello is first repeated, and at most.
const REPEAT_START: Duration = Duration::from_millis(20);
const REPEAT_MAX: Duration = Duration::from_secs(1);

/// Makes and checks cookies, and makes the numbers of sessions.
#[derive(Debug)]
pub struct Cookies {
    /// The secret: the standard library's keyed hash (SipHash), with keys from the system's random source.
    secret: RandomState,
    began: Instant,
    /// Sessions that were numbered.
    count: u64,
}

impl Cookies {
    /// Creates the state of a server that starts now, with a secret.
    pub fn new(secret: RandomState, now: Instant) -> Cookies {
        Cookies { secret, began: now, count: 0 }
    }

    /// Checks the cookie of a hello. Returns the reply that the client gets instead of a session if it is not valid.
    pub fn check(&self, address: SocketAddr, client: u64, cookie: u64, now: Instant) -> Option<Control> {
        let period = now.saturating_duration_since(self.began).as_secs() / COOKIE_PERIOD.as_secs();
        let valid = |period| self.secret.hash_one((address, client, period)).max(1);
        let is_valid = cookie == valid(period) || period > 0 && cookie == valid(period - 1);
        (!is_valid).then(|| Control::Challenge { client, cookie: valid(period) })
    }

    /// Returns the number of a new session.
    pub fn session_number(&mut self) -> u64 {
        self.count += 1;
        // A hash of one number is never made for a cookie, whose input is longer.
        self.secret.hash_one(self.count)
    }
}

/// A client's part: it sends hellos until the server accepts.
#[derive(Debug)]
pub struct Opening {
    client: u64,
    cookie: u64,
    repeat_at: Instant,
    repeat: Duration,
}

impl Opening {
    /// Begins, with a number that no other client of the server has.
    pub fn new(client: u64, now: Instant) -> Opening {
        Opening { client, cookie: 0, repeat_at: now, repeat: REPEAT_START }
    }

    /// Returns the next hello, if it is time for it.
    pub fn hello(&mut self, now: Instant) -> Option<Control> {
        if now < self.repeat_at {
            return None;
        }
        self.repeat_at = now + self.repeat;
        self.repeat = (2 * self.repeat).min(REPEAT_MAX);
        Some(Control::Hello { client: self.client, cookie: self.cookie })
    }

    /// Returns the time of the next hello.
    pub fn deadline(&self) -> Instant {
        self.repeat_at
    }

    /// Takes a reply of the server. Returns the number of the session when there is one.
    pub fn receive(&mut self, control: Control, now: Instant) -> Option<u64> {
        match control {
            Control::Challenge { client, cookie } if client == self.client && cookie != self.cookie => {
                (self.cookie, self.repeat_at, self.repeat) = (cookie, now, REPEAT_START);
                None
            }
            Control::Accept { client, session } if client == self.client => Some(session),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn a_cookie_belongs_to_an_address_a_client_and_a_time() {
        let now = Instant::now();
        let cookies = Cookies::new(RandomState::new(), now);
        let Some(Control::Challenge { client: 7, cookie }) = cookies.check(address(1), 7, 0, now) else {
            panic!("a hello without a cookie gets one")
        };
        assert_eq!(cookies.check(address(1), 7, cookie, now + COOKIE_PERIOD), None);
        assert!(cookies.check(address(1), 7, cookie, now + 2 * COOKIE_PERIOD).is_some());
        assert!(cookies.check(address(2), 7, cookie, now).is_some());
        assert!(cookies.check(address(1), 8, cookie, now).is_some());
        assert!(Cookies::new(RandomState::new(), now).check(address(1), 7, cookie, now).is_some());
    }

    #[test]
    fn a_client_repeats_its_hello_until_it_is_accepted() {
        let now = Instant::now();
        let mut cookies = Cookies::new(RandomState::new(), now);
        let mut opening = Opening::new(7, now);
        assert_eq!(opening.hello(now), Some(Control::Hello { client: 7, cookie: 0 }));
        assert_eq!(opening.hello(now), None);
        assert!(opening.hello(opening.deadline()).is_some());
        let reply = cookies.check(address(1), 7, 0, now).unwrap();
        assert_eq!(opening.receive(Control::Challenge { client: 8, cookie: 1 }, now), None);
        assert_eq!(opening.receive(reply, now), None);
        let Some(Control::Hello { client, cookie }) = opening.hello(now) else { panic!("it sends the cookie at once") };
        assert_eq!(cookies.check(address(1), client, cookie, now), None);
        let number = cookies.session_number();
        assert_ne!(number, cookies.session_number());
        assert_eq!(opening.receive(Control::Accept { client, session: number }, now), Some(number));
    }
}
