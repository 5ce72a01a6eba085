//! Runs `skep import` on files that are written here. `full_import.rs` has files of Redis.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::process::{Server, assert_refusal, output, text};

/// A file that is removed at the end of the test.
struct Rdb(PathBuf);

impl Rdb {
    /// Writes a file with these records. Its checksum is 0: it has none.
    fn new(name: &str, records: &[&[u8]]) -> Rdb {
        let mut bytes = b"REDIS0011\xfa\x04bits\xc0\x40".to_vec();
        bytes.extend(records.concat());
        bytes.extend(b"\xff\0\0\0\0\0\0\0\0");
        Rdb::with_bytes(name, &bytes)
    }

    fn with_bytes(name: &str, bytes: &[u8]) -> Rdb {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}.rdb", std::process::id()));
        fs::write(&path, bytes).unwrap();
        Rdb(path)
    }

    fn import(&self, address: &str) -> Output {
        output(&["import", self.0.to_str().unwrap(), "--addr", address])
    }
}

impl Drop for Rdb {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
    }
}

/// Nothing listens at this address.
const NO_SERVER: &str = "127.0.0.1:1";

fn string(bytes: &[u8]) -> Vec<u8> {
    [&[0x80][..], &(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn in_an_hour() -> Vec<u8> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    [&[252][..], &(now + 3_600_000).to_le_bytes()].concat()
}

#[test]
fn strings_are_imported_into_the_spaces_of_their_databases() {
    let server = Server::start(&[]);
    let expired = [&[252][..], &1_i64.to_le_bytes()].concat();
    let large = [&b"\x00\x05large"[..], &string(&vec![b'v'; 1 << 20])].concat();
    let records: &[&[u8]] = &[
        b"\xf5\x07library\xfe\x00\x00\x01a\x01b\x00\x01n\xc0\x2a",
        &in_an_hour(),
        b"\x00\x01e\x01f",
        &expired,
        b"\x00\x01x\x01y",
        &large,
        b"\x01\x01l\x01\x01a\x01\x01m\x01\x01a\x04\x01h\x00",
        b"\xfe\x01\x00\x01o\x01p",
    ];
    let file = Rdb::new("spaces", records);
    assert_eq!(server.cli(&["put", "a", "older"]).status.code(), Some(0));
    let imported = file.import(&server.native);
    assert_eq!(text(&imported.stderr), "");
    let expected = "imported 4 keys into the hash space, 1 with an expiry\n\
                    imported 1 key into the ordered space\n\
                    left out 1 key that had expired\n\
                    left out 2 lists\n\
                    left out 1 hash\n\
                    left out 1 library of functions\n";
    assert_eq!((text(&imported.stdout).as_str(), imported.status.code()), (expected, Some(0)));

    for (space, key, value) in [("hash", "a", "b"), ("hash", "n", "42"), ("hash", "e", "f"), ("ordered", "o", "p")] {
        assert_eq!(text(&server.cli(&["--space", space, "get", key]).stdout), value, "{key}");
    }
    assert_eq!(server.cli(&["get", "large"]).stdout, vec![b'v'; 1 << 20]);
    let left = text(&server.cli(&["expiry", "e"]).stdout);
    assert!(left.starts_with("59m "), "{left}");
    assert_eq!(text(&server.cli(&["expiry", "a"]).stdout), "never\n");
    assert_eq!(server.key_counts(), [4, 1]);
}

#[test]
fn many_strings_are_imported_in_batches() {
    let server = Server::start(&[]);
    let records: Vec<Vec<u8>> = (0..100_000_u32)
        .map(|number| [&[0][..], &string(&number.to_be_bytes()), &string(&number.to_le_bytes())].concat())
        .collect();
    let file = Rdb::new("many", &[&records.concat()]);
    let imported = file.import(&server.native);
    assert_eq!(text(&imported.stdout), "imported 100000 keys into the hash space\n", "{}", text(&imported.stderr));
    assert_eq!(server.key_counts(), [100_000, 0]);
    let empty = Rdb::new("empty", &[]);
    assert_eq!(text(&empty.import(&server.native).stdout), "imported 0 keys into the hash space\n");
}

#[test]
fn strings_that_skep_cannot_have_are_reported_after_the_import() {
    let server = Server::start(&[]);
    let value = [&b"\x00\x03big"[..], &string(&vec![b'v'; (1 << 20) + 1])].concat();
    let key = [&[0][..], &string(&[b'k'; 461]), b"\x01v"].concat();
    let file = Rdb::new("bounds", &[&value, &key, b"\x00\x00\x01v\x00\x01a\x01b"]);
    let imported = file.import(&server.native);
    assert_eq!(
        (text(&imported.stdout).as_str(), imported.status.code()),
        ("imported 1 key into the hash space\n", Some(1))
    );
    let line = text(&imported.stderr);
    assert!(
        line.starts_with("skep: 3 keys with strings were not imported, because Skep has keys of 1 to 460"),
        "{line}"
    );
    assert!(line.ends_with("the first: key `big` of 3 B with a value of 1048577 B\n"), "{line}");
    assert_eq!(text(&server.cli(&["get", "a"]).stdout), "b");
    let line = text(&Rdb::new("bound", &[&key]).import(&server.native).stderr);
    assert!(line.starts_with("skep: 1 key with a string was not imported, because Skep has keys"), "{line}");
}

#[test]
fn a_file_that_cannot_be_imported_changes_nothing() {
    let server = Server::start(&[]);
    let pair = b"\x00\x01a\x01b";
    for (name, records, parts) in [
        (
            "database",
            &[&pair[..], b"\xfe\x05\x00\x01c\x01d"][..],
            &["database 5", "0 (hash), 1 (ordered) and 2 (cache)"][..],
        ),
        ("cache", &[pair, b"\xfe\x02\x00\x01c\x01d"], &["cache space", "--into-cache"]),
        ("type", &[pair, b"\x08\x01c\x01d"], &["byte 22 of key `c` has the unknown type 8", "--skip-unknown"]),
        ("checksum", &[pair, b"\xff12345678"], &["damaged", "checksum"]),
        ("size", &[pair, b"\x00\x01c\x81\xff\xff\xff\xff\xff\xff\xff\xff"], &["cut off"]),
    ] {
        assert_refusal(&Rdb::new(name, records).import(&server.native), 1, parts);
    }
    let cache = Rdb::new("no-cache", &[pair, b"\xfe\x02\x00\x01c\x01d"]);
    let refused = output(&["import", cache.0.to_str().unwrap(), "--into-cache", "--addr", &server.native]);
    assert_refusal(&refused, 1, &["1 key for the cache space", "--cache-memory"]);
    for (bytes, parts) in [(&b"*2\r\n$6\r\nSELECT\r\n"[..], &["not an RDB file"][..]), (b"", &["not an RDB file"])] {
        assert_refusal(&Rdb::with_bytes("header", bytes).import(NO_SERVER), 1, parts);
    }
    assert_eq!(server.key_counts(), [0, 0]);
    assert_refusal(&Rdb::new("server", &[pair]).import(NO_SERVER), 1, &["no server replies", "skep serve"]);
    assert_refusal(&output(&["import", "/no/such.rdb"]), 2, &["cannot read /no/such.rdb: No such file"]);
    assert_refusal(&output(&["import", "/tmp"]), 2, &["/tmp is not a file"]);
}

#[test]
fn what_follows_the_end_of_a_file_is_ignored() {
    let server = Server::start(&[]);
    for (name, version, after) in [
        ("mark", "REDIS0011", &[b'f'; 40][..]),
        ("newline", "REDIS0013", b"\n"),
        ("padded", "REDIS0015", &[0; 3000]),
        ("valkey", "VALKEY081", b""),
    ] {
        let bytes = [version.as_bytes(), b"\xfe\x00\x00\x01a\x01b\xff\0\0\0\0\0\0\0\0", after].concat();
        let imported = Rdb::with_bytes(name, &bytes).import(&server.native);
        let expected = ("imported 1 key into the hash space\n".to_owned(), Some(0));
        assert_eq!((text(&imported.stdout), imported.status.code()), expected, "{}", text(&imported.stderr));
    }
}

#[test]
fn the_strings_before_an_unknown_record_are_imported_if_that_is_wanted() {
    let server = Server::start(&[]);
    let file = Rdb::new("unknown", &[b"\x00\x01a\x01b", b"\x1a\x03new\x01d", b"\x00\x01c\x01d"]);
    let path = file.0.to_str().unwrap();
    assert_refusal(&file.import(&server.native), 1, &["of key `new` has the unknown type 26", "--skip-unknown"]);
    assert_eq!(server.key_counts(), [0, 0]);
    let imported = output(&["import", path, "--skip-unknown", "--addr", &server.native]);
    assert_eq!((text(&imported.stdout).as_str(), imported.status.code()), {
        ("imported 1 key into the hash space\n", Some(1))
    });
    let line = text(&imported.stderr);
    assert!(line.contains("the rest of the file was left out: the record at byte 22 of key `new`"), "{line}");
    assert_eq!(server.key_counts(), [1, 0]);
}

#[test]
fn a_pipe_is_imported_while_it_is_read() {
    let server = Server::start(&[]);
    let file = Rdb::new("pipe", &[b"\x00\x01a\x01b\x00\x01c\x01d"]);
    let shell = |command: String| Command::new("sh").args(["-c", &command]).output().unwrap();
    let (program, path, address) = (env!("CARGO_BIN_EXE_skep"), file.0.display(), &server.native);
    for command in [
        format!("cat {path} | {program} import - --addr {address}"),
        format!("cat {path} | {program} import /dev/stdin --addr {address}"),
        format!("{program} import - --addr {address} < {path}"),
    ] {
        let imported = shell(command);
        assert_eq!(text(&imported.stdout), "imported 2 keys into the hash space\n", "{}", text(&imported.stderr));
    }
    let cut = shell(format!("head -c 24 {path} | {program} import - --addr {address}"));
    assert_refusal(
        &cut,
        1,
        &["the standard input: it is cut off", "at least 1 key was imported before", "--resume 1 continues"],
    );
    assert_eq!(server.key_counts(), [2, 0]);
}

#[test]
fn a_full_server_is_named() {
    let server = Server::start(&["--ordered-memory", "8MiB"]);
    let records: Vec<Vec<u8>> =
        (0..100_u8).map(|number| [&b"\x00\x01"[..], &[number], &string(&vec![number; 1 << 20])].concat()).collect();
    let file = Rdb::new("full", &[&records.concat()]);
    let parts = ["key `", "(--memory)", "keys were imported before"];
    assert_refusal(&file.import(&server.native), 1, &parts);
}
