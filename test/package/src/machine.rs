//! A Debian system that runs, with systemd as its first process.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use xdptun_lab::command::run;
use xdptun_lab::{Host, Netns, Process, wait};

use crate::LIMIT;
use crate::root::Root;

/// A booted [`Root`]: namespaces of its own in place of a virtual machine, and
/// the network namespace it is given.
#[derive(Debug)]
pub struct Machine {
    pid: String,
    /// Before `root`, which it uses.
    _systemd: Process,
    root: Root,
}

/// Mounts what a kernel's first process finds, and becomes that. systemd mounts
/// the rest; bpffs it would mount too, with that mode, if this were no container.
const BOOT: &str = "\
set -e
cd $1
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t bpf -o mode=0700 bpf sys/fs/bpf
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs dev
for node in null zero full random urandom tty; do
    touch dev/$node
    mount --bind /dev/$node dev/$node
done
ln -s pts/ptmx dev/ptmx
pivot_root . .
umount --lazy .
exec env -i container=other /lib/systemd/systemd --unit=multi-user.target
";

impl Machine {
    /// Boots the system on the network of a namespace.
    pub fn boot(root: Root, netns: &Netns) -> Result<Self> {
        let mut command = netns.command("unshare");
        command
            .args(["--mount", "--pid", "--uts", "--ipc", "--cgroup"])
            .args(["--fork", "--kill-child", "sh", "-c", BOOT, "boot"])
            .arg(root.path());
        let systemd = Process::spawn(&mut command)?;
        let children = format!("/proc/{0}/task/{0}/children", systemd.pid());
        let pid = wait::until_some(LIMIT, "the first process", || {
            let children = fs::read_to_string(&children).context("it ended")?;
            Ok(children.split_whitespace().next().map(str::to_owned))
        });
        let machine = Self {
            pid: systemd.with_output(pid)?,
            _systemd: systemd,
            root,
        };
        let booted = wait::until(LIMIT, "the system to be up", || {
            machine
                .run("systemctl", &["is-system-running"])
                .is_ok_and(|state| state.trim() == "running")
        });
        machine._systemd.with_output(booted)?;
        // This systemd gets no events about interfaces: there is no udev, which would
        // make the kernel announce the devices of the host again.
        let device = format!("sys-subsystem-net-devices-{}.device", Host::DEV);
        machine.run("systemctl", &["mask", &device])?;
        Ok(machine)
    }

    /// Its file system.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// A command that will run in it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.pid, "--root", "--wd"])
            .args(["--mount", "--pid", "--uts", "--ipc", "--cgroup", "--net"])
            .arg(program)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Runs a short program in it to its end; returns its standard output. The
    /// error holds the end of the journal.
    pub fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        run(self.command(program).args(args)).map_err(|error| {
            let mut journal = self.command("journalctl");
            match run(journal.args(["--no-pager", "--lines=40", "--output=cat"])) {
                Ok(journal) => anyhow!("{error:#}\n{journal}"),
                Err(_) => error,
            }
        })
    }

    /// A property of a unit.
    pub fn property(&self, unit: &str, name: &str) -> Result<String> {
        let value = self.run("systemctl", &["show", "--value", "--property", name, unit])?;
        Ok(value.trim().to_owned())
    }
}
