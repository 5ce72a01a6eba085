//! The two checksums: CRC-32C of what is short or is written often, CRC-64/NVME of what is kept for long.

use crc_fast::{CrcAlgorithm, checksum};

/// Returns the CRC-32C (iSCSI) of the bytes.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Returns the CRC-64/NVME of the bytes.
pub(crate) fn crc64(bytes: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksums_are_the_published_ones() {
        assert_eq!(crc32(b"123456789"), 0xe306_9283);
        assert_eq!(crc64(b"123456789"), 0xae8b_1486_0a79_9888);
    }
}
