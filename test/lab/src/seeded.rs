//! Randomness that a seed repeats.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};

/// Random numbers. Every iteration of a run has its own, so that one iteration can
/// be repeated without those before it.
#[derive(Debug)]
pub struct Random(Pcg64Mcg);

impl Random {
    /// The numbers of iteration `iteration` of a run with `seed`. `stream` separates
    /// users of random numbers that have the same seed and iteration.
    #[must_use]
    pub fn new(seed: u64, stream: u64, iteration: u64) -> Self {
        let mut bytes = [0; 16];
        let mut first = Pcg64Mcg::seed_from_u64(seed ^ stream.rotate_left(56));
        first.fill_bytes(&mut bytes);
        let [low, high] = [&bytes[..8], &bytes[8..]]
            .map(|half| u64::from_le_bytes(half.try_into().expect("eight bytes")));
        // The generator spreads neighbouring seeds apart itself.
        Self(Pcg64Mcg::seed_from_u64(low ^ high.wrapping_add(iteration)))
    }

    /// Any number.
    pub fn number(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// A number less than `end`, which must not be zero.
    pub fn below(&mut self, end: usize) -> usize {
        // Lemire's multiplication; the bias is far below what a test can see.
        ((u64::from(self.number()) * end as u64) >> 32) as usize
    }

    /// A number from `start` to `end`, both included.
    pub fn between(&mut self, start: usize, end: usize) -> usize {
        start + self.below(end - start + 1)
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of several.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// One of several, each as often as its weight says.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn weighted<T: Clone>(&mut self, of: &[(usize, T)]) -> T {
        let mut rest = self.below(of.iter().map(|(weight, _)| weight).sum());
        for (weight, value) in of {
            if rest < *weight {
                return value.clone();
            }
            rest -= weight;
        }
        unreachable!("less than the sum of all weights")
    }

    /// Any byte.
    pub fn byte(&mut self) -> u8 {
        self.number().to_le_bytes()[0]
    }

    /// Bytes: mostly random, sometimes those that checksums are weak at.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        match self.below(8) {
            0 => {}
            1 => bytes.fill(0xff),
            _ => self.0.fill_bytes(&mut bytes),
        }
        bytes
    }

    /// A 16-bit value that lengths and checksums are sensitive to.
    pub fn boundary(&mut self) -> u16 {
        let edge = self.pick(&[0u16, 8, 20, 40, 60, 0xff, 1500, 0x7fff, 0x8000, 0xffff]);
        match self.below(4) {
            0 => edge,
            1 => edge.wrapping_add(1),
            2 => edge.wrapping_sub(1),
            _ => self.number() as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(seed: u64, stream: u64, iteration: u64) -> u32 {
        Random::new(seed, stream, iteration).number()
    }

    /// The numbers behind a seed in a report must never change.
    #[test]
    fn a_seed_always_gives_the_same_numbers() {
        assert_eq!(first(1, 0, 0), first(1, 0, 0));
        assert_ne!(first(1, 0, 0), first(2, 0, 0));
        assert_ne!(first(1, 0, 0), first(1, 1, 0));
        assert_ne!(first(1, 0, 0), first(1, 0, 1));
    }

    #[test]
    fn ranges_are_reached_to_their_ends() {
        let mut random = Random::new(0, 0, 0);
        let mut seen = [0; 4];
        for _ in 0..1000 {
            seen[random.between(1, 3)] += 1;
        }
        assert!(
            seen[0] == 0 && seen[1..].iter().all(|times| *times > 200),
            "{seen:?}"
        );
        let rare = (0..1000).filter(|_| random.weighted(&[(9, false), (1, true)]));
        assert!((50..200).contains(&rare.count()));
    }
}
