//! Attaches a program, or atomically replaces an older one: no packet passes without a
//! program.

use std::path::{Path, PathBuf};
use std::thread;

use aya::Ebpf;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::tc::{
    NlOptions, SchedClassifierLink, SchedClassifierLinkId, TcAttachOptions, TcError, TcHandle,
};
use aya::programs::xdp::XdpLink;
use aya::programs::{Program, ProgramError, SchedClassifier, Xdp, XdpMode};
use nix::libc;
use xdptun_common::attachment::{FilterPlace, IngressMode};

use super::programs::{Programs, TcProgram, XdpPrograms};
use super::{clsact, lock, order, pins};
use crate::error::{Context as _, Error, Kind, Result, bail, io_error};

/// How the tc programs of an attachment are held.
pub enum Held<'a> {
    /// By TCX links.
    Tcx,
    /// By filters of the clsact qdisc, which are in these places.
    Clsact(&'a mut [FilterPlace; 4]),
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
fn load_xdp(ebpf: &mut Ebpf, programs: &XdpPrograms, mode: XdpMode) -> Result<&'static str> {
    let is_loaded = |loaded| matches!(loaded, Ok(()) | Err(ProgramError::AlreadyLoaded));
    if mode != XdpMode::Skb && is_loaded(program::<Xdp>(ebpf, programs.frags)?.load()) {
        return Ok(programs.frags);
    }
    let program: &mut Xdp = program(ebpf, programs.linear)?;
    match program.load() {
        Ok(()) | Err(ProgramError::AlreadyLoaded) => Ok(programs.linear),
        Err(error) => Err(rejected(programs.linear, error)),
    }
}

fn load_tc<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut SchedClassifier> {
    let program: &mut SchedClassifier = program(ebpf, name)?;
    match program.load() {
        Ok(()) | Err(ProgramError::AlreadyLoaded) => Ok(program),
        Err(error) => Err(rejected(name, error)),
    }
}

/// Loads the programs that an interface in this mode needs, all at once: the verifier, which
/// works on one core, takes most of the time of a start. A program that the kernel refuses is
/// refused again when it is attached, which tells why.
pub fn load_ahead(ebpf: &mut Ebpf, programs: &Programs, mode: Option<XdpMode>) {
    let xdp = programs.xdp.as_ref().zip(mode);
    let xdp = xdp.map(|(programs, mode)| match mode {
        XdpMode::Skb => programs.linear,
        _ => programs.frags,
    });
    let needed: Vec<_> = programs.at_tc().chain(xdp).collect();
    thread::scope(|scope| {
        for (name, program) in ebpf.programs_mut() {
            if needed.contains(&name) {
                // Without a thread (a limit of the container), it is loaded when it is attached.
                let _ = thread::Builder::new().spawn_scoped(scope, || match program {
                    Program::Xdp(program) => program.load(),
                    Program::SchedClassifier(program) => program.load(),
                    _ => Ok(()),
                });
            }
        }
    });
}

