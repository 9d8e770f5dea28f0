//! What a daemon tells at the terminal: log and announcements.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::rc::Rc;

use anyhow::{Context as _, Result};
use aya_log::EbpfLogger;
use tracing::debug;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::outcome::Outcome;

use super::flow_log::FlowLog;
use crate::config::LogLevel;
use crate::daemon::{self, News, Observer};
use crate::datapath::{AttachOptions, Attached};
use crate::ephemeral::Exposed;
use crate::mtu::{IPV6_LEAST, WIREGUARD_DEFAULT, WireguardMtu};
use crate::ports::carries;
use crate::running::Running;
use crate::service::Front;
use crate::tunnel::Plan;
use crate::{metrics, servers};

/// Log on standard error, announcements on standard output.
pub struct Terminal {
    filter: reload::Handle<EnvFilter, Registry>,
    /// How whoever sits there detaches, if it is that simple.
    way_out: &'static str,
    /// Who reads the log of the programs, by interface.
    logs: RefCell<BTreeMap<String, Running>>,
    flows: Rc<FlowLog>,
}

impl Terminal {
    /// Starts the log of this process.
    pub fn new(level: LogLevel) -> Self {
        let (filter, handle) = reload::Layer::new(filter(level));
        let lines = fmt::layer()
            .with_target(false)
            .with_ansi(io::stderr().is_terminal())
            .with_writer(io::stderr);
        tracing_subscriber::registry()
            .with(filter)
            .with(lines)
            .init();
        Self {
            filter: handle,
            way_out: "",
            logs: RefCell::default(),
            flows: Rc::default(),
        }
    }

    /// With words on how to detach, after `ready:`.
    pub fn with_way_out(self, way_out: &'static str) -> Self {
        Self { way_out, ..self }
    }
}

impl Observer for Terminal {
    fn flow(&self, flow: &FlowKey, news: News) {
        self.flows.tell(flow, news);
    }
}

impl Front for Terminal {
    fn ready(&self, attached: &mut Attached, plan: &Plan) -> Result<()> {
        let options = plan.options();
        let name = attached.interface.name.clone();
        // Of the programs before these nobody hears any more.
        self.logs.borrow_mut().remove(&name);
        if options.trace {
            let log = forward_log(attached)?;
            self.logs.borrow_mut().insert(name, log);
        }
        announce(attached, &options, self.way_out)
    }

    fn metrics(&self, address: SocketAddr) -> Result<()> {
        writeln!(io::stdout(), "metrics: http://{address}{}", metrics::PATH)?;
        Ok(())
    }

    fn log(&self, level: LogLevel) -> Result<()> {
        self.filter
            .reload(filter(level))
            .context("cannot change how much is logged")
    }
}

/// Libraries only warn; their lower levels are of no use to an operator.
fn filter(level: LogLevel) -> EnvFilter {
    let level = match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    // The prefix covers `xdptun_ebpf` too, which logs through `log`.
    EnvFilter::new(format!("warn,xdptun={level}"))
}

/// Says what was attached and where; the last line starts with `ready:`.
fn announce(attached: &Attached, options: &AttachOptions, way_out: &str) -> Result<()> {
    let interface = &attached.interface;
    let name = &interface.name;
    let ports = attached.maps.ports()?;
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
    if options.only_peers {
        let peers: Vec<String> = options.peers.iter().map(ToString::to_string).collect();
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
    let least = WireguardMtu::FOR_IPV6_INSIDE;
    if interface.mtu < least.v6 {
        writeln!(
            out,
            "{name}: IPv6 inside takes an MTU of {IPV6_LEAST} there, and so one of {} here, or of {} \
             if the peer is reached over IPv6",
            least.v4, least.v6
        )?;
    }
    if options.keys.is_some() {
        writeln!(
            out,
            "{name}: answers only who knows the secret; any other TCP to these ports is left to this host"
        )?;
    } else {
        match servers::listening(&ports) {
            Ok(servers) if servers.is_empty() => {}
            Ok(servers) => writeln!(
                out,
                "{name}: the TCP server on port {} cannot be reached here any more; \
                 with a secret both share the port",
                servers.join(", ")
            )?,
            Err(error) => debug!("cannot look for TCP servers: {error:#}"),
        }
    }
    match Exposed::among(&ports) {
        Ok(None) => {}
        Ok(Some(exposed)) => writeln!(
            out,
            "{name}: a UDP socket of this host that asks for any port may be given {}, and what it \
             sends leaves as TCP; `{}` prevents it",
            exposed.ports(),
            exposed.command()
        )?,
        Err(error) => debug!("cannot look for reserved ports: {error:#}"),
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
    writeln!(out, "ready: {}{way_out}", carries(name, &ports))?;
    out.flush()?;
    Ok(())
}

/// Hands the programs' own log to ours.
fn forward_log(attached: &mut Attached) -> Result<Running> {
    let logger = EbpfLogger::init_with_logger(&mut attached.ebpf, NamedOutcomes)
        .context("cannot read the log of the programs")?;
    let mut logger = daemon::watch(logger)?;
    let log = tokio::spawn(async move {
        while let Ok(mut ready) = logger.readable_mut().await {
            ready.get_inner_mut().flush();
            ready.clear_ready();
        }
    });
    Ok(log.into())
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
