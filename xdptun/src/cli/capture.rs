//! `xdptun capture`: packets for Wireshark.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::num::NonZeroU32;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{process, thread};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use crossterm::queue;
use crossterm::terminal::{Clear, ClearType};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::geteuid;
use tokio::runtime::Builder;
use xdptun_common::report::copy::MAX_COPIED;

use crate::config::parse_duration;
use crate::gateway::Gateway;
use crate::group::{Function as _, pinned};
use crate::nat64::{DEVICE, Nat64};
use crate::observe::capture::listen::{Captured, Listener, Wanted};
use crate::policy::Policy;
use crate::process::signals::Termination;
use crate::tunnel::Tunnel;

/// Write the packets of an interface to a file for Wireshark, on the wire and restored.
///
/// Each packet that xdptun carries is in it twice: as a segment on the interface
/// "eth0 (on the wire)" and as a datagram on "eth0 (restored)". Each that it forwards or
/// translates is on "eth0 (on the wire)" and on "eth0 (translated)", each that it searches on
/// "eth0 (passed)". A dropped packet is in it once, on the side that it came from. The comment of a packet says how it ended, and
/// why. The file holds data of users: only its owner can read it.
///
/// It ends at Ctrl-C, or at a limit that you set. Traffic goes on: no datagram is lost when
/// a capture begins or ends.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Interface that xdptun is attached to.
    #[arg(long, short, value_name = "NAME")]
    iface: String,

    /// What to capture, if the interface has several. Default: the first that it has of these.
    #[arg(long, value_enum)]
    function: Option<Captures>,

    /// File to write (pcapng); `-` for standard output.
    #[arg(long, short, value_name = "FILE")]
    write: PathBuf,

    /// End after this many packets; a packet that is in the file twice counts once.
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// End after this time, like 10s or 5m.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,

    /// Write only packets that are dropped or refused.
    #[arg(long)]
    drops: bool,

    /// How many bytes of each packet to keep.
    #[arg(long, value_name = "BYTES", default_value_t = MAX_COPIED,
        value_parser = clap::value_parser!(u32).range(64..=i64::from(MAX_COPIED)))]
    snaplen: u32,
}

/// A function whose packets can be captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Captures {
    /// Datagrams that are carried as TCP.
    Tunnel,
    /// Packets that are forwarded or translated (`xdptun forward`, `xdptun nat`).
    Gateway,
    /// Packets whose payload rules search.
    Policy,
    /// Packets between IPv6 and IPv4, of the interface `xdptun64` alone.
    Nat64,
}

