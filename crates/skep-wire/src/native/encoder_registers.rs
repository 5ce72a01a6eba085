//! What the encoder remembers of the operations before, for the copy flags (KV-Direct, section 4).

/// Bytes of an operand that are compared as a number. Shorter operands are compared so as a whole.
pub(super) const HEAD_SIZE: usize = size_of::<u64>();

/// The encoder's state between two operations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EncoderRegisters {
    pub(super) key_size: Option<u16>,
    pub(super) operand_size: Option<u32>,
    pub(super) initial_size: Option<u32>,
    /// Offset in the output at which the last operand begins.
    pub(super) operand_start: usize,
    /// Its first bytes: operands that differ mostly differ in them. A comparison with the output would have to wait until
    /// the processor has written it.
    pub(super) operand_head: u64,
}

/// Returns fewer than eight bytes as a number. Reads them at both ends, which overlap.
#[inline]
pub(super) fn head_of_short(bytes: &[u8]) -> u64 {
    if let (Some(low), Some(high)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let shift = 8 * (bytes.len() - size_of::<u32>());
        u64::from(u32::from_le_bytes(*low)) | u64::from(u32::from_le_bytes(*high)) << shift
    } else if let (Some(low), Some(high)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let shift = 8 * (bytes.len() - size_of::<u16>());
        u64::from(u16::from_le_bytes(*low)) | u64::from(u16::from_le_bytes(*high)) << shift
    } else {
        bytes.first().map_or(0, |byte| u64::from(*byte))
    }
}
