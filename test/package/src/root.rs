//! A Debian system to change at will.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::chroot;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use xdptun_lab::cleanup::{Guard, guarded};
use xdptun_lab::command::run;
use xdptun_lab::scratch::Scratch;
use xdptun_lab::workspace;

/// The system that `cargo xtask setup` made, with a file system in memory over it
/// that takes all changes.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    changes: PathBuf,
    _layers: [Guard; 2],
    _scratch: Scratch,
}

impl Root {
    /// Puts a fresh layer over the system.
    pub fn new() -> Result<Self> {
        let base = base();
        ensure!(
            base.is_dir(),
            "{}: no such directory; `cargo xtask setup` makes it",
            base.display()
        );
        let scratch = Scratch::new()?;
        let memory = scratch.path().join("memory");
        fs::create_dir(&memory)?;
        let lower = mounted(&memory, "tmpfs", "")?;
        let [path, changes, work] = ["root", "changes", "work"].map(|name| memory.join(name));
        for folder in [&path, &changes, &work] {
            fs::create_dir(folder)?;
        }
        let layers = format!(
            "lowerdir={},upperdir={},workdir={}",
            base.display(),
            changes.display(),
            work.display()
        );
        let upper = mounted(&path, "overlay", &layers)?;
        Ok(Self {
            path,
            changes,
            // The upper one goes first.
            _layers: [upper, lower],
            _scratch: scratch,
        })
    }

    /// Where the system is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A command that will run inside.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let root = self.path.clone();
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("DEBIAN_FRONTEND", "noninteractive");
        // SAFETY: the closure makes system calls and allocates no more than a
        // path's bytes on the stack.
        unsafe {
            command.pre_exec(move || {
                chroot(&root)?;
                std::env::set_current_dir("/")
            });
        }
        command
    }

    /// Runs a short program inside to its end; returns its standard output.
    pub fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        run(self.command(program).args(args))
    }

    /// Copies a file to a folder inside, and tells where it is there.
    pub fn bring(&self, file: &Path) -> Result<String> {
        let name = file.file_name().context("a file without a name")?;
        let inside = format!("/tmp/{}", name.to_string_lossy());
        fs::copy(file, self.inside(&inside)).with_context(|| inside.clone())?;
        Ok(inside)
    }

    /// Where something inside is for those outside.
    pub fn inside(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    /// Every file that is new or changed, apart from dpkg's own books and logs, and
    /// what the tools for users keep of their last change.
    pub fn changed(&self) -> Result<BTreeSet<String>> {
        const BOOKS: [&str; 8] = [
            "/var/lib/dpkg/",
            "/var/log/",
            "/tmp/",
            "/etc/passwd-",
            "/etc/group-",
            "/etc/shadow-",
            "/etc/gshadow-",
            "/etc/.pwd.lock",
        ];
        let mut found = BTreeSet::new();
        let mut folders = vec![self.changes.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let path = entry.path();
                let inside = path.strip_prefix(&self.changes)?;
                let name = format!("/{}", inside.display());
                // A directory is copied up for what changes below it.
                let new = !base().join(inside).exists();
                let is_folder = entry.file_type()?.is_dir();
                let differs =
                    || !is_folder && fs::read(&path).ok() != fs::read(base().join(inside)).ok();
                if (new || differs()) && !BOOKS.iter().any(|book| name.starts_with(book)) {
                    found.insert(name);
                }
                if is_folder {
                    folders.push(path);
                }
            }
        }
        Ok(found)
    }
}

/// The system without changes.
fn base() -> PathBuf {
    workspace::root().join(".tools/debian/bookworm")
}

/// Mounts a file system until the guard is dropped.
fn mounted(path: &Path, kind: &str, options: &str) -> Result<Guard> {
    let ((), guard) = guarded(|| {
        mount(
            Some(kind),
            path,
            Some(kind),
            MsFlags::empty(),
            Some(options),
        )
        .with_context(|| format!("{}: cannot mount {kind}", path.display()))?;
        let path = path.to_owned();
        Ok(((), move || {
            if let Err(error) = umount2(&path, MntFlags::MNT_DETACH) {
                eprintln!("{}: cannot unmount: {error}", path.display());
            }
        }))
    })?;
    Ok(guard)
}
