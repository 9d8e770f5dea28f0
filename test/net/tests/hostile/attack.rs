//! Attackers off the path: segments with a flow's addresses and ports, floods of
//! SYNs, a full table, and frames whose answers would go to another host.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use etherparse::TcpHeader;
use xdptun_lab::seeded::Random;
use xdptun_lab::segment::{Content, parse};
use xdptun_lab::{Capture, Direct, Family, Frame, Host, Netns, burst, link, udp, wait};
use xdptun_test_net::conversation::Conversation;
use xdptun_test_net::forgery::{self, Flow, Kind};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::status::Counters;
use xdptun_test_net::{LIMIT, PORT, raw, socket, status};

/// How far from what is expected a receiver takes numbers.
const WINDOW: usize = 1 << 26;

/// The numbers of a flow that the attacker knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guess {
    /// Nothing.
    Nothing,
    /// The window of the sequence numbers.
    Window,
    /// Also about what was acknowledged, so that data is taken.
    Both,
}

impl Guess {
    const ALL: [Self; 3] = [Self::Nothing, Self::Window, Self::Both];

    /// How many segments of each kind: with one hook as many as are promised.
    fn count(self, mode: Mode) -> usize {
        match (self, mode) {
            (Self::Both, _) => 200,
            (_, mode::TC) => 20_000,
            (_, _) => 2000,
        }
    }

    /// Numbers for a receiver that expects these.
    fn numbers(self, expected: (u32, u32), random: &mut Random) -> (u32, u32) {
        let (sequence, acknowledged) = expected;
        // The one number that would be right is never drawn.
        let away = |random: &mut Random, range: usize| {
            let distance = u32::try_from(1 + random.below(range)).unwrap();
            match random.once_in(2) {
                true => distance,
                false => distance.wrapping_neg(),
            }
        };
        match self {
            Self::Nothing => (
                sequence.wrapping_add(away(random, 1 << 31)),
                random.number(),
            ),
            Self::Window => (
                sequence.wrapping_add(away(random, WINDOW - 1)),
                random.number(),
            ),
            Self::Both => {
                let sequence = sequence.wrapping_add(away(random, WINDOW / 2));
                (sequence, acknowledged)
            }
        }
    }

    /// Requires the receiver's counters to fit the forged segments and the data that its
    /// application received.
    fn assert_counted(
        self,
        moved: &Counters,
        count: usize,
        delivered: u64,
        asked: u64,
        case: &str,
    ) {
        let (name, least) = match self {
            // FINs, data and acknowledgements alike.
            Self::Nothing | Self::Window => ("rx_drop_sequence", 3 * count),
            Self::Both => ("rx_drop_fin", count),
        };
        for (name, least) in [("rx_drop_reset", count), ("rx_syn", count), (name, least)] {
            assert!(
                value(moved, name) >= nearly(least),
                "{case}: {name}: {moved:?}"
            );
        }
        let may = match self {
            // One in four thousand hits the window of acknowledgements.
            Self::Nothing | Self::Window => 0..=count as u64 / 200,
            Self::Both => nearly(count)..=count as u64,
        };
        assert!(may.contains(&delivered), "{case}: {delivered}: {moved:?}");
        // The exchange after it has datagrams of its own.
        let restored = value(moved, "rx_restored");
        assert!(
            (delivered + 1..=delivered + asked).contains(&restored),
            "{case}: {moved:?}"
        );
    }
}

/// Everything that comes from one host, as an attacker there would send it:
/// behind the host's own programs.
struct Attacker<'a> {
    netns: &'a Netns,
    addresses: [[u8; 6]; 2],
}

impl<'a> Attacker<'a> {
    fn new(at: &'a Host, target: &Host) -> Self {
        let addresses =
            [target, at].map(|host| link::ethernet_address(&host.netns, Host::DEV).unwrap());
        Self {
            netns: &at.netns,
            addresses,
        }
    }

    fn frame(&self, packet: &[u8]) -> Vec<u8> {
        raw::frame(self.addresses, packet)
    }

