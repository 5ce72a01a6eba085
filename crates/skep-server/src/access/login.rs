//! The login of a connection: its user, and whether it must log in first.
//!
//! Each decoding of requests asks [`Login::refresh`] what the connection may do. That compares one number, which changes
//! with each change of a user, and returns one of three answers. A user that may do everything costs no more than this.

use std::sync::Arc;

use super::Access;
use super::command_set::CommandSet;
use super::key_patterns::KeyPatterns;
use super::user::{Seat, SpaceSet, User};
use crate::unix_time::UnixTime;

/// What the user of a connection may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Everything.
    Open,
    /// What its user allows.
    Limited,
    /// To log in, and no more.
    Locked,
}

/// The login of a connection.
#[derive(Debug)]
pub(crate) struct Login {
    user: Arc<User>,
    gate: Gate,
    /// The version of the users for which the gate was found.
    version: u64,
    /// The connection has logged in, or began when that was not necessary.
    is_authenticated: bool,
    /// The user was deleted.
    is_over: bool,
    /// Requests that were decoded before the last change of the rules may not be done.
    is_outdated: bool,
    /// The time of the last refresh, for the limits of the user.
    time: UnixTime,
    /// None until it is authenticated.
    seat: Option<Seat>,
    /// The user who has sent the requests in work, if the last of them was a login and that user has limits.
    sender: Option<Arc<User>>,
    /// Bytes of the replies in work that do not count for the limits.
    uncounted: usize,
}

impl Default for Login {
    /// Returns the login of a connection to a server without users.
    fn default() -> Login {
        Login::of(None, User::anonymous().into(), true)
    }
}

impl Login {
    fn of(seat: Option<Seat>, user: Arc<User>, is_authenticated: bool) -> Login {
        let (gate, time) = (Gate::Open, UnixTime::default());
        Login {
            user,
            gate,
            version: 0,
            is_authenticated,
            is_over: false,
            is_outdated: false,
            time,
            seat,
            sender: None,
            uncounted: 0,
        }
    }

    /// Lets the replies to requests that came before this login count for their sender.
    fn after(self, before: Option<&Login>) -> Login {
        let sender = |login: &Login| match login.gate {
            _ if login.sender.is_some() => login.sender.clone(),
            Gate::Limited => Some(login.user.clone()),
            Gate::Open | Gate::Locked => None,
        };
        Login { sender: before.and_then(sender), uncounted: before.map_or(0, |login| login.uncounted), ..self }
    }

    /// Returns the login of a new connection. `None`: the default user has as many connections as it may have.
    pub(crate) fn anonymous(access: &Access) -> Option<Login> {
        Login::anonymous_after(None, access)
    }

    /// Returns the login of a new connection, for one that had another login.
    fn anonymous_after(before: Option<&Login>, access: &Access) -> Option<Login> {
        let (user, is_authenticated) = (access.default_user(), !access.needs_password());
        let seat = if is_authenticated { Some(Login::seat_after(before, &user)?) } else { None };
        let mut login = Login::of(seat, user, is_authenticated).after(before);
        login.renew(access);
        Some(login)
    }

    /// Returns a seat of a user for a connection that had another login. One of the same user keeps the seat that it has.
    /// `None`: the user has as many connections as it may have.
    fn seat_after(before: Option<&Login>, user: &User) -> Option<Seat> {
        let is_same = before.is_some_and(|login| login.seat.is_some() && Arc::ptr_eq(&login.user.usage, &user.usage));
        if is_same { Some(user.keep_seat()) } else { user.take_seat() }
    }

    /// Returns the login of a connection that begins again, after another login if it had one: see [`Login::anonymous`]. It
    /// may be one too many.
    pub(crate) fn anonymous_again(before: Option<&Login>, access: &Access) -> Login {
        Login::anonymous_after(before, access).unwrap_or_else(|| {
            let mut login = Login::of(None, access.default_user(), false).after(before);
            login.is_over = true;
            login.renew(access);
            login
        })
    }

    /// Returns the login of a user that was authenticated, on a connection that had another login. `None`: the user has as
    /// many connections as it may have.
    pub(crate) fn authenticated(user: Arc<User>, before: Option<&Login>, access: &Access) -> Option<Login> {
        let seat = Login::seat_after(before, &user)?;
        let mut login = Login::of(Some(seat), user, true).after(before);
        login.renew(access);
        Some(login)
    }

