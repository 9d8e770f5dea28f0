//! The kernel side, seen from user space: load, attach, pin, take away.
//!
//! Programs stay attached through pinned links (or, before kernel 6.6, as
//! filters of the `clsact` qdisc), so the death of the daemon changes nothing
//! for established flows, and no datagram can slip out undisguised.

mod attach;
mod batch;
mod clsact;
mod hook;
mod keys;
mod local;
pub mod maps;
pub mod pins;
mod recorder;
mod sizes;
mod splitter;
mod sys;
mod tcp_defaults;

pub use attach::{AttachOptions, Attached, DEFAULT_MAX_FLOWS, IngressChoice, TcChoice, try_load};
pub use keys::{Keys, too_many};
pub use recorder::Recorder;

use anyhow::{Context as _, Result};
use aya::programs::SchedClassifier;
use nix::net::if_::if_nameindex;
use nix::unistd::Pid;
use xdptun_common::attachment::{Attachment, Filters, IngressMode};

use crate::interface::name_of;
use crate::lock::InterfaceLock;
use hook::TcProgram;
use maps::Maps;

/// The kernel side, as an ELF object with BTF.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/xdptun-ebpf"));

/// The XDP program.
const XDP_PROGRAM: &str = "xdptun_fast_in";
/// The same for packets in several buffers.
const XDP_FRAGS_PROGRAM: &str = "xdptun_fast_frags";
/// The tc programs on the interface itself.
const TC_PROGRAMS: [TcProgram; 2] = [TcProgram::Ingress, TcProgram::Egress];

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
        if !Self::exists(ifindex)? {
            return Ok(None);
        }
        let directory = pins::directory(ifindex)?;
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

    /// The interface's name. If it is gone, the name under which its daemon waits
    /// for it.
    #[must_use]
    pub fn name(&self) -> String {
        name_of(self.ifindex).unwrap_or_else(|| self.kept_as())
    }

    /// The name by which its daemon knows the interface: the one that it had when
    /// that daemon began, whatever it is called by now.
    #[must_use]
    pub fn kept_as(&self) -> String {
        let name = &self.attachment.name;
        let len = name
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(name.len());
        // Pins may be another user's: nothing of theirs commands a terminal, or is the
        // path of a file.
        let name = String::from_utf8_lossy(&name[..len]);
        name.replace(|letter: char| letter.is_control() || letter == '/', "?")
    }

    /// The same of an interface with that name: if nothing of this version is
    /// attached, its name.
    #[must_use]
    pub fn keeper_name(ifindex: u32, name: &str) -> String {
        let pinned = Self::open(ifindex).ok().flatten();
        pinned.map_or_else(|| name.to_owned(), |pinned| pinned.kept_as())
    }

    /// Says that a new daemon knows the interface by this name.
    ///
    /// # Errors
    ///
    /// If it is too long for one.
    pub fn keep_as(&mut self, name: &str) -> Result<()> {
        self.attachment.name = recorded(name)?;
        Ok(())
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

/// The name of an interface as an attachment records it.
fn recorded(name: &str) -> Result<[u8; 16]> {
    let mut record = [0; 16];
    record
        .get_mut(..name.len())
        .context("interface name too long")?
        .copy_from_slice(name.as_bytes());
    Ok(record)
}

/// Takes away everything that an attachment of this interface left: links,
/// filters, the splitter, pins and their directory. Whether there was anything.
///
/// # Errors
///
/// If something is there and cannot be removed.
pub fn remove(ifindex: u32) -> Result<bool> {
    let removed = strip(ifindex)?;
    pins::remove_directory(&pins::directory(ifindex)?)
        .context("cannot remove the pin directory")?;
    Ok(removed)
}

/// As [`remove`], but leaves the directory, which is the lock, in place.
fn strip(ifindex: u32) -> Result<bool> {
    let directory = pins::directory(ifindex)?;
    let had_pins = Pinned::exists(ifindex)?;
    // Unreadable pins must not keep filters alive: look for them as well.
    let attachment = Pinned::open(ifindex).ok().flatten();
    let filters = attachment.as_ref().map_or(Filters::Clsact, Pinned::filters);
    let mut removed = false;
    // An interface that is gone took its filters along; its name may be
    // another's by now.
    if filters != Filters::Tcx
        && let Some(name) = name_of(ifindex)
    {
        for program in TC_PROGRAMS {
            removed |= clsact::remove_filter(&name, program.hook(), program.name())?;
        }
        if filters == Filters::OwnClsact {
            clsact::remove_if_unused(ifindex)?;
        }
    }
    if had_pins {
        pins::remove_links(&directory)
            .with_context(|| format!("cannot remove the links in {}", directory.display()))?;
    }
    removed |= splitter::remove(ifindex)?;
    if had_pins {
        pins::remove(&directory)
            .with_context(|| format!("cannot remove the pins in {}", directory.display()))?;
    }
    Ok(removed || had_pins)
}

/// Whether one of the tc programs is attached to an interface through TCX, by
/// the kernel's word: pins of another mount namespace cannot be seen.
#[must_use]
pub fn is_attached(interface: &str) -> bool {
    TC_PROGRAMS
        .iter()
        .any(|program| has_tcx_program(interface, *program))
}

/// The way out where pins cannot be seen: appended to what names the interface.
pub const PINS_ARE_HIDDEN: &str = "the pins are not in this mount namespace; \
     run this where it was attached (not through `ip netns exec`, which hides them)";

/// The names of interfaces whose programs are attached through TCX, but whose
/// pins this process cannot see.
///
/// # Errors
///
/// If the interfaces cannot be listed.
pub fn hidden() -> Result<Vec<String>> {
    let interfaces = if_nameindex().context("cannot list the interfaces")?;
    let mut hidden = Vec::new();
    for interface in &interfaces {
        let name = interface.name().to_string_lossy().into_owned();
        if is_attached(&name) && !Pinned::exists(interface.index())? {
            hidden.push(name);
        }
    }
    Ok(hidden)
}

fn has_tcx_program(interface: &str, program: TcProgram) -> bool {
    SchedClassifier::query_tcx(interface, program.hook()).is_ok_and(|(_, programs)| {
        programs
            .iter()
            .any(|info| info.name_as_str() == Some(program.name()))
    })
}

impl Pinned {
    /// Whether an interface has pins, readable or not.
    ///
    /// # Errors
    ///
    /// If the network namespace cannot be identified.
    pub fn exists(ifindex: u32) -> Result<bool> {
        let directory = pins::directory(ifindex)?;
        match std::fs::read_dir(&directory) {
            Ok(mut entries) => Ok(entries.next().is_some()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => {
                Err(error).with_context(|| format!("cannot read {}", directory.display()))
            }
        }
    }

    /// The process that keeps an attachment, whichever version of xdptun that is,
    /// if it lives.
    ///
    /// # Errors
    ///
    /// If the lock or the record cannot be looked at.
    pub fn daemon(ifindex: u32) -> Result<Option<Pid>> {
        let directory = pins::directory(ifindex)?;
        if !InterfaceLock::is_held(&directory).context("cannot look at the lock")? {
            return Ok(None);
        }
        // Until it is in the record, it is just being attached.
        if maps::owner(&directory)?.pid == 0 {
            return Ok(None);
        }
        let holder = InterfaceLock::holder(&directory).context("cannot look at the lock")?;
        holder.map(Some).with_context(|| {
            format!(
                "{} is kept by a process of another PID namespace; run this there",
                directory.display()
            )
        })
    }

    /// The names of all interfaces of this network namespace that a process keeps,
    /// whichever version of xdptun that is.
    ///
    /// # Errors
    ///
    /// As [`Pinned::daemon`].
    pub fn kept_by(process: Pid) -> Result<Vec<String>> {
        let mut kept = Vec::new();
        for ifindex in pins::interfaces()? {
            if Self::exists(ifindex)? && Self::daemon(ifindex)? == Some(process) {
                kept.extend(name_of(ifindex));
            }
        }
        Ok(kept)
    }

    /// Where programs are attached now. By the kernel's word where there is a
    /// query for it: a hook that someone else emptied is not listed.
    #[must_use]
    pub fn hooks(&self) -> Vec<String> {
        let name = self.name();
        let clsact = self.filters() != Filters::Tcx;
        let mut hooks = Vec::new();
        for program in TC_PROGRAMS {
            let attached = clsact || has_tcx_program(&name, program);
            if attached {
                let direction = match program {
                    TcProgram::Egress => "egress",
                    TcProgram::Ingress | TcProgram::Splitter => "ingress",
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