    /// SYNs from anyone.
    fn syns(&self, to: SocketAddr, count: usize, random: &mut Random) -> Vec<Vec<u8>> {
        let forge = |_| {
            let from = anyone(to, random);
            let fill = |tcp: &mut TcpHeader| {
                tcp.syn = true;
                tcp.sequence_number = random.number();
            };
            self.frame(&raw::segment(from, to, fill, b"").unwrap())
        };
        (0..count).map(forge).collect()
    }

    fn send(&self, frames: &[Vec<u8>]) {
        burst::send_all(self.netns, Host::DEV, frames).unwrap();
    }
}

/// All that was received and counted.
fn received(counters: &Counters) -> u64 {
    let all = counters.iter();
    let counters = all.filter(|(name, _)| name.starts_with("rx_"));
    counters.map(|(_, value)| value).sum()
}

/// The part of a burst that arrives at least.
fn nearly(count: usize) -> u64 {
    count as u64 * 9 / 10
}

/// Waits until a host has counted nearly all of a burst: the kernel may drop
/// some while the machine is busy.
fn wait_received(netns: &Netns, before: &Counters, count: usize) {
    wait::until_some(LIMIT, "the burst to be counted", || {
        let moved = status::moved(before, &status::counters(netns)?);
        Ok((received(&moved) >= nearly(count)).then_some(()))
    })
    .unwrap();
}

fn value(counters: &Counters, name: &str) -> u64 {
    counters.get(name).copied().unwrap_or(0)
}

/// The payload that a client sends to an echo server after a flood of forged segments.
const STILL: &[u8] = b"still there";

/// An exchange with an echo server that has also echoed forged data: how many, and how
/// often the client had to ask, as it does `again` and again. What it asked before may be
/// answered late.
fn exchange_among_forged(
    socket: &UdpSocket,
    to: SocketAddr,
    payload: &[u8],
    again: Duration,
) -> (u64, u64) {
    let deadline = Instant::now() + LIMIT;
    let (mut forged, mut asked) = (0, 0);
    while Instant::now() < deadline {
        socket.send_to(payload, to).unwrap();
        asked += 1;
        while let Ok((answer, from)) = udp::receive(socket, again) {
            assert_eq!(from, to);
            if answer == payload {
                return (forged, asked);
            }
            if answer != STILL {
                assert!(answer.starts_with(forgery::PAYLOAD), "{answer:02x?}");
                forged += 1;
            }
        }
    }
    panic!("no answer to {asked} datagrams");
}

/// Resets, ends, beginnings, data and acknowledgements, as many as one likes:
/// only data that hits both windows is taken, and is no more than data.
#[test]
fn forged_segments_do_not_end_a_flow() {
    for mode in [mode::TC, mode::XDP, mode::XDP_GENERIC] {
        forge_segments(mode);
    }
}

