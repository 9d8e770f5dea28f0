//! Network namespaces.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, thread};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};

use crate::cleanup::{Guard, guarded};
use crate::command::{run, run_with_input};
use crate::privilege::require_root;

/// A named network namespace with its loopback up.
///
/// Clones share it; the last one removes it. Only the network is switched for
/// what runs inside: `ip netns exec` would also give it a fresh `/sys` and so
/// hide `/sys/fs/bpf`, where xdptun keeps its pins.
#[derive(Debug, Clone)]
pub struct Netns(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    handle: File,
    _guard: Guard,
}

impl Netns {
    /// Makes a namespace; `label` is the readable part of its unique name.
    pub fn new(label: &str) -> Result<Self> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        require_root()?;
        let name = format!(
            "xdptun-{}-{}-{label}",
            std::process::id(),
            COUNTER.fetch_add(1, Ordering::Relaxed)
        );
        let ((), guard) = guarded(|| {
            run(Command::new("ip").args(["netns", "add", &name]))?;
            let name = name.clone();
            Ok(((), move || {
                if let Err(error) = run(Command::new("ip").args(["netns", "del", &name])) {
                    eprintln!("{error:#}");
                }
            }))
        })?;
        let path = format!("/run/netns/{name}");
        let handle = File::open(&path).with_context(|| format!("{path}: cannot open"))?;
        let netns = Self(Arc::new(Inner {
            name,
            handle,
            _guard: guard,
        }));
        // Without this an IPv6 address is unusable for a second after link-up.
        netns.sysctl("net.ipv6.conf.default.accept_dad", "0")?;
        netns.sysctl("net.ipv6.conf.all.accept_dad", "0")?;
        netns.run("ip", ["link", "set", "lo", "up"])?;
        Ok(netns)
    }

    /// The name as `ip netns` shows it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The number that the kernel gave the namespace: what xdptun files its pins under.
    pub fn cookie(&self) -> Result<u64> {
        let socket = self.enter(UnixDatagram::unbound)??;
        let mut cookie = 0_u64;
        let mut len = size_of::<u64>() as libc::socklen_t;
        // SAFETY: the socket is open; the kernel writes at most `len` bytes to the
        // number, of which any are valid.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_NETNS_COOKIE,
                (&raw mut cookie).cast(),
                &raw mut len,
            )
        };
        Errno::result(result).with_context(|| self.place_name())?;
        Ok(cookie)
    }

    /// A command that will run inside the namespace.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        self.place(&mut command);
        command
    }

    /// Makes an existing command run inside the namespace.
    pub fn place(&self, command: &mut Command) {
        let inner = Arc::clone(&self.0);
        // SAFETY: the closure makes one system call and neither allocates nor
        // takes a lock, which is what a child between fork and exec may do.
        unsafe {
            command.pre_exec(move || Ok(setns(inner.handle.as_fd(), CloneFlags::CLONE_NEWNET)?));
        }
    }

    /// Runs a short program inside to its end; returns its standard output.
    pub fn run<A: AsRef<OsStr>>(
        &self,
        program: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Result<String> {
        run(self.command(program).args(args)).with_context(|| self.place_name())
    }

    /// Like [`Netns::run`], with `input` on standard input.
    pub fn run_with_input<A: AsRef<OsStr>>(
        &self,
        program: &str,
        args: impl IntoIterator<Item = A>,
        input: &str,
    ) -> Result<String> {
        run_with_input(self.command(program).args(args), input).with_context(|| self.place_name())
    }

    /// Runs a closure on a thread inside the namespace.
    ///
    /// A socket made there belongs to the namespace for good, whichever thread
    /// uses it later. A panic of the closure goes on in the caller.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        thread::scope(|scope| {
            let inside = scope.spawn(|| -> Result<T> {
                setns(self.0.handle.as_fd(), CloneFlags::CLONE_NEWNET)
                    .with_context(|| format!("cannot enter {}", self.place_name()))?;
                Ok(work())
            });
            inside.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// Writes a kernel parameter of the namespace (`net.ipv4.ip_forward`).
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        let path = sysctl_path(key);
        self.enter(|| fs::write(&path, value))?
            .with_context(|| format!("{}: cannot write {value} to {path}", self.place_name()))
    }

    /// Reads a kernel parameter of the namespace.
    pub fn sysctl_value(&self, key: &str) -> Result<String> {
        let path = sysctl_path(key);
        let text = self
            .enter(|| fs::read_to_string(&path))?
            .with_context(|| format!("{}: cannot read {path}", self.place_name()))?;
        Ok(text.trim().to_owned())
    }

    fn place_name(&self) -> String {
        format!("namespace {}", self.0.name)
    }
}

fn sysctl_path(key: &str) -> String {
    format!("/proc/sys/{}", key.replace('.', "/"))
}
