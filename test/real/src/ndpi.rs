//! nDPI, which recognises protocols by their first datagrams.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use etherparse::PacketBuilder;
use xdptun_lab::command::run;
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Capture, Frame, Netns};
use xdptun_test_net::unpacked;
use xdptun_test_net::wire::segments;

/// Payloads of segments, in their order.
pub struct Payloads(Vec<(SocketAddr, SocketAddr, Vec<u8>)>);

impl Payloads {
    /// What crossed the wire by a port.
    pub fn captured(capture: Capture<Vec<Frame>>, port: u16) -> Result<Self> {
        let frames = capture.stop()?;
        let segments = segments(&frames, port).into_iter();
        let data = segments.filter(|segment| segment.is_data());
        let payloads = data.map(|one| (one.source, one.destination, one.payload.to_vec()));
        Ok(Self(payloads.collect()))
    }

    /// Their bytes.
    pub fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|(_, _, payload)| &payload[..])
    }

    /// The protocol that nDPI names for them in UDP datagrams; it looks for WireGuard and QUIC only
    /// there.
    pub fn protocol(&self, netns: &Netns) -> Result<String> {
        let directory = Scratch::new()?;
        let packets = directory.path().join("pcap");
        fs::write(&packets, self.as_pcap()?)?;
        let mut command = unpacked::program(netns, "libndpi-bin", "usr/bin/ndpiReader");
        only_protocol(&run(command.arg("-i").arg(&packets))?)
    }

    /// A file in the format of libpcap.
    fn as_pcap(&self) -> Result<Vec<u8>> {
        /// Version 2.4, no offset, whole packets, Ethernet.
        const HEADER: [u32; 6] = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, 1];
        let mut file: Vec<u8> = HEADER.iter().flat_map(|word| word.to_le_bytes()).collect();
        for (index, (source, destination, payload)) in self.0.iter().enumerate() {
            let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
            let builder = match (source, destination) {
                (SocketAddr::V4(from), SocketAddr::V4(to)) => {
                    ethernet.ipv4(from.ip().octets(), to.ip().octets(), 64)
                }
                (SocketAddr::V6(from), SocketAddr::V6(to)) => {
                    ethernet.ipv6(from.ip().octets(), to.ip().octets(), 64)
                }
                _ => unreachable!("both are of one family"),
            };
            let mut packet = Vec::new();
            let builder = builder.udp(source.port(), destination.port());
            builder.write(&mut packet, payload)?;
            let length = u32::try_from(packet.len())?;
            let microseconds = u32::try_from(index)?;
            let record = [1, microseconds, length, length];
            file.extend(record.iter().flat_map(|word| word.to_le_bytes()));
            file.extend(packet);
        }
        Ok(file)
    }
}

/// The protocol of the only flow that `ndpiReader` tells of.
fn only_protocol(report: &str) -> Result<String> {
    let lines = report
        .lines()
        .skip_while(|line| *line != "Detected protocols:");
    let protocols = lines.skip(1).take_while(|line| !line.is_empty());
    let protocols: Vec<&str> = protocols.collect();
    ensure!(protocols.len() == 1, "{report}");
    let name = protocols[0].split_whitespace().next();
    Ok(name.context("no name")?.to_owned())
}
