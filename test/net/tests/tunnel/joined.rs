//! Restored datagrams that come in bursts: GRO merges them for sockets that take several at once,
//! and none overtakes another.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use xdptun_lab::{Attached, Direct, Family, Host, cpu, udp, wait};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::socket::{self, receive_merged, take_merged};
use xdptun_test_net::{LIMIT, PORT, status};

/// Payload bytes of a datagram.
const SIZE: usize = 1200;

/// The most that one send takes: 64 KiB.
const MOST: usize = 50;

/// How many datagrams may be under way, fewer than any queue holds.
const WINDOW: usize = 200;

/// How many come one after the other, and the pause behind them.
type Shape = [(usize, Duration)];

const BURSTS: &Shape = &[(MOST, Duration::ZERO)];

/// Bursts, and single datagrams behind them: at once, when the burst may still be on its way, and
/// some periods later.
const MIXED: &Shape = &[
    (MOST, Duration::ZERO),
    (1, Duration::ZERO),
    (1, Duration::from_micros(300)),
    (MOST, Duration::ZERO),
    (MOST, Duration::from_millis(5)),
    (1, Duration::from_millis(5)),
    (1, Duration::from_millis(9)),
    (3, Duration::ZERO),
    (17, Duration::from_millis(2)),
];

fn payload(number: usize) -> Vec<u8> {
    let mut payload = udp::pattern(SIZE, number.to_le_bytes()[0]);
    payload[..8].copy_from_slice(&number.to_le_bytes());
    payload
}

/// Two ends of an open flow; the client's sends of several datagrams are super-packets.
fn open(net: &Direct, family: Family) -> (UdpSocket, UdpSocket) {
    let (client, server) = socket::open(&net.a, &net.b, family).unwrap();
    setsockopt(&client, sockopt::UdpGsoSegment, &(SIZE as i32)).unwrap();
    (client, server)
}

/// Sends `total` datagrams of this shape, which all have to arrive, in their order. With `moves`
/// each send is from another CPU, and the whole way to the other host is on it.
fn carry(client: &UdpSocket, server: &UdpSocket, shape: &Shape, total: usize, moves: bool) {
    carry_all(client, server, shape, total, moves, |next, datagram| {
        assert!(datagram == payload(next), "{next} is another, or differs");
    });
}

/// The same, if `check` takes each as the one of that number.
fn carry_all(
    client: &UdpSocket,
    server: &UdpSocket,
    shape: &Shape,
    total: usize,
    moves: bool,
    mut check: impl FnMut(usize, &[u8]) + Send,
) {
    let cpus = cpu::allowed().unwrap();
    let arrived = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = 0;
            while next < total {
                for datagram in receive_merged(server).unwrap() {
                    check(next, &datagram);
                    next += 1;
                }
                arrived.store(next, Ordering::Relaxed);
            }
        });
        let mut sent = 0;
        for (at, (count, pause)) in shape.iter().cycle().enumerate() {
            if moves {
                cpu::pin(cpu::this_thread(), cpus[at % cpus.len()]).unwrap();
            }
            let end = total.min(sent + count);
            let some: Vec<u8> = (sent..end).flat_map(payload).collect();
            client.send(&some).unwrap();
            sent = end;
            if sent == total {
                break;
            }
            thread::sleep(*pause);
            wait::until(LIMIT, "room under way", || {
                sent - arrived.load(Ordering::Relaxed) < WINDOW
            })
            .unwrap();
        }
    });
}

/// The receiver's counters, by name.
fn counters(net: &Direct) -> impl Fn(&str) -> u64 {
    let counters = status::counters(&net.b.netns).unwrap();
    move |name| counters.get(name).copied().unwrap_or(0)
}

/// Counts what comes up with a mark.
fn watch_marks(net: &Direct) {
    let rules = "table inet marks {
        counter marked {}
        chain input { type filter hook prerouting priority raw; meta mark != 0 counter name marked; }
    }";
    let nft = net.b.netns.run_with_input("nft", ["-f", "-"], rules);
    nft.unwrap();
}

