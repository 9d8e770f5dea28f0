//! What NAT64 does.

use std::io::Write as _;

use crate::cli::output::output;
use crate::error::Result;
use crate::group::Carried;
use crate::nat64::{Attached, Plan, session};

/// Prints what was attached, and what is translated.
pub fn announce(attached: &Attached, carried: &Carried, plan: &Plan, way_out: &str) -> Result<()> {
    let name = &carried.kept_as;
    let mut out = output();
    let tc = if carried.tcx { "TCX" } else { "clsact" };
    writeln!(out, "{name}: tc egress ({tc})")?;
    if attached.adopted {
        let clients: usize = session::states(&attached.maps)?.values().sum();
        writeln!(
            out,
            "{name}: took over what was attached, clients: {clients}"
        )?;
    }
    writeln!(out, "{name}: {}", plan.nat64)?;
    for fixed in &plan.nat64.fixed {
        writeln!(out, "{name}: static {fixed}")?;
    }
    writeln!(out, "ready: {name} {}{way_out}", plan.does())?;
    Ok(out.flush()?)
}
