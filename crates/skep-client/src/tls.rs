//! TLS of both clients: whom a client trusts, by which certificate it is known, and why a session ended.
//!
//! The files are read when a client connects first. A client that connects again uses what was read then.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, Error, RootCertStore};

use crate::system_error::reason;

/// Whom a client trusts, and by which certificate it is known. By default it trusts the authorities of the system, and
/// has no certificate.
///
/// ```
/// use skep_client::{ClientSettings, ClientTlsSettings};
///
/// let tls = ClientTlsSettings { ca: Some("/etc/skep/ca.pem".into()), ..ClientTlsSettings::default() };
/// let settings = ClientSettings { tls, ..ClientSettings::default() };
/// # let _ = settings;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTlsSettings {
    /// A PEM file with the certificates of the authorities to trust, in place of those of the system.
    pub ca: Option<PathBuf>,
    /// The certificate of the client, if the server wants one.
    pub identity: Option<ClientIdentity>,
}

/// The certificate of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// A PEM file with the certificate, and those that lead from it to one of an authority.
    pub certificate: PathBuf,
    /// A PEM file with its private key.
    pub key: PathBuf,
}

/// The reason why a client and a server do not speak TLS with each other.
#[derive(Debug, thiserror::Error)]
pub enum TlsFailure {
    /// A file of the client cannot be used.
    #[error("{}: {reason}: choose a PEM file with {wanted}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The content that it should have.
        wanted: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The certificate of the client and its key cannot be used together.
    #[error("{} and {}: {reason}: choose the key of this certificate", certificate.display(), key.display())]
    Identity {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// What is wrong with them.
        reason: String,
    },
    /// The client has no authority to trust.
    #[error("this system has no certificates of authorities: name a file with that of your authority (--tls-ca)")]
    NoAuthorities,
    /// The address has no name that a certificate can have.
    #[error("`{0}` is no name for which a certificate can be issued: connect by the name in the certificate")]
    InvalidName(String),
    /// No trusted authority has signed the certificate of the server.
    #[error(
        "no authority that this client trusts has signed the certificate of the server: name the file with the \
         certificate of its authority (--tls-ca)"
    )]
    UnknownAuthority,
    /// The certificate of the server is no longer valid.
    #[error("the certificate of the server has expired: renew it there, and check the clock of this machine")]
    Expired,
    /// The certificate of the server is not valid yet.
    #[error("the certificate of the server is not valid yet: check the clocks of both machines")]
    NotYetValid,
    /// The certificate of the server is for other names.
    #[error("{0}: connect by a name in the certificate of the server, or issue a certificate for this one")]
    WrongName(CertificateNames),
    /// The port sent bytes that are not TLS.
    #[error(
        "the server does not speak TLS at this port: connect without TLS, or start it with --tls-cert and \
         --tls-key"
    )]
    NotTls,
    /// The port closed the connection in the handshake.
    #[error("the server closed the connection during the handshake: does it speak TLS at this port?")]
    Closed,
    /// The server serves only clients with a certificate.
    #[error("the server wants a certificate of the client: name one and its key (--tls-cert, --tls-key)")]
    CertificateNeeded,
    /// The server does not accept the certificate of the client.
    #[error("the server refuses the certificate of this client ({0}): name one that its --tls-client-ca has signed")]
    CertificateRefused(String),
    /// Something else.
    #[error("{0}")]
    Other(String),
}

/// The name that a client expects, and those that a certificate has.
#[derive(Debug, thiserror::Error)]
#[error("the certificate of the server is not for `{expected}`, it has {}", names(.presented))]
pub struct CertificateNames {
    /// The name in the address.
    pub expected: String,
    /// The names in the certificate.
    pub presented: Vec<String>,
}

fn names(presented: &[String]) -> String {
    if presented.is_empty() { "no name".to_owned() } else { presented.join(", ") }
}

impl TlsFailure {
    /// Returns the reason for which reading or writing failed, if TLS is that reason.
    pub(crate) fn of(error: &io::Error) -> Option<TlsFailure> {
        error.get_ref()?.downcast_ref::<Error>().map(TlsFailure::of_session)
    }

