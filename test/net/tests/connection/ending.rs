//! The end of a flow: FIN, and resets true and false.

use etherparse::TcpHeader;
use xdptun_lab::{Direct, Family, Host, Routed, WireStats, link, udp, wait};
use xdptun_test_net::forgery::Flow;
use xdptun_test_net::wire::{Wire, describe, segments};
use xdptun_test_net::{LIMIT, PORT, mode, raw, status};

/// SIGINT at one end closes the flow at both ends and on the router, without a
/// reset anywhere.
#[test]
fn a_clean_end_says_so() {
    for family in Family::BOTH {
        let net = Routed::new().unwrap();
        net.offload("tx", false).unwrap();
        let (client, server) = (net.client(), &net.server);
        let [near, far] = mode::TC.attach_to([client, server]).unwrap();
        let echo = udp::Server::echo(&server.netns, server.socket(family, PORT)).unwrap();
        let socket = udp::bind(&client.netns, client.socket(family, 0)).unwrap();
        let wire = Wire::watch(&[client, server]).unwrap();
        udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
        let entries = net.router.conntrack("tcp", PORT).unwrap();
        assert_eq!(entries.len(), 1, "{entries:?}");
        assert!(entries[0].contains("ESTABLISHED"), "{entries:?}");

        near.stop().unwrap();
        wait::until_some(LIMIT, "the peer's flow to end", || {
            Ok(status::open_states(&server.netns)?.is_empty().then_some(()))
        })
        .unwrap();
        wait::until_some(LIMIT, "conntrack to see the end", || {
            let entries = net.router.conntrack("tcp", PORT)?;
            let open = entries.iter().any(|entry| entry.contains("ESTABLISHED"));
            Ok((!open).then_some(()))
        })
        .unwrap();
        far.stop().unwrap();

        let frames = wire.stop().unwrap();
        let all = segments(&frames, PORT);
        let fins: Vec<_> = all.iter().filter(|segment| segment.header().fin).collect();
        let from_client = fins
            .iter()
            .any(|fin| fin.source == socket.local_addr().unwrap());
        let from_server = fins.iter().any(|fin| fin.source == echo.address());
        assert!(from_client && from_server, "{}", describe(&all));
        assert_eq!(
            all.iter().filter(|segment| segment.header().rst).count(),
            0,
            "{}",
            describe(&all)
        );
        assert_eq!(
            net.router.dropped().unwrap().invalid,
            0,
            "{}",
            describe(&all)
        );
        drop(frames);
    }
}

#[test]
fn only_the_exact_reset_ends_a_flow() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let client_host = &net.a.netns;
    for family in Family::BOTH {
        let echo = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let socket = udp::bind(client_host, net.a.socket(family, 0)).unwrap();
        let flow = Flow::learn(&net, &socket, || {
            udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
        })
        .unwrap();
        let reset = |sequence: u32, ack: bool| {
            let fill = |header: &mut TcpHeader| {
                header.rst = true;
                header.ack = ack;
                header.sequence_number = sequence;
                header.acknowledgment_number = if ack { flow.acknowledged } else { 0 };
            };
            raw::send_segment(&net.b.netns, flow.server, flow.client, fill, b"").unwrap();
        };
        let state = || {
            let flows = status::flows(client_host).unwrap();
            let ours = flows
                .iter()
                .find(|found| found.local == flow.client.to_string());
            ours.map(|found| found.state.clone())
        };

        let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
        let drops = || status::counter(client_host, "rx_drop_reset").unwrap();
        for offset in [1, u32::MAX, 1000, 1 << 30, 1 << 31] {
            for ack in [false, true] {
                let before = drops();
                reset(flow.next.wrapping_add(offset), ack);
                wait::until(LIMIT, "the reset to be refused", || drops() == before + 1).unwrap();
                assert_eq!(state().as_deref(), Some("established"), "{family} {offset}");
            }
        }
        udp::exchange(&socket, echo.address(), b"still there", LIMIT).unwrap();
        let frames = wire.stop().unwrap();
        let all = segments(&frames, PORT);
        assert_eq!(
            all.iter().filter(|segment| segment.header().syn).count(),
            0,
            "{}",
            describe(&all)
        );
        // RFC 5961 section 3.2: those inside the window are challenged.
        let ours = all.iter().filter(|segment| segment.source == flow.client);
        let challenges = ours.filter(|segment| segment.flags() == ".").count();
        assert!(challenges >= 6, "{challenges}: {}", describe(&all));

        let before = status::counter(client_host, "rx_rst").unwrap();
        reset(flow.next.wrapping_add(11), false);
        wait::until_some(LIMIT, "the exact reset", || {
            Ok((status::counter(client_host, "rx_rst")? == before + 1).then_some(()))
        })
        .unwrap();
        assert_ne!(state().as_deref(), Some("established"), "{family}");

        // The server still has the flow, and the next datagram is not lost.
        udp::exchange(&socket, echo.address(), b"again", LIMIT).unwrap();
        assert_eq!(state().as_deref(), Some("established"), "{family}");
        udp::exchange(&socket, echo.address(), b"and again", LIMIT).unwrap();
    }
}