fn forge_segments(mode: Mode) {
    let net = Direct::new().unwrap();
    let _attached = mode.attach_both(&net).unwrap();
    let hosts = [&net.a, &net.b];
    for (family, guess) in pairs(Family::BOTH, Guess::ALL) {
        let echo = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let socket = socket::roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
        udp::exchange(&socket, echo.address(), b"open", LIMIT).unwrap();
        let count = guess.count(mode);
        for to_server in [true, false] {
            let case = format!("{mode:?}, {family}, {guess:?}, to the server: {to_server}");
            let flow = Flow::learn(&net, &socket, || {
                exchange_among_forged(&socket, echo.address(), b"hello", LIMIT);
            })
            .unwrap();
            let (at, target, from, to, expected) = if to_server {
                let expected = (flow.acknowledged, flow.next);
                (&net.a, &net.b, flow.client, flow.server, expected)
            } else {
                let expected = (flow.next, flow.acknowledged);
                (&net.b, &net.a, flow.server, flow.client, expected)
            };
            let attacker = Attacker::new(at, target);
            let before = hosts.map(|host| status::counters(&host.netns).unwrap());
            let start = before[usize::from(to_server)].clone();
            let echoed = echo.datagrams();
            let syns = hosts.map(|host| {
                let count = |syns: &mut usize, frame: &Frame| {
                    if frame.outgoing
                        && let Ok(Content::Transport(packet)) = parse(frame)
                    {
                        *syns += usize::from(packet.tcp().is_some_and(|tcp| tcp.syn));
                    }
                };
                Capture::fold(&host.netns, Host::DEV, 0, count).unwrap()
            });
            let mut random = Random::new(1, 0, 0);
            let mut sent = 0;
            for kind in Kind::ALL {
                let forge = |_| {
                    let numbers = |random: &mut Random| guess.numbers(expected, random);
                    let packet = kind.forge(from, to, &mut random, numbers).unwrap();
                    attacker.frame(&packet)
                };
                let frames: Vec<_> = (0..count).map(forge).collect();
                sent += frames.len();
                attacker.send(&frames);
            }
            wait_received(&target.netns, &start, sent);
            // A segment within both windows moves the number that the target expects, and the
            // peer's next challenge moves it back. Nothing else takes a second datagram.
            let again = match guess {
                Guess::Both => Duration::from_millis(200),
                _ => LIMIT,
            };
            let (forged, asked) = exchange_among_forged(&socket, echo.address(), STILL, again);
            assert!(asked <= 3, "{case}: {asked}");

            let after = hosts.map(|host| status::counters(&host.netns).unwrap());
            for (before, after) in before.iter().zip(&after) {
                let moved = status::moved(before, after);
                for name in ["rx_rst", "rx_fin", "sent_syn", "sent_fin", "sent_rst"] {
                    assert_eq!(value(&moved, name), 0, "{case}: {moved:?}");
                }
            }
            for host in hosts {
                let all = status::flows(&host.netns).unwrap();
                let ends = [from, to].map(|end| end.to_string());
                let ours = all
                    .iter()
                    .filter(|flow| ends.contains(&flow.local) && ends.contains(&flow.remote));
                let states: Vec<_> = ours.map(|flow| flow.state.as_str()).collect();
                assert_eq!(states, ["established"], "{case}: {all:?}");
            }
            let syns = syns.map(|capture| capture.stop().unwrap());
            assert_eq!(syns, [0, 0], "{case}");

            let delivered = match to_server {
                true => echo.datagrams() - echoed - asked,
                false => forged,
            };
            println!("{case}: {delivered} of {sent} were delivered as data");
            let moved = status::moved(&start, &after[usize::from(to_server)]);
            guess.assert_counted(&moved, count, delivered, asked, &case);
        }
    }
}

fn pairs<A: Copy, B: Copy>(
    first: impl IntoIterator<Item = A>,
    second: impl IntoIterator<Item = B> + Clone,
) -> Vec<(A, B)> {
    let first = first.into_iter();
    first
        .flat_map(|a| second.clone().into_iter().map(move |b| (a, b)))
        .collect()
}

/// A flood from everywhere makes no flow, is answered with no more bytes than it
/// has, and only so often; open flows are not affected.
#[test]
fn a_syn_flood_makes_no_flow() {
    const SYNS: usize = 200_000;
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let attacker = Attacker::new(&net.a, &net.b);
    for family in Family::BOTH {
        let echo = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let socket = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
        udp::exchange(&socket, echo.address(), b"open", LIMIT).unwrap();
        let frames = attacker.syns(echo.address(), SYNS, &mut Random::new(2, 0, 0));

        let (flows, before) = (ends(&net.b), status::counters(&net.b.netns).unwrap());
        let own = net.a.address(family);
        let traffic = Capture::fold(&net.b.netns, Host::DEV, [0; 2], move |bytes, frame| {
            if let Ok(Content::Transport(packet)) = parse(frame)
                && packet.has_port(PORT)
                && ![packet.source.ip(), packet.destination.ip()].contains(&own)
            {
                bytes[usize::from(frame.outgoing)] += frame.bytes.len();
            }
        })
        .unwrap();
        let start = Instant::now();
        let mut exchanged = 0;
        thread::scope(|scope| {
            let flood = scope.spawn(|| attacker.send(&frames));
            while !flood.is_finished() || exchanged == 0 {
                let payload = udp::pattern(100, u8::try_from(exchanged % 256).unwrap());
                udp::exchange(&socket, echo.address(), &payload, LIMIT).unwrap();
                exchanged += 1;
            }
            flood.join().unwrap();
        });
        let took = start.elapsed();
        wait_received(&net.b.netns, &before, SYNS);
        udp::exchange(&socket, echo.address(), b"after", LIMIT).unwrap();
        let moved = status::moved(&before, &status::counters(&net.b.netns).unwrap());
        let [bytes_in, bytes_out] = traffic.stop().unwrap();
        println!(
            "{family}: {SYNS} SYNs in {took:.2?}, {exchanged} exchanges meanwhile; \
             {bytes_in} bytes in, {bytes_out} out; {moved:?}"
        );
        assert_eq!(ends(&net.b), flows, "{family}");
        assert!(
            bytes_out > 0 && bytes_out <= bytes_in,
            "{family}: {bytes_in} {bytes_out}"
        );
        assert_flooded(&moved, nearly(SYNS), start, &family.to_string());
    }
}

