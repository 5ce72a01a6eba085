//! Calls of user functions over each transport of the native protocol, and modules that are loaded at the start.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Waker};

use skep_client::{
    AsyncClient, Client, ClientError, FUNCTIONS_SPACE, HASH_SPACE, ORDERED_SPACE, Operation, PutCondition, Reply,
    Request, Responses, WireError,
};
use skep_core::function::FunctionHandle;
use skep_core::operation::{Call, CallReply, OperationError};
use skep_wire::native::{Hello, ReplyFrame, RequestFrameWriter, Response};

use crate::process::{Server, assert_refusal, refusal};
use crate::wire::Connection;

/// Returns a call of the function with this number, as a client encodes it.
fn call(id: u32, revision: u32) -> Operation<'static> {
    let function = FunctionHandle { id, revision, function: None };
    Operation::Call(Call { function, vectors: 0, operands: &[], initial: Some(&[7]), reply: CallReply::Old })
}

/// Starts a server with three transports of the native protocol. Returns it with their addresses.
fn serve(folder: &Path) -> (Server, [String; 3]) {
    let socket = folder.join("socket");
    let socket = socket.to_str().expect("the path is UTF-8");
    let shared = ["--udp", "127.0.0.1:0", "--shared-memory", socket, "--ordered-memory", "16MiB"];
    let server = Server::start(&shared);
    let line = server.screen.lines().find_map(|line| line.trim_start().strip_prefix("UDP ")).expect("UDP is on");
    let udp = format!("udp:{}", line.trim().split(' ').next().expect("it has an address"));
    let addresses = [server.native.clone(), udp, format!("shm:{socket}")];
    (server, addresses)
}

/// Returns the error of a refused module.
fn reason<T: std::fmt::Debug>(result: Result<T, ClientError>) -> String {
    match result {
        Err(ClientError::Module { reason }) => reason,
        other => panic!("{other:?} is not a refused module"),
    }
}

const COUNTER: &str = "mod m { #[update] fn add(v: u8, by: u8) -> u8 { v.saturating_add(by) } }";

/// Adds to the value of a key by the function with this handle. Returns the old value.
fn add(function: FunctionHandle, by: &[u8]) -> Call<'_> {
    Call { function, vectors: 0, operands: by, initial: Some(&[7]), reply: CallReply::Old }
}

