//! What the gateway forwards and translates.

use std::io::Write;

use anyhow::Result;

use super::{Words, print_attachment, print_counters};
use crate::cli::report::join;
use crate::observe::status::{Forwarded, GatewayStatus, Translated};

/// Prints an attachment of the gateway.
pub fn print(out: &mut impl Write, gateway: &GatewayStatus) -> Result<()> {
    let attachment = &gateway.attachment;
    writeln!(out, "{}  gateway", attachment.name)?;
    let no_daemon = format!(
        "sessions go on; the same command goes on with them, `xdptun detach --iface {}` ends them \
         and a tunnel there",
        attachment.name
    );
    let words = Words {
        shared: Some("sessions"),
        no_hooks: Some("nothing is forwarded"),
        no_daemon: &no_daemon,
    };
    print_attachment(out, attachment, &words)?;
    for rule in &gateway.forwards {
        writeln!(out, "  listen {}", forwarded(rule))?;
    }
    if let Some(nat) = &gateway.nat {
        writeln!(out, "  nat    {}", translated(nat))?;
        writeln!(
            out,
            "  bindings {} of {}; {} for a host at most",
            gateway.bindings, gateway.max_bindings, nat.max_bindings_per_host
        )?;
    }
    let states = gateway.session_states.iter();
    let states: Vec<_> = states
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    match &states[..] {
        [] => writeln!(out, "  no sessions")?,
        states => writeln!(
            out,
            "  sessions {}; `xdptun sessions` lists them",
            states.join(", ")
        )?,
    }
    print_counters(out, attachment)
}

/// What is translated: `192.168.7.0/24 -> 203.0.113.7, ports 1024-32767, endpoint-independent`.
fn translated(nat: &Translated) -> String {
    let outside = nat
        .outside
        .map_or("no address now".to_owned(), |outside| outside.to_string());
    let [first, last] = nat.ports;
    format!(
        "{} -> {outside}, ports {first}-{last}, filtering {}",
        join(&nat.inside),
        nat.filtering
    )
}

/// What is forwarded, in the words of the command line.
fn forwarded(rule: &Forwarded) -> String {
    let address = match rule.address.is_unspecified() {
        true if rule.address.is_ipv6() => "IPv6 ".to_owned(),
        true => "IPv4 ".to_owned(),
        false => format!("{} ", rule.address),
    };
    let ports = match rule.ports {
        [first, last] if first == last => first.to_string(),
        [first, last] => format!("{first}-{last}"),
    };
    let to = rule.to.iter().map(|target| {
        let weight = match target.weight {
            1 => String::new(),
            weight => format!("={weight}"),
        };
        let source = target.source.map(|source| format!(" from {source}"));
        // As many ports as there are to listen at.
        let more = rule.ports[1] - rule.ports[0];
        let last = match more {
            0 => String::new(),
            more => format!("-{}", target.address.port().saturating_add(more)),
        };
        format!(
            "{}{last}{weight}{}",
            target.address,
            source.unwrap_or_default()
        )
    });
    let to: Vec<String> = to.collect();
    format!("{address}{ports}/{} -> {}", rule.protocol, to.join(", "))
}
