//! tc ingress: what arrives, if XDP has not dealt with it.

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::programs::TcContext;
use aya_log_ebpf::trace;
use xdptun_common::attachment::IngressMode;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::parse::{Bytes as _, Located, Shape, is_extension, locate};
use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::event::Kind;
use xdptun_common::tunnel::handshake::{Endpoint, Reaction, Reply, Segment};
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::State;
use xdptun_common::tunnel::window::{asks, is_exact, is_padded};
use xdptun_common::wire::{Flags, Ip, IpVersion, Protocol, TcpHeader, UdpHeader};

use crate::host::clock::now;
use crate::host::counters::count;
use crate::host::interface::interface;
use crate::host::socket::Socket;
use crate::packet::access::{Packet as _, View};
use crate::packet::direction::Direction;
use crate::packet::link::link_len;
use crate::packet::options;
use crate::packet::resize::make_linear;
use crate::packet::skb::Skb as _;
use crate::tunnel::admission::decide;
use crate::tunnel::answers::may_answer;
use crate::tunnel::calls::host_socket;
use crate::tunnel::cookie::keep_answer;
use crate::tunnel::events::report;
use crate::tunnel::fragments::arriving::{Carried, carried};
use crate::tunnel::reply::rewrite;
use crate::tunnel::rules::{REMOTES, has_secret};
use crate::tunnel::table::{Entry, InsertError, find, insert};
use crate::tunnel::veil::{is_done, veils};
use crate::tunnel::verdict::{Verdict, refused};
use crate::tunnel::verify::{is_intact, refusal};
use crate::tunnel::{calls, fragments, join, merged, restore, rules};

/// Handles one packet of IP version `I`; `None` if it is not ours.
#[inline(always)]
pub fn process<I: Ip>(ctx: &TcContext) -> Option<Verdict> {
    let l3 = link_len();
    // The common case in one piece; the parser finds the rest where it is.
    let _ = make_linear(ctx, l3 + I::LEN + UdpHeader::LEN);
    let Some(located) = locate::<I>(&View(ctx), l3) else {
        return is_headless::<I>(ctx, l3).then_some(Outcome::RxDropChain.into());
    };
    if located.shape == Shape::LaterFragment {
        return fragments::is_dropped::<I>(ctx).then_some(Outcome::RxDropFragment.into());
    }
    match located.protocol {
        // Segments in a VLAN are for a program on the VLAN's own device.
        Protocol::TCP if ctx.is_in_vlan() => None,
        Protocol::TCP => {
            let ports = located.ports(&View(ctx))?;
            if !rules::owns_either(ports) {
                return None;
            }
            let key = located.inbound(ports);
            let verdict = process_segment(ctx, &located, &key)?;
            trace!(
                ctx,
                "in: port {} > {}, TCP length {}, outcome {}",
                ports.0,
                ports.1,
                located.len,
                verdict.index()
            );
            Some(verdict)
        }
        Protocol::UDP => refuse_plain_udp(ctx, &located),
        // More of them than any host sends. The kernel would follow them all the same, to
        // a datagram of an owned port or to an ICMP error, from any sender.
        protocol if I::VERSION == IpVersion::V6 && is_extension(protocol) => {
            Some(Outcome::RxDropChain.into())
        }
        _ => None,
    }
}

/// Whether a packet is IPv6 with extension headers of which the end is not found. One that
/// has no length, and hop-by-hop options without any, passes the kernel's checks.
#[inline(always)]
fn is_headless<I: Ip>(ctx: &TcContext, l3: usize) -> bool {
    let with_headers = |ip: I| ip.is_valid() && is_extension(ip.protocol());
    I::VERSION == IpVersion::V6 && View(ctx).read::<I>(l3).is_some_and(with_headers)
}

/// UDP on an owned port did not come through a tunnel.
#[inline(always)]
fn refuse_plain_udp<I: Ip>(ctx: &TcContext, located: &Located<I>) -> Option<Verdict> {
    let ports = located.ports(&View(ctx))?;
    if !rules::owns_either(ports) || !rules::is_peer(located.ip.source()) {
        return None;
    }
    // XDP leaves tagged frames alone.
    let mode = interface(ctx).ingress();
    let restored = mode != IngressMode::Tc && !ctx.has_tag();
    if restored && mode == IngressMode::XdpGeneric && ctx.is_super_packet() {
        // XDP cannot see that a buffer holds several segments, and restored them
        // as one. In the stack's XDP nothing else merges.
        return Some(Outcome::RxDropMerged.into());
    }
    (!restored).then_some(Outcome::RxDropPlainUdp.into())
}

