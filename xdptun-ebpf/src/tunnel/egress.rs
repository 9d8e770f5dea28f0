//! tc egress: what leaves the interface.

use aya_ebpf::programs::TcContext;
use aya_log_ebpf::trace;
use xdptun_common::address::is_multicast_or_broadcast;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::parse::{Bytes as _, Located, Shape, locate};
use xdptun_common::tunnel::ack::ACK_DELAY_NS;
use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::handshake::{Endpoint, Reply};
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::State;
use xdptun_common::tunnel::translate::GROWTH;
use xdptun_common::wire::{Flags, Icmp, Ip, Protocol, UdpHeader};

use crate::host::clock::now;
use crate::host::interface::interface;
use crate::host::split::make_headroom;
use crate::packet::access::{Packet as _, View};
use crate::packet::direction::Direction;
use crate::packet::link::link_len;
use crate::packet::mtu::exceeded_mtu;
use crate::packet::options;
use crate::packet::resize::{make_linear, trim};
use crate::packet::settle::Settle;
use crate::packet::skb::Skb as _;
use crate::tunnel::cookie::next_iss;
use crate::tunnel::defaults::tcp_defaults;
use crate::tunnel::disguise::{into_segment, leave};
use crate::tunnel::events::queue_frame;
use crate::tunnel::fragments::divide::divides;
use crate::tunnel::limits::Limit;
use crate::tunnel::proof::prove;
use crate::tunnel::reply::{acknowledging, mss, probe, rewrite};
use crate::tunnel::rules::has_secret;
use crate::tunnel::share::admits_host;
use crate::tunnel::table::{Entry, find, insert};
use crate::tunnel::veil::pad::pads;
use crate::tunnel::veil::{is_done, veils};
use crate::tunnel::verdict::{Verdict, refused};
use crate::tunnel::{fragments, icmp, rules};

/// Handles one packet of IP version `I`; `None` if it is not ours.
#[inline(always)]
pub fn process<I: Settle + Icmp>(ctx: &TcContext) -> Option<Verdict> {
    let l3 = link_len();
    // The common case in one piece; the parser finds the rest where it is.
    let _ = make_linear(ctx, l3 + I::LEN + UdpHeader::LEN);
    let located = locate::<I>(&View(ctx), l3)?;
    let request = Request::from_mark(ctx.mark());
    if located.protocol == Protocol::TCP && request == Some(Request::Acknowledge) {
        return Some(acknowledge(ctx, &located).into());
    }
    // Before the protocol is asked: behind a fragment header stands that of the
    // first fragment's next header, not of the datagram.
    if located.shape == Shape::LaterFragment {
        return Some(Verdict::Fragment);
    }
    if located.protocol == I::ICMP {
        return Some(Verdict::Message);
    }
    let ports = located.ports(&View(ctx))?;
    if located.protocol != Protocol::UDP {
        let is_segment = located.protocol == Protocol::TCP && rules::owns_port(ports.0);
        return is_segment.then_some(Verdict::Segment);
    }
    if !rules::owns_either(ports) {
        return pass(ctx, &located);
    }
    let key = located.outbound(ports);
    let flow = find(&key);
    if flow.is_none() && !rules::is_peer(key.remote_address()) {
        return pass(ctx, &located);
    }
    if request == Some(Request::Resend) {
        // The user's filters and queues see no mark either.
        ctx.set_mark(0);
    }
    let verdict = match request {
        None | Some(Request::Acknowledge | Request::OwnError | Request::Resend) => {
            send(ctx, &located, &key, flow)
        }
        Some(request) => answer_daemon::<I>(ctx, request, &key, flow).into(),
    };
    trace!(
        ctx,
        "out: port {} > {}, UDP length {}, outcome {}",
        key.local_port(),
        key.remote_port(),
        located.len,
        verdict.index()
    );
    Some(verdict)
}

/// A datagram that is none of ours goes on as it is.
#[inline(always)]
fn pass<I: Ip>(ctx: &TcContext, located: &Located<I>) -> Option<Verdict> {
    if located.shape == Shape::FirstFragment {
        fragments::make_way::<I>(ctx);
    }
    None
}

