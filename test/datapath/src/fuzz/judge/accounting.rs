//! One outcome for each packet that xdptun handles, and none for any other.

use etherparse::IpNumber;
use xdptun_common::bytes_of;
use xdptun_common::report::outcome::Fate;
use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::outcome::{Outcome, Sent};

use super::{Judgement, rule};
use crate::case::Verdict;
use crate::diff::hexdump;
use crate::fuzz::reading::{Part, Reading, read};
use crate::fuzz::rig::Seen;
use crate::fuzz::scene::Scene;
use crate::path::{Family, mac};
use crate::program::Program;

/// What the kernel puts in the first buffer of a frame for a test of XDP: a page without the room before
/// the frame (256 bytes) and what it keeps behind it (320).
const FIRST_BUFFER: usize = 4096 - 256 - 320;

/// The outcome and the control segment that were counted, once, and with the bytes of what came
/// of the packet.
pub fn counted_once(scene: &Scene, seen: &Seen) -> Judgement<(Option<Outcome>, Option<Sent>)> {
    let counted = || format!("{:?}", seen.moved);
    let (outcome, sent) = match (&seen.moved.outcomes[..], &seen.moved.sent[..]) {
        ([], []) => {
            let none = seen.moved.bytes.is_empty();
            rule("bytes are those of packets", none, counted)?;
            return Ok((None, None));
        }
        ([(outcome, 1)], []) => (*outcome, None),
        ([(outcome, 1)], [(sent, 1)]) => (*outcome, Some(*sent)),
        _ => {
            rule("a packet is counted once", false, counted)?;
            return Ok((None, None));
        }
    };
    // Without `frags` a program meets no more than the first buffer, and no driver gives it more.
    if scene.program != Program::Xdp || scene.frame.len() <= FIRST_BUFFER {
        let len = seen.ran.packet.len();
        let is_right = seen.moved.bytes == [(outcome, len as u64)];
        rule("its bytes are counted", is_right, || {
            format!("{}; it has {len}", counted())
        })?;
    }
    Ok((Some(outcome), sent))
}

/// No flow goes away, and at most one changes or is added.
pub fn flows_are_left_alone(scene: &Scene, seen: &Seen) -> Judgement {
    let gone = scene.flows.keys().find(|key| !seen.flows.contains_key(key));
    rule("no flow is removed", gone.is_none(), || format!("{gone:?}"))?;
    let changed = seen.changed(scene);
    rule("a packet concerns one flow", changed.len() <= 1, || {
        format!("{changed:?}")
    })
}

/// A packet that xdptun does not handle: nothing has changed.
pub fn untouched(scene: &Scene, seen: &Seen, verdict: Verdict) -> Judgement {
    rule(
        "what is not counted passes",
        verdict == Verdict::Pass,
        || format!("{verdict:?}"),
    )?;
    same_packet("what is not counted passes untouched", scene, seen)?;
    let changed = seen.changed(scene);
    rule(
        "what is not counted leaves no trace",
        changed.is_empty() && seen.reports.is_empty(),
        || format!("flows {changed:?}, events {:?}", seen.reports),
    )
}

/// The bytes and the mark are what they were.
pub fn same_packet(name: &'static str, scene: &Scene, seen: &Seen) -> Judgement {
    same(name, scene, seen, scene.skb.mark)
}

/// The mark of a datagram that egress has handled: of all requests, only the one to send it
/// again is taken off a datagram.
pub fn mark_after(scene: &Scene) -> u32 {
    let request = Request::from_mark(scene.skb.mark);
    let is_egress = scene.program == Program::Egress;
    if is_egress && request == Some(Request::Resend) {
        0
    } else {
        scene.skb.mark
    }
}

/// The bytes are what they were, and the mark is this one.
fn same(name: &'static str, scene: &Scene, seen: &Seen, mark: u32) -> Judgement {
    rule(name, seen.ran.packet == scene.frame, || {
        hexdump(&scene.frame, &seen.ran.packet)
    })?;
    let is_tc = !scene.program.is_xdp();
    rule(name, !is_tc || seen.ran.mark == mark, || {
        format!("mark {:#x}", seen.ran.mark)
    })
}

