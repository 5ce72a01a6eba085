//! The functions that users have loaded, as requests find them.
//!
//! A shard looks up a function when it decodes a request. From then on the request has the function itself, so one that is
//! replaced or deleted meanwhile does not matter to it. Functions, and this list of a server, live as long as the process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use skep_core::function::{FunctionHandle, Layout, UserFunction};
use skep_core::operation::{Operation, Request};
use skep_wire::native::WireError;

/// The functions of a server.
#[derive(Default)]
pub(crate) struct Functions {
    table: RwLock<FunctionTable>,
}

/// The functions at a moment.
#[derive(Default)]
pub(crate) struct FunctionTable {
    /// The newest functions, by name.
    pub(crate) names: HashMap<&'static str, FunctionHandle>,
    /// The same, by number: that of function 1 is the first.
    pub(crate) newest: Vec<Option<FunctionHandle>>,
    /// Functions that the log names, by number and revision.
    pub(crate) revisions: HashMap<Revision, &'static UserFunction>,
    /// Records, by name.
    pub(crate) records: HashMap<String, &'static Layout>,
    /// The current modules that do not compile any more, by name, and why.
    pub(crate) refused: HashMap<String, Arc<str>>,
}

/// A function among all that were ever loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Revision {
    /// The number of its name.
    pub(crate) id: u32,
    /// The number of its module's source.
    pub(crate) revision: u32,
}

#[cfg(test)]
impl FunctionTable {
    /// Returns a table of these functions, whose numbers count from 1. All are of the first revision.
    pub(crate) fn of(handles: impl Iterator<Item = FunctionHandle>) -> FunctionTable {
        let mut table = FunctionTable::default();
        for handle in handles {
            let (function, revision) = (handle.function.expect("it has a function"), 1);
            let handle = FunctionHandle { revision, ..handle };
            table.newest.push(Some(handle));
            table.revisions.insert(Revision { id: handle.id, revision }, function);
            table.names.insert(&function.name, handle);
        }
        table
    }
}

impl Functions {
    /// Returns a list without functions, which lives as long as the process.
    pub(crate) fn leaked() -> &'static Functions {
        Box::leak(Box::default())
    }

    /// Returns the function of this name.
    pub(crate) fn find(&self, name: &str) -> Option<FunctionHandle> {
        self.with(|table| table.names.get(name).copied())
    }

    /// Returns the record of this name.
    pub(crate) fn record(&self, name: &str) -> Option<&'static Layout> {
        self.with(|table| table.records.get(name).copied())
    }

    /// Returns the reason why the module of this function or record does not compile, if it is such a module.
    pub(crate) fn refusal(&self, name: &str) -> Option<Arc<str>> {
        let (module, _) = name.split_once('.')?;
        self.with(|table| table.refused.get(module).cloned())
    }

    /// Returns the handle with the function that it names, if there is one.
    pub(crate) fn resolve(&self, handle: FunctionHandle) -> FunctionHandle {
        let FunctionHandle { id, revision, .. } = handle;
        self.with(|table| match revision {
            0 => {
                let newest = (id as usize).checked_sub(1).and_then(|index| table.newest.get(index).copied().flatten());
                newest.unwrap_or(handle)
            }
            _ => FunctionHandle { function: table.revisions.get(&Revision { id, revision }).copied(), ..handle },
        })
    }

    /// Returns the request of a client with the newest function that it names, if it names one.
    #[inline]
    pub(crate) fn resolve_in<'a>(&self, request: Result<Request<'a>, WireError>) -> Result<Request<'a>, WireError> {
        match request {
            Ok(Request { operation: Operation::Call(call), .. }) if call.function.revision != 0 => {
                Err(WireError::EarlierCode)
            }
            Ok(Request { key, operation: Operation::Call(mut call) }) => {
                call.function = self.resolve(call.function);
                Ok(Request { key, operation: Operation::Call(call) })
            }
            request => request,
        }
    }

    /// Calls `f` with the functions.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&FunctionTable) -> R) -> R {
        f(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls `f` with the functions, to change them.
    pub(crate) fn change<R>(&self, f: impl FnOnce(&mut FunctionTable) -> R) -> R {
        f(&mut self.table.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Functions")
    }
}

impl PartialEq for Functions {
    /// Returns true if both are of the same server.
    fn eq(&self, other: &Functions) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Functions {}
