//! `xdptun attach`: attach to one interface, stay, detach at the end.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use aya_log::EbpfLogger;
use clap::{Args, ValueEnum};
use ipnet::IpNet;
use nix::sys::signal::kill;
use tracing::{debug, info, warn};
use tracing_subscriber::EnvFilter;
use xdptun_common::counter::Outcome;

use crate::daemon::{self, End, Stop, Timers};
use crate::datapath::{self, AttachOptions, Attached, IngressChoice, Pinned, TcChoice, pins};
use crate::interface::Interface;
use crate::lock::InterfaceLock;
use crate::mtu::{WIREGUARD_DEFAULT, WireguardMtu};
use crate::netlink::LinkChanges;
use crate::ports::PortRange;
use crate::preflight;
use crate::{secret, servers};

/// Disguise UDP as TCP on an interface until Ctrl-C or SIGTERM.
///
/// A datagram is ours if its local or its remote port is one of the given ones.
/// Run it on both hosts before the programs that use the port.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Interface that leads to the peer.
    #[arg(long, short, value_name = "NAME")]
    iface: String,

    /// UDP port, or range like 8000-8010; may be repeated.
    #[arg(
        long,
        short,
        required = true,
        value_name = "PORT[-PORT]",
        value_delimiter = ','
    )]
    port: Vec<PortRange>,

    /// Only this peer (address or CIDR); may be repeated. Default: any.
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_parser = parse_peer)]
    peer: Vec<IpNet>,

    /// Which program restores inbound data.
    #[arg(long, value_enum, default_value = "auto")]
    ingress: IngressChoice,

    /// How the tc programs are attached.
    #[arg(long, value_enum, default_value = "auto")]
    tc: TcChoice,

    /// Silence after which a flow is probed, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "25", value_parser = clap::value_parser!(u32).range(1..))]
    keepalive: u32,

    /// Time without data after which a flow is closed, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = clap::value_parser!(u32).range(1..))]
    idle_timeout: u32,

    /// Answer only callers that know the secret in this file, the same on both
    /// hosts; whatever else comes to the ports is left to this host's own TCP.
    #[arg(long, value_name = "FILE", long_help = SECRET_HELP)]
    secret: Option<PathBuf>,

    /// How many flows the table holds.
    #[arg(long, value_name = "N", default_value = "65536", value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    max_flows: u32,

    /// Take over from the xdptun that is attached here, without losing a datagram:
    /// to upgrade it, or to change its ports and peers.
    #[arg(long)]
    take_over: bool,

    /// How much to log; `trace` logs every packet and is slow.
    #[arg(long, value_enum, default_value = "info")]
    log_level: LogLevel,
}

const SECRET_HELP: &str = "\
Answer only callers that know the secret in this file, the same on both hosts;
whatever else comes to the ports is left to this host's own TCP.

So a web server can share port 443 with the tunnel, and where nothing listens, a
scan finds nothing. The clocks of both hosts must agree within three minutes.
Needs Linux 6.1.
`wg genkey > FILE` makes a good secret. docs/security.md says what it does not
hide.";

const EXAMPLES: &str = "\
Examples:
  xdptun attach --iface eth0 --port 51820
  xdptun attach --iface eth0 --port 443 --secret /etc/xdptun/secret
  xdptun attach --iface eth0 --port 443,8000-8010 --peer 203.0.113.0/24 --peer 2001:db8::/32
  xdptun attach --iface eth0 --port 8000 --ingress tc --log-level debug";

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    /// Libraries only warn; their lower levels are of no use to an operator.
    fn filter(self) -> EnvFilter {
        let level = match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        };
        // The prefix covers `xdptun_ebpf` too, which logs through `log`.
        EnvFilter::new(format!("warn,xdptun={level}"))
    }
}

/// A network, or an address that stands for itself alone.
fn parse_peer(text: &str) -> Result<IpNet, String> {
    text.parse::<IpNet>()
        .or_else(|_| text.parse::<std::net::IpAddr>().map(IpNet::from))
        .map_err(|_| {
            "not an address or CIDR; write 203.0.113.7, 203.0.113.0/24 or 2001:db8::/32".into()
        })
}

/// Runs the verb.
pub fn run(arguments: Arguments) -> Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(arguments.log_level.filter())
        .with_target(false)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .init();
    super::runtime()?.block_on(attach(arguments))
}

