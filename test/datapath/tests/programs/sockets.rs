//! Egress: datagrams that sockets of this host send. A test run has a socket of no family, and so
//! does not take the fast path.

use std::net::UdpSocket;
use std::time::Duration;

use aya::programs::TcAttachType;
use aya::programs::tc::qdisc_add_clsact;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::state::Flow;
use xdptun_lab::{Capture, Direct, Frame, Host, link, wait};
use xdptun_test_datapath::kernel::Counted;
use xdptun_test_datapath::moment::window;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{Config, Datapath, Moment, Packet, Path, Program};

use crate::{largest, lengths, paths};

const LIMIT: Duration = Duration::from_secs(5);

/// The first host, whose datagrams meet the egress program, and what the second one sees.
struct Rig {
    net: Direct,
    ifindex: u32,
    datapath: Datapath,
    capture: Capture<Vec<Frame>>,
}

impl Rig {
    fn new() -> Self {
        let net = Direct::new().unwrap();
        // What the kernel would choose by chance.
        net.a.netns.sysctl("net.ipv6.auto_flowlabels", "0").unwrap();
        let ifindex = link::index(&net.a.netns, Host::DEV).unwrap();
        let capture = Capture::start(&net.b.netns, Host::DEV).unwrap();
        let attach = || {
            let mut datapath = Datapath::new(&Config {
                ifindex,
                ..Config::default()
            });
            datapath.load(Program::Egress);
            qdisc_add_clsact(Host::DEV).unwrap();
            let egress = datapath.classifier(Program::Egress);
            egress.attach(Host::DEV, TcAttachType::Egress).unwrap();
            datapath
        };
        let datapath = net.a.netns.enter(attach).unwrap();
        Self {
            net,
            ifindex,
            datapath,
            capture,
        }
    }

    /// The flow of a path as the only one in the table.
    fn open(&mut self, path: Path) -> Flow {
        let flow = Flow {
            interface: self.ifindex,
            ..path.established(Moment::now())
        };
        self.datapath.reset();
        self.datapath.set_flows([(&path.key(), &flow)]);
        flow
    }

    /// Sends a datagram of `len` bytes, and waits for the segment that it must become.
    fn sends(&self, path: Path, flow: &Flow, len: usize, what: &str) {
        let (from, to) = (path.key().local(), path.key().remote());
        let bind = || UdpSocket::bind(from).unwrap();
        let socket = self.net.a.netns.enter(bind).unwrap();
        socket.send_to(&payload(len), to).unwrap();
        let datagram = path.outbound().payload(payload(len));
        let expected = datagram.carried(flow.snd_nxt, flow.rcv_nxt, window(flow.rcv_nxt));
        let at = 14 + path.family().header_len();
        let ports = expected.bytes()[at..at + 4].to_vec();
        let mut left = None;
        let outcome = wait::until(LIMIT, what, || {
            left = self.capture.peek(|frames| {
                let is_ours = |frame: &&Frame| frame.bytes.get(at..at + 4) == Some(&ports[..]);
                frames.iter().rev().find(is_ours).cloned()
            });
            left.as_ref()
                .is_some_and(|left| left.bytes[14..] == as_chosen(&expected, &left.bytes)[14..])
        });
        assert!(outcome.is_ok(), "{what}: {left:02x?}, not {expected:02x?}");
    }
}

/// The packet with the identification that the kernel gave an IPv4 frame.
fn as_chosen(packet: &Packet, frame: &[u8]) -> Vec<u8> {
    match frame[14] >> 4 {
        4 => packet
            .clone()
            .id(u16::from_be_bytes([frame[18], frame[19]]))
            .bytes(),
        _ => packet.bytes(),
    }
}

#[test]
fn every_length_becomes_the_exact_segment() {
    let mut rig = Rig::new();
    for is_pending in [false, true] {
        rig.net.offload("tx", is_pending).unwrap();
        for path in paths() {
            for len in lengths().chain([largest(path.family())]) {
                let what = format!("{path:?}, {len} bytes, pending: {is_pending}");
                let before = rig.open(path);
                rig.sends(path, &before, len, &what);
                let after = rig.datapath.flows()[&path.key()];
                assert_eq!(after.tx_packets, before.tx_packets + 1, "{what}");
                assert_eq!(after.tx_bytes, before.tx_bytes + len as u64, "{what}");
                let end = before.snd_nxt.wrapping_add(len as u32);
                assert_eq!(after.snd_nxt, end, "{what}");
                let counted = Counted::from([(Outcome::TxDisguised.name(), 1)]);
                assert_eq!(rig.datapath.counted(), counted, "{what}");
            }
        }
    }
    rig.capture.stop().unwrap();
}
