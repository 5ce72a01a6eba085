//! What the answer to a single operation means to who asked.

use skep_core::operation::Reply;
use skep_wire::native::Response;

use crate::error::ClientError;

/// The answer, unless it is an error.
fn reply(response: Response<'_>) -> Result<Reply<'_>, ClientError> {
    match response? {
        Reply::Failed(error) => Err(error.into()),
        reply => Ok(reply),
    }
}

/// An operation that cannot but be done.
pub(crate) fn done(response: Response<'_>) -> Result<(), ClientError> {
    match reply(response)? {
        Reply::Done => Ok(()),
        _ => Err(ClientError::UnexpectedReply),
    }
}

/// An operation that was done, or was not because of the key.
pub(crate) fn whether_done(response: Response<'_>) -> Result<bool, ClientError> {
    match reply(response)? {
        Reply::Done => Ok(true),
        Reply::NotFound | Reply::Exists => Ok(false),
        _ => Err(ClientError::UnexpectedReply),
    }
}

/// A value, or `None` for a key that does not exist.
pub(crate) fn value(response: Response<'_>) -> Result<Option<Vec<u8>>, ClientError> {
    match reply(response)? {
        Reply::Value(value) => Ok(Some(value.to_vec())),
        Reply::NotFound => Ok(None),
        _ => Err(ClientError::UnexpectedReply),
    }
}

/// An old value, empty if it was not asked for, or `None` for a key that does not exist.
pub(crate) fn old_value(response: Response<'_>) -> Result<Option<Vec<u8>>, ClientError> {
    match reply(response)? {
        Reply::Done => Ok(Some(Vec::new())),
        other => value(Ok(other)),
    }
}

/// A decimal number in text.
pub(crate) fn decimal(response: Response<'_>) -> Result<i64, ClientError> {
    let text = value(response)?.and_then(|text| String::from_utf8(text).ok());
    text.and_then(|text| text.parse().ok()).ok_or(ClientError::UnexpectedReply)
}

#[cfg(test)]
mod tests {
    use skep_core::operation::OperationError;
    use skep_wire::native::WireError;

    use super::*;

    #[test]
    fn errors_are_errors_whatever_was_asked() {
        for response in [Ok(Reply::Failed(OperationError::SlabFull)), Err(WireError::Busy)] {
            let errors = [
                done(response).err(),
                whether_done(response).err(),
                value(response).err(),
                old_value(response).err(),
                decimal(response).err(),
            ];
            for error in errors {
                assert!(matches!(
                    error,
                    Some(ClientError::Operation(OperationError::SlabFull) | ClientError::Rejected(WireError::Busy))
                ));
            }
        }
    }

    #[test]
    fn answers_that_do_not_fit_are_refused() {
        let unexpected = |result: Result<(), ClientError>| matches!(result, Err(ClientError::UnexpectedReply));
        assert!(unexpected(done(Ok(Reply::NotFound))));
        assert!(unexpected(whether_done(Ok(Reply::Value(b""))).map(drop)));
        assert!(unexpected(value(Ok(Reply::Done)).map(drop)));
        assert!(unexpected(old_value(Ok(Reply::Exists)).map(drop)));
        assert!(unexpected(decimal(Ok(Reply::NotFound)).map(drop)));
        assert!(unexpected(decimal(Ok(Reply::Value(b"1x"))).map(drop)));
    }
}
