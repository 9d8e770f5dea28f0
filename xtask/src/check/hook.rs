//! The hook that makes git check before each commit.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xdptun_lab::command::run as output_of;
use xdptun_lab::workspace;

/// Git runs it at the top of the tree. It sees the files as they lie there, not as
/// they are staged.
const HOOK: &str = "\
#!/bin/sh
# Written by `cargo xtask check --install-hook`. `git commit --no-verify` goes
# without it; to be rid of it, remove this file.
exec cargo xtask check
";

/// Writes the hook where git looks for it, and says where that is.
pub fn install() -> Result<()> {
    let path = write(&folder()?)?;
    println!("{}", path.display());
    Ok(())
}

/// Where git looks for hooks: a setting may name another folder than `.git/hooks`,
/// and linked work trees share that of the first.
fn folder() -> Result<PathBuf> {
    let root = workspace::root();
    let mut git = Command::new("git");
    git.args(["rev-parse", "--git-path", "hooks"]);
    let path = output_of(git.current_dir(&root))
        .context("not a git clone, so there is nowhere to put the hook")?;
    Ok(root.join(path.trim_end_matches('\n')))
}

/// Writes the hook into a folder. One that is there already stays; a hook
/// of other origin is an error.
fn write(folder: &Path) -> Result<PathBuf> {
    let path = folder.join("pre-commit");
    let name = path.display();
    fs::create_dir_all(folder).with_context(|| format!("{}: cannot make", folder.display()))?;
    let written = match File::create_new(&path) {
        Ok(mut file) => file.write_all(HOOK.as_bytes()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            ensure!(
                fs::read(&path).is_ok_and(|text| text == HOOK.as_bytes()),
                "{name}: another hook is there; remove it, or add `cargo xtask check` to it"
            );
            Ok(())
        }
        Err(error) => Err(error),
    };
    written.with_context(|| format!("{name}: cannot write"))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("{name}: cannot make it executable"))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hook_is_written_once() {
        let scratch = tempfile::tempdir().unwrap();
        // Git makes no folder for hooks if its template has none.
        let folder = scratch.path().join("hooks");
        let path = write(&folder).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), HOOK);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(write(&folder).unwrap(), path);
        assert_eq!(fs::read_to_string(&path).unwrap(), HOOK);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }

    #[test]
    fn a_hook_of_other_origin_stays() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("pre-commit");
        for other in ["", "#!/bin/sh\n", &format!("{HOOK}make\n")] {
            fs::write(&path, other).unwrap();
            let error = write(scratch.path()).unwrap_err().to_string();
            assert!(error.contains("another hook is there"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), other);
        }
    }
}
