//! Loading and attaching: all of it or nothing.

use std::fs;
use std::io;

use aya::Ebpf;
use aya::maps::{MapData, RingBuf};
use aya::util::KernelVersion;
use xdptun_common::attachment::{Attachment, FilterPlace, Filters, IngressMode};

use super::keys::KeyMaps;
use super::load::prepare;
use super::local::LocalMap;
use super::maps::Maps;
use super::options::AttachOptions;
use super::pinned::{Pinned, recorded};
use super::remove::{remove, strip};
use crate::config::{IngressChoice, TcChoice};
use crate::datapath::hook::{Held, attach_tc, attach_xdp, xdp_mode};
use crate::datapath::programs::TcProgram;
use crate::datapath::recorder::Recorder;
use crate::datapath::splitter::{self, Splitter};
use crate::datapath::{clsact, pins};
use crate::error::{Context as _, Kind, Result};
use crate::host::addresses;
use crate::host::clock::monotonic_ns;
use crate::host::interface::Interface;
use crate::host::preflight::kernel_version;

/// A complete attachment. Dropping it leaves the programs attached; call
/// [`Attached::detach`] to take them away.
pub struct Attached {
    /// The interface.
    pub interface: Interface,
    /// Which program restores inbound data.
    pub ingress: IngressMode,
    /// Whether the tc programs are TCX links.
    pub tcx: bool,
    /// Why `auto` did not take XDP, if it did not.
    pub xdp_refusal: Option<String>,
    /// How many flows were there already.
    pub adopted: Option<usize>,
    /// The maps.
    pub maps: Maps,
    /// Those with the keys of proofs.
    pub keys: KeyMaps,
    /// The one with the addresses of this host.
    pub local: LocalMap,
    /// The records of the programs.
    pub events: Option<RingBuf<MapData>>,
    /// Their copies of packets, if they make any.
    pub recorder: Option<Recorder>,
    /// The loaded object, for its log.
    pub ebpf: Ebpf,
}

impl Attached {
    /// Loads the programs, sets them up and attaches them. The caller holds the
    /// interface's lock, and so its pin directory is there. On failure
    /// everything that was made is removed again.
    ///
    /// # Errors
    ///
    /// Names the step, the cause, and where one can be told the way out.
    pub fn new(interface: Interface, options: &AttachOptions) -> Result<Self> {
        let index = interface.index;
        load_and_attach(interface, options).map_err(|error| match remove(index) {
            Ok(_) => error,
            Err(leftover) => {
                error.context(format!("and the clean-up failed as well: {leftover:#}"))
            }
        })
    }

    /// Puts this version's programs, set up anew, in the place of those that a
    /// process left attached, one by one and without a gap; flows and counters
    /// stay. The caller holds the interface's lock. On failure what is attached
    /// stays so.
    ///
    /// # Errors
    ///
    /// If the options contradict what is attached, or as [`Attached::new`].
    pub fn adopt(interface: Interface, options: &AttachOptions, pinned: &Pinned) -> Result<Self> {
        let attachment = pinned.attachment;
        options
            .check(pinned)
            .with_context(|| interface.name.clone())?;
        let mut attached = attach_as(interface, options, pinned.ingress(), Some(attachment))?;
        attached.adopted = Some(attached.maps.flows()?.len());
        Ok(attached)
    }

    /// Goes over to another interface, the one that was made anew under the old
    /// name, with all flows. Datagrams are disguised there from the first moment,
    /// by the programs as they are; then they are set up anew.
    ///
    /// # Errors
    ///
    /// As [`Attached::new`]; the pins may then be of either interface.
    pub fn follow(mut self, interface: Interface, options: &AttachOptions) -> Result<Self> {
        let (old, new) = (self.interface.index, interface.index);
        let directory = pins::directory(new)?;
        let mut places = [Default::default(); 3];
        pins::rename(&pins::directory(old)?, &directory)?;
        // Those of the old interface may live on, at the splitter or elsewhere.
        pins::remove_links(&directory)?;
        for program in [TcProgram::Egress, TcProgram::Ingress] {
            let held = held(self.tcx, &mut places);
            attach_tc(&mut self.ebpf, &directory, &interface.name, program, held)?;
        }
        let mut attachment = self.maps.attachment()?;
        attachment.places = places;
        self.maps.set_attachment(attachment)?;
        let pinned = Pinned::open(new)?.context("its pins are gone")?;
        let attached = Self::adopt(interface, options, &pinned);
        splitter::remove(old)?;
        attached
    }

    /// Sets ports, peers and keys while the programs run; what stays is owned all the time.
    ///
    /// # Errors
    ///
    /// If the maps cannot be written.
    pub fn set(&mut self, options: &AttachOptions) -> Result<()> {
        if let Some(keys) = &options.keys {
            self.keys.set(keys)?;
        }
        self.maps.set_ports(&options.ports)?;
        self.maps.retain_peers(&options.peers)?;
        Ok(self.maps.add_peers(&options.peers)?)
    }

    /// Takes the programs off the interface and removes all pins.
    ///
    /// # Errors
    ///
    /// If something cannot be removed.
    pub fn detach(self) -> Result<()> {
        remove(self.interface.index).map(|_| ())
    }
}

