//! What the gateway does on an interface.

use std::io::Write as _;

use crate::cli::output::output;
use crate::error::Result;
use crate::gateway::session;
use crate::gateway::{Attached, Plan};
use crate::group::Carried;

/// Prints what was attached, and what is done there.
pub fn announce(attached: &Attached, carried: &Carried, plan: &Plan, way_out: &str) -> Result<()> {
    let name = &carried.kept_as;
    let mut out = output();
    let tc = if carried.tcx { "TCX" } else { "clsact" };
    let Some(forwards) = plan.forwards.get(name) else {
        writeln!(
            out,
            "{name}: tc ingress and tc egress ({tc}), for packets of sessions that began elsewhere"
        )?;
        return Ok(out.flush()?);
    };
    writeln!(out, "{name}: tc ingress and tc egress ({tc})")?;
    if attached.adopted {
        let sessions: usize = session::states(&attached.maps)?.values().sum();
        writeln!(
            out,
            "{name}: took over what was attached, sessions: {sessions}"
        )?;
    }
    for forward in forwards {
        writeln!(out, "{name}: {forward}")?;
    }
    if let Some(nat) = plan.nats.get(name) {
        let outside = plan.seen().outside.get(name);
        let outside = outside.map_or("none yet".to_owned(), ToString::to_string);
        writeln!(out, "{name}: inside {nat}; outside address {outside}")?;
    }
    let words = plan.does_on(name).unwrap_or_default();
    writeln!(out, "ready: {name} {words}{way_out}")?;
    Ok(out.flush()?)
}
