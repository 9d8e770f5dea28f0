//! A bad wire: what it loses is lost, what it doubles arrives twice, and nothing
//! else changes.
//!
//! The wire disturbs segments between the programs of both hosts, handshake and
//! data alike. Its program follows from a seed; how the hosts interleave does
//! not.

use std::collections::{HashMap, HashSet};
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

use xdptun_lab::numbered::{Tally, datagram, number};
use xdptun_lab::segment::Tcp;
use xdptun_lab::{Attached, Family, Frame, Kind, Offload, Relayed, Side, udp, wait};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::packet::TcpPacket;
use xdptun_test_net::storm::{Disturbance, Storm};
use xdptun_test_net::wire::{describe, distance, segments};
use xdptun_test_net::{LIMIT, PORT, socket};

const SEED: u64 = 1;

/// Flows that open in one storm: each handshake meets other weather.
const FLOWS: u32 = 12;

/// Datagrams of each flow once it is open; each of them is answered.
const COUNT: u32 = 100;

/// In the number of a datagram: whose it is, and the way it goes.
const FLOW: u32 = 1 << 24;
const ANSWER: u32 = 1 << 23;

/// The last datagram of a flow, sent when the wire is good again: what was sent
/// before it has arrived before it, or never will.
const FENCE: u32 = ANSWER - 1;

fn is_fence(number: u32) -> bool {
    number & FENCE == FENCE
}

/// Two hosts with xdptun, and a wire.
struct Net {
    /// Before the hosts.
    _attached: [Attached; 2],
    net: Relayed,
}

impl Net {
    fn new(mode: Mode) -> Self {
        let net = Relayed::new(Kind::Tap, Offload::None).unwrap();
        Self {
            _attached: mode.attach_to([&net.a, &net.b]).unwrap(),
            net,
        }
    }
}

/// One end of a flow from a to b.
struct Client {
    socket: UdpSocket,
    /// The number of its next datagram.
    next: u32,
    received: Tally,
}

impl Client {
    fn send(&mut self) {
        self.socket.send(&datagram(self.next)).unwrap();
        self.next += 1;
    }

    /// Takes what has arrived, without waiting; whether that was anything.
    fn receive(&mut self) -> bool {
        let mut buffer = vec![0; 2048];
        self.socket.set_nonblocking(true).unwrap();
        let mut some = false;
        while let Ok(length) = self.socket.recv(&mut buffer) {
            self.received.add(number(&buffer[..length]).unwrap());
            some = true;
        }
        self.socket.set_nonblocking(false).unwrap();
        some
    }

    /// Receives up to the answer to its fence.
    fn finish(&mut self, fence: u32) {
        self.socket.send(&datagram(fence)).unwrap();
        loop {
            let (bytes, _) = udp::receive(&self.socket, LIMIT).unwrap();
            let number = number(&bytes).unwrap();
            self.received.add(number);
            if number == fence | ANSWER {
                return;
            }
        }
    }
}

/// Sends on every flow until something comes back, as an application would.
fn open(clients: &mut [Client], context: &str) {
    let mut closed: Vec<_> = clients.iter_mut().collect();
    let opened = wait::until_some(LIMIT, "an answer on every flow", || {
        closed.retain_mut(|client| {
            client.send();
            !client.receive()
        });
        Ok(closed.is_empty().then_some(()))
    });
    opened.unwrap_or_else(|error| panic!("{context}: {error:#}"));
}

/// Answers every datagram with a new one of the same flow, until each client's
/// fence came.
fn serve(socket: &UdpSocket) -> Tally {
    let mut received = Tally::default();
    let mut fences = 0;
    let mut next = 0;
    while fences < FLOWS {
        let (bytes, from) = udp::receive(socket, LIMIT).unwrap();
        let number = number(&bytes).unwrap();
        assert_eq!(number & ANSWER, 0, "an answer came back to its sender");
        received.add(number);
        let answer = if is_fence(number) {
            fences += 1;
            number
        } else {
            next += 1;
            number / FLOW * FLOW + next
        };
        socket.send_to(&datagram(answer | ANSWER), from).unwrap();
    }
    received
}

/// Traffic of all flows through a storm; returns what each host received.
fn traffic(net: &Relayed, family: Family, storm: &Storm, context: &str) -> [Tally; 2] {
    let server = socket::roomy(&net.b.netns, net.b.socket(family, PORT)).unwrap();
    let to = server.local_addr().unwrap();
    let clients = (0..FLOWS).map(|flow| {
        let socket = socket::roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
        socket.connect(to).unwrap();
        Client {
            socket,
            next: flow * FLOW,
            received: Tally::default(),
        }
    });
    let mut clients: Vec<Client> = clients.collect();
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(&server));
        open(&mut clients, context);
        for _ in 0..COUNT {
            clients.iter_mut().for_each(Client::send);
        }
        storm.calm();
        let mut received = Tally::default();
        for (flow, client) in (0..).zip(&mut clients) {
            client.finish(flow * FLOW + FENCE);
            received.add_all(&client.received);
        }
        let served = server.join();
        let served = served.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        [received, served]
    })
}

