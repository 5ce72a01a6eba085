//! Certificates that a test makes, and a relay that speaks TLS to the clients and plain TCP to a server.
//!
//! ```text
//!   clients ══ TLS ══▶ relay ── plain TCP ──▶ server
//! ```

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};
use skep_client::{ClientIdentity, ClientSettings, ClientTlsSettings};
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// An authority, and the certificates that it has signed, as files of a directory.
pub(crate) struct Authority {
    directory: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// The years in which a certificate is valid.
#[derive(Clone, Copy)]
pub(crate) struct Years {
    pub(crate) first: i32,
    pub(crate) last: i32,
}

/// Years that no test will see the end of.
pub(crate) const LONG: Years = Years { first: 2020, last: 4000 };

impl Authority {
    /// Makes an authority. Its certificate is `ca.pem`.
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("ca.pem"), issuer.pem()).unwrap();
        Authority { directory, issuer }
    }

    /// Signs a certificate. Its files are NAME.pem and NAME.key.
    pub(crate) fn sign(&self, name: &str, hosts: &[&str], years: Years) -> &Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(hosts.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(years.first, 1, 1), date_time_ymd(years.last, 1, 1));
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        self
    }

    /// Returns the path of a file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the certificate of a client.
    pub(crate) fn identity(&self, name: &str) -> ClientIdentity {
        ClientIdentity { certificate: self.path(&format!("{name}.pem")), key: self.path(&format!("{name}.key")) }
    }

    /// Returns settings of a client that trusts this authority.
    pub(crate) fn trusted(&self) -> ClientSettings {
        let tls = ClientTlsSettings { ca: Some(self.path("ca.pem")), identity: None };
        ClientSettings { tls, retries_max: 1, ..ClientSettings::default() }
    }

    /// Returns what a server with the certificate NAME.pem speaks.
    pub(crate) fn server(&self, name: &str, speaks: Speaks) -> Arc<ServerConfig> {
        let provider = Arc::new(default_provider());
        let versions = if speaks.only_tls12 { vec![&TLS12] } else { vec![&TLS12, &TLS13] };
        let builder = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&versions).unwrap();
        let builder = if speaks.asks_clients {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(self.path("ca.pem")).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let certificate = CertificateDer::from_pem_file(self.path(&format!("{name}.pem"))).unwrap();
        let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).unwrap();
        Arc::new(builder.with_single_cert(vec![certificate], key).unwrap())
    }
}

/// What a relay speaks.
#[derive(Clone, Copy, Default)]
pub(crate) struct Speaks {
    pub(crate) only_tls12: bool,
    pub(crate) asks_clients: bool,
}

/// A relay that runs until it is dropped.
pub(crate) struct TlsRelay {
    pub(crate) address: SocketAddr,
    /// The number of times that all connections were cut; `u64::MAX` ends the relay.
    cuts: watch::Sender<u64>,
    thread: Option<JoinHandle<()>>,
}

impl TlsRelay {
    /// Starts a relay to a server, on a free port.
    pub(crate) fn start(config: Arc<ServerConfig>, server: SocketAddr) -> TlsRelay {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (cuts, watched) = watch::channel(0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                relay(listener, config.into(), server, watched).await;
            });
        });
        TlsRelay { address, cuts, thread: Some(thread) }
    }

    /// Returns the address for clients that know this machine by a name.
    pub(crate) fn named(&self, name: &str) -> String {
        format!("tls:{name}:{}", self.address.port())
    }

    /// Cuts all connections, without an end of their sessions.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

impl Drop for TlsRelay {
    fn drop(&mut self) {
        self.cuts.send_modify(|cuts| *cuts = u64::MAX);
        self.thread.take().unwrap().join().unwrap();
    }
}

async fn relay(listener: TcpListener, acceptor: TlsAcceptor, server: SocketAddr, mut cuts: watch::Receiver<u64>) {
    loop {
        let socket = tokio::select! {
            accepted = listener.accept() => accepted.unwrap().0,
            _ = cuts.wait_for(|cuts| *cuts == u64::MAX) => return,
        };
        let (acceptor, mut cuts) = (acceptor.clone(), cuts.clone());
        cuts.mark_unchanged();
        tokio::spawn(async move {
            let both = async {
                socket.set_nodelay(true)?;
                let mut secure = acceptor.accept(socket).await?;
                let mut plain = TcpStream::connect(server).await?;
                plain.set_nodelay(true)?;
                copy_bidirectional(&mut secure, &mut plain).await
            };
            tokio::select! {
                // A client may break off at any time.
                _ = both => {}
                _ = cuts.changed() => {}
            }
        });
    }
}
