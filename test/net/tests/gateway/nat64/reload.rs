//! `[nat64]` of a file, and its changes.

use xdptun_lab::{Attached, Inside, link, udp, wait};
use xdptun_test_net::LIMIT;
use xdptun_test_net::service::{File, reload, reloads, wait_for_control};
use xdptun_test_net::translated::{address_of, called, status, without_ipv4};

/// The tables of a file: NAT64 with these keys, and what translates its pool.
fn file(keys: &str) -> String {
    format!(
        "[nat64]\nallow-private = true\n{keys}\n[interface.{}.nat]\ninside = \"100.64.0.0/16\"\n",
        Inside::WAN
    )
}

#[test]
fn a_reload_changes_clients_and_ends_nat64() {
    let net = Inside::new().unwrap();
    without_ipv4(&net);
    let inside = "inside = \"fd00:7::/64\"";
    let config = File::new(&file(inside));
    let service =
        Attached::translating(&net.gateway, &mut config.command(&net.gateway, &[])).unwrap();
    service.wait_all_ready(&[Inside::WAN]).unwrap();
    wait_for_control(&net.gateway);
    let [server, _] = &net.outside;
    let _echo = udp::Server::echo(&server.netns, (server.v4, 7)).unwrap();
    let socket = udp::bind(&net.a.netns, (net.a.v6, 0)).unwrap();
    socket.connect(called(server.v4, 7)).unwrap();
    let talks = || {
        socket.send(b"still here").unwrap();
        udp::receive(&socket, LIMIT).unwrap();
    };
    talks();
    let address = address_of(&net.gateway, net.a.v6).unwrap();
    // A static address for another client; the first keeps its own.
    let fixed = format!(
        "{inside}\nstatic = \"100.64.0.9={}\"\nper-prefix = 7",
        net.b.v6
    );
    config.write(&file(&fixed));
    reloads(&net.gateway, &["xdptun64: changed"]);
    talks();
    assert_eq!(address_of(&net.gateway, net.a.v6), Some(address));
    assert_eq!(
        address_of(&net.gateway, net.b.v6),
        Some("100.64.0.9".parse().unwrap())
    );
    assert_eq!(status(&net.gateway).unwrap()["max_per_prefix"], 7);
    // What cannot change is refused, and changes nothing.
    config.write(&file(&format!("{inside}\nprefix = \"fd00:64::/96\"")));
    reload(&net.gateway).assert_one_line(&["nothing was changed", "prefix", "64:ff9b::/96"]);
    talks();
    // Clients of a network that is gone lose their addresses.
    config.write(&file("inside = \"fd00:8::/64\""));
    reloads(&net.gateway, &["xdptun64: changed"]);
    assert_eq!(address_of(&net.gateway, net.a.v6), None);
    wait::until(LIMIT, "the refusal", || {
        socket.send(b"not any more").is_err()
    })
    .unwrap();
    config.write(&format!(
        "[interface.{}.nat]\ninside = \"100.64.0.0/16\"\n",
        Inside::WAN
    ));
    reloads(&net.gateway, &["xdptun64: removed"]);
    let devices = link::names(&net.gateway).unwrap();
    assert!(
        !devices.contains(&Attached::NAT64.to_owned()),
        "{devices:?}"
    );
    // And it comes again.
    config.write(&file(inside));
    let line = "xdptun64: translates fd00:7::/64 to 100.64.0.0/16";
    reloads(&net.gateway, &[line]);
    wait::until(LIMIT, "an answer", || {
        let _ = socket.send(b"again");
        udp::receive(&socket, LIMIT / 10).is_ok()
    })
    .unwrap();
    service.stop().unwrap();
}
