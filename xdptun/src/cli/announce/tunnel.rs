//! What the tunnel does on an interface.

use std::io::{self, Write};

use tracing::debug;

use crate::cli::output::output;
use crate::cli::report::join_some;
use crate::config::Veil;
use crate::error::Result;
use crate::group::Carried;
use crate::host::ephemeral::Exposed;
use crate::host::listeners;
use crate::host::mtu::{IPV6_LEAST, WIREGUARD_DEFAULT, WireguardMtu};
use crate::host::ports::{PortRange, carries};
use crate::tunnel::{Attached, Settings};

/// Prints what was attached and where; the last line starts with `ready:`.
pub fn announce(
    attached: &Attached,
    carried: &Carried,
    settings: &Settings,
    way_out: &str,
) -> Result<()> {
    let interface = &carried.interface;
    let name = &interface.name;
    let ports = attached.maps.ports()?;
    let mut out = output();
    say_attachment(&mut out, attached, carried, settings)?;
    say_mtu(&mut out, name, interface.mtu)?;
    say_tcp(&mut out, name, settings, &ports)?;
    say_exposed(&mut out, name, &ports)?;
    let vlans = interface.vlans()?;
    if !vlans.is_empty() {
        writeln!(
            out,
            "{name}: datagrams of {} are refused here; attach to the VLAN's own device to carry them",
            vlans.join(", ")
        )?;
    }
    if !interface.is_up {
        writeln!(out, "{name}: it is down; `ip link set {name} up`")?;
    }
    writeln!(out, "ready: {}{way_out}", carries(name, &ports))?;
    out.flush()?;
    Ok(())
}

/// Prints the hooks, what was taken over, and the peers.
fn say_attachment(
    out: &mut impl Write,
    attached: &Attached,
    carried: &Carried,
    settings: &Settings,
) -> Result<()> {
    let name = &carried.interface.name;
    let tc = if carried.tcx { "TCX" } else { "clsact" };
    let merged = if carried.gro {
        ", merged again for sockets with UDP_GRO"
    } else {
        ""
    };
    writeln!(
        out,
        "{name}: tc egress and tc ingress ({tc}); inbound data restored by {}{merged}",
        carried.ingress.name()
    )?;
    if attached.adopted {
        say_taken_over(out, attached, carried, settings)?;
    }
    if let Some(refusal) = &carried.xdp_refusal {
        writeln!(out, "{name}: no native XDP: {refusal}")?;
    }
    if settings.only_peers {
        writeln!(out, "{name}: only for {}", join_some(&settings.peers))?;
    }
    match settings.veil.map(Veil::pads_to) {
        None => {}
        Some(0) => writeln!(out, "{name}: payloads are veiled")?,
        Some(bytes) => writeln!(
            out,
            "{name}: payloads are veiled, and short datagrams padded to {bytes} bytes at most"
        )?,
    }
    let phantuns = &settings.phantuns;
    if phantuns.all {
        writeln!(out, "{name}: takes all peers for phantuns")?;
    } else if phantuns.some {
        let networks: Vec<String> = phantuns.networks.iter().map(ToString::to_string).collect();
        writeln!(out, "{name}: takes for phantuns: {}", networks.join(", "))?;
    }
    Ok(())
}

/// Prints what was taken over. The interfaces of a group share flows, so the first tells what becomes of
/// them.
fn say_taken_over(
    out: &mut impl Write,
    attached: &Attached,
    carried: &Carried,
    settings: &Settings,
) -> Result<()> {
    let name = &carried.interface.name;
    let flows = attached.maps.flows()?;
    writeln!(
        out,
        "{name}: took over what was attached, with {} flows",
        flows.len()
    )?;
    if attached.indices().first() != Some(&carried.interface.index) {
        return Ok(());
    }
    let dropped = flows.iter().filter(|(key, _)| !settings.carry(key));
    if let dropped @ 1.. = dropped.count() {
        writeln!(
            out,
            "{name}: flows of ports or peers that are not carried any more: {dropped}; they end \
             without a FIN"
        )?;
    }
    Ok(())
}

/// Prints the MTU, and what it means for WireGuard.
fn say_mtu(out: &mut impl Write, name: &str, interface: u32) -> io::Result<()> {
    let mtu = WireguardMtu::on(interface);
    writeln!(
        out,
        "{name}: MTU {interface}; WireGuard inside can use MTU {} over IPv4, {} over IPv6",
        mtu.v4, mtu.v6
    )?;
    if mtu.v6 < WIREGUARD_DEFAULT {
        let safe = mtu.v4.min(WIREGUARD_DEFAULT);
        let advice = if mtu.v4 < WIREGUARD_DEFAULT {
            format!(
                "set `MTU = {safe}` in wg0.conf, or `MTU = {}` if the peer is reached over IPv6",
                mtu.v6
            )
        } else {
            format!(
                "if the peer is reached over IPv6, set `MTU = {}` in wg0.conf: \
                 the default of {WIREGUARD_DEFAULT} does not fit there",
                mtu.v6
            )
        };
        writeln!(out, "{name}: {advice}")?;
    }
    let least = WireguardMtu::FOR_IPV6_INSIDE;
    if interface < least.v6 {
        writeln!(
            out,
            "{name}: for IPv6 inside ({IPV6_LEAST} bytes at least), this interface needs MTU {}, or {} \
             if the peer is reached over IPv6",
            least.v4, least.v6
        )?;
    }
    Ok(())
}

/// Prints what happens to other TCP on the owned ports.
fn say_tcp(
    out: &mut impl Write,
    name: &str,
    settings: &Settings,
    ports: &[PortRange],
) -> io::Result<()> {
    if settings.keys.is_some() {
        return writeln!(
            out,
            "{name}: answers only callers that know the secret; other TCP to these ports goes to this host"
        );
    }
    match listeners::listening(ports) {
        Ok(servers) if servers.is_empty() => {}
        Ok(servers) => writeln!(
            out,
            "{name}: the TCP server on port {} cannot be reached here any more; \
             with a secret both share the port",
            servers.join(", ")
        )?,
        Err(error) => debug!("cannot look for TCP servers: {error:#}"),
    }
    Ok(())
}

/// Prints the owned ports that the kernel may give to any UDP socket of this host.
fn say_exposed(out: &mut impl Write, name: &str, ports: &[PortRange]) -> io::Result<()> {
    match Exposed::among(ports) {
        Ok(None) => {}
        Ok(Some(exposed)) => writeln!(
            out,
            "{name}: the kernel may give port {} to a UDP socket that asks for any port; its \
             datagrams would leave as TCP; `{}` prevents it",
            exposed.ports(),
            exposed.command()
        )?,
        Err(error) => debug!("cannot look for reserved ports: {error:#}"),
    }
    Ok(())
}
