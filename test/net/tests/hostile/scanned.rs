//! Answers to scanners from an owned port, compared with those from a port of Linux's own
//! TCP: presence and every field of each answer.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use xdptun_common::tunnel::isn::EPOCH_NS;
use xdptun_lab::{Direct, Family, wait};
use xdptun_lab::{scratch::Scratch, secret};
use xdptun_test_net::look::{Base, Comparison, Look, flow_label, zero_or_not};
use xdptun_test_net::oracle::{CHANGED, DEFAULTS, KNOWN, LINUX, attach, hosts, listen, nobody};
use xdptun_test_net::packet::TcpPacket;
use xdptun_test_net::scan::{Answers, FIRST_PORT, Probe, nmap, scan, strays, syns};
use xdptun_test_net::wire::Wire;
use xdptun_test_net::{LIMIT, PORT};

/// The kind of segment that an answer is.
fn kind(answer: &[TcpPacket]) -> &'static str {
    match answer.first() {
        Some(packet) if packet.tcp.rst => "RST",
        Some(packet) if packet.tcp.syn => "SYN-ACK",
        Some(_) => "another segment",
        None => "no answer",
    }
}

fn compare_answers(comparison: &mut Comparison, case: &str, ours: &Answers, linux: &Answers) {
    let look = |answer: &[TcpPacket]| match answer {
        [] => Look::nothing(),
        [packet, rest @ ..] => {
            let mut base = Base::default();
            if packet.tcp.syn {
                base.sequence = packet.tcp.sequence_number;
            }
            Look::of(packet, base).and("answers", (1 + rest.len()).to_string())
        }
    };
    for ((probe, ours), (_, linux)) in ours.iter().zip(linux) {
        let case = format!("{case}, {}", probe.name);
        comparison.compare(kind(linux), &case, &look(ours), &look(linux));
    }
    for wanted in ["SYN-ACK", "RST"] {
        let labels = |answers: &Answers| {
            let packets = answers.iter().filter(|(_, answer)| kind(answer) == wanted);
            let labels = packets.filter_map(|(_, answer)| flow_label(&answer[0]));
            Look::with([("flow labels", zero_or_not(labels))])
        };
        let case = format!("{case}, {wanted}");
        comparison.compare("all answers", &case, &labels(ours), &labels(linux));
    }
}

/// All that scanners send to an open port.
fn probes() -> Vec<Probe> {
    [syns(), strays(), nmap()].concat()
}

/// Sends all probes from the first host to ports of the second.
fn scan_ports<const N: usize>(net: &Direct, stranger: IpAddr, ports: [u16; N]) -> [Answers; N] {
    // Answers to probes alone, none again.
    net.b
        .netns
        .sysctl("net.ipv4.tcp_synack_retries", "0")
        .unwrap();
    scan([&net.a, &net.b], stranger, ports, &probes()).unwrap()
}

/// Ports of one host answer alike, and a setting that it had not before shows.
#[test]
fn linux_answers_as_linux() {
    let mut comparison = Comparison::new(&[]);
    let net = hosts(DEFAULTS);
    for family in Family::BOTH {
        let ports = [LINUX, LINUX + 1];
        let _listeners = ports.map(|port| listen(&net.b, family, port));
        let [one, other] = scan_ports(&net, nobody(family, 99), ports);
        compare_answers(&mut comparison, &family.to_string(), &one, &other);
        for wanted in ["SYN-ACK", "RST", "no answer"] {
            let count = one.iter().filter(|(_, answer)| kind(answer) == wanted);
            assert!(count.count() > 5, "{family}: {wanted}: {one:?}");
        }

        net.b.netns.sysctl("net.ipv4.tcp_sack", "0").unwrap();
        let [without] = scan_ports(&net, nobody(family, 98), [LINUX]);
        net.b.netns.sysctl("net.ipv4.tcp_sack", "1").unwrap();
        let mut control = Comparison::new(&[]);
        compare_answers(&mut control, "without SACK", &without, &one);
        let found: BTreeSet<_> = control.differences().iter().copied().collect();
        let expected = ["length", "options"].map(|field| ("SYN-ACK", field));
        assert_eq!(found, BTreeSet::from(expected), "{family}");
    }
    comparison.finish();
}