/// Requires of what a host counted since `start` that each SYN was answered or,
/// beyond the rate limits, not; and that there were so many.
fn assert_flooded(moved: &Counters, least: u64, start: Instant, case: &str) {
    let (asked, answered) = (value(moved, "rx_syn"), value(moved, "sent_syn_ack"));
    assert!(asked >= least, "{case}: {moved:?}");
    assert_eq!(
        answered + value(moved, "replies_limited"),
        asked,
        "{case}: {moved:?}"
    );
    // On each CPU so many at once, and so many in a second.
    let cpus = thread::available_parallelism().unwrap().get() as u64;
    let limit = cpus * (4096 + 16384 * (start.elapsed().as_secs() + 1));
    assert!(answered <= limit, "{case}: more than {limit}: {moved:?}");
    let refused = value(moved, "rx_drop_no_flow") + value(moved, "rx_drop_sequence");
    assert_eq!(refused, 0, "{case}: {moved:?}");
}

/// The ends of every flow of a host.
fn ends(host: &Host) -> Vec<(String, String)> {
    let flows = status::flows(&host.netns).unwrap().into_iter();
    flows.map(|flow| (flow.local, flow.remote)).collect()
}

/// As fast as the machine can send, on every CPU, for as long as the flow is looked
/// at: an application that sends at a steady rate, far below what the tunnel
/// carries, has as many answers in a second as before.
#[test]
fn a_flow_keeps_its_rate_in_a_syn_flood() {
    /// A datagram of the flow.
    const EVERY: Duration = Duration::from_millis(2);
    /// A thread's SYNs, and how often it sends them if nothing ends it.
    const SYNS: usize = 20_000;
    const ROUNDS: usize = 500;
    /// How many must have come.
    const LEAST: u64 = 50_000;
    /// The limit on the daemon's growth: less than an entry for each SYN would take.
    const GROWTH_KIB: u64 = 512;
    let threads = thread::available_parallelism().unwrap().get();
    for (mode, family, datagrams) in [
        (mode::TC, Family::V4, 1000),
        (mode::TC, Family::V6, 1000),
        (mode::XDP, Family::V4, 500),
        (mode::XDP_GENERIC, Family::V6, 500),
    ] {
        let case = format!("{mode:?}, {family}");
        let net = Direct::new().unwrap();
        let [_near, far] = mode.attach_both(&net).unwrap();
        let attacker = Attacker::new(&net.a, &net.b);
        let echo = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let (from, to) = (net.a.socket(family, 0), echo.address());
        let frames = |seed| attacker.syns(to, SYNS, &mut Random::new(seed, 0, 0));
        let floods: Vec<_> = (0..threads as u64).map(frames).collect();

        let opening = Instant::now();
        let flow = Conversation::start(0, &net.a.netns, from, to, EVERY).unwrap();
        let wait_sent = |moment| {
            wait::until(LIMIT, "datagrams of the flow", || {
                flow.since(moment).0 >= datagrams
            })
        };
        wait::until(LIMIT, "the flow", || flow.first_answer(opening).is_some()).unwrap();
        let peace = Instant::now();
        wait_sent(peace).unwrap();

        let counters = || status::counters(&net.b.netns).unwrap();
        let (flows, before) = (ends(&net.b), counters());
        let resident = far.process().resident_kib().unwrap();
        let start = Instant::now();
        let stop = AtomicBool::new(false);
        let send = &|frames: &[Vec<u8>]| {
            let mut sent = 0;
            for _ in (0..ROUNDS).take_while(|_| !stop.load(Ordering::Relaxed)) {
                attacker.send(frames);
                sent += SYNS;
            }
            sent
        };
        let (flood, after, sent) = thread::scope(|scope| {
            let floods = floods.iter();
            let threads: Vec<_> = floods
                .map(|frames| scope.spawn(move || send(frames)))
                .collect();
            let begun = wait::until(LIMIT, "the flood", || {
                value(&counters(), "rx_syn") > value(&before, "rx_syn")
            });
            let flood = Instant::now();
            let enough = begun.and_then(|()| wait_sent(flood));
            let after = Instant::now();
            let lasted = threads.iter().all(|thread| !thread.is_finished());
            stop.store(true, Ordering::Relaxed);
            enough.unwrap();
            assert!(lasted, "{case}: the flood ended first");
            let sent = threads.into_iter().map(|thread| thread.join().unwrap());
            (flood, after, sent.sum::<usize>())
        });
        // By then, earlier segments have been answered.
        let end = Instant::now();
        wait::until(LIMIT, "the flow to go on", || {
            flow.first_answer(end).is_some()
        })
        .unwrap();
        let moved = status::moved(&before, &counters());

        let rate = |from, to| {
            let (first, rest) = (flow.since(from), flow.since(to));
            let (sent, answered) = (first.0 - rest.0, first.1 - rest.1);
            let seconds = (to - from).as_secs_f64();
            println!("{case}: {answered} of {sent} answered in {seconds:.2} s");
            answered as f64 / seconds
        };
        let kept = rate(flood, after) / rate(peace, start);
        // A veth's ring is short under native XDP: as it has no room for all of
        // the flood, it has none for all of the flow.
        let carried = match mode {
            mode::XDP => value(&moved, "rx_syn") as f64 / sent as f64,
            _ => 1.0,
        };
        let grown = far.process().resident_kib().unwrap();
        println!(
            "{case}: {kept:.3} of the rate; {carried:.3} of {sent} SYNs carried; \
             {resident} KiB, now {grown}; {moved:?}"
        );
        assert_flooded(&moved, LEAST, start, &case);
        assert!(kept >= 0.9 * carried, "{case}: {kept:.3} of the rate");
        assert_eq!(ends(&net.b), flows, "{case}");
        let growth = grown.saturating_sub(resident);
        assert!(growth <= GROWTH_KIB, "{case}: {growth} KiB more");
    }
}

