//! User functions over RESP: they are loaded, called, replaced and deleted, in all spaces and across shards.

mod support;

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use support::{Resp, command, server_with};

const SMALL: u64 = 16 << 20;

const LIMITS: &str = "
mod limits {
    struct Bucket { tokens: f32, at: u64 }

    #[update]
    fn take(b: &mut Bucket, now: u64, cost: f32, rate: f32, burst: f32) -> bool {
        let t = burst.min(b.tokens + rate * (now.saturating_sub(b.at)) as f32);
        b.at = b.at.max(now);
        if t < cost { b.tokens = t; return false; }
        b.tokens = t - cost;
        true
    }

    #[update] fn decay(v: f32, d: f32) -> f32 { v * 0.5 + d }
    #[update] fn divide(v: i32, d: i32) -> i32 { v / d }
    #[update] fn reset(v: i32, really: bool) -> i32 { if really { 0 } else { v } }
    #[reduce] fn sum(v: u8, sum: u64) -> u64 { sum + v as u64 }
    #[filter] fn hot(v: f32, limit: f32) -> bool { v > limit }
}
";

/// Returns a connection whose module is loaded, in this space.
fn loaded(server: &skep_server::Server, space: u16) -> Resp {
    let mut resp = Resp::connect(server);
    resp.expect(command(&[b"SKEP.FUNCTION", b"LOAD", b"REPLACE", LIMITS.as_bytes()]), "$6\r\nlimits\r\n");
    resp.expect(format!("SELECT {space}\r\n"), "+OK\r\n");
    resp
}

