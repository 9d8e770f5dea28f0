//! TCP segments close to those that a flow expects.

use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::isn::LIFETIME;
use xdptun_common::tunnel::state::Flow;

use super::proof;
use crate::moment::Moment;
use crate::packet::{Packet, flags};
use crate::path::{Path, syn_options};
use xdptun_lab::seeded::Random;

/// How far the programs let a segment lie from what they expect.
const WINDOW: u32 = 1 << 26;

/// Turns a datagram of `len` bytes into a segment of any kind.
pub fn near(
    random: &mut Random,
    datagram: Packet,
    len: usize,
    path: Path,
    flow: Option<&Flow>,
    at: Moment,
) -> Packet {
    let any = random.byte();
    // Data that a flow takes is what everything else is told from.
    if random.once_in(4)
        && let Some(flow) = flow
    {
        let window = random.pick(&[0xf000, 0xf200, 0xf100]);
        let datagram = match window {
            0xf100 => datagram.payload(part(random, len)),
            _ => datagram,
        };
        return datagram
            .segment(flags::DATA, flow.rcv_nxt, flow.snd_nxt)
            .window(window);
    }
    let flags = random.weighted(&[
        (8, flags::DATA),
        (3, flags::ACK),
        (2, flags::SYN),
        (2, flags::SYN | flags::ACK),
        (2, flags::FIN | flags::ACK),
        (2, flags::RST),
        (1, flags::RST | flags::ACK),
        (3, any),
    ]);
    if flags == flags::SYN && random.once_in(2) {
        return proof::syn(random, datagram.payload([]), path.family(), at);
    }
    // Control segments rarely bring data.
    let is_bare = flags & flags::DATA != flags::DATA && !random.once_in(4);
    let (datagram, len) = if is_bare {
        (datagram.payload([]), 0)
    } else {
        (datagram, len)
    };
    let (sequence, acknowledgment) = numbers(random, flow, &path.key(), len as u32, at);
    let segment = datagram.segment(flags, sequence, acknowledgment);
    let any = random.number() as u16;
    let segment = segment.window(random.pick(&[0xf000, 0xf100, 0, any]));
    let own = syn_options(path.family());
    match random.below(6) {
        0 => segment.options(&own),
        1 => {
            let words = random.between(1, 10);
            segment.options(&random.bytes(words * 4))
        }
        _ if flags & flags::SYN != 0 => segment.options(&own),
        _ => segment,
    }
}

/// A part of a datagram, `len` bytes with its name, that is one or hardly.
fn part(random: &mut Random, len: usize) -> Vec<u8> {
    let offset: u16 = random.pick(&[0, 0, 1, 100, 0x1fff]);
    let field = offset << 3 | u16::from(random.once_in(2)) | random.weighted(&[(8, 0), (1, 6)]);
    let [high, low] = field.to_be_bytes();
    let any = random.byte();
    let protocol = random.weighted(&[(8, 17), (1, any)]);
    let mut bytes = [&[protocol, 0, high, low][..], &random.bytes(len)].concat();
    let whole = (bytes.len() - 8.min(bytes.len())) / 8 * 8 + 8;
    if random.once_in(2) {
        bytes.resize(whole, 0);
    }
    bytes
}

/// Sequence and acknowledgement number.
fn numbers(
    random: &mut Random,
    flow: Option<&Flow>,
    key: &FlowKey,
    len: u32,
    at: Moment,
) -> (u32, u32) {
    let any = random.number();
    let rcv_nxt = flow.map_or(any, |flow| flow.rcv_nxt);
    // The start of a repetition of the last segment, and of a FIN after data.
    let before = rcv_nxt.wrapping_sub(len);
    let sequence = [
        (8, rcv_nxt),
        (3, shifted(random, rcv_nxt)),
        (1, before),
        (1, any),
    ];
    // Without a flow, the number that a SYN-ACK of ours gave away.
    let epochs = random.below(LIFETIME as usize + 2) as u64;
    let cookie = at.earlier_isn(key, epochs).wrapping_add(1);
    let any = random.number();
    let snd_nxt = flow.map_or(cookie, |flow| flow.snd_nxt);
    let first = flow.map_or(cookie, |flow| flow.iss.wrapping_add(1));
    let acknowledgment = [
        (8, snd_nxt),
        (3, first),
        (3, cookie),
        (3, shifted(random, snd_nxt)),
        (1, any),
    ];
    (random.weighted(&sequence), random.weighted(&acknowledgment))
}

/// A number beside another, or at the edge of the window around it.
fn shifted(random: &mut Random, number: u32) -> u32 {
    let by = random.pick(&[1, 2, 1000, WINDOW, WINDOW + 1, 1 << 31]);
    if random.once_in(2) {
        number.wrapping_add(by)
    } else {
        number.wrapping_sub(by)
    }
}
