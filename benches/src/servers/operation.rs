//! What it costs to operate a server well: TLS, and a scrape of its metrics each second.
//!
//! | server | plain | scraped | TLS |
//! |---|---|---|---|
//! | one, with `--metrics` | its rate | its rate while the metrics are read each second | |
//! | one with a certificate | | | its rate |
//!
//! The client encrypts too, and it is cheap enough for the server to be the bottleneck: the share of time in which the
//! client waited says whether it was. The processor time of a server for a million operations does not depend on that.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use skep_measure::{Figure, Progress, Rounds, Row as Measurement, Sample as _};

use super::child::{Server, Setting};
use super::measure::{Load, Sample, figures, load, measure};
use super::plan::Plan;
use super::stream::TlsFiles;
use super::template::{Protocol, Verb};
use crate::figures::{cell, millions, percent, ratio_cell};
use crate::keys::PairForm;
use crate::tables::{Tables, table};

const PROTOCOLS: [Protocol; 2] = [Protocol::Resp, Protocol::Native];
/// The sides of each row, in the order of the rounds.
const SIDES: [&str; 3] = ["plain", "scraped", "TLS"];
const SCRAPED: usize = 1;
const TLS: usize = 2;
/// The time between two scrapes. The first is at the beginning of a round.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);
/// The arguments of both servers.
const ARGUMENTS: [&str; 6] = ["--resp", "127.0.0.1:0", "--shards", "1", "--ordered-memory", "16MiB"];

/// Measures gets of both protocols on all sides in turn.
pub fn measure_operation(plan: &Plan, progress: &Progress) -> Result<Tables, String> {
    let setting = Setting::new(plan, &[])?;
    let rows = PROTOCOLS.map(|protocol| Measurement::new(format!("{protocol:?}"), SIDES.len()));
    let rounds = Rounds::new(plan.effort(), rows.to_vec());
    progress.expect(2.0 * plan.load_seconds() + rounds.expected_seconds());
    let folder = tempfile::tempdir().map_err(|error| format!("no folder for a certificate: {error}"))?;
    let (plain, tls) = servers(&setting, folder.path())?;
    for server in [&plain, &tls] {
        load(server, plan, PairForm::Random, progress)?;
    }
    let metrics = plain.metrics.ok_or("the server has no port for metrics")?;
    let samples = rounds.run(progress, |turn| {
        let _scraping = (turn.side == SCRAPED).then(|| Scraping::begin(metrics));
        let server = if turn.side == TLS { &tls } else { &plain };
        let load = Load { form: PairForm::Random, verb: Verb::Get, depth: plan.depth };
        measure(turn, server, PROTOCOLS[turn.row], load, plan)
    })?;
    Ok(tables(plan, &samples))
}

/// Starts the server with metrics and the one with TLS, whose certificate is made in this folder.
fn servers(setting: &Setting, folder: &Path) -> Result<(Server, Server), String> {
    let TlsFiles { certificate, key, clients } = TlsFiles::make(folder)?;
    let [certificate, key] = [&certificate, &key].map(|path| path.to_str().expect("the folder's path is UTF-8"));
    let memory = setting.memory(PairForm::Random);
    let with = |own: &[&str]| setting.skep_with(&[&ARGUMENTS, &["--memory", &memory][..], own].concat());
    let plain = with(&["--metrics", "127.0.0.1:0"])?;
    let mut tls = with(&["--tls-cert", certificate, "--tls-key", key])?;
    tls.tls = Some(clients);
    Ok((plain, tls))
}

/// A thread that reads the metrics of a server each second, until the value is dropped.
struct Scraping {
    stop: Option<Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Scraping {
    fn begin(metrics: SocketAddr) -> Scraping {
        let (stop, stopped) = channel::<()>();
        let thread = thread::spawn(move || {
            // At once, so that a short round has a scrape too.
            loop {
                scrape(metrics).expect("the server shows its metrics");
                if stopped.recv_timeout(SCRAPE_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
        });
        Scraping { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Scraping {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is one of the measurement.
            thread.join().expect("each scrape was answered");
        }
    }
}

/// Reads the metrics once.
fn scrape(metrics: SocketAddr) -> Result<String, String> {
    let read = || {
        let mut stream = TcpStream::connect(metrics)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).map(|_| reply)
    };
    let reply = read().map_err(|error: std::io::Error| format!("cannot read the metrics: {error}"))?;
    if reply.contains("skep_operations_total") { Ok(reply) } else { Err(format!("no metrics: {reply:.200}")) }
}

/// Returns the rates, and the ratios to the plain side.
fn tables(plan: &Plan, samples: &[Vec<Vec<Sample>>]) -> Tables {
    let rates = |side: &[Sample]| side.iter().map(Sample::number).collect::<Vec<_>>();
    let cpu = |side: &[Sample]| side.iter().map(Sample::server_seconds_per_million).collect::<Vec<_>>();
    let rows = PROTOCOLS.iter().zip(samples).flat_map(|(protocol, sides)| {
        SIDES.iter().zip(sides).map(move |(name, side)| {
            let row = figures(side, plan.depth);
            vec![
                format!("{protocol:?}, {name}"),
                cell(&row.ops_per_s, millions),
                ratio_cell(&Figure::of_ratio(&rates(side), &rates(&sides[0]))),
                cell(&Figure::of(&cpu(side)), |seconds| format!("{seconds:.3}")),
                ratio_cell(&Figure::of_ratio(&cpu(&sides[0]), &cpu(side))),
                percent(row.client_waiting),
            ]
        })
    });
    let header = ["gets", "M/s", "of plain", "server s/M", "plain / this", "client waiting"];
    let note = format!(
        "{} pairs of 8 + 2 B, {} connections, one batch of {} gets in flight on each; the server has one shard and a core, \
         the client the other core; medians of rounds. Scraped: the metrics are read at the beginning of each round and after each second. Server s/M: \
         seconds of processor time of the server for a million gets; a server that waits polls for a while, which counts.",
        plan.keys, plan.connections, plan.depth
    );
    Tables { tables: vec![table(&header, 1, rows)], note }
}
