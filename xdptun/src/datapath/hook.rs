//! Attaches a program, or atomically replaces an older one: no packet passes without a
//! program.

use std::path::{Path, PathBuf};

use aya::Ebpf;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::tc::{NlOptions, SchedClassifierLink, TcAttachOptions, TcHandle};
use aya::programs::xdp::XdpLink;
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType, Xdp, XdpMode};
use nix::libc;
use xdptun_common::attachment::{FilterPlace, IngressMode};

use super::function::{Function, TcProgram};
use super::{clsact, pins};
use crate::error::{Context as _, Error, Kind, Result, bail, io_error};

/// How the tc programs of an attachment are held.
pub enum Held<'a> {
    /// By TCX links.
    Tcx,
    /// By filters of the clsact qdisc, which are in these places.
    Clsact(&'a mut [FilterPlace; 3]),
}

/// The mode in which XDP is attached; `None` for tc alone.
pub const fn xdp_mode(ingress: IngressMode) -> Option<XdpMode> {
    match ingress {
        IngressMode::Tc => None,
        IngressMode::Xdp => Some(XdpMode::Driver),
        IngressMode::XdpGeneric => Some(XdpMode::Skb),
    }
}

/// Loads the XDP program that fits, and names it. A kernel without packets in
/// several buffers (before 5.18) gets the program that takes none. So does generic
/// XDP: the stack makes such packets linear for that program. For the other program
/// the stack copies the packet and loses the length of the link header
/// (`skb_pp_cow_data`), and tc then looks for the IP header in the wrong place.
fn load_xdp(ebpf: &mut Ebpf, function: &Function, mode: XdpMode) -> Result<&'static str> {
    let is_loaded = |loaded| matches!(loaded, Ok(()) | Err(ProgramError::AlreadyLoaded));
    if mode != XdpMode::Skb && is_loaded(program::<Xdp>(ebpf, function.xdp_frags)?.load()) {
        return Ok(function.xdp_frags);
    }
    let program: &mut Xdp = program(ebpf, function.xdp)?;
    match program.load() {
        Ok(()) | Err(ProgramError::AlreadyLoaded) => Ok(function.xdp),
        Err(error) => Err(rejected(function.xdp, error)),
    }
}

fn load_tc<'a>(
    ebpf: &'a mut Ebpf,
    function: &Function,
    which: TcProgram,
) -> Result<&'a mut SchedClassifier> {
    let name = function.program(which);
    let program: &mut SchedClassifier = program(ebpf, name)?;
    match program.load() {
        Ok(()) | Err(ProgramError::AlreadyLoaded) => Ok(program),
        Err(error) => Err(rejected(name, error)),
    }
}

/// Loads every program and attaches none; returns whether the kernel translated all of
/// them for the processor (JIT).
pub fn load_all(ebpf: &mut Ebpf, function: &Function) -> Result<bool> {
    let xdp = load_xdp(ebpf, function, XdpMode::Driver)?;
    let mut translated = program::<Xdp>(ebpf, xdp)?.info()?.size_jitted() > 0;
    for which in [TcProgram::Ingress, TcProgram::Egress, TcProgram::Splitter] {
        translated &= load_tc(ebpf, function, which)?.info()?.size_jitted() > 0;
    }
    Ok(translated)
}

/// Loads the XDP program and puts it on the interface.
///
/// # Errors
///
/// [`Kind::XdpTaken`] and [`Kind::XdpUnsupported`] if the interface does not take it; others
/// if the kernel refuses something else.
pub fn attach_xdp(
    ebpf: &mut Ebpf,
    function: &Function,
    directory: &Path,
    name: &str,
    mode: XdpMode,
) -> Result<()> {
    let loaded = load_xdp(ebpf, function, mode)?;
    let program: &mut Xdp = program(ebpf, loaded)?;
    if let Some(link) = pinned_link(directory, function.xdp)? {
        match program.attach_to_link(XdpLink::try_from(link)?) {
            Ok(id) => {
                program.take_link(id)?;
                return Ok(());
            }
            Err(error) => forget_dead_link(directory, function.xdp, error)?,
        }
    }
    let id = program
        .attach(name, mode)
        .map_err(|error| match os_error(&error) {
            Some(libc::EBUSY | libc::EEXIST) => {
                let why = format!(
                    "{name}: another XDP program is attached; `ip link show {name}` shows it. \
                     Detach it, or set `ingress` to `tc`"
                );
                Error::new(Kind::XdpTaken, why)
            }
            // Drivers refuse with many different errors.
            _ => {
                let why = format!(
                    "{name}: its driver does not take the XDP program; set `ingress` to `tc`"
                );
                Error::caused_by(Kind::XdpUnsupported, error).context(why)
            }
        })?;
    let link: FdLink = program.take_link(id)?.try_into()?;
    pin_link(link, directory, function.xdp)
}

