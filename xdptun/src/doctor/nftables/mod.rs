//! The rules of netfilter, as `nft` lists them in JSON (libnftables-json(5)).

pub mod iptables;
mod ruleset;
mod value;
mod verdict;

pub use ruleset::{BaseChain, Rule, Ruleset, Table, Tool};
pub use value::{is_named, port_range};
pub use verdict::{MAX_DEPTH, Verdict, iptables_target};

use std::io;
use std::process::Command;

use crate::error::{Context as _, Result, bail};

/// The rules of this network namespace; `None` if `nft` is not installed.
pub fn list() -> Result<Option<Ruleset>> {
    let output = match Command::new("nft").args(["-j", "list", "ruleset"]).output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context("cannot run nft"),
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(Other, "`nft -j list ruleset`: {}", said.trim());
    }
    Ruleset::parse(&String::from_utf8(output.stdout)?).map(Some)
}
