//! How long it takes to attach and to detach.

use std::time::Instant;

use anyhow::Result;
use xdptun_lab::topology::Direct;
use xdptun_lab::{Attached, Host, xdptun};

use crate::document::Section;
use crate::harness::Harness;
use crate::results::Measured;
use crate::route::PORT;
use crate::table::{Goal, Table, spread};

/// Where datagrams are restored.
const CASES: [&str; 2] = ["tc", "xdp"];

const PATH: &str = "xdptun";

/// Steps, each with its goal in milliseconds.
const STEPS: [(&str, Goal); 2] = [
    ("attach until ready, ms", Goal::AtMost(400.0)),
    ("detach without flows, ms", Goal::AtMost(300.0)),
];

/// Attaches and detaches, as a user's commands do.
pub fn measure(harness: &mut Harness) -> Result<()> {
    let net = Direct::new()?;
    let netns = &net.a.netns;
    let port = PORT.to_string();
    harness.rounds(|round| {
        for case in CASES {
            let start = Instant::now();
            let options = ["--port", &port, "--ingress", case];
            let attached = Attached::start(netns, Host::DEV, &options)?;
            let ready = start.elapsed();
            let start = Instant::now();
            xdptun::run_in(netns, &["detach", "--iface", Host::DEV])?;
            let detached = start.elapsed();
            drop(attached);
            let milliseconds = [ready, detached].map(|time| time.as_secs_f64() * 1e3);
            let names = STEPS.map(|(name, _)| name);
            let values: Vec<_> = names.into_iter().zip(milliseconds).collect();
            round.keep(case, PATH, &values);
        }
        Ok(())
    })
}

/// The table of the document.
pub fn sections(measured: &Measured) -> Result<Vec<Section>> {
    let columns = STEPS.iter().flat_map(|(name, _)| [*name, "goal"]);
    let columns: Vec<_> = ["restored by"].into_iter().chain(columns).collect();
    let mut table = Table::new(&columns);
    for case in measured.names(|sample| &sample.case) {
        let cells = STEPS.iter().flat_map(|(name, goal)| {
            let found = measured.summary(case, PATH, name);
            [spread(found), goal.judge(found)]
        });
        table.row([case.to_owned()].into_iter().chain(cells));
    }
    Ok(vec![Section::new("start", table.to_string())])
}
