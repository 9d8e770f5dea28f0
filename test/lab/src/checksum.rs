//! The Internet checksum (RFC 1071), written independently of the product.
//!
//! This judges what xdptun put on the wire, so it must not share code with it.

use std::net::IpAddr;

/// The one's-complement sum of `bytes` as big-endian words, not inverted.
///
/// A covered range with a correct checksum inside sums up to `0xffff`.
pub fn sum(bytes: &[u8]) -> u16 {
    let (words, tail) = bytes.as_chunks::<2>();
    let mut total: u64 = words
        .iter()
        .map(|word| u64::from(u16::from_be_bytes(*word)))
        .sum();
    if let [last] = tail {
        total += u64::from(*last) << 8;
    }
    fold(total)
}

/// The sum over the pseudo-header and `segment`, a whole TCP segment or UDP
/// datagram (RFC 9293 section 3.1, RFC 8200 section 8.1).
pub fn transport_sum(source: IpAddr, destination: IpAddr, protocol: u8, segment: &[u8]) -> u16 {
    let addresses = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            u64::from(sum(&source.octets())) + u64::from(sum(&destination.octets()))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            u64::from(sum(&source.octets())) + u64::from(sum(&destination.octets()))
        }
        _ => unreachable!("both addresses come from one IP header"),
    };
    fold(addresses + u64::from(protocol) + segment.len() as u64 + u64::from(sum(segment)))
}

fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    u16::try_from(total).expect("folded to 16 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 1071 section 3.
    #[test]
    fn rfc_1071_example() {
        assert_eq!(
            sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            0xddf2
        );
    }

    #[test]
    fn an_odd_last_byte_is_the_high_half_of_a_word() {
        assert_eq!(sum(&[0x12, 0x34, 0x56]), 0x1234 + 0x5600);
    }
}
