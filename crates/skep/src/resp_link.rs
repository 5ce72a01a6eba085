//! Connections to RESP ports: of a server of Skep, or of Redis. With TLS if the address says so.

use std::fs;
use std::path::Path;
use std::time::Duration;

use redis::{Client, ClientTlsConfig, Connection, IntoConnectionInfo, RedisError, TlsCertificates};

use crate::failure::{Failure, reason};
use crate::password::Login;

/// Default RESP address of `skep serve`.
pub(crate) const DEFAULT_ADDRESS: &str = "127.0.0.1:6379";
/// A server on the same network takes a connection in this time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A module is compiled in this time, also on a machine that is busy.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Connects to HOST:PORT, tls:HOST:PORT, redis://HOST:PORT or rediss://HOST:PORT. A password in the login replaces that of
/// the address.
pub(crate) fn connect(login: &Login) -> Result<Connection, Failure> {
    let address = &login.address;
    let shown = without_password(address);
    let unreachable = |error: RedisError| {
        let port = "name its RESP port, and the password with --password-file";
        Failure::Runtime(format!("cannot reach a server at {shown}: {}: {port}", describe(&error)))
    };
    let mut info = url(address).into_connection_info().map_err(unreachable)?;
    if let Some(password) = &login.settings.password {
        let settings = info.redis_settings().clone().set_password(String::from_utf8_lossy(password.bytes()));
        let settings = match login.settings.user.as_str() {
            "" => settings,
            user => settings.set_username(user),
        };
        info = info.set_redis_settings(settings);
    }
    let client = match info.addr() {
        redis::ConnectionAddr::TcpTls { .. } => Client::build_with_tls(info, certificates(login)?),
        _ => Client::open(info),
    };
    let connection =
        client.and_then(|client| client.get_connection_with_timeout(CONNECT_TIMEOUT)).map_err(unreachable)?;
    connection.set_read_timeout(Some(TIMEOUT)).map_err(unreachable)?;
    Ok(connection)
}

/// Returns what the server has replied, or what the system says.
pub(crate) fn describe(error: &RedisError) -> String {
    error.detail().map_or_else(|| reason(error), str::to_owned)
}

/// Returns the address without the password that a URL may have.
pub(crate) fn without_password(address: &str) -> String {
    match (address.split_once("://"), address.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => address.to_owned(),
    }
}

fn url(address: &str) -> String {
    if address.contains("://") {
        return address.to_owned();
    }
    match address.split_once(':') {
        Some(("tls", rest)) => format!("rediss://{rest}"),
        _ => format!("redis://{}", address.strip_prefix("tcp:").unwrap_or(address)),
    }
}

/// Reads the certificates of a login. Without an authority, those of the system are trusted.
fn certificates(login: &Login) -> Result<TlsCertificates, Failure> {
    let tls = &login.settings.tls;
    let client_tls = tls.identity.as_ref().map(|identity| {
        let (client_cert, client_key) = (read(&identity.certificate)?, read(&identity.key)?);
        Ok::<_, Failure>(ClientTlsConfig { client_cert, client_key })
    });
    let root_cert = tls.ca.as_deref().map(read);
    Ok(TlsCertificates { client_tls: client_tls.transpose()?, root_cert: root_cert.transpose()? })
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::Usage(format!("cannot read {}: {}", path.display(), reason(&error))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_become_urls() {
        for (address, expected) in [
            ("localhost:1", "redis://localhost:1"),
            ("tcp:localhost:1", "redis://localhost:1"),
            ("tls:[::1]:1", "rediss://[::1]:1"),
            ("redis://u:p@h:1/2", "redis://u:p@h:1/2"),
        ] {
            assert_eq!(url(address), expected);
        }
        assert_eq!(without_password("redis://u:p@h:1/2"), "redis://h:1/2");
        assert_eq!(without_password("h:1"), "h:1");
    }
}