/// Any address of the family of `to` outside the network of the hosts, and any
/// port but ours.
fn anyone(to: SocketAddr, random: &mut Random) -> SocketAddr {
    let address: IpAddr = match to {
        SocketAddr::V4(_) => {
            let network = u8::try_from(random.between(11, 99)).unwrap();
            [network, random.byte(), random.byte(), random.byte()].into()
        }
        SocketAddr::V6(_) => {
            let mut bytes = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            bytes[4..].fill_with(|| random.byte());
            bytes.into()
        }
    };
    let port = random.between(usize::from(PORT) + 1, 65535);
    SocketAddr::new(address, u16::try_from(port).unwrap())
}

/// When the table is full, a new peer waits until a flow ends; existing flows stay, and
/// this host can still open flows.
#[test]
fn a_full_table_refuses_newcomers_alone() {
    const MAX: usize = 64;
    /// The part of the table that is not reserved for this host.
    const ROOM: usize = MAX - MAX / 16;
    const MORE: usize = 8;
    const OFTEN: Duration = Duration::from_millis(100);
    for family in Family::BOTH {
        let net = Direct::new().unwrap();
        let _near = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
        let arguments = ["--port", "8000", "--max-flows", &MAX.to_string()];
        let _far = mode::TC.attach(&net.b, &arguments).unwrap();
        let [echo, behind] = [&net.b, &net.a]
            .map(|host| udp::Server::echo(&host.netns, host.socket(family, PORT)).unwrap());
        let (from, to) = (net.a.socket(family, 0), echo.address());
        let bind = |_| udp::bind(&net.a.netns, from).unwrap();
        let old: Vec<UdpSocket> = (0..ROOM).map(bind).collect();
        let all_echo = |sockets: &[UdpSocket], payload: &[u8]| {
            for socket in sockets {
                udp::exchange(socket, to, payload, LIMIT).unwrap();
            }
        };
        all_echo(&old, b"first");
        let full = || status::counter(&net.b.netns, "rx_drop_table_full").unwrap();
        assert_eq!(
            (status::flows(&net.b.netns).unwrap().len(), full()),
            (ROOM, 0)
        );

        let start = Instant::now();
        let talk = |id: usize| {
            let id = u8::try_from(id).unwrap();
            Conversation::start(id, &net.a.netns, from, to, OFTEN).unwrap()
        };
        let new: Vec<Conversation> = (0..MORE).map(talk).collect();
        wait::until(LIMIT, "newcomers to be refused", || {
            let mut all = new.iter();
            full() >= MORE as u64 && all.all(|conversation| conversation.since(start).0 > 1)
        })
        .unwrap();
        all_echo(&old, b"while it is full");
        for conversation in &new {
            assert_eq!(
                conversation.since(start).1,
                0,
                "{family}: {}",
                conversation.name()
            );
        }
        assert_eq!(status::flows(&net.b.netns).unwrap().len(), ROOM, "{family}");
        let own = udp::bind(&net.b.netns, net.b.socket(family, 0)).unwrap();
        udp::exchange(&own, behind.address(), b"own", LIMIT).unwrap();

        let (leaving, staying) = old.split_at(MORE + 1);
        for socket in leaving {
            let flow = Flow::learn(&net, socket, || {
                udp::exchange(socket, to, b"last", LIMIT).unwrap();
            })
            .unwrap();
            let fill = |tcp: &mut TcpHeader| {
                tcp.rst = true;
                tcp.sequence_number = flow.acknowledged;
            };
            raw::send_segment(&net.a.netns, flow.client, flow.server, fill, b"").unwrap();
        }
        let resets = || status::counter(&net.b.netns, "rx_rst").unwrap();
        wait::until(LIMIT, "old flows to end", || resets() == MORE as u64 + 1).unwrap();
        let moment = Instant::now();
        wait::until(LIMIT, "newcomers to find room", || {
            let mut all = new.iter();
            all.all(|conversation| conversation.first_answer(moment).is_some())
        })
        .unwrap();
        all_echo(staying, b"after all");
        for conversation in new {
            let (sent, _) = conversation.first_answer(moment).unwrap();
            conversation.finish(sent).unwrap();
        }
        // Those that were reset stay in the table for a while.
        status::wait_states(&net.b.netns, "established", ROOM).unwrap();
    }
}

