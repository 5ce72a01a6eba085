//! The figures in OpenMetrics's text format, as Prometheus reads it.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use skep_server::{CommandFigures, DelayFigures, HashFigures, LogFigures, Observation, Observer, SpaceFigures};

/// Returns all figures of this moment.
pub(super) fn encode(observer: &Observer) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Figures(observer.clone())));
    let mut text = String::new();
    // Writing to a string cannot fail.
    _ = encode_registry(&mut text, &registry);
    text + "# EOF\n"
}

#[derive(Debug)]
struct Figures(Observer);

/// One value of a metric, and its label if there is one: a name and a value.
type Sample<'a, T> = (Option<Label<'a>>, T);

#[derive(Clone, Copy)]
struct Label<'a> {
    name: &'static str,
    value: &'a str,
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let observation = self.0.observe();
        let mut metrics = Metrics { encoder: &mut encoder };
        metrics.server(&observation)?;
        metrics.connections(&observation)?;
        metrics.spaces(&observation.spaces)?;
        metrics.hash(&observation.hash)?;
        if let Some(evictions) = observation.evictions {
            let of = |value, count| (Some(Label { name: "cause", value }), count);
            metrics.counters(
                "skep_cache_evictions",
                "Pairs that the cache has forgotten to make room",
                [of("index", evictions.index), of("log", evictions.log)],
            )?;
        }
        if let Some(log) = &observation.log {
            metrics.log(log)?;
        }
        metrics.commands(&observation.commands)?;
        let [commands, keys] = observation.denied;
        let of = |value, count| (Some(Label { name: "reason", value }), count);
        metrics.counters(
            "skep_commands_denied",
            "Commands of RESP and memcached that their user may not do",
            [of("command", commands), of("key", keys)],
        )?;
        metrics.counters(
            "skep_error_replies",
            "Error replies over RESP, by their first word",
            observation.errors.iter().map(|(value, count)| (Some(Label { name: "error", value }), *count)),
        )?;
        metrics.functions(&observation)
    }
}

/// A metric of each part of the server, such as a space: its name, its help, and the value of a part.
struct Each<T>(&'static str, &'static str, fn(&T) -> u64);

/// Returns the buckets of a histogram, whose ends are the same at each time, as Prometheus needs it: they double from about
/// 1 µs to about a minute.
fn buckets(delays: &DelayFigures) -> Vec<(f64, u64)> {
    let mut buckets = Vec::new();
    let mut counted = delays.buckets.iter().peekable();
    for bound in (10..=36).map(|octave| Duration::from_nanos(1 << octave)) {
        let mut count = 0;
        while let Some((_, own)) = counted.next_if(|(delay, _)| *delay <= bound) {
            count += own;
        }
        buckets.push((bound.as_secs_f64(), count));
    }
    buckets.push((f64::INFINITY, counted.map(|(_, count)| count).sum()));
    buckets
}

/// Encodes metrics, one after another.
struct Metrics<'a, 'b> {
    encoder: &'a mut DescriptorEncoder<'b>,
}

impl Metrics<'_, '_> {
    fn server(&mut self, observation: &Observation) -> fmt::Result {
        let operations = &observation.operations;
        self.gauge("skep_uptime_seconds", "Seconds since the start", observation.uptime.as_secs_f64())?;
        self.counter("skep_operations", "Operations that the stores have executed", operations.executed)?;
        self.counter(
            "skep_operations_forwarded",
            "Operations executed by another shard than that of the connection",
            operations.forwarded,
        )?;
        self.counter("skep_operations_native", "Operations over the native protocol", operations.native)?;
        self.counter("skep_operations_refused", "Operations refused as BUSY", operations.refused)?;
        let help = "Operations over the native protocol beyond the limits of their user";
        self.counter("skep_operations_over_limit", help, operations.too_fast)?;
        let help = "Operations over the native protocol that their user may not do";
        self.counter("skep_operations_denied", help, operations.denied)?;
        self.delays(&observation.front_end_delays)?;
        let numbers: Vec<String> = (0..observation.shards.len()).map(|shard| shard.to_string()).collect();
        let shards = || numbers.iter().map(|value| Label { name: "shard", value }).zip(&observation.shards);
        self.counters(
            "skep_shard_operations",
            "Operations that the store of a shard has executed",
            shards().map(|(label, shard)| (Some(label), shard.executed)),
        )?;
        self.gauges(
            "skep_shard_in_flight",
            "Operations in flight in a shard",
            shards().map(|(label, shard)| (Some(label), shard.in_flight as f64)),
        )
    }

