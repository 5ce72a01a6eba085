//! Counters of packets and bytes for each flow of a capture: vectors of two counters (KV-Direct, section 3.2).
//!
//! ```text
//! tcpdump -i lo -w capture.pcap                                    # or: ... --example flows -- --generate capture.pcap
//! cargo run --release --example flows -- capture.pcap
//! ```
//!
//! A flow is protocol, addresses and ports. Its value is a vector of two numbers, packets and bytes. A packet is one
//! update: it adds the vector [1, bytes], and a flow that is new begins with zeros. Without functions, a client gets the
//! counters of a batch, adds up, and sets each one if it has not changed. The clients take the packets in turn, so that
//! all of them have packets of one flow. The counters must be those of a count in this process.

mod application;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use application::{CountingClient, Options, Target, WAYS, bytes_of, measure, numbers_of, on_threads, print_costs};
use clap::Parser;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep::{Element, HASH_SPACE, Operation, Request, Shape, Update, UpdateFunction};

/// Counts the packets and bytes of each flow of a capture in a Skep server.
#[derive(Parser)]
struct Arguments {
    /// A capture of Ethernet packets in the pcap format, not pcapng.
    capture: PathBuf,
    /// Write a capture of 200,000 random packets there, and end.
    #[arg(long)]
    generate: bool,
    /// Packets that a client counts with one batch.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    batch: u32,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    application::exit("flows", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), String> {
    if arguments.generate {
        let capture = generate(200_000, 5_000);
        return std::fs::write(&arguments.capture, capture).map_err(|error| fault(&arguments.capture, error));
    }
    let capture = std::fs::read(&arguments.capture).map_err(|error| fault(&arguments.capture, error))?;
    let packets: Vec<Packet> = packets(&capture)?.collect();
    let mut expected: HashMap<&[u8], [u64; 2]> = HashMap::new();
    for packet in &packets {
        let counters = expected.entry(&packet.flow).or_default();
        *counters = [counters[0] + 1, counters[1] + packet.bytes];
    }
    println!("{} packets of TCP and UDP, {} flows", packets.len(), expected.len());
    let target = Target::open(&arguments.options)?;
    let mut clients = target.clients(&arguments.options, HASH_SPACE)?;
    let count = clients.len();
    let mut costs = Vec::new();
    for way in [Way::Functions, Way::Clients] {
        let key = |flow: &[u8]| [&target.key(format!("{way:?}:"))[..], flow].concat();
        let (_, cost) = measure(&mut clients, |clients| {
            on_threads(clients, |number, client| {
                let own: Vec<_> = packets.iter().skip(number).step_by(count).collect();
                own.chunks(arguments.batch as usize).try_for_each(|packets| {
                    let keys: Vec<_> = packets.iter().map(|packet| key(&packet.flow)).collect();
                    match way {
                        Way::Functions => count_by_functions(client, &keys, packets),
                        Way::Clients => count_by_client(client, &keys, packets),
                    }
                })
            })
        })?;
        for (flow, counters) in &expected {
            let found = clients[0].value(&key(flow), Operation::Get)?;
            if numbers_of(&found) != counters {
                return Err(format!("{way:?}: the counters of {} are wrong", name(flow)));
            }
        }
        let keys: Vec<_> = expected.keys().map(|flow| key(flow)).collect();
        application::delete(&mut clients[0], keys.iter())?;
        println!("{way:?}: {:.3} million packets a second", packets.len() as f64 / cost.seconds / 1e6);
        costs.push(cost);
    }
    let mut largest: Vec<_> = expected.iter().map(|(flow, [packets, bytes])| (bytes, packets, flow)).collect();
    largest.sort_unstable_by(|one, other| other.cmp(one));
    for (bytes, packets, flow) in largest.iter().take(5) {
        println!("{bytes:>12} bytes {packets:>9} packets  {}", name(flow));
    }
    println!("exact: all counters are those of a count in this process");
    print_costs(WAYS, [costs[0], costs[1]]);
    Ok(())
}

