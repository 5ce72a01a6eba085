//! Wrong passwords, counted so that guessing is slow.
//!
//! A refusal is a *debt* of its address, which is paid as time passes. Three kinds are counted apart:
//!
//! | debt of | cost | most | so there are |
//! |---|---|---|---|
//! | a user at an address, for wrong passwords | 1 s | 10 s | ten guesses at once, then one a second |
//! | an address, for wrong passwords of all users | 0.1 s | 10 s | a hundred guesses at once, then ten a second |
//! | an address, for lines of the log | 1 s | 10 s | ten lines at once, then one a second |
//!
//! With the most debt, passwords are not checked: they are refused, also right ones. If a user has it, the other users at the
//! address go on; if the address has it, none does. Connections that have logged in go on. Users that do not exist count as
//! others do, so a refusal does not tell which exist. The log tells of the first wrong password of a user that exists, also if
//! the address has had its lines, so guesses do not hide behind invented names.
//!
//! The debts of each kind are in a table of fixed size, at an index that follows from a secret hash. Two debtors may share an
//! entry: then they have fewer guesses. No one can choose which they are, and no number of debtors makes the table forget one.
//! Of IPv6, the addresses of a network of 64 bits count as one for users and lines, and those of a network of 48 bits for the
//! debt of an address: a site has as many.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The cost of a wrong password of a user, and of a line of the log.
const COST: Duration = Duration::from_secs(1);

/// The cost of a wrong password for its address.
const ADDRESS_COST: Duration = Duration::from_millis(100);

/// The most that one may owe.
const DEBT_MAX: Duration = Duration::from_secs(10);

/// Entries of a table.
const ENTRIES: usize = 1 << 15;

/// Bits of an IPv6 address after those that name its network, and after those that name its site.
const NETWORK_BITS: u32 = 64;
const SITE_BITS: u32 = 80;

/// Bytes of the name of a user that are hashed. No user has a longer one.
const NAME_SIZE_MAX: usize = 129;

/// The debts of users and addresses.
#[derive(Debug)]
pub(crate) struct Guesses {
    users: Debts,
    addresses: Debts,
    lines: Debts,
    start: Instant,
    secret: RandomState,
}

/// The debts of a kind: the times at which they are paid, in microseconds since the start.
#[derive(Debug)]
struct Debts(Box<[AtomicU64]>);

