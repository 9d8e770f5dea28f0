//! The output of `xdptun attach`, `xdptun forward` and `xdptun run` at the terminal: log and
//! announcements.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

use aya::Ebpf;
use aya_log::EbpfLogger;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, fmt, reload};
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::outcome::Outcome;

use super::announce;
use super::flow_log::FlowLog;
use crate::config::LogLevel;
use crate::error::{Context as _, Error, Result};
use crate::gateway::{self, Gateway};
use crate::group::events::watch;
use crate::group::{Carried, Trace};
use crate::nat64::{self, Nat64};
use crate::observe::metrics;
use crate::policy::{self, Policy};
use crate::process::task::Task;
use crate::service::{Frontend, FunctionFrontend};
use crate::tunnel::daemon::{News, Observer};
use crate::tunnel::{Attached, Loaded, Plan, Tunnel};

/// The map of the programs' log. It is there until something reads it.
const LOG: &str = "AYA_LOGS";

/// Log on standard error, announcements on standard output.
pub struct Terminal {
    filter: reload::Handle<Targets, Registry>,
    /// How the operator detaches, for the line `ready:`.
    way_out: &'static str,
    /// The readers of the programs' logs, by group.
    logs: RefCell<BTreeMap<PathBuf, Vec<Task>>>,
    flows: Rc<FlowLog>,
}

impl Terminal {
    /// Starts the log of this process.
    pub fn new(level: LogLevel) -> Self {
        let (filter, handle) = reload::Layer::new(filter(level));
        let lines = fmt::layer()
            .with_target(false)
            .with_ansi(io::stderr().is_terminal())
            // Told on standard error as well, which panics if the terminal is gone.
            .log_internal_errors(false)
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

impl FunctionFrontend<Tunnel> for Terminal {
    fn loaded(&self, attached: &mut Attached, plan: &Plan) -> Result<()> {
        let mut logs = self.logs.borrow_mut();
        let logs = logs.entry(attached.directory().to_owned()).or_default();
        let is_unread = |loaded: &Loaded| loaded.ebpf.map(LOG).is_some();
        if attached.loaded.iter().all(is_unread) {
            // All programs before these are gone; end the readers of their logs.
            logs.clear();
        }
        if plan.options().trace == Trace::On {
            for loaded in attached.loaded.iter_mut().filter(|one| is_unread(one)) {
                logs.push(forward_log(&mut loaded.ebpf)?);
            }
        }
        Ok(())
    }

    fn ready(&self, attached: &Attached, carried: &Carried, plan: &Plan) -> Result<()> {
        let settings = &plan.options().settings;
        announce::tunnel::announce(attached, carried, settings, self.way_out)
    }

    fn observer(&self) -> &(dyn Observer + 'static) {
        self
    }
}

impl FunctionFrontend<Gateway> for Terminal {
    fn loaded(&self, _: &mut gateway::Attached, _: &gateway::Plan) -> Result<()> {
        // Its programs log nothing.
        Ok(())
    }

    fn ready(
        &self,
        attached: &gateway::Attached,
        carried: &Carried,
        plan: &gateway::Plan,
    ) -> Result<()> {
        announce::gateway::announce(attached, carried, plan, self.way_out)
    }

    fn observer(&self) -> &() {
        &()
    }
}

impl FunctionFrontend<Policy> for Terminal {
    fn loaded(&self, _: &mut policy::Attached, _: &policy::Plan) -> Result<()> {
        // Its programs log nothing: the daemon logs matches.
        Ok(())
    }

    fn ready(
        &self,
        attached: &policy::Attached,
        carried: &Carried,
        plan: &policy::Plan,
    ) -> Result<()> {
        announce::policy::announce(attached, carried, plan, self.way_out)
    }

    fn observer(&self) -> &() {
        &()
    }
}

impl FunctionFrontend<Nat64> for Terminal {
    fn loaded(&self, _: &mut nat64::Attached, _: &nat64::Plan) -> Result<()> {
        // Its program logs nothing.
        Ok(())
    }

    fn ready(
        &self,
        attached: &nat64::Attached,
        carried: &Carried,
        plan: &nat64::Plan,
    ) -> Result<()> {
        announce::nat64::announce(attached, carried, plan, self.way_out)
    }

    fn observer(&self) -> &() {
        &()
    }
}

impl Frontend for Terminal {
    fn metrics(&self, address: SocketAddr) -> Result<()> {
        writeln!(io::stdout(), "metrics: http://{address}{}", metrics::PATH)?;
        Ok(())
    }

    fn log(&self, level: LogLevel) -> Result<()> {
        self.filter
            .reload(filter(level))
            .map_err(Error::other)
            .context("cannot change how much is logged")
    }
}

/// Libraries only warn; their lower levels are of no use to an operator.
fn filter(level: LogLevel) -> Targets {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // The prefix covers `xdptun_ebpf` too, which logs through `log`.
    Targets::new()
        .with_default(LevelFilter::WARN)
        .with_target("xdptun", level)
}

/// Copies the log of the programs into the log of this process.
fn forward_log(ebpf: &mut Ebpf) -> Result<Task> {
    let logger = EbpfLogger::init_with_logger(ebpf, NamedOutcomes)
        .map_err(Error::other)
        .context("cannot read the log of the programs")?;
    let mut logger = watch(logger)?;
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
