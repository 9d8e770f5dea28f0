//! Traces that an attachment leaves on a host.

use std::fs;

use anyhow::{Context, Result};
use aya::programs::{SchedClassifier, TcAttachType};
use xdptun_lab::{Host, Netns, link};

use crate::kernel;

/// Everything about a host's interface that attaching may change and detaching
/// must put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traces {
    /// All interfaces.
    pub links: Vec<String>,
    /// The interface with its XDP program, if any.
    pub details: String,
    /// Queueing disciplines, clsact among them.
    pub qdiscs: String,
    /// Filters of both tc hooks.
    pub filters: String,
    /// Programs of both TCX hooks, where the kernel has them.
    pub tcx: Vec<String>,
    /// Offloads.
    pub features: String,
    /// Pins of this network namespace.
    pub pins: Vec<String>,
}

impl Traces {
    /// Looks at a host.
    pub fn of(host: &Host) -> Result<Self> {
        Self::on(&host.netns, Host::DEV)
    }

    /// Looks at one interface.
    pub fn on(netns: &Netns, dev: &str) -> Result<Self> {
        let tc = |args: &[&str]| netns.run("tc", args);
        Ok(Self {
            links: link::names(netns)?,
            details: netns.run("ip", ["-details", "link", "show", "dev", dev])?,
            qdiscs: tc(&["qdisc", "show", "dev", dev])?,
            filters: tc(&["filter", "show", "dev", dev, "ingress"])?
                + &tc(&["filter", "show", "dev", dev, "egress"])?,
            tcx: netns.enter(|| tcx_on(dev))??,
            features: netns.run("ethtool", ["-k", dev])?,
            pins: pins(netns)?,
        })
    }
}

/// Programs of both TCX hooks of the first interface in this network namespace.
pub fn tcx() -> Result<Vec<String>> {
    tcx_on(Host::DEV)
}

/// Programs of both TCX hooks of an interface in this network namespace.
pub fn tcx_on(dev: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    if !kernel::has_tcx() {
        return Ok(names);
    }
    for hook in [TcAttachType::Ingress, TcAttachType::Egress] {
        let (_, programs) = SchedClassifier::query_tcx(dev, hook)
            .with_context(|| format!("cannot query TCX {hook:?}"))?;
        for program in programs {
            let name = program.name_as_str().unwrap_or("?");
            names.push(format!("{hook:?} {name}"));
        }
    }
    Ok(names)
}

/// Paths of all that is pinned for a namespace, empty directories included.
pub fn pins(netns: &Netns) -> Result<Vec<String>> {
    let root = format!("/sys/fs/bpf/xdptun/{}", netns.cookie()?);
    let mut found = Vec::new();
    let mut directories = vec![root];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries {
            let entry = entry?;
            let path = entry.path().display().to_string();
            if entry.file_type()?.is_dir() {
                directories.push(path);
            } else {
                found.push(path);
            }
        }
        found.push(directory);
    }
    found.sort();
    Ok(found)
}
