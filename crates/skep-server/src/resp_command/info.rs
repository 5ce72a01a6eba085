//! `INFO`: the state of the server, in the fields that clients and exporters of Redis read. A field
//! that we could not tell truthfully is left out.

use std::fmt::Write;
use std::time::Duration;

use super::table::COMMANDS;
use super::{Arguments, REDIS_VERSION};
use crate::delays::DelayCounts;
use crate::shared::Shared;
use crate::spaces::Space;

type Section = (&'static str, fn(&mut String, &Shared));

const SECTIONS: [Section; 12] = [
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Ordered", ordered),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Congestion", congestion),
    ("Replication", replication),
    ("CPU", cpu),
    ("Commandstats", command_stats),
    ("Cluster", cluster),
    ("Keyspace", keyspace),
];

/// Returns the sections that were asked for; all if none was.
pub(super) fn text(arguments: Arguments<'_>, shared: &Shared) -> String {
    let wanted = |name: &str| {
        arguments.count() == 1
            || (1..arguments.count())
                .any(|index| [name, "all", "default", "everything"].iter().any(|word| arguments.is(index, word)))
    };
    let mut text = String::new();
    for (name, write) in SECTIONS {
        if wanted(name) {
            if !text.is_empty() {
                text += "\r\n";
            }
            text += &format!("# {name}\r\n");
            write(&mut text, shared);
        }
    }
    text
}

/// Appends `key:value` lines.
macro_rules! fields {
    ($text:ident $($key:literal $value:expr)*) => {
        $(write!($text, concat!($key, ":{}\r\n"), $value).expect("a String takes every text");)*
    };
}

fn server(text: &mut String, shared: &Shared) {
    let uptime = shared.started.elapsed().as_secs();
    fields! { text
        "redis_version" REDIS_VERSION
        "redis_mode" "standalone"
        "skep_version" env!("CARGO_PKG_VERSION")
        "os" std::env::consts::OS
        "arch_bits" usize::BITS
        "multiplexing_api" "epoll"
        "process_id" std::process::id()
        "run_id" format_args!("{:040x}", shared.run_id)
        "tcp_port" shared.settings.resp.map_or(0, |address| address.port())
        "skep_native_port" shared.settings.native.port()
        "skep_shards" shared.settings.shards
        "uptime_in_seconds" uptime
        "uptime_in_days" uptime / 86_400
    }
}

fn clients(text: &mut String, shared: &Shared) {
    let connection_memory = shared.sum(|metrics| &metrics.connection_memory) + shared.memory_budget.batches();
    fields! { text
        "connected_clients" shared.clients().len()
        "cluster_connections" 0
        "maxclients" shared.settings.connections_max
        "blocked_clients" 0
        "skep_connection_memory_limit" shared.settings.connection_memory
        "skep_connection_memory_used" connection_memory
        "skep_connection_memory_used_max" shared.memory_budget.used_max().max(connection_memory)
        "skep_connections_waiting_for_memory" shared.memory_budget.waiting()
        "skep_connections_closed_for_memory" shared.sum(|metrics| &metrics.connections_closed_for_memory)
    }
}

fn memory(text: &mut String, shared: &Shared) {
    // Of the hash space: the memory that the index and the slabs have taken. At the total, its writers are told that
    // it is full.
    let used = shared.sum(|metrics| &metrics.taken_bytes);
    let total = shared.settings.memory;
    fields! { text
        "used_memory" used
        "used_memory_human" format_args!("{:.2}M", used as f64 / f64::from(1 << 20))
        "used_memory_dataset" shared.sum(|metrics| &metrics.pair_bytes)
        "maxmemory" total
        "maxmemory_human" format_args!("{:.2}M", total as f64 / f64::from(1 << 20))
        "maxmemory_policy" "noeviction"
    }
    if let Some(resident) = resident_bytes() {
        fields! { text "used_memory_rss" resident }
    }
}

/// Writes the state of the ordered space, apart from the memory above.
fn ordered(text: &mut String, shared: &Shared) {
    fields! { text "skep_ordered_maxmemory" shared.settings.ordered_memory }
    let Some(store) = &shared.ordered else { return };
    let figures = store.statistics();
    fields! { text
        "skep_ordered_used_memory" figures.space.used_bytes
        "skep_ordered_touched_memory" figures.space.touched_bytes
        "skep_ordered_garbage" figures.garbage_bytes
        "skep_ordered_nodes" figures.space.lids_used
        "skep_ordered_height" figures.height
        "skep_ordered_leases" figures.leases.open
        "skep_ordered_leases_expired" figures.leases.expired
        "skep_ordered_leases_ended_for_memory" figures.leases.ended_for_memory
    }
}

/// Returns the bytes of the process that are in memory.
fn resident_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn persistence(text: &mut String, _: &Shared) {
    fields! { text "loading" 0 "rdb_bgsave_in_progress" 0 "aof_enabled" 0 }
}

