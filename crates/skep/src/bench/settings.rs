//! The settings of a run, and the refusal of those that clap cannot check.

use skep::Page;
use skep::limits::{KEY_SIZE_MAX, VALUE_SIZE_MAX};
use skep_measure::distribution::Distribution;
use skep_measure::mix::Mix;

use super::drive::Plan;
use super::target::BATCH_BYTES_MAX;
use super::workload::{Keys, Workload};
use super::{Arguments, distribution};
use crate::cli::Space;
use crate::failure::Failure;
use crate::password::Login;

/// Default share of reads in cloud storage, in per cent.
const CLOUD_READS_IN_100: u32 = 80;
/// Size of the smallest keys of inserted records: there are 2⁴⁰ of them.
const INSERTED_KEY_SIZE_MIN: usize = 8;

/// Checks the arguments that clap cannot check. Returns the space and the plan of its clients.
pub(super) fn plan(arguments: &Arguments) -> Result<(Space, Plan), Failure> {
    let in_range = |name: &str, value: usize, min: usize, max: usize| {
        if (min..=max).contains(&value) {
            Ok(())
        } else {
            Err(Failure::Usage(format!("invalid value '{value}' for '--{name}': write {min} to {max}")))
        }
    };
    in_range("key-size", arguments.key_size, 1, KEY_SIZE_MAX)?;
    in_range("value-size", arguments.value_size, 0, VALUE_SIZE_MAX)?;
    in_range("batch", arguments.batch, 1, (BATCH_BYTES_MAX / arguments.value_size.max(1)).min(1 << 20))?;
    let keys = Keys::new(arguments.key_size, arguments.seed);
    if arguments.records > keys.record_count_max() {
        return Err(Failure::Usage(format!(
            "{} records cannot have different keys of {}: write a larger --key-size or fewer --records",
            arguments.records,
            counted(arguments.key_size as u64, "byte")
        )));
    }
    if arguments.embedded && arguments.records < u64::from(arguments.clients.unwrap_or(1)) {
        return Err(Failure::Usage("every embedded client needs a record: write more --records".to_owned()));
    }
    if arguments.reads.is_some() && arguments.workload != Workload::Cloud {
        return Err(Failure::Usage(
            "--reads is for --workload cloud: the other workloads have fixed shares".to_owned(),
        ));
    }
    let mix = arguments.workload.mix(arguments.reads.unwrap_or(CLOUD_READS_IN_100));
    if mix.inserts() && arguments.key_size < INSERTED_KEY_SIZE_MIN {
        return Err(Failure::Usage(format!(
            "keys of {} may run out when records are inserted: write --key-size {INSERTED_KEY_SIZE_MIN} or more",
            counted(arguments.key_size as u64, "byte")
        )));
    }
    let space = space(arguments, mix)?;
    let plan = Plan {
        space: space.number(),
        mix,
        prefers_latest: distribution(arguments) == Distribution::Latest,
        keys,
        value_size: arguments.value_size,
        batch: arguments.batch,
    };
    Ok((space, plan))
}

/// Returns the space that is measured. Scans need the ordered space, and one reply must hold all pairs of a scan.
/// Embedded stores are hash stores with memory for the loaded records only.
fn space(arguments: &Arguments, mix: Mix) -> Result<Space, Failure> {
    let pairs_max = mix.read.pair_counts().map(|(_, most)| most as usize);
    let default = if pairs_max.is_some() { Space::Ordered } else { Space::Hash };
    let space = arguments.space.unwrap_or(default);
    let refusal = match pairs_max {
        Some(_) if space != Space::Ordered => {
            "only the ordered space has an order of keys to scan: write --space ordered, or leave it out".to_owned()
        }
        _ if space == Space::Cache => {
            "--space cache: a cache may forget the loaded records: choose hash or ordered".to_owned()
        }
        _ if arguments.embedded && (space != Space::Hash || mix.inserts()) => {
            "embedded stores are hash stores with memory for the loaded records only: measure a server, or the ordered store with `skep \
             bench engine --engine ordered`"
                .to_owned()
        }
        Some(most) if !Page::holds(most, arguments.key_size, arguments.value_size) => {
            format!("a reply does not hold {most} pairs of this size: choose a smaller --key-size or --value-size")
        }
        _ => return Ok(space),
    };
    Err(Failure::Usage(refusal))
}

/// Refuses a fixed rate over a transport that has no streams.
pub(super) fn check_transport(arguments: &Arguments, login: &Login) -> Result<(), Failure> {
    let offers = arguments.offer.rate.is_some() || arguments.offer.saturate;
    if offers && ["shm:", "udp:", "rdma:"].iter().any(|prefix| login.address.starts_with(prefix)) {
        let refusal = "--rate and --saturate need a native address of TCP or TLS: write --addr HOST:PORT";
        return Err(Failure::Usage(refusal.to_owned()));
    }
    Ok(())
}

/// Returns a number and its noun.
pub(super) fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2].map(|number| counted(number, "byte")), ["0 bytes", "1 byte", "2 bytes"]);
    }
}
