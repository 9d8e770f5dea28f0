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
use xdptun_lab::dice::Dice;

/// Forged packets of a burst at most: fewer than use up a flow's answers.
const MOST: usize = ANSWERS as usize - 2;

/// Makes an attack. Only what hangs on the clock differs when it is made again.
pub fn attack(dice: &mut Dice, at: Moment) -> Attack {
    let setup = dice.pick(&Setup::ALL);
    let path = path(dice);
    let flow = flow(dice, path, at);
    let left = left(dice, path, &flow);
    let call = (setup == Setup::Hidden).then(|| call(dice, at));
    let target = forge::Target {
        path,
        flow,
        left: left.iter().map(|(segment, _)| segment.clone()).collect(),
        call,
    };
    let count = dice.between(1, MOST);
    let burst = (0..count).map(|_| {
        let packet = forge::packet(dice, &target);
        if dice.once_in(4) {
            shape::apply(dice, packet, path.family())
        } else {
            packet.bytes()
        }
    });
    let burst = burst.collect();
    Attack {
        setup,
        xdp: dice.pick(&Program::XDP),
        may_reply: !dice.once_in(8),
        path,
        flow,
        sent: left
            .iter()
            .map(|(segment, age)| segment.remembered(at.tick().wrapping_sub(*age)))
            .collect(),
        call,
        burst,
        honest: honest(dice, path, &flow),
    }
}

fn path(dice: &mut Dice) -> Path {
    let family = dice.pick(&Family::ALL);
    let any = dice.between(1024, 65535) as u16;
    let (local, remote) = dice.pick(&[
        (OWNED, OTHER),
        (OTHER, OWNED),
        (OWNED, OWNED),
        (OWNED, HTTPS),
        (any, OWNED),
        (OWNED, any),
    ]);
    Path::new(family, local, remote)
}

/// An established flow with numbers that nobody can guess: idle or loaded, just heard of
/// or silent, with all its answers left or none.
fn flow(dice: &mut Dice, path: Path, at: Moment) -> Flow {
    let mut flow = path.established(at);
    flow.iss = dice.number();
    flow.snd_nxt = near_wrap(dice);
    flow.rcv_nxt = near_wrap(dice);
    flow.acked = flow.rcv_nxt;
    flow.snd_una = flow
        .snd_nxt
        .wrapping_sub(dice.pick(&[0, 0, 1, 3000, 1 << 20, 12_500_000]));
    let marks = dice.pick(&[[0, 0], [4096, 2048], [12_500_000, 1_000_000]]);
    flow.ack_marks = AckMarks {
        numbers: marks.map(|behind| flow.snd_una.wrapping_sub(behind)),
        // In the middle of a period of 512 ticks, or long ago.
        since: at.tick().wrapping_sub(dice.pick(&[200, 750, 100_000])),
    };
    // After 67 ms of silence a sequence number may be any.
    flow.received_at = at.before_ms(dice.pick(&[0, 5, 200, 5000]));
    flow.sent_at = at.before_ms(1);
    flow.answers_earned_at = match dice.once_in(4) {
        true => at.tick().wrapping_add(ANSWERS * ANSWER_AGAIN),
        false => 0,
    };
    // An error that proved nothing counts for 954 ticks.
    let distrusted = dice.pick(&[100, 850, 1_000_000, 1_000_000]);
    flow.distrusted_at = at.tick().wrapping_sub(distrusted);
    flow
}

/// Any number, or one about to pass zero.
fn near_wrap(dice: &mut Dice) -> u32 {
    let any = dice.number();
    match dice.once_in(4) {
        true => any % 5000,
        false => any,
    }
    .wrapping_sub(2500)
}

/// Segments that the flow sent, and how many ticks ago. After 1,907 ticks one is
/// forgotten.
fn left(dice: &mut Dice, path: Path, flow: &Flow) -> Vec<(Packet, u32)> {
    let mut sequence = flow.snd_nxt;
    let count = dice.below(4);
    let mut left = Vec::new();
    for _ in 0..count {
        let len = dice.pick(&[1400, 1100, 1024]);
        sequence = sequence.wrapping_sub(len as u32);
        let datagram = path.outbound().payload(dice.bytes(len));
        let segment = datagram.segment(flags::DATA, sequence, flow.rcv_nxt);
        left.push((segment, dice.pick(&[5, 500, 1800, 2100])));
    }
    left
}

fn call(dice: &mut Dice, at: Moment) -> Call {
    let isn = dice.number();
    let key = dice.pick(&[PROOF_KEY, SECOND_KEY]);
    let proof = at.proof_by(key, isn, dice.below(8) as u16);
    Call { isn, proof }
}

/// A datagram each way, and a reset or FIN that the peer means.
fn honest(dice: &mut Dice, path: Path, flow: &Flow) -> Honest {
    let [came, leaves] = [(); 2].map(|()| {
        let len = dice.between(1, 1300);
        dice.bytes(len)
    });
    let under_way = flow.snd_nxt.wrapping_sub(flow.snd_una);
    let acknowledged = flow.snd_una.wrapping_add(dice.number() % (under_way + 1));
    let next = flow.rcv_nxt.wrapping_add(came.len() as u32);
    let last = flow.snd_nxt.wrapping_add(leaves.len() as u32);
    let end = dice.pick(&[flags::RST, flags::RST | flags::ACK, flags::FIN | flags::ACK]);
    let came = path.inbound().payload(came);
    Honest {
        inbound: came
            .segment(flags::DATA, flow.rcv_nxt, acknowledged)
            .bytes(),
        outbound: path.outbound().payload(leaves).bytes(),
        end: path.inbound().segment(end, next, last).bytes(),
    }
}
