//! Tests of the parser: each command and error message with a name, limits of sizes, and requests that arrive in
//! pieces. The error messages were compared with those of memcached 1.6.18.

use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};

use super::{
    Direction, ErrorReply, Exptime, KEY_SIZE_MAX, LINE_SIZE_MAX, Parsed, RETRIEVAL_SIZE_MAX, Request, RequestParser,
    Statistics, Store, StoreMode, Words,
};

/// The longest value in these tests.
const VALUE_SIZE_MAX: usize = 10;

/// Parses requests that arrive in pieces of this size. Returns a text for each request and each refusal.
fn parse_all(bytes: &[u8], piece_size: usize) -> Vec<String> {
    let mut input = bytes.to_vec();
    let mut parser = RequestParser::new(VALUE_SIZE_MAX);
    let mut texts = Vec::new();
    let (mut start, mut end) = (0, 0);
    loop {
        let arrived = end - start;
        let size = match parser.parse(&mut input[start..end]) {
            Parsed::Incomplete if end == bytes.len() => return texts,
            Parsed::Incomplete => {
                end = bytes.len().min(end + piece_size);
                continue;
            }
            Parsed::Complete { size, request } => {
                texts.push(format!("{request:?}"));
                size
            }
            Parsed::Refused { size, error, is_quiet } => {
                texts.push(format!("{error:?} {is_quiet}"));
                size
            }
            Parsed::Dropped(size) => size,
            Parsed::Close => {
                texts.push("close".to_owned());
                return texts;
            }
        };
        assert!((1..=arrived).contains(&size), "{size} of {arrived} bytes");
        start += size;
    }
}

/// Checks that the bytes are one request.
fn assert_request(bytes: &[u8], request: Request<'_>) {
    let parsed = Parsed::Complete { size: bytes.len(), request };
    assert_eq!(RequestParser::new(VALUE_SIZE_MAX).parse(&mut bytes.to_vec()), parsed, "{}", bytes.escape_ascii());
}

/// Checks that the bytes are one refused request.
fn assert_refused(bytes: &[u8], error: ErrorReply, is_quiet: bool) {
    let parsed = Parsed::Refused { size: bytes.len(), error, is_quiet };
    assert_eq!(RequestParser::new(VALUE_SIZE_MAX).parse(&mut bytes.to_vec()), parsed, "{}", bytes.escape_ascii());
}

fn get(keys: &str) -> Request<'_> {
    retrieval(keys, false, None)
}

fn retrieval(keys: &str, with_cas: bool, exptime: Option<Exptime>) -> Request<'_> {
    let keys = Words::new(keys.as_bytes());
    Request::Get { keys, key_count: keys.count(), with_cas, exptime }
}

#[test]
fn retrievals() {
    for line in ["get a\r\n", "get a\n", " get  a \r\n"] {
        assert_request(line.as_bytes(), get("a"));
    }
    assert_request(b"get a b a\r\n", get("a b a"));
    assert_request(b"get a\tb\r\r\n", get("a\tb\r"));
    assert_request(b"get noreply\r\n", get("noreply"));
    assert_request(b"gets a\r\n", retrieval("a", true, None));
    for (line, keys, with_cas, exptime) in
        [("gat 10 a b\r\n", "a b", false, 10), ("gats -1 a\r\n", "a", true, -1), ("gat 10\r\n", "", false, 10)]
    {
        let exptime = Some(Exptime(exptime));
        assert_request(line.as_bytes(), retrieval(keys, with_cas, exptime));
    }
}

