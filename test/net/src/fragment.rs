//! Fragmentation, as routers and IPv6 hosts do it.

use etherparse::{IpFragOffset, IpHeaders, Ipv6FragmentHeader};
use xdptun_lab::{Carried, Kind};

/// Cuts a frame into fragments of `size` payload bytes; the last may be shorter.
///
/// # Panics
///
/// If it is no IP packet, or `size` is no multiple of eight.
pub fn fragment(kind: Kind, frame: &Carried, size: usize) -> Vec<Carried> {
    let (link, packet) = frame.bytes.split_at(kind.header_len());
    let pieces = packets(packet, size).into_iter();
    pieces
        .map(|piece| frame.with_bytes([link, &piece].concat()))
        .collect()
}

/// Cuts an IP packet into fragments in the same way.
///
/// # Panics
///
/// As [`fragment`].
#[must_use]
pub fn packets(packet: &[u8], size: usize) -> Vec<Vec<u8>> {
    assert!(size.is_multiple_of(8), "offsets count units of eight bytes");
    let (ip, payload) = IpHeaders::from_slice(packet).expect("an IP packet");
    let pieces: Vec<&[u8]> = payload.payload.chunks(size).collect();
    let mut offset = IpFragOffset::ZERO;
    let mut packets = Vec::new();
    for (number, piece) in (1..).zip(&pieces) {
        let more = number < pieces.len();
        let mut ip = ip.clone();
        match &mut ip {
            IpHeaders::Ipv4(ip, _) => {
                ip.dont_fragment = false;
                ip.more_fragments = more;
                ip.fragment_offset = offset;
            }
            IpHeaders::Ipv6(_, extensions) => {
                const NUMBER: u32 = 0x1234_5678;
                let header = Ipv6FragmentHeader::new(payload.ip_number, offset, more, NUMBER);
                extensions.fragment = Some(header);
            }
        }
        ip.set_payload_len(piece.len()).expect("an IP packet");
        ip.set_next_headers(payload.ip_number);
        let mut bytes = Vec::new();
        ip.write(&mut bytes).expect("memory takes all");
        bytes.extend(*piece);
        packets.push(bytes);
        let units = u16::try_from(number * size / 8).expect("less than an IP packet");
        offset = IpFragOffset::try_new(units).expect("less than an IP packet");
    }
    packets
}
