//! Runs `skep backup`, `skep restore`, `skep log check` and `skep log dump` on directories that the server has written.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;

use skep_core::function::FunctionHandle;
use skep_core::operation::{Call, CallReply, Operation, Request};
use skep_log::{BlockWriter, Directory, Files, LogSettings, Manifest, SEGMENT_SIZE_MIN, StoredFunctions, StoredModule};
use tempfile::TempDir;

use crate::process::{Server, assert_refusal, output, refusal, skep, text, wait_until_unlocked};

/// A folder for data directories.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(TempDir::new().expect("there is room for a folder"))
    }

    /// Returns the path of a directory in it.
    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("the path is UTF-8").to_owned()
    }
}

fn start(directory: &str) -> Server {
    Server::start(&["--data-dir", directory, "--ordered-memory", "8MiB"])
}

fn stop(mut server: Server) {
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
}

/// Returns standard output of a command that succeeds.
fn printed(arguments: &[&str]) -> String {
    let output = output(arguments);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{arguments:?}");
    text(&output.stdout)
}

fn resp(server: &Server, command: &str) -> String {
    use std::io::{BufRead, BufReader, Write};
    let address = server.resp.as_ref().expect("the RESP port is on");
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    write!(stream, "{command}\r\n").expect("it reads");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("it replies");
    line
}

/// Asserts that a check has failed, with one line that has the parts. Standard output says what could be read.
fn assert_damaged(output: &Output, parts: &[&str]) {
    assert_refusal(&Output { stdout: Vec::new(), ..output.clone() }, 1, parts);
}

/// Writes a directory that has a snapshot, and operations after it.
fn write(directory: &str) {
    let server = start(directory);
    let cli = |words: &[&str]| assert!(server.cli(words).status.success(), "{words:?}");
    cli(&["put", "name", "skep"]);
    cli(&["put", "--space", "ordered", "user:4", "barbara"]);
    assert_eq!(resp(&server, "SAVE"), "+OK\r\n");
    cli(&["put", "tab\tkey", &"v".repeat(200)]);
    cli(&["update", "hits", "add", "i64", "5", "--init", "0"]);
    cli(&["incr", "count", "-7"]);
    cli(&["put", "--expires-in", "1h", "brief", "x"]);
    cli(&["delete", "brief"]);
    cli(&["put", "--space", "ordered", "user:5", "ada"]);
    cli(&["delete", "--space", "ordered", "user:4"]);
    stop(server);
}

