//! Datagrams that fit the interface, but not once they are segments: their
//! sender must learn what fits, as from any narrow link.

use std::net::UdpSocket;

use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};
use xdptun_lab::topology::{Dropped, Router};
use xdptun_lab::{
    Attached, Direct, Family, Host, Kind, Netns, Offload, Relayed, Routed, WireStats,
};
use xdptun_lab::{link, udp, wait};
use xdptun_test_net::mode;
use xdptun_test_net::socket::{discover_path, let_fragment, path_mtu, roomy, wait_error};
use xdptun_test_net::status::{self, counters_on};
use xdptun_test_net::wire::{Wire, describe, segments};
use xdptun_test_net::{LIMIT, PORT};

const MTU: usize = 1500;

/// IP header and TCP header.
fn largest(family: Family) -> usize {
    MTU - family.header_len() - 20
}

/// Path MTUs outlive the flows of a test.
fn forget_path(netns: &Netns) {
    for version in ["-4", "-6"] {
        netns
            .run("ip", [version, "route", "flush", "cache"])
            .unwrap();
    }
}

fn send(socket: &UdpSocket, length: usize) -> Result<usize, Errno> {
    let sent = socket.send(&udp::pattern(length, 8));
    sent.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap()))
}

/// Sends what does not fit, and checks that the socket knows afterwards what
/// does, and can send that.
fn learn(client: &UdpSocket, family: Family, length: usize, context: &str) {
    let largest = largest(family);
    assert_eq!(path_mtu(client, family).unwrap(), 1500, "{context}");
    send(client, length).unwrap();
    let heard = wait_error(client).unwrap();
    assert_eq!(heard, Errno::EMSGSIZE, "{context}, {length} bytes");
    assert_eq!(path_mtu(client, family).unwrap(), 1488, "{context}");
    let again = send(client, length);
    assert_eq!(again, Err(Errno::EMSGSIZE), "{context}, {length} bytes");
    assert_eq!(send(client, largest + 1), Err(Errno::EMSGSIZE), "{context}");
    let to = client.peer_addr().unwrap();
    udp::exchange(client, to, &udp::pattern(largest, 9), LIMIT)
        .unwrap_or_else(|error| panic!("{context}: {error:#}"));
}

/// One byte too much, and the most that fits the interface.
fn too_large(family: Family) -> [usize; 2] {
    [largest(family) + 1, MTU - family.header_len() - 8]
}

/// A socket that never fragments, connected to the server.
fn careful(netns: &Netns, host: &Host, family: Family, server: &udp::Server) -> UdpSocket {
    forget_path(netns);
    let client = roomy(netns, host.socket(family, 0)).unwrap();
    discover_path(&client, family).unwrap();
    client.connect(server.address()).unwrap();
    client
}

/// The programs remember what fitted, for a tick of the kernel at most.
#[test]
fn a_flow_under_way_hears_of_another_mtu() {
    const NARROW: u32 = 1440;
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let (host, netns) = (&net.a, &net.a.netns);
    for family in Family::BOTH {
        let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let client = careful(netns, host, family, &server);
        // As a datagram it fits both.
        let length = NARROW as usize - family.header_len() - 8;
        let exchange = || {
            udp::exchange(&client, server.address(), &udp::pattern(length, 8), LIMIT)
                .unwrap_or_else(|error| panic!("{family}: {error:#}"));
        };
        exchange();
        exchange();
        link::set_mtu(netns, Host::DEV, NARROW).unwrap();
        wait_tick();
        send(&client, length).unwrap();
        assert_eq!(wait_error(&client).unwrap(), Errno::EMSGSIZE, "{family}");
        assert_eq!(path_mtu(&client, family).unwrap(), 1428, "{family}");
        link::set_mtu(netns, Host::DEV, 1500).unwrap();
        forget_path(netns);
        exchange();
    }
}

/// Waits for the kernel's next tick, with which this clock moves.
fn wait_tick() {
    let read = || clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).unwrap();
    let before = read();
    wait::until(LIMIT, "a tick", || read() != before).unwrap();
}

/// Before a flow is open as after; nothing leaves for what does not fit, not
/// even a SYN.
#[test]
fn the_sender_hears_what_fits() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let (host, netns) = (&net.a, &net.a.netns);
    for offload in [true, false] {
        net.offload("tx", offload).unwrap();
        for family in Family::BOTH {
            let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
            for length in too_large(family) {
                for opened in [false, true] {
                    let context =
                        format!("{family}, tx offload {offload}, {length} bytes, opened {opened}");
                    let client = careful(netns, host, family, &server);
                    if opened {
                        udp::exchange(&client, server.address(), b"opens the flow", LIMIT).unwrap();
                    }
                    let before = status::counters(netns).unwrap();
                    let wire = Wire::watch(&[host]).unwrap();
                    learn(&client, family, length, &context);
                    let frames = wire.stop().unwrap();
                    let sent = segments(&frames, PORT);
                    let shown: Vec<_> = sent
                        .iter()
                        .map(|segment| (segment.flags(), segment.payload.len()))
                        .filter(|(flags, length)| flags != "." || *length > 0)
                        .collect();
                    let data = ("P.".to_owned(), largest(family));
                    let expected = match opened {
                        true => vec![data],
                        false => vec![("S".to_owned(), 0), data],
                    };
                    assert_eq!(shown, expected, "{context}: {}", describe(&sent));
                    let moved = status::moved(&before, &status::counters(netns).unwrap());
                    let opening = u64::from(!opened);
                    let expected = status::expected(&[
                        ("tx_too_big", 1),
                        ("tx_opened", opening),
                        ("sent_syn", opening),
                        ("rx_syn_ack", opening),
                        ("tx_disguised", 1),
                        ("rx_restored", 1),
                    ]);
                    assert_eq!(status::apart_from_timed(moved), expected, "{context}");
                }
            }
        }
    }
}

