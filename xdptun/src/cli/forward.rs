//! `xdptun forward`: forward ports to back ends until Ctrl-C.

use std::path::PathBuf;

use anyhow::Result;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};

use super::gateway::Options;
use crate::config::{Config, Forward, InterfaceConfig, Listen, Source, To, check_all, read_table};

/// Forward ports of this host to back ends until Ctrl-C or SIGTERM.
///
/// The kernel forwards TCP and UDP packets by eBPF programs: connections are not terminated,
/// and what client and back end say passes as it is. This host has to route
/// (`sysctl -w net.ipv4.ip_forward=1`). Connections that this host itself opens to a listen
/// address are not forwarded.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Interface by which clients come; may be repeated.
    #[arg(
        long,
        short,
        required = true,
        value_name = "NAME",
        value_delimiter = ','
    )]
    iface: Vec<String>,

    #[command(flatten)]
    rules: Rules,

    /// File with rules, in lines like `7000=10.0.0.5|7000`; its first line is a comment.
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,

    /// Forward ports although a server of this host waits for packets to them.
    #[arg(long)]
    steal: bool,

    /// Let sessions that an earlier run has left go on until they end, although their rules are
    /// gone. Without it they are cut: both ends of a connection get RST.
    #[arg(long)]
    drain: bool,

    #[command(flatten)]
    options: Options,
}

const EXAMPLES: &str = "\
Examples:
  xdptun forward --iface eth0 --listen 7000 --to 10.9.9.5:7000
  xdptun forward -i eth0 --listen 443/udp --to 10.9.9.5:443 --source masquerade
  xdptun forward -i eth0 --listen 80 --to 10.9.9.1:80 --to 10.9.9.2:80=3
  xdptun forward -i eth0 --listen 8000-8009/tcp --to 10.9.9.1:9000-9009
  xdptun forward --iface eth0 --table port_fwd_table.config
  xdptun forward -i eth0 --listen 7000 --to 10.9.9.6:7000 --take-over --drain";

/// Rules: a `--listen`, the `--to` that follow it, and one `--source` if need be.
struct Rules(Vec<Forward>);

impl Args for Rules {
    fn augment_args(command: Command) -> Command {
        let listen = Arg::new("listen")
            .long("listen")
            .value_name("[ADDRESS:]PORT[-PORT][/tcp|/udp]")
            .value_parser(value_parser!(Listen))
            .action(ArgAction::Append)
            .required_unless_present("table")
            .help(
                "Port to forward, of this host's own addresses unless one is given; TCP and UDP \
                 unless one is named. Takes the `--to` that follow it; may be repeated",
            );
        let to = Arg::new("to")
            .long("to")
            .value_name("ADDRESS:PORT[-PORT][=WEIGHT]")
            .value_parser(value_parser!(To))
            .action(ArgAction::Append)
            .help(
                "Back end of the `--listen` before it; may be repeated: a client's address and \
                 port decide which one a session gets",
            );
        let source = Arg::new("source")
            .long("source")
            .value_name("keep|masquerade|ADDRESS[:PORT-PORT]")
            .value_parser(value_parser!(Source))
            .action(ArgAction::Append)
            .help(
                "What the back ends of the `--listen` before it see as the source: the client (keep; \
                 the answers then have to return through this host), the address of this host \
                 towards the back end (masquerade), or another address of this host [default: \
                 keep]",
            );
        command.arg(listen).arg(to).arg(source)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Rules {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut rules = Self(Vec::new());
        rules.update_from_arg_matches(matches)?;
        Ok(rules)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let mut words: Vec<(usize, Word)> = Vec::new();
        words.extend(given::<Listen>(matches, "listen", Word::Listen));
        words.extend(given::<To>(matches, "to", Word::To));
        words.extend(given::<Source>(matches, "source", Word::Source));
        words.sort_by_key(|(place, _)| *place);
        for (_, word) in words {
            match (word, self.0.last_mut()) {
                (Word::Listen(listen), _) => self.0.push(Forward {
                    listen,
                    to: Vec::new(),
                    source: Source::Keep,
                    steal: false,
                }),
                (Word::To(to), Some(forward)) => forward.to.push(to),
                (Word::Source(source), Some(forward)) => forward.source = source,
                (Word::To(_) | Word::Source(_), None) => {
                    let message = "`--to` and `--source` belong to the `--listen` before them; \
                                   write `--listen` first\n";
                    return Err(clap::Error::raw(
                        clap::error::ErrorKind::ArgumentConflict,
                        message,
                    ));
                }
            }
        }
        Ok(())
    }
}

/// A word of a rule.
enum Word {
    Listen(Listen),
    To(To),
    Source(Source),
}

/// The values of an option and their places on the command line.
fn given<T: Clone + Send + Sync + 'static>(
    matches: &ArgMatches,
    name: &str,
    word: fn(T) -> Word,
) -> Vec<(usize, Word)> {
    if matches.value_source(name) != Some(ValueSource::CommandLine) {
        return Vec::new();
    }
    let places = matches.indices_of(name).into_iter().flatten();
    let values = matches.get_many::<T>(name).into_iter().flatten().cloned();
    places.zip(values.map(word)).collect()
}

/// Runs the verb.
pub fn run(arguments: Arguments) -> Result<()> {
    let advice = "one process forwards for an interface; give it all rules";
    let drains = arguments.drain;
    let (config, options) = configuration(arguments)?;
    options.run(config, drains, advice)
}

/// What the arguments ask for.
fn configuration(arguments: Arguments) -> Result<(Config, Options)> {
    let mut forward = arguments.rules.0;
    if let Some(table) = &arguments.table {
        forward.extend(read_table(table)?);
    }
    for rule in &mut forward {
        rule.steal = arguments.steal;
    }
    check_all(&forward)?;
    let options = arguments.options;
    let interface = InterfaceConfig {
        tc: options.tc(),
        forward,
        ..InterfaceConfig::new(Vec::new())
    };
    let interfaces = arguments.iface.into_iter();
    let config = Config {
        interfaces: interfaces.map(|name| (name, interface.clone())).collect(),
        ..options.configuration()
    };
    Ok((config, options))
}