async fn attach(arguments: Arguments) -> Result<()> {
    preflight::check()?;
    if arguments.tc == TcChoice::Tcx {
        preflight::check_tcx()?;
    }
    if arguments.secret.is_some() {
        preflight::check_tai()?;
    }
    let interface = Interface::find(&arguments.iface)?;
    let name = interface.name.clone();
    pins::mount_bpffs()?;
    let directory = pins::directory(interface.index)?;
    // From here on a signal must not leave half an attachment behind.
    let mut stop = Stop::catch()?;
    let options = AttachOptions {
        ports: arguments.port,
        peers: arguments.peer,
        ingress: arguments.ingress,
        tc: arguments.tc,
        max_flows: arguments.max_flows,
        proof_key: arguments.secret.as_deref().map(secret::read).transpose()?,
        trace: arguments.log_level == LogLevel::Trace,
    };
    let take_over = arguments.take_over.then_some(&options);
    let _lock = take_lock(&interface, &directory, take_over)?;
    let timers = Timers {
        keepalive: Duration::from_secs(arguments.keepalive.into()),
        idle: Duration::from_secs(arguments.idle_timeout.into()),
    };
    let mut attached = match Pinned::open(interface.index)? {
        Some(pinned) => Attached::adopt(interface, &options, &pinned)?,
        None => Attached::new(interface, &options)?,
    };
    loop {
        let mut ready = false;
        let result = daemon::run(&mut attached, timers, &mut stop, |attached| {
            if options.trace {
                forward_log(attached)?;
            }
            announce(attached, &options)?;
            ready = true;
            Ok(())
        })
        .await;
        let end = match result {
            Ok(End::InterfaceGone) => {
                warn!("{name}: the interface is gone; waiting for it to come back");
                match wait_for(&name, &mut stop).await? {
                    Ok(interface) => {
                        attached = attached.follow(interface, &options).with_context(|| {
                            format!("{name}: it came back, and cannot be attached")
                        })?;
                        continue;
                    }
                    Err(end) => end,
                }
            }
            Ok(end) => end,
            // Who relies on the disguise must not lose it without asking.
            Err(error) if ready => {
                return Err(error.context(format!(
                    "the programs stay attached, so that nothing leaks; \
                     `xdptun detach --iface {name}` removes them"
                )));
            }
            Err(error) if attached.adopted.is_none() => {
                attached.detach().context("cannot detach")?;
                return Err(error);
            }
            Err(error) => {
                return Err(error.context(format!(
                    "what was attached stays so, without a daemon; \
                     `xdptun attach --iface {name} ...` goes on with it"
                )));
            }
        };
        if end == End::Succeeded {
            info!("{name}: left to the process that takes over");
            return Ok(());
        }
        break;
    }
    attached.detach().context("cannot detach")?;
    info!("{name}: detached");
    Ok(())
}

/// How long a daemon may take to leave.
const HANDOVER: Duration = Duration::from_secs(5);

/// Takes the lock of an interface, from a running daemon if that is to be taken
/// over from with these options.
fn take_lock(
    interface: &Interface,
    directory: &Path,
    take_over: Option<&AttachOptions>,
) -> Result<InterfaceLock> {
    let name = &interface.name;
    let already = format!(
        "{name}: xdptun is already attached; `xdptun status` shows it, `--take-over` takes its \
         place without a gap, `xdptun detach --iface {name}` ends it"
    );
    let take = || {
        InterfaceLock::take(directory)
            .with_context(|| format!("cannot lock {}", directory.display()))
    };
    let lock = match (take()?, take_over) {
        (None, Some(options)) => {
            let busy =
                || format!("{name}: xdptun is just being attached; try again when it is ready");
            let pinned = Pinned::open(interface.index)?.with_context(busy)?;
            // Before the other leaves.
            Attached::check(name, options, &pinned)?;
            let process = Pinned::daemon(interface.index)?.with_context(busy)?;
            kill(process, daemon::TAKE_OVER)
                .with_context(|| format!("{name}: cannot ask process {process} to leave"))?;
            if !InterfaceLock::wait_released(directory, HANDOVER)? {
                bail!("{name}: process {process} does not leave; nothing was changed");
            }
            take()?
        }
        (lock, _) => lock,
    };
    let lock = lock.context(already.clone())?;
    if !Pinned::exists(interface.index)? && datapath::is_attached(name) {
        pins::remove_directory(directory)?;
        bail!("{already}; its pins are not in this mount namespace");
    }
    Ok(lock)
}

