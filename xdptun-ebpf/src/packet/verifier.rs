//! Bounds that the verifier sees.
//!
//! The compiler tests one register and then uses a copy of another width. Linux 6.1 did not
//! learn the bounds of the copy from that test.

use crate::machine::opaque;

/// A length that the verifier knows to be from 1 to `MAX`; `None` if it is not.
/// (Kernel 6.1 does not learn from `len != 0` that it is at least 1.)
#[inline(always)]
pub fn bounded<const MAX: usize>(len: u32) -> Option<u32> {
    let last = opaque(u64::from(len).wrapping_sub(1));
    if last >= MAX as u64 {
        return None;
    }
    Some(last as u32 + 1)
}

/// A number that a header tells, as the verifier knows it to be one of 16 bits.
/// (Kernel 6.1 does not learn that from a conversion of network byte order.)
#[inline(always)]
pub fn told(number: u16) -> usize {
    opaque(number.into()) as usize & 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_told_number_is_itself() {
        for number in [0, 1, 0x8000, u16::MAX] {
            assert_eq!(told(number), usize::from(number));
        }
    }

    #[test]
    fn a_bounded_length_is_from_one_to_the_most() {
        for len in 1..=64 {
            assert_eq!(bounded::<64>(len), Some(len));
        }
        for len in [0, 65, 0x8000_0000, u32::MAX] {
            assert_eq!(bounded::<64>(len), None);
        }
    }
}
