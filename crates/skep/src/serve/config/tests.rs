//! Settings from flags, from files, and from both.

use std::time::Duration;

use skep::Password;
use skep_server::ServerSettings;

use super::{
    Configuration, DelayMax, LeaseTime, ListenAddress, MemoryOrOff, PortAddress, RequiredPassword, ShardCount,
};
use crate::size::MemorySize;

#[test]
fn the_embedded_configuration_is_complete() {
    let settings = Configuration::default().into_settings(4);
    assert_eq!(settings.native, "127.0.0.1:7379".parse().unwrap());
    assert_eq!(settings.resp, Some("127.0.0.1:6379".parse().unwrap()));
    assert_eq!(settings.udp, None);
    assert_eq!(settings.rdma, None);
    assert_eq!(settings.memory, 1 << 30);
    assert_eq!(settings.ordered_memory, ServerSettings::default().ordered_memory);
    assert_eq!(settings.lease_time, ServerSettings::default().lease_time);
    assert_eq!(settings.shards, 3);
    assert_eq!(settings.kv_size, None);
    assert_eq!(settings.delay_max, ServerSettings::default().delay_max);
    assert_eq!(settings.connection_memory, ServerSettings::default().connection_memory);
    assert_eq!(settings.connections_max, ServerSettings::default().connections_max);
    assert!(settings.protected_mode && settings.password.is_none());
    assert_eq!((settings.timeout, settings.tcp_keepalive), (0, 300));
    assert!(!settings.prefault);
    assert!(!settings.pin_threads);
}

#[test]
fn shards_leave_a_quarter_of_the_cores() {
    let shards = [1, 2, 3, 4, 8, 16, 64, 1000].map(super::default_shards);
    assert_eq!(shards, [1, 1, 2, 3, 6, 12, 48, 256]);
}

#[test]
fn default_sizes_fit_the_memory_and_given_ones_stay() {
    let default = ServerSettings { shards: 2, ..ServerSettings::default() };
    let fitted = |configuration: &Configuration, mebibytes: u64| {
        let mut settings = default.clone();
        let has_changed = configuration.fit_defaults(&mut settings, mebibytes << 20);
        assert_eq!(has_changed, settings.memory_needed() < default.memory_needed());
        let [memory, ordered, connections] =
            [settings.memory, settings.ordered_memory, settings.connection_memory].map(|size| size >> 20);
        assert!(settings.connection_memory >= ServerSettings::connection_memory_min(settings.connections_max));
        [memory, ordered, connections]
    };
    let none = Configuration::default();
    for (mebibytes, expected) in
        [(9000, [1024, 256, 256]), (2048, [1024, 256, 256]), (1024, [512, 128, 128]), (512, [128, 32, 32])]
    {
        assert_eq!(fitted(&none, mebibytes), expected, "{mebibytes} MiB");
    }
    let given = Configuration { memory: Some(MemorySize(1 << 30)), ..Configuration::default() };
    assert_eq!(fitted(&given, 1400), [1024, 32, 32]);
    // The server refuses what cannot fit.
    assert_eq!(fitted(&none, 10), [1024, 256, 256]);
    assert_eq!(fitted(&given, 1024), [1024, 256, 256]);
}

#[test]
fn the_configuration_of_a_service_sets_the_data_directory_only() {
    let text = super::service_configuration("/var/lib/skep".as_ref());
    let expected = Configuration { data_dir: Some("/var/lib/skep".into()), ..Configuration::default() };
    assert_eq!(Configuration::parse(&text).unwrap(), expected);
    // All settings are there, and each comment with a setting is valid.
    let uncommented = text.replace("\n# data-dir = ", "\n");
    let names = |text: &str| {
        let fields =
            text.lines().filter_map(|line| line.trim_start_matches("# ").split_once(" = ").map(|(name, _)| name));
        fields.filter(|name| !name.contains(' ')).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(&uncommented), names(super::DEFAULT_CONFIGURATION));
}