#[test]
fn modules_are_loaded_and_deleted_over_each_transport() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let (server, addresses) = serve(folder.path());
    for (index, address) in addresses.iter().enumerate() {
        let mut client = Client::connect(&**address, HASH_SPACE).expect("the server accepts");
        assert_eq!(client.load_module(COUNTER, false).unwrap(), "m", "{address}");
        assert_eq!(client.load_module(COUNTER, false).unwrap(), "m", "the same source changes nothing");
        let other = COUNTER.replace("v.saturating_add(by)", "v - by");
        assert!(reason(client.load_module(&other, false)).starts_with("module 'm' exists: "));
        let wrong = reason(client.load_module("mod m {\n #[update] fn add(v: u8) -> u8 { w } }", true));
        assert!(wrong.starts_with("line 2, column 34: there is no local"), "{wrong}");
        assert_eq!(client.module_source("m").unwrap().as_deref(), Some(COUNTER));

        let function = client.function("m.add").unwrap().expect("it is loaded");
        let [listed] = &client.functions().unwrap()[..] else { panic!("there is one function") };
        assert_eq!((listed.number, listed.description.as_str()), (function.id, "update m.add(u8, by: u8)"));
        let key = format!("key {index}");
        assert_eq!(client.call(key.as_bytes(), add(function, &[5])).unwrap().as_deref(), Some(&[7][..]));
        assert_eq!(client.load_module(&other, true).unwrap(), "m");
        assert_eq!(client.call(key.as_bytes(), add(function, &[2])).unwrap().as_deref(), Some(&[12][..]));
        assert_eq!(client.get(key.as_bytes()).unwrap().as_deref(), Some(&[10][..]), "in the space of the client");

        assert!(client.delete_module("m").unwrap() && !client.delete_module("m").unwrap());
        assert_eq!(client.function("m.add").unwrap(), None);
        assert_eq!(client.function("add").unwrap(), None);
        assert_eq!((client.module_source("m").unwrap(), client.functions().unwrap()), (None, Vec::new()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a thread starts");
    runtime.block_on(async {
        let mut client = AsyncClient::connect(server.native.as_str(), HASH_SPACE).await.expect("the server accepts");
        assert_eq!(client.load_module(COUNTER, false).await.unwrap(), "m");
        // A call that is dropped while it waits leaves the client in its space.
        {
            let mut load = pin!(client.load_module(COUNTER, true));
            assert!(load.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        assert_eq!(client.get(b"key 0").await.unwrap().as_deref(), Some(&[10][..]));
    });
}

/// The frames of a connection take effect in their order, those on functions and on keys.
#[test]
fn a_frame_on_functions_is_executed_in_its_turn() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let (_server, addresses) = serve(folder.path());
    let put = |value, condition| Operation::Put { value, condition };
    let source = COUNTER.as_bytes();
    let steps = [
        (&b"m"[..], Operation::Get, Ok(Reply::NotFound)),
        (b"m.add", Operation::Contains, Ok(Reply::NotFound)),
        (b"*", put(source, PutCondition::IfAbsent), Ok(Reply::Value(b"\x01m"))),
        (b"m.add", Operation::Get, Ok(Reply::Value(&[1, 0, 0, 0]))),
        (b"m.add", Operation::Contains, Ok(Reply::Done)),
        (b"m", Operation::Get, Ok(Reply::Value(source))),
        (b"*", Operation::Get, Ok(Reply::Value(b"1 update m.add(u8, by: u8)\n"))),
        (b"*", put(b"\xff", PutCondition::Always), Ok(Reply::Value(b"\x00the source is not UTF-8 text"))),
        (b"*", put(source, PutCondition::IfPresent), Err(WireError::NotOfFunctions)),
        (b"m", put(source, PutCondition::Always), Err(WireError::NotOfFunctions)),
        (b"m", Operation::AddDecimal { delta: 1 }, Err(WireError::NotOfFunctions)),
        (b"m", call(1, 0), Err(WireError::NotOfFunctions)),
        (b"\xff", Operation::Delete, Ok(Reply::NotFound)),
        (b"m", Operation::Delete, Ok(Reply::Done)),
        (b"m", Operation::Delete, Ok(Reply::NotFound)),
    ];
    for address in &addresses {
        let mut client = Client::connect(&**address, FUNCTIONS_SPACE).expect("the server accepts");
        // One after another: the keys of a batch may go to several shards.
        for (key, operation, expected) in &steps {
            let mut responses = Responses::new();
            client.execute(&[Request { key, operation: *operation }], &mut responses).expect("the server replies");
            assert_eq!(responses.get(0), *expected, "{address}: {} {operation:?}", key.escape_ascii());
        }
    }
    frames_in_one_write(&addresses[0], source);
}

/// Sends frames on both kinds of spaces together, and compares the replies.
fn frames_in_one_write(address: &str, source: &[u8]) {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.write_all(&Hello::new(None).encode()).unwrap();
    let mut welcome = [0; 32];
    stream.read_exact(&mut welcome).unwrap();
    let function = FunctionHandle { id: 1, revision: 0, function: None };
    let load = Operation::Put { value: source, condition: PutCondition::Always };
    let frames = [
        (HASH_SPACE, b"k", Operation::Call(add(function, &[1]))),
        (FUNCTIONS_SPACE, b"*", load),
        (HASH_SPACE, b"k", Operation::Call(add(function, &[1]))),
        (FUNCTIONS_SPACE, b"m", Operation::Delete),
        (HASH_SPACE, b"k", Operation::Call(add(function, &[1]))),
        (HASH_SPACE, b"k", Operation::Get),
    ];
    let mut bytes = Vec::new();
    for (sequence, (space, key, operation)) in (0..).zip(frames) {
        let mut writer = RequestFrameWriter::new(&mut bytes, sequence, space);
        assert!(writer.push(&Request { key, operation }));
        writer.finish();
    }
    // Without operations.
    RequestFrameWriter::new(&mut bytes, 6, FUNCTIONS_SPACE).finish();
    stream.write_all(&bytes).unwrap();
    let unknown = Reply::Failed(OperationError::FunctionUnknown);
    let expected =
        [unknown, Reply::Value(b"\x01m"), Reply::Value(&[7]), Reply::Done, unknown, Reply::Value(&[8])].map(Ok);
    let mut arrived = Vec::new();
    for sequence in 0..7 {
        let (frame, size) = loop {
            match ReplyFrame::decode(&arrived).expect("it is a reply frame") {
                Some((frame, size)) => break (frame.replies().map(Result::unwrap).map(own).collect::<Vec<_>>(), size),
                None => {
                    let mut more = [0; 4096];
                    let count = stream.read(&mut more).unwrap();
                    assert!(count > 0, "the server closed the connection");
                    arrived.extend_from_slice(&more[..count]);
                }
            }
        };
        assert_eq!(frame, expected.get(sequence).copied().map(own).into_iter().collect::<Vec<_>>(), "{sequence}");
        arrived.drain(..size);
    }
}

/// Returns a response that borrows nothing.
fn own(response: Response<'_>) -> String {
    format!("{response:?}")
}

/// The code of a function that was replaced is there for the log. A client cannot call it over any transport.
#[test]
fn a_client_cannot_call_earlier_code() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let (server, addresses) = serve(folder.path());
    let mut resp = Connection::to_address(server.resp.as_ref().expect("the RESP port is on"));
    for step in [1, 2] {
        let source = format!("mod m {{ #[update] fn f(v: u8) -> u8 {{ v + {step} }} }}");
        let load = ["SKEP.FUNCTION", "LOAD", "REPLACE", &source].map(|word| word.as_bytes().to_vec());
        assert_eq!(resp.run(&[load.into()]).concat(), b"$1\r\nm\r\n");
    }
    for (index, address) in addresses.iter().enumerate() {
        for space in [HASH_SPACE, ORDERED_SPACE] {
            let mut client = Client::connect(&**address, space).expect("the server accepts");
            let key = format!("{index}");
            let request = |operation| Request { key: key.as_bytes(), operation };
            // Also of a function that there never was.
            let calls =
                [call(1, 1), call(1, 0), call(1, 2), call(1, 3), call(9, 1), call(9, 0), call(1, u32::MAX), call(1, 0)];
            let mut responses = Responses::new();
            client.execute(&calls.map(request), &mut responses).expect("the server replies");
            let refused = Err(WireError::EarlierCode);
            let unknown = Ok(Reply::Failed(OperationError::FunctionUnknown));
            let expected =
                [refused, Ok(Reply::Value(&[7])), refused, refused, refused, unknown, refused, Ok(Reply::Value(&[9]))];
            assert!(responses.iter().eq(expected), "{address}: {:?}", responses.iter().collect::<Vec<_>>());
        }
    }
}

/// The second module would replace the first one.
#[test]
fn two_files_with_one_module_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("the path is UTF-8").to_owned();
    let write = |name: &str, source: &str| fs::write(path(name), source).expect("there is room");
    write("one.rs", "mod m { #[update] fn f(v: u8) -> u8 { v + 1 } }");
    write("two.rs", "mod n { #[update] fn f(v: u8) -> u8 { v + 2 } }");
    write("three.rs", "// another one\nmod m { #[filter] fn g(v: u8) -> bool { v > 2 } }");
    write("wrong.rs", "mod w { #[update] fn f(v: u8) -> u8 { w } }");
    let [one, two, three, wrong, data] = ["one.rs", "two.rs", "three.rs", "wrong.rs", "data"].map(path);
    let shared = ["--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--memory", "64MiB", "--data-dir", &data];
    for (files, parts) in [
        ([&one, &two, &three], [format!("{three}: the module 'm' is in {one} too"), "rename it".to_owned()]),
        ([&two, &one, &one], [format!("{one}: the module 'm' is in {one} too"), "leave out one".to_owned()]),
        (
            [&one, &two, &wrong],
            [format!("{wrong}: line 1, column 39: "), "no local, parameter or constant `w`".to_owned()],
        ),
    ] {
        let files: Vec<&str> = files.iter().map(|file| file.as_str()).collect();
        let arguments = [&["serve"][..], &shared[..], &["--functions"][..], &files].concat();
        assert_refusal(&refusal(&arguments), 1, &[&parts[0], &parts[1]]);
        let list: Vec<String> = files.iter().map(|file| format!("{file:?}")).collect();
        let config = path("config.toml");
        fs::write(&config, format!("functions = [{}]\n", list.join(", "))).expect("there is room");
        let arguments = [&["serve", "--config", &config][..], &shared[..]].concat();
        assert_refusal(&refusal(&arguments), 1, &[&parts[0], &parts[1]]);
        // It was refused before the directory was made.
        assert!(!fs::exists(&data).expect("it can be looked for"));
    }
}
