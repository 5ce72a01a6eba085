//! The statistics of memcached's protocol: the counts of its commands, and the reply to `stats`.
//!
//! The names are those of memcached, as far as a number of the server has their meaning. A cache has no slab classes: the
//! statistics of items and slabs show one class, whose chunks are the units of the log.

use skep_wire::memcached::{ReplyWriter, Statistics};

use crate::memcached_counts::NAMES;
use crate::metrics::CacheMetrics;
use crate::shared::Shared;

/// The version of memcached whose behaviour clients may expect.
pub(crate) const MEMCACHED_VERSION: &str = "1.6.18";

/// Bytes of a unit of the log.
const UNIT_SIZE: u64 = 32;

/// Writes the statistics that a client wants, except the line after them.
pub(crate) fn write(statistics: Statistics, shared: &Shared, writer: &mut ReplyWriter<'_>) {
    match statistics {
        Statistics::General => write_general(shared, writer),
        Statistics::Settings => write_settings(shared, writer),
        Statistics::Items => write_items(shared, writer),
        Statistics::Slabs => write_slabs(shared, writer),
        Statistics::Sizes => writer.statistic("sizes_status", "disabled"),
        Statistics::Connections | Statistics::Reset => {}
    }
}

/// Writes lines of a name and a number or text each.
macro_rules! lines {
    ($writer:ident $($name:literal $value:expr)*) => {
        $($writer.statistic($name, &$value.to_string());)*
    };
}

fn write_general(shared: &Shared, writer: &mut ReplyWriter<'_>) {
    let totals = shared.totals();
    lines! { writer
        "pid" std::process::id()
        "uptime" shared.run.started.elapsed().as_secs()
        "time" shared.clock.time_now().seconds_and_microseconds().0
        "version" MEMCACHED_VERSION
        "skep_version" env!("CARGO_PKG_VERSION")
        "pointer_size" usize::BITS
        "max_connections" shared.settings.connections_max
        "curr_connections" shared.clients().len()
        "total_connections" totals.connections_accepted
        "rejected_connections" totals.connections_refused
    }
    for (name, count) in NAMES.iter().zip(shared.memcached_counts()) {
        writer.statistic(name, &count.to_string());
    }
    let evictions = |metrics: &CacheMetrics| metrics.index_evictions.get() + metrics.log_evictions.get();
    lines! { writer
        "bytes_read" totals.input_bytes
        "bytes_written" totals.output_bytes
        "limit_maxbytes" shared.settings.cache_memory
        "accepting_conns" 1
        "threads" shared.settings.shards
        "bytes" sum(shared, |cache| cache.log_used_bytes.get())
        "curr_items" sum(shared, |cache| cache.items.get())
        "evictions" sum(shared, evictions)
        "index_evictions" sum(shared, |cache| cache.index_evictions.get())
        "log_evictions" sum(shared, |cache| cache.log_evictions.get())
        "reclaimed" sum(shared, |cache| cache.expired.get())
    }
}

fn write_settings(shared: &Shared, writer: &mut ReplyWriter<'_>) {
    let address = shared.settings.memcached;
    lines! { writer
        "maxbytes" shared.settings.cache_memory
        "maxconns" shared.settings.connections_max
        "tcpport" address.map_or(0, |address| address.port())
        "udpport" shared.settings.memcached_udp.map_or(0, |address| address.port())
        "inter" address.map_or_else(String::new, |address| address.ip().to_string())
        "verbosity" 0
        "evictions" "on"
        "num_threads" shared.settings.shards
        "cas_enabled" "yes"
        "auth_enabled_ascii" if shared.access.needs_password() { "yes" } else { "no" }
        "item_size_max" shared.settings.memcached_value_max
        "flush_enabled" "yes"
        "dump_enabled" "no"
        "idle_timeout" shared.adjustable.timeout.get()
    }
}

fn write_items(shared: &Shared, writer: &mut ReplyWriter<'_>) {
    let items = sum(shared, |cache| cache.items.get());
    if items == 0 {
        return;
    }
    lines! { writer
        "items:1:number" items
        "items:1:evicted" sum(shared, |cache| cache.index_evictions.get() + cache.log_evictions.get())
        "items:1:outofmemory" 0
        "items:1:reclaimed" sum(shared, |cache| cache.expired.get())
    }
}

fn write_slabs(shared: &Shared, writer: &mut ReplyWriter<'_>) {
    let (all, used) = (sum(shared, |cache| cache.log_bytes.get()), sum(shared, |cache| cache.log_used_bytes.get()));
    lines! { writer
        "1:chunk_size" UNIT_SIZE
        "1:total_chunks" all / UNIT_SIZE
        "1:used_chunks" used / UNIT_SIZE
        "1:free_chunks" (all - used.min(all)) / UNIT_SIZE
        "active_slabs" 1
        "total_malloced" shared.settings.cache_memory
    }
}

/// Returns the sum of a number over the caches of all shards.
fn sum(shared: &Shared, number: impl Fn(&CacheMetrics) -> u64) -> u64 {
    shared.all_metrics().map(|metrics| number(&metrics.cache)).sum()
}
