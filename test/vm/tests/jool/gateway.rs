//! A gateway with a translator, between a wire of IPv6 and one of IPv4.
//!
//! The far ends of the wires are the test itself: nothing is on them but what it sends, and what
//! the gateway answers.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::utsname::uname;
use nix::unistd::Pid;
use xdptun_lab::command::run;
use xdptun_lab::link;
use xdptun_lab::tap::Tap;
use xdptun_lab::vnet::Vnet;
use xdptun_lab::{Attached, Family, Kind, Netns, Offload, wait};
use xdptun_test_datapath::flags;
use xdptun_test_net::{LIMIT, unpacked};

use crate::ends::{Ends, Protocol, SERVER};

/// What translates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Translator {
    /// The kernel module, with the settings that it has by itself.
    Jool,
    /// `xdptun nat64`, likewise, but for addresses that are not global.
    Xdptun,
}

/// The gateway's address on the wire of IPv6.
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 7, 0, 0, 0, 0, 0, 1);
/// Its address on the wire of IPv4.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
/// The address that Jool shares among clients.
const SHARED: &str = "192.0.2.9";
/// The ports of it: none of a client's.
const SHARED_PORTS: &str = "40000-49999";
/// A port of that address that no client gets.
pub const UNUSED_PORT: u16 = 39_999;

/// The client's port that marks the end of what a row sends.
const MARKING_PORT: u16 = 9;
/// The length of the datagram that does: headers, and a number.
const MARK_LEN: usize = 20 + 8 + 4;

/// The wires, as the gateway calls them.
const WIRES: [(Family, &str); 2] = [(Family::V4, "wan0"), (Family::V6, "lan0")];

/// The gateway.
pub struct Gateway {
    translator: Translator,
    netns: Netns,
    wires: [Tap; 2],
    buffer: Vec<u8>,
    attached: Option<Attached>,
    marks: u32,
}

impl Gateway {
    /// Makes it, and starts its translator.
    pub fn new(translator: Translator) -> Result<Self> {
        // What is sent on one processor is forwarded there, in order.
        let mut cpus = CpuSet::new();
        cpus.set(0)?;
        sched_setaffinity(Pid::from_raw(0), &cpus)?;
        let netns = Netns::new("gateway")?;
        for (key, value) in [
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv6.conf.all.forwarding", "1"),
            // An error for each packet.
            ("net.ipv4.icmp_ratelimit", "0"),
            ("net.ipv6.icmp.ratelimit", "0"),
        ] {
            netns.sysctl(key, value)?;
        }
        let open = |(_, dev)| Tap::open(&netns, dev, Kind::Tun, Offload::None);
        let [wan, lan] = WIRES.map(open);
        let wires = [wan?, lan?];
        let batch = format!(
            "address add {GATEWAY_V4}/24 dev wan0\naddress add {SHARED}/32 dev wan0\n\
             link set wan0 up\naddress add {GATEWAY_V6}/64 dev lan0\nlink set lan0 up\n\
             route add fd00:8::/64 dev lan0\nroute add fd00:9::/64 dev lan0\n"
        );
        netns.run_with_input("ip", ["-batch", "-"], &batch)?;
        let attached = match translator {
            Translator::Jool => start_jool(&netns).map(|()| None)?,
            Translator::Xdptun => {
                let arguments = ["--inside", "fd00:7::/64", "--allow-private"];
                Some(Attached::nat64(&netns, &arguments)?)
            }
        };
        Ok(Self {
            translator,
            netns,
            wires,
            buffer: Tap::buffer(),
            attached,
            marks: 0,
        })
    }

    /// By how much the hop limit of a translated packet falls.
    pub const fn hops(&self) -> u8 {
        match self.translator {
            Translator::Jool => 1,
            Translator::Xdptun => 2,
        }
    }

    /// Sets the MTU of the wire of IPv4.
    pub fn narrow(&self, mtu: u32) -> Result<()> {
        link::set_mtu(&self.netns, "wan0", mtu)
    }