fn stats(text: &mut String, shared: &Shared) {
    let commands: u64 = (0..COMMANDS.len()).map(|command| shared.command_count(command)).sum();
    fields! { text
        "total_connections_received" shared.sum(|metrics| &metrics.connections_accepted)
        "total_commands_processed" commands + shared.sum(|metrics| &metrics.operations_native)
        "total_net_input_bytes" shared.sum(|metrics| &metrics.input_bytes)
        "total_net_output_bytes" shared.sum(|metrics| &metrics.output_bytes)
        "rejected_connections" shared.sum(|metrics| &metrics.connections_refused)
        "expired_keys" 0
        "evicted_keys" 0
        "keyspace_hits" shared.sum(|metrics| &metrics.hits)
        "keyspace_misses" shared.sum(|metrics| &metrics.misses)
        "total_error_replies" shared.sum(|metrics| &metrics.error_replies)
        "skep_operations" shared.sum(|metrics| &metrics.operations)
        "skep_operations_forwarded" shared.sum(|metrics| &metrics.operations_forwarded)
        "skep_protocol_errors" shared.sum(|metrics| &metrics.protocol_errors)
    }
}

/// Delays of operations from the read of their socket to their reply, and the reaction of the window. The buckets count
/// delays up to a number of microseconds, since the start, so that a client that asks twice knows the difference. A
/// bound of 0 says that there is none.
fn congestion(text: &mut String, shared: &Shared) {
    let microseconds = |delay: Duration| format!("{:.3}", delay.as_nanos() as f64 / 1000.0);
    let of_counter = |nanoseconds: u64| microseconds(Duration::from_nanos(nanoseconds));
    let mut delays = DelayCounts::default();
    shared.all_metrics().for_each(|metrics| metrics.delays.add_to(&mut delays));
    let buckets: Vec<String> =
        delays.buckets().map(|(delay, count)| format!("{}={count}", microseconds(delay))).collect();
    fields! { text
        "skep_delay_bound_usec" microseconds(shared.settings.delay_max.unwrap_or_default())
        "skep_delay_p50_usec" microseconds(delays.quantile(0.5))
        "skep_delay_p99_usec" microseconds(delays.quantile(0.99))
        "skep_delay_p999_usec" microseconds(delays.quantile(0.999))
        "skep_delay_max_usec" of_counter(shared.all_metrics().map(|metrics| metrics.delay_max.get()).max().unwrap_or(0))
        "skep_delay_buckets_usec" buckets.join(",")
        "skep_turns_waited_max" shared.all_metrics().map(|metrics| metrics.turns_waited_max.get()).max().unwrap_or(0)
        "skep_reads_held_back" shared.sum(|metrics| &metrics.held_back)
        "skep_operations_refused" shared.sum(|metrics| &metrics.refused)
    }
    for (index, metrics) in shared.all_metrics().enumerate() {
        write!(
            text,
            "skep_shard{index}:window={},in_flight={},delay_usec={},delay_min_usec={},delay_max_usec={},\
             turns={},turns_waited_max={},reads_held_back={},operations_refused={}\r\n",
            metrics.window.get(),
            metrics.in_flight.get(),
            of_counter(metrics.delay.get()),
            of_counter(metrics.delay_min.get()),
            of_counter(metrics.delay_max.get()),
            metrics.turns.get(),
            metrics.turns_waited_max.get(),
            metrics.held_back.get(),
            metrics.refused.get(),
        )
        .expect("a String takes every text");
    }
}

fn replication(text: &mut String, _: &Shared) {
    fields! { text "role" "master" "connected_slaves" 0 }
}

/// Returns processor time of the process, which the kernel counts in hundredths of a second.
fn cpu(text: &mut String, _: &Shared) {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return };
    // The name of the process, in parentheses, may contain anything; the 12th and 13th field after it are the times.
    let Some((_, fields)) = stat.rsplit_once(')') else { return };
    let ticks = |index: usize| fields.split_whitespace().nth(index).and_then(|field| field.parse::<f64>().ok());
    if let (Some(user), Some(system)) = (ticks(11), ticks(12)) {
        let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
        fields! { text
            "used_cpu_sys" format_args!("{:.6}", system / ticks_per_second)
            "used_cpu_user" format_args!("{:.6}", user / ticks_per_second)
        }
    }
}

fn command_stats(text: &mut String, shared: &Shared) {
    for (index, info) in COMMANDS.iter().enumerate() {
        let calls = shared.command_count(index);
        if calls > 0 {
            write!(text, "cmdstat_{}:calls={calls}\r\n", info.name).expect("a String takes every text");
        }
    }
}

fn cluster(text: &mut String, _: &Shared) {
    fields! { text "cluster_enabled" 0 }
}

fn keyspace(text: &mut String, shared: &Shared) {
    for space in [Space::Hash, Space::Ordered] {
        let pairs = shared.pair_count(space);
        if pairs > 0 {
            let expiring = shared.expiring_count(space).min(pairs);
            write!(text, "db{}:keys={pairs},expires={expiring},avg_ttl=0\r\n", space.number())
                .expect("a String takes every text");
        }
    }
}
