//! Converts the reply to a single operation into the result of the call.

use skep_core::operation::Reply;
use skep_wire::native::Response;

use crate::error::ClientError;

/// Returns the reply, unless it is an error.
fn success(response: Response<'_>) -> Result<Reply<'_>, ClientError> {
    match response? {
        Reply::Failed(error) => Err(error.into()),
        success => Ok(success),
    }
}

/// Checks the reply to an operation that always succeeds.
pub(crate) fn done(response: Response<'_>) -> Result<(), ClientError> {
    match success(response)? {
        Reply::Done => Ok(()),
        _ => Err(ClientError::UnexpectedReply),
    }
}

/// Returns true if the operation was done, and false if it was not because of the key.
pub(crate) fn is_done(response: Response<'_>) -> Result<bool, ClientError> {
    match success(response)? {
        Reply::Done => Ok(true),
        Reply::NotFound | Reply::Exists => Ok(false),
        _ => Err(ClientError::UnexpectedReply),
    }
}

/// Returns the value, or `None` for a key that does not exist.
pub(crate) fn value(response: Response<'_>) -> Result<Option<Vec<u8>>, ClientError> {
    match success(response)? {
        Reply::Value(value) => Ok(Some(value.to_vec())),
        Reply::NotFound => Ok(None),
        _ => Err(ClientError::UnexpectedReply),
    }
}

/// Returns the old value, or `None` for a key that does not exist. The value is empty if it was not requested.
pub(crate) fn old_value(response: Response<'_>) -> Result<Option<Vec<u8>>, ClientError> {
    match success(response)? {
        Reply::Done => Ok(Some(Vec::new())),
        other => value(Ok(other)),
    }
}

/// Returns the value as a number in decimal text.
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
    fn errors_are_returned_by_every_conversion() {
        for response in [Ok(Reply::Failed(OperationError::SlabFull)), Err(WireError::Busy)] {
            let errors = [
                done(response).err(),
                is_done(response).err(),
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
    fn unexpected_replies_are_refused() {
        let unexpected = |result: Result<(), ClientError>| matches!(result, Err(ClientError::UnexpectedReply));
        assert!(unexpected(done(Ok(Reply::NotFound))));
        assert!(unexpected(is_done(Ok(Reply::Value(b""))).map(drop)));
        assert!(unexpected(value(Ok(Reply::Done)).map(drop)));
        assert!(unexpected(old_value(Ok(Reply::Exists)).map(drop)));
        assert!(unexpected(decimal(Ok(Reply::NotFound)).map(drop)));
        assert!(unexpected(decimal(Ok(Reply::Value(b"1x"))).map(drop)));
    }
}
