//! The step from the user to root: a verb prepares everything as the user, and
//! then becomes the worker, the same program under `sudo`.

use anyhow::Result;
use xdptun_lab::workspace;

use crate::shell;

/// Replaces this process by the release build of this program, as root, which does
/// a job: a verb of the hidden `worker` command with its options.
pub fn become_root(job: &str, options: &[String]) -> Result<()> {
    let mut command = shell::as_root(workspace::target_dir().join("release/xtask"))?;
    shell::exec(command.args(["worker", job]).args(options))
}
