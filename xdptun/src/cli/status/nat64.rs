//! What NAT64 translates.

use std::io::Write;

use anyhow::Result;

use super::{Words, print_attachment, print_counters};
use crate::cli::report::join;
use crate::observe::nat64::Nat64Status;

/// Prints the attachment of NAT64.
pub fn print(out: &mut impl Write, nat64: &Nat64Status) -> Result<()> {
    let attachment = &nat64.attachment;
    writeln!(out, "{}  nat64", attachment.name)?;
    let no_daemon = format!(
        "clients keep their addresses; the same command goes on with them, `xdptun detach --iface {}` \
         ends them",
        attachment.name
    );
    let words = Words {
        shared: Some("clients"),
        no_hooks: Some("nothing is translated"),
        no_daemon: &no_daemon,
    };
    print_attachment(out, attachment, &words)?;
    writeln!(out, "  nat64  {} -> {}", join(&nat64.inside), nat64.prefix)?;
    let states = nat64.client_states.iter();
    let states: Vec<_> = states
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    writeln!(
        out,
        "  pool   {}; of {} clients {}; {} for a network of 64 bits at most",
        nat64.pool,
        nat64.max_clients,
        states.join(", "),
        nat64.max_per_prefix
    )?;
    print_counters(out, attachment)
}
