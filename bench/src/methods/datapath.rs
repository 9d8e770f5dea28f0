//! What each program takes for a packet, by the kernel's own count.

use std::time::Duration;

use anyhow::{Context, Result};
use etherparse::PacketBuilder;
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use xdptun_lab::Family;

use crate::course::Course;
use crate::document::Section;
use crate::forwarded::Forwarded;
use crate::harness::{Harness, Round};
use crate::kernel::{Counting, Micro, PRICED, Programs, time_of};
use crate::load::{Load, Pace, carry, first_delivery};
use crate::plot::Bars;
use crate::results::Measured;
use crate::statistics::Summary;
use crate::table::{Bar, Table, number, spread};

/// Payload bytes.
const LENGTHS: [usize; 3] = [64, 512, 1400];

/// Datagrams of a super-packet.
const PIECES: usize = 10;

/// The only metric: run time divided by runs, counting included.
const METRIC: &str = "ns";

/// For super-packets, which a program meets as well: its runs by datagrams.
const RUNS: &str = "runs";

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
        foreign(round, [&tc, &xdp], &micros[0])?;
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
        let of_each = |number: u64| number as f64 / count as f64;
        for (program, spent) in [(EGRESS, egress), (SPLITTER, splitter)] {
            let values = [(METRIC, of_each(spent.ns)), (RUNS, of_each(spent.runs))];
            round.record(&case, program, &values);
        }
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

/// What packets cost that are none of ours: the programs leave them as they are, so
/// that the kernel can run them on one again and again.
fn foreign(round: &mut Round<'_>, [tc, xdp]: [&Rig; 2], nothing: &Micro) -> Result<()> {
    let (sender, receiver) = (tc.course.process(0)?, tc.course.process(1)?);
    let fast = xdp.course.process(1)?;
    for (case, packet) in foreign_packets()? {
        for (path, process, program) in [
            (EGRESS, sender, "xdptun_egress"),
            (INGRESS_TC, receiver, "xdptun_ingress"),
            (INGRESS_XDP, fast, "xdptun_fast"),
        ] {
            let ns = time_of(&Programs::named(process, program)?, &packet)?;
            round.record(case, path, &[(METRIC, ns)]);
        }
        let ns = time_of(&nothing.info()?, &packet)?;
        round.record(case, HELPER, &[(METRIC, ns)]);
    }
    Ok(())
}

/// Packets of other people.
fn foreign_packets() -> Result<[(&'static str, Vec<u8>); 3]> {
    const OTHER: [u16; 2] = [40_000, 443];
    let payload = [0x5a; 1400];
    // The test runs on the loopback, whose address is zero: what is for another
    // host the programs would not look at.
    let start = || PacketBuilder::ethernet2([2; 6], [0; 6]);
    let ip = || start().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    let [from, to] = OTHER;
    let (mut udp, mut tcp, mut echo) = (Vec::new(), Vec::new(), Vec::new());
    ip().udp(from, to).write(&mut udp, &payload)?;
    ip().tcp(from, to, 1, 1000)
        .ack(1)
        .write(&mut tcp, &payload)?;
    ip().icmpv4_echo_request(1, 1)
        .write(&mut echo, &payload[..56])?;
    Ok([
        ("UDP of other ports, 1,400 bytes", udp),
        ("TCP of other ports, 1,400 bytes", tcp),
        ("ICMP echo, 56 bytes", echo),
    ])
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
pub fn sections(measured: &Measured) -> Result<Vec<Section>> {
    Ok(vec![
        Section::new("datapath", programs_table(measured).to_string()).with_plot(plot(measured)),
        Section::new("helpers", helpers_table(measured).to_string()),
        Section::new("parts", parts_table(measured).to_string()),
        Section::new("foreign", foreign_table(measured)?.to_string()),
    ])
}

/// All programs with the longest datagrams.
fn plot(measured: &Measured) -> Bars {
    let mut bars = Bars::new("A datagram of 1,400 bytes in each program", "ns");
    for family in Family::BOTH {
        let programs = [EGRESS, INGRESS_TC, INGRESS_XDP];
        for (colour, program) in programs.into_iter().enumerate() {
            for input in Input::ALL {
                let found = without_counting(measured, &case(family, 1400, input), program);
                let label = format!("{family}, {program}, {}", input.name());
                // What arrives does not tell how its checksum was made.
                if program == EGRESS || input == Input::Complete {
                    bars.add(label, colour, found);
                }
            }
        }
    }
    bars
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
    for family in Family::BOTH {
        for length in LENGTHS {
            for input in Input::ALL {
                let case = case(family, length, input);
                let of = |program| without_counting(measured, &case, program);
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

/// What a program takes for a datagram.
fn without_counting(measured: &Measured, case: &str, program: &str) -> Option<Summary> {
    let counting = counting(measured).map_or(0.0, |counting| counting.median);
    let runs = measured.summary(case, program, RUNS);
    let runs = runs.map_or(1.0, |runs| runs.median);
    let found = measured.summary(case, program, METRIC)?;
    Some(found.less(counting * runs))
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
            "no headroom (1,400 bytes are moved instead)",
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

/// What other people's packets pay, less what a run of nothing takes.
fn foreign_table(measured: &Measured) -> Result<Table> {
    let programs = [EGRESS, INGRESS_TC, INGRESS_XDP];
    let mut columns = vec!["packet"];
    columns.extend(programs);
    let mut table = Table::new(&columns);
    for (case, _) in foreign_packets()? {
        let of = |path| measured.summary(case, path, METRIC);
        let nothing = of(HELPER).map_or(0.0, |nothing| nothing.median);
        let cells = programs.map(|path| spread(of(path).map(|found| found.less(nothing))));
        table.row([case.to_owned()].into_iter().chain(cells));
    }
    Ok(table)
}