/// A packet that is ours: the program may count that, and its verdict is the
/// one that goes with it.
pub fn fate(
    scene: &Scene,
    seen: &Seen,
    verdict: Verdict,
    outcome: Outcome,
    sent: Option<Sent>,
) -> Judgement {
    let name = outcome.name();
    let direction = if scene.program == Program::Egress {
        "tx_"
    } else {
        "rx_"
    };
    rule(
        "an outcome is of the program's direction",
        name.starts_with(direction),
        || name.to_owned(),
    )?;
    rule("what is foreign is not counted", !is_foreign(scene), || {
        name.to_owned()
    })?;
    let answered = sent.is_some_and(|sent| sent != Sent::Limited);
    let fits = match (outcome.fate(), verdict) {
        (Fate::Pass | Fate::PassEmpty, Verdict::Pass) => true,
        (Fate::Consume | Fate::Lose, Verdict::Drop) => true,
        (Fate::Hold | Fate::Split | Fate::Return, Verdict::Redirect) => true,
        // An answer, made of the packet, leaves where the packet came from.
        (Fate::Consume | Fate::Lose, Verdict::Redirect) => answered,
        _ => false,
    };
    rule("the verdict is that of the outcome", fits, || {
        format!("{name}, {verdict:?}, sent {sent:?}")
    })?;
    if outcome.fate() == Fate::Split {
        let mark = mark_after(scene);
        same("what is to be split stays whole", scene, seen, mark)?;
    }
    Ok(())
}

/// Whether a packet must be left alone, by all that an independent parser can
/// say of it.
fn is_foreign(scene: &Scene) -> bool {
    let Some(packet) = read(&scene.frame) else {
        return false;
    };
    // A mark is a request, whatever the packet's addresses and ports are.
    let marked = scene.program == Program::Egress && Request::from_mark(scene.skb.mark).is_some();
    if marked {
        return false;
    }
    is_for_another_host(scene) || !concerns(scene, &packet)
}

/// Whether its protocol, ports and addresses are any of ours.
fn concerns(scene: &Scene, packet: &Reading<'_>) -> bool {
    let outbound = scene.program == Program::Egress;
    match packet.protocol() {
        // The quoted packet decides.
        IpNumber::ICMP | IpNumber::IPV6_ICMP => true,
        IpNumber::TCP if outbound => false,
        IpNumber::TCP | IpNumber::UDP => {
            let (source, destination) = packet.addresses;
            let (remote, key) = if outbound {
                (destination, packet.outbound())
            } else {
                (source, packet.inbound())
            };
            let has_flow = key.is_some_and(|key| scene.flows.contains_key(&key));
            let is_peer = scene.setup.is_peer(remote) || has_flow;
            // The flow of a packet that ends before its ports is unknown.
            let is_unclear = packet.transport().len() < 4;
            let is_ours = packet.part != Part::Later && packet.has_owned_port() && is_peer;
            is_unclear || is_ours
        }
        // More headers than the programs follow: what is behind them is unknown.
        protocol => !outbound && !packet.is_v4() && protocol.is_ipv6_ext_header_value(),
    }
}

/// Whether an inbound frame was addressed to another host.
pub fn is_for_another_host(scene: &Scene) -> bool {
    let other = mac(Family::V4.stranger());
    scene.program == Program::Ingress && scene.frame.starts_with(&other)
}

impl Seen {
    /// The flows that changed or were added.
    pub fn changed(&self, scene: &Scene) -> Vec<xdptun_common::flow::key::FlowKey> {
        let changed = self.flows.iter().filter(|(key, flow)| {
            let before = scene.flows.get(key);
            before.is_none_or(|before| bytes_of(before) != bytes_of(*flow))
        });
        changed.map(|(key, _)| *key).collect()
    }
}
