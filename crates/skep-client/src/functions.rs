//! The functions of users, the same for the blocking and the asynchronous client.

use skep_core::function::FunctionHandle;
use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_wire::native::Response;
use skep_wire::native::functions::{ALL_FUNCTIONS, ChangeOutcome};

use crate::error::ClientError;
use crate::reply;

/// A function that a server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFunction {
    /// Its number, by which a [`Call`](skep_core::operation::Call) names it. 0 for a module that the server does not compile
    /// any more.
    pub number: u32,
    /// What it takes and returns, as in `update m.add(u8, by: u8)`. Of such a module: its name, and
    /// why.
    pub description: String,
}

/// Returns the load of a module.
pub(crate) fn load(source: &str, replaces: bool) -> Request<'_> {
    let condition = if replaces { PutCondition::Always } else { PutCondition::IfAbsent };
    Request { key: ALL_FUNCTIONS, operation: Operation::Put { value: source.as_bytes(), condition } }
}

/// The list of all functions.
pub(crate) const LIST: Request<'static> = Request { key: ALL_FUNCTIONS, operation: Operation::Get };

/// Converts the reply to [`load`].
pub(crate) fn loaded(response: Response<'_>) -> Result<String, ClientError> {
    let bytes = reply::value(response)?.ok_or(ClientError::UnexpectedReply)?;
    match ChangeOutcome::decode(&bytes).ok_or(ClientError::UnexpectedReply)? {
        ChangeOutcome::Made(name) => Ok(name.to_owned()),
        ChangeOutcome::Refused(reason) => Err(ClientError::Module { reason: reason.to_owned() }),
    }
}

/// Converts the reply to the removal of a module.
pub(crate) fn deleted(response: Response<'_>) -> Result<bool, ClientError> {
    match response {
        Ok(Reply::Value(_)) => loaded(response).map(|_| true),
        response => reply::is_done(response),
    }
}

/// Converts the reply to [`LIST`].
pub(crate) fn list(response: Response<'_>) -> Result<Vec<ListedFunction>, ClientError> {
    let text = source(response)?.ok_or(ClientError::UnexpectedReply)?;
    let line = |line: &str| {
        let (number, description) = line.split_once(' ')?;
        Some(ListedFunction { number: number.parse().ok()?, description: description.to_owned() })
    };
    text.lines().map(line).collect::<Option<_>>().ok_or(ClientError::UnexpectedReply)
}

/// Converts the reply to a get of a module.
pub(crate) fn source(response: Response<'_>) -> Result<Option<String>, ClientError> {
    let bytes = reply::value(response)?;
    bytes.map(String::from_utf8).transpose().map_err(|_| ClientError::UnexpectedReply)
}

/// Converts the reply to a get of a function.
pub(crate) fn handle(response: Response<'_>) -> Result<Option<FunctionHandle>, ClientError> {
    let Some(bytes) = reply::value(response)? else { return Ok(None) };
    let number = bytes.try_into().map_err(|_| ClientError::UnexpectedReply)?;
    Ok(Some(FunctionHandle { id: u32::from_le_bytes(number), revision: 0, function: None }))
}

/// Defines the operations on functions for a client that has `execute_one` and `exchange`.
macro_rules! functions {
    ($client:ident, [$($async:ident)?], [$($wait:tt)*]) => {
        /// Functions of users: modules are written in a part of Rust, and compiled by the server (`docs/functions.md`).
        impl $client {
            /// Compiles a module, and returns its name. Fails with [`ClientError::Module`] if its source is refused, or if
            /// there is a module of its name, unless it `replaces` that.
            pub $($async)? fn load_module(&mut self, source: &str, replaces: bool) -> Result<String, ClientError> {
                self.execute_on_functions(&functions::load(source, replaces))$($wait)*?;
                functions::loaded(self.exchange.single())
            }

            /// Removes a module. Returns true if it existed.
            pub $($async)? fn delete_module(&mut self, name: &str) -> Result<bool, ClientError> {
                let operation = Operation::Delete;
                self.execute_on_functions(&Request { key: name.as_bytes(), operation })$($wait)*?;
                functions::deleted(self.exchange.single())
            }

            /// Returns the source of a module, or `None` if it is not loaded.
            pub $($async)? fn module_source(&mut self, name: &str) -> Result<Option<String>, ClientError> {
                // The names of functions, and of all of them.
                if name.contains(['.', '*']) {
                    return Ok(None);
                }
                let operation = Operation::Get;
                self.execute_on_functions(&Request { key: name.as_bytes(), operation })$($wait)*?;
                functions::source(self.exchange.single())
            }

            /// Returns the function of this name, such as `limits.take`, for an
            /// [`Operation::Call`](skep_core::operation::Operation::Call), or `None` if it is not loaded.
            pub $($async)? fn function(&mut self, name: &str) -> Result<Option<FunctionHandle>, ClientError> {
                if !name.contains('.') {
                    return Ok(None);
                }
                let operation = Operation::Get;
                self.execute_on_functions(&Request { key: name.as_bytes(), operation })$($wait)*?;
                functions::handle(self.exchange.single())
            }

            /// Returns all functions of the server.
            pub $($async)? fn functions(&mut self) -> Result<Vec<ListedFunction>, ClientError> {
                self.execute_on_functions(&functions::LIST)$($wait)*?;
                functions::list(self.exchange.single())
            }

            /// Calls a function on the value of a key. Returns what the call asks for, an empty value if that is nothing,
            /// or `None` if the key does not exist and the call has no initial value.
            pub $($async)? fn call(&mut self, key: &[u8], call: Call<'_>) -> Result<Option<Vec<u8>>, ClientError> {
                self.execute_one(&Request { key, operation: Operation::Call(call) })$($wait)*?;
                reply::old_value(self.exchange.single())
            }

            $($async)? fn execute_on_functions(&mut self, request: &Request<'_>) -> Result<(), ClientError> {
                self.exchange.select_once(FUNCTIONS_SPACE);
                self.execute_one(request)$($wait)*
            }
        }
    };
}

pub(crate) use functions;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_that_do_not_fit_are_refused() {
        let unexpected = |result: Result<(), ClientError>| matches!(result, Err(ClientError::UnexpectedReply));
        for bytes in [&b""[..], b"\x02", b"\x01\xff"] {
            assert!(unexpected(loaded(Ok(Reply::Value(bytes))).map(drop)), "{bytes:?}");
        }
        assert!(unexpected(loaded(Ok(Reply::Done)).map(drop)));
        for bytes in [&b"\xff"[..], b"1", b"x y", b"1 a\n2"] {
            assert!(unexpected(list(Ok(Reply::Value(bytes))).map(drop)), "{bytes:?}");
        }
        assert!(unexpected(handle(Ok(Reply::Value(b"123"))).map(drop)));
        assert!(matches!(deleted(Ok(Reply::Value(b"\x00the disk is full"))), Err(ClientError::Module { .. })));
    }
}
