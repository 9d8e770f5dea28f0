//! Every program with every input, and the cost of its parts.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use xdptun_common::tunnel::ack::EARLY_NS;
use xdptun_lab::Family;

use super::rig::{Rig, saturated};
use super::veil::{self, Veil};
use super::{
    BEHIND_XDP, EGRESS, FLOOR_EGRESS, FLOOR_INGRESS_TC, FLOOR_INGRESS_XDP, HELPER, INGRESS_TC,
    INGRESS_XDP, Input, LENGTHS, METRIC, RUNS, SPLITTER, case, foreign,
};
use crate::harness::{Harness, Round};
use crate::kernel::{Counting, Micro, PRICED, Programs, time_of};
use crate::load::{carry, first_delivery};
use crate::route::Route;

/// Measures every program with every input, and the cost of its parts.
pub fn measure(harness: &mut Harness) -> Result<()> {
    let _counting = Counting::start()?;
    let (tc, xdp) = (Rig::new("tc", "tc")?, Rig::new("XDP", "xdp")?);
    let floor = [
        Rig::floor("floor, tc", "tc")?,
        Rig::floor("floor, XDP", "xdp")?,
    ];
    let veil = Veil::new()?;
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
            for datagram in veil::datagrams(family) {
                veil.programs(round, [&tc, &xdp], datagram, count)?;
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
    carry(&sender, &receiver, saturated(1400, count))?;
    let spent = micro.spent()?.since(before);
    round.keep(micro.priced.name, HELPER, &[(METRIC, spent.each()?)]);
    Ok(())
}
