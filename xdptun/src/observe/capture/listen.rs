//! The client of a capture.

use std::future::pending;
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::VERSION;
use super::file::CaptureFile;
use super::frame::Frame;
use super::packet::{Packet, Pairs};
use crate::control::{self, Command, Place};
use crate::error::{Context as _, Error, Kind, Result, bail};
use crate::group::counter::Counter;
use crate::group::pinned::Pinned;
use crate::group::{Function, pinned};
use crate::host::clock::monotonic_ns;
use crate::host::interface::Interface;
use crate::process::signals::Termination;

/// The packets that a client wants.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The interface's name.
    pub interface: String,
    /// How many bytes of each packet.
    pub snap_len: NonZeroU32,
    /// The number of packets after which to end.
    pub count: Option<u64>,
    /// The time after which to end.
    pub duration: Option<Duration>,
    /// Whether to keep only packets that are dropped.
    pub only_drops: bool,
}

/// The result of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// Packets in the file. A packet that passed is in it twice, once on each side, and counts
    /// once.
    pub packets: u64,
    /// Packets that were not recorded, because a buffer was full.
    pub missing: u64,
    /// Why it ended, if this side did not end it.
    pub cut_off: Option<String>,
}

/// How often to report progress.
const PROGRESS: Duration = Duration::from_millis(500);
/// How long the daemon may take to send the rest.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many bytes to read at once.
const AT_ONCE: usize = 256 << 10;

/// A capture that has begun.
pub struct Listener {
    wanted: Wanted,
    interface: Interface,
    /// What the function counts packets as.
    counters: Vec<Counter>,
    /// What packets are behind its programs.
    behind: &'static str,
    /// The names of what decides about packets.
    details: Details,
    stream: BufReader<UnixStream>,
}

impl Listener {
    /// Has the interface record its packets.
    ///
    /// # Errors
    ///
    /// If the daemon of the interface cannot; [`Kind::NotAttached`] if nothing is attached,
    /// [`Kind::NotRunning`] if no daemon keeps it.
    pub async fn begin<F: Function>(wanted: Wanted) -> Result<Self> {
        let interface = Interface::find(&wanted.interface)?;
        let name = &interface.name;
        let keeper = Keeper::of::<F>(&interface)?;
        let command = Command::Capture {
            function: F::PROGRAMS.function.to_owned(),
            interface: keeper.name.clone(),
            snap_len: wanted.snap_len,
            version: VERSION.to_owned(),
        };
        let (answer, stream) = control::ask(keeper.place::<F>(), &command).await?;
        answer.map_err(|why| Error::new(Kind::Other, format!("{name}: {why}")))?;
        Ok(Self {
            wanted,
            counters: F::counters(),
            behind: F::BEHIND,
            details: details_of::<F>(interface.index)?,
            interface,
            stream,
        })
    }

    /// Writes packets until the limits of the request, a signal or the daemon end that. The
    /// file is complete in any case. Calls `goes_on` from time to time with the progress, and
    /// ends if it returns `false`.
    ///
    /// # Errors
    ///
    /// If the file cannot be written, or a frame is malformed.
    pub async fn write(
        mut self,
        out: impl Write,
        stop: &mut Termination,
        mut goes_on: impl FnMut(&Captured) -> bool,
    ) -> Result<Captured> {
        let file = CaptureFile::begin(
            out,
            &self.interface,
            self.behind,
            self.wanted.snap_len.get(),
        )?;
        let mut ledger = Ledger::new(
            file,
            self.interface.index,
            self.counters,
            self.details,
            &self.wanted,
        );
        ledger.file.flush()?;
        let mut ticks = interval(PROGRESS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let duration = self.wanted.duration;
        let mut over = pin!(async move {
            match duration {
                Some(duration) => sleep(duration).await,
                None => pending().await,
            }
        });
        let mut bytes = Vec::new();
        while !ledger.ended && !ledger.is_full() {
            bytes.reserve(AT_ONCE);
            tokio::select! {
                read = self.stream.read_buf(&mut bytes) => ledger.read(read, &mut bytes)?,
                _ = ticks.tick() => if !goes_on(&ledger.captured) {
                    break;
                },
                () = stop.requested() => break,
                () = &mut over => break,
            }
        }
        // The daemon then sends the rest, and the number of missing packets.
        let _gone = self.stream.shutdown().await;
        let rest = async {
            while !ledger.ended {
                bytes.reserve(AT_ONCE);
                let read = self.stream.read_buf(&mut bytes).await;
                ledger.read(read, &mut bytes)?;
            }
            Ok::<_, Error>(())
        };
        match timeout(PATIENCE, rest).await {
            Ok(told) => told?,
            Err(_) => ledger.cut_off("the running xdptun does not end it; its log tells more"),
        }
        ledger.end()
    }
}

/// The names of what decides about packets, by number, as the maps have them at that moment.
type Details = Box<dyn Fn(u8) -> Option<String>>;

fn details_of<F: Function>(ifindex: u32) -> Result<Details> {
    let pinned = Pinned::<F>::open(ifindex)?;
    Ok(Box::new(move |number| {
        F::detail(&pinned.as_ref()?.group.maps, number)
    }))
}

/// The daemon of an interface.
struct Keeper {
    /// Whether it is the service.
    is_service: bool,
    /// The name by which it knows the interface.
    name: String,
    /// The name of the interface at which it listens, if it is not.
    listens_at: String,
}

impl Keeper {
    fn of<F: Function>(interface: &Interface) -> Result<Self> {
        let name = &interface.name;
        let exists = Pinned::<F>::exists(interface.index).with_context(|| {
            format!("{name}: cannot see what is attached; run it as root, for example with sudo")
        })?;
        if !exists && pinned::is_attached(F::PROGRAMS, name) {
            bail!(
                OtherNamespace,
                "{name}: attached, but {}",
                pinned::PINS_ARE_HIDDEN
            );
        }
        if !exists {
            bail!(
                NotAttached,
                "{name}: nothing is attached for the {}, so there is nothing to capture; `xdptun \
                 attach --iface {name} ...` attaches the tunnel, `xdptun status` shows what is",
                F::PROGRAMS.function
            );
        }
        let Some(process) = Pinned::<F>::daemon(interface.index)? else {
            bail!(
                NotRunning,
                "{name}: attached, but no daemon runs; the command that attached it starts one, and \
                 then you can capture"
            );
        };
        let name = Pinned::<F>::keeper_name(interface.index, name);
        // The maps of another version cannot be read: assume that it carries only this one.
        let names = Pinned::<F>::names_of(process).unwrap_or_default();
        let mut listened = names.into_iter().filter(|name| {
            let function = F::PROGRAMS.function;
            control::listens(Place::Interface { function, name })
        });
        Ok(Self {
            is_service: control::service()? == Some(process),
            listens_at: listened.next().unwrap_or_else(|| name.clone()),
            name,
        })
    }

