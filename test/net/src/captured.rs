//! Files of `xdptun capture`, read back, and captures that run.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Frame, Host, Netns, Process, xdptun};

use crate::LIMIT;

/// Where a packet is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Towards the network: where all of the tunnel is TCP.
    Wire,
    /// Towards this host: where it is UDP, or translated.
    Behind,
}

/// A packet on one side.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The side.
    pub side: Side,
    /// The packet, as far as it was kept, and when and which way it went.
    pub frame: Frame,
    /// How long it was.
    pub length: u32,
    /// Its comment.
    pub comment: String,
}

/// A file.
#[derive(Debug)]
pub struct File {
    /// All packets in their order.
    pub seen: Vec<Seen>,
    /// How many are missing, by the file's own word.
    pub missing: u64,
}

impl File {
    /// Reads one that is whole.
    pub fn read(path: &Path) -> Result<Self> {
        let file = fs::File::open(path).with_context(|| path.display().to_string())?;
        let mut reader = PcapNgReader::new(file)?;
        let mut seen = Vec::new();
        let mut sides = Vec::new();
        let mut missing = Vec::new();
        while let Some(block) = reader.next_block() {
            match block? {
                Block::InterfaceDescription(interface) => {
                    let name = interface.options.iter().find_map(|option| match option {
                        InterfaceDescriptionOption::IfName(name) => Some(name.as_ref()),
                        _ => None,
                    });
                    sides.push(match name {
                        Some("eth0 (on the wire)") => Side::Wire,
                        Some("eth0 (restored)" | "eth0 (translated)" | "eth0 (passed)") => {
                            Side::Behind
                        }
                        other => bail!("an interface {other:?}"),
                    });
                }
                Block::EnhancedPacket(packet) => {
                    let side = sides.get(packet.interface_id as usize);
                    seen.push(Seen::of(*side.context("no interface")?, packet)?);
                }
                Block::InterfaceStatistics(statistics) => {
                    let dropped = statistics.options.iter().find_map(|option| match option {
                        InterfaceStatisticsOption::IsbIfDrop(dropped) => Some(*dropped),
                        _ => None,
                    });
                    missing.push(dropped.context("no number of what is missing")?);
                }
                other => bail!("a block {other:?}"),
            }
        }
        match missing[..] {
            [wire, behind] if wire == behind => Ok(Self {
                seen,
                missing: wire,
            }),
            _ => bail!("the file is not whole: {missing:?}"),
        }
    }

    /// The packets on one side that go one way.
    pub fn frames(&self, side: Side, outgoing: bool) -> Vec<Frame> {
        let seen = self.seen.iter();
        seen.filter(|seen| seen.side == side && seen.frame.outgoing == outgoing)
            .map(|seen| seen.frame.clone())
            .collect()
    }

    /// Side, direction and the beginning of the comment up to its second colon: what
    /// became of each packet.
    pub fn fates(&self) -> Vec<(Side, bool, String)> {
        let fate = |seen: &Seen| {
            let words: Vec<&str> = seen.comment.splitn(3, ": ").take(2).collect();
            (seen.side, seen.frame.outgoing, words.join(": "))
        };
        self.seen.iter().map(fate).collect()
    }
}

impl Seen {
    fn of(side: Side, packet: EnhancedPacketBlock<'_>) -> Result<Self> {
        let mut outgoing = None;
        let mut comment = None;
        for option in packet.options {
            match option {
                EnhancedPacketOption::Flags(1) => outgoing = Some(false),
                EnhancedPacketOption::Flags(2) => outgoing = Some(true),
                EnhancedPacketOption::Comment(text) => comment = Some(text.into_owned()),
                other => bail!("an option {other:?}"),
            }
        }
        Ok(Self {
            side,
            frame: Frame {
                bytes: packet.data.into_owned(),
                outgoing: outgoing.context("no direction")?,
                checksum_ready: true,
                time: packet.timestamp,
                ..Frame::default()
            },
            length: packet.original_len,
            comment: comment.context("no comment")?,
        })
    }
}

/// A capture of a host's interface that runs.
#[derive(Debug)]
pub struct Running {
    /// The process.
    pub process: Process,
    path: PathBuf,
    _scratch: Scratch,
}

impl Running {
    /// Starts one with further arguments; what passes from now on is recorded.
    pub fn start(netns: &Netns, arguments: &[&str]) -> Result<Self> {
        let scratch = Scratch::new()?;
        let path = scratch.path().join("captured.pcapng");
        let file = path.to_str().context("an odd path")?;
        let fixed = ["capture", "--iface", Host::DEV, "--write", file];
        let process = xdptun::spawn(netns, &[&fixed, arguments].concat())?;
        process.wait_for_line("capturing on eth0", ATTACHED)?;
        Ok(Self {
            process,
            path,
            _scratch: scratch,
        })
    }

    /// Where it writes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends it as Ctrl-C does.
    pub fn stop(self) -> Result<File> {
        self.process.signal(Signal::SIGINT)?;
        self.finish()
    }

    /// Waits until it ends by itself, successfully.
    pub fn finish(self) -> Result<File> {
        let Self { process, path, .. } = self;
        process.wait_success(LIMIT)?;
        File::read(&path)
    }
}

/// New programs pass the verifier, which takes its time on a slow machine.
const ATTACHED: Duration = Duration::from_secs(30);
