//! Proofs that the sender of a SYN knows a secret: a keyed hash of the SYN's number
//! and of the time, in the value of its timestamp option.

use crate::siphash::siphash24;
use crate::tunnel::veil::VeilKey;

/// How long a proof epoch lasts, in nanoseconds of TAI (`CLOCK_TAI`): 275 s. A
/// proof is good for its epoch and one on either side, so the clocks of two hosts
/// may always differ by one epoch, less the 37 s that TAI is ahead of UTC if only
/// one of the kernels has been told so; and a recorded proof is worthless after three.
pub const PROOF_EPOCH_NS: u64 = 1 << 38;

/// The proof epoch of a time in nanoseconds of TAI.
#[inline(always)]
#[must_use]
pub const fn proof_epoch(now_ns: u64) -> u64 {
    now_ns / PROOF_EPOCH_NS
}

/// The bits of a proof that tell one SYN of a flow from the others; the rest is the
/// hash.
const ORDINAL: u32 = 7;

/// The key of the proofs, derived from the secret that both hosts know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ProofKey(pub [u64; 2]);

crate::plain!(ProofKey: 16);

impl ProofKey {
    /// The proof that SYN number `count` of a flow with initial number `isn` carries in
    /// `epoch`. Eight SYNs in a row have eight proofs: an attacker who copies one of
    /// them spends that one only. A proof travels as the value of the timestamp option
    /// (RFC 7323 section 3), which Linux begins with a random number as well. Nothing
    /// of the addresses is in it, which NATs change on the way.
    #[inline(always)]
    #[must_use]
    pub fn proof(&self, isn: u32, count: u16, epoch: u64) -> u32 {
        // The count alone would show: every first SYN would have the same three bits.
        let ordinal = isn.wrapping_add(u32::from(count)) & ORDINAL;
        let hash = siphash24(self.0, [u64::from(isn) << 32 | u64::from(ordinal), epoch]);
        hash as u32 & !ORDINAL | ordinal
    }

    /// Whether `proof` is one for `isn` in `epoch`.
    #[inline(always)]
    #[must_use]
    pub fn is_proof(&self, proof: u32, isn: u32, epoch: u64) -> bool {
        self.proof(isn, count_of(proof, isn), epoch) == proof
    }
}

/// Which SYN of its flow a proof says it is, of eight.
#[inline(always)]
#[must_use]
pub const fn count_of(proof: u32, isn: u32) -> u16 {
    (proof.wrapping_sub(isn) & ORDINAL) as u16
}

/// How many keys a set may have.
pub const MAX_KEYS: usize = 4;

/// The keys that hold for a peer: the first makes the proofs for it, any of them admits
/// it. So both hosts can go over from one key to another, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct KeySet {
    /// First, because the compiler adds an offset before the check for null, which the verifier
    /// refuses.
    veil: VeilKey,
    proofs: [ProofKey; MAX_KEYS],
}

crate::plain!(KeySet: 80);

impl KeySet {
    /// A set of one to [`MAX_KEYS`] keys; `None` of any other number.
    #[must_use]
    pub fn new(keys: &[ProofKey]) -> Option<Self> {
        if keys.len() > MAX_KEYS {
            return None;
        }
        // Unused places repeat the first key: a key of zeros would admit its guesser.
        let mut set = [*keys.first()?; MAX_KEYS];
        set[..keys.len()].copy_from_slice(keys);
        Some(Self {
            proofs: set,
            veil: VeilKey::default(),
        })
    }

    /// The same set with the key of a veil.
    #[must_use]
    pub const fn with_veil(self, veil: VeilKey) -> Self {
        Self { veil, ..self }
    }

    /// The key of the veil, if there is one.
    #[inline(always)]
    #[must_use]
    pub const fn veil(&self) -> &VeilKey {
        &self.veil
    }

    /// The key that proves.
    #[inline(always)]
    #[must_use]
    pub const fn first(&self) -> &ProofKey {
        &self.proofs[0]
    }

