//! What the policy does on an interface.

use std::io::Write as _;

use crate::cli::output::output;
use crate::error::Result;
use crate::group::Carried;
use crate::policy::{Attached, Plan};

/// Prints what was attached, and by which rules packets are searched there.
pub fn announce(attached: &Attached, carried: &Carried, plan: &Plan, way_out: &str) -> Result<()> {
    let name = &carried.kept_as;
    let mut out = output();
    let tc = if carried.tcx { "TCX" } else { "clsact" };
    writeln!(out, "{name}: tc ingress and tc egress ({tc})")?;
    if attached.adopted {
        writeln!(
            out,
            "{name}: took over what was attached, hits of equal rules go on"
        )?;
    }
    for (place, rule) in plan.rules.get(name).into_iter().flatten().enumerate() {
        writeln!(out, "{name}: {}: {rule}", rule.name_at(place))?;
    }
    let words = plan.does_on(name).unwrap_or_default();
    writeln!(out, "ready: {name} {words}{way_out}")?;
    Ok(out.flush()?)
}