/// Returns the words of a line as a request: one that is not as short as a line must be.
fn words(line: &str) -> Vec<u8> {
    command(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

/// Returns an array of integers as RESP writes it.
fn integers(numbers: &[i64]) -> String {
    let mut text = format!("*{}\r\n", numbers.len());
    numbers.iter().for_each(|number| write!(text, ":{number}\r\n").unwrap());
    text
}

#[test]
fn functions_are_called_in_all_spaces() {
    for (shards, space) in [(1, 0), (3, 0), (1, 1), (3, 1), (1, 2), (3, 2)] {
        let server = server_with(|settings| {
            (settings.shards, settings.memory, settings.ordered_memory) = (shards, SMALL, SMALL);
            settings.cache_memory = u64::from(shards) * (4 << 20);
        });
        let mut resp = loaded(&server, space);
        for key in 0..20 {
            let take = format!("SKEP.UPDATE user:{key} limits.take 100 1 0.1 2");
            resp.expect(format!("{take}\r\n"), "$-1\r\n");
            resp.expect(format!("{take} INIT 2 0\r\n").repeat(3), ":1\r\n:1\r\n:0\r\n");
            resp.expect(format!("SKEP.GETV user:{key} limits.Bucket\r\n"), "*2\r\n$1\r\n0\r\n:100\r\n");
            resp.expect(format!("SKEP.UPDATE user:{key} limits.take 120 1 0.1 2 OLD\r\n"), "*2\r\n$1\r\n0\r\n:100\r\n");
            resp.expect(format!("SKEP.UPDATE user:{key} limits.take 120 0 0 2 NORETURN\r\n"), "+OK\r\n");
        }
        resp.expect(
            "SKEP.SET v f32 1 2 3\r\nSKEP.UPDATE v limits.decay 1\r\n",
            "+OK\r\n*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n",
        );
        resp.expect("SKEP.UPDATE v limits.decay 0 1 2 NORETURN\r\n", "+OK\r\n");
        resp.expect("SKEP.GETV v f32\r\n", "*3\r\n$4\r\n0.75\r\n$1\r\n2\r\n$4\r\n3.25\r\n");
        resp.expect("SKEP.FILTER v limits.hot 1\r\n", "*2\r\n$1\r\n2\r\n$4\r\n3.25\r\n");
        resp.expect("SKEP.FILTER v limits.hot 1 POSITIONS\r\n", integers(&[1, 2]));
        resp.expect("SKEP.FILTER v limits.hot 3 WITHPOSITIONS\r\n", "*2\r\n:2\r\n$4\r\n3.25\r\n");
        resp.expect("SET bytes aaa\r\nSKEP.REDUCE bytes limits.sum 9\r\n", "+OK\r\n:300\r\n");
        server.stop();
    }
}

#[test]
fn a_vector_that_is_wrong_in_one_element_stays_as_it_was() {
    for (shards, space) in [(1, 0), (2, 1)] {
        let server = server_with(|settings| {
            (settings.shards, settings.memory, settings.ordered_memory) = (shards, SMALL, SMALL);
        });
        let mut resp = loaded(&server, space);
        for count in [3, 30, 300, 25_000] {
            let values: String = (0..count).map(|value| format!(" {}", 6 * value)).collect();
            let mut divisors: Vec<String> = (0..count).map(|_| " 3".to_owned()).collect();
            resp.expect(words(&format!("SKEP.SET v i32{values}")), "+OK\r\n");
            divisors[count - 2] = " 0".to_owned();
            let divide = format!("SKEP.UPDATE v limits.divide{} NORETURN", divisors.concat());
            resp.expect(words(&divide), "-ERR the function divides by zero\r\n");
            resp.expect("SKEP.REDUCE v sum i32 0\r\n", format!(":{}\r\n", 3 * count * (count - 1)));
            resp.expect("SKEP.UPDATE v limits.divide 3 NORETURN\r\n", "+OK\r\n");
            resp.expect("SKEP.REDUCE v sum i32 0\r\n", format!(":{}\r\n", count * (count - 1)));
        }
        server.stop();
    }
}

#[test]
fn wrong_calls_have_named_errors() {
    let server = server_with(|settings| {
        (settings.shards, settings.memory) = (2, SMALL);
    });
    let mut resp = loaded(&server, 0);
    resp.expect("SKEP.SET v f32 1 2 3\r\nSET b abc\r\n", "+OK\r\n+OK\r\n");
    for (request, error) in [
        ("SKEP.UPDATE v limits.none 1", "no function 'limits.none' is loaded: SKEP.FUNCTION LIST shows those that are"),
        ("SKEP.UPDATE v limits.hot 1", "'limits.hot' is a filter: use SKEP.FILTER"),
        ("SKEP.FILTER v limits.sum 1", "'limits.sum' is a reduce: use SKEP.REDUCE"),
        ("SKEP.REDUCE v limits.decay 1", "'limits.decay' is an update: use SKEP.UPDATE"),
        (
            "SKEP.UPDATE v limits.decay",
            "syntax error: limits.decay takes d: f32; operands for all elements, or for each",
        ),
        (
            "SKEP.UPDATE v limits.decay 1 2",
            "operand has the wrong length: limits.decay takes d: f32; operands for all elements, or for each",
        ),
        ("SKEP.UPDATE v limits.decay x", "d: 'x' is wrong for f32: not a number of this type"),
        (
            "SKEP.UPDATE w limits.decay 1 INIT",
            "syntax error: INIT takes the elements of a missing key, one number for each",
        ),
        (
            "SKEP.UPDATE w limits.take 1 1 1 1 INIT 1",
            "syntax error: INIT takes the elements of a missing key, 2 numbers for each",
        ),
        (
            "SKEP.UPDATE v limits.take 1 1 1",
            "syntax error: limits.take takes now: u64, cost: f32, rate: f32, burst: f32; operands for all elements, or for \
             each, or one by one with [ ] around those for each",
        ),
        ("SKEP.REDUCE v limits.sum 0 2", "syntax error: limits.sum takes Σ: u64, and no operand"),
        ("SKEP.REDUCE v limits.sum x", "Σ: 'x' is wrong for u64: not a number of this type"),
        (
            "SKEP.UPDATE b limits.take 1 1 1 1",
            "element width does not divide the value's length: an element is Bucket {tokens: f32, at: u64}, of 12 bytes: \
             choose another type; STRLEN returns the length",
        ),
        ("SKEP.UPDATE v limits.reset yes", "really: 'yes' is wrong for bool: a bool is true, false, 1 or 0"),
        ("SKEP.UPDATE v limits.reset TRUE", "really: 'TRUE' is wrong for bool: a bool is true, false, 1 or 0"),
        ("SKEP.SET w limits.Bucket 1", "syntax error: an element of this record has 2 numbers"),
        ("SKEP.GETV v limits.Nothing", "no record 'limits.Nothing' is loaded: SKEP.FUNCTION LIST shows those that are"),
        (
            "SKEP.GETV b limits.Bucket",
            "element width does not divide the value's length: the value has 3 bytes, and an element is \
             {tokens: f32, at: u64}, of 12 bytes: choose another type, or GET",
        ),
        ("SKEP.FUNCTION DELETE none", "no module 'none' is loaded"),
        ("SKEP.FUNCTION SHOW none", "no module 'none' is loaded"),
        ("SKEP.UPDATE v", "wrong number of arguments for 'skep.update' command"),
        ("SKEP.UPDATE v add f32", "wrong number of arguments for 'skep.update' command"),
    ] {
        resp.expect(format!("{request}\r\n"), format!("-ERR {error}\r\n"));
    }
    resp.expect("SKEP.GETV v f32\r\n", "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n");
    server.stop();
}

#[test]
fn modules_are_replaced_shown_and_deleted() {
    let server = server_with(|settings| {
        (settings.shards, settings.memory) = (2, SMALL);
    });
    let mut resp = Resp::connect(&server);
    let module = |factor: u32| format!("mod m {{ #[update] fn f(v: u32) -> u32 {{ v * {factor} }} }}");
    let load = |options: &[&[u8]], source: &str| {
        let mut words: Vec<&[u8]> = vec![b"SKEP.FUNCTION", b"LOAD"];
        words.extend_from_slice(options);
        words.push(source.as_bytes());
        command(&words)
    };
    resp.expect(load(&[], &module(2)), "$1\r\nm\r\n");
    resp.expect(load(&[], &module(2)), "$1\r\nm\r\n");
    resp.expect(
        load(&[], &module(3)),
        "-ERR module 'm' exists: to replace its functions, use LOAD REPLACE, --replace, or a put over the native protocol\r\n",
    );
    resp.expect("SKEP.SET k u32 5\r\nSKEP.UPDATE k m.f\r\n", "+OK\r\n:5\r\n");
    resp.expect(load(&[b"REPLACE"], &module(3)), "$1\r\nm\r\n");
    resp.expect("SKEP.UPDATE k m.f\r\nSKEP.GETV k u32\r\n", ":10\r\n*1\r\n:30\r\n");
    let source = module(3);
    resp.expect("SKEP.FUNCTION SHOW m\r\n", format!("${}\r\n{source}\r\n", source.len()));
    resp.expect("SKEP.FUNCTION LIST\r\n", {
        "*1\r\n*10\r\n$6\r\nmodule\r\n$1\r\nm\r\n$8\r\nrevision\r\n:2\r\n\
         $9\r\nfunctions\r\n*1\r\n$15\r\nupdate m.f(u32)\r\n$7\r\nnumbers\r\n*1\r\n:1\r\n$7\r\nrecords\r\n*0\r\n"
    });
    resp.expect("SKEP.FUNCTION DELETE m\r\nSKEP.FUNCTION LIST\r\n", "+OK\r\n*0\r\n");
    resp.expect("SKEP.UPDATE k m.f\r\n", {
        "-ERR no function 'm.f' is loaded: SKEP.FUNCTION LIST shows those that are\r\n"
    });
    resp.expect(load(&[], &module(2)), "$1\r\nm\r\n");
    resp.expect("SKEP.UPDATE k m.f\r\n", ":30\r\n");
    let wrong = "mod w { #[update] fn f(v: u32) -> u32 { v + x } }";
    resp.expect(load(&[], wrong), "-ERR line 1, column 45: ");
    server.stop();
}

#[test]
fn transactions_call_functions() {
    let server = server_with(|settings| {
        (settings.shards, settings.memory) = (3, SMALL);
    });
    let mut resp = loaded(&server, 0);
    resp.expect("SKEP.SET a i32 8 9\r\nSKEP.SET b i32 8 9\r\n", "+OK\r\n+OK\r\n");
    resp.expect("MULTI\r\nSKEP.UPDATE a limits.divide 2 NORETURN\r\nSKEP.UPDATE b limits.divide 4 NORETURN\r\n", {
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n"
    });
    resp.expect("SKEP.UPDATE a limits.divide 0\r\nSKEP.GETV a i32\r\nSKEP.GETV b i32\r\n", "+QUEUED\r\n".repeat(3));
    resp.expect("EXEC\r\n", {
        let error = "-ERR the function divides by zero\r\n";
        format!("*5\r\n+OK\r\n+OK\r\n{error}{}{}", integers(&[4, 4]), integers(&[2, 2]))
    });
    server.stop();
}

/// Returns a module whose functions tell which of them ran: `f` writes the number to each element, and returns it.
fn numbered(module: &str, number: u32) -> String {
    format!("mod {module} {{ #[update] fn f(v: &mut u32) -> u32 {{ *v = {number}; {number} }} }}")
}

fn load(source: &str) -> Vec<u8> {
    command(&[b"SKEP.FUNCTION", b"LOAD", b"REPLACE", source.as_bytes()])
}

/// The stores would be held while the source is compiled.
#[test]
fn a_transaction_does_not_change_modules() {
    for shards in [1, 3] {
        let server = server_with(|settings| (settings.shards, settings.memory) = (shards, SMALL));
        let mut resp = loaded(&server, 0);
        for change in [load(&numbered("m", 1)), command(&[b"SKEP.FUNCTION", b"DELETE", b"limits"])] {
            resp.expect("MULTI\r\nSET a 1\r\n", "+OK\r\n+QUEUED\r\n");
            resp.expect(change, "-ERR Command not allowed inside a transaction\r\n");
            resp.expect("EXEC\r\n", "-EXECABORT Transaction discarded because of previous errors.\r\n");
        }
        resp.expect("MULTI\r\nSKEP.FUNCTION SHOW m\r\nSET a 1\r\nEXEC\r\n", {
            "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n-ERR no module 'm' is loaded\r\n+OK\r\n"
        });
        // Each load has its own reply.
        resp.expect(load(&numbered("m", 1)), "$1\r\nm\r\n");
        resp.expect(load(&numbered("n", 1)), "$1\r\nn\r\n");
        server.stop();
    }
}

/// Commands find the functions that the changes before them in the pipeline have left.
#[test]
fn what_follows_in_a_pipeline_sees_the_change() {
    for shards in [1, 3] {
        let server = server_with(|settings| (settings.shards, settings.memory) = (shards, SMALL));
        let mut resp = Resp::connect(&server);
        resp.expect("SKEP.SET k u32 0\r\n", "+OK\r\n");
        for number in [1, 2, 1] {
            let mut requests = load(&numbered("m", number));
            requests.extend(words("SKEP.UPDATE k m.f"));
            requests.extend(command(&[b"SKEP.FUNCTION", b"DELETE", b"m"]));
            requests.extend(words("SKEP.UPDATE k m.f"));
            resp.expect(requests, {
                let missing = "-ERR no function 'm.f' is loaded: SKEP.FUNCTION LIST shows those that are\r\n";
                format!("$1\r\nm\r\n:{number}\r\n+OK\r\n{missing}")
            });
        }
        server.stop();
    }
}

/// Replaces modules as fast as possible while they are called: each call is all of one source.
#[test]
fn calls_beside_loads_run_one_source() {
    const LOADERS: u32 = 16;
    const SOURCES: u32 = 8;
    let server = server_with(|settings| (settings.shards, settings.memory) = (2, SMALL));
    Resp::connect(&server).expect(load(&numbered("m", 0)), "$1\r\nm\r\n");
    let end = Instant::now() + Duration::from_secs(2);
    thread::scope(|scope| {
        for loader in 0..LOADERS {
            let server = &server;
            scope.spawn(move || {
                let mut resp = Resp::connect(server);
                let mut number = loader;
                while Instant::now() < end {
                    resp.expect(load(&numbered("m", number % SOURCES)), "$1\r\nm\r\n");
                    number += 1;
                }
            });
        }
        for caller in 0..3 {
            let server = &server;
            scope.spawn(move || {
                let mut resp = Resp::connect(server);
                let key = format!("k{caller}");
                resp.expect(words(&format!("SKEP.SET {key} u32{}", " 99".repeat(2000))), "+OK\r\n");
                while Instant::now() < end {
                    resp.expect(words(&format!("SKEP.UPDATE {key} m.f NORETURN")), "+OK\r\n");
                    resp.send(words(&format!("SKEP.REDUCE {key} min u32 4294967295")));
                    let least = resp.integer();
                    assert!((0..i64::from(SOURCES)).contains(&least), "{least}");
                    resp.expect(words(&format!("SKEP.REDUCE {key} max u32 0")), format!(":{least}\r\n"));
                }
            });
        }
        let server = &server;
        scope.spawn(move || {
            let mut resp = Resp::connect(server);
            while Instant::now() < end {
                // There is a module also while it is replaced.
                let source = resp.text("SKEP.FUNCTION SHOW m");
                assert!((0..SOURCES).any(|number| source == numbered("m", number)), "{source}");
            }
        });
    });
    server.stop();
}

/// More changes than threads for them are refused by name; then all goes on.
#[test]
fn many_loads_at_once_are_made_or_refused() {
    let server = server_with(|settings| (settings.shards, settings.memory) = (2, SMALL));
    let mut clients: Vec<Resp> = (0..40).map(|_| Resp::connect(&server)).collect();
    let long = "#[update] fn g(v: u32) -> u32 { v + 1 }\n";
    for (index, client) in clients.iter_mut().enumerate() {
        let padding = "x".repeat(60_000);
        client.send(load(&format!("mod m{index:02} {{ {long} /*{padding}*/ }}")));
    }
    // Clients that leave do not matter.
    clients.truncate(30);
    let mut counts = [0; 2];
    for (index, client) in clients.iter_mut().enumerate() {
        let line = client.line().trim_end().to_owned();
        match &*line {
            "$3" => client.expect_bytes(format!("m{index:02}\r\n")),
            _ => assert_eq!(line, "-ERR other modules are being loaded: try again"),
        }
        counts[usize::from(line == "$3")] += 1;
    }
    // The clients that have left may have been ten of the first 16.
    assert!(counts[1] >= 6, "{counts:?}");
    let mut resp = Resp::connect(&server);
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        resp.send(load(&numbered("m", 1)));
        match resp.line().trim_end() {
            "$1" => break resp.expect_bytes("m\r\n"),
            line => assert!(line.starts_with("-ERR other modules") && Instant::now() < end, "{line}"),
        }
    }
    server.stop();
}

/// A server stops while modules are loaded. (The clients get a reply, or the end of the connection.)
#[test]
fn a_server_stops_beside_loads() {
    let server = server_with(|settings| (settings.shards, settings.memory) = (2, SMALL));
    let mut clients: Vec<Resp> = (0..16).map(|_| Resp::connect(&server)).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.send(load(&numbered("m", index as u32)));
    }
    let begun = Instant::now();
    server.stop();
    assert!(begun.elapsed() < Duration::from_secs(10));
}

