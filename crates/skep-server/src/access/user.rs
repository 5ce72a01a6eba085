//! A user: its passwords, what it may do, and how much.
//!
//! A user that is in force does not change. A command that changes one makes a copy and puts it in its place
//! ([`super::users`]), so a reader needs no lock. Copies share the [`Usage`], which counts what connections use.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::command_set::CommandSet;
use super::key_patterns::KeyPatterns;
use super::password_hash::PasswordHash;
use crate::unix_time::UnixTime;
use crate::vocabulary::Space;

/// The user of a connection that names none.
pub(crate) const DEFAULT: &str = "default";

/// The seconds that a user may owe at most for replies, and for lines that follow a command without end (`MONITOR`).
const DEBT_OF_REPLIES: u64 = 3600;
const DEBT_OF_LINES: u64 = 1;

/// The most passwords of a user: each login compares with all of them.
pub(crate) const PASSWORDS_MAX: usize = 16;

/// A user.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) name: Arc<str>,
    /// It may log in.
    pub(crate) is_on: bool,
    /// Any password is right.
    pub(crate) takes_any_password: bool,
    pub(crate) passwords: Vec<PasswordHash>,
    pub(crate) permissions: Permissions,
    pub(crate) limits: UserLimits,
    /// What its connections use now.
    pub(crate) usage: Arc<Usage>,
}

/// What a user may do.
#[derive(Clone, Debug)]
pub(crate) struct Permissions {
    pub(crate) commands: CommandSet,
    /// The rules by which the commands were chosen, such as `-@all +get`.
    pub(crate) command_rules: String,
    pub(crate) keys: KeyPatterns,
    pub(crate) spaces: SpaceSet,
    /// The patterns of channels, which Skep does not have: they are kept for tools that write them. `*`: all.
    pub(crate) channels: Vec<String>,
}

/// How much a user may do; `None`: as much as it wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UserLimits {
    /// Connections at a time.
    pub(crate) connections: Option<u32>,
    /// Commands or operations in a second, of all its connections.
    pub(crate) operations: Option<u32>,
    /// Bytes of requests and replies in a second, of all its connections.
    pub(crate) bytes: Option<u32>,
}

/// A set of spaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpaceSet(u8);

/// The spaces with the names that rules give them.
pub(crate) const SPACES: [(&str, Space); 3] =
    [("hash", Space::Hash), ("ordered", Space::Ordered), ("cache", Space::Cache)];

impl SpaceSet {
    pub(crate) const ALL: SpaceSet = SpaceSet(0b111);

    /// Adds a space. To the set of all, from which it cannot be missing, it adds nothing: the set is then this space alone.
    pub(crate) fn choose(&mut self, space: Space) {
        let before = if self.is_all() { 0 } else { self.0 };
        self.0 = before | 1 << space.number();
    }

    #[inline]
    pub(crate) fn is_all(self) -> bool {
        self == SpaceSet::ALL
    }

    /// Returns true if the space is in the set.
    pub(crate) fn has(self, space: Space) -> bool {
        self.0 >> space.number() & 1 == 1
    }

    /// Returns the names of the spaces in the set.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        SPACES.iter().filter(move |(_, space)| self.has(*space)).map(|(name, _)| *name)
    }
}

/// What the connections of a user use.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    connections: AtomicUsize,
    second: Mutex<Second>,
}

/// What was done in a second.
#[derive(Debug, Default)]
struct Second {
    /// Its number since 1970.
    number: i64,
    operations: u64,
    bytes: u64,
}

