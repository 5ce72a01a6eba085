//! Both clients against the real server with three shards: every answer is that of the naive store.

use skep_client::{AsyncClient, Client, Responses};
use skep_server::{Server, ServerSettings};
use skep_store::naive::{Generator, GeneratorSettings, NaiveStore, OwnedRequest};
use skep_store::operation::Request;
use skep_wire::native::Response;

const SPACE: u16 = 0;

fn seed() -> u64 {
    std::env::var("SKEP_SEED").map_or(7379, |seed| seed.parse().expect("SKEP_SEED is a number"))
}

fn server() -> Server {
    let settings = ServerSettings {
        native: "127.0.0.1:0".parse().unwrap(),
        resp: None,
        memory: 96 << 20,
        shards: 3,
        ..ServerSettings::default()
    };
    Server::start(&settings).unwrap()
}

/// Batches of 1 to 500 operations, from single ones to such as take several frames.
fn batches(seed: u64) -> impl Iterator<Item = Vec<OwnedRequest>> {
    let settings = GeneratorSettings { seed, key_count: 3000, large_size_max: 30_000, ..GeneratorSettings::default() };
    let mut generator = Generator::new(settings);
    (0..200).map(move |batch| generator.by_ref().take(batch * 131 % 500 + 1).collect())
}

fn check<'a>(
    naive: &mut NaiveStore,
    requests: &[Request<'_>],
    responses: impl Iterator<Item = Response<'a>>,
    seed: u64,
) {
    let mut count = 0;
    for (request, response) in requests.iter().zip(responses) {
        let reply = response.unwrap_or_else(|error| panic!("seed {seed}: {request:?}: {error}"));
        if let Err(expected) = naive.check(request, reply) {
            panic!("seed {seed}: {request:?}\nanswered {reply:?}\nexpected {expected:?}");
        }
        count += 1;
    }
    assert_eq!(count, requests.len(), "seed {seed}");
}

#[test]
fn the_blocking_client_agrees_with_the_naive_store() {
    let server = server();
    let mut client = Client::connect(server.native_address(), SPACE).unwrap();
    assert_eq!(client.shard_count(), 3);
    let mut naive = NaiveStore::new();
    let mut responses = Responses::default();
    for batch in batches(seed()) {
        let requests: Vec<_> = batch.iter().map(OwnedRequest::as_request).collect();
        client.execute(&requests, &mut responses).unwrap();
        check(&mut naive, &requests, responses.iter(), seed());
    }
    assert!(naive.len() > 500);
}

#[test]
fn the_async_client_agrees_with_the_naive_store() {
    let server = server();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = AsyncClient::connect(server.native_address(), SPACE).await.unwrap();
        let mut naive = NaiveStore::new();
        let mut responses = Responses::default();
        for batch in batches(seed() + 1) {
            let requests: Vec<_> = batch.iter().map(OwnedRequest::as_request).collect();
            client.execute(&requests, &mut responses).await.unwrap();
            check(&mut naive, &requests, responses.iter(), seed() + 1);
        }
    });
}
