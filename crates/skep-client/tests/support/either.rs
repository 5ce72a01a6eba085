//! Both clients with one interface, so that each test runs with both.

use std::net::SocketAddr;

use skep_client::{AsyncClient, Client, ClientError, ClientSettings, ServerAddress};

/// A client of either kind.
pub(crate) enum EitherClient {
    Blocking(Client),
    Async(AsyncClient, tokio::runtime::Runtime),
}

/// Calls a method of either client.
macro_rules! call {
    ($client:expr, $method:ident($($argument:expr),*)) => {
        match &mut $client {
            $crate::either::EitherClient::Blocking(client) => client.$method($($argument),*),
            $crate::either::EitherClient::Async(client, runtime) => runtime.block_on(client.$method($($argument),*)),
        }
    };
}

pub(crate) use call;

impl EitherClient {
    /// Connects both clients.
    pub(crate) fn connect_both(
        address: SocketAddr,
        space: u16,
        settings: &ClientSettings,
    ) -> [Result<EitherClient, ClientError>; 2] {
        [false, true].map(|is_async| Self::connect(is_async, address, space, settings))
    }

    /// Connects one of the clients.
    pub(crate) fn connect(
        is_async: bool,
        address: impl Into<ServerAddress>,
        space: u16,
        settings: &ClientSettings,
    ) -> Result<EitherClient, ClientError> {
        if !is_async {
            return Client::connect_with(address, space, settings).map(EitherClient::Blocking);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio starts");
        let connected = runtime.block_on(AsyncClient::connect_with(address, space, settings));
        connected.map(|client| EitherClient::Async(client, runtime))
    }

    pub(crate) fn select(&mut self, space: u16) {
        match self {
            EitherClient::Blocking(client) => client.select(space),
            EitherClient::Async(client, _) => client.select(space),
        }
    }

    pub(crate) fn reconnection_count(&self) -> u64 {
        match self {
            EitherClient::Blocking(client) => client.reconnection_count(),
            EitherClient::Async(client, _) => client.reconnection_count(),
        }
    }
}
