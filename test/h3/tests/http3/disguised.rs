//! HTTP/3 over xdptun on both hosts: the content arrives, and the network sees
//! TCP only.

use std::path::Path;

use xdptun_lab::content::{Filling, digest};
use xdptun_lab::topology::{Dropped, Router};
use xdptun_lab::{Capture, Direct, Family, Frame, Host, Routed, WireStats, link, segment, udp};
use xdptun_test_h3::{PORT, Scenario};
use xdptun_test_net::{mode, status};

/// Enough for sends of many datagrams: the congestion window opens far.
const MIB: usize = 16;

fn start(client: &Host, server: &Host) -> Scenario {
    let programs = Path::new(env!("CARGO_BIN_EXE_server")).parent().unwrap();
    Scenario::new(client, server, programs).unwrap()
}

/// What a host put on the wire.
#[derive(Debug)]
struct Sent {
    stats: WireStats,
    /// Payload bytes of the largest packet.
    largest: usize,
}

impl Sent {
    fn watch(host: &Host) -> Capture<Self> {
        let nothing = Self {
            stats: WireStats::new(PORT),
            largest: 0,
        };
        Capture::fold(&host.netns, Host::DEV, nothing, Self::add).unwrap()
    }

    fn add(&mut self, frame: &Frame) {
        if !frame.outgoing {
            return;
        }
        self.stats.add(frame);
        if let Ok(segment::Content::Transport(packet)) = segment::parse(frame) {
            self.largest = self.largest.max(packet.payload.len());
        }
    }
}

/// Requires that nothing but good TCP of some volume was seen.
///
/// `offloaded` tells that the device completes checksums, so that those on this
/// wire have no meaning.
#[track_caller]
fn assert_disguised(wire: &WireStats, offloaded: bool, bytes: u64) {
    assert_eq!(wire.udp_datagrams, 0, "{wire:#?}");
    assert_eq!(wire.bad_checksums, 0, "{wire:#?}");
    assert_eq!((wire.fragments, wire.malformed), (0, 0), "{wire:#?}");
    assert_eq!(wire.rst, 0, "{wire:#?}");
    assert!(wire.payload_bytes > bytes, "{wire:#?}");
    if !offloaded {
        assert_eq!(wire.unready_checksums, 0, "{wire:#?}");
    }
}

/// Whether the server handed the kernel many datagrams at once.
fn split(server: &Host) -> u64 {
    status::counter(&server.netns, "tx_split").unwrap()
}

#[test]
fn a_gibibyte_crosses_the_strict_router_as_one_tcp_connection() {
    const MIB: usize = 1024;
    let net = Routed::new().unwrap();
    net.offload("tx", false).unwrap();
    let (client, server) = (net.client(), &net.server);
    let scenario = start(client, server);
    let expected = scenario.provide("test", MIB, Filling::Pattern).unwrap();
    let attached = mode::TC.attach_to([client, server]).unwrap();
    let router = &net.router.netns;
    let stats = WireStats::new(PORT);
    let capture = Capture::fold(router, Router::WAN, stats, WireStats::add).unwrap();

    let report = scenario.fetch(Family::V4, &["test"]).unwrap();
    println!("{report}");
    assert_eq!(report.bytes(), (MIB as u64) << 20);
    assert_eq!(report.downloads[0].sha256, expected);

    assert!(split(server) > 0, "no send was of many datagrams");
    let connections = net.router.conntrack("tcp", PORT).unwrap();
    assert_eq!(connections.len(), 1, "{connections:#?}");
    assert!(connections[0].contains("ESTABLISHED"), "{connections:#?}");
    assert_eq!(net.router.conntrack("udp", PORT).unwrap(), [""; 0]);
    for attached in attached {
        attached.stop().unwrap();
    }
    let wire = capture.stop().unwrap();
    assert_disguised(&wire, false, (MIB as u64) << 20);
    assert_eq!(wire.handshakes.len(), 1, "{wire:#?}");
    assert_eq!(net.router.dropped().unwrap(), Dropped::default());
}

