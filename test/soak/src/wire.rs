//! A judgement of the frames that cross the router, in constant memory.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;
use xdptun_lab::segment::{Checksum, Content, Header, Packet, parse};
use xdptun_lab::{Capture, Frame, Routed};
use xdptun_test_net::PORT;

use crate::journal::{Flaw, Journal};

/// Violations on an interface that are kept in words.
const KEPT: usize = 20;

/// The frames that crossed an interface.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Seen {
    /// All frames.
    pub frames: u64,
    /// TCP segments of the owned port.
    pub segments: u64,
    /// UDP datagrams of the owned port.
    pub udp: u64,
    /// Wrong or unfinished checksums, fragments, and what is malformed.
    pub bad: u64,
    #[serde(skip)]
    examples: Vec<(Flaw, String)>,
}

impl Seen {
    fn add(&mut self, frame: &Frame) {
        self.frames += 1;
        match parse(frame) {
            Ok(Content::Transport(packet)) if packet.has_port(PORT) => self.judge(&packet),
            Ok(Content::Transport(_) | Content::Other) => {}
            Ok(Content::Fragment(protocol)) => {
                self.condemn(|| format!("a fragment of protocol {protocol}"));
            }
            Err(error) => self.condemn(|| format!("{error:#}: {:02x?}", frame.bytes)),
        }
    }

    fn judge(&mut self, packet: &Packet<'_>) {
        match &packet.header {
            Header::Udp => {
                self.udp += 1;
                self.keep(Flaw::PlainUdp, || packet.to_string());
            }
            Header::Tcp(tcp) => {
                self.segments += 1;
                // A host that is detached refuses segments itself, and leaves
                // the checksum of that to its card.
                let unfinished = packet.checksum == Checksum::NotReady && !tcp.rst;
                if packet.is_bad() || unfinished {
                    self.condemn(|| packet.to_string());
                }
            }
        }
    }

    fn condemn(&mut self, text: impl FnOnce() -> String) {
        self.bad += 1;
        self.keep(Flaw::BadFrame, text);
    }

    fn keep(&mut self, flaw: Flaw, text: impl FnOnce() -> String) {
        if self.examples.len() < KEPT {
            self.examples.push((flaw, text()));
        }
    }
}

/// Captures on all interfaces of the router.
#[derive(Debug)]
pub struct Wires(Vec<Wire>);

#[derive(Debug)]
struct Wire {
    dev: String,
    capture: Capture<Seen>,
    /// How many examples the journal has.
    told: usize,
}

impl Wires {
    /// Watches from now on.
    pub fn watch(net: &Routed, devs: &[String]) -> Result<Self> {
        let wires = devs.iter().map(|dev| {
            Ok(Wire {
                capture: Capture::fold(&net.router.netns, dev, Seen::default(), Seen::add)?,
                dev: dev.clone(),
                told: 0,
            })
        });
        Ok(Self(wires.collect::<Result<_>>()?))
    }

    /// Tells the journal of the violations since the last call.
    pub fn tell(&mut self, journal: &Journal) {
        for wire in &mut self.0 {
            let new = wire
                .capture
                .peek(|seen| seen.examples[wire.told..].to_vec());
            wire.told += new.len();
            tell(&wire.dev, &new, journal);
        }
    }

    /// Ends the captures, and returns the counts of each interface.
    pub fn stop(self, journal: &Journal) -> BTreeMap<String, Seen> {
        let mut all = BTreeMap::new();
        for Wire { dev, capture, told } in self.0 {
            if let Some(seen) = journal.check(Flaw::Unseen, capture.stop()) {
                tell(&dev, &seen.examples[told..], journal);
                all.insert(dev, seen);
            }
        }
        all
    }
}

fn tell(dev: &str, examples: &[(Flaw, String)], journal: &Journal) {
    for (flaw, text) in examples {
        journal.find(*flaw, &format!("{dev}: {text}"));
    }
}
