//! `--metrics`: the server's metrics over HTTP, for Prometheus, for supervisors and for people.
//!
//! | path | reply |
//! |---|---|
//! | `/` | a page that shows the metrics and asks for them each second |
//! | `/metrics` | all metrics, in OpenMetrics's text format, or in that of Prometheus (`format.rs`) |
//! | `/state` | those of the page, as JSON |
//! | `/healthz` | 200 during the start, and while each shard makes turns, else 503 |
//! | `/readyz` | 200 while clients are served and writes are taken, else 503 and the reason |
//!
//! One thread serves all of it. It only reads: without a reader it waits, and the shards do nothing for it. No reply
//! contains a value. Only `/state` contains keys, the hot ones and those of slow commands, and only at an address of the
//! machine itself, for a request that names it so: the port asks for no password.

mod format;
mod state;
mod text;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use skep_server::{Observer, Pulse, Server};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use format::Format;

/// Most connections at once. One more ends the oldest: so slow clients keep no place from others.
const CONNECTIONS_MAX: usize = 64;
/// The longest time in which the head of a request must arrive.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
/// The longest time that a connection is kept.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(300);
/// Most bytes of the head of a request.
const HEAD_SIZE_MAX: usize = 8192;

/// The pulse is not taken more often.
const PULSE_TIME_MIN: Duration = Duration::from_secs(1);

const PAGE: &str = include_str!("page.html");
const PLAIN: &str = "text/plain; charset=utf-8";

/// Serves the metrics until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    watched: Arc<OnceLock<Watched>>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Serves at an address. Until there is a server to observe, all paths but `/healthz` say that it starts.
    pub(super) fn start(address: SocketAddr) -> io::Result<Watch> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let watched = Arc::new(OnceLock::new());
        let (stop, stopped) = oneshot::channel();
        let served = watched.clone();
        let thread = std::thread::Builder::new().name("skep-metrics".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, served) => {}
                    // Also if the sender was dropped.
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Watch { watched, address, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the address, with the port that was bound.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins to reply with the metrics of a server.
    pub(super) fn observe(&self, server: &Server) {
        let pulse = LastPulse { pulse: server.pulse(), at: Instant::now(), is_there: true };
        // There is one server.
        _ = self.watched.set(Watched {
            observer: server.observer(),
            pulse: Mutex::new(pulse),
            shows_keys: self.address.ip().is_loopback(),
        });
    }
}

/// A server that has started.
#[derive(Debug)]
struct Watched {
    observer: Observer,
    pulse: Mutex<LastPulse>,
    shows_keys: bool,
}

/// The pulse of the shards when it was last taken.
#[derive(Debug)]
struct LastPulse {
    pulse: Pulse,
    at: Instant,
    is_there: bool,
}

impl Watched {
    /// Returns true if each shard has begun a turn between the last two calls that were a second apart.
    fn is_alive(&self) -> bool {
        let mut last = self.pulse.lock().unwrap_or_else(PoisonError::into_inner);
        if last.at.elapsed() >= PULSE_TIME_MIN {
            last.is_there = last.pulse.take();
            last.at = Instant::now();
        }
        last.is_there
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Accepts connections and serves them. Ends with a line in the log if the listener fails.
async fn serve(listener: TcpListener, watched: Arc<OnceLock<Watched>>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "cannot serve metrics");
            return;
        }
    };
    let mut connections: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.retain(|connection| !connection.is_finished());
                if connections.len() == CONNECTIONS_MAX
                    && let Some(oldest) = connections.pop_front()
                {
                    oldest.abort();
                }
                connections.push_back(tokio::spawn(serve_connection(stream, watched.clone())).abort_handle());
            }
            // The client has gone, or the process has no file descriptor left.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve_connection(stream: tokio::net::TcpStream, watched: Arc<OnceLock<Watched>>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = reply_to(&request, watched.get());
        async { Ok::<_, Infallible>(response) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_SIZE_MAX)
        .serve_connection(TokioIo::new(stream), service);
    // An error is one of the client: it left, or sent something else.
    _ = tokio::time::timeout(CONNECTION_TIME_MAX, connection).await;
}

/// Returns the reply to a request.
fn reply_to(request: &Request<Incoming>, watched: Option<&Watched>) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = respond(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET and HEAD\n".to_owned());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let path = request.uri().path();
    if path == "/healthz" {
        return match watched.is_none_or(Watched::is_alive) {
            true => respond(StatusCode::OK, PLAIN, "ok\n".to_owned()),
            false => respond(StatusCode::SERVICE_UNAVAILABLE, PLAIN, "a shard makes no turns\n".to_owned()),
        };
    }
    if !matches!(path, "/" | "/metrics" | "/state" | "/readyz") {
        let paths = "there is /, /metrics, /state, /healthz and /readyz\n";
        return respond(StatusCode::NOT_FOUND, PLAIN, paths.to_owned());
    }
    let Some(Watched { observer, shows_keys, .. }) = watched else {
        return respond(StatusCode::SERVICE_UNAVAILABLE, PLAIN, "the server starts\n".to_owned());
    };
    match path {
        "/metrics" => {
            let accepted = request.headers().get_all(ACCEPT).iter();
            let format = Format::accepted(accepted.filter_map(|value| value.to_str().ok()));
            respond(StatusCode::OK, format.content_type(), format.convert(text::encode(observer)))
        }
        "/state" => {
            let shows_keys = *shows_keys && names_this_machine(request);
            respond(StatusCode::OK, "application/json", state::encode(observer, shows_keys))
        }
        "/readyz" if observer.takes_writes() => respond(StatusCode::OK, PLAIN, "ok\n".to_owned()),
        "/readyz" => respond(StatusCode::SERVICE_UNAVAILABLE, PLAIN, "the log refuses writes: see INFO\n".to_owned()),
        _ => respond(StatusCode::OK, "text/html; charset=utf-8", PAGE.to_owned()),
    }
}

/// Returns true if the request names the server by an IP address or as `localhost`. A page of another site, whose name leads
/// to this machine, has its own name there, and must not read keys in the browser of an operator.
fn names_this_machine(request: &Request<Incoming>) -> bool {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name == "localhost" || address.parse::<IpAddr>().is_ok()
}

fn respond(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // The page is one file: it loads nothing from elsewhere.
    let policy =
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:";
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    response
}
