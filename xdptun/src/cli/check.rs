//! `xdptun check`: whether a configuration file is right.

use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use clap::Args;
use nix::net::if_::if_nametoindex;
use tracing::warn;

use super::report::{join, join_some};
use super::terminal::Terminal;
use crate::config::{Config, DEFAULT_PATH, LogLevel, Peer, SAMPLE};
use crate::gateway::{Plan, preflight};
use crate::policy;
use crate::tunnel::secret;

/// Check a configuration file; change nothing.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The file.
    #[arg(value_name = "FILE", default_value = DEFAULT_PATH)]
    file: PathBuf,

    /// The file, given as for `xdptun run`.
    #[arg(long, short, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,

    /// Print a file to begin with: all options, each with a comment.
    #[arg(long, exclusive = true)]
    sample: bool,
}

const EXAMPLES: &str = "\
Examples:
  xdptun check
  xdptun check ./two-links.toml
  xdptun check --sample";

/// Runs the verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.sample {
        return Ok(io::stdout().write_all(SAMPLE.as_bytes())?);
    }
    // Warnings about the file go through the log.
    let _log = Terminal::new(LogLevel::Warn);
    let file = arguments.config.as_ref().unwrap_or(&arguments.file);
    let config = read(file)?;
    for (name, interface) in &config.interfaces {
        let absent = match if_nametoindex(name.as_str()) {
            Ok(_) => "",
            Err(_) => " (no such interface now; `xdptun run` waits for it)",
        };
        if interface.has_tunnel() {
            secret::read_all(interface).with_context(|| format!("interface {name}"))?;
            interface.warn(name);
            let ports = join(&interface.ports);
            let peers: Vec<&Peer> = interface.peers().collect();
            let peers = match &peers[..] {
                [] => String::new(),
                peers => format!("; only for {}", join_some(peers)),
            };
            println!("{name}: ports {ports}{peers}{absent}");
        }
        for forward in &interface.forward {
            println!("{name}: forwards {forward}{absent}");
        }
        if let Some(nat) = &interface.nat {
            println!("{name}: translates {nat}{absent}");
        }
        for (place, rule) in interface.policy.iter().enumerate() {
            println!("{name}: {}: {rule}{absent}", rule.name_at(place));
        }
    }
    policy::Plan::of(&config)?;
    if let Some(plan) = Plan::of(&config)? {
        preflight::warn_of_routing(&plan);
        if let Err(why) = preflight::refuse_served(&plan, None) {
            warn!("a start would be refused: {why:#}");
        }
    }
    let count = config.interfaces.len();
    let plural = if count == 1 { "" } else { "s" };
    println!("ok: {}, {count} interface{plural}", file.display());
    Ok(())
}

/// Reads a file for a command.
pub fn read(file: &Path) -> Result<Config> {
    Config::read(file).map_err(|error| match error.io_kind() {
        Some(ErrorKind::NotFound) => {
            anyhow!("{error:#}; `xdptun check --sample` prints a file to begin with")
        }
        _ => error.into(),
    })
}