#[test]
fn a_directory_is_checked_dumped_copied_and_started() {
    let folder = Folder::new();
    let [data, backup, restored] = ["data", "backup", "restored"].map(|name| folder.path(name));
    write(&data);

    let report = printed(&["log", "check", &data]);
    let parts =
        ["manifest      generation", "2 shards, --memory 64 MiB", "3 files, 2 pairs", "1 segment, ", "no group is cut"];
    for part in parts {
        assert!(report.contains(part), "{part}: {report}");
    }
    let dump = printed(&["log", "dump", &data]);
    let lines: Vec<Vec<&str>> = dump.lines().map(|line| line.split('\t').collect()).collect();
    assert!(lines.iter().all(|line| line.len() == 6), "{dump}");
    let long = "v".repeat(100) + "... (200 bytes)";
    for expected in [
        ["hash", "put", "tab\\tkey", &long],
        ["hash", "update", "hits", "add i64 5 init 0"],
        ["hash", "incr", "count", "-7"],
        ["hash", "delete", "brief", ""],
        ["ordered", "put", "user:5", "ada"],
        ["ordered", "delete", "user:4", ""],
    ] {
        assert!(lines.iter().any(|line| line[2..] == expected), "{expected:?}: {dump}");
    }
    assert!(lines.iter().any(|line| line[3] == "set" && line[5].starts_with("x expires 2")), "{dump}");
    let is_version = |line: &Vec<&str>| line[1].starts_with("version ");
    assert!(lines.iter().all(|line| is_version(line) == (line[2] == "ordered")), "{dump}");
    let first = printed(&["log", "dump", &data, "--limit", "2"]);
    assert!(first.lines().count() == 2 && dump.starts_with(&first), "{first}");
    let with_snapshot = printed(&["log", "dump", &data, "--snapshot"]);
    let snapshot = with_snapshot.strip_suffix(&dump).expect("the log follows the snapshot");
    assert!(snapshot.contains("snapshot\t-\thash\tput\tname\tskep\n"), "{snapshot}");
    assert!(snapshot.contains("snapshot\t-\tordered\tput\tuser:4\tbarbara\n"), "{snapshot}");

    let report = printed(&["backup", &data, &backup]);
    assert!(report.contains("3 files, 2 pairs") && report.contains(&format!("to {backup}, and checked")), "{report}");
    assert_eq!(printed(&["log", "dump", &backup, "--snapshot"]), with_snapshot);
    assert_eq!(fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o700);
    let mut size = 0;
    for file in fs::read_dir(&backup).unwrap() {
        let metadata = file.unwrap().metadata().unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        size += metadata.len();
    }
    assert!(size < 1 << 20, "a backup of some operations has {size} bytes");
    // The directory is read, not changed: also if nothing in it can be written.
    printed(&["restore", &backup, &restored]);
    let server = start(&restored);
    assert_eq!(text(&server.cli(&["get", "name"]).stdout), "skep");
    assert_eq!(text(&server.cli(&["incr", "count", "0"]).stdout), "-7\n");
    assert_eq!(text(&server.cli(&["update", "hits", "add", "i64", "0"]).stdout), "5\n");
    assert_eq!(text(&server.cli(&["scan"]).stdout), "user:5\tada\n");
    assert_eq!(server.cli(&["exists", "brief"]).status.code(), Some(1));
    // A restored directory is one like others: it can be restarted and copied.
    let again = folder.path("again");
    assert!(server.cli(&["put", "later", "1"]).status.success());
    printed(&["backup", &restored, &again]);
    stop(server);
    printed(&["log", "check", &restored]);
    let server = start(&again);
    assert_eq!(text(&server.cli(&["get", "later"]).stdout), "1");
    stop(server);
}

/// Writes functions to a directory that no server uses, and a call of one of them to its log.
fn add_functions(directory: &str) {
    let mut directory = Directory::open(Arc::new(Files::open(Path::new(directory)).unwrap())).unwrap();
    let end = directory.read_log(false, |_| Ok(())).unwrap();
    let settings = LogSettings { segment_size: SEGMENT_SIZE_MIN, ..LogSettings::default() };
    let (mut groups, segments) = directory.begin(end, settings, Manifest::default(), || 77).unwrap();
    let source = |revision, is_current| StoredModule {
        name: "limits".into(),
        revision,
        is_current,
        source: "mod limits {}".into(),
    };
    let functions = StoredFunctions {
        names: vec!["limits.take".into(), "limits.left".into()],
        modules: vec![source(1, false), source(2, true)],
    };
    directory.functions().unwrap().1.write(&functions).unwrap();
    let mut writer = BlockWriter::new();
    for id in [2, 3] {
        let function = FunctionHandle { id, revision: 1, function: None };
        let call = Call { function, vectors: 0, operands: &[5, 0], initial: None, reply: CallReply::Nothing };
        assert!(writer.append(0, 1_000, &Request { key: b"bucket", operation: Operation::Call(call) }));
    }
    groups.push(writer.seal(groups.durable_floor()).unwrap());
    while let Some(write) = groups.next_write().or_else(|| groups.next_seal()) {
        let result = segments.write(&write);
        groups.written(write, result);
    }
    assert!(groups.failure().is_none());
}