/// Checks that the settings which are commented out in the embedded file are valid too.
#[test]
fn the_examples_in_the_embedded_configuration_are_valid() {
    let uncommented: String = super::DEFAULT_CONFIGURATION
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.split_once(" = ").is_some_and(|(field, _)| !field.contains(' ')) => rest,
            _ => line,
        })
        .map(|line| format!("{line}\n"))
        .collect();
    let configuration = Configuration::parse(&uncommented).unwrap();
    assert!(configuration.shards.is_some());
    assert!(configuration.hash_index_ratio.is_some());
    assert!(configuration.inline_threshold.is_some());
}

#[test]
fn flags_override_the_file() {
    let flags = Configuration { memory: Some(MemorySize(5)), ..Configuration::default() };
    let file = Configuration::parse("memory = \"7B\"\nshards = 2\nresp = \"off\"").unwrap();
    let both = flags.or(file);
    assert_eq!(both.memory, Some(MemorySize(5)));
    assert_eq!(both.shards, Some(ShardCount(2)));
    assert_eq!(both.resp, Some(PortAddress::Off));
    assert_eq!(both.into_settings(1).resp, None);
}

#[test]
fn errors_name_the_line_and_the_field() {
    for (text, parts) in [
        ("# a comment\nmemory = \"4G\"", ["line 2", "`memory`", "4GiB"]),
        ("\n\nmemory = 5.5", ["line 3", "`memory`", "MiB"]),
        ("memroy = \"4GiB\"", ["line 1", "`memroy`", "unknown field"]),
        ("shards = 0", ["line 1", "`shards`", "1 to 256"]),
        ("shards = -1", ["line 1", "`shards`", "-1"]),
        ("shards = \"2\"", ["line 1", "`shards`", "whole number without quotes"]),
        ("shards = 2.5", ["line 1", "`2.5`", "a whole number, 1 to 256"]),
        ("memory = -1", ["line 1", "`memory`", "\"4GiB\""]),
        ("memory = 67108864", ["line 1", "`67108864`", "a number and a unit"]),
        ("cache-memory = 5", ["line 1", "`5` is not a size", "or \"off\""]),
        ("ordered-memory = \"4G\"", ["line 1", "`ordered-memory`", "or off"]),
        ("ordered-memory = false", ["line 1", "`ordered-memory`", "\"4GiB\""]),
        ("resp = false", ["line 1", "`resp`", "\"off\""]),
        ("connection-memory = \"4G\"", ["line 1", "`connection-memory`", "4GiB"]),
        ("max-clients = 0", ["line 1", "`max-clients`", "at least 1"]),
        ("max-clients = \"100\"", ["line 1", "`max-clients`", "whole number without quotes"]),
        ("kv-size = 1", ["line 1", "`kv-size`", "bytes"]),
        ("cache-kv-size = 1", ["line 1", "`cache-kv-size`", "bytes"]),
        ("prefault = false\nlisten = \"7379\"", ["line 2", "`listen`", "127.0.0.1:7379"]),
        ("protected-mode = \"on\"", ["line 1", "`protected-mode`", "yes or no"]),
        ("port = 70000", ["line 1", "`port`", "a number from 1 to 65535"]),
        ("port = \"x\"", ["`port`", "`\"x\"` is not a port", "a number from 1 to 65535, or 0 for none"]),
        ("timeout = \"x\"", ["line 1", "`timeout`", "`\"x\"` is not a number of seconds"]),
        ("tcp-keepalive = -1", ["line 1", "`tcp-keepalive`", "`-1` is not a number of seconds"]),
        ("resp = \"on\"", ["line 1", "`resp`", "or off"]),
        ("hash-index-ratio = 1.0", ["line 1", "`hash-index-ratio`", "below 1"]),
        ("hash-index-ratio = nan", ["line 1", "`hash-index-ratio`", "below 1"]),
        ("inline-threshold = 51", ["line 1", "`inline-threshold`", "50"]),
        ("delay-max = 100", ["line 1", "`delay-max`", "\"100ms\""]),
        ("delay-max = \"100\"", ["line 1", "a unit", "1ms to 60s"]),
        ("delay-max = \"999us\"", ["line 1", "`999us`", "1ms to 60s"]),
        ("delay-max = \"infs\"", ["line 1", "`infs`", "1ms to 60s"]),
        ("log-format = \"xml\"", ["line 1", "`xml`", "text or json"]),
        ("lease-time = 5", ["line 1", "`lease-time`", "\"5s\""]),
        ("lease-time = \"2h\"", ["line 1", "a unit", "1ms to 3600s"]),
        ("lease-time = \"3601s\"", ["line 1", "`3601s`", "1ms to 3600s"]),
        ("prefault = \"yes\"", ["line 1", "`prefault`", "true or false"]),
        ("pin-threads = 1", ["line 1", "`pin-threads`", "true or false"]),
        ("shards = 1\nshards = 2", ["line 2", "`shards`", "duplicate"]),
        ("listen = ", ["line 1", "`listen`", "value"]),
        ("[store]\nmemory = \"1GiB\"", ["line 1", "unknown field", "store"]),
        ("é = \"\u{1}\"", ["line 1", "", ""]),
    ] {
        let problem = Configuration::parse(text).unwrap_err();
        for part in parts {
            assert!(problem.contains(part), "{text:?}: {problem:?} lacks {part:?}");
        }
        assert!(!problem.contains('\n'), "{problem:?}");
    }
}

