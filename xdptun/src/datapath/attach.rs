//! Loading and attaching: all of it or nothing.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use aya::maps::{MapData, RingBuf};
use aya::programs::links::FdLink;
use aya::programs::tc::{NlOptions, TcAttachOptions};
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType, Xdp, XdpMode};
use aya::util::KernelVersion;
use aya::{Ebpf, EbpfLoader};
use ipnet::IpNet;
use xdptun_common::config::{Attachment, Filters, IngressMode, global};
use xdptun_common::isn::Secret;

use super::maps::{Maps, take_events};
use super::splitter;
use super::{
    OBJECT, SPLITTER_PROGRAM, TC_PROGRAMS, XDP_FRAGS_PROGRAM, XDP_PROGRAM, clsact, pins, remove,
    strip,
};
use crate::clock::monotonic_ns;
use crate::interface::Interface;
use crate::ports::PortRange;

/// Which program shall restore inbound data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum IngressChoice {
    /// XDP in the driver if it has it, else tc.
    Auto,
    /// XDP in the driver.
    Xdp,
    /// XDP in the stack; switches software GRO off for the whole interface.
    XdpGeneric,
    /// tc alone.
    Tc,
}

/// How the tc programs shall be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TcChoice {
    /// TCX where the kernel has it (6.6), else clsact.
    Auto,
    /// TCX links.
    Tcx,
    /// Filters of the clsact qdisc.
    Clsact,
}

/// What to attach.
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// Owned ports.
    pub ports: Vec<PortRange>,
    /// Networks of peers; empty for any.
    pub peers: Vec<IpNet>,
    /// Which program restores inbound data.
    pub ingress: IngressChoice,
    /// How the tc programs are attached.
    pub tc: TcChoice,
    /// Capacity of the flow table.
    pub max_flows: u32,
    /// Whether the programs log every packet.
    pub trace: bool,
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
    /// The maps.
    pub maps: Maps,
    /// The records of the programs.
    pub events: Option<RingBuf<MapData>>,
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
            match attach_as(interface.clone(), options, IngressMode::Xdp) {
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
    let mut attached = attach_as(interface, options, plan)?;
    attached.xdp_refusal = xdp_refusal;
    Ok(attached)
}

fn attach_as(
    interface: Interface,
    options: &AttachOptions,
    ingress: IngressMode,
) -> Result<Attached> {
    let splitter = splitter::create(interface.index)?;
    let Prepared {
        mut ebpf,
        maps,
        events,
        tcx,
    } = prepare(&interface, options, ingress, splitter.near)?;
    let directory = pins::directory(interface.index)?;
    // XDP first, for it is what a driver may refuse.
    if let Some(mode) = xdp_mode(ingress) {
        attach_xdp(&mut ebpf, &directory, &interface.name, mode)?;
    }
    if !tcx {
        clsact::add(&splitter.far)?;
    }
    let hook = TcAttachType::Ingress;
    attach_tc(
        &mut ebpf,
        &directory,
        &splitter.far,
        SPLITTER_PROGRAM,
        hook,
        tcx,
    )?;
    // Egress before ingress: what ingress hands to egress must find it there.
    for (program, hook) in TC_PROGRAMS.into_iter().rev() {
        attach_tc(&mut ebpf, &directory, &interface.name, program, hook, tcx)?;
    }
    Ok(Attached {
        interface,
        ingress,
        tcx,
        xdp_refusal: None,
        maps,
        events: Some(events),
        ebpf,
    })
}

/// The object in the kernel, its maps pinned and filled.
struct Prepared {
    ebpf: Ebpf,
    maps: Maps,
    events: RingBuf<MapData>,
    tcx: bool,
}

fn prepare(
    interface: &Interface,
    options: &AttachOptions,
    ingress: IngressMode,
    near_end: u32,
) -> Result<Prepared> {
    let directory = pins::directory(interface.index)?;
    let mut ebpf = load(interface, options, ingress, near_end)?;
    let mut maps = Maps::pin(&mut ebpf, &directory)?;
    let events = take_events(&mut ebpf, &directory)?;
    maps.set_ports(&options.ports)?;
    maps.add_peers(&options.peers)?;

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
    let mut name = [0; 16];
    let bytes = interface.name.as_bytes();
    name.get_mut(..bytes.len())
        .context("interface name too long")?
        .copy_from_slice(bytes);
    maps.set_attachment(Attachment {
        version: Attachment::VERSION,
        ingress: ingress as u32,
        filters: filters as u32,
        pid: std::process::id(),
        name,
        since: monotonic_ns(),
        lost_in_queue: 0,
    })?;
    // Recorded before it is made: whatever ends this process, `strip` knows.
    if filters == Filters::OwnClsact {
        clsact::add(&interface.name)?;
    }
    Ok(Prepared {
        ebpf,
        maps,
        events,
        tcx,
    })
}

/// The first kernel that moves the start of a packet before it looks at a pending
/// checksum (`bpf: pull before calling skb_postpull_rcsum`). Some older ones have
/// the change too; they take one step more than they need.
const PULLS_FIRST: KernelVersion = KernelVersion::new(6, 2, 0);

