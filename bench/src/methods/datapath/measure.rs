//! Every program with every input, and the cost of its parts.

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use xdptun_common::tunnel::ack::EARLY_NS;
use xdptun_lab::Family;

use super::{
    BEHIND_XDP, EGRESS, FLOOR_EGRESS, FLOOR_INGRESS_TC, FLOOR_INGRESS_XDP, HELPER, INGRESS_TC,
    INGRESS_XDP, Input, LENGTHS, METRIC, PIECES, RUNS, SPLITTER, case, foreign,
};
use crate::forwarded::Forwarded;
use crate::harness::{Harness, Round};
use crate::kernel::{Counting, Micro, PRICED, Programs, time_of};
use crate::load::{Load, Pace, Wait, carry, first_delivery};
use crate::route::Route;

/// A path with a flow of each family that stays open, perhaps with something to forward on it.
struct Rig {
    route: Route,
    forwarded: Option<Forwarded>,
    senders: [UdpSocket; 2],
}

impl Rig {
    fn new(name: &'static str, ingress: &str) -> Result<Self> {
        let route = Route::xdptun(name, ingress)?;
        let forwarded = Some(Forwarded::new(&route.net)?);
        Self::on(route, forwarded)
    }

    fn floor(name: &'static str, ingress: &str) -> Result<Self> {
        Self::on(Route::floor(name, ingress)?, None)
    }

    fn on(route: Route, forwarded: Option<Forwarded>) -> Result<Self> {
        let [v4, v6] = Family::BOTH.map(|family| {
            let sender = route.sender(family)?;
            let opened = first_delivery(&sender, &route.receiver(family)?)?;
            opened.context("the first datagram is lost")?;
            anyhow::Ok(sender)
        });
        Ok(Self {
            senders: [v4?, v6?],
            route,
            forwarded,
        })
    }

    /// Sends one kind of datagrams; the programs before and after.
    fn send(
        &self,
        family: Family,
        length: usize,
        input: Input,
        count: u64,
    ) -> Result<[[Programs; 2]; 2]> {
        let receiver = self.route.receiver(family)?;
        self.route.net.offload("tx", input.is_partial())?;
        if input.has_room() {
            let forwarded = self.forwarded.as_ref().context("nothing is forwarded")?;
            forwarded.open(family, &receiver)?;
            let before = self.route.programs()?;
            forwarded.send(family, length, input.is_partial(), count)?;
            return Ok([before, self.route.programs()?]);
        }
        let sender = &self.senders[family as usize];
        let mut load = Load {
            length,
            pace: Pace::Saturated,
            wait: Wait::Sleep,
            time: Duration::from_secs(5),
            count,
        };
        let mut segment = 0;
        if input == Input::Gso {
            segment = i32::try_from(length)?;
            load.length *= PIECES;
            load.count /= PIECES as u64;
        }
        setsockopt(sender, UdpGsoSegment, &segment)?;
        let before = self.route.programs()?;
        carry(sender, &receiver, load)?;
        Ok([before, self.route.programs()?])
    }
}

/// Measures every program with every input, and the cost of its parts.
pub fn measure(harness: &mut Harness) -> Result<()> {
    let _counting = Counting::start()?;
    let (tc, xdp) = (Rig::new("tc", "tc")?, Rig::new("XDP", "xdp")?);
    let floor = [
        Rig::floor("floor, tc", "tc")?,
        Rig::floor("floor, XDP", "xdp")?,
    ];
    let direct = Route::direct()?;
    let micros: Vec<Micro> = PRICED
        .iter()
        .map(|priced| Micro::load(*priced))
        .collect::<Result<_>>()?;
    let count = harness.extent.pick(20_000, 500);
    harness.note(format!("{count} datagrams for each value"));
    // Young flows are acknowledged more often.
    thread::sleep(Duration::from_nanos(EARLY_NS));
    harness.rounds(|round| {
        for micro in &micros {
            price(round, &direct, micro, count)?;
        }
        run_on_foreign(round, [&tc, &xdp], &micros[0])?;
        for family in Family::BOTH {
            for length in LENGTHS {
                for input in Input::ALL {
                    programs(round, [&tc, &xdp], (family, length, input), count)?;
                    if input.has_floor() {
                        floor_programs(round, &floor, (family, length, input), count)?;
                    }
                }
            }
        }
        Ok(())
    })
}

