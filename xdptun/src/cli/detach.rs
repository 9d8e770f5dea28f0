//! `xdptun detach`: end an attachment, or remove what a killed process left.

use anyhow::{Result, bail};
use clap::Args;

use crate::error::{Error, Kind};
use crate::gateway::Gateway;
use crate::group::Function;
use crate::group::detach::{self, Detached};
use crate::nat64::Nat64;
use crate::policy::Policy;
use crate::tunnel::Tunnel;

/// Detach from an interface and those that share its flows; remove what a killed process left.
///
/// It ends all that xdptun does there: tunnel, forwarded ports, inside hosts, NAT64 and rules, also on
/// the other interfaces of their groups. A running xdptun first closes its flows, and then stops. To
/// take one interface out of a group, use `xdptun run` and its file.
#[derive(Args)]
#[command(after_help = "Example:\n  xdptun detach --iface eth0")]
pub struct Arguments {
    /// Interface to detach from.
    #[arg(long, short, value_name = "NAME")]
    iface: String,
}

/// Runs the verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let name = &arguments.iface;
    let mut ended = false;
    let mut missing = None;
    for end in [end::<Tunnel>, end::<Policy>, end::<Gateway>, end::<Nat64>] {
        match end(name) {
            Ok(was_attached) => ended |= was_attached,
            // An interface that is gone left the pins of those functions that it had.
            Err(why) if why.kind() == Kind::NoInterface => missing = Some(why),
            Err(why) => return Err(why.into()),
        }
    }
    match missing {
        _ if ended => Ok(()),
        Some(why) => Err(why.into()),
        None => bail!("{name}: nothing is attached"),
    }
}

/// Ends what a function has there; whether it has anything.
fn end<F: Function>(name: &str) -> Result<bool, Error> {
    let Detached {
        stopped,
        interfaces,
    } = detach::detach::<F>(name)?;
    if let Some(process) = stopped {
        println!("{name}: stopped process {process}");
    }
    for interface in &interfaces {
        println!("{interface}: detached");
    }
    Ok(stopped.is_some() || !interfaces.is_empty())
}
