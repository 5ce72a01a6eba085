//! The users of a server, by name.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::user::{DEFAULT, User};

/// The most users.
pub(crate) const USERS_MAX: usize = 1024;

/// A table of users. It always has [`DEFAULT`].
pub(crate) type UserTable = BTreeMap<Arc<str>, Arc<User>>;

/// The users in force.
#[derive(Debug)]
pub(crate) struct Users {
    table: Mutex<UserTable>,
    /// Changes with the table.
    version: AtomicU64,
    /// The default user needs a password, or is off.
    needs_password: AtomicBool,
}

impl Users {
    pub(crate) fn new(default: User) -> Users {
        let users = Users {
            table: Mutex::default(),
            // The version of a login that was never refreshed is 0.
            version: AtomicU64::new(1),
            needs_password: AtomicBool::default(),
        };
        users.replace([(default.name.clone(), Arc::new(default))].into());
        users
    }

    /// Returns a number that changes with each change of a user.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns true if the default user needs a password, or is off.
    pub(crate) fn needs_password(&self) -> bool {
        self.needs_password.load(Ordering::Relaxed)
    }

    /// Returns the user of this name.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<User>> {
        self.table().get(name).cloned()
    }

    /// Returns the table as it is.
    pub(crate) fn all(&self) -> UserTable {
        self.table().clone()
    }

    /// Changes the table, all or nothing: an error leaves it as it was.
    pub(crate) fn change<T, E>(&self, change: impl FnOnce(&mut UserTable) -> Result<T, E>) -> Result<T, E> {
        let mut table = self.table();
        let mut copy = table.clone();
        let changed = change(&mut copy)?;
        self.put(&mut table, copy);
        Ok(changed)
    }

    /// Puts another table in force. Users that are in both keep their usage. Returns the names of those that are only in
    /// the one before.
    pub(crate) fn replace(&self, mut new: UserTable) -> Vec<Arc<str>> {
        let mut table = self.table();
        // A file need not name the default user, which then stays as it is at this moment.
        if let Some(default) = table.get(DEFAULT) {
            new.entry(DEFAULT.into()).or_insert_with(|| default.clone());
        }
        for (name, user) in &mut new {
            if let Some(before) = table.get(name) {
                *user = Arc::new(User { usage: before.usage.clone(), ..User::clone(user) });
            }
        }
        let deleted = table.keys().filter(|name| !new.contains_key(*name)).cloned().collect();
        self.put(&mut table, new);
        deleted
    }

    fn put(&self, table: &mut UserTable, new: UserTable) {
        let default = &new[DEFAULT];
        self.needs_password.store(!default.is_on || !default.takes_any_password, Ordering::Relaxed);
        *table = new;
        // Release: who finds the number finds the flag. The lock is held: who takes it finds the table.
        self.version.fetch_add(1, Ordering::Release);
    }

    fn table(&self) -> MutexGuard<'_, UserTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