/// A connection that counts as one of a user, until this is dropped.
#[derive(Debug)]
pub(crate) struct Seat(Arc<Usage>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl User {
    /// Returns a new user: it is off, and may do nothing.
    pub(crate) fn new(name: &str) -> User {
        User {
            name: name.into(),
            is_on: false,
            takes_any_password: false,
            passwords: Vec::new(),
            permissions: Permissions {
                commands: CommandSet::default(),
                command_rules: "-@all".to_owned(),
                keys: KeyPatterns::default(),
                spaces: SpaceSet::ALL,
                channels: Vec::new(),
            },
            limits: UserLimits::default(),
            usage: Arc::default(),
        }
    }

    /// Returns the user that serves connections without a login, until it is changed: it may do everything.
    pub(crate) fn anonymous() -> User {
        User {
            is_on: true,
            takes_any_password: true,
            permissions: Permissions {
                commands: CommandSet::ALL,
                command_rules: "+@all".to_owned(),
                keys: KeyPatterns::all(),
                spaces: SpaceSet::ALL,
                channels: vec!["*".to_owned()],
            },
            ..User::new(DEFAULT)
        }
    }

    /// Returns true if it may do everything, as much as it wants.
    pub(crate) fn is_unlimited(&self) -> bool {
        let Permissions { commands, keys, spaces, .. } = &self.permissions;
        *commands == CommandSet::ALL && keys.is_all() && spaces.is_all() && self.limits == UserLimits::default()
    }

    /// Returns true if it may log in with this password.
    pub(crate) fn accepts(&self, password: &PasswordHash) -> bool {
        // Each is compared, so that the time does not tell which one was right.
        let is_right = self.passwords.iter().fold(false, |is_right, other| is_right | (password == other));
        self.is_on && (self.takes_any_password || is_right)
    }

    /// Counts a connection of the user. `None`: it has as many as it may have.
    pub(crate) fn take_seat(&self) -> Option<Seat> {
        let before = self.usage.connections.fetch_add(1, Ordering::Relaxed);
        let seat = Seat(self.usage.clone());
        self.limits.connections.is_none_or(|most| before < most as usize).then_some(seat)
    }

    /// Counts a connection of the user that it has already.
    pub(crate) fn keep_seat(&self) -> Seat {
        self.usage.connections.fetch_add(1, Ordering::Relaxed);
        Seat(self.usage.clone())
    }

    /// Counts an operation and its bytes. Returns false if the user has had all of this second.
    pub(crate) fn may_operate(&self, bytes: usize, now: UnixTime) -> bool {
        let UserLimits { operations, bytes: bytes_max, .. } = self.limits;
        if operations.is_none() && bytes_max.is_none() {
            return true;
        }
        let mut second = self.second(now);
        let is_left = |used: u64, most: Option<u32>| most.is_none_or(|most| used < u64::from(most));
        let may = is_left(second.operations, operations) && is_left(second.bytes, bytes_max);
        if may {
            second.operations += 1;
            second.bytes += bytes as u64;
        }
        may
    }

    /// Returns what was done in the second of this time. Bytes beyond the limit count in the seconds after it.
    fn second(&self, now: UnixTime) -> MutexGuard<'_, Second> {
        let mut second = self.usage.second.lock().unwrap_or_else(PoisonError::into_inner);
        let number = now.milliseconds() / 1000;
        if let Ok(passed @ 1..) = u64::try_from(number - second.number) {
            let allowed = u64::from(self.limits.bytes.unwrap_or(u32::MAX)).saturating_mul(passed);
            *second = Second { number, operations: 0, bytes: second.bytes.saturating_sub(allowed) };
        }
        second
    }

    /// Counts bytes of replies, if there is a limit for them. Only replies to operations that began below the limit are
    /// counted, so the debt is that of the replies that were in work when the limit was reached; and it has a bound.
    pub(crate) fn count_replies(&self, bytes: usize, now: UnixTime) {
        self.count_output(bytes, DEBT_OF_REPLIES, now);
    }

    /// Counts bytes that no operation has asked for, if there is a limit for them.
    pub(crate) fn count_lines(&self, bytes: usize, now: UnixTime) {
        self.count_output(bytes, DEBT_OF_LINES, now);
    }

    fn count_output(&self, bytes: usize, debt_max: u64, now: UnixTime) {
        if let Some(most) = self.limits.bytes {
            let mut second = self.second(now);
            let all = second.bytes.saturating_add(bytes as u64).min((1 + debt_max) * u64::from(most));
            second.bytes = second.bytes.max(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{PasswordHash, SpaceSet, User, UserLimits};
    use crate::unix_time::UnixTime;
    use crate::vocabulary::Space;

    #[test]
    fn only_a_user_that_is_on_may_log_in() {
        let (ham, egg) = (PasswordHash::of(b"ham"), PasswordHash::of(b"egg"));
        let mut user = User { passwords: vec![ham], ..User::new("cook") };
        assert!(!user.accepts(&ham));
        user.is_on = true;
        assert!(user.accepts(&ham) && !user.accepts(&egg));
        user.passwords.push(egg);
        assert!(user.accepts(&ham) && user.accepts(&egg));
        assert!(User::anonymous().accepts(&ham));
        assert!(User::anonymous().is_unlimited() && !user.is_unlimited());
    }

    #[test]
    fn the_first_space_that_is_chosen_is_the_only_one() {
        let mut spaces = SpaceSet::ALL;
        spaces.choose(Space::Ordered);
        assert_eq!(spaces.names().collect::<Vec<_>>(), ["ordered"]);
        spaces.choose(Space::Hash);
        assert!(spaces.has(Space::Hash) && !spaces.has(Space::Cache) && !spaces.is_all());
    }

    #[test]
    fn the_limits_of_a_user_are_shared_by_its_connections() {
        let limits = UserLimits { connections: Some(2), operations: Some(3), bytes: Some(100) };
        let user = User { limits, ..User::anonymous() };
        let seats = [user.take_seat(), user.take_seat()];
        assert!(seats.iter().all(Option::is_some) && user.take_seat().is_none());
        drop(seats);
        let copy = user.clone();
        assert!(copy.take_seat().is_some());

        let at = |milliseconds| UnixTime::after(Duration::from_millis(milliseconds));
        assert!((0..3).all(|_| user.may_operate(1, at(500))));
        assert!(!copy.may_operate(1, at(999)) && copy.may_operate(1, at(1000)));
        // An operation that begins below the bound is executed whole, and then paid for.
        assert!(user.may_operate(250, at(2000)) && !user.may_operate(1, at(2000)));
        assert!(!user.may_operate(1, at(3000)) && user.may_operate(1, at(4000)));
        user.count_replies(100, at(4000));
        assert!(!user.may_operate(1, at(4001)) && user.may_operate(1, at(5000)));
        // Lines are owed for a second, and do not lessen a debt.
        user.count_lines(1 << 20, at(6000));
        assert!(!user.may_operate(1, at(7000)) && user.may_operate(1, at(8000)));
        user.count_replies(usize::MAX, at(8000));
        user.count_lines(1, at(8000));
        assert!(!user.may_operate(1, at(8000 + 3_600_000)) && user.may_operate(1, at(8000 + 3_601_000)));
    }
}