/// Returns the bytes of the process that are code and of no file.
fn code_size() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let size = |line: &str| {
        let mut words = line.split_whitespace();
        let (range, mode) = (words.next()?, words.next()?);
        let (begin, end) = range.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).unwrap();
        (mode.contains('x') && words.count() == 3).then(|| address(end) - address(begin))
    };
    maps.lines().filter_map(size).sum()
}

/// Modules that are loaded keep their code as long as the process, others do not.
#[test]
fn the_code_of_a_module_that_is_refused_is_freed() {
    // A process of its own: other tests load modules.
    const CHILD: &str = "SKEP_TEST_CODE";
    if std::env::var_os(CHILD).is_none() {
        let program = std::env::current_exe().unwrap();
        let name = "the_code_of_a_module_that_is_refused_is_freed";
        let status = std::process::Command::new(program).args([name, "--exact"]).env(CHILD, "1").status();
        return assert!(status.unwrap().success());
    }
    let server = server_with(|settings| (settings.shards, settings.memory) = (1, SMALL));
    let mut resp = loaded(&server, 0);
    let before = code_size();
    assert!(before > 0);
    for number in 0..40 {
        let source = LIMITS.replace("0.5", &format!("0.{number}5"));
        resp.expect(
            command(&[b"SKEP.FUNCTION", b"LOAD", source.as_bytes()]),
            "-ERR module 'limits' exists: to replace its functions, use LOAD REPLACE, --replace, or a put over the native protocol\r\n",
        );
    }
    assert_eq!(code_size(), before);
    server.stop();
}