#[test]
fn stores() {
    let store = Store { key: b"a", value: b"x\ny", mode: StoreMode::Set, flags: 7, exptime: Exptime(-60), cas: None };
    for (command, mode) in [
        ("set", StoreMode::Set),
        ("add", StoreMode::Add),
        ("replace", StoreMode::Replace),
        ("append", StoreMode::Append),
        ("prepend", StoreMode::Prepend),
    ] {
        let store = Store { mode, ..store };
        for (end, is_quiet) in [("\r\n", false), ("\n", false), (" noreply\r\n", true), (" foo\r\n", false)] {
            let bytes = format!("{command} a 7 -60 3{end}x\ny\r\n");
            assert_request(bytes.as_bytes(), Request::Store { store, is_quiet });
        }
    }
    let store = Store { cas: Some(u64::MAX), ..store };
    for (end, is_quiet) in [("", false), (" noreply", true), (" foo", false)] {
        let bytes = format!("cas a 7 -60 3 18446744073709551615{end}\r\nx\ny\r\n");
        assert_request(bytes.as_bytes(), Request::Store { store, is_quiet });
    }
    let store = Store { value: b"", flags: u32::MAX, exptime: Exptime(0), cas: None, ..store };
    assert_request(b"set a 4294967295 0 0\r\n\r\n", Request::Store { store, is_quiet: false });
}

#[test]
fn other_commands() {
    let key = &b"a"[..];
    for (line, request) in [
        ("delete a", Request::Delete { key, is_quiet: false }),
        ("delete a 0", Request::Delete { key, is_quiet: false }),
        ("delete a noreply", Request::Delete { key, is_quiet: true }),
        ("delete a 0 noreply", Request::Delete { key, is_quiet: true }),
        ("delete noreply", Request::Delete { key: b"noreply", is_quiet: false }),
        ("incr a 1", Request::Arithmetic { key, direction: Direction::Increment, delta: 1, is_quiet: false }),
        ("incr a 1 x", Request::Arithmetic { key, direction: Direction::Increment, delta: 1, is_quiet: false }),
        (
            "decr a 18446744073709551615 noreply",
            Request::Arithmetic { key, direction: Direction::Decrement, delta: u64::MAX, is_quiet: true },
        ),
        ("touch a 0", Request::Touch { key, exptime: Exptime::NEVER, is_quiet: false }),
        ("touch a 9 foo", Request::Touch { key, exptime: Exptime(9), is_quiet: false }),
        ("touch a -9 noreply", Request::Touch { key, exptime: Exptime(-9), is_quiet: true }),
        ("flush_all", Request::FlushAll { delay: Exptime(0), is_quiet: false }),
        ("flush_all noreply", Request::FlushAll { delay: Exptime(0), is_quiet: true }),
        ("flush_all 10", Request::FlushAll { delay: Exptime(10), is_quiet: false }),
        ("flush_all 10 x", Request::FlushAll { delay: Exptime(10), is_quiet: false }),
        ("flush_all -1 noreply", Request::FlushAll { delay: Exptime(-1), is_quiet: true }),
        ("stats", Request::Statistics(Statistics::General)),
        ("stats reset", Request::Statistics(Statistics::Reset)),
        ("stats settings", Request::Statistics(Statistics::Settings)),
        ("stats items x", Request::Statistics(Statistics::Items)),
        ("stats slabs", Request::Statistics(Statistics::Slabs)),
        ("stats sizes", Request::Statistics(Statistics::Sizes)),
        ("stats conns", Request::Statistics(Statistics::Connections)),
        ("verbosity 1", Request::Verbosity { is_quiet: false }),
        ("verbosity 1 x", Request::Verbosity { is_quiet: false }),
        ("verbosity 1 noreply", Request::Verbosity { is_quiet: true }),
        ("version", Request::Version),
        ("version x", Request::Version),
        ("quit", Request::Quit),
        ("quit noreply", Request::Quit),
    ] {
        assert_request(format!("{line}\r\n").as_bytes(), request);
        assert_request(format!(" {line} \n").as_bytes(), request);
    }
}

