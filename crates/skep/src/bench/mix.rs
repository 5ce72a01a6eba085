//! The mixes of YCSB, and that of Honeycomb's cloud storage (section 6.2): what is read, what is written, and how often. Said
//! once, for whoever measures them over the network or in the store.
//!
//! | mix | reads | the rest |
//! |---|---|---|
//! | A | 50% get | put of a new value |
//! | B | 95% get | put of a new value |
//! | C | 100% get | |
//! | D | 95% get | insert of a new record |
//! | E | 95% scan of 1 to 100 pairs | insert of a new record |
//! | F | 50% get | read-modify-write |
//! | cloud storage | scan of 3 or 4 pairs | insert of a new record |
//!
//! YCSB's client does a read-modify-write as a get and a put, which loses updates when two clients meet. Here it is one
//! atomic update next to the data: every element of the value grows by one, and the old value is the answer.

use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{Operation, Shape, Update};

/// A mix of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mix {
    pub(crate) read: Read,
    pub(crate) write: Write,
    /// Of a hundred operations, those that write.
    pub(crate) writes_in_100: u32,
}

/// How a mix reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// A record.
    Get,
    /// From a record on, so many pairs: any number from the first to the second.
    Scan(u32, u32),
    /// The sum of a value's elements.
    Sum,
}

/// How a mix writes.
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

    /// The paper's ranges hold three pairs at first, and four where one was inserted.
    pub(crate) const fn cloud_storage(reads_in_100: u32) -> Mix {
        Mix::new(Read::Scan(3, 4), Write::Insert, 100 - reads_in_100)
    }

    /// Whether it inserts records.
    pub(crate) fn inserts(self) -> bool {
        self.write == Write::Insert && self.writes_in_100 > 0
    }
}

/// The read-modify-write of a value of this size.
pub(crate) fn modify(value_size: usize) -> Operation<'static> {
    /// One, little-endian, in any width.
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

/// The widest unsigned element whose width divides the size of the value.
pub(crate) fn widest_element(value_size: usize) -> Element {
    let widths = [Element::U64, Element::U32, Element::U16];
    widths.into_iter().find(|element| value_size.is_multiple_of(element.width())).unwrap_or(Element::U8)
}
