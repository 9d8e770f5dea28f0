//! The capabilities that this process keeps once everything is attached.

use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl;

use crate::error::{Context as _, Result};
use crate::host::preflight::CAPABILITIES;

/// The further capabilities that root keeps: pins and secrets can belong to another user,
/// and captures lock more memory than the limit for everyone.
const OF_ROOT: [Capability; 3] = [
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_IPC_LOCK,
];

/// Gives up all other capabilities, for good. Threads that run already keep theirs.
///
/// # Errors
///
/// If the kernel refuses.
pub fn give_up() -> Result<()> {
    let has = caps::read(None, CapSet::Effective).context("cannot read the capabilities")?;
    let keeps = CAPABILITIES.into_iter().chain(OF_ROOT);
    let keeps: CapsHashSet = keeps
        .filter(|capability| has.contains(capability))
        .collect();
    let failed = "cannot give up capabilities";
    caps::clear(None, CapSet::Ambient).context(failed)?;
    caps::clear(None, CapSet::Inheritable).context(failed)?;
    caps::set(None, CapSet::Effective, &keeps).context(failed)?;
    caps::set(None, CapSet::Permitted, &keeps).context(failed)?;
    prctl::set_no_new_privs().context("cannot forbid new privileges")
}
