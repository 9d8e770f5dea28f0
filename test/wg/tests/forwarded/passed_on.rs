//! A gateway without the tunnel: what it forwards is TCP.

use xdptun_lab::content::Filling;
use xdptun_lab::{Attached, Family, Served};
use xdptun_test_wg::{Between, Path, Scenario, TUNNEL_PORT};

/// The hosts have one connection, which the gateway forwards like any other.
#[test]
fn a_gateway_without_the_tunnel_forwards_its_segments() {
    for source in ["keep", "masquerade"] {
        let between = Between::Gateway(Family::V4);
        let scenario = Scenario::new(between, 4, Filling::Pattern).unwrap();
        let gateway = scenario.gateway().unwrap();
        let hosts = scenario.attach().unwrap();
        let listen = format!("{TUNNEL_PORT}/tcp");
        let to = gateway.back_end().to_string();
        let rule = ["--listen", &listen, "--to", &to, "--source", source];
        let forward = Attached::forward(gateway.netns(), Served::WAN, &rule).unwrap();
        let wires = gateway.watch().unwrap();

        let answered = forward.explain(scenario.ping());
        answered.unwrap();
        let download = scenario.fetch(Path::Xdptun, |_| {}).unwrap();
        scenario.verify(&download).unwrap();
        scenario.down().unwrap();
        for host in hosts {
            host.stop().unwrap();
        }
        for wire in wires {
            let stats = wire.stop().unwrap().stats;
            let shown = (stats.udp_datagrams, stats.rst, stats.bad_checksums);
            assert_eq!(shown, (0, 0, 0), "{source}: {stats:#?}");
            assert_eq!(stats.handshakes.len(), 1, "{source}: {stats:#?}");
        }
        forward.stop().unwrap();
    }
}