/// A TCP segment with an owned port at either end.
#[inline(always)]
fn process_segment<I: Ip>(ctx: &TcContext, located: &Located<I>, key: &FlowKey) -> Option<Verdict> {
    let flow = find(key);
    // Without a flow it is ours only if we are addressed: a connection of this
    // host to a remote port of the same number is none of our business.
    if flow.is_none()
        && !(rules::owns_port(key.local_port()) && rules::is_peer(key.remote_address()))
    {
        return None;
    }
    if flow.is_none() {
        if !has_secret() {
            if calls::takes(ctx.raw(), key, located.offset) {
                return Some(Outcome::RxToHost.into());
            }
        } else if let Some(outcome) = not_of_tunnel(ctx, located, key) {
            return Some(outcome.into());
        }
    }
    if let Some(outcome) = merged::split(ctx, located, key, flow) {
        return Some(outcome.into());
    }
    match located.shape {
        Shape::Plain => {}
        Shape::Options if options::fit(located) => return Some(Verdict::Stash),
        Shape::Options | Shape::Extensions => return Some(Outcome::RxDropOptions.into()),
        Shape::FirstFragment | Shape::LaterFragment => {
            fragments::refuse::<I>(ctx, Direction::Inbound);
            return Some(Outcome::RxDropFragment.into());
        }
    }
    let at = link_len() + I::LEN;
    if (ctx.len() as usize) < at + located.len {
        return Some(Outcome::RxDropMalformed.into());
    }
    if let Err(error) = make_linear(ctx, at + TcpHeader::LEN) {
        return Some(refused(error, Direction::Inbound).into());
    }
    let Some(tcp) = ctx.read::<TcpHeader>(at) else {
        return Some(Outcome::RxDropMalformed.into());
    };
    let Some(segment) = segment(&tcp, located.len) else {
        return Some(Outcome::RxDropMalformed.into());
    };
    // Options must be readable too; the header is at most 60 bytes.
    if let Err(error) = make_linear(ctx, at + tcp.header_len()) {
        return Some(refused(error, Direction::Inbound).into());
    }
    Some(take::<I>(ctx, key, flow, &segment))
}

/// What becomes of a segment without a flow that no tunnel sent, where that shows
/// before the segment is read: what is of a connection of this host, merged or in
/// fragments, is the host's.
#[inline(always)]
fn not_of_tunnel<I: Ip>(ctx: &TcContext, located: &Located<I>, key: &FlowKey) -> Option<Outcome> {
    let in_a_shape_of_ours = match located.shape {
        Shape::Plain => true,
        Shape::Options => options::fit(located),
        Shape::Extensions | Shape::FirstFragment | Shape::LaterFragment => false,
    };
    if in_a_shape_of_ours {
        let flags = View(ctx).read(located.offset + TcpHeader::FLAGS_OFFSET)?;
        // A SYN may be a proof, whatever the host has.
        if Flags(flags).contains(Flags::SYN) || host_socket(ctx.raw(), key) != Socket::Connected {
            return None;
        }
        return Some(Outcome::RxToHost);
    }
    if host_socket(ctx.raw(), key) != Socket::Absent {
        return Some(Outcome::RxToHost);
    }
    if located.shape == Shape::FirstFragment {
        fragments::refuse::<I>(ctx, Direction::Inbound);
    }
    Some(Outcome::RxDropUnproven)
}

/// What the state machine needs of a segment; `None` if its data offset is
/// impossible.
#[inline(always)]
pub fn segment(tcp: &TcpHeader, len: usize) -> Option<Segment> {
    let header_len = tcp.header_len();
    if header_len < TcpHeader::LEN || header_len > len {
        return None;
    }
    let is_padded_data = veils() && header_len < len && is_padded(tcp.window());
    Some(Segment {
        flags: tcp.flags(),
        sequence: tcp.sequence(),
        acknowledgment: tcp.acknowledgment(),
        len: (len - header_len) as u32,
        asks: asks(tcp.window()),
        // In a segment with data the bit of a challenge means padding.
        exact: is_exact(tcp.window()) && !is_padded_data,
    })
}

