//! What may be wrong with a file of users.

use std::path::PathBuf;

/// The reason why a file of users cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// A file that cannot be used as a whole.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why it cannot be used, and what to do.
        reason: String,
    },
    /// A line that is wrong.
    #[error("{}, line {line}: {reason}: choose rules as in docs/security.md", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, the first one is 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
}
