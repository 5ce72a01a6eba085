//! Wrong passwords, counted for each address, so that guessing is slow.
//!
//! A wrong password costs its address a second. An address that owes [`DEBT_MAX`] is not heard: its passwords are refused
//! without a look, also right ones. So it has ten guesses at once, and then one a second. Connections that have logged in
//! are not concerned.
//!
//! The table has a bound. If it is full, the address that owes least is forgotten: who has very many addresses gains one
//! guess with each, and no one else loses anything. An IPv6 address stands for all 2^64 of its network.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a wrong password costs.
const COST: Duration = Duration::from_secs(1);

/// The debt with which an address is not heard.
const DEBT_MAX: Duration = Duration::from_secs(10);

/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 1024;

/// Bits of an IPv6 address that name its network.
const NETWORK_BITS: u32 = 64;

/// The debts of addresses.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    debts: Mutex<HashMap<IpAddr, Debt>>,
}

#[derive(Clone, Copy, Debug)]
struct Debt {
    /// When it is paid.
    paid_at: Instant,
    /// A refusal was told to the log since the address was last heard.
    is_logged: bool,
}

/// A password of an address that is not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotHeard {
    /// It is the first one: the log is to tell it.
    pub(crate) is_first: bool,
}

impl Guesses {
    /// Asks if the passwords of an address are heard.
    pub(crate) fn hear(&self, address: IpAddr, now: Instant) -> Result<(), NotHeard> {
        let mut debts = self.debts.lock().unwrap_or_else(PoisonError::into_inner);
        match debts.get_mut(&network(address)) {
            Some(debt) if debt.paid_at.saturating_duration_since(now) > DEBT_MAX - COST => {
                Err(NotHeard { is_first: !std::mem::replace(&mut debt.is_logged, true) })
            }
            Some(debt) => {
                debt.is_logged = false;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Counts a wrong password.
    pub(crate) fn count(&self, address: IpAddr, now: Instant) {
        let mut debts = self.debts.lock().unwrap_or_else(PoisonError::into_inner);
        let address = network(address);
        if debts.len() >= ADDRESSES_MAX && !debts.contains_key(&address) {
            debts.retain(|_, debt| debt.paid_at > now);
            let least = debts.iter().min_by_key(|(_, debt)| debt.paid_at).map(|(address, _)| *address);
            if let Some(least) = least.filter(|_| debts.len() >= ADDRESSES_MAX) {
                debts.remove(&least);
            }
        }
        let debt = debts.entry(address).or_insert(Debt { paid_at: now, is_logged: false });
        debt.paid_at = debt.paid_at.max(now) + COST;
    }
}

/// Returns the address by which guesses are counted.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> NETWORK_BITS << NETWORK_BITS))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::{Duration, Instant};

    use super::{ADDRESSES_MAX, Guesses, NotHeard};

    #[test]
    fn an_address_has_ten_guesses_and_then_one_a_second() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        let [address, other]: [IpAddr; 2] = ["2001:db8::1", "2001:db8:0:1::1"].map(|text| text.parse().unwrap());
        let neighbour: IpAddr = "2001:db8::2:3".parse().unwrap();
        for _ in 0..10 {
            assert_eq!(guesses.hear(address, start), Ok(()));
            guesses.count(address, start);
        }
        assert_eq!(guesses.hear(neighbour, start), Err(NotHeard { is_first: true }), "it is of the same network");
        assert_eq!(guesses.hear(address, start), Err(NotHeard { is_first: false }));
        assert_eq!(guesses.hear(other, start), Ok(()));
        let later = start + Duration::from_secs(1);
        assert_eq!(guesses.hear(address, later), Ok(()));
        guesses.count(address, later);
        assert_eq!(guesses.hear(address, later), Err(NotHeard { is_first: true }));
        assert_eq!(guesses.hear(address, later + Duration::from_secs(20)), Ok(()));
    }

    #[test]
    fn the_table_forgets_those_that_owe_least() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        let worst: IpAddr = "10.0.0.1".parse().unwrap();
        (0..10).for_each(|_| guesses.count(worst, start));
        for number in 0..2 * ADDRESSES_MAX as u32 {
            guesses.count(IpAddr::V4(Ipv4Addr::from_bits(number)), start);
        }
        assert!(guesses.hear(worst, start).is_err());
        assert_eq!(guesses.debts.lock().unwrap().len(), ADDRESSES_MAX);
    }
}
