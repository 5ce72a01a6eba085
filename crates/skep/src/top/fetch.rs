//! Asks a server for its state, over HTTP.

use std::io;
use std::pin::pin;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::failure::{Failure, quoted, reason};
use crate::live::State;

/// The longest time that a reply may take.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Most bytes of a reply.
const SIZE_MAX: usize = 1 << 20;

/// A server's port for its metrics.
pub(super) struct Source {
    address: String,
    runtime: Runtime,
}

impl Source {
    /// Prepares to ask the port at this address.
    pub(super) fn new(address: &str) -> Result<Source, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        Ok(Source { address: address.to_owned(), runtime })
    }

    /// Returns the state of the server. The error says what to do.
    pub(super) fn fetch(&self) -> Result<State, String> {
        let reply = self.runtime.block_on(async { tokio::time::timeout(TIME_MAX, ask(&self.address)).await });
        let address = &self.address;
        match reply {
            Ok(Ok(body)) => serde_json::from_slice(&body).map_err(|error| {
                format!("{address} is not the port of a Skep server's metrics, or one of another version: {error}")
            }),
            Ok(Err(Trouble::NotConnected(error))) => Err(format!(
                "no server shows its metrics at {address}: {}: start one with `skep serve --metrics {address}`",
                reason(&error)
            )),
            Ok(Err(Trouble::Refused(reply))) => Err(format!("the server at {address} shows no metrics: {reply}")),
            Ok(Err(Trouble::Other)) => Err(format!(
                "{address} is not the port of a Skep server's metrics: name the one of `skep serve --metrics HOST:PORT`"
            )),
            Err(_) => Err(format!("{address} has not replied within {} s", TIME_MAX.as_secs())),
        }
    }
}

/// The reason why there is no state.
enum Trouble {
    NotConnected(io::Error),
    /// The server replied that it has none now.
    Refused(String),
    /// The port is one of another protocol or of another program.
    Other,
}

/// Converts failures of HTTP.
impl<E: std::error::Error> From<E> for Trouble {
    fn from(_: E) -> Trouble {
        Trouble::Other
    }
}

/// Asks once, on a connection of its own.
async fn ask(address: &str) -> Result<Bytes, Trouble> {
    let stream = TcpStream::connect(address).await.map_err(Trouble::NotConnected)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get("/state").header("host", address).body(Empty::<Bytes>::new())?;
    let mut reply = pin!(async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), SIZE_MAX).collect().await.map_err(|_| Trouble::Other)?.to_bytes();
        match status {
            StatusCode::SERVICE_UNAVAILABLE => Err(Trouble::Refused(quoted(String::from_utf8_lossy(&body).trim()))),
            _ if status.is_success() => Ok(body),
            _ => Err(Trouble::Other),
        }
    });
    tokio::select! {
        reply = &mut reply => reply,
        // A reply may be whole before the end of the connection.
        end = connection => match (reply.await, end) {
            (Err(_), Err(error)) => Err(error.into()),
            (reply, _) => reply,
        },
    }
}
