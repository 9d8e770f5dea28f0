//! The daemon of a group of interfaces: it logs matches, and tells the ends of packets that the
//! action `reset` dropped. No packet waits for it.

use std::net::SocketAddr;
use std::time::Duration;

use aya::maps::{MapData, RingBuf};
use tokio::io::unix::AsyncFd;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, info};
use xdptun_common::address::ip_addr;
use xdptun_common::policy::event::{Event, Kind};
use xdptun_common::policy::rule::{Direction, Told};
use xdptun_common::wire::Protocol;

use super::Attached;
use super::plan::Plan;
use super::rules::text_of;
use crate::error::{Context as _, Result};
use crate::group::events::{drain, watch};
use crate::group::orders::next;
use crate::group::refusal::{Answer, prohibited_there, reset, reset_ahead};
use crate::group::{End, Order, Orders, Reason};
use crate::host::clock::monotonic_ns;
use crate::host::frame_socket::FrameSocket;
use crate::host::netlink::LinkChanges;

/// How often to look for interfaces without a notification: the kernel drops some if there are
/// many.
const LOOK: Duration = Duration::from_secs(1);

/// After that an event is of no use any more: it may be from before this daemon ran.
const STALE: Duration = Duration::from_secs(2);

/// How many bytes of answers may be on their way.
const BUFFER: usize = 1 << 20;

/// Runs until an order ends it, or an interface comes or goes. Can be called again after a pause.
pub async fn run(
    attached: &mut Attached,
    missing: &[String],
    orders: &mut Orders<Reason<Plan>>,
    ready: impl FnOnce(&mut Attached) -> Result<()>,
) -> Result<End<Reason<Plan>>> {
    let events = attached.maps.events.take();
    let mut events = watch(events.context("another task reads the events")?)?;
    let socket = FrameSocket::with_buffer(BUFFER).context("cannot open a packet socket")?;
    let end = serve(attached, &socket, &mut events, missing, orders, ready).await?;
    attached.maps.events = Some(events.into_inner());
    Ok(end)
}

async fn serve(
    attached: &mut Attached,
    socket: &FrameSocket,
    events: &mut AsyncFd<RingBuf<MapData>>,
    missing: &[String],
    orders: &mut Orders<Reason<Plan>>,
    ready: impl FnOnce(&mut Attached) -> Result<()>,
) -> Result<End<Reason<Plan>>> {
    let mut links = LinkChanges::subscribe()?;
    ready(attached)?;
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let mut looks = false;
        tokio::select! {
            order = next(orders) => return Ok(match order {
                Order::Stop => End::Stopped,
                Order::Pause(reason) => End::Paused(reason),
            }),
            () = links.next() => looks = true,
            _ = look.tick() => looks = true,
            readable = events.readable_mut() => {
                let mut readable = readable?;
                let events = readable.get_inner_mut();
                if drain(events, |event: &Event, rest| handle(attached, socket, event, rest)) {
                    readable.clear_ready();
                }
            }
        }
        if looks && attached.interfaces_changed(missing) {
            return Ok(End::InterfacesChanged);
        }
    }
}

fn handle(attached: &Attached, socket: &FrameSocket, event: &Event, rest: &[u8]) {
    let is_stale = monotonic_ns().saturating_sub(event.at) > STALE.as_nanos() as u64;
    let frame = rest.get(..event.len as usize).unwrap_or_default();
    match Kind::from_raw(event.kind) {
        _ if is_stale => {}
        Some(Kind::Log) => log(attached, event),
        Some(Kind::Reset) => tell_ends(attached, socket, event, frame),
        None => debug!("an event of unknown kind {}", event.kind),
    }
}

/// Logs a match.
fn log(attached: &Attached, event: &Event) {
    let name = match attached.at(event.interface) {
        Some(carried) => carried.kept_as.as_str(),
        None => "an interface that is gone",
    };
    let end = |address, port: [u8; 2]| SocketAddr::new(ip_addr(address), u16::from_be_bytes(port));
    let protocol = match Protocol(event.protocol) {
        Protocol::TCP => "tcp",
        Protocol::UDP => "udp",
        _ => "fragment",
    };
    info!(
        "{name}: {} matches: {} {protocol} {} -> {}, offset {}",
        text_of(&event.rule),
        match Direction::from_raw(event.direction) {
            Direction::In => "in",
            Direction::Out => "out",
        },
        end(event.source, event.source_port),
        end(event.destination, event.destination_port),
        event.offset
    );
}

/// Tells both ends of a connection, or the sender of a datagram, that a packet was dropped. The
/// answers take the packet's own way, and so pass the programs of other functions as it would
/// have: back by the interface by which it came, and on in its place.
fn tell_ends(attached: &Attached, socket: &FrameSocket, event: &Event, frame: &[u8]) {
    let Some(met_at) = attached.at(event.interface) else {
        return;
    };
    let link_len = met_at.interface.link_len as usize;
    if is_for_many(frame, link_len) {
        return;
    }
    let (back, on) = match Direction::from_raw(event.direction) {
        Direction::In => (Told::Out, Told::In),
        Direction::Out => (Told::In, Told::Out),
    };
    let (to_sender, to_receiver) = match Protocol(event.protocol) {
        Protocol::TCP => (reset(frame, link_len), reset_ahead(frame, link_len)),
        _ => (prohibited_there(frame, link_len), None),
    };
    let link = frame.get(..link_len).unwrap_or_default();
    let send = |answer: Answer, link: &[u8], mark: Told| {
        let bytes = [link, &answer.packet].concat();
        let sent = socket.send(event.interface, answer.to.is_ipv4(), mark as u32, &bytes);
        if let Err(error) = sent {
            debug!("cannot tell an end of a packet that was dropped: {error}");
        }
    };
    if let Some(answer) = to_receiver {
        send(answer, link, on);
    }
    if let Some(answer) = to_sender {
        send(answer, &turned(link), back);
    }
}

/// Whether a frame goes to many hosts, all of which would answer.
fn is_for_many(frame: &[u8], link_len: usize) -> bool {
    link_len != 0 && frame.first().is_some_and(|first| first & 1 == 1)
}

/// A link header for the way back: Ethernet begins with both addresses.
fn turned(link: &[u8]) -> Vec<u8> {
    match link.split_at_checked(12) {
        Some((addresses, rest)) => {
            let (to, from) = addresses.split_at(6);
            [from, to, rest].concat()
        }
        None => link.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_for_many_hosts() {
        assert!(is_for_many(&[0xff; 14], 14));
        assert!(is_for_many(&[1, 0, 0x5e, 0, 0, 1], 14));
        assert!(!is_for_many(&[2, 0, 0x5e, 0, 0, 1], 14));
        // Without a link header, the first byte is IP's.
        assert!(!is_for_many(&[0x45], 0));
    }

    #[test]
    fn a_link_header_is_turned_around() {
        let link = [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 8, 0];
        let expected = [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 8, 0];
        assert_eq!(turned(&link), expected);
        assert!(turned(&[]).is_empty());
    }
}
