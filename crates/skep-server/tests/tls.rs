//! TLS at the native, RESP and memcached ports, with certificates that the tests make.

mod support;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_server::{Server, ServerSettings, StartError, TlsSettings};
use skep_wire::native::{Hello, ReplyFrame, Welcome};
use support::{connect, receive, server_with};
use tempfile::TempDir;

const SMALL: u64 = 16 << 20;

/// Certificates in a directory: those of the server, of a client, and of the authority that signs both.
struct Files {
    directory: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Files {
    fn new() -> Files {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::write(directory.path().join("ca.pem"), authority.pem()).unwrap();
        let files = Files { directory, authority };
        files.issue("server", &files.authority);
        files.issue("client", &files.authority);
        files
    }

    /// Writes a certificate for this machine, and its key.
    fn issue(&self, name: &str, issuer: &CertifiedIssuer<'static, KeyPair>) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, issuer).unwrap();
        fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn settings(&self, asks_clients: bool) -> TlsSettings {
        TlsSettings {
            certificate: self.path("server.pem"),
            key: self.path("server.key"),
            client_ca: asks_clients.then(|| self.path("ca.pem")),
        }
    }

    fn server(&self, shards: u16, asks_clients: bool) -> Server {
        server_with(|settings| {
            (settings.shards, settings.memory, settings.ordered_memory, settings.cache_memory) =
                (shards, SMALL, 0, SMALL);
            settings.memcached = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
            settings.tls = Some(self.settings(asks_clients));
        })
    }

    /// Connects a client, which sends its certificate if it `proves_itself`. The handshake follows with the first bytes.
    fn connect(&self, address: SocketAddr, proves_itself: bool) -> Client {
        let versions = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = versions.with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots(&self.path("ca.pem")));
        let config = match proves_itself {
            false => builder.with_no_client_auth(),
            true => {
                let certificate = CertificateDer::from_pem_file(self.path("client.pem")).unwrap();
                let key = PrivateKeyDer::from_pem_file(self.path("client.key")).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        client(address, config)
    }
}

type Client = StreamOwned<ClientConnection, TcpStream>;

fn client(address: SocketAddr, config: ClientConfig) -> Client {
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), connect(address))
}

fn roots(path: &Path) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(path).unwrap()).unwrap();
    roots
}

/// Sends bytes, and compares the reply.
fn expect(client: &mut (impl Read + Write), request: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) {
    client.write_all(request.as_ref()).unwrap();
    client.flush().unwrap();
    let mut bytes = vec![0; reply.as_ref().len()];
    client.read_exact(&mut bytes).unwrap();
    assert_eq!(String::from_utf8_lossy(&bytes), String::from_utf8_lossy(reply.as_ref()));
}

#[test]
fn the_three_protocols_speak_tls() {
    let files = Files::new();
    for shards in [1, 3] {
        let server = files.server(shards, false);
        let mut resp = files.connect(server.resp_address().unwrap(), false);
        expect(&mut resp, "PING\r\nSET k v\r\nGET k\r\n", "+PONG\r\n+OK\r\n$1\r\nv\r\n");

        let mut memcached = files.connect(server.memcached_address().unwrap(), false);
        expect(&mut memcached, "set k 0 0 2\r\nhi\r\nget k\r\n", "STORED\r\nVALUE k 0 2\r\nhi\r\nEND\r\n");

        // The hello may name another shard than the one that has accepted the connection.
        for shard in 0..shards {
            let mut native = files.connect(server.native_address(), false);
            native.write_all(&Hello::new(Some(shard)).encode()).unwrap();
            let mut welcome = [0; Welcome::SIZE];
            native.read_exact(&mut welcome).unwrap();
            let put = Operation::Put { value: b"value", condition: PutCondition::Always };
            let requests = [put, Operation::Get].map(|operation| Request { key: b"key", operation });
            native.write_all(&support::frame(1, &requests)).unwrap();
            let mut reply = Vec::new();
            while ReplyFrame::decode(&reply).unwrap().is_none() {
                let mut part = [0; 64];
                let size = native.read(&mut part).unwrap();
                reply.extend_from_slice(&part[..size]);
            }
            let (reply, _) = ReplyFrame::decode(&reply).unwrap().unwrap();
            assert_eq!(reply.replies().last(), Some(Ok(Ok(Reply::Value(b"value")))));
        }
        server.stop();
    }
}

