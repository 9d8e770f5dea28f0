//! The tables of the document.

use anyhow::Result;
use xdptun_lab::Family;

use super::{
    BEHIND_XDP, EGRESS, FLOOR_EGRESS, FLOOR_INGRESS_TC, FLOOR_INGRESS_XDP, HELPER, INGRESS_BAR,
    INGRESS_TC, INGRESS_XDP, Input, LENGTHS, METRIC, RUNS, SPLITTER, case, foreign, veil,
};
use crate::document::Section;
use crate::kernel::PRICED;
use crate::plot::Bars;
use crate::results::{Measured, paired};
use crate::statistics::Summary;
use crate::table::{Table, number, spread};

/// The tables of the document.
pub fn sections(measured: &Measured) -> Result<Vec<Section>> {
    Ok(vec![
        Section::new("datapath", programs_table(measured).to_string()).with_plot(plot(measured)),
        Section::new("floor", floor_table(measured).to_string()),
        Section::new("veil", veil_table(measured).to_string()),
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
                // Ingress does not see how the sender made a checksum.
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
        INGRESS_TC,
        INGRESS_XDP,
        BEHIND_XDP,
        SPLITTER,
    ]);
    for case in cases() {
        let of = |program| without_counting(measured, &case, program);
        let shown = |program| of(program).map_or_else(String::new, |s| spread(Some(s)));
        let programs = [EGRESS, INGRESS_TC, INGRESS_XDP, BEHIND_XDP, SPLITTER];
        let cells = programs.map(shown);
        table.row([case.clone()].into_iter().chain(cells));
    }
    table
}

/// The names of all datagrams.
fn cases() -> Vec<String> {
    let mut cases = Vec::new();
    for family in Family::BOTH {
        for length in LENGTHS {
            cases.extend(Input::ALL.map(|input| case(family, length, input)));
        }
    }
    cases
}

/// The programs beside those of the floor.
fn floor_table(measured: &Measured) -> Table {
    let mut table = Table::new(&[
        "datagram",
        FLOOR_EGRESS,
        "egress of the floor",
        "goal",
        FLOOR_INGRESS_TC,
        "tc of the floor",
        "goal",
        FLOOR_INGRESS_XDP,
        "XDP of the floor",
        "goal",
    ]);
    for family in Family::BOTH {
        for length in LENGTHS {
            for input in Input::ALL.into_iter().filter(|input| input.has_floor()) {
                let case = case(family, length, input);
                let mut cells = vec![case.clone()];
                for (program, floor, bar) in [
                    (EGRESS, FLOOR_EGRESS, input.bar()),
                    (INGRESS_TC, FLOOR_INGRESS_TC, INGRESS_BAR),
                    (INGRESS_XDP, FLOOR_INGRESS_XDP, INGRESS_BAR),
                ] {
                    let ratio = of_floor(measured, &case, [program, floor]);
                    cells.push(spread(without_counting(measured, &case, floor)));
                    cells.push(spread(ratio));
                    cells.push(bar.judge(ratio));
                }
                table.row(cells);
            }
        }
    }
    table
}

/// The time of a program over that of the floor's, both without counting, in each round.
fn of_floor(measured: &Measured, case: &str, paths: [&str; 2]) -> Option<Summary> {
    let counting = counting(measured)?.median;
    let [program, floor] = paths.map(|path| measured.values(case, path, METRIC));
    let ratio = |program: f64, floor: f64| (program - counting) / (floor - counting);
    let ratios = paired(&program, &floor, ratio);
    Summary::of(ratios.into_iter().map(|(_, ratio)| ratio))
}

/// The programs without the veil and with it.
fn veil_table(measured: &Measured) -> Table {
    let mut table = Table::new(&[
        "datagram",
        "program",
        "without veil",
        "with veil",
        "difference",
        "goal",
    ]);
    for datagram in Family::BOTH.into_iter().flat_map(veil::datagrams) {
        let case = datagram.case();
        for paths in datagram.programs() {
            let [plain, veiled] = paths.map(|path| without_counting(measured, &case, path));
            let added = added_by_veil(measured, &case, *paths);
            let goal = datagram.goal().map(|goal| goal.judge(added));
            table.row([
                case.clone(),
                paths[0].to_owned(),
                spread(plain),
                spread(veiled),
                spread(added),
                goal.unwrap_or_default(),
            ]);
        }
    }
    table
}

/// The time of a program with the veil less its time without, in each round.
fn added_by_veil(measured: &Measured, case: &str, paths: [&str; 2]) -> Option<Summary> {
    let [plain, veiled] = paths.map(|path| measured.values(case, path, METRIC));
    let added = paired(&veiled, &plain, |veiled, plain| veiled - plain);
    Summary::of(added.into_iter().map(|(_, ns)| ns))
}

/// The part of each run that counting takes: the run time of a program that does
/// nothing.
fn counting(measured: &Measured) -> Option<Summary> {
    measured.summary(PRICED[0].name, HELPER, METRIC)
}

/// The time that a program takes for a datagram.
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

/// The costs of parts, each from two kinds of input that differ in it.
fn parts_table(measured: &Measured) -> Table {
    let mut table = Table::new(&["part of egress", "IPv4, ns", "IPv6, ns"]);
    for (name, with, without) in parts() {
        let cells = Family::BOTH.map(|family| {
            let of =
                |(length, input)| measured.summary(&case(family, length, input), EGRESS, METRIC);
            let difference = of(with).zip(of(without));
            let difference = difference.map(|(with, without)| with.less(without.median).median);
            difference.map_or_else(String::new, number)
        });
        table.row([name.to_owned()].into_iter().chain(cells));
    }
    let [short, ..] = LENGTHS;
    let rest = Family::BOTH.map(|family| {
        let case = case(family, short, Input::CompleteWithRoom);
        let found = measured.summary(&case, EGRESS, METRIC);
        let counting = counting(measured).map_or(0.0, |counting| counting.median);
        found.map_or_else(String::new, |found| number(found.median - counting))
    });
    let rest_name = "all else: 64 bytes, complete, with headroom".to_owned();
    table.row([rest_name].into_iter().chain(rest));
    table
}

/// A length and an input.
type Datagram = (usize, Input);

/// The parts, each with datagrams that have it and datagrams that do not.
fn parts() -> [(&'static str, Datagram, Datagram); 5] {
    let [short, .., long] = LENGTHS;
    let (complete, room) = (Input::Complete, Input::CompleteWithRoom);
    let pending = Input::PartialWithRoom;
    [
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
    ]
}

/// The cost of foreign packets, less the time of a program that does nothing.
fn foreign_table(measured: &Measured) -> Result<Table> {
    let programs = [EGRESS, INGRESS_TC, INGRESS_XDP];
    let mut columns = vec!["packet"];
    columns.extend(programs);
    let mut table = Table::new(&columns);
    for (case, _) in foreign::packets()? {
        let of = |path| measured.summary(case, path, METRIC);
        let nothing = of(HELPER).map_or(0.0, |nothing| nothing.median);
        let cells = programs.map(|path| spread(of(path).map(|found| found.less(nothing))));
        table.row([case.to_owned()].into_iter().chain(cells));
    }
    Ok(table)
}
