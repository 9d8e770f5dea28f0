//! What each program takes for a packet, by the kernel's own count.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use xdptun_lab::Family;

use crate::course::Course;
use crate::document::Section;
use crate::forwarded::Forwarded;
use crate::harness::{Harness, Round};
use crate::kernel::{Counting, Micro, PRICED, Programs};
use crate::load::{Load, Pace, carry, first_delivery};
use crate::results::Measured;
use crate::statistics::Summary;
use crate::table::{Bar, Table, number, spread};

/// Payload bytes.
const LENGTHS: [usize; 3] = [64, 512, 1400];

/// Datagrams of a super-packet.
const PIECES: usize = 10;

/// The only metric: run time divided by runs, counting included.
const METRIC: &str = "ns";

/// Programs as the results name them.
const EGRESS: &str = "egress, tc";
const SPLITTER: &str = "splitter, tc";
const INGRESS_TC: &str = "ingress, tc";
const INGRESS_XDP: &str = "ingress, XDP";
const BEHIND_XDP: &str = "ingress, tc behind XDP";
const HELPER: &str = "helper";

/// How a datagram reaches the egress program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Complete,
    Partial,
    /// Forwarded, with room before the headers.
    CompleteWithRoom,
    PartialWithRoom,
    /// In super-packets of [`PIECES`].
    Gso,
}

impl Input {
    const ALL: [Self; 5] = [
        Self::Complete,
        Self::Partial,
        Self::CompleteWithRoom,
        Self::PartialWithRoom,
        Self::Gso,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete, from a socket",
            Self::Partial => "PARTIAL, from a socket",
            Self::CompleteWithRoom => "complete, with headroom",
            Self::PartialWithRoom => "PARTIAL, with headroom",
            Self::Gso => "GSO, each of 10",
        }
    }

    /// What egress may take for 1,400 bytes.
    const fn bar(self) -> Option<Bar> {
        match self {
            Self::Complete | Self::CompleteWithRoom => Some(Bar::AtMost(120.0)),
            Self::PartialWithRoom => Some(Bar::AtMost(300.0)),
            Self::Partial | Self::Gso => None,
        }
    }

    const fn has_room(self) -> bool {
        matches!(self, Self::CompleteWithRoom | Self::PartialWithRoom)
    }

    const fn is_partial(self) -> bool {
        matches!(self, Self::Partial | Self::PartialWithRoom | Self::Gso)
    }
}

fn case(family: Family, length: usize, input: Input) -> String {
    format!("{family}, {length} bytes, {}", input.name())
}

/// A path with something to forward on it.
struct Rig {
    course: Course,
    forwarded: Forwarded,
}

impl Rig {
    fn new(name: &'static str, ingress: &str) -> Result<Self> {
        let course = Course::xdptun(name, ingress)?;
        let forwarded = Forwarded::new(&course.net)?;
        Ok(Self { course, forwarded })
    }

    /// Sends one kind of datagrams; the programs before and after.
    fn send(
        &self,
        family: Family,
        length: usize,
        input: Input,
        count: u64,
    ) -> Result<[[Programs; 2]; 2]> {
        let receiver = self.course.receiver(family)?;
        self.course.net.offload("tx", input.is_partial())?;
        if input.has_room() {
            self.forwarded.open(family, &receiver)?;
            let before = self.course.programs()?;
            self.forwarded
                .send(family, length, input.is_partial(), count)?;
            return Ok([before, self.course.programs()?]);
        }
        let sender = self.course.sender(family)?;
        first_delivery(&sender, &receiver)?.context("the first datagram is lost")?;
        let mut load = Load {
            length,
            pace: Pace::Saturated,
            time: Duration::from_secs(5),
            count,
        };
        if input == Input::Gso {
            setsockopt(&sender, UdpGsoSegment, &i32::try_from(length)?)?;
            load.length *= PIECES;
            load.count /= PIECES as u64;
        }
        let before = self.course.programs()?;
        carry(&sender, &receiver, load)?;
        Ok([before, self.course.programs()?])
    }
}