#[test]
fn long_pipelines_and_large_values_arrive_whole() {
    const COMMANDS: usize = 20_000;
    const LARGE: usize = 1 << 20;
    let files = Files::new();
    let server = files.server(2, false);
    let mut resp = files.connect(server.resp_address().unwrap(), false);
    let value = "v".repeat(LARGE);
    let set = format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n${LARGE}\r\n{value}\r\n");
    expect(&mut resp, &set, "+OK\r\n");
    // The replies are longer than what the server encrypts in advance, and than the buffers of the kernel.
    expect(&mut resp, "GET large\r\n".repeat(8), format!("${LARGE}\r\n{value}\r\n").repeat(8));
    let commands: String = (0..COMMANDS).map(|number| format!("SET k{number} {number}\r\nGET k{number}\r\n")).collect();
    let value = |number: usize| format!("+OK\r\n${}\r\n{number}\r\n", number.to_string().len());
    let replies: String = (0..COMMANDS).map(value).collect();
    expect(&mut resp, commands, replies);
    // A packet for each byte.
    for byte in b"PING\r\n" {
        resp.write_all(&[*byte]).unwrap();
        resp.flush().unwrap();
    }
    expect(&mut resp, "", "+PONG\r\n");
    // Either side ends the session.
    expect(&mut resp, "QUIT\r\n", "+OK\r\n");
    assert_eq!(resp.read(&mut [0; 8]).unwrap(), 0, "a session that the server ends");
    let mut resp = files.connect(server.resp_address().unwrap(), false);
    expect(&mut resp, "PING\r\n", "+PONG\r\n");
    resp.conn.writer().write_all(b"PING\r\n").unwrap();
    resp.conn.send_close_notify();
    let mut replies = String::new();
    resp.read_to_string(&mut replies).unwrap();
    assert_eq!(replies, "+PONG\r\n");
    server.stop();
}

#[test]
fn a_client_that_does_not_speak_tls_is_told_so() {
    let files = Files::new();
    let server = files.server(1, false);
    let told = |address: SocketAddr, bytes: &[u8]| {
        let mut plain = connect(address);
        plain.write_all(bytes).unwrap();
        let mut reply = String::new();
        plain.read_to_string(&mut reply).unwrap();
        reply
    };
    let resp = server.resp_address().unwrap();
    for request in ["PING\r\n", "*1\r\n$4\r\nPING\r\n", "GET / HTTP/1.1\r\n\r\n"] {
        let reply = told(resp, request.as_bytes());
        assert_eq!(reply, "-ERR this port speaks TLS: connect with TLS (redis-cli --tls, rediss://)\r\n");
    }
    let reply = told(server.memcached_address().unwrap(), b"get k\r\n");
    assert_eq!(reply, "SERVER_ERROR this port speaks TLS\r\n");
    // The alert of TLS, which the clients know.
    assert!(told(server.native_address(), &Hello::new(None).encode()).starts_with("\u{15}\u{3}"));
    // Others are served.
    expect(&mut files.connect(resp, false), "PING\r\n", "+PONG\r\n");
    server.stop();
}

#[test]
fn certificates_are_checked() {
    let files = Files::new();
    let server = files.server(1, true);
    let resp = server.resp_address().unwrap();
    expect(&mut files.connect(resp, true), "PING\r\n", "+PONG\r\n");
    let refusal = |mut client: Client| {
        let sent = client.write_all(b"PING\r\n").and_then(|()| client.read_exact(&mut [0; 7]));
        sent.expect_err("a client that is not known").to_string()
    };
    let message = refusal(files.connect(resp, false));
    assert!(message.contains("CertificateRequired"), "{message}");
    // One that another authority has signed, and a server that another one has signed.
    let others = Files::new();
    fs::copy(files.path("ca.pem"), others.path("ca.pem")).unwrap();
    let message = refusal(others.connect(resp, true));
    assert!(message.contains("UnknownCA") || message.contains("DecryptError"), "{message}");
    let message = refusal(Files::new().connect(resp, true));
    assert!(message.contains("UnknownIssuer") || message.contains("BadSignature"), "{message}");
    expect(&mut files.connect(resp, true), "PING\r\n", "+PONG\r\n");
    server.stop();
}

#[test]
fn certificates_are_read_again_while_clients_are_served() {
    let mut files = Files::new();
    let server = files.server(2, false);
    let resp = server.resp_address().unwrap();
    let mut old = files.connect(resp, false);
    expect(&mut old, "PING\r\n", "+PONG\r\n");

    fs::write(files.path("server.key"), "nothing").unwrap();
    let error = server.read_certificates().unwrap_err().to_string();
    assert!(error.contains("server.key: it has no private key: choose a PEM file with a private key"), "{error}");
    expect(&mut files.connect(resp, false), "PING\r\n", "+PONG\r\n");

    // One whose time is over does not replace one that is in force.
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2020, 2, 1);
    let key = KeyPair::generate().unwrap();
    fs::write(files.path("server.pem"), params.signed_by(&key, &files.authority).unwrap().pem()).unwrap();
    fs::write(files.path("server.key"), key.serialize_pem()).unwrap();
    let error = server.read_certificates().unwrap_err().to_string();
    assert!(error.contains("server.pem: the certificate expired on Feb  1 00:00:00 2020"), "{error}");
    expect(&mut files.connect(resp, false), "PING\r\n", "+PONG\r\n");

    // One after that of the server may have expired: old clients know its root, and others need not use it.
    let over = fs::read_to_string(files.path("server.pem")).unwrap();
    files.issue("server", &files.authority);
    let valid = fs::read_to_string(files.path("server.pem")).unwrap();
    fs::write(files.path("server.pem"), valid + &over).unwrap();
    assert!(server.read_certificates().unwrap());
    expect(&mut files.connect(resp, false), "PING\r\n", "+PONG\r\n");

    // Another authority: only certificates that were read again are known to its clients.
    let others = Files::new();
    for name in ["server.pem", "server.key"] {
        fs::copy(others.path(name), files.path(name)).unwrap();
    }
    assert!(server.read_certificates().unwrap());
    expect(&mut others.connect(resp, false), "PING\r\n", "+PONG\r\n");
    expect(&mut old, "PING\r\n", "+PONG\r\n");
    files.directory = others.directory;
    server.stop();
}