/// To a port without a flow: one frame is answered with one at most, and a reset with none.
/// The answer is as long as the frame or shorter; a SYN-ACK may be four bytes longer, as it
/// names the maximum segment size like Linux's.
#[test]
fn no_answer_is_much_longer_than_its_cause() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach(&net.b, &["--port", "8000"]).unwrap();
    let attacker = Attacker::new(&net.a, &net.b);
    for family in Family::BOTH {
        let frames = strange_frames(family, &net, &attacker);
        let traffic = Capture::start(&net.b.netns, Host::DEV).unwrap();
        let all: Vec<_> = frames.iter().map(|(_, frame)| frame.clone()).collect();
        attacker.send(&all);
        let marker = u16::try_from(FIRST_PORT + all.len() - 1).unwrap();
        let answered = |frames: &Vec<Frame>| {
            let mut sent = frames.iter().filter(|frame| frame.outgoing);
            sent.any(|frame| ports(family, &frame.bytes)[1] == marker)
        };
        wait::until(LIMIT, "the answer to the last", || traffic.peek(answered)).unwrap();

        let mut bytes: BTreeMap<u16, [Vec<usize>; 2]> = BTreeMap::new();
        for frame in traffic.stop().unwrap() {
            let [source, destination] = ports(family, &frame.bytes);
            let (own, other) = match frame.outgoing {
                true => (source, destination),
                false => (destination, source),
            };
            if own == PORT {
                let lengths = bytes.entry(other).or_default();
                lengths[usize::from(frame.outgoing)].push(frame.bytes.len());
            }
        }
        assert_eq!(bytes.len(), frames.len(), "{family}: {bytes:?}");
        for ((what, frame), [came, went]) in frames.iter().zip(bytes.values()) {
            assert_eq!(*came, [frame.len()], "{family}, {what}");
            let may = match (what.contains("RST"), what.contains("SYN")) {
                (true, _) => 0,
                (false, true) => frame.len() + 4,
                (false, false) => frame.len(),
            };
            assert!(went.len() <= 1, "{family}, {what}: {went:?}");
            assert!(
                went.iter().sum::<usize>() <= may,
                "{family}, {what}: {went:?} > {may}"
            );
            for (name, answers) in [("SYN", 1), ("ACK", 1), ("data", 1)] {
                assert!(
                    what != name || went.len() == answers,
                    "{family}, {what}: {went:?}"
                );
            }
        }
        assert!(status::flows(&net.b.netns).unwrap().is_empty(), "{family}");
    }
}

