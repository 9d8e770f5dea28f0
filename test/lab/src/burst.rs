//! Frames that arrive together, as on a fast link: what a receiver's GRO needs
//! to merge anything.
//!
//! On a veth every frame would otherwise be received before the next is sent.
//! So the receiver polls in a thread (threaded NAPI), which shares a CPU with a
//! sender of real-time priority: it runs when everything has been sent.

use std::fs;
use std::os::fd::AsRawFd;
use std::thread;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};
use nix::unistd::Pid;
use socket2::Socket;

use crate::cpu;
use crate::link;
use crate::netns::Netns;
use crate::packet_socket;

/// The CPU that both share.
const CPU: usize = 0;

/// Lets an interface receive through GRO, in a thread of its own.
pub fn gather(netns: &Netns, dev: &str) -> Result<()> {
    let before = poll_threads(dev)?;
    link::offload(netns, dev, "gro", true)?;
    // `ip netns exec` shows the namespace its own /sys, which has this file.
    let file = format!("/sys/class/net/{dev}/threaded");
    netns.run(
        "ip",
        [
            "netns",
            "exec",
            netns.name(),
            "sh",
            "-c",
            &format!("echo 1 > {file}"),
        ],
    )?;
    let threads = poll_threads(dev)?;
    let new: Vec<_> = threads.iter().filter(|t| !before.contains(t)).collect();
    ensure!(!new.is_empty(), "{dev}: no thread polls it");
    for thread in new {
        cpu::pin(*thread, CPU)?;
    }
    Ok(())
}

/// Sends frames one after the other, behind every queueing discipline and tc
/// program. Those that the device has no room for are lost, as on any network.
pub fn send_all(netns: &Netns, dev: &str, frames: &[Vec<u8>]) -> Result<()> {
    let socket = netns.enter(|| packet_socket::sender(dev))??;
    for frame in frames {
        match send(socket.as_raw_fd(), frame, MsgFlags::empty()) {
            Ok(_) | Err(Errno::ENOBUFS) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot send {} bytes", frame.len()));
            }
        }
    }
    Ok(())
}

/// Sends frames at once, behind every queueing discipline and tc program.
pub fn send_together(netns: &Netns, dev: &str, frames: &[Vec<u8>]) -> Result<()> {
    let socket = netns.enter(|| packet_socket::sender(dev))??;
    // A thread of its own, as it never gives its priority back.
    let sent = thread::scope(|scope| {
        let sender = scope.spawn(|| -> Result<()> {
            cpu::pin(cpu::this_thread(), CPU)?;
            take_precedence()?;
            write_all(&socket, frames)
        });
        sender.join()
    });
    sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn write_all(socket: &Socket, frames: &[Vec<u8>]) -> Result<()> {
    for frame in frames {
        send(socket.as_raw_fd(), frame, MsgFlags::empty())
            .with_context(|| format!("cannot send {} bytes", frame.len()))?;
    }
    Ok(())
}

fn take_precedence() -> Result<()> {
    // All that Linux reads of a `sched_param`, which not every libc fills alike.
    let priority: libc::c_int = 1;
    let call = libc::SYS_sched_setscheduler;
    // SAFETY: the pointer describes `priority`, which outlives the call.
    let result = unsafe { libc::syscall(call, 0, libc::SCHED_FIFO, &raw const priority) };
    Errno::result(result).context("no real-time priority")?;
    Ok(())
}

/// The kernel threads that poll interfaces of this name, in any namespace.
fn poll_threads(dev: &str) -> Result<Vec<Pid>> {
    let prefix = format!("napi/{dev}-");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // A process may end meanwhile.
        if let Ok(name) = fs::read_to_string(entry.path().join("comm"))
            && name.starts_with(&prefix)
        {
            found.push(Pid::from_raw(pid));
        }
    }
    Ok(found)
}