#[test]
fn functions_are_checked_dumped_and_copied() {
    let folder = Folder::new();
    let [data, backup, new] = ["data", "backup", "new"].map(|name| folder.path(name));
    write(&data);
    assert!(printed(&["log", "check", &data]).contains("\nfunctions     none\n"));
    add_functions(&data);
    wait_until_unlocked(&data);
    let described = "\nfunctions     2 names, 1 module, 2 sources\n";
    assert!(printed(&["log", "check", &data]).contains(described));
    assert!(printed(&["backup", &data, &backup]).contains(described));
    let dump = printed(&["log", "dump", &backup]);
    let calls = ["call\tbucket\tlimits.left revision 1 0x0500\n", "call\tbucket\tfunction 3 revision 1 0x0500\n"];
    assert!(calls.iter().all(|call| dump.contains(call)), "{dump}");

    let damage = |name: &str| {
        let path = Path::new(&backup).join(name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[50] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    damage("functions.a");
    let report = printed(&["log", "check", &backup]);
    assert!(report.contains(described) && report.contains("functions.a is not valid"), "{report}");
    damage("functions.b");
    let parts = ["the functions in the data directory are damaged, in both files", "from a backup"];
    assert_damaged(&output(&["log", "check", &backup]), &parts);
    assert_refusal(&output(&["restore", &backup, &new]), 1, &parts);
    // All calls are printed, by numbers.
    let by_numbers = output(&["log", "dump", &backup]);
    assert_eq!(text(&by_numbers.stdout), dump.replace("limits.left", "function 2"));
    assert_damaged(&by_numbers, &parts);
}

#[test]
fn a_directory_in_use_is_copied_but_not_read() {
    let folder = Folder::new();
    let [data, backup, other] = ["data", "backup", "other"].map(|name| folder.path(name));
    let server = start(&data);
    assert!(server.cli(&["put", "name", "skep"]).status.success());
    for command in ["check", "dump"] {
        assert_refusal(&output(&["log", command, &data]), 1, &[&data, "a server uses it", "skep backup"]);
    }
    printed(&["backup", &data, &backup]);
    assert!(printed(&["log", "dump", &backup]).contains("\tput\tname\tskep\n"));
    let target = start(&other);
    assert_refusal(&output(&["backup", &data, &other]), 1, &[&other, "name a new or an empty directory"]);
    drop(target);
    stop(server);
}

#[test]
fn a_reader_that_closes_the_pipe_ends_a_dump() {
    let folder = Folder::new();
    let data = folder.path("data");
    let server = start(&data);
    let bench = ["bench", "--addr", &server.native, "--records", "20000", "--operations", "20000", "--workload", "a"];
    _ = output(&bench);
    stop(server);
    let mut child = skep(&["log", "dump", &data])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn directories_that_cannot_be_copied_are_named() {
    let folder = Folder::new();
    let [empty, foreign, full, new] = ["empty", "foreign", "full", "new"].map(|name| folder.path(name));
    [&empty, &foreign, &full].iter().for_each(|path| fs::create_dir(path).unwrap());
    fs::write(Path::new(&foreign).join("photo.jpg"), b"x").unwrap();
    fs::write(Path::new(&full).join("photo.jpg"), b"x").unwrap();
    for command in ["backup", "restore"] {
        assert_refusal(&refusal(&[command, &folder.path("none"), &new]), 1, &["none: No such file", "name the data"]);
        assert_refusal(&refusal(&[command, &empty, &new]), 1, &[&empty, "there is no data to copy"]);
        assert_refusal(&refusal(&[command, &foreign, &new]), 1, &[&foreign, "photo.jpg"]);
        assert_refusal(&refusal(&[command, &empty, &full]), 1, &[&full, "photo.jpg", "new or an empty directory"]);
        assert_refusal(&refusal(&[command, &empty, &folder.path("none/new")]), 1, &["none/new: cannot be made"]);
        assert!(!Path::new(&new).exists());
    }
    for command in ["check", "dump"] {
        assert_refusal(&refusal(&["log", command, &folder.path("none")]), 1, &["none: No such file", "name the data"]);
        assert_refusal(&refusal(&["log", command, &foreign]), 1, &[&foreign, "photo.jpg"]);
    }
    assert_refusal(&refusal(&["log", "check", &empty]), 1, &[&empty, "it is empty"]);
    assert_refusal(&refusal(&["log", "dump"]), 2, &["<DIRECTORY>"]);
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0, "a check has changed the directory");
}

/// A copy of a small directory, in memory.
type Bytes = BTreeMap<String, Vec<u8>>;

fn read(directory: &str) -> Bytes {
    let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    files.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap())).collect()
}

