//! Loading and attaching: all of it or nothing.

use std::fs;
use std::io;
use std::num::NonZeroU32;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use aya::maps::{MapData, RingBuf};
use aya::util::KernelVersion;
use aya::{Ebpf, EbpfLoader};
use clap::ValueEnum;
use ipnet::IpNet;
use serde::Deserialize;
use xdptun_common::attachment::{Attachment, FilterPlace, Filters, IngressMode};
use xdptun_common::tunnel::config::global;
use xdptun_common::tunnel::replay::PAGES;

use super::hook::{Held, TcProgram, XdpRefusal, attach_tc, attach_xdp, load_all, xdp_mode};
use super::keys::{KeyMaps, Keys};
use super::local::LocalMap;
use super::maps::{Maps, PINNED, PROOFS, Record, take_events};
use super::recorder::Recorder;
use super::sizes::forgetful;
use super::splitter::{self, Splitter};
use super::{OBJECT, Pinned, clsact, pins, recorded, remove, strip, tcp_defaults};
use crate::addresses;
use crate::clock::monotonic_ns;
use crate::interface::Interface;
use crate::ports::PortRange;

/// Which program shall restore inbound data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "kebab-case")]
pub enum IngressChoice {
    /// XDP in the driver if it has it, else tc.
    #[default]
    Auto,
    /// XDP in the driver.
    Xdp,
    /// XDP in the stack; switches software GRO off for the whole interface.
    XdpGeneric,
    /// tc alone.
    Tc,
}

/// How the tc programs shall be attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "kebab-case")]
pub enum TcChoice {
    /// TCX where the kernel has it (6.6), else clsact.
    #[default]
    Auto,
    /// TCX links.
    Tcx,
    /// Filters of the clsact qdisc.
    Clsact,
}

/// How many flows the table holds unless it is told otherwise.
pub const DEFAULT_MAX_FLOWS: u32 = 65536;

/// What to attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachOptions {
    /// Owned ports.
    pub ports: Vec<PortRange>,
    /// Networks of peers.
    pub peers: Vec<IpNet>,
    /// Whether everyone else is left alone.
    pub only_peers: bool,
    /// Which program restores inbound data.
    pub ingress: IngressChoice,
    /// How the tc programs are attached.
    pub tc: TcChoice,
    /// Capacity of the flow table.
    pub max_flows: u32,
    /// What callers must prove to know, if anything.
    pub keys: Option<Keys>,
    /// Whether the programs log every packet.
    pub trace: bool,
    /// How many bytes of each packet they copy for a capture, if there is one.
    pub record: Option<NonZeroU32>,
}