#[test]
fn errors_quote_long_values_in_part() {
    let long = "x".repeat(5000);
    for text in [format!("memory = \"{long}\""), format!("port = \"{long}\""), format!("{long} = 1")] {
        let problem = Configuration::parse(&text).unwrap_err();
        let (quoted, cut) = ("x".repeat(100) + "…", "x".repeat(101));
        assert!(problem.contains(&quoted) && !problem.contains(&cut), "{problem}");
    }
}

#[test]
fn the_ordered_space_has_a_size_or_is_off() {
    for (text, size) in [("off", 0), ("0", 0), ("0B", 0), ("1GiB", 1 << 30)] {
        assert_eq!(text.parse(), Ok(MemoryOrOff(size)), "{text}");
    }
    for (text, size) in [("\"off\"", 0), ("0", 0), ("\"64MiB\"", 64 << 20)] {
        let configuration = Configuration::parse(&format!("ordered-memory = {text}")).unwrap();
        assert_eq!(configuration.into_settings(1).ordered_memory, size, "{text}");
    }
}

#[test]
fn a_password_is_set_once_and_not_repeated() {
    let password = |flags: Configuration, file: &str| flags.or(Configuration::parse(file).unwrap()).password();
    let flags = Configuration { requirepass: Some("ham".parse().unwrap()), ..Configuration::default() };
    assert_eq!(password(flags.clone(), "requirepass-file = \"/nowhere\"").unwrap(), Password::new(b"ham"));
    assert_eq!(password(Configuration::default(), "requirepass = \"egg\"").unwrap(), Password::new(b"egg"));
    assert_eq!(password(Configuration::default(), "").unwrap(), None);
    let both = "requirepass = \"egg\"\nrequirepass-file = \"/nowhere\"";
    assert!(password(Configuration::default(), both).is_err());
    assert!(password(Configuration::default(), "requirepass-file = \"/nowhere\"").is_err());
    // An empty one is no password: a variable may not have been set.
    assert_eq!("".parse::<RequiredPassword>(), Err("a password has 1 to 512 bytes".to_owned()));
    assert!(Configuration::parse("requirepass = \"\"").unwrap_err().contains("1 to 512 bytes"));
    assert!(!format!("{flags:?}").contains("ham"));
    assert!(!Configuration::parse("requirepass = 4711").unwrap_err().contains("4711"));
    assert!(!Configuration::parse(&format!("requirepass = \"{}\"", "x".repeat(513))).unwrap_err().contains("xx"));
}