impl Default for Debts {
    fn default() -> Debts {
        Debts((0..ENTRIES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Debts {
    fn at(&self, hash: u64) -> &AtomicU64 {
        &self.0[hash as usize % ENTRIES]
    }
}

impl Default for Guesses {
    fn default() -> Guesses {
        let [users, addresses, lines] = std::array::from_fn(|_| Debts::default());
        Guesses { users, addresses, lines, start: Instant::now(), secret: RandomState::new() }
    }
}

impl Guesses {
    /// Returns true if a password of a user at this address is to be checked.
    pub(crate) fn admits(&self, address: IpAddr, name: &[u8], now: Instant) -> bool {
        let may_owe = |debt: &AtomicU64, cost: Duration| self.after(debt.load(Ordering::Relaxed), cost, now).is_some();
        may_owe(self.of_user(address, name), COST) && may_owe(self.of_address(address), ADDRESS_COST)
    }

    /// Counts a wrong password. Returns true if it is the first one of the user at this address for a while.
    pub(crate) fn count(&self, address: IpAddr, name: &[u8], now: Instant) -> bool {
        _ = self.owe(self.of_address(address), ADDRESS_COST, now);
        let before = self.owe(self.of_user(address, name), COST, now);
        before.is_some_and(|paid_at| paid_at <= self.microseconds(now))
    }

    /// Returns true if the log tells of one more refusal of a client at this address, and counts it.
    pub(crate) fn may_tell(&self, address: IpAddr, now: Instant) -> bool {
        self.owe(self.of_lines(address), COST, now).is_some()
    }

    /// Adds to a debt. Returns the time at which it was paid before; `None` if it would be more than the most.
    fn owe(&self, debt: &AtomicU64, cost: Duration, now: Instant) -> Option<u64> {
        debt.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |paid_at| self.after(paid_at, cost, now)).ok()
    }

    /// Returns the time at which a debt is paid once this is added to it; `None` if it would be more than the most.
    fn after(&self, paid_at: u64, cost: Duration, now: Instant) -> Option<u64> {
        let now = self.microseconds(now);
        let after = paid_at.max(now) + cost.as_micros() as u64;
        (after <= now + DEBT_MAX.as_micros() as u64).then_some(after)
    }

    fn microseconds(&self, time: Instant) -> u64 {
        time.saturating_duration_since(self.start).as_micros() as u64
    }

    fn of_user(&self, address: IpAddr, name: &[u8]) -> &AtomicU64 {
        let name = &name[..name.len().min(NAME_SIZE_MAX)];
        self.users.at(self.secret.hash_one((network(address, NETWORK_BITS), name)))
    }

    fn of_address(&self, address: IpAddr) -> &AtomicU64 {
        self.addresses.at(self.secret.hash_one(network(address, SITE_BITS)))
    }

    fn of_lines(&self, address: IpAddr) -> &AtomicU64 {
        self.lines.at(self.secret.hash_one(network(address, NETWORK_BITS)))
    }
}

/// Returns the address by which guesses are counted: that of an IPv6 network, whose own addresses have this number of bits.
fn network(address: IpAddr, bits: u32) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> bits << bits))
        }
        // All of 127.0.0.0/8 is this machine.
        IpAddr::V4(address) if address.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::{Duration, Instant};

    use super::Guesses;

    fn addresses<const N: usize>(texts: [&str; N]) -> [IpAddr; N] {
        texts.map(|text| text.parse().unwrap())
    }

    #[test]
    fn a_user_at_an_address_has_ten_guesses_and_then_one_a_second() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        let [address, neighbour, other] = addresses(["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"]);
        for number in 0..10 {
            assert!(guesses.admits(address, b"ham", start));
            assert_eq!(guesses.count(address, b"ham", start), number == 0, "only the first one is new");
        }
        assert!(!guesses.admits(address, b"ham", start));
        assert!(!guesses.admits(neighbour, b"ham", start), "it is of the same network");
        assert!(guesses.admits(other, b"ham", start));
        assert!(guesses.admits(address, b"egg", start), "another user at this address");
        let later = start + Duration::from_secs(1);
        assert!(guesses.admits(address, b"ham", later));
        guesses.count(address, b"ham", later);
        assert!(!guesses.admits(address, b"ham", later));
        assert!(guesses.admits(address, b"ham", later + Duration::from_secs(20)));
        let [here, also_here] = addresses(["127.0.0.1", "127.9.8.7"]);
        (0..10).for_each(|_| _ = guesses.count(here, b"ham", start));
        assert!(!guesses.admits(also_here, b"ham", start));
    }

    #[test]
    fn an_address_has_a_hundred_guesses_and_then_ten_a_second() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        let [address, other] = addresses(["192.0.2.1", "192.0.2.2"]);
        let checked = |at: Instant| {
            let names = (0..1000).map(|number: u32| {
                [&at.duration_since(start).as_micros().to_le_bytes()[..], &number.to_le_bytes()].concat()
            });
            names
                .filter(|name| {
                    guesses.admits(address, name, at) && {
                        guesses.count(address, name, at);
                        true
                    }
                })
                .count()
        };
        assert_eq!(checked(start), 100);
        assert_eq!(checked(start + Duration::from_secs(3)), 30);
        assert!(guesses.admits(other, b"ham", start));
        // A site has as many as an address, however many networks it has.
        let networks = (0..1000_u128).map(|number| IpAddr::from((0x2001_0db8_u128 << 96 | number << 64).to_be_bytes()));
        let admitted = networks.filter(|address| {
            let is_admitted = guesses.admits(*address, b"ham", start);
            guesses.count(*address, b"ham", start);
            is_admitted
        });
        assert_eq!(admitted.count(), 100);
    }

    #[test]
    fn an_address_has_ten_lines_of_the_log_and_then_one_a_second() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        let [address, other] = addresses(["192.0.2.1", "192.0.2.2"]);
        let told = |address: IpAddr, at: Instant| (0..100).filter(|_| guesses.may_tell(address, at)).count();
        assert_eq!((told(address, start), told(other, start)), (10, 10));
        assert_eq!(told(address, start + Duration::from_secs(3)), 3);
        assert!(guesses.admits(address, b"ham", start), "lines cost no guesses");
    }

    #[test]
    fn no_number_of_debtors_makes_a_debt_forgotten() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        let [address] = addresses(["192.0.2.1"]);
        (0..10).for_each(|_| _ = guesses.count(address, b"ham", start));
        for number in 0..100_000_u32 {
            let other = IpAddr::from(number.to_be_bytes());
            guesses.count(other, &number.to_le_bytes(), start);
            guesses.may_tell(other, start);
        }
        assert!(!guesses.admits(address, b"ham", start));
    }
}