#[test]
fn a_start_with_wrong_files_says_what_is_wrong() {
    let files = Files::new();
    fs::write(files.path("empty.pem"), "").unwrap();
    let error = |change: &dyn Fn(&mut TlsSettings)| {
        let mut tls = files.settings(true);
        change(&mut tls);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let settings = ServerSettings { native: any, resp: None, tls: Some(tls), ..ServerSettings::default() };
        match Server::start(&settings) {
            Err(StartError::Tls(error)) => error.to_string().replace(files.directory.path().to_str().unwrap(), "DIR"),
            other => panic!("{other:?}"),
        }
    };
    for (found, expected) in [
        (
            error(&|tls| tls.certificate = files.path("none.pem")),
            "DIR/none.pem: No such file or directory (os error 2): choose a PEM file with certificates",
        ),
        (
            error(&|tls| tls.certificate = files.path("empty.pem")),
            "DIR/empty.pem: it has no certificates: choose a PEM file with certificates",
        ),
        (
            error(&|tls| tls.key = files.path("client.key")),
            "DIR/server.pem and DIR/client.key: keys may not be consistent: KeyMismatch: choose the key of this certificate",
        ),
        (
            error(&|tls| tls.client_ca = Some(files.path("empty.pem"))),
            "DIR/empty.pem: it has no certificates: choose a PEM file with certificates",
        ),
    ] {
        assert_eq!(found, expected);
    }
}

/// A certificate of version 1, as `openssl x509 -req` makes without `-extfile`.
const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBJDCBywIUHmFQHNk4VPeBCokZTROQxJ/AwdcwCgYIKoZIzj0EAwIwFDESMBAG
A1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyOTA5MjA0M1oYDzIxMjYxMTA1MDkyMDQz
WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AAQ91y252GnwZrfEBsoT4kvKKDHD567ykJOdHwDuTWFY1xGMSfTDI9Ilg8uzuGfS
KufWCKS+iBRyVRSuwxQQLWHgMAoGCCqGSM49BAMCA0gAMEUCIBjaBTwUOg053R+g
PZa99FrqTdMgiRnPy0h/YiBUiiS5AiEAqJGbbg99Kyos1kHfmC74p1dfL6hOad8r
qzhjZjEqmgE=
-----END CERTIFICATE-----
";

#[test]
fn a_certificate_of_version_1_is_named() {
    let files = Files::new();
    let path = files.path("old.pem");
    std::fs::write(&path, VERSION_1).unwrap();
    let settings = TlsSettings { certificate: path.clone(), ..files.settings(false) };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = ServerSettings { native: any, tls: Some(settings), ..ServerSettings::default() };
    let error = Server::start(&settings).unwrap_err().to_string();
    let begin = format!("{}: the certificate is of version 1, and TLS needs version 3", path.display());
    assert!(error.starts_with(&begin) && error.contains("openssl x509 -req -extfile"), "{error}");
    assert!(!error.contains("peer") && !error.contains("key of this"), "{error}");
}

#[test]
fn a_client_that_stops_in_its_handshake_keeps_little_and_not_for_long() {
    let files = Files::new();
    let server = files.server(1, false);
    let resp = server.resp_address().unwrap();
    // The beginning of a packet of 16 KiB of a handshake.
    let begun: Vec<TcpStream> = (0..500)
        .map(|_| {
            let mut stream = connect(resp);
            stream.write_all(&[&[22, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb][..], &[0; 4000]].concat()).unwrap();
            stream
        })
        .collect();
    let since = Instant::now();
    expect(&mut files.connect(resp, false), "PING\r\n", "+PONG\r\n");
    for stream in &begun {
        match receive(stream, &mut [0; 8]) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(since.elapsed() >= Duration::from_secs(5), "a slow client has time");
    server.stop();
}