/// A SYN with another number does not disturb an open flow (RFC 5961 section 4).
#[test]
fn a_forged_syn_or_fin_does_not_end_a_flow() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    for family in Family::BOTH {
        let echo = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let socket = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
        let flow = Flow::learn(&net, &socket, || {
            udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
        })
        .unwrap();
        let before = status::counters(&net.a.netns).unwrap();
        let send = |fill: &dyn Fn(&mut TcpHeader)| {
            raw::send_segment(
                &net.b.netns,
                flow.server,
                flow.client,
                |header| fill(header),
                b"",
            )
            .unwrap();
        };
        send(&|header| {
            header.syn = true;
            header.sequence_number = flow.next.wrapping_add(5000);
        });
        send(&|header| {
            (header.fin, header.ack) = (true, true);
            header.sequence_number = flow.next.wrapping_add(1);
            header.acknowledgment_number = flow.acknowledged;
        });
        let forged = [("rx_syn", 1), ("rx_drop_fin", 1), ("sent_challenge_ack", 2)];
        status::wait_moved(&net.a.netns, &before, &forged).unwrap();
        let wire = Wire::watch(&[&net.a]).unwrap();
        udp::exchange(&socket, echo.address(), b"still there", LIMIT).unwrap();
        let stats = WireStats::of(PORT, &wire.stop().unwrap());
        assert_eq!((stats.syn, stats.data_segments), (0, 1), "{stats:#?}");
    }
}

/// The server also notices that the peer has gone, and opens the flow from its side:
/// behind a firewall that forgot the flow, only the server may have data to send.
#[test]
fn the_called_end_opens_a_dead_flow_again() {
    let net = Routed::new().unwrap();
    let (client, server) = (net.client(), &net.server);
    let _attached = mode::TC.attach_to([client, server]).unwrap();
    let sockets = Family::BOTH.map(|family| {
        let called = udp::bind(&server.netns, server.socket(family, PORT)).unwrap();
        let calling = udp::bind(&client.netns, client.socket(family, 0)).unwrap();
        calling
            .send_to(b"hello", called.local_addr().unwrap())
            .unwrap();
        called.set_read_timeout(Some(LIMIT)).unwrap();
        let (_, caller) = called.recv_from(&mut [0; 16]).unwrap();
        (called, calling, caller)
    });
    assert_eq!(status::counter(&server.netns, "sent_syn").unwrap(), 0);
    let _down = link::down(&client.netns, Host::DEV).unwrap();
    for (called, _, caller) in &sockets {
        called.send_to(b"are you there", caller).unwrap();
    }
    wait::until_some(LIMIT, "both flows to be opened again", || {
        let states = status::open_states(&server.netns)?;
        Ok((states == ["syn-sent"; 2]).then_some(()))
    })
    .unwrap();
    let syns = status::counter(&server.netns, "sent_syn").unwrap();
    assert!(syns >= 2, "{syns}");
}