fn load_and_attach(interface: Interface, options: &AttachOptions) -> Result<Attached> {
    let mut xdp_refusal = None;
    let plan = match options.ingress {
        IngressChoice::Tc => IngressMode::Tc,
        IngressChoice::Xdp => IngressMode::Xdp,
        IngressChoice::XdpGeneric => IngressMode::XdpGeneric,
        IngressChoice::Auto if let Some(reason) = interface.spare_xdp() => {
            xdp_refusal = Some(reason.to_owned());
            IngressMode::Tc
        }
        IngressChoice::Auto => {
            match attach_as(interface.clone(), options, IngressMode::Xdp, None) {
                Ok(attached) => return Ok(attached),
                Err(error) => {
                    let reason = match error.kind() {
                        Kind::XdpTaken => "another XDP program is attached",
                        Kind::XdpUnsupported => "the driver does not take the program",
                        _ => return Err(error),
                    };
                    xdp_refusal = Some(reason.to_owned());
                }
            }
            // A half-made attempt is taken back before the next.
            strip(interface.index)?;
            IngressMode::Tc
        }
    };
    let mut attached = attach_as(interface, options, plan, None)?;
    attached.xdp_refusal = xdp_refusal;
    Ok(attached)
}

/// Attaches, or replaces what is attached if its record is given.
fn attach_as(
    interface: Interface,
    options: &AttachOptions,
    ingress: IngressMode,
    kept: Option<Attachment>,
) -> Result<Attached> {
    let splitter = match kept {
        Some(_) => splitter::ensure(interface.index)?,
        None => splitter::create(interface.index)?,
    };
    let attachment = match kept {
        Some(kept) => renewed(kept, options),
        None => first_record(&interface, options, ingress)?,
    };
    let tcx = attachment.filters == Filters::Tcx as u32;
    let (mut ebpf, mut maps, events) = prepare(&interface, options, attachment, splitter.near)?;
    let mut keys = KeyMaps::take(&mut ebpf)?;
    if let Some(wanted) = &options.keys {
        keys.set(wanted)?;
    }
    let mut local = LocalMap::take(&mut ebpf)?;
    local.set(&addresses::now(interface.index)?)?;
    // Before the first copy.
    let recorder = match options.record {
        Some(_) => Some(Recorder::open(&mut ebpf)?),
        None => None,
    };
    let places = put_on_hooks(&mut ebpf, &interface, &splitter, attachment)?;
    // Only now: older programs may have asked for them.
    maps.retain_peers(&options.peers)?;
    maps.set_attachment(Attachment {
        places,
        ..attachment
    })?;
    pins::share(&pins::directory(interface.index)?)?;
    Ok(Attached {
        interface,
        ingress,
        tcx,
        xdp_refusal: None,
        adopted: None,
        maps,
        keys,
        local,
        events: Some(events),
        recorder,
        ebpf,
    })
}

fn put_on_hooks(
    ebpf: &mut Ebpf,
    interface: &Interface,
    splitter: &Splitter,
    attachment: Attachment,
) -> Result<[FilterPlace; 3]> {
    let directory = pins::directory(interface.index)?;
    let tcx = attachment.filters == Filters::Tcx as u32;
    let mut places = attachment.places;
    // XDP first, for it is what a driver may refuse.
    if let Some(mode) = IngressMode::from_raw(attachment.ingress).and_then(xdp_mode) {
        attach_xdp(ebpf, &directory, &interface.name, mode)?;
    }
    // Egress before ingress: what ingress hands to egress must find it there.
    for (name, program) in [
        (&splitter.far, TcProgram::Splitter),
        (&interface.name, TcProgram::Egress),
        (&interface.name, TcProgram::Ingress),
    ] {
        attach_tc(ebpf, &directory, name, program, held(tcx, &mut places))?;
    }
    Ok(places)
}

fn held(tcx: bool, places: &mut [FilterPlace; 3]) -> Held<'_> {
    if tcx { Held::Tcx } else { Held::Clsact(places) }
}

/// The record of an attachment that another process made.
fn renewed(kept: Attachment, options: &AttachOptions) -> Attachment {
    Attachment {
        hidden: options.keys.is_some().into(),
        ..kept
    }
}

/// The record of a new attachment.
pub fn first_record(
    interface: &Interface,
    options: &AttachOptions,
    ingress: IngressMode,
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
    Ok(Attachment {
        ingress: ingress as u32,
        filters: filters as u32,
        name: recorded(&interface.name)?,
        since: monotonic_ns(),
        lost_in_queue: 0,
        hidden: options.keys.is_some().into(),
        secret: random_secret()?,
        places: [FilterPlace::default(); 3],
    })
}

fn random_secret() -> Result<[u64; 2]> {
    let mut bytes = [0; 16];
    io::Read::read_exact(
        &mut fs::File::open("/dev/urandom").context("/dev/urandom")?,
        &mut bytes,
    )?;
    let (words, _) = bytes.as_chunks::<8>();
    Ok([0, 1].map(|word| u64::from_ne_bytes(words[word])))
}
