//! Commands on vectors of a mebibyte, for each type of elements: their text is paid for, and takes several turns.

use skep_core::function::Element;

use super::{Bench, Client, command};
use crate::limits::{NUMBER_WORK, TEXT_WORK, TURN_WORK};
use crate::settings::ServerSettings;

const SIZE: usize = 1 << 20;

/// Sends a command. Returns the work of all turns until the reply has this size, and that of the longest turn.
fn ask(bench: &mut Bench, client: &mut Client, request: &[u8], size: usize) -> (usize, usize) {
    let (mut sum, mut most, mut sent, mut turns) = (0, 0, 0, 0);
    while client.receive() < size {
        sent += std::io::Write::write(&mut client.stream, &request[sent..]).unwrap_or(0);
        bench.turn(0);
        let spent = bench.shards[0].shard.turn.account.spent();
        (sum, most, turns) = (sum + spent, most.max(spent), turns + 1);
        assert!(turns < 100_000, "no reply");
    }
    (sum, most)
}

/// Returns the texts of the elements of a value.
fn texts(element: Element, value: &[u8]) -> Vec<String> {
    value.chunks_exact(element.width()).map(|bytes| element.format(bytes)).collect()
}

/// Returns the reply with these numbers.
fn array(element: Element, texts: &[String]) -> Vec<u8> {
    let mut reply = format!("*{}\r\n", texts.len());
    for text in texts {
        match element.is_float() {
            true => reply += &format!("${}\r\n{text}\r\n", text.len()),
            false => reply += &format!(":{text}\r\n"),
        }
    }
    reply.into_bytes()
}

#[test]
fn the_text_of_a_long_vector_is_paid_for_in_several_turns() {
    let settings = ServerSettings { connection_memory: 256 << 20, connections_max: 300, ..ServerSettings::default() };
    let mut bench = Bench::new(1, &settings);
    let mut client = bench.resp(0);
    // The highest bytes are small, so that integers are positive.
    let value: Vec<u8> = (0..SIZE).map(|index| (1 + index * 7 % 100) as u8).collect();
    for element in Element::ALL {
        let name = element.name().as_bytes();
        let texts = texts(element, &value);
        bench.ask(&mut client, &command(&[b"SET", b"k", &value]), 5);
        let expected = array(element, &texts);
        for arguments in [
            &[b"SKEP.GETV", &b"k"[..], name][..],
            &[b"SKEP.FILTER", b"k", b"nonzero", name],
            &[b"SKEP.UPDATE", b"k", b"max", name, b"0"],
        ] {
            let (sum, most) = ask(&mut bench, &mut client, &command(arguments), expected.len());
            let what = format!("{} of {}", arguments[0].escape_ascii(), element.name());
            assert!(client.received == expected, "{what}: {:?}", &client.received[..50].escape_ascii().to_string());
            assert!(sum >= SIZE + TEXT_WORK * expected.len(), "{what}: {sum} bytes of work");
            assert!(most <= TURN_WORK + TURN_WORK / 4, "{what}: {most} bytes of work in a turn");
            client.received.clear();
        }
        let mut arguments: Vec<&[u8]> = vec![b"SKEP.SET", b"k", name];
        // A request has a mebi of arguments.
        let texts = &texts[..texts.len().min((1 << 20) - arguments.len())];
        arguments.extend(texts.iter().map(String::as_bytes));
        let (sum, most) = ask(&mut bench, &mut client, &command(&arguments), 5);
        assert_eq!(std::mem::take(&mut client.received), b"+OK\r\n");
        let what = format!("SKEP.SET of {}", element.name());
        assert!(sum >= SIZE / 2 + NUMBER_WORK * texts.len(), "{what}: {sum} bytes of work");
        assert!(most <= TURN_WORK + TURN_WORK / 4, "{what}: {most} bytes of work in a turn");
    }
}

/// Each connection holds the value of the vector that it is being sent, and no more.
#[test]
fn a_pipeline_of_long_vectors_waits_for_the_first_one() {
    for (clients, count) in [(2, 30), (24, 2)] {
        let settings =
            ServerSettings { connection_memory: 24 << 20, connections_max: 300, ..ServerSettings::default() };
        let mut bench = Bench::new(1, &settings);
        let mut client = bench.resp(0);
        bench.ask(&mut client, &command(&[b"SET", b"k", &vec![7; SIZE]]), 5);
        let size = array(Element::U8, &texts(Element::U8, &vec![7; SIZE])).len();
        let request = command(&[b"SKEP.GETV", b"k", b"u8"]).repeat(count);
        let mut clients: Vec<(Client, usize)> = (0..clients).map(|_| (bench.resp(0), 0)).collect();
        clients.iter_mut().for_each(|(client, _)| bench.send(client, &request));
        let mut turns = 0;
        while clients.iter().any(|(_, received)| *received < count * size) {
            bench.turn_or_tick();
            for (client, received) in &mut clients {
                *received += client.receive();
                client.received.clear();
            }
            turns += 1;
            assert!(turns < 20_000, "{:?}", clients.iter().map(|(_, received)| *received).collect::<Vec<_>>());
        }
        assert!(clients.iter().all(|(_, received)| *received == count * size));
    }
}

/// Many connections with many commands: none keeps a turn longer than one part of a reply.
#[test]
fn short_vectors_are_paid_for_too() {
    let settings = ServerSettings { connection_memory: 256 << 20, connections_max: 300, ..ServerSettings::default() };
    let mut bench = Bench::new(1, &settings);
    let mut client = bench.resp(0);
    for size in [8, 500, 20_000] {
        bench.ask(&mut client, &command(&[b"SET", b"k", &vec![7; size]]), 5);
        let reply = array(Element::U8, &texts(Element::U8, &vec![7; size]));
        let count = 2_000_000 / size.max(1000);
        let mut clients: Vec<Client> = (0..10).map(|_| bench.resp(0)).collect();
        let request = command(&[b"SKEP.GETV", b"k", b"u8"]).repeat(count);
        clients.iter_mut().for_each(|client| bench.send(client, &request));
        let (mut sum, mut most, mut idle) = (0, 0, 0);
        while idle < 3 {
            let has_worked = bench.turn(0);
            clients.iter_mut().for_each(|client| _ = client.receive());
            let spent = if has_worked { bench.shards[0].shard.turn.account.spent() } else { 0 };
            (sum, most, idle) = (sum + spent, most.max(spent), if has_worked { 0 } else { idle + 1 });
        }
        for client in &clients {
            assert!(client.received == reply.repeat(count), "{size}");
        }
        assert!(sum >= 9 * count * TEXT_WORK * reply.len(), "{size}: {sum} bytes of work");
        assert!(most <= TURN_WORK + TURN_WORK / 2, "{size}: {most} bytes of work in a turn");
    }
}
