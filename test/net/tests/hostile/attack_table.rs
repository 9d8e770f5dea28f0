//! Attackers that fill the flow table: strangers with handshakes that carry nothing, and
//! users of the host with datagrams to very many addresses. Neither keeps others from
//! opening flows, and neither ends a flow that carries data.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use etherparse::TcpHeader;
use nix::unistd::{Uid, setfsuid};
use xdptun_lab::segment::{Content, parse};
use xdptun_lab::{Attached, Capture, Direct, Family, Host, burst, link, udp, wait};
use xdptun_test_net::conversation::Conversation;
use xdptun_test_net::{LIMIT, PORT, mode, raw, status};

/// How many flows the table of host B holds.
const ROOM: usize = 4096;
/// How many of peers may wait for their first answer, and of this host's other users.
const SHARE: usize = ROOM / 4;
/// How many of one address, or IPv6 network of 64 bits.
const OF_NETWORK: usize = ROOM / 32;
/// How many handshakes strangers make: more than the table holds.
const HANDSHAKES: usize = 5000;
/// A datagram of a conversation.
const EVERY: Duration = Duration::from_millis(20);
/// The client's end of the flow that is there before.
const OLD: u16 = 42_000;

/// Both hosts attached, and an echo server of each family on both.
struct Scene {
    old: Conversation,
    _echoes: Vec<udp::Server>,
    _attached: [Attached; 2],
    net: Direct,
}

impl Scene {
    fn new() -> Self {
        let net = Direct::new().unwrap();
        let port = PORT.to_string();
        let near = mode::TC.attach(&net.a, &["--port", &port]).unwrap();
        let arguments = ["--port", &port, "--max-flows", &ROOM.to_string()];
        let far = mode::TC.attach(&net.b, &arguments).unwrap();
        let hosts = [&net.a, &net.b].into_iter();
        let echoes = hosts.flat_map(|host| {
            let echo = |family| udp::Server::echo(&host.netns, host.socket(family, PORT)).unwrap();
            Family::BOTH.map(echo)
        });
        let echoes = echoes.collect();
        let (from, to) = (
            net.a.socket(Family::V4, OLD),
            net.b.socket(Family::V4, PORT),
        );
        let old = Conversation::start(0, &net.a.netns, from, to, EVERY).unwrap();
        let start = Instant::now();
        wait::until(LIMIT, "a flow", || old.first_answer(start).is_some()).unwrap();
        Self {
            old,
            _echoes: echoes,
            _attached: [near, far],
            net,
        }
    }

    fn counter(&self, name: &str) -> usize {
        let count = status::counter(&self.net.b.netns, name).unwrap();
        usize::try_from(count).unwrap()
    }

    /// Requires new flows both ways and in both families to open while something goes on,
    /// within a limit; and the old one to be unchanged.
    fn require_newcomers(&self, limit: Duration, case: &str) {
        let start = Instant::now();
        let ways = [(&self.net.b, &self.net.a), (&self.net.a, &self.net.b)];
        let mut id = 0;
        let newcomers = ways.map(|(from, to)| {
            Family::BOTH.map(|family| {
                id += 1;
                let ends = (from.socket(family, 0), to.socket(family, PORT));
                Conversation::start(id, &from.netns, ends.0, ends.1, EVERY).unwrap()
            })
        });
        let all = || newcomers.iter().flatten();
        let all_up = || all().all(|newcomer| newcomer.first_answer(start).is_some());
        let up = wait::until(limit, "new flows", all_up);
        let took: Vec<_> = all()
            .map(|newcomer| (newcomer.name().to_owned(), newcomer.first_answer(start)))
            .map(|(name, answer)| (name, answer.map(|(_, back)| back - start)))
            .collect();
        println!("{case}: {took:.2?}");
        up.unwrap_or_else(|error| panic!("{case}: {error}: {took:?}"));
        self.require_old(case);
    }

    /// Requires the old flow to carry data, and never to have been opened again.
    fn require_old(&self, case: &str) {
        let moment = Instant::now();
        wait::until(LIMIT, "the old flow to go on", || {
            self.old.first_answer(moment).is_some()
        })
        .unwrap();
        let (_, answered) = self.old.since(moment - Duration::from_secs(3600));
        let remote = self.net.a.socket(Family::V4, OLD).to_string();
        let flows = status::flows(&self.net.b.netns).unwrap();
        let old = flows.iter().find(|flow| flow.remote == remote);
        let sent = old.map(|flow| usize::try_from(flow.tx.0).unwrap());
        assert!(sent >= Some(answered), "{case}: {sent:?} of {answered}");
    }

