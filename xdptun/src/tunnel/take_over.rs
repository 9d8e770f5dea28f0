//! The lock of an interface, and how one process takes it over from another.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};

use super::options::AttachOptions;
use super::pinned::{self, Pinned};
use crate::datapath::lock::InterfaceLock;
use crate::datapath::pins;
use crate::error::{Context as _, Error, Kind, Result, bail};
use crate::host::interface::Interface;

/// The signal that asks a process to leave all its interfaces to another. A version that
/// does not know it dies of it, with the same effect.
pub const TAKE_OVER: Signal = Signal::SIGUSR2;

/// How long a daemon may take to leave.
const HANDOVER: Duration = Duration::from_secs(5);

/// What becomes of a running xdptun in whose place this one shall be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Incumbent {
    /// It stays, and this one is refused.
    #[default]
    Respect,
    /// It leaves its flows to this one, without a gap.
    TakeOver,
}

/// Takes the lock of an interface. With [`Incumbent::TakeOver`], takes it from a running
/// daemon that these options fit.
pub fn take_lock(
    interface: &Interface,
    directory: &Path,
    incumbent: Incumbent,
    options: &AttachOptions,
) -> Result<InterfaceLock> {
    let name = &interface.name;
    let already = format!(
        "{name}: xdptun is already attached; `xdptun status` shows it, `--take-over` takes its \
         place without a gap, `xdptun detach --iface {name}` ends it"
    );
    let take = || {
        InterfaceLock::take(directory)
            .with_context(|| format!("cannot lock {}", directory.display()))
    };
    let lock = match (take()?, incumbent) {
        (None, Incumbent::TakeOver) => {
            let busy = || {
                let why =
                    format!("{name}: xdptun is just being attached; try again when it is ready");
                Error::new(Kind::Busy, why)
            };
            let pinned = Pinned::open(interface.index)?.ok_or_else(busy)?;
            // Before the other daemon leaves.
            options.check(&pinned).with_context(|| name.clone())?;
            let process = Pinned::daemon(interface.index)?.ok_or_else(busy)?;
            kill(process, TAKE_OVER)
                .with_context(|| format!("{name}: cannot ask process {process} to leave"))?;
            if !InterfaceLock::wait_released(directory, HANDOVER)? {
                bail!(
                    Busy,
                    "{name}: process {process} does not leave; nothing was changed"
                );
            }
            take()?
        }
        (lock, _) => lock,
    };
    let lock = lock.ok_or_else(|| Error::new(Kind::AlreadyAttached, &already))?;
    if !Pinned::exists(interface.index)? && pinned::is_attached(name) {
        pins::remove_directory(directory)?;
        bail!(
            OtherNamespace,
            "{already}; its pins are not in this mount namespace"
        );
    }
    Ok(lock)
}