#[test]
fn a_port_is_that_of_the_resp_address() {
    for (text, expected) in [
        ("port = 7", Some("127.0.0.1:7")),
        ("port = 0", None),
        ("port = 0\nresp = \"off\"", None),
        ("port = 7\nresp = \"192.0.2.1:6379\"", Some("192.0.2.1:7")),
    ] {
        let settings = Configuration::parse(text).unwrap().into_settings(1);
        assert_eq!(settings.resp, expected.map(|address| address.parse().unwrap()), "{text}");
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let check = |text: &str| {
        let configuration = Configuration::parse(text).unwrap();
        configuration.check(&configuration.clone().into_settings(1)).map_err(|failure| format!("{failure:?}"))
    };
    for (text, expected) in [
        ("port = 7\nresp = \"off\"", "--port 7 and --resp off contradict each other"),
        ("listen = \"127.0.0.1:7\"\nport = 7", "--listen 127.0.0.1:7 and --port 127.0.0.1:7 have the same port"),
        ("metrics = \"127.0.0.1:6379\"", "--resp 127.0.0.1:6379 and --metrics 127.0.0.1:6379 have"),
        ("resp = \"0.0.0.0:7379\"", "--listen 127.0.0.1:7379 and --resp 0.0.0.0:7379 have"),
        ("memcached = \"[::1]:7\"\nmetrics = \"[::]:7\"", "--memcached [::1]:7 and --metrics [::]:7 have"),
        (
            "shards = 3\nudp = \"127.0.0.1:7\"\nmemcached-udp = \"127.0.0.1:9\"",
            "--udp 127.0.0.1:7 (a port for each of 3 shards) and --memcached-udp 127.0.0.1:9 have",
        ),
    ] {
        let refusal = check(text).unwrap_err();
        assert!(refusal.contains(expected), "{text}: {refusal}");
    }
    for text in [
        "",
        "port = 0\nresp = \"off\"",
        "listen = \"127.0.0.1:0\"\nresp = \"127.0.0.1:0\"",
        "listen = \"127.0.0.1:7\"\nresp = \"127.0.0.2:7\"",
        "listen = \"127.0.0.1:7\"\nresp = \"[::1]:7\"",
        "shards = 2\nudp = \"127.0.0.1:7\"\nmemcached-udp = \"127.0.0.1:9\"\nmemcached = \"127.0.0.1:9\"",
    ] {
        assert_eq!(check(text), Ok(()), "{text}");
    }
}

#[test]
fn times_are_read() {
    for (text, delay) in [("100ms", 100_000), ("1500us", 1500), ("0.002 s", 2000), ("60s", 60_000_000)] {
        assert_eq!(text.parse(), Ok(DelayMax(Some(Duration::from_micros(delay)))), "{text}");
        assert_eq!(text.parse(), Ok(LeaseTime(Duration::from_micros(delay))), "{text}");
    }
}

#[test]
fn there_is_no_bound_for_delays_by_default() {
    assert_eq!(Configuration::default().into_settings(1).delay_max, None);
    for (text, bound) in [("off", None), ("100ms", Some(Duration::from_millis(100)))] {
        let configuration = Configuration::parse(&format!("delay-max = \"{text}\"")).unwrap();
        assert_eq!(configuration.into_settings(1).delay_max, bound);
        assert_eq!(text.parse(), Ok(DelayMax(bound)));
    }
}

#[test]
fn addresses_are_read() {
    assert!("[::1]:7379".parse::<ListenAddress>().is_ok());
    assert!("7379".parse::<ListenAddress>().is_err());
    assert_eq!("off".parse(), Ok(PortAddress::Off));
    assert_eq!("localhost:7400".parse(), Ok(ListenAddress("127.0.0.1:7400".parse().unwrap())));
    assert!("no\0name:1".parse::<ListenAddress>().unwrap_err().contains("127.0.0.1:7379"));
}
