//! Datagrams that a host forwards, with room before their headers.
//!
//! A socket leaves none for the longer header, so the payload must move. Packets from a
//! tunnel device have some, like those of kernel WireGuard.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use etherparse::PacketBuilder;
use xdptun_lab::checksum::transport_sum;
use xdptun_lab::tap::Tap;
use xdptun_lab::vnet::Vnet;
use xdptun_lab::{Direct, Family, Kind, Offload};

use crate::route::PORT;

/// The device.
const DEV: &str = "tun0";

/// Where the UDP header has its checksum.
const CHECKSUM: usize = 6;

/// How long a flow may take to open.
const PATIENCE: Duration = Duration::from_millis(200);

/// How often it is tried.
const ATTEMPTS: usize = 50;

/// A tunnel device of the first host, and the network beyond it.
pub struct Forwarded {
    device: Tap,
    sources: [IpAddr; 2],
    destinations: [IpAddr; 2],
}

impl Forwarded {
    /// Makes the device, and a route back to the network beyond it.
    pub fn new(Direct { a, b }: &Direct) -> Result<Self> {
        let device = Tap::open(&a.netns, DEV, Kind::Tun, Offload::Checksum)?;
        for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            a.netns.sysctl(key, "1")?;
        }
        let batch = format!(
            "address add 10.9.0.1/24 dev {DEV}\naddress add fd09::1/64 dev {DEV} nodad\n\
             link set {DEV} up\n"
        );
        a.netns.run_with_input("ip", ["-batch", "-"], &batch)?;
        let back = format!(
            "route add 10.9.0.0/24 via {}\nroute add fd09::/64 via {}\n",
            a.v4, a.v6
        );
        b.netns.run_with_input("ip", ["-batch", "-"], &back)?;
        Ok(Self {
            device,
            sources: [[10, 9, 0, 2].into(), [0xfd09, 0, 0, 0, 0, 0, 0, 2].into()],
            destinations: Family::BOTH.map(|family| b.address(family)),
        })
    }

    /// Sends until the receiver gets something: the flow is open.
    pub fn open(&self, family: Family, receiver: &UdpSocket) -> Result<()> {
        receiver.set_read_timeout(Some(PATIENCE))?;
        for _ in 0..ATTEMPTS {
            self.send(family, 64, false, 1)?;
            if receiver.recv(&mut [0; 2048]).is_ok() {
                return Ok(());
            }
        }
        bail!("no forwarded datagram arrives over {family}")
    }

    /// Sends datagrams, with their checksums pending or complete.
    pub fn send(&self, family: Family, length: usize, pending: bool, count: u64) -> Result<()> {
        let at = family as usize;
        let (source, destination) = (self.sources[at], self.destinations[at]);
        let builder = match (source, destination) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                PacketBuilder::ipv4(from.octets(), to.octets(), 64)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                PacketBuilder::ipv6(from.octets(), to.octets(), 64)
            }
            _ => unreachable!("both are of one family"),
        };
        let payload: Vec<u8> = (0..length).map(|index| index as u8).collect();
        let mut packet = Vec::new();
        builder
            .udp(PORT, PORT)
            .write(&mut packet, &payload)
            .context("cannot build a datagram")?;
        let start = family.header_len();
        let vnet = if pending {
            let udp_len = u16::try_from(packet.len() - start)?;
            let protocol_and_len = transport_sum(source, destination, 17, &[]);
            let sum = u32::from(protocol_and_len) + u32::from(udp_len);
            let sum = (sum & 0xffff) + (sum >> 16);
            packet[start + CHECKSUM..][..2].copy_from_slice(&(sum as u16).to_be_bytes());
            Vnet::default().with_pending_checksum(start as u16, CHECKSUM as u16)
        } else {
            Vnet::default()
        };
        for _ in 0..count {
            self.device.send(vnet, &packet)?;
        }
        Ok(())
    }
}
