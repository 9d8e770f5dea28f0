//! Flows, and bursts against them.

use xdptun_common::tunnel::ack::AckMarks;
use xdptun_common::tunnel::state::{ANSWER_AGAIN, ANSWERS, Flow};

use super::forge::{self, Call};
use super::{Attack, Honest};
use crate::fuzz::generate::shape;
use crate::fuzz::scene::Setup;
use crate::moment::{Moment, PROOF_KEY, SECOND_KEY};
use crate::packet::{Packet, flags};
use crate::path::{Family, HTTPS, OTHER, OWNED, Path};
use crate::program::Program;
use xdptun_lab::seeded::Random;

/// Forged packets of a burst at most: fewer than use up a flow's answers.
const MOST: usize = ANSWERS as usize - 2;

/// Makes an attack. Only what hangs on the clock differs when it is made again.
pub fn attack(random: &mut Random, at: Moment) -> Attack {
    let setup = random.pick(&Setup::ALL);
    let path = path(random);
    let flow = flow(random, path, at);
    let left = left(random, path, &flow);
    let call = (setup == Setup::Hidden).then(|| call(random, at));
    let target = forge::Target {
        path,
        flow,
        left: left.iter().map(|(segment, _)| segment.clone()).collect(),
        call,
    };
    let count = random.between(1, MOST);
    let burst = (0..count).map(|_| {
        let packet = forge::packet(random, &target);
        if random.once_in(4) {
            shape::apply(random, packet, path.family())
        } else {
            packet.bytes()
        }
    });
    let burst = burst.collect();
    Attack {
        setup,
        xdp: random.pick(&Program::XDP),
        may_reply: !random.once_in(8),
        path,
        flow,
        sent: left
            .iter()
            .map(|(segment, age)| segment.remembered(at.tick().wrapping_sub(*age)))
            .collect(),
        call,
        burst,
        honest: honest(random, path, &flow),
    }
}

fn path(random: &mut Random) -> Path {
    let family = random.pick(&Family::ALL);
    let any = random.between(1024, 65535) as u16;
    let (local, remote) = random.pick(&[
        (OWNED, OTHER),
        (OTHER, OWNED),
        (OWNED, OWNED),
        (OWNED, HTTPS),
        (any, OWNED),
        (OWNED, any),
    ]);
    Path::new(family, local, remote)
}

/// An established flow with random numbers: idle or loaded, just heard of
/// or silent, with all its answers left or none.
fn flow(random: &mut Random, path: Path, at: Moment) -> Flow {
    let mut flow = path.established(at);
    flow.iss = random.number();
    flow.snd_nxt = near_wrap(random);
    flow.rcv_nxt = near_wrap(random);
    flow.acked = flow.rcv_nxt;
    flow.snd_una = flow
        .snd_nxt
        .wrapping_sub(random.pick(&[0, 0, 1, 3000, 1 << 20, 12_500_000]));
    let marks = random.pick(&[[0, 0], [4096, 2048], [12_500_000, 1_000_000]]);
    flow.ack_marks = AckMarks {
        numbers: marks.map(|behind| flow.snd_una.wrapping_sub(behind)),
        // In the middle of a period of 512 ticks, or long ago.
        since: at.tick().wrapping_sub(random.pick(&[200, 750, 100_000])),
    };
    // After 537 ms of silence a sequence number may be any.
    flow.received_at = at.before_ms(random.pick(&[0, 5, 200, 900, 5000]));
    flow.sent_at = at.before_ms(1);
    flow.answers_earned_at = match random.once_in(4) {
        true => at.tick().wrapping_add(ANSWERS * ANSWER_AGAIN),
        false => 0,
    };
    // An error that proved nothing counts for 954 ticks.
    let distrusted = random.pick(&[100, 850, 1_000_000, 1_000_000]);
    flow.distrusted_at = at.tick().wrapping_sub(distrusted);
    flow
}

/// Any number, or one about to pass zero.
fn near_wrap(random: &mut Random) -> u32 {
    let any = random.number();
    match random.once_in(4) {
        true => any % 5000,
        false => any,
    }
    .wrapping_sub(2500)
}

/// Segments that the flow sent, and how many ticks ago. After 1,907 ticks one is
/// forgotten.
fn left(random: &mut Random, path: Path, flow: &Flow) -> Vec<(Packet, u32)> {
    let mut sequence = flow.snd_nxt;
    let count = random.below(4);
    let mut left = Vec::new();
    for _ in 0..count {
        let len = random.pick(&[1400, 1100, 1024]);
        sequence = sequence.wrapping_sub(len as u32);
        let datagram = path.outbound().payload(random.bytes(len));
        let segment = datagram.segment(flags::DATA, sequence, flow.rcv_nxt);
        left.push((segment, random.pick(&[5, 500, 1800, 2100])));
    }
    left
}

fn call(random: &mut Random, at: Moment) -> Call {
    let isn = random.number();
    let key = random.pick(&[PROOF_KEY, SECOND_KEY]);
    let proof = at.proof_by(key, isn, random.below(8) as u16);
    Call { isn, proof }
}

/// A datagram each way, and a reset or FIN that the peer means.
fn honest(random: &mut Random, path: Path, flow: &Flow) -> Honest {
    let [came, leaves] = [(); 2].map(|()| {
        let len = random.between(1, 1300);
        random.bytes(len)
    });
    let under_way = flow.snd_nxt.wrapping_sub(flow.snd_una);
    let acknowledged = flow.snd_una.wrapping_add(random.number() % (under_way + 1));
    let next = flow.rcv_nxt.wrapping_add(came.len() as u32);
    let last = flow.snd_nxt.wrapping_add(leaves.len() as u32);
    let end = random.pick(&[flags::RST, flags::RST | flags::ACK, flags::FIN | flags::ACK]);
    let came = path.inbound().payload(came);
    Honest {
        inbound: came
            .segment(flags::DATA, flow.rcv_nxt, acknowledged)
            .bytes(),
        outbound: path.outbound().payload(leaves).bytes(),
        end: path.inbound().segment(end, next, last).bytes(),
    }
}
