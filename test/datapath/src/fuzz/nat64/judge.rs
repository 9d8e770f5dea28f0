//! The rules.

use std::net::IpAddr;

use etherparse::IpNumber;
use xdptun_common::nat64::outcome::{Count, Outcome};

use super::compare::{Sameness, header, same};
use super::message;
use crate::case::Verdict;
use crate::fuzz::hex;
use crate::fuzz::judge::{Judgement, rule, some};
use crate::fuzz::reading::{Part, Reading, read};
use crate::fuzz::tally::Tally;
use crate::nat64::Nat64;
use crate::program::{Program, Skb};

/// As much as leaves two halves of 1,480 bytes with the headers of IPv6, in bytes.
const LONGEST_FRAGMENT: usize = 2 * 1448;

/// All that came of one run.
struct Seen {
    verdict: Option<Verdict>,
    frame: Vec<u8>,
    outcome: Option<Outcome>,
    /// What else was counted.
    counted: Vec<&'static str>,
}

/// Runs the program on a frame, and on what it made of it, and holds both against every rule.
///
/// # Errors
///
/// The first rule that is broken.
pub fn examine(nat64: &mut Nat64, frame: &[u8]) -> Judgement<Vec<&'static str>> {
    let seen = run(nat64, frame)?;
    let mut ends = seen.counted.clone();
    ends.push(seen.outcome.map_or(Tally::UNCOUNTED, Outcome::name));
    let expected = match seen.outcome {
        Some(Outcome::ToV4 | Outcome::ToV4Error | Outcome::ToV6 | Outcome::ToV6Error) => {
            Verdict::Redirect
        }
        _ if seen.has(Count::Refusals) => Verdict::Redirect,
        _ => Verdict::Drop,
    };
    let detail = || format!("{:?} of {ends:?}", seen.verdict);
    rule(
        "the verdict is that of the outcome",
        seen.verdict == Some(expected),
        detail,
    )?;
    match seen.outcome {
        Some(Outcome::ToV4 | Outcome::ToV6) => {
            if translated(nat64, frame, &seen)? {
                ends.push(Tally::RETURNED);
            }
        }
        Some(Outcome::ToV4Error | Outcome::ToV6Error) => {
            message::translated(&strict(frame)?, &whole(&seen.frame)?)?;
        }
        _ if seen.has(Count::Refusals) => refused(&strict(frame)?, &whole(&seen.frame)?)?,
        _ => untouched(frame, &seen.frame)?,
    }
    Ok(ends)
}

impl Seen {
    fn has(&self, count: Count) -> bool {
        self.counted.contains(&count.name())
    }
}

fn run(nat64: &mut Nat64, frame: &[u8]) -> Judgement<Seen> {
    nat64.moved();
    let (verdict, after) = nat64.run(frame, Skb::default());
    let mut moved = nat64.moved_by_packet(&after);
    let outcomes: Vec<_> = Outcome::ALL
        .iter()
        .filter_map(|one| Some((*one, moved.remove(one.name())?)))
        .collect();
    let is_ip = [[0x08, 0x00], [0x86, 0xdd]].contains(&[frame[12], frame[13]]);
    let times: u64 = outcomes.iter().map(|(_, times)| times).sum();
    let detail = || format!("{times} times, beside {moved:?}");
    rule(
        "an IP packet is counted once",
        times == u64::from(is_ip),
        detail,
    )?;
    Ok(Seen {
        verdict: Verdict::of(Program::Egress, verdict),
        frame: after,
        outcome: outcomes.first().map(|(one, _)| *one),
        counted: moved.into_keys().collect(),
    })
}

fn strict(frame: &[u8]) -> Judgement<Reading<'_>> {
    some("what is translated or answered is a packet", read(frame))
}

/// What the program made: a packet, with right lengths, and nothing behind it.
fn whole(frame: &[u8]) -> Judgement<Reading<'_>> {
    let made = some("what comes of a packet is one", read(frame))?;
    let detail = || format!("{} of {} bytes", made.packet.len(), frame.len());
    rule(
        "nothing stands behind it",
        made.packet.len() == frame.len(),
        detail,
    )?;
    rule(
        "its header checksum is right",
        made.header_sum_is_right(),
        || hex(frame),
    )?;
    Ok(made)
}