    /// The ACKs that complete a handshake of host B with each of these strangers.
    fn acknowledgements(&self, strangers: &[SocketAddr]) -> Vec<Vec<u8>> {
        let (from, to) = (&self.net.a, &self.net.b);
        let addresses =
            [to, from].map(|host| link::ethernet_address(&host.netns, Host::DEV).unwrap());
        let frame = |stranger: &SocketAddr, fill: &dyn Fn(&mut TcpHeader)| {
            let family = if stranger.is_ipv4() {
                Family::V4
            } else {
                Family::V6
            };
            let fill = |tcp: &mut TcpHeader| fill(tcp);
            let packet = raw::segment(*stranger, to.socket(family, PORT), fill, b"").unwrap();
            raw::frame(addresses, &packet)
        };
        let take = |numbers: &mut HashMap<SocketAddr, u32>, frame: &xdptun_lab::Frame| {
            if !frame.outgoing
                && let Ok(Content::Transport(packet)) = parse(frame)
                && let Some(tcp) = packet.tcp()
                && tcp.syn
            {
                numbers.insert(packet.destination, tcp.seq);
            }
        };
        let numbers = Capture::fold(&from.netns, Host::DEV, HashMap::new(), take).unwrap();
        for some in strangers.chunks(256) {
            let syn = |tcp: &mut TcpHeader| (tcp.syn, tcp.sequence_number) = (true, 1000);
            let syns: Vec<_> = some.iter().map(|stranger| frame(stranger, &syn)).collect();
            burst::send_all(&from.netns, Host::DEV, &syns).unwrap();
            wait::until(LIMIT, "SYN-ACKs", || {
                numbers.peek(|numbers| some.iter().all(|stranger| numbers.contains_key(stranger)))
            })
            .unwrap();
        }
        let numbers = numbers.stop().unwrap();
        let acknowledge = |stranger: &SocketAddr| {
            let fill = |tcp: &mut TcpHeader| {
                (tcp.ack, tcp.sequence_number) = (true, 1001);
                tcp.acknowledgment_number = numbers[stranger].wrapping_add(1);
            };
            frame(stranger, &fill)
        };
        strangers.iter().map(acknowledge).collect()
    }

    /// How many flows each network has that host B never answered.
    fn waiting(&self) -> HashMap<IpAddr, usize> {
        let mut waiting = HashMap::new();
        for flow in status::flows(&self.net.b.netns).unwrap() {
            let remote: SocketAddr = flow.remote.parse().unwrap();
            if flow.tx.0 == 0 && remote.ip() != self.net.a.address(Family::V4) {
                *waiting.entry(network(remote.ip())).or_default() += 1;
            }
        }
        waiting
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            [a, b, c, d, 0, 0, 0, 0].into()
        }
    }
}

/// Tells a flood to stop, also when an assertion fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends frames from A to B again and again, as fast as it can, while `meanwhile` runs.
fn flood(net: &Direct, frames: &[Vec<u8>], meanwhile: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                burst::send_all(&net.a.netns, Host::DEV, frames).unwrap();
            }
        });
        meanwhile();
    });
}

/// One has an address of IPv4, the other a network of IPv6 and as many addresses in it as it
/// likes. Each completes more handshakes than fit in half of the table, and goes on.
#[test]
fn two_strangers_take_no_more_than_their_part() {
    let scene = Scene::new();
    let strangers: Vec<SocketAddr> = (0..HANDSHAKES / 2)
        .flat_map(|number| {
            let number = u16::try_from(number).unwrap();
            let alone: IpAddr = [10, 0, 0, 66].into();
            let neighbour: IpAddr = [0x2001, 0xdb8, 0, 7, 0, 0, 0, number].into();
            [alone, neighbour].map(|address| SocketAddr::new(address, 10_000 + number))
        })
        .collect();
    let frames = scene.acknowledgements(&strangers);
    flood(&scene.net, &frames, || {
        let refused = || scene.counter("rx_drop_share");
        wait::until(LIMIT, "strangers to be refused", || refused() > ROOM).unwrap();
        let limit = Duration::from_secs(3);
        scene.require_newcomers(limit, "two strangers");
        let waiting = scene.waiting();
        println!("flows of strangers: {waiting:?}");
        assert_eq!(waiting.len(), 2, "{waiting:?}");
        // They earn a little of it back meanwhile.
        let part = OF_NETWORK / 2..=2 * OF_NETWORK;
        assert!(
            waiting.values().all(|count| part.contains(count)),
            "{waiting:?}"
        );
        assert_eq!(scene.counter("rx_drop_table_full"), 0);
    });
    scene.require_old("after two strangers");
}

