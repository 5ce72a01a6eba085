//! Calls of user functions over each transport of the native protocol, and modules that are loaded at the start.

use std::fs;

use skep_client::{Client, HASH_SPACE, ORDERED_SPACE, Operation, Reply, Request, Responses, WireError};
use skep_core::function::FunctionHandle;
use skep_core::operation::{Call, CallReply, OperationError};

use crate::process::{Server, assert_refusal, refusal};
use crate::wire::Connection;

/// Returns a call of the function with this number, as a client encodes it.
fn call(id: u32, revision: u32) -> Operation<'static> {
    let function = FunctionHandle { id, revision, function: None };
    Operation::Call(Call { function, vectors: 0, operands: &[], initial: Some(&[7]), reply: CallReply::Old })
}

/// The code of a function that was replaced is there for the log. A client cannot call it over any transport.
#[test]
fn a_client_cannot_call_earlier_code() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let socket = folder.path().join("socket");
    let socket = socket.to_str().expect("the path is UTF-8");
    let options = ["--udp", "127.0.0.1:0", "--shared-memory", socket, "--ordered-memory", "16MiB"];
    let server = Server::start(&options);
    let mut resp = Connection::to_address(server.resp.as_ref().expect("the RESP port is on"));
    for step in [1, 2] {
        let source = format!("mod m {{ #[update] fn f(v: u8) -> u8 {{ v + {step} }} }}");
        let load = ["SKEP.FUNCTION", "LOAD", "REPLACE", &source].map(|word| word.as_bytes().to_vec());
        assert_eq!(resp.run(&[load.into()]).concat(), b"$1\r\nm\r\n");
    }
    let line = server.screen.lines().find_map(|line| line.trim_start().strip_prefix("UDP ")).expect("UDP is on");
    let udp = format!("udp:{}", line.trim().split(' ').next().expect("it has an address"));
    for (index, address) in [server.native.clone(), udp, format!("shm:{socket}")].iter().enumerate() {
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
