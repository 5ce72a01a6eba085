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
        let tcp = [
            ("--listen", Some(settings.native)),
            (resp, settings.resp),
            ("--memcached", settings.memcached),
            ("--metrics", self.metrics()),
        ];
        for (index, &(flag, address)) in tcp.iter().enumerate() {
            for &(other_flag, other) in &tcp[..index] {
                refuse_one_port((other_flag, other), 1, (flag, address))?;
            }
        }
        let first = ("--udp", settings.udp);
        refuse_one_port(first, settings.shards, ("--memcached-udp", settings.memcached_udp))
    }
}

/// Refuses two settings that have the same port. The first one has `count` ports.
fn refuse_one_port(
    (flag, address): (&str, Option<SocketAddr>),
    count: u16,
    (other_flag, other): (&str, Option<SocketAddr>),
) -> Result<(), Failure> {
    let (Some(address), Some(other)) = (address, other) else { return Ok(()) };
    let [ip, other_ip] = [address.ip(), other.ip()];
    let is_wildcard = ip.is_ipv4() == other_ip.is_ipv4() && (ip.is_unspecified() || other_ip.is_unspecified());
    let ports = u32::from(address.port())..u32::from(address.port()) + u32::from(count);
    // The system chooses another port for each 0.
    let is_chosen = address.port() > 0 && other.port() > 0;
    if is_chosen && (ip == other_ip || is_wildcard) && ports.contains(&u32::from(other.port())) {
        let ports = if count > 1 { format!(" (a port for each of {count} shards)") } else { String::new() };
        return Err(Failure::Usage(format!(
            "{flag} {address}{ports} and {other_flag} {other} have the same port: choose another port for one of them"
        )));
    }
    Ok(())
}
