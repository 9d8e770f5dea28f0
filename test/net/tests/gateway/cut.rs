//! Sessions whose rules a change takes away.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;
use xdptun_lab::{Attached, Family, Served, udp, wait};
use xdptun_test_net::service::{File, reload, reloads};
use xdptun_test_net::status::gateway;
use xdptun_test_net::{LIMIT, tcp};

use crate::reload::{connect, listen, rule, talk};

/// Two ports that are listened at, and two of the back end.
const LISTEN: [u16; 2] = [7000, 7001];
/// See [`LISTEN`].
const SERVICE: [u16; 2] = [8080, 8081];

fn counter(net: &Served, name: &str) -> u64 {
    let gateway = gateway(&net.gateway, Served::WAN).unwrap();
    gateway["counters"][name].as_u64().unwrap()
}

fn sessions(net: &Served) -> usize {
    let text = xdptun_lab::xdptun::run_in(&net.gateway, &["sessions", "--json"]).unwrap();
    let printed: Value = serde_json::from_str(&text).unwrap();
    printed["sessions"].as_array().unwrap().len()
}

/// Sends, and is reset in return.
fn is_reset(mut end: &TcpStream) {
    end.write_all(b"goes on").unwrap();
    end.set_read_timeout(Some(LIMIT)).unwrap();
    let told = end.read(&mut [0; 8]).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::ConnectionReset);
}

/// Whichever end sends first hears of it, and so does the other. What has its rule goes on.
#[test]
fn a_reload_cuts_sessions_of_rules_that_are_gone() {
    for family in Family::BOTH {
        for source in ["keep", "masquerade"] {
            let net = Served::new().unwrap();
            let services = SERVICE.map(|port| net.back_end.socket(family, port));
            let rules = [0, 1].map(|at| {
                rule(Served::WAN, LISTEN[at], services[at]) + &format!("source = \"{source}\"\n")
            });
            let file = File::new(&rules.concat());
            let service = file.forward(&net.gateway, &[]);
            let listeners = services.map(|at| listen(&net.back_end, at));
            let at = LISTEN.map(|port| net.listen_at(family, port));
            let called = [0, 1].map(|_| connect(&net.client, at[0], &listeners[0]));
            let stays = connect(&net.client, at[1], &listeners[1]);
            let echo = udp::Server::echo(&net.back_end.netns, services[0]).unwrap();
            let socket = udp::bind(&net.client.netns, net.client.socket(family, 0)).unwrap();
            udp::exchange(&socket, at[0], b"hello", LIMIT).unwrap();
            for connection in called.iter().chain([&stays]) {
                talk(connection, 1);
            }
            assert_eq!(sessions(&net), 4);

            // What cannot be applied cuts nothing.
            file.write(&format!("max-sessions = 7\n{}", rules[1]));
            reload(&net.gateway).assert_one_line(&["nothing was changed"]);
            for connection in &called {
                talk(connection, 2);
                // A late acknowledgement would be reset as well.
                tcp::wait_acknowledged(&connection.each_ref()).unwrap();
            }

            file.write(&rules[1]);
            reloads(&net.gateway, &["eth0: new rules apply"]);
            assert_eq!(sessions(&net), 1);
            let [[near, far], [other_near, other_far]] = &called;
            for end in [near, far, other_far, other_near] {
                is_reset(end);
            }
            assert_eq!(counter(&net, "in_drop_cut"), 2);
            talk(&stays, 3);
            drop(echo);
            service.stop().unwrap();
        }
    }
}

/// With one back end of two, its sessions go; those of the other stay. A new command tells.
#[test]
fn a_successor_cuts_sessions_of_back_ends_that_are_gone() {
    let family = Family::V4;
    let net = Served::new().unwrap();
    let services = SERVICE.map(|port| net.back_end.socket(family, port));
    let listeners = services.map(|at| listen(&net.back_end, at));
    let at = net.listen_at(family, LISTEN[0]);
    let forward = |services: &[std::net::SocketAddr], more: &[&str]| {
        let listen = LISTEN[0].to_string();
        let mut arguments = vec!["--listen".to_owned(), listen];
        for service in services {
            arguments.extend(["--to".to_owned(), service.to_string()]);
        }
        arguments.extend(more.iter().map(ToString::to_string));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Attached::forward(&net.gateway, Served::WAN, &arguments).unwrap()
    };
    let first = forward(&services[..1], &[]);
    let gone = connect(&net.client, at, &listeners[0]);
    talk(&gone, 1);
    let second = forward(&services[1..], &["--take-over", "--drain"]);
    let stays = connect(&net.client, at, &listeners[1]);
    talk(&stays, 2);
    talk(&gone, 3);
    tcp::wait_acknowledged(&gone.each_ref()).unwrap();
    let third = forward(&services[1..], &["--take-over"]);
    talk(&stays, 4);
    is_reset(&gone[0]);
    is_reset(&gone[1]);
    wait::until(LIMIT, "the drops", || {
        counter(&net, "in_drop_cut") == 1 && counter(&net, "out_drop_cut") >= 1
    })
    .unwrap();
    third.stop().unwrap();
    drop((first, second));
}