/// A datagram of an owned port: disguised, queued, or refused.
#[inline(always)]
fn send<I: Settle + Icmp>(
    ctx: &TcContext,
    located: &Located<I>,
    key: &FlowKey,
    flow: Option<Entry>,
) -> Verdict {
    if ctx.is_in_vlan() {
        if located.shape == Shape::FirstFragment {
            fragments::refuse::<I>(ctx, Direction::Outbound);
        }
        return Outcome::TxDropVlan.into();
    }
    if ctx.is_super_packet() {
        return split::<I>(ctx, located.offset + UdpHeader::CHECKSUM_OFFSET).into();
    }
    let is_part = match located.shape {
        Shape::Plain => false,
        Shape::Options if options::fit(located) => false,
        Shape::Options | Shape::Extensions => return Outcome::TxDropOptions.into(),
        Shape::FirstFragment | Shape::LaterFragment => true,
    };
    let state = flow.map(Entry::state);
    let mut is_divided = false;
    if is_part {
        if state == Some(State::Established) {
            return Verdict::Fragment;
        }
        fragments::refuse::<I>(ctx, Direction::Outbound);
    } else {
        if let Err(outcome) = trim_datagram(ctx, located) {
            return outcome.into();
        }
        if let Some(mtu) = exceeded_mtu(ctx, GROWTH) {
            if !divides(ctx, located) {
                return icmp::too_big::<I>(ctx, mtu, GROWTH).into();
            }
            is_divided = true;
        }
    }
    let flow = match flow.zip(state) {
        Some((_, State::Established)) if is_divided => return Verdict::Fragment,
        Some((flow, State::Established)) if located.shape == Shape::Plain => {
            if veils() && pads(located.len - UdpHeader::LEN) && !is_done() {
                return Verdict::Pad;
            }
            let outcome = leave(ctx, key, flow, |flow| into_segment::<I>(ctx, flow));
            return match outcome {
                Outcome::TxDisguised if veils() => Verdict::Cover,
                outcome => outcome.into(),
            };
        }
        Some((_, State::Established)) => return Verdict::Stash,
        Some((_, State::FinSent)) => return Outcome::TxDropClosing.into(),
        Some((flow, State::SynSent | State::SynReceived)) => Ok(flow),
        Some((flow, State::Closed)) => open(ctx, key, Some(flow)),
        None if is_multicast_or_broadcast(key.remote_address()) => {
            return Outcome::TxDropDestination.into();
        }
        None => open(ctx, key, None),
    };
    match flow {
        Ok(flow) => hold::<I>(ctx, key, flow, !is_part && !is_divided).into(),
        Err(outcome) => outcome.into(),
    }
}

/// A super-packet, whose checksum field is at `checksum`, goes to the splitter.
#[inline(always)]
fn split<I: Ip>(ctx: &TcContext, checksum: usize) -> Outcome {
    match interface(ctx)
        .near_end()
        .map(|_| make_headroom::<I>(ctx, checksum))
    {
        Some(Ok(())) => Outcome::TxSplit,
        Some(Err(error)) => refused(error, Direction::Outbound),
        None => Outcome::TxDropSuperPacket,
    }
}

/// Makes the packet end where its datagram ends: trailing bytes beyond the IP packet (Ethernet
/// padding of a bridged frame) would land inside the segment.
#[inline(always)]
fn trim_datagram<I: Ip>(ctx: &TcContext, located: &Located<I>) -> Result<(), Outcome> {
    let Some(udp) = View(ctx).read::<UdpHeader>(located.offset) else {
        return Err(Outcome::TxDropMalformed);
    };
    let len = usize::from(udp.length());
    if len != located.len || len < UdpHeader::LEN {
        return Err(Outcome::TxDropMalformed);
    }
    trim(ctx, located.offset + len).map_err(|error| refused(error, Direction::Outbound))
}

/// Makes a flow that is about to send its first SYN, in the entry of a closed
/// one if there is one.
#[inline(always)]
fn open(ctx: &TcContext, key: &FlowKey, closed: Option<Entry>) -> Result<Entry, Outcome> {
    let now = now();
    let iss = match rules::is_phantun(key.remote_address()) {
        true if !rules::owns_port(key.remote_port()) => return Err(Outcome::TxDropClient),
        true => rules::PHANTUN_ISS,
        false => {
            let before = closed.map_or(Endpoint::LISTENING, |flow| flow.endpoint(now));
            next_iss(&before, key, now)
        }
    };
    if let Some(flow) = closed {
        flow.reopen(State::Closed, iss, now);
        flow.keep_way(ctx, Direction::Outbound);
        return Ok(flow);
    }
    // A program that sends to ever more addresses must not fill the table faster than the
    // daemon clears it.
    let refused = if !admits_host(ctx.raw()) || !Limit::Opens.take() {
        Outcome::TxDropOpening
    } else {
        let _ = insert(ctx, Direction::Outbound, key, &Endpoint::opening(iss), now);
        Outcome::TxDropTableFull
    };
    // Another CPU may have made it a moment ago, and have taken the last room.
    find(key).ok_or(refused)
}

/// A datagram that must wait for the handshake: it goes to the daemon, and its
/// packet becomes the SYN if one is due. A fragment does not wait: it is not `whole`. Nor does what is
/// divided: when it is sent again, the peer has not said yet that it takes fragments.
#[inline(always)]
fn hold<I: Ip>(ctx: &TcContext, key: &FlowKey, flow: Entry, whole: bool) -> Outcome {
    // The way to the peer may be another than when the flow was made.
    flow.keep_way(ctx, Direction::Outbound);
    if let Some(ip) = ctx.read::<I>(link_len()) {
        let fields = ip.fields();
        flow.keep_fields(fields);
        if flow.label() == 0 {
            flow.set_label(fields.label);
        }
    }
    // What was padded is not what would be sent again.
    let queued = whole && !(veils() && is_done()) && queue_frame(ctx, key);
    if !flow.claim_syn(now()) {
        return match (whole, queued) {
            (false, _) => Outcome::TxDropFragment,
            (true, true) => Outcome::TxQueued,
            (true, false) => Outcome::TxLost,
        };
    }
    match (
        rewrite::<I>(ctx, Direction::Outbound, key, &syn::<I>(ctx, key, flow)),
        queued,
    ) {
        (Ok(()), true) => Outcome::TxOpened,
        (Ok(()), false) => Outcome::TxOpenedLost,
        (Err(error), _) => refused(error, Direction::Outbound),
    }
}