    /// Returns the name of the user.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.user.name
    }

    /// Returns what the connection may do at this time, after all changes of users so far. All requests before are done.
    #[inline]
    pub(crate) fn refresh(&mut self, access: &Access, now: UnixTime) -> Gate {
        if self.uncounted > 0 || self.sender.is_some() {
            (self.uncounted, self.sender) = (0, None);
        }
        self.refresh_rules(access, now)
    }

    fn refresh_rules(&mut self, access: &Access, now: UnixTime) -> Gate {
        (self.time, self.is_outdated) = (now, false);
        if self.version != access.version() {
            self.renew(access);
        }
        self.gate
    }

    /// Puts all changes of users so far in force for a transaction, whose commands are checked once more. Requests that were
    /// decoded after it are not.
    pub(crate) fn refresh_for_transaction(&mut self, access: &Access, now: UnixTime) {
        let is_outdated = self.has_other_rules(access);
        self.refresh_rules(access, now);
        self.is_outdated = is_outdated;
    }

    /// Returns true if the user has other rules since the last refresh, and not all is allowed now. Then what was decoded
    /// before may be forbidden.
    #[inline]
    pub(crate) fn has_other_rules(&self, access: &Access) -> bool {
        self.is_outdated || self.version != access.version() && self.is_limited_anew(access)
    }

    /// Returns true if the connection must log in first.
    pub(crate) fn is_missing(&self, access: &Access) -> bool {
        !self.is_authenticated && access.needs_password()
    }

    #[cold]
    fn is_limited_anew(&self, access: &Access) -> bool {
        let is_locked = self.is_missing(access);
        let user = access.user(&self.user.name);
        let is_limited = user.is_none_or(|user| !Arc::ptr_eq(&user, &self.user) && !user.is_unlimited());
        (is_locked && self.gate != Gate::Locked) || is_limited
    }

    /// Returns what the last refresh has found.
    #[inline]
    pub(crate) fn gate(&self) -> Gate {
        self.gate
    }

    /// Returns the user whose permissions are to be checked, if there is one.
    #[inline]
    pub(crate) fn limited(&self) -> Option<LimitedUser<'_>> {
        (self.gate != Gate::Open).then_some(LimitedUser { user: &self.user, time: self.time })
    }

    /// Returns true if replies may count for the limit of a user.
    #[inline]
    pub(crate) fn counts_replies(&self) -> bool {
        self.gate == Gate::Limited || self.sender.is_some()
    }

    /// Notes bytes of the replies in work that do not count: refusals, and replies to requests that do not count themselves.
    pub(crate) fn leave_uncounted(&mut self, bytes: usize) {
        if self.counts_replies() {
            self.uncounted += bytes;
        }
    }

    /// Counts bytes of replies for the limit of the user who has sent the requests.
    #[inline]
    pub(crate) fn count_replies(&mut self, bytes: usize) {
        if self.counts_replies() {
            let uncounted = bytes.min(self.uncounted);
            self.uncounted -= uncounted;
            self.sender.as_ref().unwrap_or(&self.user).count_replies(bytes - uncounted, self.time);
        }
    }

    /// Counts bytes that are no reply for the limit of the user.
    pub(crate) fn count_lines(&self, bytes: usize) {
        if self.gate == Gate::Limited {
            self.user.count_lines(bytes, self.time);
        }
    }

    #[cold]
    fn renew(&mut self, access: &Access) {
        // First the number: a change in between is found by the next refresh.
        self.version = access.version();
        match access.user(&self.user.name) {
            _ if self.is_over => {}
            Some(user) => self.user = user,
            None => {
                self.is_over = true;
                self.user = User::new(&self.user.name).into();
            }
        }
        self.gate = match () {
            () if self.is_over => Gate::Locked,
            () if self.is_missing(access) => Gate::Locked,
            () if self.user.is_unlimited() => Gate::Open,
            () => Gate::Limited,
        };
    }
}

/// A user whose permissions are to be checked, at the time of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitedUser<'a> {
    pub(crate) user: &'a Arc<User>,
    pub(crate) time: UnixTime,
}

impl LimitedUser<'_> {
    /// Returns the commands that it may run.
    pub(crate) fn commands(&self) -> &CommandSet {
        &self.user.permissions.commands
    }

    /// Returns the keys that it may use.
    pub(crate) fn keys(&self) -> &KeyPatterns {
        &self.user.permissions.keys
    }

    /// Returns the spaces that it may use.
    pub(crate) fn spaces(&self) -> SpaceSet {
        self.user.permissions.spaces
    }

    /// Counts an operation and its bytes. Returns false if the user has had all of this second.
    pub(crate) fn may_operate(&self, bytes: usize) -> bool {
        self.user.may_operate(bytes, self.time)
    }
}
