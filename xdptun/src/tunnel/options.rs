//! The options of an attachment, and which of them can change while it lasts.

use std::num::NonZeroU32;

use clap::ValueEnum;
use ipnet::IpNet;
use xdptun_common::attachment::{Filters, IngressMode};

use super::keys::Keys;
use super::pinned::Pinned;
use crate::config::{IngressChoice, LogLevel, TcChoice};
use crate::error::{Result, bail};
use crate::host::ports::PortRange;

/// Whether the programs log every packet, which is slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trace {
    /// They log none.
    #[default]
    Off,
    /// They log every one.
    On,
}

impl From<LogLevel> for Trace {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Trace => Self::On,
            LogLevel::Error | LogLevel::Warn | LogLevel::Info | LogLevel::Debug => Self::Off,
        }
    }
}

/// The options of an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachOptions {
    /// Owned ports.
    pub ports: Vec<PortRange>,
    /// Networks of peers.
    pub peers: Vec<IpNet>,
    /// Whether the programs leave all other addresses alone.
    pub only_peers: bool,
    /// Which program restores inbound data.
    pub ingress: IngressChoice,
    /// How the tc programs are attached.
    pub tc: TcChoice,
    /// Capacity of the flow table.
    pub max_flows: u32,
    /// The keys of the secrets that callers must know, if any.
    pub keys: Option<Keys>,
    /// Whether the programs log every packet.
    pub trace: Trace,
    /// What the programs copy for a capture, if there is one.
    pub record: Option<Recorded>,
}

/// What the programs copy for a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The length of the link header of the interface, in bytes. The programs for other link
    /// layers copy nothing.
    pub link_len: u32,
    /// How many bytes of each packet.
    pub snap_len: NonZeroU32,
}

impl AttachOptions {
    /// How many bytes of each packet the programs for this link layer copy, if they copy any.
    pub(super) fn record_at(&self, link_len: u32) -> Option<NonZeroU32> {
        let record = self.record.filter(|record| record.link_len == link_len);
        record.map(|record| record.snap_len)
    }

    /// Whether these options need other programs than `other`. Ports, peers and keys can
    /// change while programs run; everything else, and whether there are keys at all, is
    /// fixed when programs are loaded.
    #[must_use]
    pub fn takes_other_programs(&self, other: &Self) -> bool {
        let like_other = Self {
            ports: other.ports.clone(),
            peers: other.peers.clone(),
            keys: match &self.keys {
                Some(_) if other.keys.is_some() => other.keys.clone(),
                keys => keys.clone(),
            },
            ..self.clone()
        };
        like_other != *other
    }
}

impl AttachOptions {
    /// Checks that options change nothing that is fixed while the attachment lasts.
    ///
    /// # Errors
    ///
    /// Names the option and the way out.
    pub fn check(&self, pinned: &Pinned) -> Result<()> {
        let (name, in_file) = (pinned.name(), pinned.kept_as());
        let (ingress, filters) = (pinned.ingress(), pinned.filters());
        let ingress_fits = match self.ingress {
            IngressChoice::Auto => true,
            IngressChoice::Tc => ingress == IngressMode::Tc,
            IngressChoice::Xdp => ingress == IngressMode::Xdp,
            IngressChoice::XdpGeneric => ingress == IngressMode::XdpGeneric,
        };
        let tc_fits = match self.tc {
            TcChoice::Auto => true,
            TcChoice::Tcx => filters == Filters::Tcx,
            TcChoice::Clsact => filters != Filters::Tcx,
        };
        let max_flows = pinned.maps.max_flows();
        let (option, wanted, has) = if !ingress_fits {
            let wanted = name_of_choice(self.ingress);
            ("ingress", wanted, ingress.name().to_owned())
        } else if !tc_fits {
            let wanted = name_of_choice(self.tc);
            ("tc", wanted, filters.name().to_owned())
        } else if max_flows != self.max_flows {
            let wanted = self.max_flows.to_string();
            ("max-flows", wanted, max_flows.to_string())
        } else {
            return Ok(());
        };
        bail!(
            CannotChange,
            "what is attached has `{option}` {has}, which cannot become {wanted} while it is attached; \
             leave the option as it was, or detach first (`xdptun detach --iface {name}`; under \
             `xdptun run` take {in_file} out of the file, reload, and put it back)"
        )
    }
}

/// As it is written on the command line and in a file.
fn name_of_choice(choice: impl ValueEnum) -> String {
    let value = choice.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}
