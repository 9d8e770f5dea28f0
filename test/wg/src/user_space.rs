//! WireGuard in user space, for kernels without it.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use xdptun_lab::{Netns, Process, wait, workspace};

use xdptun_lab::command::run_with_input;

/// Creating the interface takes milliseconds.
const START_LIMIT: Duration = Duration::from_secs(10);

/// A program that is a WireGuard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `boringtun-cli`.
    Boringtun,
    /// `wireguard-go`.
    WireguardGo,
}

impl Program {
    /// Where it is, if it is installed.
    pub fn path(self) -> PathBuf {
        match self {
            Self::Boringtun => workspace::tool("boringtun-cli"),
            Self::WireguardGo => workspace::root().join(".tools/wireguard-go/usr/bin/wireguard-go"),
        }
    }

    /// The options before the name of the interface.
    fn options(self) -> &'static [&'static str] {
        match self {
            // More threads put packets out of order, and the TCP inside answers with
            // retransmissions: half the speed on two cores, and no run like another.
            Self::Boringtun => &[
                "--foreground",
                "--threads",
                "1",
                "--disable-drop-privileges",
            ],
            Self::WireguardGo => &["--foreground"],
        }
    }

    /// The command that installs it.
    fn advice(self) -> &'static str {
        match self {
            Self::Boringtun => {
                "get it with `cargo install boringtun-cli --locked --root .tools` \
                 (`cargo xtask setup` as root does that)"
            }
            Self::WireguardGo => "`cargo xtask bench wg` gets it from Debian",
        }
    }
}

/// A running WireGuard in user space.
///
/// Its control socket is `/run/wireguard/NAME.sock`. Both peers call their
/// interface `wg0`, so each gets a `/run` of its own, in a mount namespace that
/// ends with the process and leaves nothing on the machine.
#[derive(Debug)]
pub struct UserSpace {
    netns: Netns,
    mounts: File,
    process: Process,
}

impl UserSpace {
    /// Starts it and returns when `wg` can talk to it.
    pub fn start(netns: &Netns, dev: &str, program: Program) -> Result<Self> {
        let path = program.path();
        ensure!(
            path.is_file(),
            "{}: no such file, and this WireGuard is no part of the kernel; {}",
            path.display(),
            program.advice()
        );
        let mut command = netns.command(path);
        command.args(program.options()).arg(dev);
        with_own_run(&mut command);
        let process = Process::spawn(&mut command)?;
        let path = format!("/proc/{}/ns/mnt", process.pid());
        let mounts = File::open(&path).with_context(|| format!("{path}: cannot open"));
        let running = Self {
            netns: netns.clone(),
            mounts: process.with_output(mounts)?,
            process,
        };
        let what = format!("{program:?} to answer `wg`");
        let answers = wait::until_some(START_LIMIT, &what, || {
            ensure!(running.process.is_running()?, "{program:?} ended");
            Ok(running.wg(&["show", dev], "").ok())
        });
        running.process.with_output(answers)?;
        Ok(running)
    }

    /// Runs `wg` where it finds the control socket.
    pub fn wg(&self, args: &[&str], input: &str) -> Result<String> {
        let mut command = self.netns.command("wg");
        command.args(args);
        let mounts = self.mounts.try_clone().context("cannot clone a handle")?;
        // SAFETY: the closure makes one system call and neither allocates nor
        // takes a lock, which is what a child between fork and exec may do.
        unsafe {
            command.pre_exec(move || Ok(setns(mounts.as_fd(), CloneFlags::CLONE_NEWNS)?));
        }
        run_with_input(&mut command, input)
    }
}

/// Gives a command an empty `/run` that only it sees.
fn with_own_run(command: &mut Command) {
    let none: Option<&str> = None;
    // SAFETY: the closure makes system calls only; nix keeps these short paths
    // on the stack, so nothing allocates or takes a lock.
    unsafe {
        command.pre_exec(move || {
            unshare(CloneFlags::CLONE_NEWNS)?;
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(none, "/", none, private, none)?;
            mount(Some("run"), "/run", Some("tmpfs"), MsFlags::empty(), none)?;
            Ok(())
        });
    }
}