fn fault(path: &Path, error: impl std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

/// The way in which packets are counted.
#[derive(Clone, Copy, Debug)]
enum Way {
    Functions,
    Clients,
}

fn count_by_functions(client: &mut CountingClient, keys: &[Vec<u8>], packets: &[&Packet]) -> Result<(), String> {
    let operands: Vec<_> = packets.iter().map(|packet| bytes_of(&[1, packet.bytes])).collect();
    let requests = keys.iter().zip(&operands).map(|(key, operand)| {
        let (function, element, shape) = (UpdateFunction::Add, Element::U64, Shape::VectorToVector);
        let initial = Some(&[0; 16][..]);
        let update = Update { function, element, shape, operand, initial, return_old: false };
        Request { key, operation: Operation::Update(update) }
    });
    client.done(&requests.collect::<Vec<_>>())
}

fn count_by_client(client: &mut CountingClient, keys: &[Vec<u8>], packets: &[&Packet]) -> Result<(), String> {
    // The client adds up the packets of a flow in its batch.
    let mut sums: HashMap<&[u8], [u64; 2]> = HashMap::new();
    for (key, packet) in keys.iter().zip(packets) {
        let counters = sums.entry(key).or_default();
        *counters = [counters[0] + 1, counters[1] + packet.bytes];
    }
    let keys: Vec<&[u8]> = sums.keys().copied().collect();
    client.get_compute_set(&keys, |index, old| {
        let old = old.map_or(vec![0, 0], numbers_of);
        let more = sums[keys[index]];
        Ok(bytes_of(&[old[0] + more[0], old[1] + more[1]]))
    })
}

/// A packet of TCP or UDP.
#[derive(Debug, PartialEq)]
struct Packet {
    /// Protocol, addresses of 4 or 16 bytes, ports.
    flow: Vec<u8>,
    /// Bytes on the wire.
    bytes: u64,
}

/// Returns the packets of a capture; those that are neither TCP nor UDP are left out, and so are fragments without ports.
fn packets(capture: &[u8]) -> Result<impl Iterator<Item = Packet>, String> {
    let is_big = match capture.first_chunk() {
        Some([0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1]) => false,
        Some([0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d]) => true,
        _ => return Err("the file is no capture in the pcap format: write one with `tcpdump -w`".to_owned()),
    };
    let word = move |bytes: &[u8], at: usize| {
        let word: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(if is_big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) })
    };
    if word(capture, 20) != Some(1) {
        return Err("the packets of the capture are not those of Ethernet: choose another interface".to_owned());
    }
    let mut rest = capture.get(24..).unwrap_or_default();
    let next = move || {
        // The end of a capture may be cut.
        let (captured, bytes) = (word(rest, 8)? as usize, u64::from(word(rest, 12)?));
        let packet = rest.get(16..16 + captured)?;
        rest = &rest[16 + captured..];
        Some(flow_of(packet).map(|flow| Packet { flow, bytes }))
    };
    Ok(std::iter::from_fn(next).flatten())
}

/// Returns the flow of an Ethernet packet.
fn flow_of(packet: &[u8]) -> Option<Vec<u8>> {
    // A tag of a virtual LAN may come before the type.
    let tag = if packet.get(12..14)? == [0x81, 0] { 4 } else { 0 };
    let (kind, ip) = (packet.get(12 + tag..14 + tag)?, packet.get(14 + tag..)?);
    let (protocol, addresses, ports) = match kind {
        [8, 0] if u16::from_be_bytes([*ip.get(6)? & 0x1f, *ip.get(7)?]) == 0 => {
            let header = usize::from(ip[0] & 15) * 4;
            (*ip.get(9)?, ip.get(12..20)?, ip.get(header..header + 4)?)
        }
        [0x86, 0xdd] => (*ip.get(6)?, ip.get(8..40)?, ip.get(40..44)?),
        _ => return None,
    };
    matches!(protocol, 6 | 17).then(|| [&[protocol], addresses, ports].concat())
}

