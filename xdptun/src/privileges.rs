//! What this process may do once everything is attached.

use anyhow::{Context as _, Result};
use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl;

use crate::preflight::CAPABILITIES;

/// What root keeps beside those: pins and secrets can be another user's, and captures
/// take more locked memory than everybody may have.
const OF_ROOT: [Capability; 3] = [
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_IPC_LOCK,
];

/// Gives up all that is not needed to go on, for good. Threads that run already keep
/// what they have.
///
/// # Errors
///
/// If the kernel does not let go of it.
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
