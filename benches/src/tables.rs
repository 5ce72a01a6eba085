//! Tables of a result and the note below them: as text for a terminal, and as Markdown for a page.

use comfy_table::presets::{ASCII_MARKDOWN, UTF8_FULL_CONDENSED};
use comfy_table::{CellAlignment, Table};

/// The most columns of a line in a page.
const COLUMNS_MAX: usize = 100;

/// The tables of a result.
#[derive(Clone, Debug)]
pub struct Tables {
    /// The tables, from top to bottom.
    pub tables: Vec<Table>,
    /// A few sentences on the settings of the measurement.
    pub note: String,
}

impl Tables {
    /// Formats tables and note for a terminal.
    pub fn text(mut self) -> String {
        let tables = self.tables.iter_mut().map(|table| table.load_style(UTF8_FULL_CONDENSED).to_string());
        let mut parts: Vec<String> = tables.collect();
        parts.push(self.note);
        parts.join("\n")
    }

    /// Formats tables and note as Markdown.
    pub fn markdown(mut self) -> String {
        let tables = self.tables.iter_mut().map(|table| table.load_style(ASCII_MARKDOWN).to_string());
        let mut parts: Vec<String> = tables.collect();
        parts.push(wrapped(&self.note));
        parts.join("\n\n")
    }
}

/// Wraps a paragraph at [`COLUMNS_MAX`].
fn wrapped(text: &str) -> String {
    let (mut out, mut columns) = (String::new(), 0);
    for word in text.split_whitespace() {
        let width = word.chars().count();
        let separator = match columns {
            0 => "",
            _ if columns + 1 + width > COLUMNS_MAX => "\n",
            _ => " ",
        };
        columns = if separator == " " { columns + 1 + width } else { width };
        out += separator;
        out += word;
    }
    out
}

/// Returns a table whose columns are right-aligned from `first` on.
pub fn table(header: &[&str], first: usize, rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.set_header(header);
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(first) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_two_forms() {
        let rows = [vec!["a".to_owned(), "1".to_owned()]];
        let tables = Tables { tables: vec![table(&["name", "M/s"], 1, rows)], note: "note".to_owned() };
        let markdown = tables.clone().markdown();
        assert_eq!(markdown, "| name | M/s |\n|------|-----|\n| a    |   1 |\n\nnote");
        assert!(tables.text().ends_with("┘\nnote"));
    }

    #[test]
    fn a_paragraph_is_wrapped_between_words() {
        let text = "a word ".repeat(40);
        let wrapped = wrapped(&text);
        assert!(
            wrapped.lines().all(|line| (94..=COLUMNS_MAX).contains(&line.chars().count()) || wrapped.ends_with(line))
        );
        assert_eq!(wrapped.split_whitespace().collect::<String>(), text.split_whitespace().collect::<String>());
    }
}