/// `net.ipv4.tcp_ecn`: connections of this host begin with the question.
const ASKS_FOR_ECN: u8 = 1;

/// The SYN of a flow, the first one or again.
#[inline(always)]
fn syn<I: Ip>(ctx: &TcContext, key: &FlowKey, flow: Entry) -> Reply {
    let sequence = flow.iss();
    if has_secret() {
        prove(key, sequence, flow.syns(), mss::<I>(ctx));
    }
    // Not again in a repeated one: some firewalls drop SYNs that ask (RFC 3168 section
    // 6.1.1.1). phantun refuses them.
    let asks = tcp_defaults().ecn == ASKS_FOR_ECN
        && flow.syns() <= 1
        && !rules::is_phantun(key.remote_address());
    Reply {
        kind: Sent::Syn,
        flags: if asks {
            Flags::SYN | Flags::ECE | Flags::CWR
        } else {
            Flags::SYN
        },
        sequence,
        acknowledgment: 0,
    }
}

/// A frame of the daemon that asks for a control segment.
#[inline(always)]
fn answer_daemon<I: Ip>(
    ctx: &TcContext,
    request: Request,
    key: &FlowKey,
    flow: Option<Entry>,
) -> Outcome {
    match flow.and_then(|flow| due::<I>(ctx, request, key, flow)) {
        Some(segment) => requested::<I>(ctx, Direction::Outbound, key, segment),
        None => Outcome::TxNotRequested,
    }
}

/// The segment that the daemon asks for, if the flow still needs it: a segment may have come
/// since the daemon looked.
#[inline(always)]
fn due<I: Ip>(ctx: &TcContext, request: Request, key: &FlowKey, flow: Entry) -> Option<Reply> {
    let now = now();
    let endpoint = flow.endpoint(now);
    let is_established = endpoint.state == State::Established;
    match request {
        Request::RetransmitSyn => flow.claim_syn(now).then(|| syn::<I>(ctx, key, flow)),
        // It would take the SYN for data.
        Request::Reopen if rules::is_phantun(key.remote_address()) => None,
        Request::Reopen => {
            // What answers sooner is not late.
            if !is_established || !flow.is_unanswered_for(now, ACK_DELAY_NS) {
                return None;
            }
            flow.reopen(State::Established, next_iss(&endpoint, key, now), now);
            flow.claim_syn(now).then(|| syn::<I>(ctx, key, flow))
        }
        Request::Probe => is_established.then(|| probe(key, flow, now)),
        Request::Confirm => {
            let is_unconfirmed = endpoint.snd_una == endpoint.iss.wrapping_add(1);
            (is_established && is_unconfirmed)
                .then(|| acknowledging(flow, Sent::Ack, Flags::ACK, endpoint.snd_una, now))
        }
        Request::Finish => flow.finish(now).map(|sequence| {
            let (kind, flags) = match rules::is_phantun(key.remote_address()) {
                true => (Sent::Rst, Flags::RST.with(Flags::ACK)),
                false => (Sent::Fin, Flags::FIN.with(Flags::ACK)),
            };
            acknowledging(flow, kind, flags, sequence, now)
        }),
        Request::Acknowledge | Request::OwnError | Request::Resend => None,
    }
}

/// A clone of an inbound segment, handed over by `ingress` to become its
/// acknowledgement.
#[inline(always)]
fn acknowledge<I: Ip>(ctx: &TcContext, located: &Located<I>) -> Outcome {
    let Some(ports) = located.ports(&View(ctx)) else {
        return Outcome::TxNotRequested;
    };
    let key = located.inbound(ports);
    let Some(flow) = find(&key) else {
        return Outcome::TxNotRequested;
    };
    let segment = acknowledging(flow, Sent::Ack, Flags::ACK, flow.snd_nxt(), now());
    requested::<I>(ctx, Direction::Inbound, &key, segment)
}

#[inline(always)]
fn requested<I: Ip>(
    ctx: &TcContext,
    direction: Direction,
    key: &FlowKey,
    segment: Reply,
) -> Outcome {
    // The mark was a note to this program; later programs must not see it.
    ctx.set_mark(0);
    match rewrite::<I>(ctx, direction, key, &segment) {
        Ok(()) => Outcome::TxRequested,
        Err(error) => refused(error, Direction::Outbound),
    }
}
