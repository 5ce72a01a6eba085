//! The requests of a run, in the form of the store.

use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{Operation, PutCondition, Request, Shape, Update};

use super::mix::Kind;
use super::pairs::{PART_BYTES, Pairs};

/// One request of a client. A pair that is divided has several, in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drawn {
    pub(crate) key: u32,
    pub(crate) part: u32,
    pub(crate) kind: Kind,
    /// True for the first request of an operation.
    pub(crate) begins: bool,
}

/// The bytes of the keys of some requests.
pub(crate) struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// The bytes of values and operands.
pub(crate) struct Contents {
    value: Vec<u8>,
    operand: [u8; 8],
}

impl Drawn {
    /// Appends the requests of an operation.
    pub(crate) fn append(pairs: &Pairs, key: u32, kind: Kind, to: &mut Vec<Drawn>) {
        to.extend((0..pairs.part_count(key)).map(|part| Drawn { key, part, kind, begins: part == 0 }));
    }

    /// Returns the bytes of the key.
    fn key_bytes(self, pairs: &Pairs) -> u32 {
        pairs.key_bytes(self.key) + if pairs.part_count(self.key) > 1 { PART_BYTES } else { 0 }
    }

    /// Returns the bytes of the value.
    pub(crate) fn value_bytes(self, pairs: &Pairs) -> u32 {
        pairs.part_value_bytes(self.key, self.part)
    }

    /// Returns the bytes of keys, values and operands of the request in its packet.
    pub(crate) fn request_bytes(self, pairs: &Pairs) -> u32 {
        let more = match self.kind {
            Kind::Put | Kind::Insert => self.value_bytes(pairs),
            Kind::Update => element(self.value_bytes(pairs)).width() as u32,
            Kind::Get | Kind::Delete => 0,
        };
        self.key_bytes(pairs) + more
    }

    /// Returns the bytes of the value in the reply.
    pub(crate) fn reply_bytes(self, pairs: &Pairs) -> u32 {
        match self.kind {
            Kind::Get | Kind::Update => self.value_bytes(pairs),
            Kind::Put | Kind::Insert | Kind::Delete => 0,
        }
    }
}

impl Keys {
    /// Returns the keys of these requests: their numbers, and bytes that fill them up. The number of a part is at the
    /// end.
    pub(crate) fn of(pairs: &Pairs, drawn: &[Drawn]) -> Self {
        let mut keys = Keys { bytes: Vec::new(), ends: Vec::with_capacity(drawn.len()) };
        for one in drawn {
            let end = keys.bytes.len() + pairs.key_bytes(one.key) as usize;
            keys.bytes.extend_from_slice(&one.key.to_le_bytes());
            keys.bytes.resize(end, b'k');
            if pairs.part_count(one.key) > 1 {
                keys.bytes.extend_from_slice(&(one.part as u16).to_le_bytes());
            }
            keys.ends.push(keys.bytes.len());
        }
        keys
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.bytes[begin..*end])
    }
}

impl Contents {
    /// Returns contents for all values of these pairs.
    pub(crate) fn of(pairs: &Pairs) -> Self {
        Contents { value: vec![7; pairs.values.most() as usize], operand: [1, 0, 0, 0, 0, 0, 0, 0] }
    }

    /// Returns the requests with these keys.
    pub(crate) fn requests<'a>(&'a self, pairs: &Pairs, drawn: &[Drawn], keys: &'a Keys) -> Vec<Request<'a>> {
        let operation = |one: &Drawn| {
            let value = &self.value[..one.value_bytes(pairs) as usize];
            match one.kind {
                Kind::Get => Operation::Get,
                Kind::Put => Operation::Put { value, condition: PutCondition::Always },
                Kind::Insert => Operation::Put { value, condition: PutCondition::IfAbsent },
                Kind::Delete => Operation::Delete,
                Kind::Update => {
                    let element = element(value.len() as u32);
                    Operation::Update(Update {
                        function: UpdateFunction::Add,
                        element,
                        shape: Shape::ScalarToVector,
                        operand: &self.operand[..element.width()],
                        initial: None,
                        return_old: true,
                    })
                }
            }
        };
        drawn.iter().zip(keys.iter()).map(|(one, key)| Request { key, operation: operation(one) }).collect()
    }
}

/// Returns the widest integer of which a value of this size is a vector.
fn element(value_bytes: u32) -> Element {
    match value_bytes.trailing_zeros() {
        0 => Element::U8,
        1 => Element::U16,
        2 => Element::U32,
        _ => Element::U64,
    }
}

#[cfg(test)]
mod tests {
    use super::super::pairs::Sizes;
    use super::*;

    #[test]
    fn requests_have_the_bytes_of_their_pairs() {
        let pairs = Pairs { keys: Sizes::fixed(16), values: Sizes::fixed(1000) };
        let mut drawn = Vec::new();
        Drawn::append(&pairs, 5, Kind::Get, &mut drawn);
        Drawn::append(&pairs, 6, Kind::Put, &mut drawn);
        assert_eq!(drawn.iter().map(|one| one.begins).collect::<Vec<_>>(), [true, false, false, true, false, false]);
        let (keys, contents) = (Keys::of(&pairs, &drawn), Contents::of(&pairs));
        let requests = contents.requests(&pairs, &drawn, &keys);
        let sizes: Vec<usize> = requests.iter().map(Request::size).collect();
        assert_eq!(sizes, [18, 18, 18, 508, 508, 38]);
        assert_eq!(drawn[..3].iter().map(|one| one.reply_bytes(&pairs)).sum::<u32>(), 1000);
        assert!(requests.iter().zip(&drawn).all(|(request, one)| request.size() as u32 == one.request_bytes(&pairs)));
        let mut different: Vec<&[u8]> = requests.iter().map(|request| request.key).collect();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), 6);
    }

    #[test]
    fn an_update_is_valid_for_every_size() {
        for size in 1..40 {
            let pairs = Pairs { keys: Sizes::fixed(4), values: Sizes::fixed(size) };
            let drawn = [Drawn { key: 1, part: 0, kind: Kind::Update, begins: true }];
            let (keys, contents) = (Keys::of(&pairs, &drawn), Contents::of(&pairs));
            let Operation::Update(update) = contents.requests(&pairs, &drawn, &keys)[0].operation else {
                unreachable!("it was asked for");
            };
            assert_eq!(update.validate_value(size as usize), Ok(()), "{size} B");
        }
    }
}
