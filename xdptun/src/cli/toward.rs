//! The interface that leads to a peer, for who does not name it.

use std::collections::BTreeSet;
use std::net::ToSocketAddrs as _;

use anyhow::{Context as _, Result, bail};

use super::report::join;
use crate::host::interface::name_of;
use crate::host::route::ways_to;

/// The name of the interface by which packets to a peer leave, which is an address or a host name.
pub fn interface_to(peer: &str) -> Result<String> {
    let addresses = (peer, 0)
        .to_socket_addrs()
        .with_context(|| format!("--to {peer}: cannot find its address"))?;
    let ways = ways_to(addresses.map(|address| address.ip()))?;
    let mut names = BTreeSet::new();
    for way in ways.into_values().flatten() {
        if way.is_local {
            bail!("--to {peer}: it is this host itself; give the address of the other one");
        }
        names.extend(name_of(way.interface));
    }
    let names: Vec<String> = names.into_iter().collect();
    match &names[..] {
        [name] => Ok(name.clone()),
        [] => bail!("--to {peer}: no route leads there; `ip route` lists the routes"),
        names => bail!(
            "--to {peer}: it has addresses behind {}; choose with `--iface`",
            join(names)
        ),
    }
}
