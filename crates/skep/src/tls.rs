//! The flags by which a client logs in to a server, and speaks TLS with it.

use std::path::PathBuf;

use skep::{ClientIdentity, ClientTlsSettings};

use crate::failure::Failure;
use crate::password::{Login, PasswordSource};

/// How a client logs in.
#[derive(clap::Args, Debug)]
pub(crate) struct LoginSource {
    #[command(flatten)]
    password: PasswordSource,
    #[command(flatten)]
    tls: TlsSource,
}

impl LoginSource {
    /// Returns the login at an address.
    pub(crate) fn login(&self, address: &str) -> Result<Login, Failure> {
        let mut login = Login::new(address, &self.password)?;
        self.tls.secure(&mut login)?;
        Ok(login)
    }
}

/// If a client speaks TLS, whom it trusts, and by which certificate it is known.
#[derive(clap::Args, Debug)]
struct TlsSource {
    /// Speak TLS with the server, as an address tls:HOST:PORT does; each of the other flags of TLS implies it.
    #[arg(long, global = true)]
    tls: bool,
    /// PEM file with the certificates of the authorities to trust [default: those of the system].
    #[arg(long, global = true, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// PEM file with the certificate of this client, for a server that wants one.
    #[arg(long, global = true, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file with the private key of that certificate.
    #[arg(long, global = true, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl TlsSource {
    /// Lets a login use TLS, if a flag or its address says so.
    fn secure(&self, login: &mut Login) -> Result<(), Failure> {
        let is_wanted = self.tls || self.tls_ca.is_some() || self.tls_cert.is_some();
        if is_wanted {
            login.address = secured(&login.address).map_err(Failure::Usage)?;
        }
        let identity = self.tls_cert.clone().zip(self.tls_key.clone());
        let identity = identity.map(|(certificate, key)| ClientIdentity { certificate, key });
        login.settings.tls = ClientTlsSettings { ca: self.tls_ca.clone(), identity };
        Ok(())
    }
}

/// Returns the address with TLS.
fn secured(address: &str) -> Result<String, String> {
    match address.split_once(':') {
        Some(("tls", _)) => Ok(address.to_owned()),
        Some(("tcp", rest)) => Ok(format!("tls:{rest}")),
        Some((transport @ ("udp" | "rdma" | "shm"), _)) => {
            Err(format!("{transport} has no TLS: name the native port (HOST:PORT) with --addr, or leave out --tls"))
        }
        Some(("redis", rest)) => Ok(format!("rediss:{rest}")),
        Some(("rediss", _)) => Ok(address.to_owned()),
        _ => Ok(format!("tls:{address}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tcp_has_tls() {
        for address in ["localhost:7379", "tcp:localhost:7379", "tls:localhost:7379"] {
            assert_eq!(secured(address).unwrap(), "tls:localhost:7379");
        }
        for address in ["redis://u@localhost:1", "rediss://u@localhost:1"] {
            assert_eq!(secured(address).unwrap(), "rediss://u@localhost:1");
        }
        assert_eq!(secured("[::1]:7379").unwrap(), "tls:[::1]:7379");
        for address in ["udp:localhost:7379", "rdma:localhost:7379", "shm:/run/skep.sock"] {
            assert!(secured(address).unwrap_err().contains("has no TLS"));
        }
    }
}
