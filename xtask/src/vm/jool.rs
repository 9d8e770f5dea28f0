//! NAT64 beside Jool, in one guest, and a table of it.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use xdptun_lab::document::{is_between_markers, write_between_markers};

use crate::debian::Arch;
use crate::guest::{Hypervisor, Job};
use crate::setup;
use crate::test::guests::{JOOL_SUITE, report, suites_job};
use crate::test::suite::Totals;
use crate::test::{self, worker};

/// The kernel of the release that has this Jool.
const KERNEL: &str = "6.1";

/// The environment variable that tells the suite where to leave the table.
const TABLE: &str = "XDPTUN_TABLE";

/// Where the table is in the shared folder.
const FILE: &str = "table.md";

/// The document that has the table, between markers of the suite's name.
const DOCUMENT: &str = "docs/nat64.md";

/// Runs the suite, and requires that the document has the table that it makes, or writes it there.
pub fn run(limit: Duration, write: bool) -> Result<()> {
    setup::ensure_vm()?;
    let suite = test::build_special_suite(JOOL_SUITE)?;
    let hypervisor = Hypervisor::new(Arch::X86_64);
    hypervisor.build_jool(KERNEL)?;
    let suites = worker::Job {
        suites: vec![suite],
        harness: Vec::new(),
        totals: Totals::new(SystemTime::now()),
    };
    let mut job = suites_job(hypervisor.arch(), &suites)?;
    let file = Path::new(Job::SHARE).join(FILE);
    job.environment = vec![(TABLE, file.display().to_string())];
    let mut guest = hypervisor.boot(KERNEL, &job, &[])?;
    let ended = guest.run(limit, |line| println!("{line}"))?;
    let mut totals = suites.totals;
    let outcomes = report(&guest, ended)?.outcomes;
    outcomes.into_iter().for_each(|outcome| totals.add(outcome));
    let table = guest.read(FILE)?;
    if write {
        write_between_markers(DOCUMENT, JOOL_SUITE, &table)?;
    }
    totals.conclude()?;
    ensure!(
        is_between_markers(DOCUMENT, JOOL_SUITE, &table)?,
        "{DOCUMENT} has another table than this run; `cargo xtask vm --jool --write` writes it"
    );
    Ok(())
}
