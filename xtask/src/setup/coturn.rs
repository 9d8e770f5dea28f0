//! coturn, whose programs find out which kind of NAT there is.

use std::process::Command;

use anyhow::Result;
use xdptun_lab::command::run;
use xdptun_lab::workspace;

use super::Part;
use crate::debian::unpack;
use crate::shell::{as_root, run_visible};

/// From this distribution, with the libraries that this machine lacks. Unpacked, as an installed
/// one would start a service.
pub(super) fn parts() -> Vec<Part> {
    let folder = workspace::root().join(".tools/coturn");
    vec![Part {
        name: "coturn, which tells the kind of a NAT".into(),
        present: folder.is_dir(),
        install: Box::new(move || -> Result<()> {
            run_visible(as_root("apt-get")?.args(["--quiet", "update"]))?;
            let simulate = ["--simulate", "--no-install-recommends", "install", "coturn"];
            let plan = run(Command::new("apt-get").args(simulate))?;
            let packages: Vec<&str> = plan.lines().filter_map(installed).collect();
            unpack(Command::new("apt-get"), &packages, &folder, |_| Ok(()))
        }),
    }]
}

/// The package in a line of `apt-get --simulate`. `Conf ...` repeats each.
fn installed(line: &str) -> Option<&str> {
    line.strip_prefix("Inst ")?.split_whitespace().next()
}