/// The source port of the first frame; each has one of its own.
const FIRST_PORT: usize = 20000;

/// Both ports of a frame without IP options.
fn ports(family: Family, frame: &[u8]) -> [u16; 2] {
    let at = 14 + family.header_len();
    [at, at + 2].map(|at| match frame.get(at..at + 2) {
        Some(bytes) => u16::from_be_bytes([bytes[0], bytes[1]]),
        None => 0,
    })
}

/// Sets the flags of a segment.
type Fill = fn(&mut TcpHeader);

/// Single frames to a port without a flow, from an unused address; the
/// last is a SYN.
fn strange_frames(family: Family, net: &Direct, attacker: &Attacker<'_>) -> Vec<(String, Vec<u8>)> {
    let nobody: IpAddr = match family {
        Family::V4 => [10, 0, 0, 99].into(),
        Family::V6 => [0xfd00, 0, 0, 0, 0, 0, 0, 0x99].into(),
    };
    let mut frames: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add =
        |name: &str, fill: &dyn Fn(&mut TcpHeader), payload: &[u8], damage: Option<(usize, u8)>| {
            let port = u16::try_from(FIRST_PORT + frames.len()).unwrap();
            let from = SocketAddr::new(nobody, port);
            let to = net.b.socket(family, PORT);
            let fill = |tcp: &mut TcpHeader| {
                (tcp.sequence_number, tcp.acknowledgment_number) = (1000, 2000);
                fill(tcp);
            };
            let packet = raw::segment(from, to, fill, payload).unwrap();
            let mut frame = attacker.frame(&packet);
            if let Some((at, byte)) = damage {
                frame[14 + family.header_len() + at] = byte;
            }
            frames.push((name.to_owned(), frame));
        };
    const LENGTHS: usize = 12;
    const OPTIONS: usize = 20;
    let flags: [(&str, Fill); 10] = [
        ("SYN", |tcp| tcp.syn = true),
        ("ACK", |tcp| tcp.ack = true),
        ("FIN", |tcp| tcp.fin = true),
        ("FIN|ACK", |tcp| (tcp.fin, tcp.ack) = (true, true)),
        ("SYN|ACK", |tcp| (tcp.syn, tcp.ack) = (true, true)),
        ("SYN|FIN", |tcp| (tcp.syn, tcp.fin) = (true, true)),
        ("RST", |tcp| tcp.rst = true),
        ("RST|ACK", |tcp| (tcp.rst, tcp.ack) = (true, true)),
        ("RST|SYN", |tcp| (tcp.rst, tcp.syn) = (true, true)),
        ("no flag", |_| {}),
    ];
    for (name, fill) in flags {
        add(name, &fill, b"", None);
        add(&format!("{name} with a payload"), &fill, b"payload", None);
        // A SYN's usual options, and no more than zeros.
        for options in [
            &[2, 4, 5, 180, 4, 2, 1, 1, 1, 3, 3, 7][..],
            &[0; 4],
            &[0; 40],
        ] {
            let length = options.len();
            let fill = |tcp: &mut TcpHeader| {
                fill(tcp);
                tcp.set_options_raw(options).unwrap();
            };
            add(
                &format!("{name} with {length} bytes of options"),
                &fill,
                b"",
                None,
            );
            // The first option says that it has none, or more than there are.
            for said in [0, 255] {
                let damage = Some((OPTIONS + 1, said));
                let name = format!("{name} with an option of {said} in {length} bytes");
                add(&name, &fill, b"", damage);
            }
        }
        for words in [0, 4, 6, 15] {
            let damage = Some((LENGTHS, words << 4));
            add(
                &format!("{name} with a header of {words} words"),
                &fill,
                b"",
                damage,
            );
        }
    }
    add(
        "data",
        &|tcp| (tcp.psh, tcp.ack) = (true, true),
        b"data",
        None,
    );
    add(
        "an empty datagram",
        &|tcp| (tcp.psh, tcp.ack) = (true, true),
        b"",
        None,
    );
    add("SYN", &|tcp| tcp.syn = true, b"", None);
    frames
}