/// Loads every program and attaches none; returns whether the kernel translated all of
/// them for the processor (JIT).
pub fn load_all(ebpf: &mut Ebpf, programs: &Programs) -> Result<bool> {
    load_ahead(ebpf, programs, Some(XdpMode::Driver));
    let mut translated = true;
    if let Some(programs) = &programs.xdp {
        let loaded = load_xdp(ebpf, programs, XdpMode::Driver)?;
        translated = program::<Xdp>(ebpf, loaded)?.info()?.size_jitted() > 0;
    }
    for name in programs.at_tc() {
        translated &= load_tc(ebpf, name)?.info()?.size_jitted() > 0;
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
    programs: &XdpPrograms,
    directory: &Path,
    name: &str,
    mode: XdpMode,
) -> Result<()> {
    let loaded = load_xdp(ebpf, programs, mode)?;
    let program: &mut Xdp = program(ebpf, loaded)?;
    if let Some(link) = pinned_link(directory, programs.linear)? {
        match program.attach_to_link(XdpLink::try_from(link)?) {
            Ok(id) => {
                program.take_link(id)?;
                return Ok(());
            }
            Err(error) => forget_dead_link(directory, programs.linear, error)?,
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
    pin_link(link, directory, programs.linear)
}

/// Where a tc program goes.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The programs that it belongs to.
    pub programs: &'a Programs,
    /// The directory of the interface's pins.
    pub directory: &'a Path,
    /// The device, by name and index.
    pub device: (&'a str, u32),
    /// Which of the programs it is.
    pub which: TcProgram,
    /// Its name in the object.
    pub name: &'a str,
}

/// Loads a tc program and puts it on a device.
pub fn attach_tc(ebpf: &mut Ebpf, place: Place<'_>, held: Held<'_>) -> Result<()> {
    let program = load_tc(ebpf, place.name)?;
    match held {
        Held::Tcx => attach_tcx(program, place),
        Held::Clsact(filters) => attach_filter(program, place, &mut filters[place.which as usize]),
    }
}

fn attach_tcx(program: &mut SchedClassifier, place: Place<'_>) -> Result<()> {
    let Place {
        directory, name, ..
    } = place;
    if let Some(link) = pinned_link(directory, name)? {
        match program.attach_to_link(SchedClassifierLink::try_from(link)?) {
            Ok(id) => {
                program.take_link(id)?;
                return Ok(());
            }
            Err(error) => forget_dead_link(directory, name, error)?,
        }
    }
    let (device, hook) = (place.device, place.which.hook());
    let _short = lock::lock_namespace()?;
    let order = order::on_tcx(place.programs, device, hook)?;
    let id = program
        .attach_with_options(device.0, hook, TcAttachOptions::TcxOrder(order))
        .with_context(|| format!("cannot attach {name} to {} (TCX)", device.0))?;
    let link: FdLink = program.take_link(id)?.try_into()?;
    pin_link(link, directory, name)
}

fn attach_filter(
    program: &mut SchedClassifier,
    place: Place<'_>,
    filter: &mut FilterPlace,
) -> Result<()> {
    let (device, hook) = (place.device.0, place.which.hook());
    let old = std::mem::take(filter);
    let replaced = old.is_known().then(|| -> Result<_> {
        let handle = TcHandle::from(old.handle);
        let priority = old.priority as u16;
        let link = SchedClassifierLink::attached(device, hook, priority, handle, None)?;
        Ok(program.attach_to_link(link)?)
    });
    let id = match replaced {
        Some(Ok(id)) => id,
        // Only the name tells which filter is ours.
        Some(Err(_)) | None => {
            clsact::add(device)?;
            clsact::remove_filter(device, hook, place.name)?;
            add_filter(program, place)?
        }
    };
    let link = program.take_link(id)?;
    *filter = FilterPlace {
        handle: link.handle()?.into(),
        priority: link.priority()?.into(),
    };
    // The filter must outlive this process.
    std::mem::forget(link);
    Ok(())
}

/// Adds a filter with the first of its priorities that no filter of another kind has.
fn add_filter(program: &mut SchedClassifier, place: Place<'_>) -> Result<SchedClassifierLinkId> {
    let (device, hook) = (place.device.0, place.which.hook());
    let priorities = order::priorities(place.programs.order, hook);
    let last = *priorities.end();
    for priority in priorities {
        let options = TcAttachOptions::Netlink(NlOptions {
            priority,
            ..NlOptions::default()
        });
        match program.attach_with_options(device, hook, options) {
            Err(error) if is_taken(&error) && priority != last => {}
            added => {
                let name = place.name;
                return added.with_context(|| format!("cannot attach {name} to {device} (clsact)"));
            }
        }
    }
    bail!(Other, "{device}: no priority is left for a filter")
}

/// Whether a priority has filters of another kind or protocol.
fn is_taken(error: &ProgramError) -> bool {
    matches!(error, ProgramError::TcError(TcError::NetlinkError(error))
        if error.raw_os_error() == Some(libc::EINVAL))
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
    &'a mut T: TryFrom<&'a mut Program, Error = ProgramError>,
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
