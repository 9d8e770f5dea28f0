//! One interface of a group: what is set up there.

use std::path::Path;

use aya::util::KernelVersion;
use xdptun_common::attachment::{Attachment, FilterPlace, Filters, IngressMode};
use xdptun_common::member::Member;

use super::FUNCTION;
use super::load::Programs;
use super::maps::Maps;
use super::options::AttachOptions;
use super::pinned::{kept_as, recorded};
use crate::config::{IngressChoice, TcChoice};
use crate::datapath::clsact;
use crate::datapath::function::TcProgram;
use crate::datapath::hook::{Held, attach_tc, attach_xdp, xdp_mode};
use crate::datapath::pins::{self, link_name};
use crate::datapath::splitter::{self, Splitter};
use crate::error::{Kind, Result};
use crate::host::clock::monotonic_ns;
use crate::host::interface::Interface;
use crate::host::preflight::kernel_version;

/// An interface that the tunnel carries.
#[derive(Debug)]
pub struct Carried {
    /// The interface.
    pub interface: Interface,
    /// The name by which the configuration knows it, whatever it is called by now.
    pub kept_as: String,
    /// Whether it is there. One that is gone comes back under its name.
    pub is_there: bool,
    /// Which program restores inbound data.
    pub ingress: IngressMode,
    /// Whether the tc programs are TCX links.
    pub tcx: bool,
    /// Why `auto` did not take XDP, if it did not.
    pub xdp_refusal: Option<String>,
    /// Its row of the counters.
    pub(super) row: u32,
}

impl Carried {
    /// As `attachment` records it.
    pub(super) fn of(interface: Interface, kept_as: String, attachment: &Attachment) -> Self {
        Self {
            interface,
            kept_as,
            is_there: true,
            ingress: IngressMode::from_raw(attachment.ingress).unwrap_or(IngressMode::Tc),
            tcx: attachment.filters == Filters::Tcx as u32,
            xdp_refusal: None,
            row: attachment.row,
        }
    }

    /// One that was gone when this process took its group over.
    pub(super) fn gone(ifindex: u32, attachment: &Attachment) -> Self {
        let name = kept_as(attachment);
        let interface = Interface::gone(ifindex, &name);
        Self {
            is_there: false,
            ..Self::of(interface, name, attachment)
        }
    }
}

/// The record of an interface that is about to be attached, with this row of the counters.
pub fn first_record(
    interface: &Interface,
    options: &AttachOptions,
    row: u32,
) -> Result<Attachment> {
    let tcx = match options.tc {
        TcChoice::Tcx => true,
        TcChoice::Clsact => false,
        TcChoice::Auto => kernel_version()? >= KernelVersion::new(6, 6, 0),
    };
    let filters = match tcx {
        true => Filters::Tcx,
        false if clsact::exists(interface.index)? => Filters::Clsact,
        false => Filters::OwnClsact,
    };
    let ingress = match options.ingress {
        IngressChoice::Tc => IngressMode::Tc,
        IngressChoice::XdpGeneric => IngressMode::XdpGeneric,
        IngressChoice::Xdp => IngressMode::Xdp,
        IngressChoice::Auto if interface.spare_xdp().is_some() => IngressMode::Tc,
        IngressChoice::Auto => IngressMode::Xdp,
    };
    Ok(Attachment {
        ingress: ingress as u32,
        filters: filters as u32,
        row,
        reserved: 0,
        name: recorded(&interface.name)?,
        since: monotonic_ns(),
        lost_in_queue: 0,
        places: [FilterPlace::default(); 3],
    })
}

/// Puts the programs on the hooks of an interface, or in the place of older ones, which
/// `attachment` says more of; no packet passes without a program. Returns the record as it is
/// then.
pub fn put_on_hooks(
    programs: &mut Programs,
    maps: &mut Maps,
    group: &Path,
    interface: &Interface,
    splitter: &Splitter,
    mut attachment: Attachment,
) -> Result<Attachment> {
    maps.records.set_attachment(interface.index, attachment)?;
    let directory = pins::member(group, interface.index);
    let (ebpf, name) = (&mut programs.ebpf, &interface.name);
    if !directory.join(link_name(FUNCTION.xdp)).exists() {
        admit(maps, interface, Some(splitter), &without_xdp(&attachment))?;
    }
    // XDP first, for it is what a driver may refuse.
    if let Some(mode) = IngressMode::from_raw(attachment.ingress).and_then(xdp_mode) {
        attach_xdp(ebpf, &FUNCTION, &directory, name, mode)?;
    }
    admit(maps, interface, Some(splitter), &attachment)?;
    let tcx = attachment.filters == Filters::Tcx as u32;
    // Egress before ingress: what ingress hands to egress must find it there.
    for (name, which) in [
        (&splitter.far, TcProgram::Splitter),
        (name, TcProgram::Egress),
        (name, TcProgram::Ingress),
    ] {
        let held = held(tcx, &mut attachment.places);
        attach_tc(ebpf, &FUNCTION, &directory, name, which, held)?;
    }
    maps.records.set_attachment(interface.index, attachment)?;
    Ok(attachment)
}