impl Captures {
    /// What an interface has, if nothing else is asked for.
    fn of(interface: &str) -> Self {
        let has = |programs| pinned::is_attached(programs, interface);
        if interface == DEVICE {
            Self::Nat64
        } else if has(Tunnel::PROGRAMS) {
            Self::Tunnel
        } else if has(Gateway::PROGRAMS) {
            Self::Gateway
        } else if has(Policy::PROGRAMS) {
            Self::Policy
        } else {
            Self::Tunnel
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  xdptun capture --iface eth0 -w tunnel.pcapng
  xdptun capture --iface eth0 -w nat.pcapng --function gateway
  xdptun capture --iface eth0 -w drops.pcapng --drops --duration 1m
  xdptun capture --iface eth0 -w headers.pcapng --snaplen 96 --count 1000
  ssh root@host xdptun capture --iface eth0 -w - | wireshark -k -i -
  xdptun capture --iface eth0 -w - | tshark -r - -T fields -e frame.comment";

/// Runs the verb.
pub fn run(arguments: Arguments) -> Result<()> {
    super::block_on(capture(arguments))
}

async fn capture(arguments: Arguments) -> Result<()> {
    let Arguments { iface, write, .. } = &arguments;
    let to_output = write == Path::new("-");
    if to_output && io::stdout().is_terminal() {
        bail!(
            "`-w -` would write packets to the terminal; name a file, or pipe it into `tshark -r -`"
        );
    }
    // Caught before the capture begins.
    let is_new = !to_output && !write.exists();
    let out = if to_output {
        File::from(io::stdout().as_fd().try_clone_to_owned()?)
    } else {
        create(write).with_context(|| format!("cannot write {}", write.display()))?
    };
    let mut stop = Termination::catch()?;
    let wanted = Wanted {
        interface: iface.clone(),
        snap_len: NonZeroU32::new(arguments.snaplen).context("--snaplen is 0")?,
        count: arguments.count,
        duration: arguments.duration,
        only_drops: arguments.drops,
    };
    let listener = match arguments.function.unwrap_or_else(|| Captures::of(iface)) {
        Captures::Tunnel => Listener::begin::<Tunnel>(wanted).await,
        Captures::Policy => Listener::begin::<Policy>(wanted).await,
        Captures::Gateway => Listener::begin::<Gateway>(wanted).await,
        Captures::Nat64 => Listener::begin::<Nat64>(wanted).await,
    };
    let listener = listener.inspect_err(|_| {
        if is_new {
            let _gone = fs::remove_file(write);
        }
    })?;
    if out.metadata()?.is_file() && !to_output {
        out.set_len(0)
            .with_context(|| format!("cannot write {}", write.display()))?;
    }
    let reader = out.try_clone()?;
    if !out.metadata()?.is_file() {
        end_if_nobody_reads(out.try_clone()?)?;
    }
    eprintln!("capturing on {iface}; Ctrl-C ends it");
    let on_terminal = io::stderr().is_terminal();
    let goes_on = |so_far: &Captured| {
        if on_terminal {
            let _unseen = show(so_far);
        }
        // Without traffic there is no write that would fail.
        !is_gone(&reader)
    };
    let captured = listener
        .write(BufWriter::new(out), &mut stop, goes_on)
        .await;
    if on_terminal {
        let _unseen = queue!(io::stderr(), Clear(ClearType::CurrentLine));
        eprint!("\r");
    }
    let captured = captured?;
    eprintln!("{}", total(&captured));
    match captured.cut_off {
        Some(why) => bail!("{iface}: {why}; the file is complete up to that moment"),
        None => Ok(()),
    }
}

/// How long a pipe must be full after Ctrl-C until nobody is waited for.
const GRACE: Duration = Duration::from_secs(1);

/// After Ctrl-C, ends the process if a write waits for a reader that does not read: the thread that waits
/// hears no signal.
fn end_if_nobody_reads(pipe: File) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut stop = {
        let _within = runtime.enter();
        Termination::catch()?
    };
    thread::spawn(move || {
        runtime.block_on(stop.requested());
        while is_writable(&pipe) {
            thread::sleep(GRACE / 10);
        }
        eprintln!("xdptun: nobody reads the output; its end is missing");
        process::exit(1);
    });
    Ok(())
}

/// Whether there is room in a pipe, or will be soon.
fn is_writable(pipe: &File) -> bool {
    let mut watched = [PollFd::new(pipe.as_fd(), PollFlags::POLLOUT)];
    let limit = PollTimeout::try_from(GRACE).unwrap_or(PollTimeout::MAX);
    // A signal ends the wait, and says nothing of the pipe.
    poll(&mut watched, limit) != Ok(0)
}

/// Whether the reader of a pipe has gone.
fn is_gone(pipe: &File) -> bool {
    let mut watched = [PollFd::new(pipe.as_fd(), PollFlags::empty())];
    let told = poll(&mut watched, PollTimeout::ZERO);
    let [watched] = watched;
    told.is_ok() && watched.any().unwrap_or_default()
}

/// Opens a file and makes it readable for its owner only, also if it existed before; does
/// not truncate it yet. Leaves the permissions of a pipe or device alone.
fn create(path: &Path) -> io::Result<File> {
    const PRIVATE: u32 = 0o600;
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(PRIVATE)
        .open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() {
        if metadata.uid() != geteuid().as_raw() {
            return Err(io::Error::other(
                "it belongs to another user, who could read it",
            ));
        }
        file.set_permissions(Permissions::from_mode(PRIVATE))?;
    }
    Ok(file)
}

fn show(captured: &Captured) -> io::Result<()> {
    let mut out = io::stderr().lock();
    queue!(out, Clear(ClearType::CurrentLine))?;
    write!(out, "\r{}", total(captured))?;
    out.flush()
}

fn total(captured: &Captured) -> String {
    let Captured {
        packets, missing, ..
    } = captured;
    format!("{packets} packets captured, {missing} missed because a buffer was full")
}
