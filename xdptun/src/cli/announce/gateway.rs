//! What the gateway does on an interface.

use std::io::{self, Write as _};

use crate::error::Result;
use crate::gateway::session;
use crate::gateway::{Attached, Plan};
use crate::group::Carried;

/// Prints what was attached, and what is forwarded of the packets that come in there.
pub fn announce(attached: &Attached, carried: &Carried, plan: &Plan, way_out: &str) -> Result<()> {
    let name = &carried.kept_as;
    let mut out = io::stdout().lock();
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
    let words = plan.forwards_by(name).unwrap_or_default();
    writeln!(out, "ready: {name} {words}{way_out}")?;
    Ok(out.flush()?)
}