    /// Where it listens.
    fn place<F: Function>(&self) -> Place<'_> {
        if self.is_service {
            return Place::Service;
        }
        Place::Interface {
            function: F::PROGRAMS.function,
            name: &self.listens_at,
        }
    }
}

/// The copies that arrive, put together and written to the file.
struct Ledger<W: Write> {
    file: CaptureFile<W>,
    /// Index of the interface.
    interface: u32,
    only_drops: bool,
    count: u64,
    pairs: Pairs,
    details: Details,
    /// Complete packets, as long as earlier ones may still arrive.
    waiting: Vec<Packet>,
    captured: Captured,
    /// Whether the last frame has come.
    ended: bool,
}

impl<W: Write> Ledger<W> {
    fn new(
        file: CaptureFile<W>,
        interface: u32,
        counters: Vec<Counter>,
        details: Details,
        wanted: &Wanted,
    ) -> Self {
        Self {
            file,
            interface,
            only_drops: wanted.only_drops,
            count: wanted.count.unwrap_or(u64::MAX),
            pairs: Pairs::new(counters),
            details,
            waiting: Vec::new(),
            captured: Captured::default(),
            ended: false,
        }
    }

    fn is_full(&self) -> bool {
        self.captured.packets >= self.count
    }

    /// Takes complete frames off the start of `bytes`, after a read.
    fn read(&mut self, read: io::Result<usize>, bytes: &mut Vec<u8>) -> Result<()> {
        if !matches!(read, Ok(1..)) {
            self.cut_off("the running xdptun has ended, or another has taken its place");
            return Ok(());
        }
        let mut taken = 0;
        while let Some((frame, len)) = Frame::first(&bytes[taken..])? {
            match frame {
                // Another interface of the group.
                Frame::Copy { record, .. } if record.interface != self.interface => {}
                Frame::Copy { cpu, record, bytes } => {
                    let packet = self.pairs.add(cpu, record, bytes);
                    if let Some(mut packet) = packet.filter(|packet| self.wants(packet)) {
                        packet.detail = (self.details)(packet.decided_by);
                        self.waiting.push(packet);
                    }
                }
                Frame::Round { until, unrecorded } => {
                    self.captured.missing = unrecorded;
                    self.write_until(until)?;
                }
                Frame::End("") => self.ended = true,
                Frame::End(why) => self.cut_off(why),
            }
            taken += len;
        }
        bytes.drain(..taken);
        Ok(())
    }

    fn wants(&self, packet: &Packet) -> bool {
        let is_seen = !packet.sights().is_empty();
        is_seen && (packet.is_dropped() || !self.only_drops)
    }

    /// Writes the packets up to a time, in order of time.
    fn write_until(&mut self, time: u64) -> Result<()> {
        self.waiting.sort_by_key(|packet| packet.at);
        let ready = self.waiting.partition_point(|packet| packet.at <= time);
        for packet in self.waiting.drain(..ready) {
            if self.captured.packets < self.count {
                self.file.write(&packet)?;
                self.captured.packets += 1;
            }
        }
        Ok(self.file.flush()?)
    }

    fn cut_off(&mut self, why: &str) {
        self.ended = true;
        self.captured.cut_off = Some(why.to_owned());
    }

    /// Writes the remaining packets, and ends the file.
    fn end(mut self) -> Result<Captured> {
        self.write_until(u64::MAX)?;
        self.file.end(monotonic_ns(), self.captured.missing)?;
        Ok(self.captured)
    }
}