/// Returns the counts of a function as the server tells them.
fn statistics(resp: &mut Resp, function: &str) -> Vec<i64> {
    resp.send("SKEP.FUNCTION STATS\r\n");
    let count: usize = resp.line().trim_end().strip_prefix('*').expect("an array").parse().expect("a number");
    let mut found = Vec::new();
    for _ in 0..count {
        resp.expect("", "*8\r\n$8\r\nfunction\r\n");
        resp.line();
        let is_function = resp.line().trim_end() == function;
        for name in ["calls", "elements", "failed"] {
            resp.expect("", format!("${}\r\n{name}\r\n", name.len()));
            let number = resp.integer();
            if is_function {
                found.push(number);
            }
        }
    }
    found
}

#[test]
fn calls_are_counted_in_all_shards() {
    for (shards, space) in [(1, 0), (3, 0), (3, 1), (3, 2)] {
        let server = server_with(|settings| {
            (settings.shards, settings.memory, settings.ordered_memory) = (shards, SMALL, SMALL);
            settings.cache_memory = u64::from(shards) * (4 << 20);
        });
        let mut resp = loaded(&server, space);
        assert_eq!(statistics(&mut resp, "limits.decay"), [0, 0, 0]);
        for key in 0..20 {
            // Calls on missing keys are not counted.
            resp.expect(format!("SKEP.UPDATE k{key} limits.decay 1\r\n"), "$-1\r\n");
            resp.expect(
                format!("SKEP.UPDATE k{key} limits.decay 1 INIT 0 0 0 NORETURN\r\n").repeat(2),
                "+OK\r\n+OK\r\n",
            );
            resp.expect(format!("SKEP.FILTER k{key} limits.hot 9\r\n"), "*0\r\n");
            resp.expect(format!("SKEP.SET k{key} i32 8\r\n"), "+OK\r\n");
            resp.expect(format!("SKEP.UPDATE k{key} limits.divide 2 NORETURN\r\n").repeat(3), "+OK\r\n".repeat(3));
            resp.expect(format!("SKEP.UPDATE k{key} limits.divide 0\r\n"), "-ERR the function divides by zero\r\n");
            resp.expect(format!("SKEP.REDUCE k{key} limits.sum 0\r\n"), ":1\r\n");
        }
        for (function, counts) in [
            ("limits.take", [0, 0, 0]),
            ("limits.decay", [20, 60, 0]),
            ("limits.divide", [80, 80, 20]),
            ("limits.sum", [20, 80, 0]),
            ("limits.hot", [20, 60, 0]),
        ] {
            assert_eq!(statistics(&mut resp, function), counts, "{function}, space {space}, {shards} shards");
        }
        // A long value is one call.
        resp.expect(words(&format!("SKEP.SET long u8{}", " 1".repeat(60_000))), "+OK\r\n");
        resp.expect("SKEP.REDUCE long limits.sum 0\r\nSKEP.FILTER long limits.hot 9\r\n", ":60000\r\n*0\r\n");
        resp.expect("SKEP.UPDATE long limits.decay 1 NORETURN\r\n", "+OK\r\n");
        resp.expect("SKEP.UPDATE long limits.divide 1 NORETURN\r\n", "+OK\r\n");
        assert_eq!(statistics(&mut resp, "limits.sum"), [21, 60_080, 0]);
        assert_eq!(statistics(&mut resp, "limits.hot"), [21, 15_060, 0]);
        assert_eq!(statistics(&mut resp, "limits.decay"), [21, 15_060, 0]);
        assert_eq!(statistics(&mut resp, "limits.divide"), [81, 15_080, 20]);
        // A function that is replaced counts on; one that was deleted is not shown.
        let longer = format!("{LIMITS} // the same again");
        resp.expect(load(&longer), "$6\r\nlimits\r\n");
        assert_eq!(statistics(&mut resp, "limits.sum"), [21, 60_080, 0]);
        resp.expect("SKEP.FUNCTION DELETE limits\r\nSKEP.FUNCTION STATS\r\n", "+OK\r\n*0\r\n");
        server.stop();
    }
}

