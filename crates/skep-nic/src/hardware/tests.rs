//! Tests of the boards: what is refused, with which reason, and that what is not refused runs.

use std::rc::Rc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Hardware, HardwareError, KV_DIRECT, Server};
use crate::clock::{Clock, run};
use crate::dispatcher::{Dispatcher, Extent, Policy};
use crate::time::Time;

fn refusal(from: &str, to: &str) -> String {
    assert!(KV_DIRECT.contains(from), "{from}");
    Hardware::from_toml(&KV_DIRECT.replacen(from, to, 1)).expect_err(to).to_string()
}

#[test]
fn the_board_is_valid_and_read_back() {
    let board = Hardware::kv_direct();
    assert_eq!(Hardware::from_toml(&board.to_toml()), Ok(board.clone()));
    assert_eq!(board.memory_ratio(), 1.0 / 16.0);
    for preset in Hardware::PRESETS {
        let board = Hardware::from_toml(preset.text).expect(preset.name);
        assert_eq!((board.name.as_str(), board.warnings()), (preset.name, Vec::new()));
        assert_eq!(Hardware::preset(preset.name), Some(*preset));
    }
    assert_eq!(Hardware::preset("kv-indirect"), None);
}

#[test]
fn a_missing_unknown_or_mistyped_field_is_named_with_its_table() {
    for (from, to, parts) in [
        ("read_tags = 64", "", ["read_tags", "missing", "pcie"]),
        ("word_bytes = 32", "", ["word_bytes", "missing", "pcie.dma_engine"]),
        ("read_tags = 64", "read_tags = 64\nread_tag = 64", ["read_tag", "unknown", "pcie"]),
        ("posted_credits = 88", "posted_credits = -88", ["posted_credits", "-88", "pcie"]),
        ("[network]", "[netwerk]", ["netwerk", "unknown", "network"]),
        ("links = 2", "links = \"two\"", ["links", "two", "pcie"]),
        ("delay_us = 1.0", "delay_us = ", ["delay_us", "", ""]),
    ] {
        let refusal = refusal(from, to);
        assert!(parts.iter().all(|part| refusal.contains(part)), "{to}: {refusal}");
    }
}

#[test]
fn an_impossible_value_is_refused_with_its_field_and_the_reason() {
    for (from, to, field, reason) in [
        ("clock_mhz = 180.0", "clock_mhz = -180.0", "card.clock_mhz", "-180"),
        ("clock_mhz = 180.0", "clock_mhz = nan", "card.clock_mhz", "NaN"),
        ("delay_us = 1.0", "delay_us = inf", "network.delay_us", "inf"),
        ("clock_mhz = 180.0", "clock_mhz = 1e-300", "card.clock_mhz", "a millionth"),
        ("bandwidth_gb_per_s = 5.0", "bandwidth_gb_per_s = 0.0", "network.bandwidth_gb_per_s", "0 is not"),
        ("links = 2", "links = 0", "pcie.links", "between 1"),
        ("nics = 1", "nics = 0", "server.nics", "between 1"),
        ("memory_nodes = 1", "memory_nodes = 2", "server.memory_nodes", "no NIC"),
        ("links = 2", "links = 65", "pcie.links", "and 64"),
        ("read_tags = 64", "read_tags = 70000", "pcie.read_tags", "70000"),
        ("[100, 1368]", "[100, nan]", "pcie.read_uncached_ns", "is not below"),
        ("header_bytes = 88", "header_bytes = 4294967295", "network.header_bytes", "65536"),
        ("operation_header_bytes = 3", "operation_header_bytes = 1500", "network.packet_max_bytes", "no room"),
        ("read_request_cycles = 4", "read_request_cycles = 70000", "pcie.dma_engine.read_request_cycles", "65536"),
        ("payload_max_bytes = 256", "payload_max_bytes = 100", "pcie.payload_max_bytes", "100"),
        ("read_completion_bytes = 256", "read_completion_bytes = 512", "pcie.read_completion_bytes", "the 256 of"),
        ("read_completion_bytes = 256", "read_completion_bytes = 96", "pcie.read_completion_bytes", "power of two"),
        ("word_bytes = 32", "word_bytes = 0", "pcie.dma_engine.word_bytes", "power of two"),
        ("word_bytes = 32", "word_bytes = 512", "pcie.dma_engine.word_bytes", "up to 256"),
        ("[0, 748]", "[1, 748]", "pcie.read_uncached_ns", "from 0 to 100"),
        ("[10, 836]", "[10, 700]", "pcie.read_uncached_ns", "is not below"),
        ("[0, 748], [5, 780]", "[0, 20], [5, 780]", "pcie.read_uncached_ns", "link and its engine"),
        ("round_trip_ns = 500.0", "round_trip_ns = 900.0", "pcie.round_trip_ns", "whole read"),
        ("size_gib = 4.0", "size_gib = 65.0", "nic_dram.size_gib", "host_dram.size_gib"),
        ("size_gib = 64.0", "size_gib = 256.0", "host_dram.size_gib", "256 GiB in all need 4 NICs"),
        ("watts = 121.4", "watts = -1.0", "card.watts", "-1"),
        ("# price = 0.0", "price = 0.0", "card.price", "0 is not"),
        ("spare_bits = 6", "spare_bits = 4", "nic_dram.spare_bits", "4 bits of tag"),
        ("packet_max_bytes = 1500", "packet_max_bytes = 91", "network.packet_max_bytes", "no room"),
        ("repeated_header_bytes = 1", "repeated_header_bytes = 9", "network.repeated_header_bytes", "9 is more"),
    ] {
        let refusal = refusal(from, to);
        assert!(refusal.starts_with(field) && refusal.contains(reason), "{to}: {refusal}");
    }
}

