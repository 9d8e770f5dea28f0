//! What is attached, as its pins tell.

use aya::programs::SchedClassifier;
use nix::net::if_::if_nameindex;
use nix::unistd::Pid;
use xdptun_common::attachment::{Attachment, Filters, IngressMode};

use super::maps::{self, Maps};
use crate::datapath::lock::InterfaceLock;
use crate::datapath::pins;
use crate::datapath::programs::{TC_PROGRAMS, TcProgram};
use crate::error::{Context as _, Error, Kind, Result, bail};
use crate::host::interface::name_of;

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
        match InterfaceLock::holder(&directory).context("cannot look at the lock")? {
            Some(holder) => Ok(Some(holder)),
            None => bail!(
                OtherNamespace,
                "{} is kept by a process of another PID namespace; run this there",
                directory.display()
            ),
        }
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

/// The name of an interface as an attachment records it.
pub fn recorded(name: &str) -> Result<[u8; 16]> {
    let mut record = [0; 16];
    record
        .get_mut(..name.len())
        .ok_or_else(|| Error::new(Kind::Invalid, "interface name too long"))?
        .copy_from_slice(name.as_bytes());
    Ok(record)
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
pub fn unseen() -> Result<Vec<String>> {
    let interfaces = if_nameindex().context("cannot list the interfaces")?;
    let mut unseen = Vec::new();
    for interface in &interfaces {
        let name = interface.name().to_string_lossy().into_owned();
        if is_attached(&name) && !Pinned::exists(interface.index())? {
            unseen.push(name);
        }
    }
    Ok(unseen)
}

fn has_tcx_program(interface: &str, program: TcProgram) -> bool {
    SchedClassifier::query_tcx(interface, program.hook()).is_ok_and(|(_, programs)| {
        programs
            .iter()
            .any(|info| info.name_as_str() == Some(program.name()))
    })
}
