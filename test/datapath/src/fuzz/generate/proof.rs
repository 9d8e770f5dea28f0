//! SYNs of callers that know the secret, and SYNs with a proof that is nearly right.

use xdptun_common::tunnel::proof::ProofKey;

use crate::moment::{Moment, OWN_KEY, PROOF_KEY, SECOND_KEY};
use crate::packet::{Packet, flags};
use crate::path::{Family, timestamped_syn_options};
use xdptun_lab::seeded::Random;

/// Turns a datagram into a SYN with the proof of any key and epoch, sometimes damaged.
pub fn syn(random: &mut Random, datagram: Packet, family: Family, at: Moment) -> Packet {
    // No number near that of a flow: what was proved in one scene is a repetition in
    // the next.
    let isn = random.number();
    let key = random.weighted(&[
        (8, PROOF_KEY),
        (4, SECOND_KEY),
        (2, OWN_KEY),
        (1, ProofKey([0; 2])),
    ]);
    let epochs = random.weighted(&[(8, 0), (1, -1), (1, 1), (1, -2), (1, 2)]);
    let count = random.below(9) as u16;
    let wrong = random.weighted(&[(8, 0), (1, 1), (1, 1 << 31)]);
    let proof = at.proof_in(key, isn, count, epochs) ^ wrong;
    let syn = datagram.segment(flags::SYN, isn, 0);
    syn.options(&timestamped_syn_options(family, proof))
}