/// The boards of the paper differ in what their names say, and each value of every board has its source.
#[test]
fn boards_differ_in_what_their_names_say_and_every_value_has_a_source() {
    let mut one_link = Hardware { name: "kv-direct-one-link".to_owned(), ..Hardware::kv_direct() };
    one_link.pcie.links = 1;
    assert_eq!(Hardware::kv_direct_one_link(), one_link);
    let mut ten = Hardware { name: "kv-direct-ten-nics".to_owned(), ..one_link };
    ten.server = Server { nics: 10, memory_nodes: 2 };
    ten.card.watts = Some(357.0);
    ten.host_dram.size_gib = 12.0;
    assert_eq!(Hardware::kv_direct_ten_nics(), ten);
    for preset in Hardware::PRESETS {
        let mut before = "";
        for line in preset.text.lines() {
            if line.contains(" = ") && !line.starts_with(['#', '[']) && !line.starts_with("name") {
                let has_source = line.contains(" # ") || before.starts_with('#');
                assert!(has_source, "{}: {line}", preset.name);
            }
            before = line;
        }
    }
}

#[test]
fn a_link_that_is_faster_than_its_engine_is_named_with_it() {
    let mut board = Hardware::kv_direct();
    board.pcie.bandwidth_gb_per_s = 15.75;
    let [warning] = &board.warnings()[..] else { panic!("{:?}", board.warnings()) };
    for part in ["pcie.bandwidth_gb_per_s: 15.75", "8 GB/s", "pcie.dma_engine", "250 MHz times 32 B"] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    board.pcie.dma_engine.word_bytes = 64;
    assert_eq!(board.warnings(), Vec::<String>::new());
}

/// Collects all values with the tables and keys that contain them.
fn leaves(table: &toml::Table, path: &mut Vec<String>, found: &mut Vec<(Vec<String>, toml::Value)>) {
    for (key, value) in table {
        path.push(key.clone());
        match value {
            toml::Value::Table(inner) => leaves(inner, path, found),
            value => found.push((path.clone(), value.clone())),
        }
        path.pop();
    }
}

fn set(table: &mut toml::Table, path: &[String], value: Option<toml::Value>) {
    match (path, value) {
        ([key], Some(value)) => _ = table.insert(key.clone(), value),
        ([key], None) => _ = table.remove(key),
        ([outer, inner @ ..], value) => {
            set(table[outer].as_table_mut().expect("it is a table"), inner, value);
        }
        ([], _) => unreachable!("every value has a key"),
    }
}

