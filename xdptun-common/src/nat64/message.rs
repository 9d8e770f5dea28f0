//! ICMP messages (RFC 7915 sections 4.2 and 5.2).
//!
//! The headers that are made here name no extension behind the quoted packet (RFC 4884): it is to be
//! cut off.

use super::LONGER;
use crate::wire::{Icmp as _, IcmpHeader, Ipv4Header, Ipv6Header};

/// Types of ICMP (RFC 792).
mod v4 {
    pub const ECHO_REPLY: u8 = 0;
    pub const UNREACHABLE: u8 = 3;
    pub const ECHO: u8 = 8;
    pub const TIME_EXCEEDED: u8 = 11;
    pub const PARAMETER_PROBLEM: u8 = 12;
    /// A code of [`UNREACHABLE`].
    pub const PROTOCOL: u8 = 2;
}

/// Types of ICMPv6 (RFC 4443).
mod v6 {
    pub const UNREACHABLE: u8 = 1;
    pub const TIME_EXCEEDED: u8 = 3;
    pub const PARAMETER_PROBLEM: u8 = 4;
    pub const ECHO: u8 = 128;
    pub const ECHO_REPLY: u8 = 129;
}

/// No link of IPv4 has a smaller MTU (RFC 791).
const MINIMUM_MTU: u32 = 68;

/// Where the next header field of IPv6 is.
const NEXT_HEADER: u32 = 6;

/// The header of the ICMPv6 message, without checksum, that says what an ICMP message says; `None`
/// if there is none. `quoted_len` is the length of the packet that an error quotes, by its header;
/// `mtu` the most that the next hops of both families take, as the size of an IPv6 packet.
#[must_use]
pub fn to_v6(icmp: &IcmpHeader, quoted_len: u16, mtu: u32) -> Option<IcmpHeader> {
    if let Some(named) = Ipv4Header::mtu(*icmp) {
        let named = match named {
            0 => plateau(quoted_len),
            named => named,
        };
        return Some(Ipv6Header::too_big(mtu.min(named + LONGER)));
    }
    let [kind, code] = icmp.kind_and_code();
    let (kind, code, rest) = match (kind, code) {
        (v4::ECHO, code) => (v6::ECHO, code, icmp.rest()),
        (v4::ECHO_REPLY, code) => (v6::ECHO_REPLY, code, icmp.rest()),
        (v4::UNREACHABLE, v4::PROTOCOL) => (v6::PARAMETER_PROBLEM, 1, NEXT_HEADER),
        (v4::UNREACHABLE, code) => (v6::UNREACHABLE, unreachable_v6(code)?, 0),
        (v4::TIME_EXCEEDED, code) => (v6::TIME_EXCEEDED, code, 0),
        (v4::PARAMETER_PROBLEM, 0 | 2) => {
            (v6::PARAMETER_PROBLEM, 0, pointer_v6(icmp.rest() >> 24)?)
        }
        // Queries other than echo, redirects, source quench, and what is not known.
        _ => return None,
    };
    Some(IcmpHeader::new(kind, code, rest))
}

/// The header of the ICMP message, without checksum, that says what an ICMPv6 message says; `None`
/// if there is none. `mtu` is the most that the next hops of both families take, as the size of an
/// IPv4 packet.
#[must_use]
pub fn to_v4(icmp: &IcmpHeader, mtu: u32) -> Option<IcmpHeader> {
    if let Some(named) = Ipv6Header::mtu(*icmp) {
        let named = named.saturating_sub(LONGER).max(MINIMUM_MTU);
        let mtu = mtu.min(named).min(u16::MAX.into());
        return Some(Ipv4Header::too_big(mtu));
    }
    let [kind, code] = icmp.kind_and_code();
    let (kind, code, rest) = match (kind, code) {
        (v6::ECHO, code) => (v4::ECHO, code, icmp.rest()),
        (v6::ECHO_REPLY, code) => (v4::ECHO_REPLY, code, icmp.rest()),
        (v6::UNREACHABLE, code) => (v4::UNREACHABLE, unreachable_v4(code)?, 0),
        (v6::TIME_EXCEEDED, code) => (v4::TIME_EXCEEDED, code, 0),
        (v6::PARAMETER_PROBLEM, 0) => (v4::PARAMETER_PROBLEM, 0, pointer_v4(icmp.rest())? << 24),
        (v6::PARAMETER_PROBLEM, 1) => (v4::UNREACHABLE, v4::PROTOCOL, 0),
        // Neighbours, multicast listeners, and what is not known.
        _ => return None,
    };
    Some(IcmpHeader::new(kind, code, rest))
}

/// How many bytes of the packet an ICMP error quotes, behind which an extension stands (RFC 4884
/// section 4.1); 0 if it does not say.
#[inline(always)]
#[must_use]
pub const fn quoted_v4(icmp: &IcmpHeader) -> u32 {
    let [kind, _] = icmp.kind_and_code();
    match kind {
        v4::UNREACHABLE | v4::TIME_EXCEEDED | v4::PARAMETER_PROBLEM => {
            (icmp.rest() >> 16 & 0xff) * 4
        }
        _ => 0,
    }
}

/// The same of an ICMPv6 error.
#[inline(always)]
#[must_use]
pub const fn quoted_v6(icmp: &IcmpHeader) -> u32 {
    let [kind, _] = icmp.kind_and_code();
    match kind {
        v6::UNREACHABLE | v6::TIME_EXCEEDED => (icmp.rest() >> 24) * 8,
        _ => 0,
    }
}

/// What "destination unreachable" of ICMP is in ICMPv6, by its code.
const fn unreachable_v6(code: u8) -> Option<u8> {
    const NO_ROUTE: u8 = 0;
    const PROHIBITED: u8 = 1;
    const PORT: u8 = 4;
    match code {
        0 | 1 | 5..=8 | 11 | 12 => Some(NO_ROUTE),
        3 => Some(PORT),
        9 | 10 | 13 | 15 => Some(PROHIBITED),
        _ => None,
    }
}

/// The other way.
const fn unreachable_v4(code: u8) -> Option<u8> {
    const HOST: u8 = 1;
    const PORT: u8 = 3;
    const HOST_PROHIBITED: u8 = 10;
    match code {
        0 | 2 | 3 => Some(HOST),
        1 => Some(HOST_PROHIBITED),
        4 => Some(PORT),
        _ => None,
    }
}

/// The field of an IPv6 header that a byte of an IPv4 header is in, if there is one (figure 3).
const fn pointer_v6(at: u32) -> Option<u32> {
    match at {
        0 | 1 => Some(at),
        2 | 3 => Some(4),
        8 => Some(7),
        9 => Some(NEXT_HEADER),
        12..=15 => Some(8),
        16..=19 => Some(24),
        _ => None,
    }
}

/// The other way (figure 6).
const fn pointer_v4(at: u32) -> Option<u32> {
    match at {
        0 | 1 => Some(at),
        4 | 5 => Some(2),
        6 => Some(9),
        7 => Some(8),
        8..=23 => Some(12),
        24..=39 => Some(16),
        _ => None,
    }
}

/// The MTU to guess if an error names none: the next that links have below the length of the packet
/// (RFC 1191 section 7).
const fn plateau(len: u16) -> u32 {
    match len {
        32_001..=u16::MAX => 32_000,
        17_915..=32_000 => 17_914,
        8167..=17_914 => 8166,
        4353..=8166 => 4352,
        2003..=4352 => 2002,
        1493..=2002 => 1492,
        1007..=1492 => 1006,
        509..=1006 => 508,
        297..=508 => 296,
        _ => 68,
    }
}
