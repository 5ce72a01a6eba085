//! Checks the shape of a source before it is parsed.
//!
//! syn and the steps after it recurse over the source. So the depth of brackets, and the number of tokens in a row, are
//! limited first: `((((`, `!!!!`, `- - - -`, `else if … else if …` and long sums cannot overflow the stack. A semicolon, a
//! comma, and a block that ends a statement or an item begin a new row. The tokens of the rows around a bracket count
//! for the rows inside.

use std::str::FromStr;

use proc_macro2::{Delimiter, LexError, Span, TokenStream, TokenTree, token_stream};

use crate::limits::{LITERAL_SIZE_MAX, NESTING_MAX, RUN_MAX, SOURCE_SIZE_MAX};
use crate::source_error::SourceError;

/// Returns the error of a source of more than [`SOURCE_SIZE_MAX`] bytes, which needs no look at it.
pub fn check_size(size: usize) -> Result<(), SourceError> {
    if size <= SOURCE_SIZE_MAX {
        return Ok(());
    }
    let message = format!("the source has {size} bytes, more than {SOURCE_SIZE_MAX}: divide it into several modules");
    Err(SourceError::of_whole(message))
}

/// Divides a source into tokens, unless it is too long or too deep.
pub(crate) fn scan(source: &str) -> Result<TokenStream, SourceError> {
    check_size(source.len())?;
    let tokens = TokenStream::from_str(source).map_err(|error: LexError| {
        SourceError::at(
            error.span(),
            "this is not Rust: a bracket, a quote or a comment is not closed, or a character is unknown",
        )
    })?;
    check_shape(&tokens)?;
    Ok(tokens)
}

/// A list of tokens that is being read.
struct Level {
    tokens: token_stream::IntoIter,
    /// The tokens of the rows around.
    around: usize,
    /// The tokens of this row.
    run: usize,
    /// The last token was a block.
    after_block: bool,
}

fn check_shape(tokens: &TokenStream) -> Result<(), SourceError> {
    let mut levels = vec![Level { tokens: tokens.clone().into_iter(), around: 0, run: 0, after_block: false }];
    while let Some(level) = levels.last_mut() {
        let Some(token) = level.tokens.next() else {
            levels.pop();
            continue;
        };
        level.count(&token);
        if level.around + level.run > RUN_MAX {
            return Err(too_long(token.span()));
        }
        if let TokenTree::Literal(literal) = &token
            && literal.to_string().len() > LITERAL_SIZE_MAX
        {
            let message = format!("the literal has more than {LITERAL_SIZE_MAX} characters: shorten it");
            return Err(SourceError::at(literal.span(), message));
        }
        if let TokenTree::Group(group) = token {
            let around = level.around + level.run;
            if levels.len() > NESTING_MAX {
                let message = format!("brackets are nested more than {NESTING_MAX} deep: name a part with `let`");
                return Err(SourceError::at(group.span_open(), message));
            }
            levels.push(Level { tokens: group.stream().into_iter(), around, run: 0, after_block: false });
        }
    }
    Ok(())
}

impl Level {
    fn count(&mut self, token: &TokenTree) {
        let begins_row = match token {
            TokenTree::Punct(punct) => {
                matches!(punct.as_char(), ';' | ',') || (punct.as_char() == '#' && self.after_block)
            }
            TokenTree::Ident(ident) => self.after_block && ident != "else" && ident != "as",
            TokenTree::Literal(_) => self.after_block,
            TokenTree::Group(_) => false,
        };
        self.run = if begins_row { 1 } else { self.run + 1 };
        self.after_block = matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
    }
}

fn too_long(span: Span) -> SourceError {
    let message = format!(
        "this expression has more than {RUN_MAX} tokens in a row: name parts of it with `let`, or divide it into functions"
    );
    SourceError::at(span, message)
}