#[test]
fn the_sender_hears_it_without_a_link_header() {
    for offload in [Offload::None, Offload::Checksum] {
        let net = Relayed::new(Kind::Tun, offload).unwrap();
        let _attached = mode::TC.attach_to([&net.a, &net.b]).unwrap();
        for family in Family::BOTH {
            let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
            let client = careful(&net.a.netns, &net.a, family, &server);
            learn(
                &client,
                family,
                largest(family) + 1,
                &format!("{family}, {offload:?}"),
            );
            let told = status::counter(&net.a.netns, "tx_too_big").unwrap();
            assert_eq!(
                told,
                Family::BOTH.iter().position(|f| *f == family).unwrap() as u64 + 1
            );
        }
    }
}

/// A socket that lets IP fragment uses what it learns to cut its datagrams: at first what a segment
/// holds, then what one holds of a fragment.
#[test]
fn a_socket_that_fragments_hears_what_a_fragment_may_have() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let netns = &net.a.netns;
    for (family, fits) in [(Family::V4, 1472), (Family::V6, 1480)] {
        let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let client = roomy(netns, net.a.socket(family, 0)).unwrap();
        let_fragment(&client, family).unwrap();
        client.connect(server.address()).unwrap();
        udp::exchange(&client, server.address(), b"opens the flow", LIMIT).unwrap();
        let wire = Wire::watch(&[&net.a]).unwrap();
        let length = largest(family) + 1;
        for mtu in [1488, fits] {
            wait::until_some(LIMIT, "the path MTU", || {
                send(&client, length).unwrap();
                Ok((path_mtu(&client, family)? == mtu).then_some(()))
            })
            .unwrap();
        }
        let frames = wire.stop().unwrap();
        let stats = WireStats::of(PORT, &frames);
        assert_eq!((stats.udp_datagrams, stats.fragments), (0, 0), "{stats:#?}");
    }
}

/// xdptun on the router: what is too large comes from a host behind it.
#[test]
fn a_host_behind_the_router_hears_what_fits() {
    let net = Routed::new().unwrap();
    let (client, router, server) = (net.client(), &net.router.netns, &net.server);
    let args = ["--ingress", "tc", "--port", &PORT.to_string()];
    let _on_router = Attached::start(router, Router::WAN, &args).unwrap();
    let _on_server = Attached::start(&server.netns, Host::DEV, &args).unwrap();
    for offload in [true, false] {
        net.offload("tx", offload).unwrap();
        for family in Family::BOTH {
            let echo = udp::Server::echo(&server.netns, server.socket(family, PORT)).unwrap();
            for length in too_large(family) {
                let context = format!("{family}, tx offload {offload}, {length} bytes");
                let before = counters_on(router, Router::WAN).unwrap();
                let socket = careful(&client.netns, client, family, &echo);
                learn(&socket, family, length, &context);
                let after = counters_on(router, Router::WAN).unwrap();
                let moved = status::moved(&before, &after);
                assert_eq!(moved["tx_too_big"], 1, "{context}: {moved:?}");
                assert_eq!(moved["rx_restored"], 1, "{context}: {moved:?}");
            }
        }
    }
    assert_eq!(net.router.dropped().unwrap(), Dropped::default());
}

/// xdptun on the router, and a link behind it that is narrower than what the peer sends. A
/// datagram without DF arrives in pieces. Of one with DF the peer hears nothing: the error
/// quotes a datagram, which was a segment on the wire.
#[test]
fn df_is_what_it_was_on_the_link_behind_the_router() {
    const BEHIND: u32 = 1300;
    let net = Routed::new().unwrap();
    let (client, router, server) = (net.client(), &net.router.netns, &net.server);
    link::set_mtu(router, &Router::lan(0), BEHIND).unwrap();
    for ingress in ["tc", "xdp"] {
        let args = ["--ingress", ingress, "--port", &PORT.to_string()];
        let _on_router = Attached::start(router, Router::WAN, &args).unwrap();
        let _on_server = Attached::start(&server.netns, Host::DEV, &args).unwrap();
        for df in [false, true] {
            let context = format!("{ingress}, DF {df}");
            let near = roomy(&client.netns, client.socket(Family::V4, 0)).unwrap();
            let far = roomy(&server.netns, server.socket(Family::V4, PORT)).unwrap();
            if !df {
                let_fragment(&far, Family::V4).unwrap();
            }
            near.send_to(b"call", far.local_addr().unwrap()).unwrap();
            let (_, caller) = udp::receive(&far, LIMIT).unwrap();
            let before = counters_on(router, Router::WAN).unwrap();
            let payload = udp::pattern(BEHIND as usize, 5);
            far.send_to(&payload, caller).unwrap();
            if df {
                let moved = || {
                    let after = counters_on(router, Router::WAN)?;
                    let moved = status::moved(&before, &after);
                    Ok((moved.get("tx_drop_icmp") == Some(&1)).then_some(()))
                };
                wait::until_some(LIMIT, &format!("{context}: the error"), moved).unwrap();
                // The next one still comes.
                far.send_to(b"short", caller).unwrap();
                assert_eq!(udp::receive(&near, LIMIT).unwrap().0, b"short", "{context}");
            } else {
                let (arrived, _) = udp::receive(&near, LIMIT).unwrap();
                assert_eq!(arrived, payload, "{context}");
            }
        }
    }
}