/// None of them takes more than its part, but all of them together would.
#[test]
fn many_strangers_share_a_quarter() {
    const NETWORKS: u16 = 100;
    let scene = Scene::new();
    let strangers: Vec<SocketAddr> = (0..HANDSHAKES)
        .map(|number| {
            let number = u16::try_from(number).unwrap();
            let [high, low] = (number % NETWORKS).to_be_bytes();
            let address: IpAddr = match number % 2 {
                0 => [10, 1, high, low].into(),
                _ => [0x2001, 0xdb8, 0, number % NETWORKS, 0, 0, 0, 1].into(),
            };
            SocketAddr::new(address, 10_000 + number)
        })
        .collect();
    let frames = scene.acknowledgements(&strangers);
    flood(&scene.net, &frames, || {
        let refused = || scene.counter("rx_drop_share");
        wait::until(LIMIT, "strangers to be refused", || refused() > ROOM).unwrap();
        scene.require_newcomers(LIMIT, "many strangers");
        let all: usize = scene.waiting().values().sum();
        println!("{all} flows of strangers");
        // CPUs that open a flow each at once may both find the last place.
        let cpus = thread::available_parallelism().unwrap().get();
        assert!((SHARE / 2..=SHARE + cpus).contains(&all), "{all}");
        assert_eq!(scene.counter("rx_drop_table_full"), 0);
    });
    scene.require_old("after many strangers");
}

/// A user without privileges sends a datagram to each of more addresses than the table has
/// room for, and none of them answers.
#[test]
fn a_user_of_the_host_takes_no_more_than_a_share() {
    /// Any that is not root.
    const USER: u32 = 12_345;
    let scene = Scene::new();
    let host = &scene.net.b;
    // The way there leads to a router that is not there.
    for command in [
        "neigh add 10.0.0.77 lladdr 02:00:00:00:00:77 dev eth0",
        "neigh add fd00::77 lladdr 02:00:00:00:00:77 dev eth0",
        "route add 10.128.0.0/9 via 10.0.0.77",
        "route add 2001:db8::/32 via fd00::77",
    ] {
        host.netns.run("ip", command.split(' ')).unwrap();
    }
    let send = |user: u32, family: Family, count: u16| {
        host.netns
            .enter(|| {
                // The thread ends with it; a socket belongs to the user of the thread.
                setfsuid(Uid::from_raw(user));
                let any = SocketAddr::new(host.address(family), 0);
                let socket = std::net::UdpSocket::bind(any).unwrap();
                for number in 0..count {
                    let [high, low] = number.to_be_bytes();
                    let address: IpAddr = match family {
                        Family::V4 => [10, 200, high, low].into(),
                        Family::V6 => [0x2001, 0xdb8, 0, number, 0, 0, 0, 1].into(),
                    };
                    socket.send_to(b"hello", (address, PORT)).unwrap();
                }
            })
            .unwrap();
    };
    let called = || {
        let flows = status::flows(&host.netns).unwrap().into_iter();
        flows.filter(|flow| flow.state == "syn-sent").count()
    };
    for family in Family::BOTH {
        let before = scene.counter("tx_drop_opening");
        send(USER, family, u16::try_from(HANDSHAKES).unwrap());
        let refused = scene.counter("tx_drop_opening") - before;
        let waiting = called();
        println!("{family}: {waiting} are called, {refused} datagrams refused");
        assert!(refused > HANDSHAKES / 2, "{family}: {refused}");
        assert!(
            (SHARE / 2..=SHARE).contains(&waiting),
            "{family}: {waiting}"
        );
        let limit = Duration::from_secs(3);
        scene.require_newcomers(limit, &format!("{family}, a user"));
    }
    // The control: root is not held back, so a user is not held back by chance.
    let before = scene.counter("tx_drop_opening");
    send(0, Family::V4, u16::try_from(SHARE / 2).unwrap());
    assert_eq!(scene.counter("tx_drop_opening"), before);
    scene.require_old("after a user");
}