/// One kind of datagrams through all programs.
fn programs(
    round: &mut Round<'_>,
    [tc, xdp]: [&Rig; 2],
    (family, length, input): (Family, usize, Input),
    count: u64,
) -> Result<()> {
    let case = case(family, length, input);
    let [[out_before, in_before], [out_after, in_after]] = tc.send(family, length, input, count)?;
    let egress = out_after.since(&out_before, "xdptun_egress")?;
    if input == Input::Gso {
        let splitter = out_after.since(&out_before, "xdptun_splitter")?;
        let of_each = |number: u64| number as f64 / count as f64;
        for (program, spent) in [(EGRESS, egress), (SPLITTER, splitter)] {
            let values = [(METRIC, of_each(spent.ns)), (RUNS, of_each(spent.runs))];
            round.keep(&case, program, &values);
        }
        return Ok(());
    }
    round.keep(&case, EGRESS, &[(METRIC, egress.each()?)]);
    if input.has_room() {
        return Ok(());
    }
    let ingress = in_after.since(&in_before, "xdptun_ingress")?;
    round.keep(&case, INGRESS_TC, &[(METRIC, ingress.each()?)]);
    let [[_, before], [_, after]] = xdp.send(family, length, input, count)?;
    let restored = after.since(&before, "xdptun_xdp")?;
    round.keep(&case, INGRESS_XDP, &[(METRIC, restored.each()?)]);
    let behind = after.since(&before, "xdptun_ingress")?;
    round.keep(&case, BEHIND_XDP, &[(METRIC, behind.each()?)]);
    Ok(())
}

/// The same through the floor.
fn floor_programs(
    round: &mut Round<'_>,
    [tc, xdp]: &[Rig; 2],
    (family, length, input): (Family, usize, Input),
    count: u64,
) -> Result<()> {
    let case = case(family, length, input);
    let [[out_before, in_before], [out_after, in_after]] = tc.send(family, length, input, count)?;
    let egress = out_after.since(&out_before, "floor_egress")?;
    round.keep(&case, FLOOR_EGRESS, &[(METRIC, egress.each()?)]);
    let ingress = in_after.since(&in_before, "floor_ingress")?;
    round.keep(&case, FLOOR_INGRESS_TC, &[(METRIC, ingress.each()?)]);
    let [[_, before], [_, after]] = xdp.send(family, length, input, count)?;
    let restored = after.since(&before, "floor_xdp")?;
    round.keep(&case, FLOOR_INGRESS_XDP, &[(METRIC, restored.each()?)]);
    Ok(())
}

/// The cost of packets that are none of ours: the programs leave them as they are, so
/// that the kernel can run them on one again and again.
fn run_on_foreign(round: &mut Round<'_>, [tc, xdp]: [&Rig; 2], nothing: &Micro) -> Result<()> {
    let (sender, receiver) = (tc.route.process(0)?, tc.route.process(1)?);
    let restored = xdp.route.process(1)?;
    for (case, packet) in foreign::packets()? {
        for (path, process, program) in [
            (EGRESS, sender, "xdptun_egress"),
            (INGRESS_TC, receiver, "xdptun_ingress"),
            (INGRESS_XDP, restored, "xdptun_xdp"),
        ] {
            let ns = time_of(&Programs::named(process, program)?, &packet)?;
            round.keep(case, path, &[(METRIC, ns)]);
        }
        let ns = time_of(&nothing.info()?, &packet)?;
        round.keep(case, HELPER, &[(METRIC, ns)]);
    }
    Ok(())
}

/// The cost of one helper or look-up, on datagrams of a socket.
fn price(round: &mut Round<'_>, direct: &Route, micro: &Micro, count: u64) -> Result<()> {
    direct.net.offload("tx", false)?;
    let receiver = direct.receiver(Family::V4)?;
    let sender = direct.sender(Family::V4)?;
    first_delivery(&sender, &receiver)?.context("the first datagram is lost")?;
    let _link = micro.attach(&direct.net.a)?;
    let before = micro.spent()?;
    let load = Load {
        length: 1400,
        pace: Pace::Saturated,
        wait: Wait::Sleep,
        time: Duration::from_secs(5),
        count,
    };
    carry(&sender, &receiver, load)?;
    let spent = micro.spent()?.since(before);
    round.keep(micro.priced.name, HELPER, &[(METRIC, spent.each()?)]);
    Ok(())
}