#[test]
fn damage_to_each_file_of_a_backup_is_found() {
    let folder = Folder::new();
    let [data, backup, damaged, new] = ["data", "backup", "damaged", "new"].map(|name| folder.path(name));
    write(&data);
    printed(&["backup", &data, &backup]);
    let files = read(&backup);
    let find = |part: &str| files.keys().find(|name| name.contains(part)).expect("there is one").clone();
    fs::create_dir(&damaged).unwrap();
    let try_with = |name: &str, bytes: Option<&[u8]>, parts: &[&str]| {
        for (other, bytes) in &files {
            fs::write(Path::new(&damaged).join(other), bytes).unwrap();
        }
        let path = Path::new(&damaged).join(name);
        match bytes {
            Some(bytes) => fs::write(path, bytes).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        assert_damaged(&output(&["log", "check", &damaged]), parts);
        assert_refusal(&output(&["restore", &damaged, &new]), 1, &[]);
        assert!(!Path::new(&new).exists());
    };
    let flipped = |name: &str, offset: usize| {
        let mut bytes = files[name].clone();
        bytes[offset] ^= 1;
        bytes
    };
    let (log, shard, ordered) = (find("log-"), find("-0001"), find("-ordered"));
    try_with("manifest.a", Some(&flipped("manifest.a", 30)), &["no manifest", "restore the directory from a backup"]);
    try_with("manifest.a", None, &["both manifests are missing"]);
    for snapshot in [&shard, &ordered] {
        try_with(snapshot, Some(&flipped(snapshot, 12)), &[snapshot, "is damaged at offset 0", "backup"]);
        try_with(snapshot, Some(&flipped(snapshot, 50)), &[snapshot, "is damaged at offset 0", "backup"]);
        try_with(snapshot, Some(&files[snapshot][..100]), &[snapshot, "ends after 100 bytes"]);
        try_with(snapshot, None, &[snapshot, "is missing"]);
    }
    let group = ["damaged from block", "group", &log, "--accept-loss", "restore the data directory"];
    // The header of the segment; each group, of which each has its own page: the last one too.
    try_with(&log, Some(&flipped(&log, 20)), &["log", "are missing"]);
    let pages = files[&log].len() / 4096;
    assert!(pages > 6, "{pages} pages");
    for page in 1..pages {
        let offset = page * 4096;
        let place = format!("offset {offset}");
        try_with(&log, Some(&flipped(&log, offset + 40)), &[&group[..], &[&place]].concat());
    }
    try_with(&log, Some(&files[&log][..4096 * (pages - 1)]), &[&log, "bytes instead of"]);
    try_with(&log, None, &[&log, "is missing"]);

    // What precedes the damage is printed.
    let dump = printed(&["log", "dump", &backup]);
    fs::write(Path::new(&damaged).join(&log), flipped(&log, (pages - 2) * 4096 + 40)).unwrap();
    let part = output(&["log", "dump", &damaged]);
    assert!(dump.starts_with(&text(&part.stdout)) && part.stdout.len() < dump.len(), "{}", text(&part.stdout));
    assert_damaged(&part, &["damaged from block", &format!("offset {}", (pages - 2) * 4096)]);
}

#[test]
fn a_group_that_a_crash_has_torn_is_no_damage() {
    let folder = Folder::new();
    let [data, backup] = ["data", "backup"].map(|name| folder.path(name));
    write(&data);
    let report = printed(&["log", "check", &data]);
    let log = fs::read_dir(&data).unwrap().map(|file| file.unwrap().path());
    let log = log.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("log-")).min().unwrap();
    // The begin of a group after the last one: four letters, and at 16 the number that the header of the file has at 24.
    let end = report.split_once("offset ").expect("it says where the log ends").1;
    let end: u64 = end.split_once(' ').expect("an offset").0.parse().expect("a number");
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().read(true).write(true).open(log).unwrap();
    let mut begin = *b"SKgr....................";
    file.read_exact_at(&mut begin[16..], 24).unwrap();
    file.write_all_at(&begin, end).unwrap();
    let report = printed(&["log", "check", &data]);
    assert!(report.contains(&format!("offset {end} of log-")), "{report}");
    assert!(
        report.contains("a group that was being written") && report.contains("all that a start reads is valid"),
        "{report}"
    );
    printed(&["backup", &data, &backup]);
    assert!(printed(&["log", "check", &backup]).contains("no group is cut off"));
}