/// Lines that are refused, by their error.
const REFUSED: &[(ErrorReply, &[&str])] = &[
    (
        ErrorReply::Command,
        &[
            "",
            " ",
            "x",
            "xy",
            "GET a",
            "get",
            "get ",
            "get\ta",
            "getx a",
            "gat",
            "gats",
            "bget a",
            "stat",
            "sett a 0 0 1",
            "set a",
            "set a 0 0",
            "set a 0 0 1 noreply x",
            "cas a 0 0 1",
            "cas a 0 0 1 9 noreply x",
            "incr a",
            "incr a 1 2 3",
            "decr",
            "touch a",
            "touch a 0 x y",
            "delete",
            "delete a b c d",
            "flush_all 1 noreply x",
            "verbosity",
            "verbosity 0 1 2",
            "stats foo",
            "stats noreply",
            "stats detail on",
            "stats cachedump 1 1",
            "slabs automove 1",
            "lru mode flat",
            "lru_crawler enable",
            "watch",
            "cache_memlimit 64",
            "quitx",
        ],
    ),
    (
        ErrorReply::Format,
        &[
            "set a -1 0 1",
            "set a 4294967296 0 1",
            "set a 0x1 0 1",
            "set a 1x 0 1",
            "set a x 0 1",
            "set a 0 x 1",
            "set a 0 0 x",
            "set a 0 0 -1",
            "set a 0 0 2147483646",
            "set a 0 0 4294967297",
            "set a\0b 0 0 1",
            "cas a 0 0 1 x",
            "cas a 0 0 1 -1",
            "cas a 0 0 1 18446744073709551616",
            "verbosity x",
            "verbosity -1",
            "get a\0",
        ],
    ),
    (ErrorReply::Exptime, &["gat x", "gat a b", "gat 10x a", "touch a x", "flush_all x", "gats x a"]),
    (ErrorReply::Delta, &["incr a x", "incr a -1", "incr a 18446744073709551616", "decr a 1\t"]),
    (ErrorReply::DeleteUsage, &["delete a b", "delete a 1", "delete a noreply 0", "delete a 0 0"]),
    (ErrorReply::Shutdown, &["shutdown", "shutdown graceful", "shutdown x y z"]),
];

#[test]
fn lines_that_are_no_command_are_refused() {
    for (error, lines) in REFUSED {
        for line in *lines {
            assert_refused(format!("{line}\r\n").as_bytes(), *error, false);
        }
    }
}

#[test]
fn refused_lines_may_ask_for_no_reply() {
    use ErrorReply as E;
    for (error, lines) in [
        (E::Format, &["set a 0 0 -1 noreply", "set a 0 0 noreply", "cas a 0 0 1 noreply", "verbosity noreply"][..]),
        (E::Exptime, &["flush_all x noreply", "flush_all noreply noreply", "touch a x noreply", "touch a noreply"]),
        (E::Delta, &["incr a x noreply"]),
        (E::DeleteUsage, &["delete a 1 noreply"]),
    ] {
        for line in lines {
            assert_refused(format!("{line}\r\n").as_bytes(), error, true);
        }
    }
}

