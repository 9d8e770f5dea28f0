//! A bad network: what it loses is lost, and nothing else changes.
//!
//! netem sits in the queueing discipline of both hosts, behind the programs of
//! the sender: it meets the handshake as well as the data, as segments.

use std::net::UdpSocket;

use xdptun_lab::numbered::{Tally, datagram, number};
use xdptun_lab::segment::{Content, parse};
use xdptun_lab::{Capture, Direct, Family, Frame, Host, Netns, WireStats, udp, wait};
use xdptun_test_net::{LIMIT, PORT, mode, socket, status};

/// Datagrams sent once the flow is open.
const COUNT: u32 = 1000;

/// The last datagram, sent when the network is good again: what was sent before
/// it on the same wire has arrived before it, or never will.
const FENCE: u32 = u32::MAX;

/// A disturbance in the words of `tc-netem(8)`.
fn disturb(netns: &Netns, words: &str) {
    let words = words.split(' ');
    let command = ["qdisc", "add", "dev", Host::DEV, "root", "netem"];
    netns.run("tc", command.into_iter().chain(words)).unwrap();
}

fn calm(netns: &Netns) {
    netns
        .run("tc", ["qdisc", "del", "dev", Host::DEV, "root"])
        .unwrap();
}

/// Sends until the flow is open, then the rest; returns how many were sent.
///
/// Datagrams sent before a lost SYN is repeated may be lost, as on any network;
/// an application then sends again.
fn send(net: &Direct, socket: &UdpSocket) -> u32 {
    let local = socket.local_addr().unwrap().to_string();
    let mut sent = 0;
    wait::until_some(LIMIT, "the flow to open", || {
        socket.send(&datagram(sent))?;
        sent += 1;
        let flows = status::flows(&net.a.netns)?;
        let open = |flow: &status::Flow| flow.local == local && flow.state == "established";
        Ok(flows.iter().any(open).then_some(()))
    })
    .unwrap();
    for _ in 0..COUNT {
        socket.send(&datagram(sent)).unwrap();
        sent += 1;
    }
    sent
}

/// Receives to the fence; every datagram must be as it was sent.
fn receive(socket: &UdpSocket) -> Tally {
    let mut tally = Tally::default();
    loop {
        let (bytes, _) = udp::receive(socket, LIMIT).unwrap();
        match number(&bytes).unwrap() {
            FENCE => return tally,
            number => tally.add(number),
        }
    }
}

/// The datagrams that arrived on the wire, before the programs of the receiver.
fn arrived(frames: &[Frame]) -> Tally {
    let mut tally = Tally::default();
    for frame in frames.iter().filter(|frame| !frame.outgoing) {
        if let Ok(Content::Transport(packet)) = parse(frame)
            && packet.tcp().is_some()
            && let Ok(number) = number(packet.payload)
        {
            tally.add(number);
        }
    }
    tally
}

struct Disturbance {
    words: &'static str,
    /// Whether some datagrams must be missing in the end.
    loses: bool,
    /// Whether some segments must have arrived twice.
    doubles: bool,
}

const DISTURBANCES: [Disturbance; 4] = [
    Disturbance {
        words: "loss 10%",
        loses: true,
        doubles: false,
    },
    Disturbance {
        words: "delay 5ms reorder 10%",
        loses: false,
        doubles: false,
    },
    Disturbance {
        words: "duplicate 10%",
        loses: false,
        doubles: true,
    },
    // A flipped bit must be found by the checksum that was made for the segment.
    Disturbance {
        words: "corrupt 10%",
        loses: true,
        doubles: false,
    },
];

#[test]
fn datagrams_are_delivered_or_lost_but_never_changed_or_doubled() {
    let net = Direct::new().unwrap();
    let hosts = [&net.a, &net.b].map(|host| &host.netns);
    let _attached = mode::TC.attach_both(&net).unwrap();
    net.offload("tx", false).unwrap();
    let disturbances = DISTURBANCES.iter();
    for (disturbance, family) in
        disturbances.flat_map(|one| Family::BOTH.map(|family| (one, family)))
    {
        let context = format!("{}, {family}", disturbance.words);
        let server = socket::roomy(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let client = socket::roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        let captures = hosts.map(|netns| Capture::start(netns, Host::DEV).unwrap());

        for host in hosts {
            disturb(host, disturbance.words);
        }
        let sent = send(&net, &client);
        hosts.into_iter().for_each(calm);
        client.send(&datagram(FENCE)).unwrap();
        let delivered = receive(&server);

        let [near, far] = captures.map(|capture| capture.stop().unwrap());
        for (frames, host) in [(&near, "a"), (&far, "b")] {
            let wire = WireStats::of(PORT, frames);
            assert_eq!(wire.udp_datagrams, 0, "{context}, {host}: {wire:#?}");
        }
        let arrived = arrived(&far);
        assert_eq!(
            delivered.beyond(&arrived),
            [0; 0],
            "{context}: out of nothing"
        );
        let once: Tally = (0..sent).collect();
        let doubled = delivered.beyond(&once);
        assert_eq!(
            !doubled.is_empty(),
            disturbance.doubles,
            "{context}: {doubled:?}"
        );
        let missing = once.beyond(&delivered);
        let some = missing.len() < (sent / 2) as usize;
        assert!(some, "{context}: {} of {sent} lost", missing.len());
        if disturbance.loses {
            assert!(!missing.is_empty(), "{context}: nothing was lost");
        }
    }
}
