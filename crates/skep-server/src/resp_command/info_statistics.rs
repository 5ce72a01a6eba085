//! The statistics of `INFO`: since the start, or since `CONFIG RESETSTAT`.

use std::fmt::Write;
use std::time::Duration;

use skep_transport::datagram::Dropped;

use super::info_fields::fields;
use super::table::COMMANDS;
use crate::command_metrics::ERROR_PREFIXES;
use crate::counter::Counter;
use crate::limits::RATE_TIME_MIN;
use crate::metrics::{Metrics, PacketMetrics};
use crate::shared::Shared;

pub(super) fn stats(text: &mut String, shared: &Shared) {
    let totals = shared.totals();
    let commands = shared.call_total();
    let denied = shared.access.denials.counts();
    let rates =
        shared.rates([commands + totals.operations_native, totals.input_bytes, totals.output_bytes], RATE_TIME_MIN);
    fields! { text
        "total_connections_received" totals.connections_accepted
        "total_commands_processed" commands + totals.operations_native
        "instantaneous_ops_per_sec" format_args!("{:.0}", rates[0])
        "total_net_input_bytes" totals.input_bytes
        "total_net_output_bytes" totals.output_bytes
        "instantaneous_input_kbps" format_args!("{:.2}", rates[1] / 1024.0)
        "instantaneous_output_kbps" format_args!("{:.2}", rates[2] / 1024.0)
        "rejected_connections" totals.connections_refused
        "sync_full" 0
        "sync_partial_ok" 0
        "sync_partial_err" 0
        "expired_keys" totals.expired
        "evicted_keys" 0
        "evicted_clients" 0
        "keyspace_hits" totals.hits
        "keyspace_misses" totals.misses
        "pubsub_channels" 0
        "pubsub_patterns" 0
        "latest_fork_usec" 0
        "total_forks" 0
        "tracking_total_keys" 0
        "unexpected_error_replies" 0
        "total_error_replies" totals.error_replies
        "acl_access_denied_auth" totals.passwords_refused
        "acl_access_denied_cmd" denied[0]
        "acl_access_denied_key" denied[1]
        "skep_operations" totals.operations
        "skep_operations_forwarded" totals.operations_forwarded
        "skep_protocol_errors" totals.protocol_errors
    }
    if shared.settings.udp.is_some() {
        packets(text, shared, "udp", |metrics| &metrics.datagrams);
    }
    if shared.settings.rdma.is_some() {
        packets(text, shared, "rdma", |metrics| &metrics.rdma);
    }
}

/// Appends the counters of the packets of a transport.
fn packets(text: &mut String, shared: &Shared, transport: &str, of: impl Fn(&Metrics) -> &PacketMetrics) {
    let mut append = |name: &str, counter: &dyn Fn(&PacketMetrics) -> &Counter| {
        let count: u64 = shared.all_metrics().map(|metrics| counter(of(metrics)).get()).sum();
        write!(text, "skep_{transport}_{name}:{count}\r\n").expect("a String takes every text");
    };
    append("packets_received", &|packets| &packets.received);
    append("packets_sent", &|packets| &packets.sent);
    append("packets_repeated", &|packets| &packets.repeated);
    for (reason, name) in Dropped::ALL {
        append(&format!("dropped_{name}"), &|packets| &packets.dropped[reason as usize]);
    }
}

fn microseconds(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1000.0
}

pub(super) fn command_stats(text: &mut String, shared: &Shared) {
    for (index, info) in COMMANDS.iter().enumerate() {
        let totals = shared.command_totals(index);
        if totals.calls + totals.rejected > 0 {
            let usec = microseconds(Duration::from_nanos(totals.nanoseconds));
            write!(
                text,
                "cmdstat_{}:calls={},usec={usec:.0},usec_per_call={:.2},rejected_calls={},failed_calls={}\r\n",
                info.name,
                totals.calls,
                usec / totals.calls.max(1) as f64,
                totals.rejected,
                totals.failed,
            )
            .expect("a String takes every text");
        }
    }
}

pub(super) fn error_stats(text: &mut String, shared: &Shared) {
    for (prefix, count) in ERROR_PREFIXES.iter().zip(shared.error_totals()).filter(|(_, count)| *count > 0) {
        write!(text, "errorstat_{prefix}:count={count}\r\n").expect("a String takes every text");
    }
}

pub(super) fn latency_stats(text: &mut String, shared: &Shared) {
    for (index, info) in COMMANDS.iter().enumerate() {
        let delays = shared.command_totals(index).delays;
        if delays.total() > 0 {
            let quantile = |quantile: f64| microseconds(delays.quantile(quantile));
            write!(
                text,
                "latency_percentiles_usec_{}:p50={:.3},p99={:.3},p99.9={:.3}\r\n",
                info.name,
                quantile(0.5),
                quantile(0.99),
                quantile(0.999)
            )
            .expect("a String takes every text");
        }
    }
}
