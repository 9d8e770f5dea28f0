//! The side of who captures.

use std::future::pending;
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::VERSION;
use super::file::CaptureFile;
use super::frame::Frame;
use super::packet::{Packet, Pairs};
use crate::clock::monotonic_ns;
use crate::control::{self, Command, Place};
use crate::datapath::{self, Pinned};
use crate::interface::Interface;
use crate::signals::Termination;

/// What to capture.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The interface's name.
    pub interface: String,
    /// How many bytes of each packet.
    pub snap_len: NonZeroU32,
    /// After how many packets to end.
    pub count: Option<u64>,
    /// After what time to end.
    pub duration: Option<Duration>,
    /// Whether only what is dropped counts.
    pub only_drops: bool,
}

/// What was captured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// Packets in the file. One that passed is there twice, once on each side.
    pub packets: u64,
    /// Packets that could not be recorded, because nobody emptied the buffers in time.
    pub missing: u64,
    /// Why it ended, if nobody here wanted that.
    pub cut_off: Option<String>,
}

/// How often to tell how far it is.
const PROGRESS: Duration = Duration::from_millis(500);
/// How long the other side may take to say the last of it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many bytes to read at once.
const AT_ONCE: usize = 256 << 10;

/// A capture that has begun.
pub struct Listener {
    wanted: Wanted,
    interface: Interface,
    stream: BufReader<UnixStream>,
}

impl Listener {
    /// Has the interface record its packets.
    ///
    /// # Errors
    ///
    /// If nobody keeps it, or he cannot.
    pub async fn begin(wanted: Wanted) -> Result<Self> {
        let interface = Interface::find(&wanted.interface)?;
        let name = &interface.name;
        let keeper = Keeper::of(&interface)?;
        let command = Command::Capture {
            interface: keeper.name.clone(),
            snap_len: wanted.snap_len,
            version: VERSION.to_owned(),
        };
        let (answer, stream) = control::ask(keeper.place(), &command).await?;
        answer.map_err(|why| anyhow!("{name}: {why}"))?;
        Ok(Self {
            wanted,
            interface,
            stream,
        })
    }

    /// Writes what is recorded, until it is enough, a signal comes or the other side
    /// ends it. The file is whole in any case. Now and then `goes_on` is told how far it
    /// is, and whether to go on.
    ///
    /// # Errors
    ///
    /// If the file cannot be written, or the other side is not understood.
    pub async fn write(
        mut self,
        out: impl Write,
        stop: &mut Termination,
        mut goes_on: impl FnMut(&Captured) -> bool,
    ) -> Result<Captured> {
        let file = CaptureFile::begin(out, &self.interface, self.wanted.snap_len.get())?;
        let mut book = Book::new(file, &self.wanted);
        book.file.flush()?;
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
        while !book.ended && !book.is_full() {
            bytes.reserve(AT_ONCE);
            tokio::select! {
                read = self.stream.read_buf(&mut bytes) => book.read(read, &mut bytes)?,
                _ = ticks.tick() => if !goes_on(&book.captured) {
                    break;
                },
                () = stop.requested() => break,
                () = &mut over => break,
            }
        }
        // Whoever records tells what there is, and how much is missing.
        let _gone = self.stream.shutdown().await;
        let rest = async {
            while !book.ended {
                bytes.reserve(AT_ONCE);
                let read = self.stream.read_buf(&mut bytes).await;
                book.read(read, &mut bytes)?;
            }
            anyhow::Ok(())
        };
        match timeout(PATIENCE, rest).await {
            Ok(told) => told?,
            Err(_) => book.cut_off("the running xdptun does not end it; its log tells more"),
        }
        book.end()
    }
}

/// The daemon of an interface.
struct Keeper {
    /// Whether it is the service.
    is_service: bool,
    /// How it calls the interface.
    name: String,
}

impl Keeper {
    fn of(interface: &Interface) -> Result<Self> {
        let name = &interface.name;
        let exists = Pinned::exists(interface.index).with_context(|| {
            format!("{name}: cannot see what is attached; run it as root, for example with sudo")
        })?;
        if !exists && datapath::is_attached(name) {
            bail!("{name}: attached, but {}", datapath::PINS_ARE_HIDDEN);
        }
        if !exists {
            bail!(
                "{name}: nothing is attached, so there is nothing to capture; \
                 `xdptun attach --iface {name} ...` attaches, `xdptun status` shows what is"
            );
        }
        let process = Pinned::daemon(interface.index)?.with_context(|| {
            format!(
                "{name}: attached, but nobody keeps it; `xdptun attach --iface {name} ...` goes \
                 on with what is attached, and then it can be captured"
            )
        })?;
        Ok(Self {
            is_service: control::service()? == Some(process),
            name: Pinned::keeper_name(interface.index, name),
        })
    }

    /// Where it listens.
    fn place(&self) -> Place<'_> {
        if self.is_service {
            Place::Service
        } else {
            Place::Interface(&self.name)
        }
    }
}

/// What is told, and written.
struct Book<W: Write> {
    file: CaptureFile<W>,
    only_drops: bool,
    count: u64,
    pairs: Pairs,
    /// Packets before which others may have been met.
    waiting: Vec<Packet>,
    captured: Captured,
    /// Nothing comes any more.
    ended: bool,
}

impl<W: Write> Book<W> {
    fn new(file: CaptureFile<W>, wanted: &Wanted) -> Self {
        Self {
            file,
            only_drops: wanted.only_drops,
            count: wanted.count.unwrap_or(u64::MAX),
            pairs: Pairs::default(),
            waiting: Vec::new(),
            captured: Captured::default(),
            ended: false,
        }
    }

    fn is_full(&self) -> bool {
        self.captured.packets >= self.count
    }

    /// Takes the frames that `bytes` begins with off it, after a read.
    fn read(&mut self, read: io::Result<usize>, bytes: &mut Vec<u8>) -> Result<()> {
        if !matches!(read, Ok(1..)) {
            self.cut_off("the running xdptun has ended, or another has taken its place");
            return Ok(());
        }
        let mut taken = 0;
        while let Some((frame, len)) = Frame::first(&bytes[taken..])? {
            match frame {
                Frame::Copy { cpu, record, bytes } => {
                    let packet = self.pairs.add(cpu, record, bytes);
                    self.waiting
                        .extend(packet.filter(|packet| self.wants(packet)));
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

    /// Writes what was met up to a time, in the order of time.
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

    /// Writes what is left, and ends the file.
    fn end(mut self) -> Result<Captured> {
        self.write_until(u64::MAX)?;
        self.file.end(monotonic_ns(), self.captured.missing)?;
        Ok(self.captured)
    }
}
