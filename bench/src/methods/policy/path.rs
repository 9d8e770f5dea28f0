//! Two hosts, of which one searches what comes in.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use xdptun_lab::command::run;
use xdptun_lab::{Attached, Direct, Family, Host, workspace};

use super::nfqueue::Queue;
use crate::methods::tcp::Ends;
use crate::table::Goal;

/// The port of the own load.
const PORT: u16 = 8080;

/// A word that is in no payload: that of the reference measurement.
pub const WORD: &str = "STEPH";

/// How the receiving host searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It does not.
    Nothing,
    /// `iptables -m string`.
    XtString,
    /// NFQUEUE, and a program that searches; whether it gets super-packets, or segments as in the
    /// reference measurement.
    Nfqueue { whole: bool },
    /// `xdptun policy` with so many patterns.
    Policy(usize),
    /// The same with a pattern that most of the payload looks like.
    Near,
}

impl Way {
    pub const ALL: [Self; 8] = [
        Self::Nothing,
        Self::XtString,
        Self::Nfqueue { whole: false },
        Self::Nfqueue { whole: true },
        Self::Policy(1),
        Self::Policy(16),
        Self::Policy(64),
        Self::Near,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::XtString => "xt_string",
            Self::Nfqueue { whole: false } => "NFQUEUE",
            Self::Nfqueue { whole: true } => "NFQUEUE, super-packets",
            Self::Policy(1) => "policy, 1 pattern",
            Self::Policy(16) => "policy, 16 patterns",
            Self::Policy(_) => "policy, 64 patterns",
            Self::Near => "policy, near-matches",
        }
    }

    pub const fn needs_iptables(self) -> bool {
        matches!(self, Self::XtString | Self::Nfqueue { .. })
    }

    /// What share of nothing's bandwidth it is to have.
    pub const fn goal(self) -> Option<Goal> {
        match self {
            Self::Policy(1) => Some(Goal::AtLeast(0.6)),
            Self::Policy(16) => Some(Goal::AtLeast(0.4)),
            _ => None,
        }
    }

    /// The patterns of the rule, if it is one of the policy.
    fn patterns(self) -> Option<Vec<String>> {
        match self {
            Self::Nothing | Self::XtString | Self::Nfqueue { .. } => None,
            Self::Policy(1) => Some(vec![WORD.to_owned()]),
            Self::Policy(count) => Some((0..count).map(|one| format!("needle-{one:02}")).collect()),
            // What qperf sends, and what the own load sends, each with another byte in the middle.
            Self::Near => Some(["00", "07"].map(near).into()),
        }
    }
}

/// A run of a byte around another one.
fn near(byte: &str) -> String {
    format!("hex:{}ee{}", byte.repeat(24), byte.repeat(24))
}

/// A network with one way.
pub struct Path {
    way: Way,
    net: Direct,
    attached: Option<Attached>,
    _queue: Option<Queue>,
}

fn folder() -> PathBuf {
    workspace::root().join(".tools/qperf")
}

fn iptables() -> PathBuf {
    folder().join("usr/sbin/xtables-legacy-multi")
}

/// Why `iptables-legacy` cannot be used, if it cannot.
pub fn no_iptables() -> Option<String> {
    let program = iptables();
    (!program.is_file()).then(|| {
        let path = program.display();
        format!("{path}: no such file; `cargo xtask bench policy` unpacks Debian's package")
    })
}

/// Lets a program of the folder use the libraries beside it.
pub fn with_libraries(command: &mut Command) -> &mut Command {
    let libraries = folder()
        .join("usr/lib")
        .join(format!("{}-linux-gnu", std::env::consts::ARCH));
    command
        .env("XTABLES_LIBDIR", libraries.join("xtables"))
        .env("LD_LIBRARY_PATH", libraries)
}

impl Path {
    pub fn new(way: Way) -> Result<Self> {
        let net = Direct::new()?;
        let mut queue = None;
        match way {
            Way::XtString => {
                let string = [
                    "-m", "string", "--algo", "bm", "--string", WORD, "-j", "DROP",
                ];
                filter(&net.b, &string)?;
            }
            Way::Nfqueue { whole } => {
                queue = Some(Queue::start(&net.b.netns, whole)?);
                filter(&net.b, &["-j", "NFQUEUE", "--queue-num", "0"])?;
            }
            Way::Nothing | Way::Policy(_) | Way::Near => {}
        }
        let attached = way.patterns().map(|patterns| {
            let mut arguments = vec!["--direction", "in", "--protocol", "tcp"];
            arguments.extend(["--action", if way == Way::Near { "count" } else { "drop" }]);
            let patterns = patterns.iter().flat_map(|one| ["--contains", one.as_str()]);
            arguments.extend(patterns);
            Attached::policy(&net.b.netns, Host::DEV, &arguments)
        });
        Ok(Self {
            way,
            net,
            attached: attached.transpose()?,
            _queue: queue,
        })
    }

    pub const fn name(&self) -> &'static str {
        self.way.name()
    }

    pub fn ends(&self) -> Ends<'_> {
        let entry = self.net.b.socket(Family::V4, PORT);
        Ends {
            client: &self.net.a.netns,
            entry,
            server: &self.net.b.netns,
            service: entry,
        }
    }

    /// Adds what xdptun said to an error.
    pub fn explain<T>(&self, result: Result<T>) -> Result<T> {
        let result = result.with_context(|| self.name());
        match &self.attached {
            Some(attached) => attached.explain(result),
            None => result,
        }
    }
}

/// Adds a rule for TCP that comes in.
fn filter(host: &Host, rule: &[&str]) -> Result<()> {
    let mut command = host.netns.command(iptables());
    with_libraries(&mut command);
    command.args(["iptables", "-A", "INPUT", "-p", "tcp"]);
    run(command.args(rule)).map(drop)
}
