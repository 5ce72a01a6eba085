//! The certificates of the server: they are read at the start, and again when the program asks for it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{Error, RootCertStore};
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate, X509Version};

/// The files that let the server speak TLS at its TCP ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificate of the server and those that lead from it to a root, in PEM.
    pub certificate: PathBuf,
    /// The private key of that certificate, in PEM.
    pub key: PathBuf,
    /// The certificates that sign those of clients, in PEM. With them, each client needs a certificate.
    pub client_ca: Option<PathBuf>,
}

/// The reason why the certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read, or that has something else.
    #[error("{}: {reason}: choose a PEM file with {wanted}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What it should have.
        wanted: &'static str,
        /// Why it does not.
        reason: String,
    },
    /// A certificate and a key that do not belong together, or that are of a kind that is not known.
    #[error("{} and {}: {reason}: choose the key of this certificate", certificate.display(), key.display())]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// What is wrong.
        reason: Error,
    },
    /// A certificate of an old version, which clients do not accept.
    #[error(
        "{}: the certificate is of version {version}, and TLS needs version 3: sign it with extensions, such as its names, by \
         `openssl x509 -req -extfile FILE`",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The version: 1 or 2.
        version: u32,
    },
    /// A certificate whose time is over or has not begun, where another one is in force.
    #[error("{}: {reason}: choose a certificate that is valid now", path.display())]
    Time {
        /// The file.
        path: PathBuf,
        /// When its time ended, or begins.
        reason: String,
    },
}

/// The certificates in force.
#[derive(Debug)]
pub(crate) struct Certificates {
    settings: TlsSettings,
    in_force: Mutex<InForce>,
}

/// The certificates with which new connections begin.
#[derive(Clone, Debug)]
struct InForce {
    config: Arc<ServerConfig>,
    /// When that of the server expires, in seconds since 1970.
    expiry: i64,
}

impl Certificates {
    /// Reads the files. The log tells of a certificate of the server whose time is over or has not begun: clients refuse it.
    pub(crate) fn read(settings: &TlsSettings) -> Result<Certificates, TlsError> {
        let (in_force, time) = configure(settings)?;
        if let Err(reason) = time {
            tracing::warn!("{}: {reason}: clients will refuse it", settings.certificate.display());
        }
        Ok(Certificates { settings: settings.clone(), in_force: Mutex::new(in_force) })
    }

    /// Reads the files again. If one is wrong, or the time of the server's certificate is over or has not begun, the
    /// certificates before stay in force.
    pub(crate) fn read_again(&self) -> Result<(), TlsError> {
        let (in_force, time) = configure(&self.settings)?;
        time.map_err(|reason| TlsError::Time { path: self.settings.certificate.clone(), reason })?;
        *self.lock() = in_force;
        Ok(())
    }

    /// Returns what a new connection begins with.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.lock().config.clone()
    }

    /// Returns when the certificate of the server expires, in seconds since 1970.
    pub(crate) fn expiry(&self) -> i64 {
        self.lock().expiry
    }

    fn lock(&self) -> MutexGuard<'_, InForce> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if each client needs a certificate.
    pub(crate) fn are_asked_of_clients(&self) -> bool {
        self.settings.client_ca.is_some()
    }
}

/// Reads the files of the settings. Returns also the reason if the certificate of the server is not valid now.
fn configure(settings: &TlsSettings) -> Result<(InForce, Result<(), String>), TlsError> {
    const KEY: &str = "a private key";
    let TlsSettings { certificate, key, client_ca } = settings;
    let chain = certificates(certificate)?;
    // It is the first one; there is at least one.
    let (expiry, time) = examine(certificate, &chain[0])?;
    let private_key = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong_file(key, KEY, &error))?;
    // Its signatures and ciphers are built by the compiler that other crates need too.
    let provider = Arc::new(default_provider());
    let versions = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&TLS12, &TLS13]);
    let builder =
        versions.map_err(|reason| TlsError::Pair { certificate: certificate.clone(), key: key.clone(), reason })?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| TlsError::File {
                path: path.clone(),
                wanted: CERTIFICATES,
                reason: error.to_string(),
            })?)
        }
    };
    let pair = builder.with_single_cert(chain, private_key);
    let config = pair.map_err(|reason| match reason {
        // The words of its text are those for the certificate of a peer.
        Error::InvalidCertificate(reason) => TlsError::File {
            path: certificate.clone(),
            wanted: CERTIFICATES,
            reason: format!("its certificate cannot be used: {reason}"),
        },
        reason => TlsError::Pair { certificate: certificate.clone(), key: key.clone(), reason },
    })?;
    Ok((InForce { config: Arc::new(config), expiry }, time))
}

/// Returns when a certificate expires, in seconds since 1970, and the reason if it is not valid now. Those after it in the file
/// may have expired: clients need not use them.
fn examine(path: &Path, certificate: &CertificateDer<'_>) -> Result<(i64, Result<(), String>), TlsError> {
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|error| TlsError::File {
        path: path.to_owned(),
        wanted: CERTIFICATES,
        reason: format!("it has something else: {error}"),
    })?;
    if certificate.version() != X509Version::V3 {
        // They are counted from 0.
        return Err(TlsError::Version { path: path.to_owned(), version: certificate.version().0 + 1 });
    }
    let (validity, now) = (certificate.validity(), ASN1Time::now());
    let (begin, end) = (validity.not_before, validity.not_after);
    let time = match () {
        () if now > end => Err(format!("the certificate expired on {end}")),
        () if now < begin => Err(format!("the certificate is not valid before {begin}")),
        () => Ok(()),
    };
    Ok((end.timestamp(), time))
}

const CERTIFICATES: &str = "certificates";

/// Reads the certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if certificates.is_empty() => Err(wrong_file(path, CERTIFICATES, &pem::Error::NoItemsFound)),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(wrong_file(path, CERTIFICATES, &error)),
    }
}

fn wrong_file(path: &Path, wanted: &'static str, error: &pem::Error) -> TlsError {
    let reason = match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => format!("it has no {}", wanted.trim_start_matches("a ")),
        error => format!("it is not PEM: {error}"),
    };
    TlsError::File { path: path.to_owned(), wanted, reason }
}
