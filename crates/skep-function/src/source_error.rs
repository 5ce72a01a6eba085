//! The reason why a source was refused, and where.

use std::fmt;

use proc_macro2::{LineColumn, Span};

/// A fault in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceError {
    /// The line, from 1.
    pub line: usize,
    /// The column, in characters, from 1.
    pub column: usize,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl SourceError {
    /// Returns an error at the beginning of `span`.
    pub(crate) fn at(span: Span, message: impl Into<String>) -> SourceError {
        let LineColumn { line, column } = span.start();
        SourceError { line: line.max(1), column: column + 1, message: message.into() }
    }

    /// Returns an error that is not about a part of the source.
    pub(crate) fn of_whole(message: impl Into<String>) -> SourceError {
        SourceError { line: 1, column: 1, message: message.into() }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for SourceError {}