/// Loads a tc program and puts it on an interface.
pub fn attach_tc(
    ebpf: &mut Ebpf,
    function: &Function,
    directory: &Path,
    name: &str,
    which: TcProgram,
    held: Held<'_>,
) -> Result<()> {
    let program = load_tc(ebpf, function, which)?;
    let called = function.program(which);
    match held {
        Held::Tcx => attach_tcx(program, directory, name, (which, called)),
        Held::Clsact(places) => {
            attach_filter(program, name, (which, called), &mut places[which as usize])
        }
    }
}

fn attach_tcx(
    program: &mut SchedClassifier,
    directory: &Path,
    name: &str,
    (which, called): (TcProgram, &str),
) -> Result<()> {
    if let Some(link) = pinned_link(directory, called)? {
        match program.attach_to_link(SchedClassifierLink::try_from(link)?) {
            Ok(id) => {
                program.take_link(id)?;
                return Ok(());
            }
            Err(error) => forget_dead_link(directory, called, error)?,
        }
    }
    // First on ingress, last on egress: programs of others see datagrams, as sockets do.
    let order = match which.hook() {
        TcAttachType::Egress => LinkOrder::last(),
        TcAttachType::Ingress | TcAttachType::Custom(_) => LinkOrder::first(),
    };
    let id = program
        .attach_with_options(name, which.hook(), TcAttachOptions::TcxOrder(order))
        .with_context(|| format!("cannot attach {called} to {name} (TCX)"))?;
    let link: FdLink = program.take_link(id)?.try_into()?;
    pin_link(link, directory, called)
}

fn attach_filter(
    program: &mut SchedClassifier,
    name: &str,
    (which, called): (TcProgram, &str),
    place: &mut FilterPlace,
) -> Result<()> {
    let context = || format!("cannot attach {called} to {name} (clsact)");
    let old = std::mem::take(place);
    let replaced = old.is_known().then(|| -> Result<_> {
        let handle = TcHandle::from(old.handle);
        let priority = old.priority as u16;
        let link = SchedClassifierLink::attached(name, which.hook(), priority, handle, None)?;
        Ok(program.attach_to_link(link)?)
    });
    let id = match replaced {
        Some(Ok(id)) => id,
        // Only the name tells which filter is ours.
        Some(Err(_)) | None => {
            clsact::add(name)?;
            clsact::remove_filter(name, which.hook(), called)?;
            let options = TcAttachOptions::Netlink(NlOptions::default());
            program
                .attach_with_options(name, which.hook(), options)
                .with_context(context)?
        }
    };
    let link = program.take_link(id)?;
    *place = FilterPlace {
        handle: link.handle()?.into(),
        priority: link.priority()?.into(),
    };
    // The filter must outlive this process.
    std::mem::forget(link);
    Ok(())
}

/// The link of a program that is attached already.
fn pinned_link(directory: &Path, program: &str) -> Result<Option<FdLink>> {
    let path = link_path(directory, program);
    if !path.exists() {
        return Ok(None);
    }
    let link = PinnedLink::from_pin(&path)
        .with_context(|| format!("cannot open the pinned link {}", path.display()))?;
    Ok(Some(link.into()))
}

/// Removes the pin of a link whose interface is gone, after an attempt to use it failed.
fn forget_dead_link(directory: &Path, program: &str, error: ProgramError) -> Result<()> {
    if os_error(&error) != Some(libc::ENOLINK) {
        return Err(error).with_context(|| format!("cannot replace the attached {program}"));
    }
    let path = link_path(directory, program);
    std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
}

/// Pins the link, which then outlives this process.
fn pin_link(link: FdLink, directory: &Path, program: &str) -> Result<()> {
    let path = link_path(directory, program);
    link.pin(&path)
        .with_context(|| format!("cannot pin {}", path.display()))?;
    Ok(())
}

fn link_path(directory: &Path, program: &str) -> PathBuf {
    directory.join(pins::link_name(program))
}

fn program<'a, T>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut T>
where
    &'a mut T: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    let Some(program) = ebpf.program_mut(name) else {
        bail!(Other, "the object has no program {name}");
    };
    Ok(program.try_into()?)
}

fn rejected(program: &str, error: ProgramError) -> Error {
    // The verifier refuses with EACCES, and no privilege is missing.
    Error::caused_by(Kind::Kernel, error).context(format!(
        "the kernel does not accept {program}; please report this with the kernel version"
    ))
}

/// The error number at the bottom of an aya error.
fn os_error(error: &ProgramError) -> Option<i32> {
    io_error(error)?.raw_os_error()
}
