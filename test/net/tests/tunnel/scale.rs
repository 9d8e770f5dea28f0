//! Many flows at once, from several addresses and many ports to one server.

use std::collections::HashSet;
use std::env::VarError;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use xdptun_lab::{Attached, Direct, Family, Host, udp, wait};
use xdptun_test_net::memory::{Hash, map_memory};
use xdptun_test_net::{LIMIT, PORT, mode, status};

/// How many flows, unless [`FLOWS_VARIABLE`] says so.
const FLOWS: usize = 60_000;

/// The environment variable with another number of flows.
const FLOWS_VARIABLE: &str = "XDPTUN_FLOWS";

/// Addresses of the client.
const ADDRESSES: u8 = 8;

/// The first port of each address; another than ours.
const FIRST_PORT: u16 = 10_000;

/// The lengths of keys and values in the table of flows, in bytes.
const FLOWS_TABLE: Hash = Hash {
    key: 36,
    value: 160,
};

/// How many may wait for an answer at a time.
const PACE: usize = 256;

/// How long it may take until all flows of an idle tunnel are gone: they are
/// ended, kept for two seconds, and removed.
const END: Duration = Duration::from_secs(30);

#[test]
fn many_flows_carry_data_at_once_and_end() {
    let count = flows();
    let net = Direct::new().unwrap();
    let port = PORT.to_string();
    let attached = mode::TC.attach_both(&net).unwrap();
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let ends = ends(&net.a, count).unwrap();
    let exchange = |ends: &[SocketAddr], round| {
        exchange(&net.a, ends, echo.address(), round).unwrap_or_else(|error| panic!("{error:#}"))
    };
    let memory = || map_memory(attached[1].process().pid(), FLOWS_TABLE).unwrap();
    let empty = memory();

    let took = exchange(&ends, 1);
    println!(
        "{count} flows opened in {took:.2?}, {:.0} in a second",
        count as f64 / took.as_secs_f64()
    );
    let full = memory();
    let each = (full.saturating_sub(empty)) / count as u64;
    println!("the table took {empty} bytes, now {full}: {each} for each flow");

    for host in [&net.a, &net.b] {
        status::wait_states(&host.netns, "established", count).unwrap();
    }
    println!("all echo again within {:.2?}", exchange(&ends, 2));
    assert_eq!(echo.datagrams(), 2 * count as u64);
    for host in [&net.a, &net.b] {
        let all = status::flows(&host.netns).unwrap();
        let remotes: HashSet<_> = all.iter().map(|f| (&f.local, &f.remote)).collect();
        assert_eq!((all.len(), remotes.len()), (count, count));
        let wrong = all.iter().find(|flow| (flow.tx.0, flow.rx.0) != (2, 2));
        assert_eq!(wrong, None);
        let counters = status::counters(&host.netns).unwrap();
        for name in ["tx_disguised", "rx_restored"] {
            assert_eq!(
                counters.get(name),
                Some(&(2 * count as u64)),
                "{counters:?}"
            );
        }
        let lost = counters
            .keys()
            .find(|name| name.contains("lost") || name.contains("drop"));
        assert_eq!(lost, None, "{counters:?}");
    }

    // Only now, so that none ends while others are opened.
    let start = Instant::now();
    let arguments = ["--port", &port, "--take-over", "--idle-timeout", "1"];
    let impatient = mode::TC.attach(&net.a, &arguments).unwrap();
    for host in [&net.a, &net.b] {
        wait::until_some(END, "the table to be empty", || {
            Ok(status::flows(&host.netns)?.is_empty().then_some(()))
        })
        .unwrap();
    }
    println!("the tables are empty after {:.2?}", start.elapsed());
    let ended = status::counter(&net.b.netns, "rx_fin").unwrap();
    assert_eq!(ended, count as u64);
    assert_eq!(status::counter(&net.b.netns, "rx_rst").unwrap(), 0);

    // There is room again.
    exchange(&ends[..PACE.min(count)], 3);
    impatient.stop().unwrap();
    let [_, far]: [Attached; 2] = attached;
    far.stop().unwrap();
}

/// [`FLOWS`], or what the environment says.
fn flows() -> usize {
    match std::env::var(FLOWS_VARIABLE) {
        Ok(text) => text.parse().expect("XDPTUN_FLOWS is a number"),
        Err(VarError::NotPresent) => FLOWS,
        Err(error) => panic!("{error}"),
    }
}

/// The client's ends of the flows, spread over several addresses.
fn ends(host: &Host, count: usize) -> Result<Vec<SocketAddr>> {
    let mut addresses = vec![host.address(Family::V4)];
    let mut batch = String::new();
    for number in 0..ADDRESSES - 1 {
        let address: IpAddr = [10, 0, 0, 100 + number].into();
        batch += &format!("address add {address}/24 dev {}\n", Host::DEV);
        addresses.push(address);
    }
    host.netns.run_with_input("ip", ["-batch", "-"], &batch)?;
    let end = |index: usize| {
        let address = addresses[index % addresses.len()];
        let port = u16::try_from(index / addresses.len())?;
        let port = port.checked_add(FIRST_PORT).context("too many flows")?;
        Ok(SocketAddr::new(address, port))
    };
    (0..count).map(end).collect()
}

/// Sends a datagram from each end and requires each to come back, to the one
/// that sent it. Each has a socket only meanwhile, as there may be more flows
/// than files that a process may open.
fn exchange(host: &Host, ends: &[SocketAddr], to: SocketAddr, round: u8) -> Result<Duration> {
    let mut took = Duration::ZERO;
    for (some, first) in ends.chunks(PACE).zip((0u32..).step_by(PACE)) {
        let payload = |number: u32| [&[round][..], &number.to_be_bytes()].concat();
        let bind = || some.iter().map(UdpSocket::bind).collect();
        let sockets: std::io::Result<Vec<UdpSocket>> = host.netns.enter(bind)?;
        let sockets = sockets.context("cannot bind")?;
        let start = Instant::now();
        for (socket, number) in sockets.iter().zip(first..) {
            socket.send_to(&payload(number), to)?;
        }
        for (socket, number) in sockets.iter().zip(first..) {
            let answer = udp::receive(socket, LIMIT)
                .with_context(|| format!("number {number} of round {round}"))?;
            ensure!(answer == (payload(number), to), "{answer:?} to {number}");
        }
        took += start.elapsed();
    }
    Ok(took)
}