#[test]
fn error_messages() {
    use ErrorReply as E;
    for (error, text) in [
        (E::Command, "ERROR"),
        (E::Format, "CLIENT_ERROR bad command line format"),
        (E::DeleteUsage, "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]"),
        (E::Exptime, "CLIENT_ERROR invalid exptime argument"),
        (E::Delta, "CLIENT_ERROR invalid numeric delta argument"),
        (E::Shutdown, "ERROR: shutdown not enabled"),
        (E::ValueEnd, "CLIENT_ERROR bad data chunk"),
    ] {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn the_value_of_a_refused_request_is_dropped_if_its_size_is_known() {
    let all = |bytes: &str| parse_all(bytes.as_bytes(), bytes.len());
    let [version, command, value_end] = ["Version", "Command false", "ValueEnd false"];
    assert_eq!(all("set a 0 0 1\r\nxy\r\nversion\r\n"), [value_end, command, version]);
    assert_eq!(all("set a 0 0 1\r\nx\nversion\r\n"), [value_end, command]);
    assert_eq!(all("set a 0 0 1 noreply\r\nxyz\r\nversion\r\n"), ["ValueEnd true", command, version]);
    assert_eq!(all("set a x 0 7\r\nversion\r\n"), ["Format false", version]);
    assert_eq!(all("ms a 7 z\r\nversion\r\nversion\r\n"), ["UnknownFlag false", version]);
}

#[test]
fn a_value_over_the_limit_is_dropped() {
    let value = "x".repeat(VALUE_SIZE_MAX + 1);
    let size = value.len();
    for (line, removed_key, is_quiet) in [
        (format!("set a 0 0 {size}"), Some(&b"a"[..]), false),
        (format!("set a 0 0 {size} noreply"), Some(b"a"), true),
        (format!("add a 0 0 {size}"), None, false),
        (format!("append a 0 0 {size} noreply"), None, true),
        (format!("cas a 0 0 {size} 1"), None, false),
        (format!("ms a {size} MA q"), Some(b"a"), false),
        (format!("ms YQ== {size} b"), Some(b"a"), false),
    ] {
        let request = Request::StoreTooLarge { removed_key, is_quiet };
        assert_request(format!("{line}\r\n{value}\r\n").as_bytes(), request);
        // The reply does not wait for the value.
        assert_request(format!("{line}\r\n{value}").as_bytes(), request);
        assert_request(format!("{line}\r\n").as_bytes(), request);
        let bytes = format!("{line}\r\n{value}\r\nversion\r\n");
        for piece_size in 1..bytes.len() {
            assert_eq!(parse_all(bytes.as_bytes(), piece_size), [format!("{request:?}"), "Version".to_owned()]);
        }
    }
    let longest = "x".repeat(VALUE_SIZE_MAX);
    assert_eq!(parse_all(format!("set a 0 0 {VALUE_SIZE_MAX}\r\n{longest}\r\n").as_bytes(), 1).len(), 1);
    // The largest size that a line can state takes no memory.
    let mut parser = RequestParser::new(VALUE_SIZE_MAX);
    let mut line = b"set a 0 0 2147483645\r\n".to_vec();
    assert!(matches!(parser.parse(&mut line), Parsed::Complete { .. }));
    assert_eq!(parser.parse(&mut [b'x'; 1000]), Parsed::Dropped(1000));
}

#[test]
fn keys_have_a_limit() {
    let [longest, too_long] = [KEY_SIZE_MAX, KEY_SIZE_MAX + 1].map(|size| "k".repeat(size));
    for line in
        ["get KEY", "get a KEY b", "gat 0 KEY", "delete KEY", "incr KEY 1", "touch KEY 1", "mg KEY", "ma KEY", "me KEY"]
    {
        let with = |key: &str| parse_all(format!("{}\r\n", line.replace("KEY", key)).as_bytes(), 300);
        assert_eq!(with(&too_long), ["Format false"], "{line}");
        assert!(!with(&longest)[0].starts_with("Format"), "{line}");
    }
    assert_refused(format!("set {too_long} 0 0 1 noreply\r\n").as_bytes(), ErrorReply::Format, true);
    assert_refused(format!("incr {too_long} x\r\n").as_bytes(), ErrorReply::Format, false);
}

#[test]
fn lines_have_a_limit() {
    let line = |command: &str, size: usize| [command.as_bytes(), &vec![b'x'; size - command.len()]].concat();
    let parse = |bytes: &[u8]| parse_all(bytes, bytes.len());
    for command in ["", "mg ", "delete ", "getx", "mn ", " set "] {
        assert_eq!(parse(&line(command, LINE_SIZE_MAX)), [""; 0], "{command}");
        assert_eq!(parse(&line(command, LINE_SIZE_MAX + 1)), ["close"], "{command}");
        let ended = [line(command, LINE_SIZE_MAX + 1), b"\r\n".to_vec()].concat();
        assert_eq!(parse(&ended), ["close"], "{command}");
    }
    for command in ["get ", "gets ", "gat 0 ", "gats 0 ", &" ".repeat(100)] {
        let command = if command.trim().is_empty() { format!("{command}get ") } else { command.to_owned() };
        let bytes = [command.as_bytes(), &b"key ".repeat(10_000), b"\r\n"].concat();
        assert!(parse(&bytes)[0].starts_with("Get "), "{command}");
        assert_eq!(parse(&line(&command, RETRIEVAL_SIZE_MAX)), [""; 0]);
        assert_eq!(parse(&line(&command, RETRIEVAL_SIZE_MAX + 1)), ["close"]);
    }
    assert_eq!(parse(&line(&format!("{}get ", " ".repeat(101)), LINE_SIZE_MAX + 1)), ["close"]);
}

#[test]
fn http_closes_the_connection() {
    for input in [&b"\x80"[..], b"\x80\x07\0\0", b"\x80\n"] {
        assert_eq!(parse_all(input, 1), ["close"], "the binary protocol");
    }
    for line in ["GET / HTTP/1.1\r\nHost: a\r\n", "POST /set HTTP/1.0\n", "foo HTTP/2\r\nversion\r\n"] {
        assert_eq!(parse_all(line.as_bytes(), 7), ["close"]);
    }
    assert!(parse_all(b"get / HTTP/1.1\r\n", 7)[0].starts_with("Get"));
}

/// A request, a refused one, or noise.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let text = |text: &str| Just(text.as_bytes().to_vec());
    let words = "get gets gat set add append cas incr delete touch flush_all stats verbosity version mg ms md ma me mn \
                 a key YQ== Zm9v 0 1 2 9 11 30 -1 noreply b q v k O1 t s c T5 N5 C1 MA MX z D2 F3 HTTP/1";
    let words: Vec<String> = words.split_whitespace().map(|word| format!("{word} ")).collect();
    prop_oneof![
        4 => prop::sample::select(words).prop_map(String::into_bytes),
        2 => text("\r\n"),
        1 => text("\n"),
        1 => text("set a 1 2 3\r\nabc\r\n"),
        1 => text("ms YQ== 3 b k\r\nabc\r\n"),
        1 => text("ms a 12 z\r\n"),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ]
}

proptest! {
    #[test]
    fn pieces_do_not_matter(pieces in prop::collection::vec(piece(), 0..60)) {
        let bytes = pieces.concat();
        let at_once = parse_all(&bytes, bytes.len().max(1));
        for piece_size in [1, 2, 3, 7, 20] {
            prop_assert_eq!(&parse_all(&bytes, piece_size), &at_once);
        }
    }

    #[test]
    fn a_request_in_two_parts(pieces in prop::collection::vec(piece(), 0..20)) {
        let bytes = pieces.concat();
        let at_once = parse_all(&bytes, bytes.len().max(1));
        for size in 1..bytes.len() {
            let mut parser = RequestParser::new(VALUE_SIZE_MAX);
            let mut input = bytes.clone();
            let mut texts = Vec::new();
            let (mut start, mut end) = (0, size);
            loop {
                start += match parser.parse(&mut input[start..end]) {
                    Parsed::Incomplete if end == bytes.len() => break,
                    Parsed::Incomplete => { end = bytes.len(); 0 }
                    Parsed::Complete { size, request } => { texts.push(format!("{request:?}")); size }
                    Parsed::Refused { size, error, is_quiet } => { texts.push(format!("{error:?} {is_quiet}")); size }
                    Parsed::Dropped(size) => size,
                    Parsed::Close => { texts.push("close".to_owned()); break }
                };
            }
            prop_assert_eq!(&texts, &at_once, "cut at {}", size);
        }
    }

    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..4000), piece_size in 1_usize..500) {
        prop_assert_eq!(parse_all(&bytes, piece_size), parse_all(&bytes, 4000));
    }
}
