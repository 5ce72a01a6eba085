//! Settings that contradict each other.

use std::net::SocketAddr;

use skep_server::ServerSettings;

use super::Configuration;
use super::values::PortAddress;
use crate::failure::Failure;

impl Configuration {
    /// Refuses settings that contradict each other. The settings of the server follow from these.
    pub(crate) fn check(&self, settings: &ServerSettings) -> Result<(), Failure> {
        if self.resp == Some(PortAddress::Off)
            && let Some(port @ 1..) = self.port
        {
            let reason = format!("--port {port} and --resp off contradict each other: leave one of them out");
            return Err(Failure::Usage(reason));
        }
        let resp = if self.port.is_some() { "--port" } else { "--resp" };
        let ports = |flag, address, count| Ports { flag, address, count };
        let tcp = [
            ports("--listen", Some(settings.native), 1),
            ports(resp, settings.resp, 1),
            ports("--memcached", settings.memcached, 1),
            ports("--metrics", self.metrics(), 1),
        ];
        for (index, other) in tcp.iter().enumerate() {
            for first in &tcp[..index] {
                refuse_one_port(first, other)?;
            }
        }
        let udp = ports("--udp", settings.udp, settings.shards);
        refuse_one_port(&udp, &ports("--memcached-udp", settings.memcached_udp, 1))
    }
}

/// The ports of a setting: `count` from that of the address on, if it has an address.
struct Ports<'a> {
    flag: &'a str,
    address: Option<SocketAddr>,
    count: u16,
}

/// Refuses two settings if the port of the second one is among those of the first.
fn refuse_one_port(first: &Ports<'_>, second: &Ports<'_>) -> Result<(), Failure> {
    let (Some(address), Some(other)) = (first.address, second.address) else { return Ok(()) };
    let [ip, other_ip] = [address.ip(), other.ip()];
    let is_wildcard = ip.is_ipv4() == other_ip.is_ipv4() && (ip.is_unspecified() || other_ip.is_unspecified());
    let ports = u32::from(address.port())..u32::from(address.port()) + u32::from(first.count);
    // The system chooses another port for each 0.
    let is_chosen = address.port() > 0 && other.port() > 0;
    if is_chosen && (ip == other_ip || is_wildcard) && ports.contains(&u32::from(other.port())) {
        let count = first.count;
        let ports = if count > 1 { format!(" (a port for each of {count} shards)") } else { String::new() };
        return Err(Failure::Usage(format!(
            "{} {address}{ports} and {} {other} have the same port: choose another port for one of them",
            first.flag, second.flag
        )));
    }
    Ok(())
}
