//! The RDMA device that has an IP address. RoCE (version 2) sends in UDP packets: each address of the network interface
//! is an entry of the table of GIDs of its port, which the kernel shows in files.
//!
//! ```text
//!   /sys/class/infiniband/DEVICE/ports/PORT/gids/INDEX              0000:0000:0000:0000:0000:ffff:0a09:0001
//!                                          /gid_attrs/types/INDEX   RoCE v2
//! ```

use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use super::verbs::Device;

const DEVICES: &str = "/sys/class/infiniband";

/// Returns the GID of an IP address.
pub(super) fn gid_of(address: IpAddr) -> [u8; 16] {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Opens the device that has this IP address.
pub(super) fn open(address: IpAddr) -> Result<Arc<Device>> {
    let no_device = || Error::new(ErrorKind::NotFound, format!("no RDMA device (RoCE v2) has the address {address}"));
    let (name, port, gid_index) = find(Path::new(DEVICES), gid_of(address)).ok_or_else(no_device)?;
    Device::open(&name, port, gid_index)
}

/// Returns the name of the device, the port, and the index of the GID.
fn find(devices: &Path, gid: [u8; 16]) -> Option<(String, u8, u8)> {
    let gid = Ipv6Addr::from(gid);
    names(devices).find_map(|device| {
        let ports = devices.join(&device).join("ports");
        names(&ports).find_map(|port| {
            let port_path = ports.join(&port);
            names(&port_path.join("gids")).find_map(|index| {
                let is_ours = read(&port_path.join("gids").join(&index)).is_some_and(|text| text.parse() == Ok(gid));
                let kind = || read(&port_path.join("gid_attrs/types").join(&index));
                let is_found = is_ours && kind().is_some_and(|kind| kind == "RoCE v2");
                is_found.then(|| Some((device.clone(), port.parse().ok()?, index.parse().ok()?))).flatten()
            })
        })
    })
}

fn names(path: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

fn read(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_with_the_address_is_found() {
        let root = std::env::temp_dir().join(format!("skep-rdma-port-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/ports/1/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001\n");
        write("b/ports/2/gids/0", "0000:0000:0000:0000:0000:ffff:0a09:0001\n");
        write("b/ports/2/gid_attrs/types/0", "IB/RoCE v1\n");
        write("b/ports/2/gids/1", "0000:0000:0000:0000:0000:ffff:0a09:0001\n");
        write("b/ports/2/gid_attrs/types/1", "RoCE v2\n");
        let find = |text: &str| find(&root, gid_of(text.parse().unwrap()));
        assert_eq!(find("10.9.0.1"), Some(("b".to_owned(), 2, 1)));
        assert_eq!(find("::ffff:10.9.0.1"), Some(("b".to_owned(), 2, 1)));
        assert_eq!(find("10.9.0.2"), None);
        assert_eq!(find("fe80::1"), None, "its kind is not known");
        fs::remove_dir_all(root).unwrap();
    }
}
