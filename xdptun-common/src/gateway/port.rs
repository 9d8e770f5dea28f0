//! The choice of a source port.

/// How many ports are tried: at nine tenths of a range taken, one in 800 choices finds none.
pub const ATTEMPTS: u32 = 64;

/// The port to try: first the source's own, so that it is kept where that is possible (RFC 4787
/// section 4.2.1), then ports from a random place on (RFC 6056 section 3.3.1): half of them even
/// or odd as the own (RFC 4787 REQ-4), then any. `None` if an own port is not in the range.
#[inline(always)]
#[must_use]
pub const fn candidate(
    own: u16,
    [first, last]: [u16; 2],
    random: u32,
    attempt: u32,
) -> Option<u16> {
    if attempt == 0 {
        return if first <= own && own <= last {
            Some(own)
        } else {
            None
        };
    }
    let size = last.wrapping_sub(first) as u32 + 1;
    // An odd step visits every port of a range of a power of two, and many of any other.
    let place = random.wrapping_add(attempt.wrapping_mul(STEP));
    if attempt <= ATTEMPTS / 2 && size > 1 {
        let parity = (own ^ first) & 1;
        return Some(first.wrapping_add(2 * below(size / 2, place) + parity));
    }
    Some(first.wrapping_add(below(size, place)))
}

/// A number below `size`, for one of 32 bits: the upper half of their product, without a
/// division.
#[inline(always)]
const fn below(size: u32, place: u32) -> u16 {
    ((place as u64 * size as u64) >> 32) as u16
}

/// The golden ratio of 2^32: neighbours in time lie far apart.
const STEP: u32 = 0x9e37_79b1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_kept_if_it_is_in_the_range() {
        for (own, expected) in [
            (999, None),
            (1000, Some(1000)),
            (1999, Some(1999)),
            (2000, None),
        ] {
            assert_eq!(candidate(own, [1000, 1999], 7, 0), expected);
        }
    }

    /// 64 different ports for any start, in small and large ranges.
    #[test]
    fn attempts_lie_in_the_range_and_apart() {
        for range in [[1, 65535], [20_000, 29_999], [40_000, 40_127]] {
            for random in [0, 1, 0x7fff_ffff, u32::MAX, 12_345] {
                let mut tried = [false; 65536];
                let mut different = 0;
                for attempt in 1..ATTEMPTS {
                    let port = candidate(5, range, random, attempt).unwrap();
                    assert!((range[0]..=range[1]).contains(&port), "{port}");
                    different += u32::from(!tried[usize::from(port)]);
                    tried[usize::from(port)] = true;
                }
                assert!(different >= ATTEMPTS * 3 / 4, "{range:?}: {different}");
            }
        }
        assert_eq!(candidate(5, [443, 443], 99, 17), Some(443));
    }

    #[test]
    fn half_of_the_attempts_keep_the_parity() {
        for (own, range) in [(5000, [1, 1000]), (5001, [1, 1000]), (7, [2000, 2004])] {
            for attempt in 1..=ATTEMPTS / 2 {
                let port = candidate(own, range, 0x1234_5678, attempt).unwrap();
                assert_eq!(port & 1, own & 1, "{own} {range:?}");
            }
            let mut rest = ATTEMPTS / 2 + 1..ATTEMPTS;
            let other = |attempt| candidate(own, range, 0x1234_5678, attempt).unwrap() ^ own;
            assert!(rest.any(|attempt| other(attempt) & 1 == 1), "{own}");
        }
    }
}