/// After a restart the client must reset the flow that the server still has, with the
/// number that the server names. An attacker that keeps sending it other numbers must not
/// use up that one reset.
#[test]
fn guesses_do_not_use_up_the_true_reset() {
    let net = Direct::new().unwrap();
    let [near, _far] = mode::TC.attach_both(&net).unwrap();
    let (client, server) = (&net.a, &net.b);
    let sockets = Family::BOTH.map(|family| {
        let echo = udp::Server::echo(&server.netns, server.socket(family, PORT)).unwrap();
        let socket = udp::bind(&client.netns, client.socket(family, PORT)).unwrap();
        udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
        (echo, socket)
    });
    let remains = near.kill().unwrap();
    drop(remains);
    let _near = mode::TC.attach(client, &["--port", "8000"]).unwrap();

    let attacker = Attacker::new(server, client);
    let mut random = Random::new(11, 0, 0);
    let mut guesses = || -> Vec<Vec<u8>> {
        let sockets = sockets.iter();
        let guess = sockets.map(|(echo, socket)| {
            let fill = |header: &mut TcpHeader| {
                header.ack = true;
                header.sequence_number = random.number();
                header.acknowledgment_number = random.number();
            };
            let to = socket.local_addr().unwrap();
            let packet = raw::segment(echo.address(), to, fill, b"").unwrap();
            attacker.frame(&packet)
        });
        guess.collect()
    };
    let before = status::counters(&client.netns).unwrap();
    let resets = || status::counter(&client.netns, "sent_rst").unwrap();
    attacker.send(&guesses());
    wait::until(LIMIT, "the guesses to be reset", || resets() >= 2).unwrap();
    let answered = AtomicBool::new(false);
    thread::scope(|scope| {
        let guessing = scope.spawn(|| {
            let mut sent = 0;
            // A hundred a second.
            while !answered.load(Ordering::Relaxed) && sent < 2000 {
                attacker.send(&guesses());
                sent += 1;
                thread::sleep(Duration::from_millis(10));
            }
            sent
        });
        let started = Instant::now();
        let exchanges = sockets.each_ref().map(|(echo, socket)| {
            scope.spawn(|| udp::exchange(socket, echo.address(), b"back again", LIMIT))
        });
        let exchanged = exchanges.map(|exchange| exchange.join().unwrap());
        let took = started.elapsed();
        answered.store(true, Ordering::Relaxed);
        assert!(guessing.join().unwrap() > 0);
        for result in exchanged {
            result.unwrap();
        }
        let limit = wait::stretched(Duration::from_secs(3)).unwrap();
        let moved = status::moved(&before, &status::counters(&client.netns).unwrap());
        assert!(took < limit, "{took:?}: {moved:?}");
    });
}