    /// Opens a session of each protocol from a port of the client.
    pub fn open(&mut self, port: u16) -> Result<Ends> {
        let mut ends = Ends::unknown(port);
        for protocol in [Protocol::Udp, Protocol::Tcp, Protocol::Echo] {
            let first = ends.up(Family::V6, protocol);
            let first = match protocol {
                Protocol::Tcp => first.payload([]).segment(flags::SYN, 999, 0),
                _ => first,
            };
            let answer = self.pass(&[first.bytes()])?;
            let [packet] = &answer[..] else {
                bail!("{protocol:?}: opened with {} packets", answer.len());
            };
            (ends.address, ends.mapped[protocol as usize]) = source(packet, protocol)?;
        }
        let segments = [
            ends.down(Family::V4, Protocol::Tcp).payload([]).segment(
                flags::SYN | flags::ACK,
                1999,
                1000,
            ),
            ends.up(Family::V6, Protocol::Tcp)
                .payload([])
                .segment(flags::ACK, 1000, 2000),
        ];
        for segment in segments {
            let answer = self.pass(&[segment.bytes()])?;
            ensure!(answer.len() == 1, "the connection did not open");
        }
        Ok(ends)
    }

    /// Sends packets, each on the wire of its version; all that the gateway sends then.
    pub fn pass(&mut self, packets: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        for packet in packets {
            self.send(packet)?;
        }
        let mark = self.mark()?;
        let mut passed = Vec::new();
        wait::until_some(LIMIT, "what comes behind the packets", || {
            while let Some((_, packet)) = self.wires[0].receive(&mut self.buffer)? {
                if packet.len() == MARK_LEN && packet.ends_with(&mark) {
                    return Ok(Some(()));
                }
                passed.push(packet);
            }
            Ok(None)
        })?;
        while let Some((_, packet)) = self.wires[1].receive(&mut self.buffer)? {
            passed.push(packet);
        }
        passed.retain(|packet| !is_multicast(packet));
        Ok(passed)
    }

    /// Sends a datagram that comes out behind all that was sent before; its payload.
    fn mark(&mut self) -> Result<[u8; 4]> {
        self.marks += 1;
        let mark = self.marks.to_be_bytes();
        let datagram = Ends::unknown(MARKING_PORT).up(Family::V6, Protocol::Udp);
        self.send(&datagram.payload(mark).bytes())?;
        Ok(mark)
    }

    fn send(&self, packet: &[u8]) -> Result<()> {
        let version = packet.first().context("no packet")? >> 4;
        let wire = &self.wires[usize::from(version == 6)];
        wire.send(Vnet::default(), packet)
    }

    /// Ends the translator.
    pub fn stop(self) -> Result<()> {
        self.attached.map_or(Ok(()), Attached::stop)
    }
}

/// Jool's folder, which has the release of the kernel in its name.
fn folder() -> Result<String> {
    let release = uname()?;
    let release = release.release().to_string_lossy();
    Ok(format!("jool-{release}"))
}

fn start_jool(netns: &Netns) -> Result<()> {
    let folder = folder()?;
    let modules: PathBuf = unpacked::folder(&folder);
    // What the modules need.
    run(Command::new("modprobe").args(["--all", "x_tables", "nf_defrag_ipv4", "nf_defrag_ipv6"]))?;
    for module in ["jool_common.ko", "jool.ko"] {
        run(Command::new("insmod").arg(modules.join(module)))
            .context("no Jool for this kernel; `cargo xtask vm --jool` builds it")?;
    }
    let jool =
        |arguments: &[&str]| run(unpacked::program(netns, &folder, "usr/bin/jool").args(arguments));
    jool(&["instance", "add", "--netfilter", "--pool6", "64:ff9b::/96"])?;
    for protocol in ["--tcp", "--udp", "--icmp"] {
        jool(&["pool4", "add", protocol, SHARED, SHARED_PORTS])?;
    }
    Ok(())
}

/// Where a packet of the client comes from as IPv4 sees it: address, and port or identifier.
fn source(packet: &[u8], protocol: Protocol) -> Result<(Ipv4Addr, u16)> {
    let number = match protocol {
        Protocol::Udp | Protocol::Tcp => 20,
        Protocol::Echo => 24,
    };
    let word = |at: usize| packet.get(at..).and_then(|rest| rest.first_chunk());
    let [address, server] = [12, 16].map(|at| word(at).copied().map(Ipv4Addr::from));
    ensure!(server == Some(SERVER), "a packet to {server:?}");
    let port = packet.get(number..).and_then(|rest| rest.first_chunk());
    let (address, port) = address.zip(port).context("a short packet")?;
    Ok((address, u16::from_be_bytes(*port)))
}

/// What the kernel of the gateway sends by itself, as a router.
fn is_multicast(packet: &[u8]) -> bool {
    match packet[0] >> 4 {
        6 => packet[24] == 0xff,
        _ => packet[16] >> 4 == 0xe,
    }
}
