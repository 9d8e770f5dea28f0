//! What is sent, and why the translators may differ.

use anyhow::Result;
use etherparse::IpNumber;
use xdptun_lab::Family;
use xdptun_lab::checksum::sum;

use crate::described::View;
use crate::ends::Ends;
use crate::gateway::Gateway;
use crate::{described, fragments, headers, messages, refused, transport};

/// The client's port in the first row.
const FIRST_PORT: u16 = 4000;

/// The MTU of an ordinary wire.
const MTU: u32 = 1500;

/// Why an error comes from the device.
pub const DEVICE: &str = "the IPv4 half of this host sends it, which IPv6 knows as the device";

/// Packets of one sender.
type Packets = Box<dyn Fn(&Ends) -> Vec<Vec<u8>>>;

/// A row of the table.
pub struct Row {
    /// Who sends what.
    pub sent: String,
    /// Why the translators differ; empty if they agree.
    pub why: &'static str,
    packets: Packets,
    mtu: u32,
    identified: bool,
}

impl Row {
    /// A row on which both agree.
    pub fn new<P: Into<Vec<u8>>>(
        sent: impl Into<String>,
        packet: impl Fn(&Ends) -> P + 'static,
    ) -> Self {
        Self::several(sent, move |ends| vec![packet(ends).into()])
    }

    /// The same of several packets.
    pub fn several(
        sent: impl Into<String>,
        packets: impl Fn(&Ends) -> Vec<Vec<u8>> + 'static,
    ) -> Self {
        Self {
            sent: sent.into(),
            why: "",
            packets: Box::new(packets),
            mtu: MTU,
            identified: false,
        }
    }

    /// They differ, and why.
    pub fn because(mut self, why: &'static str) -> Self {
        self.why = why;
        self
    }

    /// The wire of IPv4 takes less.
    pub fn behind(mut self, mtu: u32) -> Self {
        self.mtu = mtu;
        self
    }

    /// The identification of whole packets matters.
    pub fn identified(mut self) -> Self {
        self.identified = true;
        self
    }

    /// Sends it, as the row of that number; what comes out, in words.
    pub fn run(&self, gateway: &mut Gateway, number: u16) -> Result<String> {
        let ends = gateway.open(FIRST_PORT + number)?;
        let mut packets = (self.packets)(&ends);
        for packet in &mut packets {
            identify(packet, ends.port);
        }
        gateway.narrow(self.mtu)?;
        let output = gateway.pass(&packets)?;
        gateway.narrow(MTU)?;
        let view = View {
            sent: match packets[0][0] >> 4 {
                4 => Family::V4,
                _ => Family::V6,
            },
            ends: &ends,
            hops: gateway.hops(),
            identified: self.identified,
        };
        described::all(&output, &view)
    }
}

/// Gives a packet of IPv4 an identification, and a fragment of IPv6 one that ends so.
fn identify(packet: &mut [u8], number: u16) {
    let number = number.to_be_bytes();
    if packet[0] >> 4 == 4 {
        let length = usize::from(packet[0] & 0xf) * 4;
        let header = &mut packet[..length];
        header[4..6].copy_from_slice(&number);
        header[10..12].fill(0);
        let checksum = !sum(header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    } else if packet[6] == IpNumber::IPV6_FRAGMENTATION_HEADER.0 {
        packet[46..48].copy_from_slice(&number);
    }
}

/// Rows of one subject.
pub struct Group {
    /// The subject.
    pub title: &'static str,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// All rows. The last one has a consequence later.
pub fn all() -> Vec<Group> {
    [
        transport::groups(),
        headers::groups(),
        fragments::groups(),
        messages::groups(),
        refused::groups(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
