//! The first byte of an operation: its kind and the copy flags, see `operation.rs`.

/// Bits 0 to 5 of the first byte: the opcode, and a zero.
pub(super) const OPCODE_MASK: u8 = 0x3F;
/// Each size is the same as that of the last operation that had it.
pub(super) const SAME_SIZES: u8 = 0x40;
/// The operand is the same as that of the last operation that had one.
pub(super) const SAME_VALUE: u8 = 0x80;

const _: () = assert!(OPCODE_MASK ^ SAME_SIZES ^ SAME_VALUE == 0xFF);
const _: () = assert!(OPCODE_MASK & SAME_SIZES == 0 && OPCODE_MASK & SAME_VALUE == 0 && SAME_SIZES & SAME_VALUE == 0);

/// The kind of an operation, as encoded in its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Opcode {
    Get = 1,
    Contains = 2,
    Put = 3,
    PutIfAbsent = 4,
    PutIfPresent = 5,
    Delete = 6,
    UpdateScalarToScalar = 7,
    UpdateScalarToVector = 8,
    UpdateVectorToVector = 9,
    Reduce = 10,
    Filter = 11,
    AddDecimal = 12,
    Scan = 13,
    StringRead = 14,
    StringWrite = 15,
    Call = 16,
}

impl Opcode {
    const ALL: [Opcode; 16] = [
        Opcode::Get,
        Opcode::Contains,
        Opcode::Put,
        Opcode::PutIfAbsent,
        Opcode::PutIfPresent,
        Opcode::Delete,
        Opcode::UpdateScalarToScalar,
        Opcode::UpdateScalarToVector,
        Opcode::UpdateVectorToVector,
        Opcode::Reduce,
        Opcode::Filter,
        Opcode::AddDecimal,
        Opcode::Scan,
        Opcode::StringRead,
        Opcode::StringWrite,
        Opcode::Call,
    ];

    pub(super) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// Returns true if function and element bytes follow the first byte.
    pub(super) fn has_function(self) -> bool {
        matches!(
            self,
            Opcode::UpdateScalarToScalar
                | Opcode::UpdateScalarToVector
                | Opcode::UpdateVectorToVector
                | Opcode::Reduce
                | Opcode::Filter
        )
    }

    /// Returns true if the header contains an operand size.
    pub(super) fn has_operand(self) -> bool {
        !matches!(self, Opcode::Get | Opcode::Contains | Opcode::Delete)
    }
}
