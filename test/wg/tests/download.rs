//! The main job: a download through WireGuard over xdptun, across a router that
//! knows only real TCP connections.

use xdptun_lab::content::Filling;
use xdptun_lab::topology::Dropped;
use xdptun_lab::{Host, link, xdptun};
use xdptun_test_wg::{Between, Path, Scenario, TUNNEL_PORT};

/// Large enough for the sequence number to pass many windows.
const MIB: usize = 64;

/// The traces that attaching may add to a host and detaching must remove.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    links: Vec<String>,
    filters: String,
    programs: String,
}

fn traces(host: &Host) -> Traces {
    let netns = &host.netns;
    let dev = Host::DEV;
    let tc = |hook| {
        netns
            .run("tc", ["filter", "show", "dev", dev, hook])
            .unwrap()
    };
    Traces {
        links: link::names(netns).unwrap(),
        filters: tc("ingress")
            + &tc("egress")
            + &netns.run("tc", ["qdisc", "show", "dev", dev]).unwrap(),
        programs: netns
            .run("ip", ["-details", "link", "show", "dev", dev])
            .unwrap(),
    }
}

#[test]
fn a_download_crosses_the_strict_router_as_one_tcp_connection() {
    let scenario = Scenario::new(Between::StrictRouter, MIB, Filling::Pattern).unwrap();
    let router = scenario.router().unwrap();
    let hosts = [&scenario.server, &scenario.client];
    let before = hosts.map(traces);

    let attached = scenario.attach().unwrap();
    let pins = hosts.map(|host| xdptun::pin_dir(&host.netns, Host::DEV).unwrap());
    assert!(pins.iter().all(|pin| pin.exists()), "{pins:?}");
    let capture = scenario.watch().unwrap();

    scenario.ping().unwrap();
    let download = scenario.fetch(Path::Xdptun, |_| {}).unwrap();
    scenario.verify(&download).unwrap();

    let connections = router.conntrack("tcp", TUNNEL_PORT).unwrap();
    assert_eq!(connections.len(), 1, "{connections:#?}");
    assert!(connections[0].contains("ESTABLISHED"), "{connections:#?}");
    assert!(connections[0].contains("[ASSURED]"), "{connections:#?}");
    let datagrams = router.conntrack("udp", TUNNEL_PORT).unwrap();
    assert_eq!(datagrams, [""; 0], "the router tracks the tunnel as UDP");

    for attached in &attached {
        let status = xdptun::status(attached.netns()).unwrap();
        let flow = &status["interfaces"][0]["flows"][0];
        assert_eq!(flow["state"], "established", "{status:#}");
    }
    for attached in attached {
        attached.stop().unwrap();
    }

    let wire = capture.stop().unwrap();
    assert_eq!(wire.udp_datagrams, 0, "{wire:#?}");
    assert_eq!(wire.bad_checksums, 0, "{wire:#?}");
    assert_eq!(wire.unready_checksums, 0, "{wire:#?}");
    assert_eq!((wire.fragments, wire.malformed), (0, 0), "{wire:#?}");
    assert_eq!(wire.segments_without_df, 0, "{wire:#?}");
    assert!(wire.payload_bytes > (MIB << 20) as u64, "{wire:#?}");
    assert!(wire.syn >= 1 && wire.syn_ack >= 1, "{wire:#?}");
    assert!(wire.fin >= 1, "a clean end says so: {wire:#?}");
    assert_eq!(wire.rst, 0, "{wire:#?}");
    assert_eq!(wire.handshakes.len(), 1, "{wire:#?}");
    let dropped = router.dropped().unwrap();
    assert_eq!(dropped, Dropped::default());

    for pin in pins {
        assert!(!pin.exists(), "{} was left", pin.display());
    }
    for (host, before) in hosts.iter().zip(before) {
        assert_eq!(traces(host), before);
    }
}

/// Attaching under a tunnel that already carries traffic must not break it,
/// and detaching must give the plain tunnel back.
#[test]
fn a_running_tunnel_survives_attach_and_detach() {
    let scenario = Scenario::new(Between::StrictRouter, 4, Filling::Pattern).unwrap();
    let verified = |path| {
        let download = scenario.fetch(path, |_| {}).unwrap();
        scenario.verify(&download).unwrap();
    };
    verified(Path::WireGuard);

    let attached = scenario.attach().unwrap();
    let capture = scenario.watch().unwrap();
    verified(Path::Xdptun);
    let wire = capture.stop().unwrap();
    assert_eq!(wire.udp_datagrams, 0, "{wire:#?}");
    assert!(wire.data_segments > 0, "{wire:#?}");

    for attached in attached {
        attached.stop().unwrap();
    }
    verified(Path::WireGuard);
}
