//! The mixes of YCSB and of Honeycomb's cloud storage (section 6.2): their reads, their writes, and the share of each.
//! Both the benchmark of a server and that of a store use this table.
//!
//! | mix | reads | writes |
//! |---|---|---|
//! | A | 50% get | put of a new value |
//! | B | 95% get | put of a new value |
//! | C | 100% get | |
//! | D | 95% get | insert of a new record |
//! | E | 95% scan of 1 to 100 pairs | insert of a new record |
//! | F | 50% get | read-modify-write |
//! | cloud storage | scan of 3 or 4 pairs | insert of a new record |
//!
//! YCSB's client does a read-modify-write as a get and a put, which loses updates of concurrent clients. Here it is one
//! atomic update next to the data: it adds one to every element of the value and returns the old value.

use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{Operation, Shape, Update};

/// A mix of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mix {
    pub(crate) read: Read,
    pub(crate) write: Write,
    /// Number of writes in a hundred operations.
    pub(crate) writes_in_100: u32,
}

/// The reads of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// A get of a record.
    Get,
    /// A scan from a record, of a random number of pairs between the first and the second number.
    Scan(u32, u32),
    /// The sum of a value's elements.
    Sum,
}

/// The writes of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// A put to a record that exists.
    Update,
    /// A put of a record that does not exist; its key is as random as all keys are.
    Insert,
    /// An atomic update of a record that exists.
    Modify,
}

impl Mix {
    pub(crate) const A: Mix = Mix::new(Read::Get, Write::Update, 50);
    pub(crate) const B: Mix = Mix::new(Read::Get, Write::Update, 5);
    pub(crate) const C: Mix = Mix::new(Read::Get, Write::Update, 0);
    pub(crate) const D: Mix = Mix::new(Read::Get, Write::Insert, 5);
    pub(crate) const E: Mix = Mix::new(Read::Scan(1, 100), Write::Insert, 5);
    pub(crate) const F: Mix = Mix::new(Read::Get, Write::Modify, 50);

    pub(crate) const fn new(read: Read, write: Write, writes_in_100: u32) -> Mix {
        Mix { read, write, writes_in_100 }
    }

    /// Returns the mix of cloud storage. The paper's ranges have three pairs at first, and four after an insert.
    pub(crate) const fn cloud_storage(reads_in_100: u32) -> Mix {
        Mix::new(Read::Scan(3, 4), Write::Insert, 100 - reads_in_100)
    }

    /// Returns true if it inserts records.
    pub(crate) fn inserts(self) -> bool {
        self.write == Write::Insert && self.writes_in_100 > 0
    }
}

/// Returns the read-modify-write of a value of this size.
pub(crate) fn modify(value_size: usize) -> Operation<'static> {
    /// The number one, little-endian, in any width.
    const ONE: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];
    let element = widest_element(value_size);
    Operation::Update(Update {
        function: UpdateFunction::Add,
        element,
        shape: Shape::ScalarToVector,
        operand: &ONE[..element.width()],
        initial: None,
        return_old: true,
    })
}

/// Returns the widest unsigned element whose width divides the size of the value.
pub(crate) fn widest_element(value_size: usize) -> Element {
    let widths = [Element::U64, Element::U32, Element::U16];
    widths.into_iter().find(|element| value_size.is_multiple_of(element.width())).unwrap_or(Element::U8)
}