/// Every program with every input, and what its parts cost.
pub fn measure(harness: &mut Harness) -> Result<()> {
    let _counting = Counting::start()?;
    let (tc, xdp) = (Rig::new("tc", "tc")?, Rig::new("XDP", "xdp")?);
    let direct = Course::direct()?;
    let micros: Vec<Micro> = PRICED
        .iter()
        .map(|priced| Micro::load(*priced))
        .collect::<Result<_>>()?;
    let count = harness.extent.pick(20_000, 500);
    harness.note(format!("{count} datagrams for each value"));
    harness.rounds(|round| {
        for micro in &micros {
            price(round, &direct, micro, count)?;
        }
        for family in Family::BOTH {
            for length in LENGTHS {
                for input in Input::ALL {
                    programs(round, [&tc, &xdp], (family, length, input), count)?;
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
        let of_each = |ns: u64| ns as f64 / count as f64;
        round.record(&case, EGRESS, &[(METRIC, of_each(egress.ns))]);
        round.record(&case, SPLITTER, &[(METRIC, of_each(splitter.ns))]);
        return Ok(());
    }
    round.record(&case, EGRESS, &[(METRIC, egress.each()?)]);
    if input.has_room() {
        return Ok(());
    }
    let ingress = in_after.since(&in_before, "xdptun_ingress")?;
    round.record(&case, INGRESS_TC, &[(METRIC, ingress.each()?)]);
    let [[_, before], [_, after]] = xdp.send(family, length, input, count)?;
    let fast = after.since(&before, "xdptun_fast")?;
    round.record(&case, INGRESS_XDP, &[(METRIC, fast.each()?)]);
    let behind = after.since(&before, "xdptun_ingress")?;
    round.record(&case, BEHIND_XDP, &[(METRIC, behind.each()?)]);
    Ok(())
}

/// What one thing costs, on datagrams of a socket.
fn price(round: &mut Round<'_>, direct: &Course, micro: &Micro, count: u64) -> Result<()> {
    direct.net.offload("tx", false)?;
    let receiver = direct.receiver(Family::V4)?;
    let sender = direct.sender(Family::V4)?;
    first_delivery(&sender, &receiver)?.context("the first datagram is lost")?;
    let _link = micro.attach(&direct.net.a)?;
    let before = micro.spent()?;
    let load = Load {
        length: 1400,
        pace: Pace::Saturated,
        time: Duration::from_secs(5),
        count,
    };
    carry(&sender, &receiver, load)?;
    let spent = micro.spent()?.since(before);
    round.record(micro.priced.name, HELPER, &[(METRIC, spent.each()?)]);
    Ok(())
}

/// The tables of the document.
pub fn sections(measured: &Measured) -> Vec<Section> {
    vec![
        Section::new("datapath", programs_table(measured).to_string()),
        Section::new("helpers", helpers_table(measured).to_string()),
        Section::new("parts", parts_table(measured).to_string()),
    ]
}

fn programs_table(measured: &Measured) -> Table {
    let mut table = Table::new(&[
        "datagram",
        EGRESS,
        "bar",
        INGRESS_TC,
        "bar",
        INGRESS_XDP,
        "bar",
        BEHIND_XDP,
        SPLITTER,
    ]);
    let counting = counting(measured).map_or(0.0, |counting| counting.median);
    for family in Family::BOTH {
        for length in LENGTHS {
            for input in Input::ALL {
                let case = case(family, length, input);
                let of = |program| Some(measured.summary(&case, program, METRIC)?.less(counting));
                let judge = |program, bar: Option<Bar>| match (of(program), bar) {
                    (Some(found), Some(bar)) => bar.judge(Some(found)),
                    _ => String::new(),
                };
                let shown = |program| of(program).map_or_else(String::new, |s| spread(Some(s)));
                let inbound = Some(Bar::AtMost(120.0));
                let outbound = input.bar().filter(|_| length == 1400);
                table.row([
                    case.clone(),
                    shown(EGRESS),
                    judge(EGRESS, outbound),
                    shown(INGRESS_TC),
                    judge(INGRESS_TC, inbound),
                    shown(INGRESS_XDP),
                    judge(INGRESS_XDP, inbound),
                    shown(BEHIND_XDP),
                    shown(SPLITTER),
                ]);
            }
        }
    }
    table
}

/// What counting takes of each run: the run time of a program that does nothing.
fn counting(measured: &Measured) -> Option<Summary> {
    measured.summary(PRICED[0].name, HELPER, METRIC)
}

/// Prices, each less that of counting.
fn helpers_table(measured: &Measured) -> Table {
    let mut table = Table::new(&["what", "ns", "min to max of the whole program"]);
    let counting = counting(measured);
    for priced in PRICED {
        let whole = measured.summary(priced.name, HELPER, METRIC);
        let (Some(whole), Some(counting)) = (whole, counting) else {
            continue;
        };
        let base = if priced.name == PRICED[0].name {
            0.0
        } else {
            counting.median
        };
        let each = (whole.median - base) / priced.times as f64;
        let range = format!("{} to {}", number(whole.min), number(whole.max));
        table.row([priced.name.to_owned(), number(each), range]);
    }
    table
}

/// What two kinds of input differ in, and so what that costs.
fn parts_table(measured: &Measured) -> Table {
    let mut table = Table::new(&["part of egress", "IPv4, ns", "IPv6, ns"]);
    let [short, .., long] = LENGTHS;
    let (complete, room) = (Input::Complete, Input::CompleteWithRoom);
    let pending = Input::PartialWithRoom;
    let parts = [
        (
            "to copy the head for want of headroom",
            (long, complete),
            (long, room),
        ),
        (
            "to end a pending checksum, 64 bytes",
            (short, pending),
            (short, room),
        ),
        (
            "to end a pending checksum, 1,400 bytes",
            (long, pending),
            (long, room),
        ),
        (
            "to add up 1,336 bytes more",
            (long, pending),
            (short, pending),
        ),
        (
            "1,336 bytes more that are not added up",
            (long, room),
            (short, room),
        ),
    ];
    for (name, with, without) in parts {
        let cells = Family::BOTH.map(|family| {
            let of = |(length, input)| {
                let values = measured.values(&case(family, length, input), EGRESS, METRIC);
                Summary::of(values.into_iter().map(|(_, value)| value))
            };
            let difference = of(with).zip(of(without));
            let difference = difference.map(|(with, without)| with.less(without.median).median);
            difference.map_or_else(String::new, number)
        });
        table.row([name.to_owned()].into_iter().chain(cells));
    }
    let counting = counting(measured).map_or(0.0, |counting| counting.median);
    let rest = Family::BOTH.map(|family| {
        let found = measured.summary(&case(family, short, room), EGRESS, METRIC);
        found.map_or_else(String::new, |found| number(found.median - counting))
    });
    let rest_name = "all else: 64 bytes, complete, with headroom".to_owned();
    table.row([rest_name].into_iter().chain(rest));
    table
}