/// A segment that is ours, of a flow in the table or of none.
#[inline(always)]
fn take<I: Ip>(ctx: &TcContext, key: &FlowKey, flow: Option<Entry>, segment: &Segment) -> Verdict {
    let now = now();
    let endpoint = match flow {
        Some(flow) if segment.flags.contains(Flags::SYN.with(Flags::ACK)) && flow.owes_syn() => {
            return Outcome::RxDropNoFlow.into();
        }
        Some(flow) => flow.endpoint_without_iss(now),
        None => Endpoint::LISTENING,
    };
    let mut decision = Reaction {
        endpoint,
        outcome: Outcome::RxRestored,
        reply: Reply::NONE,
    };
    // All that is needed of the endpoint before: two of them do not fit on the stack.
    let (before, rcv_nxt) = (endpoint.state, endpoint.rcv_nxt);
    let mut flow = flow;
    if !decision.endpoint.takes_datagram(segment) {
        decision.endpoint.iss = flow.map_or(0, Entry::iss);
        match refusal::<I>(ctx, key, flow.is_some()) {
            Some(outcome) => decision.outcome = outcome,
            None => decide(ctx.raw(), key, segment, now, &mut decision),
        }
        // `deliver` moves the number for a datagram of a flow that stays as it is.
        let is_told =
            decision.endpoint.rcv_nxt != rcv_nxt && decision.outcome != Outcome::RxRestored;
        if decision.endpoint.state != before || is_told {
            flow = match step(ctx, key, flow, before, &decision, now) {
                Ok(flow) => Some(flow),
                Err(outcome) => return outcome.into(),
            };
        }
    }
    if let Some(flow) = flow {
        if decision.outcome == Outcome::RxRestored {
            // Before the flow notes it.
            if veils() && segment.len != 0 && !is_done() {
                return Verdict::Uncover;
            }
            return deliver::<I>(ctx, key, flow, segment, now);
        }
        if decision.outcome.is_sign_of_life() {
            // If all that comes are challenges, the flow has to be opened again.
            if !segment.is_challenge() {
                flow.received(now);
            }
            flow.acknowledged(segment, now);
            // The window of a SYN-ACK is of another scale.
            if !segment.flags.contains(Flags::SYN) {
                fragments::arriving::learn::<I>(ctx, &flow);
            }
        }
    }
    react::<I>(ctx, key, segment, before, &decision)
}

/// Carries out the decision about a segment that restores no datagram: it is the host's, or is
/// answered, or ends. `before` is the state that its flow had.
#[inline(always)]
fn react<I: Ip>(
    ctx: &TcContext,
    key: &FlowKey,
    segment: &Segment,
    before: State,
    decision: &Reaction,
) -> Verdict {
    if has_secret() && is_for_host(decision) && host_socket(ctx.raw(), key) != Socket::Absent {
        return Outcome::RxToHost.into();
    }
    if !may_answer(key, segment, before, decision) {
        if decision.reply.is_some() {
            count(interface(ctx), Sent::Limited);
        }
        return decision.outcome.into();
    }
    keep_answer(key, segment, &decision.reply);
    answer::<I>(ctx, key, decision.outcome, &decision.reply)
}

/// Whether a segment may be one of the host's own connections or server. Also what contradicts
/// a flow that was remembered beside a connection. What is damaged the host's own TCP refuses
/// by itself, and it may know more of the addresses.
#[inline(always)]
fn is_for_host(decision: &Reaction) -> bool {
    matches!(
        decision.outcome,
        Outcome::RxDropUnproven | Outcome::RxDropChecksum | Outcome::RxDropAddress
    ) || decision.outcome == Outcome::RxDropNoFlow && decision.endpoint.state == State::SynReceived
}