#[test]
fn wrong_brackets_have_named_errors() {
    let server = server_with(|settings| (settings.shards, settings.memory) = (2, SMALL));
    let mut resp = loaded(&server, 0);
    resp.expect("SKEP.SET v f32 1 2 3\r\n", "+OK\r\n");
    for (request, error) in [
        ("SKEP.UPDATE v limits.take 1 [ 1 1 1", "syntax error: no ] ends [ of cost"),
        (
            "SKEP.UPDATE v limits.take 1 [1 1] 1 1",
            "syntax error: '[1': write [ and ] as words of their own, as in [ 1 2 3 ]",
        ),
        (
            "SKEP.UPDATE v limits.take 1 [ 1 1 ] 1] 1",
            "syntax error: '1]': write [ and ] as words of their own, as in [ 1 2 3 ]",
        ),
        (
            "SKEP.UPDATE v limits.take 1 [ 1 1 ] 1",
            "syntax error: burst: f32 is a number for all elements, or [ a number for each ]",
        ),
        (
            "SKEP.UPDATE v limits.take 1 [ ] 1 1",
            "syntax error: cost: f32 is a number for all elements, or [ a number for each ]",
        ),
        (
            "SKEP.UPDATE v limits.take 1 [ 1 [ 1 ] ] 1 1",
            "syntax error: cost: f32 is a number for all elements, or [ a number for each ]",
        ),
        (
            "SKEP.UPDATE v limits.take 1 ] 1 1",
            "syntax error: cost: f32 is a number for all elements, or [ a number for each ]",
        ),
        ("SKEP.UPDATE v limits.take 1 [ x ] 1 1", "cost: 'x' is wrong for f32: not a number of this type"),
        ("SKEP.FILTER v limits.hot [ 1 2 ]", {
            "operand has the wrong length: limits.hot takes limit: f32; operands for all elements, or for each"
        }),
        ("SKEP.FILTER v limits.hot [ 1 ] 2", {
            "syntax error: limits.hot takes limit: f32; operands for all elements, or for each"
        }),
    ] {
        resp.expect(format!("{request}\r\n"), format!("-ERR {error}\r\n"));
    }
    resp.expect("SKEP.GETV v f32\r\n", "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n");
    server.stop();
}

