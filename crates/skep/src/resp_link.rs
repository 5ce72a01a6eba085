//! Connections to RESP ports: of a server of Skep, or of Redis. With TLS if the address says so.

use std::fs;
use std::path::Path;

use redis::{Client, ClientTlsConfig, Connection, ErrorKind, IntoConnectionInfo, RedisError, TlsCertificates};

use crate::failure::{Failure, reason};
use crate::password::Login;

/// Default RESP address of `skep serve`.
pub(crate) const DEFAULT_ADDRESS: &str = "127.0.0.1:6379";

/// Connects to HOST:PORT, tls:HOST:PORT, redis://HOST:PORT or rediss://HOST:PORT. A password in the login replaces that of
/// the address. The timeouts are those of the login.
pub(crate) fn connect(login: &Login) -> Result<Connection, Failure> {
    let (address, settings) = (&login.address, &login.settings);
    let is_url = is_url(address);
    let unreachable = |error: RedisError| failed_connection(address, &error);
    let url = if is_url { checked(address)? } else { url(address) };
    let mut info = url.into_connection_info().map_err(unreachable)?;
    if let Some(password) = &settings.password {
        let text = str::from_utf8(password.bytes()).map_err(|_| {
            Failure::Usage(
                "the password is not UTF-8, and the RESP port is asked with text: choose another one".to_owned(),
            )
        })?;
        let redis = info.redis_settings().clone().set_password(text);
        let redis = match settings.user.as_str() {
            "" => redis,
            user => redis.set_username(user),
        };
        info = info.set_redis_settings(redis);
    }
    let client = match info.addr() {
        redis::ConnectionAddr::TcpTls { .. } => Client::build_with_tls(info, certificates(login)?),
        _ => Client::open(info),
    };
    let connection =
        client.and_then(|client| client.get_connection_with_timeout(settings.connect_timeout)).map_err(unreachable)?;
    connection.set_read_timeout(Some(settings.reply_timeout)).map_err(unreachable)?;
    connection.set_write_timeout(Some(settings.reply_timeout)).map_err(unreachable)?;
    Ok(connection)
}

/// Returns the failure of a connection that could not be made. A server that has replied was reached.
fn failed_connection(address: &str, error: &RedisError) -> Failure {
    let (shown, text) = (without_password(address), describe(error));
    let advice = match is_url(address) {
        true => "write its user and its password into the URL: redis://USER:PASSWORD@HOST:PORT",
        false => "name its RESP port, and the password with --password-file",
    };
    Failure::Runtime(match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed => {
            format!("the server at {shown} refuses the connection: {text}: {advice}")
        }
        ErrorKind::Parse => format!("{shown} does not speak RESP: name the RESP port of a server"),
        _ if is_url(address) => format!("cannot reach a server at {shown}: {text}: name its RESP port"),
        _ => format!("cannot reach a server at {shown}: {text}: {advice}"),
    })
}

/// Returns the reply of the server with its code, unless that is ERR, or the system's message.
pub(crate) fn describe(error: &RedisError) -> String {
    if error.is_timeout() {
        return "it has sent nothing for too long".to_owned();
    }
    match (error.code(), error.detail()) {
        (None | Some("ERR"), Some(detail)) => detail.to_owned(),
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => reason(error),
    }
}

/// Returns true if a name is a URL: NAME://, with any name.
pub(crate) fn is_url(name: &str) -> bool {
    let is_of_scheme = |char: char| char.is_ascii_alphanumeric() || "+.-".contains(char);
    name.split_once("://").is_some_and(|(scheme, _)| !scheme.is_empty() && scheme.chars().all(is_of_scheme))
}

/// Returns a URL of a server with its scheme in small letters. Refuses one that names a database, since an import and
/// an export read and write all spaces. No message has a part that may be a password.
fn checked(url: &str) -> Result<String, Failure> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let scheme = scheme.to_ascii_lowercase();
    if !["redis", "rediss"].contains(&scheme.as_str()) {
        let refusal = format!("{scheme}:// is not known: write redis://HOST:PORT, or rediss://HOST:PORT with TLS");
        return Err(Failure::Usage(refusal));
    }
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if tail.contains('@') {
        let refusal = "the password in the URL has a `/`, `?` or `#`: write / as %2F, ? as %3F, # as %23 and @ as %40";
        return Err(Failure::Usage(refusal.to_owned()));
    }
    if !tail.is_empty() && tail != "/" {
        return Err(Failure::Usage(format!(
            "{} has more after its port, such as a database: leave it out; databases 0, 1 and 2 are the spaces, and all are \
             read and written",
            without_password(url)
        )));
    }
    Ok(format!("{scheme}://{authority}"))
}

/// Returns the address without the user and the password that it may have, and without what follows the port.
pub(crate) fn without_password(address: &str) -> String {
    let begin = match (address.find("://"), address.split_once(':')) {
        (Some(end), _) => end + 3,
        (None, Some((transport @ ("tls" | "tcp"), _))) => transport.len() + 1,
        _ => 0,
    };
    let (scheme, rest) = address.split_at(begin);
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let host = &host[..host.find(['/', '?', '#']).unwrap_or(host.len())];
    format!("{scheme}{host}")
}

fn url(address: &str) -> String {
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
        ] {
            assert_eq!(url(address), expected);
        }
        for (address, shown) in [
            ("h:1", "h:1"),
            ("tls:[::1]:1", "tls:[::1]:1"),
            ("u:secret@h:1", "h:1"),
            ("u:sec@ret/@h:1/5", "h:1"),
            ("tls:u:secret@h:1", "tls:h:1"),
            ("tcp::secret@[::1]:1", "tcp:[::1]:1"),
        ] {
            assert_eq!(without_password(address), shown);
        }
    }

    #[test]
    fn a_url_is_of_a_server_and_hides_its_password() {
        for (url, expected) in [
            ("redis://u:secret@h:1", "redis://u:secret@h:1"),
            ("REDISS://:secret@h:1/", "rediss://:secret@h:1"),
            ("redis://h", "redis://h"),
        ] {
            assert_eq!(checked(url).unwrap(), expected);
        }
        for (url, part) in [
            ("redis://:secret@h:1/5", "a database: leave it out"),
            ("redis://:secret@h:1?db=5", "a database: leave it out"),
            ("redis://:secret/1@h:1", "write / as %2F"),
            ("redis+unix://:secret@h:1", "redis+unix:// is not known"),
            ("https://secret.h/secret", "https:// is not known"),
        ] {
            assert!(is_url(url), "{url}");
            let refusal = checked(url).unwrap_err();
            let message = refusal.message().unwrap();
            assert!(message.contains(part) && !message.contains("secret"), "{url}: {message}");
        }
        for name in ["dump.rdb", "a b://h", "://h", "h:1", "-"] {
            assert!(!is_url(name), "{name}");
        }
        assert_eq!(without_password("redis://u:secret/1@h:1/2?token=3"), "redis://h:1");
    }
}
