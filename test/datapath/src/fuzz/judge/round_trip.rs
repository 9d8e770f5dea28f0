//! The peer must restore each disguised datagram byte for byte.

use std::collections::BTreeMap;

use xdptun_common::tunnel::outcome::Outcome;
use xdptun_lab::checksum;

use super::{Judgement, rule, some};
use crate::case::Verdict;
use crate::diff::hexdump;
use crate::fuzz::reading::{Reading, read};
use crate::fuzz::rig::{Rig, Seen};
use crate::fuzz::scene::Scene;
use crate::path::{Family, mac};
use crate::program::{Program, Skb};

/// Lets the peer restore the segment that `seen` brought, by XDP and by tc.
pub fn check(rig: &mut Rig, scene: &Scene, seen: &Seen) -> Judgement {
    let datagram = some("only datagrams are disguised", read(&scene.frame))?;
    let key = some("a datagram has a flow", datagram.outbound())?;
    let here = scene.flows[&key];
    let mut there = here;
    (there.rcv_nxt, there.snd_nxt) = (here.snd_nxt, here.rcv_nxt);
    there.snd_una = there.snd_nxt;
    // Nothing to acknowledge, so that XDP has no reason to leave it to tc.
    there.acked = seen.flows[&key].snd_nxt;
    there.sent_at = seen.at.ns();
    let expected = arrived(datagram.packet);
    for program in Program::INBOUND {
        let frame = arrived(&seen.ran.packet);
        let arrival = Scene {
            program,
            setup: scene.setup,
            flows: BTreeMap::from([(key.reversed(), there)]),
            sent: None,
            skb: Skb::default(),
            narrow: false,
            may_reply: true,
            intact: frame.clone(),
            frame,
        };
        let came = rig.run(&arrival);
        if program.is_xdp() && came.moved.outcomes.is_empty() {
            super::accounting::same_packet("what XDP leaves to tc is whole", &arrival, &came)?;
            continue;
        }
        let restored = [(Outcome::RxRestored, 1)];
        rule(
            "the peer restores what was disguised",
            came.verdict == Some(Verdict::Pass) && came.moved.outcomes == restored,
            || format!("{program:?}: {:?}, {:?}", came.verdict, came.moved),
        )?;
        let came = &came.ran.packet;
        rule(
            "what the peer restores is what was sent",
            is_same(&datagram, &expected, came),
            || format!("{program:?}: {}", hexdump(&expected, came)),
        )?;
    }
    Ok(())
}

/// The frame as the peer receives it: addressed to the peer.
fn arrived(frame: &[u8]) -> Vec<u8> {
    [&mac(Family::V4.host()), &frame[6..]].concat()
}

/// Whether two frames are equal, checksums by what they say: a sum has two
/// zeros, and a datagram without a checksum, or with a pending one, arrives with a right one.
fn is_same(datagram: &Reading<'_>, expected: &[u8], came: &[u8]) -> bool {
    let Some(restored) = read(came) else {
        return false;
    };
    let of_header = datagram.l3 + 10;
    let of_datagram = datagram.l4 + 6;
    let word = |frame: &[u8], at: usize| [frame[at], frame[at + 1]];
    // None that the datagram's sender computed.
    let had_none = word(expected, of_datagram) == [0, 0] || datagram.transport_sum_is_pending();
    let equal = |at: usize| same_sum(word(expected, at), word(came, at));
    expected.len() == came.len()
        && (0..came.len()).all(|at| {
            if datagram.is_v4() && (of_header..of_header + 2).contains(&at) {
                return equal(of_header);
            }
            if (of_datagram..of_datagram + 2).contains(&at) {
                let is_right = had_none && restored.transport_sum_is_right();
                return word(came, of_datagram) != [0, 0] && (is_right || equal(of_datagram));
            }
            expected[at] == came[at]
        })
}

/// One's-complement equality: 0 and 0xffff are both zero.
fn same_sum(a: [u8; 2], b: [u8; 2]) -> bool {
    let zero = |sum: [u8; 2]| checksum::sum(&sum).wrapping_add(1) <= 1;
    a == b || zero(a) && zero(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::payload;
    use crate::path::Path;

    #[test]
    fn only_equal_datagrams_are_the_same() {
        for family in Family::ALL {
            let packet = Path::client(family).outbound().payload(payload(9));
            let bytes = packet.bytes();
            let datagram = read(&bytes).expect("a datagram");
            assert!(is_same(&datagram, &bytes, &bytes));
            for at in 0..bytes.len() {
                let mut other = bytes.clone();
                other[at] ^= 1;
                assert!(!is_same(&datagram, &bytes, &other), "byte {at}");
            }
            let none = packet.without_checksum().bytes();
            let sent = read(&none).expect("a datagram");
            assert!(is_same(&sent, &none, &bytes), "a checksum may be added");
            assert!(!is_same(&sent, &none, &none), "but not left out");
            assert!(!is_same(&datagram, &bytes, &none), "and not taken away");
        }
    }

    #[test]
    fn a_sum_has_two_zeros() {
        assert!(same_sum([0, 0], [0xff, 0xff]) && same_sum([1, 2], [1, 2]));
        assert!(!same_sum([0, 0], [0, 1]) && !same_sum([0xff, 0xff], [0xff, 0xfe]));
    }
}
