//! A host on which commands run as they are written.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, chdir};
use xdptun_lab::command::run;
use xdptun_lab::link::{self, End};
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Netns, Process, workspace, xdptun};

use crate::page::Page;
use crate::shown::{VARYING, VETH, compare, with_xdp};

const LIMIT: Duration = Duration::from_secs(10);

/// A host of its own network, `/etc`, `/run` and `/usr/local/bin`: what commands
/// write there is gone with it. The current folder is like the top of the tree after
/// a build.
#[derive(Debug)]
pub struct Machine {
    /// Its network.
    pub netns: Netns,
    mounts: File,
    /// Keeps the mounts.
    _holder: Process,
    scratch: Scratch,
}

/// The name of an interface, and its address with prefix length.
pub type Port<'a> = (&'a str, Option<&'a str>);

/// Runs in a mount namespace of its own, in the scratch folder.
const SET_UP: &str = "\
set -e
mkdir etc bin
cp -a /etc/. etc
mkdir -p etc/xdptun etc/wireguard
mount --bind etc /etc
mount --bind bin /usr/local/bin
mount -t tmpfs tmpfs /run
mkdir /run/wireguard
echo made
exec sleep infinity";

/// We are root already.
const SUDO: &str = "#!/bin/sh\nexec \"$@\"\n";

/// WireGuard in user space. Its connected sockets would keep the address that the host
/// has when the first datagram comes: that of the tunnel, if all is routed there.
fn boringtun() -> String {
    let program = workspace::tool("boringtun-cli");
    let options = "--threads 1 --disable-drop-privileges --disable-connected-udp";
    let log = "--log /run/boringtun.log";
    format!(
        "#!/bin/sh\nexec {} {options} {log} \"$@\"\n",
        program.display()
    )
}