/// The bits of the window that make a segment a probe or a challenge.
const ASKS: u16 = 0x0800;
const CHALLENGES: u16 = 0x0400;

/// The number that a probe or challenge names as its sender's next.
fn named(tcp: &Tcp<'_>) -> Option<u32> {
    let asks = u32::from(tcp.window & ASKS != 0);
    let is_exact = !tcp.syn && tcp.window & (ASKS | CHALLENGES) != 0;
    is_exact.then(|| tcp.seq.wrapping_add(asks))
}

/// What a host sent: checksums and disguise (`segments` looks at each), every
/// datagram once, and acknowledgements that only grow; but back to what a probe or
/// challenge named that was overtaken by data.
fn judge_sent(frames: &[Frame], context: &str) {
    let all = segments(frames, PORT);
    let names = all.iter().filter_map(|segment| {
        let number = named(segment.header())?;
        Some((segment.destination, segment.source, number))
    });
    let names: HashSet<_> = names.collect();
    let mut acknowledged: HashMap<(SocketAddr, SocketAddr), u32> = HashMap::new();
    let mut seen = HashSet::new();
    for segment in &all {
        let tcp = segment.header();
        assert!(!tcp.rst && !tcp.fin, "{context}: {}", segment.packet);
        if segment.is_data() {
            let number = number(segment.payload).unwrap();
            let first = seen.insert((segment.source, number));
            assert!(first, "{context}: {number} was sent in two segments");
        }
        if !tcp.ack {
            continue;
        }
        let ends = (segment.source, segment.destination);
        if let Some(before) = acknowledged.insert(ends, tcp.ack_number) {
            let (source, destination) = ends;
            assert!(
                distance(tcp.ack_number, before) >= 0
                    || names.contains(&(source, destination, tcp.ack_number)),
                "{context}: {} after {before}{}",
                segment.packet,
                describe(&all)
            );
        }
    }
}

#[test]
fn datagrams_are_delivered_or_lost_but_never_altered_or_doubled() {
    println!("seed {SEED}");
    for mode in [mode::TC, mode::XDP] {
        let Net { _attached, net } = Net::new(mode);
        for (seed, disturbance) in (SEED..).zip(Disturbance::ALL) {
            for family in Family::BOTH {
                let context = format!("{mode:?}, seed {seed}, {disturbance}, {family}");
                net.relay.sent().unwrap();
                let storm = Storm::begin(&net.relay, net.kind, seed, disturbance);
                let received = traffic(&net, family, &storm, &context);
                let done = storm.done();
                judge_sent(&net.relay.sent().unwrap(), &context);
                for (side, received) in [Side::A, Side::B].into_iter().zip(received) {
                    let arrived = storm.arrived(side);
                    let context = format!("{context}, at {side:?}: {done:?}");
                    assert_eq!(received.beyond(&arrived), [0; 0], "{context}: made up");
                    assert_eq!(arrived.beyond(&received), [0; 0], "{context}: withheld");
                }
                let happened = [done.lost, done.held, done.doubled].map(|count| count > 0);
                let wanted = [disturbance.loses, disturbance.reorders, disturbance.doubles];
                assert_eq!(happened, wanted, "{context}: {done:?}");
            }
        }
    }
}

/// The flags of the segments of a handshake, in the notation of tcpdump.
const HANDSHAKE: [&str; 3] = ["S", "S.", "."];

fn flags(kind: Kind, frame: &[u8]) -> Option<&'static str> {
    let tcp = TcpPacket::read(kind, frame).ok()?.tcp;
    match (tcp.syn, tcp.ack, tcp.psh) {
        (true, false, false) => Some("S"),
        (true, true, false) => Some("S."),
        (false, true, false) => Some("."),
        _ => None,
    }
}

/// Whichever segment of the handshake is lost, and if each of them is.
#[test]
fn a_flow_opens_although_its_handshake_is_lost() {
    let lost = HANDSHAKE.map(|flags| vec![flags]);
    let lost = lost.into_iter().chain([HANDSHAKE.to_vec()]);
    let Net { _attached, net } = Net::new(mode::TC);
    for (lost, family) in lost.flat_map(|lost| Family::BOTH.map(|family| (lost.clone(), family))) {
        let context = format!("{family} without {lost:?}");
        let left = Arc::new(Mutex::new(lost));
        net.relay.sent().unwrap();
        let program = Arc::clone(&left);
        net.relay.program(move |frame| {
            let mut left = program.lock().unwrap();
            let found = flags(Kind::Tap, &frame.bytes)
                .and_then(|flags| left.iter().position(|lost| *lost == flags));
            match found {
                Some(position) => {
                    left.remove(position);
                    Vec::new()
                }
                None => vec![frame],
            }
        });
        let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
        // One datagram alone: nothing but the handshake can bring it across.
        udp::exchange(&client, server.address(), &datagram(1), LIMIT)
            .unwrap_or_else(|error| panic!("{context}: {error:#}"));
        assert_eq!(*left.lock().unwrap(), [""; 0], "{context}: never seen");
        judge_sent(&net.relay.sent().unwrap(), &context);
    }
}
