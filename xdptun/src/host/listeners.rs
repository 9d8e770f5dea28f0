//! Servers of this host that become unreachable because packets to their port go elsewhere.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use xdptun_common::wire::Protocol;

use crate::error::{Context as _, Result};
use crate::host::ports::PortRange;
use crate::host::proc::read_list;

/// Ports among `owned` on which a TCP server listens, in ascending order.
///
/// # Errors
///
/// If the kernel's tables cannot be read.
pub fn listening(owned: &[PortRange]) -> Result<Vec<String>> {
    let mut ports = BTreeSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match read_list(table) {
            Ok(text) => ports.extend(listening_in(&text)),
            // No IPv6 on this host.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).context(table),
        }
    }
    let ours = |port: &u16| owned.iter().any(|range| range.contains(*port));
    let ports = ports.into_iter().filter(ours);
    Ok(ports.map(|port| port.to_string()).collect())
}

/// The ends at which servers of this host wait for packets that other hosts can send.
#[derive(Debug)]
pub struct Servers {
    tcp: BTreeSet<(u16, IpAddr)>,
    udp: BTreeSet<(u16, IpAddr)>,
}

impl Servers {
    /// Those of now.
    ///
    /// # Errors
    ///
    /// If the kernel's tables cannot be read.
    pub fn read() -> Result<Self> {
        let read = |tables: [&str; 2], state| {
            let mut ends = BTreeSet::new();
            for table in tables {
                match read_list(table) {
                    Ok(text) => {
                        ends.extend(sockets_in(&text, state).map(|(own, port)| (port, own)));
                    }
                    // No IPv6 on this host.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error).context(table),
                }
            }
            Ok(ends)
        };
        Ok(Self {
            tcp: read(["/proc/net/tcp", "/proc/net/tcp6"], LISTENING)?,
            udp: read(["/proc/net/udp", "/proc/net/udp6"], UNCONNECTED)?,
        })
    }

    /// Whether one waits for packets of a protocol to a port of this address, or to any address
    /// if that is 0.0.0.0 or `::`.
    #[must_use]
    pub fn has(&self, address: IpAddr, port: u16, protocol: Protocol) -> bool {
        let ends = match protocol {
            Protocol::TCP => &self.tcp,
            _ => &self.udp,
        };
        let least = (port, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let mut of_port = ends.range(least..).take_while(|(at, _)| *at == port);
        of_port.any(|(_, own)| own.is_unspecified() || address.is_unspecified() || address == *own)
    }
}

/// `TCP_LISTEN` of the kernel's `tcp_states.h`, as its tables write it.
const LISTENING: &str = "0A";

/// `TCP_CLOSE`, which stands for a UDP socket that is connected to no peer.
const UNCONNECTED: &str = "07";

/// The local ports of the listening sockets in one of the kernel's tables.
fn listening_in(table: &str) -> impl Iterator<Item = u16> {
    sockets_in(table, LISTENING).map(|(_, port)| port)
}

/// The local ends of the sockets of a state in one of the kernel's tables that other hosts can
/// reach.
fn sockets_in(table: &str, wanted: &'static str) -> impl Iterator<Item = (IpAddr, u16)> {
    table.lines().filter_map(move |line| {
        let mut words = line.split_whitespace();
        let local = words.nth(1)?;
        let state = words.nth(1)?;
        let (words, port) = local.rsplit_once(':')?;
        let own = address(words)?.to_canonical();
        // Other hosts cannot reach the loopback anyway.
        let is_one = state == wanted && !own.is_loopback();
        is_one.then(|| Some((own, u16::from_str_radix(port, 16).ok()?)))?
    })
}

/// An address as these tables write it: each 32-bit word of the address, read in this
/// machine's byte order, in hexadecimal.
fn address(words: &str) -> Option<IpAddr> {
    let word = |at| u32::from_str_radix(words.get(at..at + 8)?, 16).ok();
    let mut bytes = Vec::new();
    for at in (0..words.len()).step_by(8) {
        bytes.extend(word(at)?.to_ne_bytes());
    }
    match <[u8; 4]>::try_from(&bytes[..]) {
        Ok(bytes) => Some(bytes.into()),
        Err(_) => <[u8; 16]>::try_from(&bytes[..]).ok().map(IpAddr::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_who_listens() {
        let loopback = u32::from_ne_bytes([127, 0, 0, 1]);
        let table = format!(
            "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:01BB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 00000000:0050 00000000:D431 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0 20 4 0 10 -1
   2: 00000000000000000000000000000000:1F40 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 3 1 0 100 0 0 10 0
   3: {loopback:08X}:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4 1 0 100 0 0 10 0
   4: 000000000000000000000000{:08X}:0019 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 5 1 0 100 0 0 10 0
",
            u32::from_ne_bytes([0, 0, 0, 1])
        );
        assert_eq!(listening_in(&table).collect::<Vec<_>>(), [443, 8000]);
    }
}