/// Operands for all elements beside operands for each of them.
#[test]
fn operands_of_both_kinds_are_in_one_call() {
    const SOURCE: &str = "
        mod mixed {
            struct Pair { a: u16, b: u16 }
            #[update] fn mul_add(v: i64, x: i64, y: i64) -> i64 { v * x + y }
            #[update] fn put(v: Pair, p: Pair, q: u16) -> Pair { Pair { a: p.a + v.b, b: p.b * q } }
            #[reduce] fn dot(v: u8, sum: u64, by: u8, plus: u64) -> u64 { sum + v as u64 * by as u64 + plus }
            #[filter] fn within(v: u8, low: u8, high: u8) -> bool { low <= v && v <= high }
        }";
    let server = server_with(|settings| (settings.shards, settings.memory) = (2, SMALL));
    let mut resp = Resp::connect(&server);
    resp.expect(load(SOURCE), "$5\r\nmixed\r\n");
    for (call, expected) in [
        ("SKEP.UPDATE v mixed.mul_add [ 1 2 3 ] 7 NORETURN", [17, 47, 97]),
        ("SKEP.UPDATE v mixed.mul_add 2 [ 1 2 3 ] NORETURN", [21, 42, 63]),
        ("SKEP.UPDATE v mixed.mul_add [ 1 2 3 ] [ 1 2 3 ] NORETURN", [11, 42, 93]),
        ("SKEP.UPDATE v mixed.mul_add 1 1 2 2 3 3 NORETURN", [11, 42, 93]),
    ] {
        resp.expect("SKEP.SET v i64 10 20 30\r\n", "+OK\r\n");
        resp.expect(words(call), "+OK\r\n");
        resp.expect("SKEP.GETV v i64\r\n", integers(&expected));
    }
    resp.expect("SKEP.UPDATE new mixed.mul_add [ 5 6 ] 1 INIT 2 3 NORETURN\r\n", "+OK\r\n");
    resp.expect("SKEP.GETV new i64\r\n", integers(&[11, 19]));
    resp.expect("SKEP.SET p mixed.Pair 1 2 3 4\r\n", "+OK\r\n");
    resp.expect("SKEP.UPDATE p mixed.put [ 10 20 30 40 ] 2 NORETURN\r\nSKEP.GETV p mixed.Pair\r\n", {
        format!("+OK\r\n{}", integers(&[12, 40, 34, 80]))
    });
    resp.expect("SKEP.UPDATE p mixed.put 1 1 [ 5 6 ] NORETURN\r\nSKEP.GETV p mixed.Pair\r\n", {
        format!("+OK\r\n{}", integers(&[41, 5, 81, 6]))
    });
    let error = "ERR syntax error: p: Pair {a: u16, b: u16} is 2 numbers for all elements, or [ 2 numbers for each ]";
    for operands in ["[ 1 2 3 ] 2", "1 [ 5 6 ]", "1 2 3 [ 5 6 ] ]"] {
        resp.expect(
            format!("SKEP.UPDATE p mixed.put {operands}\r\n"),
            match operands {
                "1 2 3 [ 5 6 ] ]" => {
                    "-ERR syntax error: mixed.put takes p: Pair {a: u16, b: u16}, q: u16; operands for all \
                                  elements, or for each, or one by one with [ ] around those for each\r\n"
                        .to_owned()
                }
                _ => format!("-{error}\r\n"),
            },
        );
    }
    resp.expect("SKEP.SET b u8 1 2 3\r\n", "+OK\r\n");
    resp.expect("SKEP.REDUCE b mixed.dot 100 [ 1 10 100 ] 1000\r\n", ":3421\r\n");
    resp.expect("SKEP.REDUCE b mixed.dot 100 2 [ 1 10 100 ]\r\n", ":223\r\n");
    resp.expect("SKEP.FILTER b mixed.within [ 1 3 2 ] 3 POSITIONS\r\n", integers(&[0, 2]));
    server.stop();
}

