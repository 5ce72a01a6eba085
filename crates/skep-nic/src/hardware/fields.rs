//! The fields of a description by their names: `pcie.links`, `pcie.dma_engine.clock_mhz`.

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::{Hardware, HardwareError, form};

impl Hardware {
    /// Returns the names of all numbers and switches of a description, with the names of their tables.
    pub fn fields(&self) -> Vec<String> {
        fields(self)
    }

    /// Returns the description with another number in a field, or `true` or `false`. It is not checked. Returns `None` if
    /// there is no such field.
    pub fn with(&self, field: &str, number: &str) -> Option<Result<Self, HardwareError>> {
        with(self, field, number)
    }
}

/// Returns the names of all numbers and switches of a description of a card.
pub(crate) fn fields(card: &impl Serialize) -> Vec<String> {
    let mut names = Vec::new();
    collect(&table(card), "", &mut names);
    names
}

/// Returns a description with another number in a field, see [`Hardware::with`].
pub(crate) fn with<T: Serialize + DeserializeOwned>(
    card: &T,
    field: &str,
    number: &str,
) -> Option<Result<T, HardwareError>> {
    if !fields(card).iter().any(|name| name == field) {
        return None;
    }
    let mut table = table(card);
    let (tables, key) = field.rsplit_once('.')?;
    let inner = tables.split('.').try_fold(&mut table, |table, name| table.get_mut(name)?.as_table_mut())?;
    let (value, kind) = match inner.get(key) {
        Some(Value::Float(_)) => (number.parse().ok().map(Value::Float), "number"),
        Some(Value::Boolean(_)) => (number.parse().ok().map(Value::Boolean), "switch: write true or false"),
        _ => (number.parse().ok().map(Value::Integer), "whole number"),
    };
    let Some(value) = value else {
        return Some(Err(HardwareError::Form(format!("{field}: `{number}` is not a {kind}"))));
    };
    inner.insert(key.to_owned(), value);
    Some(table.try_into().map_err(|error| form(&error)))
}

fn table(card: &impl Serialize) -> Table {
    Table::try_from(card).expect("numbers and text are always valid TOML")
}

fn collect(table: &Table, path: &str, names: &mut Vec<String>) {
    for (key, value) in table {
        match value {
            Value::Table(inner) => collect(inner, &format!("{path}{key}."), names),
            Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => names.push(format!("{path}{key}")),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_replaced_by_its_name() {
        let board = Hardware::kv_direct();
        assert_eq!(board.fields().len(), 49);
        let links = board.with("pcie.links", "3").unwrap().unwrap();
        assert_eq!((links.pcie.links, links.pcie.read_tags), (3, 64));
        let engine = board.with("pcie.dma_engine.clock_mhz", "500").unwrap().unwrap();
        assert_eq!(engine.pcie.dma_engine.clock_mhz, 500.0);
        let other = board.with("processor.writes_read_buckets", "false").unwrap().unwrap();
        assert!(!other.processor.writes_read_buckets);
        assert_eq!(board.with("pcie.lanes", "3"), None);
        assert_eq!(board.with("links", "3"), None);
        for (field, number, reason) in [("pcie.links", "1.5", "whole number"), ("card.clock_mhz", "fast", "`fast`")] {
            let refusal = board.with(field, number).unwrap().unwrap_err().to_string();
            assert!(refusal.starts_with(field) && refusal.contains(reason), "{refusal}");
        }
        assert!(board.with("pcie.links", "-1").unwrap().is_err());
    }
}
