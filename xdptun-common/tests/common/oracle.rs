//! The Internet checksum, written a second time: byte by byte, folding at once,
//! in network byte order. Nothing here comes from the crate under test.

/// The one's-complement sum of `bytes` (RFC 1071 section 4.1); an odd last byte
/// is the high half of its word.
pub fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for (position, byte) in bytes.iter().enumerate() {
        sum += u32::from(*byte) << if position % 2 == 0 { 8 } else { 0 };
        if sum > 0xffff {
            sum -= 0xffff;
        }
    }
    u16::try_from(sum).expect("folded after each byte")
}

/// The checksum field over `bytes`, as it lies in a packet.
pub fn checksum(bytes: &[u8]) -> [u8; 2] {
    (!sum(bytes)).to_be_bytes()
}