/// Writes the decision into the table, and tells the daemon.
#[inline(always)]
fn step(
    ctx: &TcContext,
    key: &FlowKey,
    flow: Option<Entry>,
    before: State,
    decision: &Reaction,
    now: u64,
) -> Result<Entry, Outcome> {
    let after = &decision.endpoint;
    let Some(flow) = flow else {
        let inserted = insert(ctx, Direction::Inbound, key, after, now);
        if inserted.is_ok() && after.state == State::Established {
            note_established(key);
        }
        // Another segment of the flow may have made it a moment ago, on another CPU, and
        // have taken the last room.
        let refused = match inserted {
            Err(InsertError::Share) => Outcome::RxDropShare,
            Ok(()) | Err(InsertError::Full) => Outcome::RxDropTableFull,
        };
        return find(key)
            .filter(|flow| inserted.is_ok() || flow.state() == after.state)
            .ok_or(refused);
    };
    if !flow.advance(before, after, now) {
        // Another CPU took a step a moment ago. If it is the same one, a datagram is as good
        // as before; a segment without data has nothing left to do.
        let is_same = flow.state() == after.state;
        return match decision.outcome {
            Outcome::RxRestored if is_same => Ok(flow),
            _ => Err(Outcome::RxAck),
        };
    }
    flow.keep_way(ctx, Direction::Inbound);
    report_change(key, before, after.state, decision.outcome);
    Ok(flow)
}

/// Tells the daemon of a flow that came up or went down.
#[inline(always)]
fn report_change(key: &FlowKey, before: State, after: State, outcome: Outcome) {
    let kind = match after {
        State::Established if before != State::Established => {
            return note_established(key);
        }
        State::Closed if outcome == Outcome::RxRst => Kind::Reset,
        State::Closed if before != State::Closed => Kind::Finished,
        _ => return,
    };
    report(kind, key);
}

/// Reports a flow that came up, and notes its peer in `REMOTES`, which `icmp::judge` asks.
#[inline(never)]
fn note_established(key: &FlowKey) {
    // Without memory, errors about the peer are judged a little less strictly.
    let _ = REMOTES.insert(key.remote_address(), 1, u64::from(BPF_ANY));
    report(Kind::Established, key);
}

/// Turns the packet into `reply` and sends it back where it came from.
#[inline(always)]
fn answer<I: Ip>(ctx: &TcContext, key: &FlowKey, outcome: Outcome, reply: &Reply) -> Verdict {
    match rewrite::<I>(ctx, Direction::Inbound, key, reply) {
        Ok(()) => Verdict::Answered(outcome),
        Err(error) => refused(error, Direction::Inbound).into(),
    }
}

/// Restores the datagram, and acknowledges it if that is due.
#[inline(always)]
fn deliver<I: Ip>(
    ctx: &TcContext,
    key: &FlowKey,
    flow: Entry,
    segment: &Segment,
    now: u64,
) -> Verdict {
    let carried = carried::<I>(ctx);
    match carried {
        Carried::Datagram => {}
        // Of a fragment the kernel checks less than of a datagram.
        Carried::Fragment | Carried::Nothing if !is_intact::<I>(ctx.raw()) => {
            return Outcome::RxDropChecksum.into();
        }
        Carried::Fragment => {}
        Carried::Nothing => return Outcome::RxDropMalformed.into(),
    }
    let ack_due = flow.ack_due(segment, now);
    let before = flow.received_datagrams();
    flow.receive_datagram(segment, now);
    if ack_due {
        // A clone goes out through `egress`, which makes it the ACK. It is
        // cloned before it is restored, while its addresses are still readable
        // as a segment of this flow.
        let mark = ctx.mark();
        ctx.set_mark(Request::Acknowledge.mark());
        // Without an ACK the datagram is still good, so a failure is no reason
        // to lose it; the next segment will be due as well.
        let _ = ctx.clone_redirect(interface(ctx).index(), 0);
        ctx.set_mark(mark);
    }
    if carried == Carried::Fragment {
        return Verdict::Fragment;
    }
    // Behind the clone, which would leave by the queue that is chosen here.
    let must_be_unpadded = veils() && segment.len != 0 && is_padded_here::<I>(ctx);
    let joins = !must_be_unpadded && join::choose(ctx, key, before, now);
    match restore::into_datagram::<I>(ctx) {
        Ok(()) if must_be_unpadded => Verdict::Unpad,
        Ok(()) if joins => Verdict::Joining,
        Ok(()) => Outcome::RxRestored.into(),
        Err(error) => refused(error, Direction::Inbound).into(),
    }
}

/// Whether the datagram of the segment in the packet is padded.
#[inline(always)]
fn is_padded_here<I: Ip>(ctx: &TcContext) -> bool {
    let tcp: Option<TcpHeader> = ctx.read(link_len() + I::LEN);
    tcp.is_some_and(|tcp| is_padded(tcp.window()))
}