    /// Whether a key is one that `is_it` wants.
    #[inline(always)]
    pub fn any(&self, is_it: impl Fn(&ProofKey) -> bool) -> bool {
        let [first, others @ ..] = &self.proofs;
        is_it(first) || others.iter().any(|key| key != first && is_it(key))
    }
}

/// How many sets of keys there may be at an interface.
pub const MAX_KEY_SETS: u32 = 64;

/// The epoch of a proof that is good at `now_ns` of TAI; `is_of` tells whether it is one
/// of an epoch.
#[inline(always)]
#[must_use]
pub fn epoch_of(now_ns: u64, is_of: impl Fn(u64) -> bool) -> Option<u64> {
    let now = proof_epoch(now_ns);
    [now, now.wrapping_sub(1), now.wrapping_add(1)]
        .into_iter()
        .find(|epoch| is_of(*epoch))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn epoch(key: ProofKey, proof: u32, isn: u32, now_ns: u64) -> Option<u64> {
        epoch_of(now_ns, |epoch| key.is_proof(proof, isn, epoch))
    }

    proptest! {
        #[test]
        fn a_proof_is_good_for_its_epoch_and_its_neighbours(key: [u64; 2], isn: u32, count: u16, of in 2..1u64 << 25) {
            let key = ProofKey(key);
            let proof = key.proof(isn, count, of);
            let (first, last) = (of * PROOF_EPOCH_NS, (of + 1) * PROOF_EPOCH_NS - 1);
            for now in [first - PROOF_EPOCH_NS, first, last, last + PROOF_EPOCH_NS] {
                prop_assert_eq!(epoch(key, proof, isn, now), Some(of));
            }
        }

        #[test]
        fn eight_syns_of_a_flow_have_eight_proofs(key: [u64; 2], isn: u32, first: u16, epoch: u64) {
            let proofs = (0..8).map(|more| ProofKey(key).proof(isn, first.wrapping_add(more), epoch));
            prop_assert_eq!(proofs.collect::<BTreeSet<_>>().len(), 8);
        }
    }

    #[test]
    fn the_first_key_proves_and_any_admits() {
        let keys = [1, 2, 3, 4, 5].map(|number| ProofKey([number, 0]));
        for count in 1..=MAX_KEYS {
            let set = KeySet::new(&keys[..count]).unwrap();
            assert_eq!(*set.first(), keys[0]);
            for (at, key) in keys.iter().enumerate() {
                let admits = set.any(|one| one == key);
                assert_eq!(admits, at < count, "key {at} of {count}");
            }
            assert!(!set.any(|one| *one == ProofKey([0; 2])), "{count} keys");
        }
        assert_eq!((KeySet::new(&[]), KeySet::new(&keys)), (None, None));
    }

    /// By chance one of 179 million would be.
    #[test]
    fn proofs_of_other_secrets_numbers_and_times_are_none() {
        let (key, other) = (ProofKey([1, 2]), ProofKey([1, 3]));
        for of in 1000..2000 {
            let (isn, now) = (of as u32, of * PROOF_EPOCH_NS);
            let proof = key.proof(isn, 7, of);
            for (key, proof, isn, now, what) in [
                (key, proof, isn, now + 2 * PROOF_EPOCH_NS, "recorded"),
                (key, proof, isn, now - PROOF_EPOCH_NS - 1, "to come"),
                (key, proof, isn + 1, now, "another number"),
                (key, proof ^ 1, isn, now, "another SYN"),
                (key, proof ^ 1 << 31, isn, now, "another hash"),
                (other, proof, isn, now, "another secret"),
            ] {
                assert_eq!(epoch(key, proof, isn, now), None, "{what}");
            }
        }
    }

    /// What observers of first SYNs see: each value of the three bits as often.
    #[test]
    fn the_ordinal_of_first_syns_looks_random() {
        let mut found = [0; 8];
        for isn in (0..8000_u32).map(|step| step.wrapping_mul(0x9e37_79b9)) {
            let proof = ProofKey([1, 2]).proof(isn, 1, 1000);
            found[(proof & ORDINAL) as usize] += 1;
        }
        assert!(
            found.iter().all(|count| (800..1200).contains(count)),
            "{found:?}"
        );
    }
}
