//! The names of the files of a snapshot.

use crate::chunk::SnapshotPart;

/// Returns the name of a file.
pub(crate) fn name(snapshot: u64, part: SnapshotPart) -> String {
    match part {
        SnapshotPart::Shard(shard) => format!("snapshot-{snapshot:016x}-{shard:04x}"),
        SnapshotPart::Ordered => format!("snapshot-{snapshot:016x}-ordered"),
    }
}

/// Returns the number of the snapshot that has the file with this name.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let (snapshot, part) = name.strip_prefix("snapshot-")?.split_once('-')?;
    let part = match part {
        "ordered" => SnapshotPart::Ordered,
        shard => SnapshotPart::Shard(u16::from_str_radix(shard, 16).ok()?),
    };
    let snapshot = u64::from_str_radix(snapshot, 16).ok()?;
    (self::name(snapshot, part) == name).then_some(snapshot)
}
