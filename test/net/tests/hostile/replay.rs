//! SYNs with a proof of the secret, recorded and sent again.

use std::net::SocketAddr;

use xdptun_lab::{Attached, Direct, Family, Host, udp};
use xdptun_lab::{scratch::Scratch, secret};
use xdptun_test_net::nets::second_address;
use xdptun_test_net::wire::{Wire, describe, segments};
use xdptun_test_net::{LIMIT, PORT, mode, raw, status};

fn attach(host: &Host, more: &[&str]) -> Attached {
    let scratch = Scratch::new().unwrap();
    let file = secret::write(scratch.path(), "secret", "correct horse battery").unwrap();
    let port = PORT.to_string();
    let args = ["--port", &port, "--secret", &file];
    mode::TC.attach(host, &[&args, more].concat()).unwrap()
}

/// The next process knows the proofs that the last one saw: a SYN of a peer and one of its
/// own stay refused.
#[test]
fn a_recorded_syn_is_refused_after_a_take_over() {
    let net = Direct::new().unwrap();
    let (client, server) = (&net.a, &net.b);
    let _near = attach(client, &[]);
    let _old = attach(server, &[]);
    let strangers = second_address(client, 9);
    let mut recorded = Vec::new();
    for (family, stranger) in Family::BOTH.into_iter().zip(strangers) {
        let wire = Wire::watch(&[client, server]).unwrap();
        for (from, to) in [(client, server), (server, client)] {
            let echo = udp::Server::echo(&to.netns, to.socket(family, PORT)).unwrap();
            let socket = udp::bind(&from.netns, from.socket(family, 0)).unwrap();
            udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
        }
        let frames = wire.stop().unwrap();
        let all = segments(&frames, PORT);
        let syns = all.iter().filter(|segment| segment.flags() == "S");
        let syns: Vec<_> = syns.map(|syn| syn.header()).collect();
        assert_eq!(syns.len(), 2, "{}", describe(&all));
        recorded.extend(
            syns.iter()
                .map(|syn| (stranger, syn.seq, syn.options.to_vec())),
        );
    }
    let _new = attach(server, &["--take-over"]);
    for (stranger, sequence, options) in recorded {
        let before = status::counters(&server.netns).unwrap();
        let from = SocketAddr::new(stranger, 50_000);
        let family = if stranger.is_ipv4() {
            Family::V4
        } else {
            Family::V6
        };
        let fill = |header: &mut etherparse::TcpHeader| {
            (header.syn, header.sequence_number) = (true, sequence);
            header.set_options_raw(&options).unwrap();
        };
        raw::send_segment(&client.netns, from, server.socket(family, PORT), fill, b"").unwrap();
        status::wait_moved(&server.netns, &before, &[("rx_drop_unproven", 1)]).unwrap();
    }
}