/// A packet that ends is as it was, but for what stood behind its end.
fn untouched(before: &[u8], after: &[u8]) -> Judgement {
    let detail = || hex(after);
    rule(
        "a dropped packet is as it was",
        before.starts_with(after),
        detail,
    )?;
    let end = read(before).map_or(0, |packet| packet.packet.len());
    rule("a dropped packet is whole", after.len() >= end, detail)
}

/// A message to the sender of a packet.
fn refused(before: &Reading<'_>, made: &Reading<'_>) -> Judgement {
    let is_unreachable = made.protocol() == IpNumber::IPV6_ICMP && made.transport()[0] == 1;
    let is_told = is_unreachable && made.addresses.1 == before.addresses.0;
    let detail = || hex(made.packet);
    rule("the sender is told", is_told, detail)?;
    rule(
        "the message's checksum is right",
        made.transport_sum_is_right(),
        detail,
    )
}

/// A translated packet; whether it was translated back.
fn translated(nat64: &mut Nat64, frame: &[u8], seen: &Seen) -> Judgement<bool> {
    let (before, made) = (strict(frame)?, whole(&seen.frame)?);
    let detail = || format!("{:?} to {:?}", before.addresses, made.addresses);
    rule(
        "the addresses are those of the lease",
        are_mapped(nat64, &before, &made),
        detail,
    )?;
    let is_cut = seen.has(Count::Cut);
    same(
        &before,
        &made,
        Sameness {
            is_cut,
            turned: false,
        },
    )?;
    // A datagram without checksum gets one on the way to IPv6 only, if that can be computed.
    if !before.is_v4() && header(&before).lacks_checksum {
        return Ok(false);
    }
    // Nor can a fragment be cut in two that no datagram has room for, or whose halves are too long.
    let (offset, len) = (header(&before).offset, before.transport().len());
    let is_fragment = before.part != Part::Whole;
    if is_fragment && (offset + len > usize::from(u16::MAX) || len > LONGEST_FRAGMENT) {
        return Ok(false);
    }
    let back = run(nat64, &turned(&seen.frame))?;
    let opposite = match before.is_v4() {
        true => Outcome::ToV4,
        false => Outcome::ToV6,
    };
    let name = || back.outcome.map_or("nothing", Outcome::name).to_owned();
    rule(
        "what was translated is translated back",
        back.outcome == Some(opposite),
        name,
    )?;
    let is_cut = is_cut || back.has(Count::Cut);
    same(
        &before,
        &whole(&back.frame)?,
        Sameness {
            is_cut,
            turned: true,
        },
    )?;
    Ok(true)
}

/// Whether the client's addresses are those of a lease, and the server's the prefix with the other.
fn are_mapped(nat64: &Nat64, before: &Reading<'_>, made: &Reading<'_>) -> bool {
    let (client, server, leased, embedded) = match made.addresses {
        (IpAddr::V6(server), IpAddr::V6(client)) => {
            (client, server, before.addresses.1, before.addresses.0)
        }
        (leased, reached) => match before.addresses {
            (IpAddr::V6(client), IpAddr::V6(server)) => (client, server, leased, reached),
            _ => return false,
        },
    };
    let IpAddr::V4(embedded) = embedded else {
        return false;
    };
    let lease = nat64.lease(client).map(|(address, _)| IpAddr::V4(address));
    lease == Some(leased) && nat64.v6(embedded) == IpAddr::V6(server)
}

/// The frame, with sender and receiver exchanged.
fn turned(frame: &[u8]) -> Vec<u8> {
    let mut turned = frame.to_vec();
    let (start, len) = match frame[12] {
        0x08 => (14 + 12, 4),
        _ => (14 + 8, 16),
    };
    turned[start..start + 2 * len].rotate_left(len);
    turned
}
