//! Asks a server for its state, over HTTP.

use std::pin::pin;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::failure::{Failure, reason};
use crate::live::State;

/// The longest time that a reply may take.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Most bytes of a reply.
const SIZE_MAX: usize = 1 << 20;

/// A server's port for its figures.
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
                format!("{address} is not the port of a Skep server's figures, or one of another version: {error}")
            }),
            Ok(Err(error)) => Err(format!(
                "no server shows its figures at {address}: {}: start one with `skep serve --metrics {address}`",
                reason(&error)
            )),
            Err(_) => Err(format!("{address} has not replied within {} s", TIME_MAX.as_secs())),
        }
    }
}

/// Asks once, on a connection of its own.
async fn ask(address: &str) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get("/state").header("host", address).body(Empty::<Bytes>::new())?;
    let mut reply = pin!(async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), SIZE_MAX).collect().await?.to_bytes();
        if !status.is_success() {
            return Err(format!("it replies {status}: {}", String::from_utf8_lossy(&body).trim()).into());
        }
        Ok(body)
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