fn marked(net: &Direct) -> String {
    let list = ["list", "counter", "inet", "marks", "marked"];
    net.b.netns.run("nft", list).unwrap()
}

fn keeps_their_order(mode: Mode, moves: bool) {
    const TOTAL: usize = 20_000;
    let net = Direct::new().unwrap();
    watch_marks(&net);
    let _attached = mode.attach_both(&net).unwrap();
    for (family, round) in Family::BOTH.into_iter().zip(1..) {
        let (client, server) = open(&net, family);
        take_merged(&server).unwrap();
        carry(&client, &server, MIXED, TOTAL, moves);
        let counted = counters(&net);
        let all = round * (TOTAL as u64 + 1);
        assert_eq!(counted("rx_restored"), all, "{family}");
        let returned = counted("rx_gro_returned");
        assert_eq!(returned, counted("rx_gro_sent"), "{family}");
        assert!(returned > all / 2, "{family}: few");
        assert!(returned < all, "{family}: none went up directly");
        let merged = counted("rx_gro_merged");
        assert!(merged > all / 2, "{family}: few are merged");
    }
    let marked = marked(&net);
    assert!(marked.contains("packets 0 "), "{marked}");
}

#[test]
fn bursts_are_merged_and_none_overtakes_another() {
    keeps_their_order(mode::TC, false);
}

#[test]
fn bursts_are_merged_through_filters_as_well() {
    keeps_their_order(mode::TC_CLSACT, false);
}

#[test]
fn none_overtakes_another_on_another_cpu() {
    assert!(
        cpu::allowed().unwrap().len() > 1,
        "nothing to show on one CPU"
    );
    keeps_their_order(mode::TC, true);
}

/// While programs change, some may overtake others.
#[test]
fn none_is_lost_while_gro_is_switched_off_and_on() {
    const TOTAL: usize = 200_000;
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let (client, server) = open(&net, Family::V4);
    take_merged(&server).unwrap();
    let mut came = vec![false; TOTAL];
    let successors = thread::scope(|scope| {
        scope.spawn(|| {
            carry_all(&client, &server, BURSTS, TOTAL, false, |_, datagram| {
                let number = usize::from_le_bytes(*datagram.first_chunk().unwrap());
                assert!(datagram == payload(number) && !came[number], "{number}");
                came[number] = true;
            });
        });
        ["off", "auto"].map(|gro| {
            let port = PORT.to_string();
            let args = [
                "--port",
                &port,
                "--ingress",
                "tc",
                "--gro",
                gro,
                "--take-over",
            ];
            Attached::start(&net.b.netns, Host::DEV, &args).unwrap()
        })
    });
    let counted = counters(&net);
    assert_eq!(counted("rx_gro_returned"), counted("rx_gro_sent"));
    drop(successors);
}

/// What does not merge goes up directly after a while.
#[test]
fn a_socket_that_takes_one_at_a_time_is_spared() {
    const TOTAL: usize = 10_000;
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let (client, server) = open(&net, Family::V4);
    carry(&client, &server, BURSTS, TOTAL, false);
    let counted = counters(&net);
    assert_eq!(counted("rx_restored"), TOTAL as u64 + 1);
    assert_eq!(counted("rx_gro_merged"), 0);
    let joined = counted("rx_gro_returned");
    assert_eq!(joined, counted("rx_gro_sent"));
    assert!(joined > 0 && joined < TOTAL as u64 / 2, "{joined}");
}

#[test]
fn with_gro_off_each_goes_up_by_itself() {
    const TOTAL: usize = 2000;
    let net = Direct::new().unwrap();
    let hosts = [&net.a, &net.b];
    let _attached = mode::TC.attach_with(hosts, &["--gro", "off"]).unwrap();
    let (client, server) = open(&net, Family::V4);
    take_merged(&server).unwrap();
    carry(&client, &server, BURSTS, TOTAL, false);
    let counted = counters(&net);
    assert_eq!(counted("rx_restored"), TOTAL as u64 + 1);
    assert_eq!(counted("rx_gro_sent"), 0);
}