/// Sums that need more bytes than an element has, and counts.
#[test]
fn built_in_folds_may_be_wider_than_the_elements() {
    let server = server_with(|settings| (settings.shards, settings.memory) = (2, SMALL));
    let mut resp = Resp::connect(&server);
    for (set, fold, expected) in [
        ("u8 200 100 0 7", "wide-sum u8 0", ":307"),
        ("u8 200 100 0 7", "sum u8 0", ":51"),
        ("u8 200 100 0 7", "wide-sum u8 1000", ":1307"),
        ("i8 -128 -128 1", "WIDE-SUM i8 -1000", ":-1255"),
        ("u32 4294967295 4294967295", "wide-sum u32 0", ":8589934590"),
        ("f32 16777216 1 1", "wide-sum f32 0.5", "$10\r\n16777218.5"),
        ("u8 200 100 0 7", "count u8 4294967295", ":4294967298"),
        ("f32 0 -0 nan 1", "count f32 0", ":2"),
    ] {
        resp.expect(format!("SKEP.SET v {set}\r\nSKEP.REDUCE v {fold}\r\n"), format!("+OK\r\n{expected}\r\n"));
    }
    resp.expect("SKEP.REDUCE v wide-sum f32 x\r\n", "-ERR 'x' is wrong for f64: not a number of this type\r\n");
    resp.expect("SKEP.REDUCE v wide-sum f32 0 1\r\n", {
        "-ERR operand has the wrong length: wide-sum takes one operand, the initial sum: a u64, i64 or f64\r\n"
    });
    server.stop();
}
