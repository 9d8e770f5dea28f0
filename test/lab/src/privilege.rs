//! The one privilege check of the laboratory.

use anyhow::{Result, ensure};

/// Refuses to go on without root, with the way out.
///
/// A test that silently skips itself proves nothing, so this is an error.
pub fn require_root() -> Result<()> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "making network namespaces needs root; \
         start it through `cargo xtask test` or `cargo xtask demo`, which use sudo for this part"
    );
    Ok(())
}