/// The owned port beside a TCP port of the same host on which something listens.
#[test]
fn probes_are_answered_as_by_linux() {
    let mut comparison = Comparison::new(KNOWN);
    for (name, settings) in [("defaults", DEFAULTS), ("ECN, TTL, large buffers", CHANGED)] {
        let net = hosts(settings);
        let _attached = attach(&net.b, &[]);
        for family in Family::BOTH {
            let _listener = listen(&net.b, family, LINUX);
            let [ours, linux] = scan_ports(&net, nobody(family, 99), [PORT, LINUX]);
            let case = format!("{family}, {name}");
            compare_answers(&mut comparison, &case, &ours, &linux);
        }
    }
    comparison.finish();
}

/// One difference that there has to be: Linux keeps a half-open connection. But a SYN that comes
/// again gets the same answer, when others would get other numbers.
#[test]
fn only_the_number_is_kept_of_a_syn() {
    let mut comparison = Comparison::new(KNOWN);
    let net = hosts(DEFAULTS);
    let _attached = attach(&net.b, &[]);
    let syn = &syns()[..1];
    let _listeners = Family::BOTH.map(|family| listen(&net.b, family, LINUX));
    for family in Family::BOTH {
        let number = |port| {
            let hosts = [&net.a, &net.b];
            let [answers] = scan(hosts, nobody(family, 99), [port], syn).unwrap();
            answers[0].1[0].tcp.sequence_number
        };
        let wire = Wire::watch(&[&net.b]).unwrap();
        let first = [PORT, LINUX].map(number);
        let begun = Instant::now();
        let to = SocketAddr::new(nobody(family, 99), FIRST_PORT);
        let count = |port| wire.count(port, |segment| segment.destination == to);
        wait::until(LIMIT, "a second SYN-ACK", || count(LINUX) > 1).unwrap();
        let again = [PORT, LINUX].map(|port| count(port) > 1);
        let is_over = || begun.elapsed() > Duration::from_nanos(EPOCH_NS);
        wait::until(LIMIT, "the next epoch of cookies", is_over).unwrap();
        let kept = [PORT, LINUX].map(number) == first;
        assert!(kept, "{family}: the same SYN gets another number");
        let look = |place: usize| Look::with([("SYN-ACK sent again", again[place].to_string())]);
        let case = family.to_string();
        comparison.compare("half-open connection", &case, &look(0), &look(1));
    }
    comparison.finish();
}

/// With a secret and a TCP server on the port nothing shows that xdptun is there, not
/// even what is known of a port without a secret.
#[test]
fn a_port_with_a_secret_answers_as_without_xdptun() {
    let mut comparison = Comparison::new(&[]);
    let scratch = Scratch::new().unwrap();
    let file = secret::write(scratch.path(), "secret", "correct horse battery").unwrap();
    for (name, settings) in [("defaults", DEFAULTS), ("ECN, TTL, large buffers", CHANGED)] {
        let net = hosts(settings);
        let _listeners = Family::BOTH.map(|family| listen(&net.b, family, PORT));
        let scan_all = |number| {
            let scan = |family| scan_ports(&net, nobody(family, number), [PORT]);
            Family::BOTH.map(scan)
        };
        let detached = scan_all(98);
        let _attached = attach(&net.b, &["--secret", &file]);
        let attached = scan_all(99);
        for ((family, [ours]), [linux]) in Family::BOTH.iter().zip(&attached).zip(&detached) {
            compare_answers(&mut comparison, &format!("{family}, {name}"), ours, linux);
        }
    }
    comparison.finish();
}