/// Attaches to an interface that has nothing so far; `attachment` is its
/// [first record](first_record). With `auto`, tc takes the place of XDP that the interface
/// refuses.
pub fn attach(
    programs: &mut Programs,
    maps: &mut Maps,
    group: &Path,
    interface: Interface,
    options: &AttachOptions,
    attachment: Attachment,
) -> Result<Carried> {
    let splitter = splitter::create(interface.index)?;
    let mut put =
        |attachment| put_on_hooks(programs, maps, group, &interface, &splitter, attachment);
    let (attachment, refusal) = match put(attachment) {
        Ok(attachment) => (attachment, spared(&interface, options)),
        Err(error) if options.ingress == IngressChoice::Auto => {
            let refusal = match error.kind() {
                Kind::XdpTaken => "another XDP program is attached",
                Kind::XdpUnsupported => "the driver does not take the program",
                _ => return Err(error),
            };
            (put(without_xdp(&attachment))?, Some(refusal))
        }
        Err(error) => return Err(error),
    };
    let kept_as = interface.name.clone();
    Ok(Carried {
        xdp_refusal: refusal.map(str::to_owned),
        ..Carried::of(interface, kept_as, &attachment)
    })
}

/// Why `auto` does not try XDP on an interface, if it does not.
fn spared(interface: &Interface, options: &AttachOptions) -> Option<&'static str> {
    match options.ingress {
        IngressChoice::Auto => interface.spare_xdp(),
        IngressChoice::Tc | IngressChoice::Xdp | IngressChoice::XdpGeneric => None,
    }
}

/// Puts the programs of egress and ingress on the interface that was made anew under the name
/// of one that is gone, which `attachment` is the record of: datagrams are disguised there at
/// once. Returns its own record.
pub fn disguise(
    programs: &mut Programs,
    maps: &mut Maps,
    group: &Path,
    interface: &Interface,
    attachment: Attachment,
) -> Result<Attachment> {
    let mut attachment = Attachment {
        places: [FilterPlace::default(); 3],
        ..attachment
    };
    maps.records.set_attachment(interface.index, attachment)?;
    admit(maps, interface, None, &without_xdp(&attachment))?;
    let directory = pins::member(group, interface.index);
    let tcx = attachment.filters == Filters::Tcx as u32;
    for which in [TcProgram::Egress, TcProgram::Ingress] {
        let (ebpf, name) = (&mut programs.ebpf, &interface.name);
        let held = held(tcx, &mut attachment.places);
        attach_tc(ebpf, &FUNCTION, &directory, name, which, held)?;
    }
    maps.records.set_attachment(interface.index, attachment)?;
    Ok(attachment)
}

/// The record as long as XDP is not there: tc refuses plain UDP then.
fn without_xdp(attachment: &Attachment) -> Attachment {
    Attachment {
        ingress: IngressMode::Tc as u32,
        ..*attachment
    }
}

fn held(tcx: bool, places: &mut [FilterPlace; 3]) -> Held<'_> {
    if tcx { Held::Tcx } else { Held::Clsact(places) }
}

/// Tells the programs of an interface, and of its splitter's far end.
fn admit(
    maps: &mut Maps,
    interface: &Interface,
    splitter: Option<&Splitter>,
    attachment: &Attachment,
) -> Result<()> {
    let member = Member {
        met_at: interface.index,
        index: interface.index,
        mtu: interface.mtu,
        splitter: splitter.map_or(0, |splitter| splitter.near),
        ingress: attachment.ingress,
        row: attachment.row,
    };
    if let Some(splitter) = splitter {
        maps.records.admit(Member {
            met_at: splitter.far_index,
            ..member
        })?;
    }
    maps.records.admit(member)
}
