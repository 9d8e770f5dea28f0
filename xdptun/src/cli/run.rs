//! `xdptun run`: the service, all interfaces of a file.

use std::path::PathBuf;
use std::rc::Rc;

use anyhow::Result;
use clap::Args;

use super::check;
use super::terminal::Terminal;
use crate::config::DEFAULT_PATH;
use crate::service::{self, Mode};

/// Do what a file says for each interface, until Ctrl-C or SIGTERM: carry UDP as TCP, forward ports,
/// translate inside hosts, let IPv6-only clients reach IPv4, search payloads.
///
/// `xdptun reload` or SIGHUP makes it read the file again. If an interface or the name of
/// a peer does not exist yet, it waits for it.
#[derive(Args)]
#[command(after_help = "Examples:\n  xdptun run\n  xdptun run --config ./two-links.toml")]
pub struct Arguments {
    /// The file.
    #[arg(long, short, value_name = "FILE", default_value = DEFAULT_PATH)]
    config: PathBuf,

    /// Take over from the running `xdptun run` without losing a datagram: to upgrade it.
    #[arg(long)]
    take_over: bool,

    /// Let sessions that an earlier run has left go on until they end, although the file no longer
    /// has their rules. Without it they are cut: both ends of a connection get RST.
    #[arg(long)]
    drain: bool,
}

/// Runs the verb.
pub fn run(arguments: Arguments) -> Result<()> {
    let config = check::read(&arguments.config)?;
    let frontend = Rc::new(Terminal::new(config.log_level));
    let mode = Mode {
        file: Some(arguments.config),
        incumbent: super::incumbent(arguments.take_over),
        drains: arguments.drain,
    };
    super::block_on(async { Ok(service::run(config, mode, frontend).await?) })
}
