//! `xdptun forward`: forward ports to back ends until Ctrl-C.

use std::fs;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use tokio::task::spawn_local;
use tracing::warn;

use super::terminal::Terminal;
use crate::config::{Forward, Listen, LogLevel, Source, TcChoice, To, check_all, read_table};
use crate::error::{Context as _, Kind};
use crate::gateway::session::protocol_name;
use crate::gateway::{Gateway, Plan, follow};
use crate::group::{Group, Handle, Order, Progress, Reason, TAKE_OVER};
use crate::host::listeners::Servers;
use crate::host::preflight;
use crate::process::signals::{Termination, catch};
use crate::process::task::Task;
use crate::process::{notify, privileges};

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

    /// How many sessions there may be that both ends have used.
    #[arg(long, value_name = "N", default_value_t = 65_536,
          value_parser = value_parser!(u32).range(1..=4_194_304))]
    max_sessions: u32,

    /// Forward ports although a server of this host waits for packets to them.
    #[arg(long)]
    steal: bool,

    /// How the tc programs are attached.
    #[arg(long, value_enum, default_value = "auto")]
    tc: TcChoice,

    /// Take over from the xdptun that forwards here, without losing a session: to upgrade it
    /// or to change its rules.
    #[arg(long)]
    take_over: bool,

    /// How much to log.
    #[arg(long, value_enum, default_value = "info")]
    log_level: LogLevel,
}

const EXAMPLES: &str = "\
Examples:
  xdptun forward --iface eth0 --listen 7000 --to 10.9.9.5:7000
  xdptun forward -i eth0 --listen 443/udp --to 10.9.9.5:443 --source masquerade
  xdptun forward -i eth0 --listen 80 --to 10.9.9.1:80 --to 10.9.9.2:80=3
  xdptun forward -i eth0 --listen 8000-8009/tcp --to 10.9.9.1:9000-9009
  xdptun forward --iface eth0 --table port_fwd_table.config";

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
    let _log = Terminal::new(arguments.log_level);
    let mut forwards = arguments.rules.0;
    if let Some(table) = &arguments.table {
        forwards.extend(read_table(table)?);
    }
    check_all(&forwards)?;
    preflight::check()?;
    if !arguments.steal {
        refuse_served(&forwards)?;
    }
    super::block_on(async {
        // From here on a signal must not leave half an attachment behind.
        let mut termination = Termination::catch()?;
        let mut take_over = catch(tokio::signal::unix::SignalKind::from_raw(TAKE_OVER as i32))?;
        let plan = Plan::new(
            arguments.iface,
            forwards,
            arguments.max_sessions,
            arguments.tc,
        )?;
        warn_of_routing(&plan);
        let incumbent = super::incumbent(arguments.take_over);
        let group =
            Group::<Gateway>::attach(&plan.interfaces_to_attach()?, plan.clone(), incumbent)
                .map_err(advise)?;
        let (handle, mut orders) = Handle::new();
        let following = follow::follow(plan.clone(), handle.clone());
        let _routes = Task::from(spawn_local(async move {
            if let Err(error) = following.await {
                warn!("routes to back ends are not followed: {error:#}");
            }
        }));
        let mut is_ready = false;
        let tell = |progress: Progress<'_, Gateway>| {
            if let Progress::Carrying {
                attached,
                interface,
                plan,
                anew: true,
            } = progress
                && let Some(carried) = attached.at(interface)
            {
                let tc = if carried.tcx { "TCX" } else { "clsact" };
                let name = &carried.kept_as;
                let mut out = io::stdout().lock();
                writeln!(out, "{name}: tc ingress and tc egress ({tc})")?;
                if attached.indices().last() == Some(&interface) && !is_ready {
                    is_ready = true;
                    privileges::give_up()?;
                    announce(&mut out, plan)?;
                    notify::ready();
                }
            }
            Ok(())
        };
        let ends = async move {
            tokio::select! {
                () = termination.requested() => handle.order(Order::Stop),
                _ = take_over.recv() => handle.order(Order::Pause(Reason::Succeeded)),
            }
            notify::stopping();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            ended = group.run(&mut orders, &(), tell) => Ok(ended?),
            () = ends => Ok(()),
        }
    })
}

/// Says how two commands can share an interface.
fn advise(error: crate::error::Error) -> crate::error::Error {
    match error.kind() {
        Kind::AlreadyAttached => {
            error.context("one process forwards for an interface; give it all rules")
        }
        _ => error,
    }
}

/// Refuses ports at which a server of this host waits.
fn refuse_served(forwards: &[Forward]) -> Result<()> {
    let servers = Servers::read()?;
    let mut served = Vec::new();
    for forward in forwards {
        let (first, last) = forward.listen.ports.bounds();
        for port in first..=last {
            for protocol in forward.listen.protocols.list() {
                if servers.has(forward.address(), port, *protocol) {
                    served.push(format!("{port}/{}", protocol_name(*protocol)));
                }
            }
        }
    }
    if !served.is_empty() {
        bail!(
            "a server of this host waits for packets to {}, and would get none; stop it (`ss \
             -lntup` lists servers), choose another port, or take the port with `--steal`",
            served.join(", ")
        );
    }
    Ok(())
}

/// Warns of back ends that packets cannot reach now.
fn warn_of_routing(plan: &Plan) {
    for back_end in plan.unreachable() {
        warn!("{back_end}: no route leads to this back end; `ip route get {back_end}` tells more");
    }
    let back_ends = plan.forwards.iter().flat_map(|forward| &forward.to);
    let remote: Vec<IpAddr> = back_ends
        .map(|to| to.address)
        .filter(|to| !plan.is_local(*to))
        .collect();
    for (is_used, setting, path) in [
        (
            remote.iter().any(IpAddr::is_ipv4),
            "net.ipv4.ip_forward",
            "/proc/sys/net/ipv4/ip_forward",
        ),
        (
            remote.iter().any(IpAddr::is_ipv6),
            "net.ipv6.conf.all.forwarding",
            "/proc/sys/net/ipv6/conf/all/forwarding",
        ),
    ] {
        let is_off = || fs::read_to_string(path).is_ok_and(|value| value.trim() == "0");
        if is_used && is_off() {
            warn!(
                "this host does not route, so that no packet reaches a back end; `sysctl -w \
                 {setting}=1` lets it"
            );
        }
    }
}

/// Prints what is forwarded; the last line starts with `ready:`.
fn announce(out: &mut impl io::Write, plan: &Plan) -> crate::error::Result<()> {
    for forward in &plan.forwards {
        let back_ends: Vec<String> = forward.to.iter().map(ToString::to_string).collect();
        let source = match forward.source {
            Source::Keep => String::new(),
            source => format!(", source {source}"),
        };
        writeln!(
            out,
            "{} -> {}{source}",
            forward.listen,
            back_ends.join(", ")
        )?;
    }
    let ports = |forward: &Forward| {
        let (first, last) = forward.listen.ports.bounds();
        usize::from(last - first) + 1
    };
    let ports: usize = plan.forwards.iter().map(ports).sum();
    writeln!(
        out,
        "ready: {} forwards {ports} {}; Ctrl-C detaches",
        plan.listeners.join(", "),
        if ports == 1 { "port" } else { "ports" }
    )?;
    out.flush().context("cannot write to standard output")
}