/// How often to look for an interface that is gone, should its coming be missed.
const LOOK: Duration = Duration::from_secs(1);

/// Waits until there is an interface of that name, or for what ends that.
async fn wait_for(name: &str, stop: &mut Stop) -> Result<Result<Interface, End>> {
    let mut links = LinkChanges::subscribe()?;
    loop {
        if let Ok(interface) = Interface::find(name) {
            return Ok(Ok(interface));
        }
        tokio::select! {
            () = links.next() => {}
            () = tokio::time::sleep(LOOK) => {}
            end = stop.requested() => return Ok(Err(end)),
        }
    }
}

/// Says what was attached and where; the last line starts with `ready:`.
fn announce(attached: &Attached, options: &AttachOptions) -> Result<()> {
    let interface = &attached.interface;
    let name = &interface.name;
    let ports: Vec<String> = attached
        .maps
        .ports()?
        .iter()
        .map(ToString::to_string)
        .collect();
    let tc = if attached.tcx { "TCX" } else { "clsact" };
    let mtu = WireguardMtu::on(interface.mtu);
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{name}: tc egress and tc ingress ({tc}); inbound data restored by {}",
        attached.ingress.name()
    )?;
    if let Some(flows) = attached.adopted {
        writeln!(
            out,
            "{name}: took over what was attached, with {flows} flows"
        )?;
    }
    if let Some(refusal) = &attached.xdp_refusal {
        writeln!(out, "{name}: no native XDP: {refusal}")?;
    }
    if !options.peers.is_empty() {
        let peers: Vec<String> = options
            .peers
            .iter()
            .map(|peer| peer.trunc().to_string())
            .collect();
        writeln!(out, "{name}: only for {}", peers.join(", "))?;
    }
    writeln!(
        out,
        "{name}: MTU {}; WireGuard inside can use MTU {} over IPv4, {} over IPv6",
        interface.mtu, mtu.v4, mtu.v6
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
    if options.proof_key.is_some() {
        writeln!(
            out,
            "{name}: answers only who knows the secret; any other TCP to these ports is left to this host"
        )?;
    } else {
        match servers::listening(&attached.maps.ports()?) {
            Ok(servers) if servers.is_empty() => {}
            Ok(servers) => writeln!(
                out,
                "{name}: the TCP server on port {} cannot be reached here any more; \
                 with `--secret` both share the port",
                servers.join(", ")
            )?,
            Err(error) => debug!("cannot look for TCP servers: {error:#}"),
        }
    }
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
    writeln!(
        out,
        "ready: {name} carries UDP port{} {} as TCP; Ctrl-C detaches",
        if let [single] = &ports[..]
            && !single.contains('-')
        {
            ""
        } else {
            "s"
        },
        ports.join(", ")
    )?;
    out.flush()?;
    Ok(())
}

/// Hands the programs' own log to ours.
fn forward_log(attached: &mut Attached) -> Result<()> {
    let logger = EbpfLogger::init_with_logger(&mut attached.ebpf, NamedOutcomes)
        .context("cannot read the log of the programs")?;
    let mut logger = daemon::watch(logger)?;
    tokio::spawn(async move {
        while let Ok(mut ready) = logger.readable_mut().await {
            ready.get_inner_mut().flush();
            ready.clear_ready();
        }
    });
    Ok(())
}

/// The programs log an outcome as a number, because a BPF program has no table
/// of strings; this puts the counter's name in its place.
struct NamedOutcomes;

impl log::Log for NamedOutcomes {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        log::logger().enabled(metadata)
    }

    fn log(&self, record: &log::Record<'_>) {
        let text = record.args().to_string();
        let named = text.rsplit_once("outcome ").and_then(|(packet, number)| {
            let outcome = Outcome::ALL.get(number.parse::<usize>().ok()?)?;
            Some(format!("{packet}{}", outcome.name()))
        });
        let text = named.unwrap_or(text);
        log::logger().log(
            &log::Record::builder()
                .metadata(record.metadata().clone())
                .args(format_args!("{text}"))
                .build(),
        );
    }

    fn flush(&self) {
        log::logger().flush();
    }
}
