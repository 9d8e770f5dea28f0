//! What an observer of payloads knows of WireGuard and of QUIC, without a veil and with one. nDPI is
//! asked about the same bytes that crossed the wire.

use anyhow::Result;
use xdptun_lab::scratch::Scratch;
use xdptun_lab::topology::Router;
use xdptun_lab::{Capture, Family, secret};
use xdptun_test_real::caddy;
use xdptun_test_real::compare::{Comparison, Speeds};
use xdptun_test_real::ndpi::Payloads;
use xdptun_test_real::path::Path;
use xdptun_test_real::wireguard::{Outside, Pair};

/// Not the usual one, by which nDPI would guess.
const PORT: u16 = 4567;

/// A path whose hosts know a secret.
fn guarded(port: u16, veil: Option<&str>) -> Result<(Path, Scratch)> {
    let directory = Scratch::new()?;
    let secret = secret::write(directory.path(), "secret", "correct horse battery")?;
    let mut path = Path::without_udp(port)?;
    let options: Vec<&str> = ["--secret", &secret].into_iter().chain(veil).collect();
    for host in path.hosts().map(Clone::clone) {
        path.attach(&host, &options)?;
    }
    Ok((path, directory))
}

/// What crosses the wire while `used` uses the path, and what nDPI says of it.
fn observed(
    port: u16,
    veil: Option<&str>,
    used: impl FnOnce(&Path) -> Result<()>,
) -> Result<(Payloads, String)> {
    let (path, _secret) = guarded(port, veil)?;
    let router = path.net.router.netns.clone();
    let capture = Capture::start(&router, Router::WAN)?;
    used(&path)?;
    let payloads = Payloads::captured(capture, port)?;
    let protocol = payloads.protocol(&router)?;
    Ok((payloads, protocol))
}

fn tunnel(path: &Path) -> Result<Pair> {
    let outside = Outside {
        endpoint: path.server().socket(Family::V4, PORT),
        ports: [PORT; 2],
    };
    let tunnel = Pair::up(path.server(), path.client(), outside)?;
    tunnel.ping()?;
    Ok(tunnel)
}

fn wireguard(path: &Path) -> Result<()> {
    tunnel(path).map(drop)
}

/// The handshake of WireGuard: how its two messages begin, and their lengths.
const HANDSHAKE: [([u8; 4], usize); 2] = [([1, 0, 0, 0], 148), ([2, 0, 0, 0], 92)];

#[test]
fn without_a_veil_wireguard_is_known() {
    let (payloads, protocol) = observed(PORT, None, wireguard).unwrap();
    let first: Vec<_> = payloads.bytes().take(2).map(begins).collect();
    assert_eq!(first, HANDSHAKE);
    assert_eq!(protocol, "WireGuard");
}

#[test]
fn under_a_veil_wireguard_is_not_known() {
    let (payloads, protocol) = observed(PORT, Some("--veil"), wireguard).unwrap();
    // nDPI takes some noise for RTP.
    assert!(!protocol.contains("WireGuard"), "{protocol}");
    for (payload, (plain, length)) in payloads.bytes().zip(HANDSHAKE) {
        let (first, covered_len) = begins(payload);
        assert_ne!(first, plain);
        assert!((length + 2..=256).contains(&covered_len), "{covered_len}");
    }
    // By chance one in 2^32 would begin like data of WireGuard.
    let all = payloads.bytes().count();
    let typed = payloads
        .bytes()
        .filter(|one| one.starts_with(&[4, 0, 0, 0]));
    assert_eq!(typed.count(), 0, "of {all}");
}

/// The first bytes of a payload, and its length.
fn begins(payload: &[u8]) -> ([u8; 4], usize) {
    let first = payload.first_chunk().copied().unwrap_or_default();
    (first, payload.len())
}

fn quic(path: &Path) -> Result<()> {
    caddy::Server::start(path.server())?.used_by(path.client())?;
    Ok(())
}

#[test]
fn quic_is_known_without_a_veil_and_not_under_it() {
    if !caddy::is_installed() {
        return;
    }
    let (_, protocol) = observed(caddy::PORT, None, quic).unwrap();
    assert!(protocol.starts_with("QUIC"), "{protocol}");
    let (_, protocol) = observed(caddy::PORT, Some("--veil"), quic).unwrap();
    assert!(!protocol.contains("QUIC"), "{protocol}");
}

/// The hosts receive through GRO, as from a network card. Under a veil it merges segments, and xdptun
/// splits them again.
#[test]
fn the_speed_of_wireguard_is_told() {
    let speeds = |veil| -> Result<Speeds> {
        let (path, _secret) = guarded(PORT, veil)?;
        path.merge_at_hosts()?;
        tunnel(&path)?.speeds()
    };
    Comparison::new(
        "wireguard-go through GRO",
        ["with a veil", "without a veil"],
    )
    .measure(|| speeds(Some("--veil")), || speeds(None))
    .unwrap()
    .report();
}