    fn delays(&mut self, front_ends: &[(&'static str, DelayFigures)]) -> fmt::Result {
        let help = "Time from the read of an operation to its reply; the sum may be a quarter too large";
        let name = "skep_operation_delay_seconds";
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (front_end, delays) in front_ends {
            let (sum, buckets) = (delays.sum.as_secs_f64(), buckets(delays));
            metric.encode_family(&[("front_end", *front_end)])?.encode_histogram::<NoLabelSet>(
                sum,
                delays.count,
                &buckets,
                None,
            )?;
        }
        Ok(())
    }

    fn connections(&mut self, observation: &Observation) -> fmt::Result {
        let figures = &observation.connections;
        self.gauge("skep_connections", "Open connections", figures.open as f64)?;
        self.gauge("skep_connections_limit", "Most connections that may be open", figures.limit as f64)?;
        self.counter("skep_connections_accepted", "Connections that were accepted", figures.accepted)?;
        self.counter("skep_connections_refused", "Connections that were refused", figures.refused)?;
        let help =
            "Connections closed because they held memory without progress, were idle, or did not log in, in time";
        self.counter("skep_connections_closed", help, figures.closed)?;
        self.counter("skep_passwords_refused", "Wrong passwords", figures.passwords_refused)?;
        let help = "Connections that ended before their handshake of TLS was over";
        self.counter("skep_tls_handshakes_failed", help, figures.handshakes_failed)?;
        if let Some(expiry) = figures.certificate_expiry {
            let help = "When the certificate of the server expires, in seconds since 1970";
            self.gauge("skep_certificate_expiry_timestamp_seconds", help, expiry as f64)?;
        }
        self.counter("skep_protocol_errors", "Connections closed for bytes without meaning", figures.protocol_errors)?;
        self.gauge("skep_connection_memory_bytes", "Memory that connections take", figures.memory as f64)?;
        let help = "Memory that connections may take";
        self.gauge("skep_connection_memory_limit_bytes", help, figures.memory_limit as f64)?;
        self.counter("skep_input_bytes", "Bytes that arrived", figures.input_bytes)?;
        self.counter("skep_output_bytes", "Bytes that left", figures.output_bytes)
    }

    fn spaces(&mut self, spaces: &[SpaceFigures]) -> fmt::Result {
        let gauges: [Each<SpaceFigures>; 3] = [
            Each("skep_keys", "Keys in a space", |space| space.keys),
            Each("skep_memory_used_bytes", "Memory of a space that is in use", |space| space.used),
            Each("skep_memory_limit_bytes", "Memory of a space", |space| space.memory),
        ];
        let label = |space: &SpaceFigures| Some(Label { name: "space", value: space.name });
        for Each(name, help, of) in gauges {
            self.gauges(name, help, spaces.iter().map(|space| (label(space), of(space) as f64)))?;
        }
        let counters: [Each<SpaceFigures>; 3] = [
            Each("skep_hits", "Gets that found their key", |space| space.hits),
            Each("skep_misses", "Gets that did not find their key", |space| space.misses),
            Each("skep_expired_keys", "Keys removed because they had expired", |space| space.expired),
        ];
        for Each(name, help, of) in counters {
            // The ordered space does not count them.
            let counted = spaces.iter().filter(|space| space.name != "ordered");
            self.counters(name, help, counted.map(|space| (label(space), of(space))))?;
        }
        Ok(())
    }

    fn hash(&mut self, hash: &HashFigures) -> fmt::Result {
        let help = "Buckets of the index of the hash space, each the first of a chain";
        self.gauge("skep_hash_index_buckets", help, hash.index_buckets as f64)?;
        let help = "Buckets of the hash space's chains, besides those of the index";
        self.gauge("skep_hash_overflow_buckets", help, hash.overflow_buckets as f64)?;
        let sizes: Vec<_> = hash.slabs.iter().map(|(size, count)| (size.to_string(), *count as f64)).collect();
        let samples = sizes.iter().map(|(value, count)| (Some(Label { name: "size", value }), *count));
        self.gauges("skep_hash_slabs", "Slabs in use in the hash space, by their size in bytes", samples)
    }

    fn log(&mut self, log: &LogFigures) -> fmt::Result {
        let help = "Bytes of operations that are not yet on the disk";
        self.gauge("skep_log_unflushed_bytes", help, log.unflushed_bytes as f64)?;
        self.counter("skep_log_durable_bytes", "Bytes of operations that are on the disk", log.durable_bytes)?;
        let help = "Time of a write of the log until it is on the disk; the sum may be a quarter too large";
        let mut metric = self.encoder.encode_descriptor("skep_log_write_seconds", help, None, MetricType::Histogram)?;
        let times = &log.write_times;
        metric.encode_histogram::<NoLabelSet>(times.sum.as_secs_f64(), times.count, &buckets(times), None)?;
        let has_trouble = f64::from(u8::from(log.trouble.is_some()));
        self.gauge("skep_log_trouble", "1 if the log refuses writes, else 0", has_trouble)?;
        self.counter("skep_snapshots", "Snapshots that were completed", log.snapshots)?;
        let has_failed = f64::from(u8::from(log.has_snapshot_failed));
        self.gauge("skep_snapshot_failed", "1 if the last snapshot failed, else 0", has_failed)?;
        let help = "When the last snapshot was completed, in seconds since 1970";
        self.gauge("skep_snapshot_timestamp_seconds", help, log.snapshot_at as f64)?;
        self.gauge("skep_data_bytes", "Bytes that the data directory takes", log.disk_used as f64)?;
        self.gauge("skep_data_free_bytes", "Bytes that the disk of the data has free", log.disk_free as f64)
    }

    fn commands(&mut self, commands: &[CommandFigures]) -> fmt::Result {
        let counters: [Each<CommandFigures>; 3] = [
            Each("skep_commands", "Commands of RESP that were executed, also those that failed", |command| {
                command.calls
            }),
            Each("skep_commands_failed", "Commands of RESP whose reply was an error", |command| command.failed),
            Each("skep_commands_rejected", "Commands of RESP refused before they were executed", |command| {
                command.rejected
            }),
        ];
        for Each(name, help, of) in counters {
            let label = |command: &CommandFigures| Some(Label { name: "command", value: command.name });
            self.counters(name, help, commands.iter().map(|command| (label(command), of(command))))?;
        }
        let name = "skep_command_time_seconds";
        let help = "The shards' time that a command of RESP took";
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for command in commands {
            let label = [("command", command.name)];
            metric.encode_family(&label)?.encode_counter::<NoLabelSet, _, u64>(&command.time.as_secs_f64(), None)?;
        }
        Ok(())
    }

    fn functions(&mut self, observation: &Observation) -> fmt::Result {
        let functions = || observation.functions.iter();
        let label = |name| Some(Label { name: "function", value: name });
        self.counters(
            "skep_function_calls",
            "Calls of a user function, also those that failed",
            functions().map(|(name, totals)| (label(name.as_str()), totals.calls)),
        )?;
        self.counters(
            "skep_function_failures",
            "Calls of a user function that failed",
            functions().map(|(name, totals)| (label(name.as_str()), totals.failed)),
        )
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.gauges(name, help, [(None, value)])
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.counters(name, help, [(None, value)])
    }

    fn gauges<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample<'a, f64>>,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (label, value) in samples {
            match label {
                Some(Label { name, value: label }) => metric.encode_family(&[(name, label)])?.encode_gauge(&value)?,
                None => metric.encode_gauge(&value)?,
            }
        }
        Ok(())
    }

    fn counters<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample<'a, u64>>,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (label, value) in samples {
            match label {
                Some(Label { name, value: label }) => {
                    metric.encode_family(&[(name, label)])?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
                }
                None => metric.encode_counter::<NoLabelSet, _, u64>(&value, None)?,
            }
        }
        Ok(())
    }
}
