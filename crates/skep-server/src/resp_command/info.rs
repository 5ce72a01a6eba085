//! `INFO`: the state of the server, in the fields that clients and exporters of Redis read. A field
//! that we could not tell truthfully is left out.

use std::fmt::Write;
use std::time::Duration;

use skep_log::FUNCTION_NAMES_MAX;

use super::info_fields::fields;
use super::info_statistics::{command_stats, error_stats, latency_stats, stats};
use super::{Arguments, REDIS_VERSION};
use crate::account::Account;
use crate::command_metrics::COMMAND_COUNT;
use crate::counter::Counter;
use crate::delays::DelayCounts;
use crate::durability::{Log, Snapshots};
use crate::function_loader::FunctionUsage;
use crate::limits::{FUNCTION_REVISIONS_MAX, FUNCTION_SOURCES_MAX, FUNCTIONS_MAX, INFO_WORK, LOOK_WORK, TICK};
use crate::metrics::CacheMetrics;
use crate::shared::Shared;
use crate::vocabulary::{Durability, Space};

/// A section: its name, true if it is in the reply to `INFO` without arguments, and its text.
type Section = (&'static str, bool, fn(&mut String, &Shared));

const SECTIONS: [Section; 17] = [
    ("Server", true, server),
    ("Clients", true, clients),
    ("Memory", true, memory),
    ("Ordered", true, ordered),
    ("Cache", true, cache),
    ("Functions", true, functions),
    ("Persistence", true, persistence),
    ("Stats", true, stats),
    ("Congestion", true, congestion),
    ("Replication", true, replication),
    ("CPU", true, cpu),
    ("Modules", true, |_, _| {}),
    ("Commandstats", false, command_stats),
    ("Errorstats", true, error_stats),
    ("Latencystats", false, latency_stats),
    ("Cluster", true, cluster),
    ("Keyspace", true, keyspace),
];

/// Returns the sections that were asked for. Without arguments, as in Redis, those of commands are left out.
/// Spends the work from the account, except that of the text.
pub(super) fn text(arguments: Arguments<'_>, shared: &Shared, account: &mut Account) -> String {
    let names = |names: &[&str]| (1..arguments.count()).any(|index| names.iter().any(|name| arguments.is(index, name)));
    let wants_default = arguments.count() == 1 || names(&["default"]);
    let wants_all = names(&["all", "everything"]);
    let mut text = String::new();
    account.spend(INFO_WORK + LOOK_WORK * SECTIONS.len() * arguments.count());
    for (name, is_default, write) in SECTIONS {
        if wants_all || is_default && wants_default || names(&[name]) {
            if !text.is_empty() {
                text += "\r\n";
            }
            text += &format!("# {name}\r\n");
            write(&mut text, shared);
            if !is_default {
                // It is about all commands.
                account.spend(COMMAND_COUNT * shared.command_totals_work());
            }
        }
    }
    text
}

fn server(text: &mut String, shared: &Shared) {
    let uptime = shared.run.started.elapsed().as_secs();
    let (seconds, microseconds) = shared.clock.time_now().seconds_and_microseconds();
    fields! { text
        "redis_version" REDIS_VERSION
        "redis_git_sha1" "00000000"
        "redis_git_dirty" 0
        "redis_mode" "standalone"
        "skep_version" env!("CARGO_PKG_VERSION")
        "os" operating_system()
        "arch_bits" usize::BITS
        "multiplexing_api" "epoll"
        "process_id" std::process::id()
        "run_id" format_args!("{:040x}", shared.run.id)
        "tcp_port" shared.settings.resp.map_or(0, |address| address.port())
        "skep_native_port" shared.settings.native.port()
        "skep_shards" shared.settings.shards
        "uptime_in_seconds" uptime
        "server_time_usec" seconds * 1_000_000 + u64::from(microseconds)
        "skep_clock_offset_ms" shared.clock.ahead()
        "skep_clock_jumps" shared.clock.jumps()
        "uptime_in_days" uptime / 86_400
        "hz" 1000 / TICK.as_millis()
        "configured_hz" 1000 / TICK.as_millis()
        "executable" std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default()
        "config_file" ""
        "io_threads_active" u8::from(shared.settings.shards > 1)
    }
}

fn clients(text: &mut String, shared: &Shared) {
    let connection_memory = shared.sum(|metrics| &metrics.connections.memory) + shared.memory_budget.batches();
    fields! { text
        "connected_clients" shared.clients().len()
        "cluster_connections" 0
        "maxclients" shared.settings.connections_max
        "blocked_clients" 0
        "tracking_clients" 0
        "clients_in_timeout_table" 0
        "skep_connection_memory_limit" shared.settings.connection_memory
        "skep_connection_memory_used" connection_memory
        "skep_connection_memory_used_max" shared.memory_budget.used_max().max(connection_memory)
        "skep_connections_waiting_for_memory" shared.memory_budget.starved()
        "skep_connections_closed_for_memory" shared.sum(|metrics| &metrics.connections.closed_for_memory)
        "skep_connections_closed_idle" shared.sum(|metrics| &metrics.connections.closed_idle)
        "skep_connections_closed_without_login" shared.sum(|metrics| &metrics.connections.closed_without_login)
        "skep_shared_memory_connections" shared.shared_memory_connections()
        "skep_connections_closed_for_invalid_words" shared.sum(|metrics| &metrics.shared_memory_invalid)
        "skep_monitors_closed" shared.sum(|metrics| &metrics.monitors_closed)
        "skep_connections_denied" shared.sum(|metrics| &metrics.connections.denied)
        "skep_passwords_refused" shared.sum(|metrics| &metrics.passwords_refused)
    }
}

fn memory(text: &mut String, shared: &Shared) {
    // Of the hash space: the memory that the index and the slabs have taken. At the total, its writers are told that
    // it is full.
    let used = shared.sum(|metrics| &metrics.store.taken_bytes);
    let total = shared.settings.memory;
    fields! { text
        "used_memory" used
        "used_memory_human" human(used)
        "used_memory_dataset" shared.sum(|metrics| &metrics.store.pair_bytes)
        "maxmemory" total
        "maxmemory_human" human(total)
        "maxmemory_policy" "noeviction"
        "mem_clients_normal" shared.sum(|metrics| &metrics.connections.memory)
        "mem_clients_slaves" 0
        "mem_replication_backlog" 0
        "mem_aof_buffer" 0
        "used_memory_lua" 0
        "used_memory_scripts" 0
        "number_of_cached_scripts" 0
        "active_defrag_running" 0
        "lazyfree_pending_objects" 0
        "lazyfreed_objects" 0
    }
    if let Some(resident) = resident_bytes() {
        fields! { text
            "used_memory_rss" resident
            "used_memory_rss_human" human(resident)
        }
    }
    if let Some(total) = system_memory() {
        fields! { text
            "total_system_memory" total
            "total_system_memory_human" human(total)
        }
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

/// Writes the state of the cache, apart from the memory above.
fn cache(text: &mut String, shared: &Shared) {
    fields! { text "skep_cache_maxmemory" shared.settings.cache_memory }
    if shared.settings.cache_memory == 0 {
        return;
    }
    let sum = |counter: fn(&CacheMetrics) -> &Counter| {
        shared.all_metrics().map(|metrics| counter(&metrics.cache).get()).sum::<u64>()
    };
    fields! { text
        "skep_cache_items" sum(|cache| &cache.items)
        "skep_cache_log_bytes" sum(|cache| &cache.log_bytes)
        "skep_cache_log_used_bytes" sum(|cache| &cache.log_used_bytes)
        "skep_cache_hits" sum(|cache| &cache.hits)
        "skep_cache_misses" sum(|cache| &cache.misses)
        "skep_cache_index_evictions" sum(|cache| &cache.index_evictions)
        "skep_cache_log_evictions" sum(|cache| &cache.log_evictions)
        "skep_cache_expired" sum(|cache| &cache.expired)
    }
}

/// Writes the part of the bounds of user functions that is used. Deleting modules frees functions only.
fn functions(text: &mut String, shared: &Shared) {
    let FunctionUsage { functions, sources, source_bytes, names } = shared.loader.usage();
    fields! { text
        "skep_functions" functions
        "skep_functions_limit" FUNCTIONS_MAX
        "skep_function_sources" sources
        "skep_function_sources_limit" FUNCTION_REVISIONS_MAX
        "skep_function_source_bytes" source_bytes
        "skep_function_source_bytes_limit" FUNCTION_SOURCES_MAX
        "skep_function_names" names
        "skep_function_names_limit" FUNCTION_NAMES_MAX
    }
}

/// Returns bytes as Redis shows them to people.
fn human(bytes: u64) -> String {
    let (unit, size) = match bytes {
        0..1024 => return format!("{bytes}B"),
        1024..1_048_576 => ("K", 1 << 10),
        1_048_576..1_073_741_824 => ("M", 1 << 20),
        _ => ("G", 1_u64 << 30),
    };
    format!("{:.2}{unit}", bytes as f64 / size as f64)
}

/// Returns the name and the version of the system, and the kind of the machine.
fn operating_system() -> String {
    let system = rustix::system::uname();
    let parts = [system.sysname(), system.release(), system.machine()];
    parts.map(|part| part.to_string_lossy().into_owned()).join(" ")
}

/// Returns the bytes of memory of the machine.
fn system_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes: u64 = text.lines().next()?.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes << 10)
}

/// Returns the bytes of the process that are in memory.
fn resident_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The log and its snapshots, which are what Redis calls RDB files and rewritten AOFs.
fn persistence(text: &mut String, shared: &Shared) {
    let log = shared.log.as_deref();
    let snapshots = log.map(|log| &log.snapshots);
    let status = |is_ok| if is_ok { "ok" } else { "err" };
    let is_taken = u8::from(log.is_some_and(Log::is_saving));
    let snapshot_status = status(!snapshots.is_some_and(Snapshots::has_failed));
    let last_time = snapshots.map_or(-1, Snapshots::last_time);
    let present_time = snapshots.and_then(Snapshots::seconds).unwrap_or(-1);
    let level = log.map_or(Durability::Memory, Log::level);
    fields! { text
        "loading" 0
        "async_loading" 0
        "rdb_bgsave_in_progress" is_taken
        "rdb_last_save_time" snapshots.map_or(0, Snapshots::last_at)
        "rdb_last_bgsave_status" snapshot_status
        "rdb_last_bgsave_time_sec" last_time
        "rdb_current_bgsave_time_sec" present_time
        "rdb_saves" snapshots.map_or(0, Snapshots::completed)
        "rdb_last_cow_size" 0
        "aof_enabled" u8::from(level != Durability::Memory)
        "aof_rewrite_in_progress" is_taken
        "aof_rewrite_scheduled" 0
        "aof_last_rewrite_time_sec" last_time
        "aof_current_rewrite_time_sec" present_time
        "aof_last_bgrewrite_status" snapshot_status
        "aof_last_write_status" status(log.is_none_or(|log| log.trouble().is_none()))
        "aof_last_cow_size" 0
        "skep_durability" level
    }
    let Some(log) = log else { return };
    fields! { text
        "skep_log_unflushed_bytes" log.unflushed_bytes()
        "skep_log_written_bytes" log.durable_bytes()
        "skep_load_milliseconds" log.load_time().as_millis()
        "skep_data_bytes" log.disk_space.used()
        "skep_data_free_bytes" log.disk_space.free()
    }
    if let Some(reason) = log.trouble() {
        fields! { text "skep_log_trouble" reason }
    }
}

/// Delays of operations from the read of their socket to their reply, and the reaction of the window. The buckets count
/// delays up to a number of microseconds, since the start, so that a client that asks twice knows the difference. A
/// bound of 0 says that there is none.
fn congestion(text: &mut String, shared: &Shared) {
    let microseconds = |delay: Duration| format!("{:.3}", delay.as_nanos() as f64 / 1000.0);
    let of_counter = |nanoseconds: u64| microseconds(Duration::from_nanos(nanoseconds));
    let mut delays = DelayCounts::default();
    shared.all_metrics().for_each(|metrics| metrics.add_delays_to(&mut delays));
    let delay_max = shared.all_metrics().map(|metrics| metrics.window.delay_max.get()).max().unwrap_or(0);
    let buckets: Vec<String> =
        delays.buckets().map(|(delay, count)| format!("{}={count}", microseconds(delay))).collect();
    fields! { text
        "skep_delay_bound_usec" microseconds(shared.settings.delay_max.unwrap_or_default())
        "skep_delay_p50_usec" microseconds(delays.quantile(0.5))
        "skep_delay_p99_usec" microseconds(delays.quantile(0.99))
        "skep_delay_p999_usec" microseconds(delays.quantile(0.999))
        "skep_delay_max_usec" of_counter(delay_max)
        "skep_delay_buckets_usec" buckets.join(",")
        "skep_turns_waited_max" shared.all_metrics().map(|metrics| metrics.turns.waited_max.get()).max().unwrap_or(0)
        "skep_reads_held_back" shared.sum(|metrics| &metrics.turns.held_back)
        "skep_operations_refused" shared.sum(|metrics| &metrics.operations.refused)
    }
    for (index, metrics) in shared.all_metrics().enumerate() {
        write!(
            text,
            "skep_shard{index}:window={},in_flight={},delay_usec={},delay_min_usec={},delay_max_usec={},\
             turns={},turns_waited_max={},reads_held_back={},operations_refused={}\r\n",
            metrics.window.limit.get(),
            metrics.window.in_flight.get(),
            of_counter(metrics.window.delay.get()),
            of_counter(metrics.window.delay_min.get()),
            of_counter(metrics.window.delay_max.get()),
            metrics.turns.count.get(),
            metrics.turns.waited_max.get(),
            metrics.turns.held_back.get(),
            metrics.operations.refused.get(),
        )
        .expect("a String takes every text");
    }
}

fn replication(text: &mut String, shared: &Shared) {
    fields! { text
        "role" "master"
        "connected_slaves" 0
        "master_failover_state" "no-failover"
        "master_replid" format_args!("{:040x}", shared.run.id)
        "master_replid2" format_args!("{:040x}", 0)
        "master_repl_offset" 0
        "second_repl_offset" -1
        "repl_backlog_active" 0
        "repl_backlog_size" 0
        "repl_backlog_first_byte_offset" 0
        "repl_backlog_histlen" 0
    }
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
            "used_cpu_sys_children" "0.000000"
            "used_cpu_user_children" "0.000000"
        }
    }
}

fn cluster(text: &mut String, _: &Shared) {
    fields! { text "cluster_enabled" 0 }
}

fn keyspace(text: &mut String, shared: &Shared) {
    for space in [Space::Hash, Space::Ordered, Space::Cache] {
        let pairs = shared.pair_count(space);
        if pairs > 0 {
            let expiring = shared.expiring_count(space).min(pairs);
            write!(text, "db{}:keys={pairs},expires={expiring},avg_ttl=0\r\n", space.number())
                .expect("a String takes every text");
        }
    }
}