/// Returns the name of a flow.
fn name(flow: &[u8]) -> String {
    let (addresses, ports) = flow[1..].split_at(flow.len() - 5);
    let (from, to) = addresses.split_at(addresses.len() / 2);
    let address = |bytes: &[u8]| match <[u8; 4]>::try_from(bytes) {
        Ok(bytes) => IpAddr::from(Ipv4Addr::from(bytes)),
        Err(_) => IpAddr::from(bytes.try_into().map_or(Ipv6Addr::UNSPECIFIED, |bytes: [u8; 16]| Ipv6Addr::from(bytes))),
    };
    let port = |bytes: &[u8]| u16::from_be_bytes([bytes[0], bytes[1]]);
    let protocol = if flow[0] == 6 { "TCP" } else { "UDP" };
    format!("{protocol} {} {} to {} {}", address(from), port(ports), address(to), port(&ports[2..]))
}

/// Returns a capture of random packets. Low flows are more frequent.
fn generate(packets: usize, flows: u32) -> Vec<u8> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1];
    let mut capture: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    for number in 0..packets {
        let most = random.random_range(1..=flows);
        let flow = random.random_range(0..most);
        let (size, is_ipv6) = (random.random_range(64..1500_u32), flow % 4 == 3);
        let mut ip = match is_ipv6 {
            true => [&[0x60, 0, 0, 0, 0, 0, 17, 64][..], &[0xfd; 12], &flow.to_be_bytes(), &[0xfe; 16]].concat(),
            false => [&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0][..], &flow.to_be_bytes(), &[10, 0, 0, 1]].concat(),
        };
        ip.extend([flow.to_be_bytes()[2], flow.to_be_bytes()[3], 0, 80]);
        let kind = if is_ipv6 { [0x86, 0xdd] } else { [8, 0] };
        let packet = [&[2; 12][..], &kind, &ip].concat();
        let head = [number as u32 / 1000, number as u32 % 1000, packet.len() as u32, size];
        capture.extend(head.iter().flat_map(|word| word.to_le_bytes()));
        capture.extend(packet);
    }
    capture
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Arguments, Packet, generate, name, packets, run};

    #[test]
    fn the_counters_of_all_flows_are_exact() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), generate(3_000, 100)).unwrap();
        for (clients, batch) in [("1", "1000"), ("4", "16")] {
            let settings = ["flows", file.path().to_str().unwrap(), "--clients", clients, "--batch", batch];
            assert_eq!(run(&Arguments::parse_from(settings)), Ok(()), "{clients} clients");
        }
    }

    #[test]
    fn a_capture_is_read_in_both_orders_of_bytes_and_up_to_its_end() {
        let little = generate(4, 5);
        let all: Vec<Packet> = packets(&little).unwrap().collect();
        assert_eq!(all.len(), 4);
        for size in 24..little.len() {
            let some: Vec<Packet> = packets(&little[..size]).unwrap().collect();
            assert_eq!(some, all[..some.len()], "{size} bytes");
        }
        let mut big = little.clone();
        let mut at = 24;
        big[..24].as_chunks_mut::<4>().0.iter_mut().for_each(|word| word.reverse());
        while at < big.len() {
            let size = u32::from_le_bytes(*little[at + 8..].first_chunk().unwrap()) as usize;
            big[at..at + 16].as_chunks_mut::<4>().0.iter_mut().for_each(|word| word.reverse());
            at += 16 + size;
        }
        assert!(packets(&big).unwrap().eq(all));
        assert!(packets(b"not a capture").is_err());
    }

    #[test]
    fn flows_have_names() {
        let ipv4 = [&[6][..], &[10, 0, 0, 1, 10, 0, 0, 2], &[0, 80, 1, 0]].concat();
        assert_eq!(name(&ipv4), "TCP 10.0.0.1 80 to 10.0.0.2 256");
        let ipv6 = [&[17][..], &[0; 15], &[1], &[0; 15], &[2], &[0, 53, 0, 54]].concat();
        assert_eq!(name(&ipv6), "UDP ::1 53 to ::2 54");
    }
}