impl Machine {
    /// Makes one without interfaces.
    pub fn new(label: &str) -> Result<Self> {
        let netns = Netns::new(label)?;
        let scratch = Scratch::new()?;
        let folder = scratch.path();
        let mut command = netns.command("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", SET_UP]);
        let holder = Process::spawn(command.current_dir(folder))?;
        holder.wait_for_line("made", LIMIT)?;
        let path = format!("/proc/{}/ns/mnt", holder.pid());
        let mounts = File::open(&path).with_context(|| format!("{path}: cannot open"))?;
        let built = folder.join("target/release");
        fs::create_dir_all(&built)?;
        symlink(xdptun::binary()?, built.join("xdptun"))?;
        let machine = Self {
            netns,
            mounts,
            _holder: holder,
            scratch,
        };
        machine.install("sudo", SUDO.as_bytes())?;
        machine.install("boringtun", boringtun().as_bytes())?;
        Ok(machine)
    }

    /// Two hosts with an interface `eth0` each, as the documents have them: 192.0.2.10,
    /// and 203.0.113.7, elsewhere.
    pub fn two_hosts() -> Result<[Self; 2]> {
        let hosts = [Self::new("near")?, Self::new("far")?];
        let [near, far] = &hosts;
        let (own, there) = (Some("192.0.2.10/24"), Some("203.0.113.7/24"));
        near.connect(("eth0", own), far, ("eth0", there))?;
        near.netns
            .run("ip", ["route", "add", "default", "dev", "eth0"])?;
        far.netns
            .run("ip", ["route", "add", "default", "dev", "eth0"])?;
        Ok(hosts)
    }

    /// Puts a program where the shell finds it.
    pub fn install(&self, name: &str, program: &[u8]) -> Result<()> {
        let path = self.scratch.path().join("bin").join(name);
        fs::write(&path, program)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// Installs xdptun, as the README says.
    pub fn install_xdptun(&self) -> Result<()> {
        self.install("xdptun", &fs::read(xdptun::binary()?)?)
    }

    /// Connects an interface of this machine with one of another, each with an address
    /// or none.
    pub fn connect(&self, (dev, own): Port<'_>, to: &Self, (far, there): Port<'_>) -> Result<()> {
        let [own, there] = [own, there].map(|address| address.map(str::to_owned));
        link::veth(
            &End {
                netns: &self.netns,
                dev,
                addresses: own.as_slice(),
            },
            &End {
                netns: &to.netns,
                dev: far,
                addresses: there.as_slice(),
            },
        )
    }

    /// Writes a file below `/etc`.
    pub fn write(&self, path: &str, text: &str) -> Result<()> {
        let inside = Path::new(path)
            .strip_prefix("/")
            .map_err(io::Error::other)?;
        let path = self.scratch.path().join(inside);
        fs::write(&path, text).with_context(|| format!("{}: cannot write", path.display()))
    }

    /// What is in a file below `/etc`.
    pub fn read(&self, path: &str) -> Result<String> {
        let path = self.outside(path)?;
        fs::read_to_string(&path).with_context(|| format!("{}: cannot read", path.display()))
    }

    /// The path of a file below `/etc`, outside the machine's mount namespace.
    fn outside(&self, path: &str) -> Result<PathBuf> {
        let inside = Path::new(path)
            .strip_prefix("/")
            .map_err(io::Error::other)?;
        Ok(self.scratch.path().join(inside))
    }

    /// A command of the shell.
    pub fn shell(&self, command: &str) -> Result<Command> {
        let mut shell = self.netns.command("bash");
        let path = std::env::var("PATH").unwrap_or_default();
        shell
            .args(["-c", command])
            .env("PATH", format!("/usr/local/bin:{path}"))
            // Where the kernel has no WireGuard.
            .env("WG_QUICK_USERSPACE_IMPLEMENTATION", "boringtun");
        let mounts = self.mounts.try_clone().context("cannot clone a handle")?;
        let folder = self.scratch.path().to_owned();
        // SAFETY: the closure makes system calls only, the path was made before;
        // nothing allocates or takes a lock.
        unsafe {
            shell.pre_exec(move || {
                setns(mounts.as_fd(), CloneFlags::CLONE_NEWNS)?;
                chdir(&folder)?;
                Ok(())
            });
        }
        Ok(shell)
    }

    /// Runs the next command of a page to its successful end, and compares what it
    /// prints with what the page shows, apart from what varies.
    pub fn run(&self, page: &mut Page, command: &str) -> Result<()> {
        self.run_varying(page, command, &VARYING)
    }

    /// The same; what these regular expressions match may differ.
    pub fn run_varying(&self, page: &mut Page, command: &str, varying: &[&str]) -> Result<()> {
        let shown = page.command(command)?;
        let printed = run(&mut self.shell(command)?)?;
        if shown.is_empty() {
            return Ok(());
        }
        let printed: Vec<String> = printed.lines().map(str::to_owned).collect();
        compare(&shown, &with_xdp(&printed), varying)
    }

    /// Runs the next command of a page, which attaches to `iface`, and compares what it
    /// prints before it is ready.
    pub fn attach(&self, page: &mut Page, iface: &str, command: &str) -> Result<Attached> {
        let shown = page.command(command)?;
        let attached = self.attach_too(iface, command)?;
        let mut printed = attached.summary();
        if printed.iter().any(|line| line.contains(VETH)) {
            printed = with_xdp(&printed);
        }
        if !shown.is_empty() {
            compare(&shown, &printed, &VARYING)?;
        }
        Ok(attached)
    }

    /// Runs a command that forwards packets that come in by `iface`.
    pub fn forward_too(&self, iface: &str, command: &str) -> Result<Attached> {
        Attached::forwarding(&self.netns, iface, &mut self.shell(command)?)
    }

    /// Runs a command that searches packets of `iface`.
    pub fn search_too(&self, iface: &str, command: &str) -> Result<Attached> {
        Attached::searching(&self.netns, iface, &mut self.shell(command)?)
    }

    /// Runs a command that lets IPv6-only clients reach IPv4.
    pub fn translate_too(&self, command: &str) -> Result<Attached> {
        Attached::translating(&self.netns, &mut self.shell(command)?)
    }

    /// Runs a command that attaches to `iface`, when a page tells so of several hosts.
    pub fn attach_too(&self, iface: &str, command: &str) -> Result<Attached> {
        Attached::by(&self.netns, iface, &mut self.shell(command)?)
    }
}

/// Ends what commands left running, as wg-quick does.
impl Drop for Machine {
    fn drop(&mut self) {
        let left = run(Command::new("ip").args(["netns", "pids", self.netns.name()]));
        let left = left.unwrap_or_default();
        for process in left.lines().filter_map(|line| line.trim().parse().ok()) {
            let _ended = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
    }
}