#[test]
fn a_hundred_requests_at_once_get_their_own_content() {
    let net = Direct::new().unwrap();
    let scenario = start(&net.a, &net.b);
    let names: Vec<String> = (0..100).map(|number| format!("file{number}")).collect();
    for (number, name) in (0..).zip(&names) {
        let content = udp::pattern(1 + 257 * usize::from(number), number);
        std::fs::write(scenario.folder().join(name), content).unwrap();
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let _attached = mode::TC.attach_both(&net).unwrap();
    for family in Family::BOTH {
        let sent = [&net.a, &net.b].map(Sent::watch);
        let report = scenario.fetch(family, &names).unwrap();
        assert_eq!(report.downloads.len(), names.len());
        for (name, download) in names.iter().zip(report.downloads) {
            let expected = digest(&scenario.folder().join(name)).unwrap();
            assert_eq!(download.sha256, expected, "{family} {name}");
        }
        for sent in sent {
            assert_disguised(&sent.stop().unwrap().stats, true, 0);
        }
    }
}

#[test]
fn every_hook_with_and_without_checksum_offload() {
    for (mode, offloaded) in [
        (mode::TC, false),
        (mode::TC, true),
        (mode::XDP, false),
        (mode::XDP, true),
    ] {
        let net = Direct::new().unwrap();
        net.offload("tx", offloaded).unwrap();
        let scenario = start(&net.a, &net.b);
        let expected = scenario.provide("test", MIB, Filling::Pattern).unwrap();
        let _attached = mode.attach_both(&net).unwrap();
        for family in Family::BOTH {
            let before = split(&net.b);
            let [client, server] = [&net.a, &net.b].map(Sent::watch);
            let report = scenario.fetch(family, &["test"]).unwrap();
            let case = format!("{mode:?} {family}, offload {offloaded}");
            println!("{case}: {report}");
            assert_eq!(report.downloads[0].sha256, expected, "{case}");
            assert!(
                split(&net.b) > before,
                "{case}: no send was of many datagrams"
            );
            let [client, server] = [client, server].map(|sent| sent.stop().unwrap().stats);
            assert_disguised(&client, offloaded, 0);
            assert_disguised(&server, offloaded, (MIB as u64) << 20);
        }
    }
}

/// QUIC sends larger datagrams until one is lost. The disguise takes 12 bytes
/// of the path's MTU, and does so quietly: the search must end below them.
#[test]
fn the_search_for_the_mtu_ends_at_what_fits_as_tcp() {
    /// What quinn looks for at most (`MtuDiscoveryConfig::upper_bound`).
    const QUINN_MOST: usize = 1452;
    /// What it may leave: it halves its steps until one is below 20 bytes
    /// (`MtuDiscoveryConfig::minimum_change`).
    const QUINN_SLACK: usize = 2 * 20;
    for mtu in [1500, 1400, 1280] {
        let net = Direct::new().unwrap();
        for host in [&net.a, &net.b] {
            link::set_mtu(&host.netns, Host::DEV, mtu).unwrap();
        }
        let scenario = start(&net.a, &net.b);
        let expected = scenario.provide("test", MIB, Filling::Pattern).unwrap();
        let _attached = mode::TC.attach_both(&net).unwrap();
        for family in Family::BOTH {
            let sent = Sent::watch(&net.b);
            let report = scenario.fetch(family, &["test"]).unwrap();
            assert_eq!(report.downloads[0].sha256, expected, "{family}, MTU {mtu}");
            let sent = sent.stop().unwrap();
            assert_disguised(&sent.stats, true, (MIB as u64) << 20);
            let fits = mtu as usize - family.header_len() - 20;
            let most = fits.min(QUINN_MOST);
            let found = sent.largest;
            assert!(
                (most - QUINN_SLACK..=most).contains(&found),
                "{family}, MTU {mtu}: {found} bytes of {most}"
            );
        }
    }
}