fn load(
    interface: &Interface,
    options: &AttachOptions,
    ingress: IngressMode,
    near_end: u32,
) -> Result<Ebpf> {
    let secret = random_secret()?;
    let log_level: u8 = if options.trace { u8::MAX } else { 0 };
    let peers_only = u32::from(!options.peers.is_empty());
    let shrink_twice = u32::from(KernelVersion::current()? < PULLS_FIRST);
    EbpfLoader::new()
        .override_global(global::SECRET, &secret.0, true)
        .override_global(global::IFINDEX, &interface.index, true)
        .override_global(global::LINK_LEN, &interface.link_len, true)
        .override_global(global::MTU, &interface.mtu, true)
        .override_global(global::PEERS_ONLY, &peers_only, true)
        .override_global(global::SPLITTER, &near_end, true)
        .override_global(global::SHRINK_TWICE, &shrink_twice, true)
        .override_global(global::XDP, &(ingress as u32), true)
        .override_global(aya_log::LEVEL, &log_level, true)
        .map_max_entries("FLOWS", options.max_flows)
        .load(OBJECT)
        .context("cannot load the kernel side")
}

/// Why an interface does not take the XDP program.
#[derive(Debug, thiserror::Error)]
enum XdpRefusal {
    #[error(
        "{0}: another XDP program is attached; `ip link show {0}` shows it. \
         Detach it, or use --ingress tc"
    )]
    Taken(String),
    #[error("{0}: its driver does not take the XDP program; use --ingress tc")]
    Unsupported(String, #[source] ProgramError),
}

impl XdpRefusal {
    /// The reason alone, where the way out has been taken already.
    fn reason(&self) -> &'static str {
        match self {
            Self::Taken(_) => "another XDP program is attached",
            Self::Unsupported(..) => "the driver does not take the program",
        }
    }
}

fn random_secret() -> Result<Secret> {
    let mut bytes = [0; 16];
    io::Read::read_exact(
        &mut fs::File::open("/dev/urandom").context("/dev/urandom")?,
        &mut bytes,
    )?;
    let (words, _) = bytes.as_chunks::<8>();
    Ok(Secret([0, 1].map(|word| u64::from_ne_bytes(words[word]))))
}

const fn xdp_mode(ingress: IngressMode) -> Option<XdpMode> {
    match ingress {
        IngressMode::Tc => None,
        IngressMode::Xdp => Some(XdpMode::Driver),
        IngressMode::XdpGeneric => Some(XdpMode::Skb),
    }
}

/// Loads the XDP program that fits, and names it. A kernel that knows no packets
/// in several buffers (before 5.18) gets the one that takes none. So does the
/// stack, which puts such packets into one piece by itself: of a packet that it
/// copies for the other program it forgets the length of the link header
/// (`skb_pp_cow_data`), and tc then looks for the IP header in the wrong place.
fn load_xdp(ebpf: &mut Ebpf, mode: XdpMode) -> Result<&'static str> {
    if mode != XdpMode::Skb && program::<Xdp>(ebpf, XDP_FRAGS_PROGRAM)?.load().is_ok() {
        return Ok(XDP_FRAGS_PROGRAM);
    }
    let program: &mut Xdp = program(ebpf, XDP_PROGRAM)?;
    program.load().with_context(|| rejected(XDP_PROGRAM))?;
    Ok(XDP_PROGRAM)
}

fn attach_xdp(ebpf: &mut Ebpf, directory: &Path, name: &str, mode: XdpMode) -> Result<()> {
    let loaded = load_xdp(ebpf, mode)?;
    let program: &mut Xdp = program(ebpf, loaded)?;
    let id = program
        .attach(name, mode)
        .map_err(|error| match os_error(&error) {
            Some(libc::EBUSY | libc::EEXIST) => XdpRefusal::Taken(name.to_owned()),
            // Drivers have many ways to say no.
            _ => XdpRefusal::Unsupported(name.to_owned(), error),
        })?;
    let link: FdLink = program.take_link(id)?.try_into()?;
    pin_link(link, directory, XDP_PROGRAM)
}

fn attach_tc(
    ebpf: &mut Ebpf,
    directory: &Path,
    name: &str,
    program_name: &str,
    hook: TcAttachType,
    tcx: bool,
) -> Result<()> {
    let program: &mut SchedClassifier = program(ebpf, program_name)?;
    program.load().with_context(|| rejected(program_name))?;
    if !tcx {
        let id = program
            .attach_with_options(name, hook, TcAttachOptions::Netlink(NlOptions::default()))
            .with_context(|| format!("cannot attach {program_name} to {name} (clsact)"))?;
        // The filter shall outlive this process; `remove` finds it by name.
        std::mem::forget(program.take_link(id)?);
        return Ok(());
    }
    // First in, last out: programs of others see datagrams, as sockets do.
    let order = match hook {
        TcAttachType::Egress => LinkOrder::last(),
        TcAttachType::Ingress | TcAttachType::Custom(_) => LinkOrder::first(),
    };
    let id = program
        .attach_with_options(name, hook, TcAttachOptions::TcxOrder(order))
        .with_context(|| format!("cannot attach {program_name} to {name} (TCX)"))?;
    let link: FdLink = program.take_link(id)?.try_into()?;
    pin_link(link, directory, program_name)
}

/// The pin holds the link; the handle of this process is let go.
fn pin_link(link: FdLink, directory: &Path, program: &str) -> Result<()> {
    let path = directory.join(pins::link_name(program));
    link.pin(&path)
        .with_context(|| format!("cannot pin {}", path.display()))?;
    Ok(())
}

fn program<'a, T>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut T>
where
    &'a mut T: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    let Some(program) = ebpf.program_mut(name) else {
        bail!("the object has no program {name}");
    };
    Ok(program.try_into()?)
}

fn rejected(program: &str) -> String {
    format!("the kernel does not accept {program}; please report this with the kernel version")
}

/// The error number at the bottom of an aya error.
fn os_error(error: &ProgramError) -> Option<i32> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return io.raw_os_error();
        }
        source = error.source();
    }
    None
}
