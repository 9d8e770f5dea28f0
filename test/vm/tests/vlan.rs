//! VLAN devices: the programs see frames without the tag, which the device adds
//! and removes. The wire below carries tagged segments only.

use xdptun_lab::segment::{Content, parse};
use xdptun_lab::{Attached, Capture, Direct, Family, Frame, Host, link, udp, xdptun};
use xdptun_test_net::{LIMIT, PORT};

/// `ip link add` for each device, the attached one last.
struct Stack {
    links: &'static [&'static str],
    dev: &'static str,
    /// The tags on the wire, outermost first.
    tags: &'static [u16],
    /// The MTU that leaves room for them: a veth takes one tag beyond its MTU.
    mtu: usize,
}

const STACKS: [Stack; 2] = [
    Stack {
        links: &["link eth0 name eth0.100 type vlan id 100"],
        dev: "eth0.100",
        tags: &[100],
        mtu: 1500,
    },
    Stack {
        links: &[
            "link eth0 name s200 type vlan proto 802.1ad id 200",
            "link s200 name s200.7 type vlan id 7",
        ],
        dev: "s200.7",
        tags: &[200, 7],
        mtu: 1496,
    },
];

impl Stack {
    fn lengths(&self, family: Family) -> [usize; 8] {
        let largest = self.mtu - family.header_len() - 20;
        [0, 1, 27, 46, 47, 333, 1000, largest]
    }
}

/// Makes the devices and moves the addresses to the last.
fn set_up(host: &Host, stack: &Stack) {
    for link in stack.links {
        let words = ["link", "add"].into_iter().chain(link.split(' '));
        host.netns.run("ip", words).unwrap();
        let name = link.split(' ').nth(3).unwrap();
        host.netns.run("ip", ["link", "set", name, "up"]).unwrap();
        link::wait_up(&host.netns, name).unwrap();
    }
    let (netns, mtu) = (&host.netns, u32::try_from(stack.mtu).unwrap());
    link::set_mtu(netns, stack.dev, mtu).unwrap();
    let flush = ["address", "flush", "dev", Host::DEV];
    netns.run("ip", flush).unwrap();
    link::configure(&link::End {
        netns: &host.netns,
        dev: stack.dev,
        addresses: &[format!("{}/24", host.v4), format!("{}/64", host.v6)],
    })
    .unwrap();
}

/// The tags of a frame as it was sent: the outermost may be beside it.
fn tags(frame: &Frame) -> Vec<u16> {
    let mut tags: Vec<u16> = frame.vlan.into_iter().map(|tag| tag & 0xfff).collect();
    let mut at = 12;
    while let Some([0x81 | 0x88, 0x00 | 0xa8, high, low]) = frame.bytes.get(at..at + 4) {
        tags.push(u16::from_be_bytes([*high, *low]) & 0xfff);
        at += 4;
    }
    tags
}

/// The frame without the tags in it.
fn untagged(frame: &Frame) -> Frame {
    let inside = tags(frame).len() - usize::from(frame.vlan.is_some());
    let mut untagged = frame.clone();
    untagged.bytes.drain(12..12 + 4 * inside);
    untagged
}

fn carries(stack: &Stack, ingress: &str) {
    let net = Direct::new().unwrap();
    let hosts = [&net.a, &net.b];
    let port = PORT.to_string();
    let args = ["--port", &port, "--ingress", ingress];
    let mut attached = Vec::new();
    for host in hosts {
        set_up(host, stack);
        attached.push(Attached::start(&host.netns, stack.dev, &args).unwrap());
    }
    for (family, offload) in Family::BOTH
        .into_iter()
        .flat_map(|f| [(f, true), (f, false)])
    {
        let context = format!("{}, {ingress}, {family}, tx {offload}", stack.dev);
        net.offload("tx", offload).unwrap();
        let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
        let captures = hosts.map(|host| Capture::start(&host.netns, Host::DEV).unwrap());
        for length in stack.lengths(family) {
            let payload = udp::pattern(length, 3);
            udp::exchange(&client, server.address(), &payload, LIMIT)
                .unwrap_or_else(|error| panic!("{context}, {length} bytes: {error:#}"));
        }
        let mut data = Vec::new();
        for capture in captures {
            for frame in capture
                .stop()
                .unwrap()
                .iter()
                .filter(|frame| frame.outgoing)
            {
                let bare = untagged(frame);
                let Content::Transport(packet) = parse(&bare).unwrap() else {
                    continue;
                };
                if !packet.has_port(PORT) {
                    continue;
                }
                assert_eq!(tags(frame), stack.tags, "{context}: {packet}");
                let tcp = packet.tcp();
                assert!(tcp.is_some(), "{context}: undisguised {packet}");
                if !packet.payload.is_empty() {
                    data.push(packet.payload.len());
                }
            }
        }
        let mut twice: Vec<usize> = [stack.lengths(family); 2].concat();
        twice.retain(|length| *length != 0);
        data.sort_unstable();
        twice.sort_unstable();
        assert_eq!(data, twice, "{context}");
    }
    for host in hosts {
        let status = xdptun::status(&host.netns).unwrap();
        let counters = &status["interfaces"][0]["counters"];
        let expected = 4 * stack.lengths(Family::V4).len();
        assert_eq!(counters["tx_disguised"], expected, "{counters:#}");
        assert_eq!(counters["rx_restored"], expected, "{counters:#}");
    }
    for attached in attached {
        attached.stop().unwrap();
    }
}

#[test]
fn one_tag() {
    carries(&STACKS[0], "tc");
}

#[test]
fn two_tags() {
    carries(&STACKS[1], "tc");
}

/// A VLAN device has no XDP in a driver.
#[test]
fn one_tag_and_generic_xdp() {
    carries(&STACKS[0], "xdp-generic");
}