    /// Returns the reason for which a handshake failed, or the error of the system.
    pub(crate) fn of_handshake(error: io::Error) -> Result<TlsFailure, io::Error> {
        let error = match error.downcast::<TlsFailure>() {
            Ok(failure) => return Ok(failure),
            Err(error) => error,
        };
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                Ok(TlsFailure::Closed)
            }
            _ => TlsFailure::of(&error).ok_or(error),
        }
    }

    fn of_session(error: &Error) -> TlsFailure {
        use AlertDescription as Alert;
        match error {
            Error::InvalidCertificate(reason) => TlsFailure::of_certificate(reason),
            Error::InvalidMessage(_) => TlsFailure::NotTls,
            Error::AlertReceived(Alert::CertificateRequired) => TlsFailure::CertificateNeeded,
            Error::AlertReceived(
                alert @ (Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::DecryptError
                | Alert::AccessDenied),
            ) => TlsFailure::CertificateRefused(format!("{alert:?}")),
            error => TlsFailure::Other(error.to_string()),
        }
    }

    fn of_certificate(reason: &CertificateError) -> TlsFailure {
        match reason {
            // A client that trusts the wrong authority of the same name finds a signature that is not its own.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsFailure::UnknownAuthority,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsFailure::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => TlsFailure::NotYetValid,
            CertificateError::NotValidForNameContext { expected, presented } => {
                let expected = expected.to_str().into_owned();
                TlsFailure::WrongName(CertificateNames { expected, presented: presented.clone() })
            }
            reason => TlsFailure::Other(format!("the certificate of the server is not valid: {reason}")),
        }
    }
}

/// Reads the files of the settings.
pub(crate) fn configure(settings: &ClientTlsSettings) -> Result<Arc<ClientConfig>, TlsFailure> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsFailure::Other(error.to_string()))?
        .with_root_certificates(authorities(settings.ca.as_deref())?);
    let Some(ClientIdentity { certificate, key }) = &settings.identity else {
        return Ok(Arc::new(builder.with_no_client_auth()));
    };
    let chain = certificates(certificate)?;
    let private_key = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong_file(key, "a private key", &error))?;
    let config = builder.with_client_auth_cert(chain, private_key).map_err(|error| TlsFailure::Identity {
        certificate: certificate.clone(),
        key: key.clone(),
        reason: error.to_string(),
    })?;
    Ok(Arc::new(config))
}

/// Returns the name that the certificate of a server must have.
pub(crate) fn server_name(name: &str) -> Result<ServerName<'static>, TlsFailure> {
    ServerName::try_from(name.to_owned()).map_err(|_| TlsFailure::InvalidName(name.to_owned()))
}

/// Returns the certificates to trust: those of the file, or of the system.
fn authorities(file: Option<&Path>) -> Result<RootCertStore, TlsFailure> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(path) => {
            let (_, ignored) = roots.add_parsable_certificates(certificates(path)?);
            if roots.is_empty() {
                let reason = format!("none of its {ignored} certificates can be decoded");
                return Err(TlsFailure::File { path: path.to_owned(), wanted: CERTIFICATES, reason });
            }
        }
        None => {
            // The system may have old certificates that cannot be decoded. The others are enough.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(TlsFailure::NoAuthorities);
            }
        }
    }
    Ok(roots)
}

const CERTIFICATES: &str = "certificates";

/// Reads the certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFailure> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if certificates.is_empty() => Err(wrong_file(path, CERTIFICATES, &pem::Error::NoItemsFound)),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(wrong_file(path, CERTIFICATES, &error)),
    }
}

fn wrong_file(path: &Path, wanted: &'static str, error: &pem::Error) -> TlsFailure {
    let reason = match error {
        pem::Error::Io(error) => reason(error),
        pem::Error::NoItemsFound => format!("it has no {}", wanted.trim_start_matches("a ")),
        error => format!("it is not PEM: {error}"),
    };
    TlsFailure::File { path: path.to_owned(), wanted, reason }
}
