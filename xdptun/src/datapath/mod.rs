//! The kernel side, seen from user space: load, attach, pin, take away.
//!
//! Programs stay attached through pinned links (or, before kernel 6.6, as
//! filters of the `clsact` qdisc), so the death of the daemon changes nothing
//! for established flows, and no datagram can slip out undisguised.

mod attach;
mod clsact;
pub mod maps;
pub mod pins;
mod splitter;

pub use attach::{AttachOptions, Attached, IngressChoice, TcChoice};

use anyhow::{Context as _, Result};
use aya::programs::{SchedClassifier, TcAttachType};
use xdptun_common::config::{Attachment, Filters, IngressMode};

use maps::Maps;

/// The kernel side, as an ELF object with BTF.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/xdptun-ebpf"));

/// The tc programs: name, and hook.
const TC_PROGRAMS: [(&str, TcAttachType); 2] = [
    ("xdptun_ingress", TcAttachType::Ingress),
    ("xdptun_egress", TcAttachType::Egress),
];
/// The XDP program.
const XDP_PROGRAM: &str = "xdptun_fast_in";
/// The program at the splitter's far end.
const SPLITTER_PROGRAM: &str = "xdptun_splitter";

/// An attachment of this network namespace as its pins tell, whether or not its
/// daemon lives.
pub struct Pinned {
    /// Index of the interface.
    pub ifindex: u32,
    /// What it set up.
    pub attachment: Attachment,
    /// Its maps.
    pub maps: Maps,
}

impl Pinned {
    /// The attachment of one interface, if there is one.
    ///
    /// # Errors
    ///
    /// If pins exist that cannot be read, or that another version wrote.
    pub fn open(ifindex: u32) -> Result<Option<Self>> {
        let directory = pins::directory(ifindex)?;
        if !directory.is_dir() {
            return Ok(None);
        }
        let maps = Maps::from_pins(&directory)?;
        let attachment = maps.attachment()?;
        Ok(Some(Self {
            ifindex,
            attachment,
            maps,
        }))
    }

    /// Every attachment of this network namespace, by interface index.
    ///
    /// # Errors
    ///
    /// As [`Pinned::open`].
    pub fn all() -> Result<Vec<Self>> {
        pins::interfaces()?
            .into_iter()
            .filter_map(|ifindex| Self::open(ifindex).transpose())
            .collect()
    }

    /// The interface's name when it was attached.
    #[must_use]
    pub fn name(&self) -> String {
        let name = &self.attachment.name;
        let len = name
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(name.len());
        String::from_utf8_lossy(&name[..len]).into_owned()
    }

    /// What holds the tc programs.
    #[must_use]
    pub fn filters(&self) -> Filters {
        Filters::from_raw(self.attachment.filters).unwrap_or(Filters::Clsact)
    }

    /// Which program restores inbound data.
    #[must_use]
    pub fn ingress(&self) -> IngressMode {
        IngressMode::from_raw(self.attachment.ingress).unwrap_or(IngressMode::Tc)
    }
}

/// Takes away everything that an attachment of this interface left: links,
/// filters, pins. Whether there was anything.
///
/// # Errors
///
/// If something is there and cannot be removed.
pub fn remove(ifindex: u32, name: &str) -> Result<bool> {
    let directory = pins::directory(ifindex)?;
    let pinned = directory.is_dir();
    let filters = match Pinned::open(ifindex) {
        Ok(Some(pinned)) => pinned.filters(),
        // Unreadable pins must not keep filters alive: look for them as well.
        Ok(None) | Err(_) => Filters::Clsact,
    };
    let mut removed = false;
    if filters != Filters::Tcx {
        for (program, hook) in TC_PROGRAMS {
            removed |= clsact::remove_filter(name, hook, program)?;
        }
    }
    if filters == Filters::OwnClsact {
        clsact::remove_if_unused(ifindex)?;
    }
    removed |= splitter::remove(ifindex)?;
    if pinned {
        pins::remove(&directory)
            .with_context(|| format!("cannot remove the pins in {}", directory.display()))?;
    }
    Ok(removed || pinned)
}

impl Pinned {
    /// Whether an interface has pins, readable or not.
    ///
    /// # Errors
    ///
    /// If the network namespace cannot be identified.
    pub fn exists(ifindex: u32) -> Result<bool> {
        Ok(pins::directory(ifindex)?.is_dir())
    }

    /// Where programs are attached now. By the kernel's word where there is a
    /// query for it: a hook that someone else emptied is not listed.
    #[must_use]
    pub fn hooks(&self) -> Vec<String> {
        let name = self.name();
        let clsact = self.filters() != Filters::Tcx;
        let mut hooks = Vec::new();
        for (program, hook) in TC_PROGRAMS {
            let attached = clsact
                || SchedClassifier::query_tcx(&name, hook).is_ok_and(|(_, programs)| {
                    programs
                        .iter()
                        .any(|info| info.name_as_str() == Some(program))
                });
            if attached {
                let direction = if program == "xdptun_egress" {
                    "egress"
                } else {
                    "ingress"
                };
                hooks.push(format!(
                    "tc {direction} ({})",
                    if clsact { "clsact" } else { "TCX" }
                ));
            }
        }
        if self.ingress() != IngressMode::Tc {
            hooks.push(self.ingress().name().to_owned());
        }
        hooks
    }
}