impl AttachOptions {
    /// Whether programs set up for `other` cannot do for this: all but ports, peers and
    /// keys is fixed when they are loaded, and so is whether there are keys.
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
        Self::check(options, pinned).with_context(|| interface.name.clone())?;
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
        pins::remove_all_links(&directory)?;
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

impl Attached {
    /// Checks that options change nothing that cannot change while they are attached.
    ///
    /// # Errors
    ///
    /// Names the option and the way out.
    pub fn check(options: &AttachOptions, pinned: &Pinned) -> Result<()> {
        let (name, in_file) = (pinned.name(), pinned.kept_as());
        let (ingress, filters) = (pinned.ingress(), pinned.filters());
        let ingress_fits = match options.ingress {
            IngressChoice::Auto => true,
            IngressChoice::Tc => ingress == IngressMode::Tc,
            IngressChoice::Xdp => ingress == IngressMode::Xdp,
            IngressChoice::XdpGeneric => ingress == IngressMode::XdpGeneric,
        };
        let tc_fits = match options.tc {
            TcChoice::Auto => true,
            TcChoice::Tcx => filters == Filters::Tcx,
            TcChoice::Clsact => filters != Filters::Tcx,
        };
        let max_flows = pinned.maps.max_flows();
        let (option, wanted, has) = if !ingress_fits {
            let wanted = name_of_choice(options.ingress);
            ("ingress", wanted, ingress.name().to_owned())
        } else if !tc_fits {
            let wanted = name_of_choice(options.tc);
            ("tc", wanted, filters.name().to_owned())
        } else if max_flows != options.max_flows {
            let wanted = options.max_flows.to_string();
            ("max-flows", wanted, max_flows.to_string())
        } else {
            return Ok(());
        };
        bail!(
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
                    let refusal = error.downcast::<XdpRefusal>()?;
                    xdp_refusal = Some(refusal.reason().to_owned());
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
fn first_record(
    interface: &Interface,
    options: &AttachOptions,
    ingress: IngressMode,
) -> Result<Attachment> {
    let tcx = match options.tc {
        TcChoice::Tcx => true,
        TcChoice::Clsact => false,
        TcChoice::Auto => KernelVersion::current()? >= KernelVersion::new(6, 6, 0),
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

/// The object in the kernel, its maps pinned and filled. Maps that are pinned
/// already are used as they are.
fn prepare(
    interface: &Interface,
    options: &AttachOptions,
    attachment: Attachment,
    near_end: u32,
) -> Result<(Ebpf, Maps, RingBuf<MapData>)> {
    let directory = pins::directory(interface.index)?;
    let mut ebpf = load(interface, options, &attachment, near_end, Some(&directory))?;
    let mut maps = Maps::of(&mut ebpf)?;
    let events = take_events(&mut ebpf)?;
    maps.set_ports(&options.ports)?;
    maps.add_peers(&options.peers)?;
    // Recorded before it is made: whatever ends this process, `strip` knows.
    maps.own()?;
    maps.set_attachment(attachment)?;
    Ok((ebpf, maps, events))
}

/// The first kernel that moves the start of a packet before it looks at a pending
/// checksum (`bpf: pull before calling skb_postpull_rcsum`). Some older ones have
/// the change too; they take one step more than they need.
const PULLS_FIRST: KernelVersion = KernelVersion::new(6, 2, 0);

/// Loads every program as [`Attached::new`] would, attaches and pins nothing, and
/// lets go of all of it. Whether the kernel translates the programs for the
/// processor (JIT).
///
/// # Errors
///
/// If the kernel refuses one of them.
pub fn try_load(interface: &Interface) -> Result<bool> {
    let options = AttachOptions {
        ports: Vec::new(),
        peers: Vec::new(),
        only_peers: false,
        ingress: IngressChoice::Auto,
        tc: TcChoice::Auto,
        max_flows: 1,
        keys: None,
        trace: false,
        record: None,
    };
    let attachment = first_record(interface, &options, IngressMode::Xdp)?;
    let mut ebpf = load(interface, &options, &attachment, interface.index, None)?;
    load_all(&mut ebpf)
}

/// Makes the maps, pinned in `directory` if there is one.
fn load(
    interface: &Interface,
    options: &AttachOptions,
    attachment: &Attachment,
    near_end: u32,
    directory: Option<&Path>,
) -> Result<Ebpf> {
    let log_level: u8 = if options.trace { u8::MAX } else { 0 };
    let peers_only = u32::from(options.only_peers);
    let shrink_twice = u32::from(KernelVersion::current()? < PULLS_FIRST);
    let hidden = u32::from(options.keys.is_some());
    let record = options.record.map_or(0, NonZeroU32::get);
    let tcp_defaults = Record(tcp_defaults::read(&interface.name));
    let mut loader = EbpfLoader::new();
    loader
        .override_global(global::HIDDEN, &hidden, true)
        .override_global(global::SECRET, &attachment.secret, true)
        .override_global(global::IFINDEX, &interface.index, true)
        .override_global(global::LINK_LEN, &interface.link_len, true)
        .override_global(global::MTU, &interface.mtu, true)
        .override_global(global::MAX_FLOWS, &options.max_flows, true)
        .override_global(global::TCP_DEFAULTS, &tcp_defaults, true)
        .override_global(global::PEERS_ONLY, &peers_only, true)
        .override_global(global::SPLITTER, &near_end, true)
        .override_global(global::SHRINK_TWICE, &shrink_twice, true)
        .override_global(global::XDP, &attachment.ingress, true)
        .override_global(global::RECORD, &record, true)
        .override_global(aya_log::LEVEL, &log_level, true)
        .map_max_entries("FLOWS", options.max_flows)
        .map_max_entries("REMOTES", options.max_flows);
    // Without a secret they stay as small as the object has them.
    let proofs = if hidden != 0 { &PROOFS[..] } else { &[] };
    for (map, entries) in forgetful().filter(|(map, _)| *map != PROOFS[0] || hidden != 0) {
        loader.map_max_entries(map, entries);
    }
    if hidden != 0 {
        loader.map_max_entries(PROOFS[1], PAGES);
    }
    if let Some(directory) = directory {
        for map in PINNED.iter().chain(proofs) {
            loader.map_pin_path(map, directory.join(map));
        }
    }
    loader.load(OBJECT).context("cannot load the kernel side")
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
