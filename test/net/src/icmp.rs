//! ICMP errors as routers on the way send them.

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::{
    Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpHeaders, IpNumber, Ipv4Header,
    Ipv6Header, icmpv6,
};
use xdptun_lab::vnet::Vnet;
use xdptun_lab::{Carried, Kind};

/// The cause of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The packet is larger than the next link takes.
    TooBig {
        /// Bytes that it takes.
        mtu: u16,
    },
    /// Port unreachable: no socket listens.
    Port,
    /// Host unreachable.
    Host,
}

/// How much of the packet a router quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quote {
    /// The IP header and eight bytes, the least (RFC 792).
    Least,
    /// As much as the minimum MTU of IPv6 lets pass, the most (RFC 4443).
    Most,
}

impl Quote {
    /// Both, to loop over.
    pub const BOTH: [Self; 2] = [Self::Least, Self::Most];
}

/// The error about a packet, from a router that is next to both hosts.
///
/// # Panics
///
/// If the frame is no IP packet.
pub fn error(kind: Kind, frame: &Carried, trouble: Trouble, quote: Quote) -> Carried {
    let (link, packet) = frame.bytes.split_at(kind.header_len());
    let (ip, _) = IpHeaders::from_slice(packet).expect("an IP packet");
    let most = match quote {
        Quote::Least => ip.header_len() + 8,
        Quote::Most => 1280 - 40 - 8,
    };
    let quoted = &packet[..most.min(packet.len())];
    let mut bytes = Vec::new();
    if let [to @ .., _, _] = link {
        let (destination, source) = to.split_at(6);
        bytes.extend([source, destination, &link[12..]].concat());
    }
    match ip {
        IpHeaders::Ipv4(ip, _) => {
            let icmp = Icmpv4Header::with_checksum(v4(trouble), quoted);
            let length = icmp.header_len() + quoted.len();
            let length = u16::try_from(length).expect("less than the minimum MTU");
            let router = [10, 0, 0, 254];
            let outer = Ipv4Header::new(length, 64, IpNumber::ICMP, router, ip.source);
            let outer = outer.expect("less than the minimum MTU");
            outer.write(&mut bytes).expect("memory takes all");
            icmp.write(&mut bytes).expect("memory takes all");
        }
        IpHeaders::Ipv6(ip, _) => {
            let router = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfe];
            let icmp = Icmpv6Header::with_checksum(v6(trouble), router, ip.source, quoted)
                .expect("less than the minimum MTU");
            let length = icmp.header_len() + quoted.len();
            let outer = Ipv6Header {
                payload_length: u16::try_from(length).expect("less than the minimum MTU"),
                next_header: IpNumber::IPV6_ICMP,
                hop_limit: 64,
                source: router,
                destination: ip.source,
                ..Ipv6Header::default()
            };
            outer.write(&mut bytes).expect("memory takes all");
            icmp.write(&mut bytes).expect("memory takes all");
        }
    }
    bytes.extend(quoted);
    Carried {
        to: frame.to.other(),
        vnet: Vnet::default(),
        bytes,
    }
}

fn v4(trouble: Trouble) -> Icmpv4Type {
    Icmpv4Type::DestinationUnreachable(match trouble {
        Trouble::TooBig { mtu } => DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: mtu },
        Trouble::Port => DestUnreachableHeader::Port,
        Trouble::Host => DestUnreachableHeader::Host,
    })
}

fn v6(trouble: Trouble) -> Icmpv6Type {
    match trouble {
        Trouble::TooBig { mtu } => Icmpv6Type::PacketTooBig { mtu: mtu.into() },
        Trouble::Port => Icmpv6Type::DestinationUnreachable(icmpv6::DestUnreachableCode::Port),
        Trouble::Host => Icmpv6Type::DestinationUnreachable(icmpv6::DestUnreachableCode::Address),
    }
}