/// Omits each value, gives it another type and moves it out of bounds. The error names it, with the reason.
#[test]
fn every_field_is_checked() {
    use toml::Value::{Boolean, Float, Integer, String};
    let board: toml::Table = KV_DIRECT.parse().unwrap();
    let mut all = Vec::new();
    leaves(&board, &mut Vec::new(), &mut all);
    assert_eq!(all.len(), 51, "the test checks new values too");
    for (path, value) in all {
        let (field, last) = (path.join("."), path.last().unwrap());
        let with = |value: Option<toml::Value>| {
            let mut changed = board.clone();
            set(&mut changed, &path, value);
            Hardware::from_toml(&changed.to_string())
        };
        let refused = |value: Option<toml::Value>| {
            let refusal = with(value.clone()).expect_err(&format!("{field} = {value:?}")).to_string();
            assert!(refusal.contains(last.as_str()) && refusal.len() > last.len() + 8, "{field}: {refusal}");
        };
        // Rates per watt and price are calculated if they are known.
        if last == "watts" {
            assert!(with(None).is_ok());
        } else {
            refused(None);
        }
        if let Boolean(value) = value {
            assert!(with(Some(Boolean(!value))).is_ok(), "{field}");
            refused(Some(Integer(1)));
            continue;
        }
        refused(Some(Boolean(true)));
        match value {
            String(_) => continue,
            toml::Value::Array(_) => {
                let point = |percent: f64, ns: f64| toml::Value::Array(vec![Float(percent), Float(ns)]);
                let ends = |from: f64, to: f64| Some(toml::Value::Array(vec![point(0.0, from), point(100.0, to)]));
                refused(Some(toml::Value::Array(Vec::new())));
                for (from, to) in [(-1.0, 900.0), (900.0, 800.0), (f64::NAN, 900.0), (900.0, f64::INFINITY)] {
                    refused(ends(from, to));
                }
                assert!(with(ends(900.0, 900.0)).is_ok());
                continue;
            }
            Integer(_) => {
                // A larger number would need more memory or time than a run can have.
                for value in [-1, i64::MIN, 1 << 31, i64::MAX] {
                    refused(Some(Integer(value)));
                }
                refused(Some(Float(1.5)));
            }
            _ => {
                // Only the times between two accesses may be 0.
                let may_be_zero = last == "access_ns" || last == "next_read_ns";
                for value in [-1.0, -0.0, 0.0, 1e-300, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                    if may_be_zero && (0.0..1e-200).contains(&value) {
                        assert!(with(Some(Float(value))).is_ok(), "{field} = {value}");
                        continue;
                    }
                    refused(Some(Float(value)));
                }
            }
        }
        refused(Some(String("64".to_owned())));
    }
}

/// Changes several values at random. A description that is not refused can be run, and a refusal names one of the
/// fields.
#[test]
fn a_description_that_is_not_refused_runs() {
    let board: toml::Table = KV_DIRECT.parse().unwrap();
    let mut all = Vec::new();
    leaves(&board, &mut Vec::new(), &mut all);
    let fields: Vec<String> = all.iter().map(|(path, _)| path.join(".")).collect();
    let (mut refused, mut ran) = (0, 0);
    for seed in 0..400 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut changed = board.clone();
        for _ in 0..random.random_range(1..=4) {
            let (path, value) = &all[random.random_range(0..all.len())];
            let factor = [0.0, 0.1, 0.5, 0.9, 1.1, 2.0, 10.0, 1e4][random.random_range(0..8)];
            let other = match value {
                toml::Value::Float(value) => toml::Value::Float(value * factor),
                toml::Value::Integer(value) => toml::Value::Integer((*value as f64 * factor) as i64),
                value => value.clone(),
            };
            set(&mut changed, path, Some(other));
        }
        match Hardware::from_toml(&changed.to_string()) {
            Err(HardwareError::Form(reason)) => panic!("seed {seed}: {reason}"),
            Err(HardwareError::Value { field, reason }) => {
                assert!(fields.iter().any(|known| known == field) && !reason.is_empty(), "seed {seed}: {field}");
                refused += 1;
            }
            Ok(hardware) => {
                let clock = Rc::new(Clock::default());
                let extent = Extent::scaled(&hardware, 1 << 10);
                let memory = Dispatcher::new(&clock, &hardware, extent, Policy::Dispatch(0.5), seed);
                let access = async |number: u64| {
                    let (line, bytes) = (number * 37 % 1000, (number % 5 * 100 + 1) as u32);
                    if number.is_multiple_of(2) {
                        memory.read(line * 64, bytes).await;
                    } else {
                        memory.write(line * 64, bytes).await;
                    }
                };
                run(&clock, 64, (0..200).map(access));
                assert!(clock.now() > Time::ZERO, "seed {seed}");
                ran += 1;
            }
        }
    }
    assert!(refused > 50 && ran > 50, "{refused} refused, {ran} ran");
}
