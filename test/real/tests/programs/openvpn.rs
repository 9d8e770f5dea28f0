//! OpenVPN with its defaults. Inside it takes packets of 1,500 bytes, so its datagrams are longer
//! than the path takes, and IP cuts them.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use xdptun_lab::extent::Extent;
use xdptun_test_net::tcp;
use xdptun_test_real::compare::{Comparison, Speeds, speed};
use xdptun_test_real::openvpn::{INSIDE, PORT, Tunnel};
use xdptun_test_real::path::{Path, ensure_disguised};

/// A port inside.
const INNER: u16 = 5001;

/// A connection through the tunnel, each way at once.
fn exchange(path: &Path) -> Result<()> {
    let [far, near] = INSIDE;
    let (near, far) = ((near, 0).into(), (far, INNER).into());
    let (client, server) = (&path.client().netns, &path.server().netns);
    tcp::exchange(client, near, server, far)
}

/// The speed up and down.
fn speeds(path: &Path) -> Result<Speeds> {
    let _tunnel = Tunnel::up(path.server(), path.client(), &[])?;
    let bytes = Extent::here().pick(16 << 20, 128 << 20);
    let (client, server) = (&path.client().netns, &path.server().netns);
    let [up, down] = INSIDE.map(|address| SocketAddr::from((address, INNER)));
    Ok([
        speed(client, server, up, bytes).context("up")?,
        speed(server, client, down, bytes).context("down")?,
    ])
}

#[test]
fn its_defaults_carry_data_both_ways() {
    let path = Path::disguised(PORT).unwrap();
    let wire = path.watch().unwrap();
    let _tunnel = Tunnel::up(path.server(), path.client(), &[]).unwrap();
    exchange(&path).unwrap();
    ensure_disguised(&wire.stop().unwrap()).unwrap();
    path.ensure_fragments().unwrap();
}

#[test]
fn its_speed_is_told() {
    Comparison::new("OpenVPN", ["over xdptun", "over plain UDP"])
        .measure(
            || speeds(&Path::disguised(PORT)?),
            || speeds(&Path::plain(PORT)?),
        )
        .unwrap()
        .report();
}

/// The option of docs/operating.md.
#[test]
fn a_smaller_mtu_inside_avoids_fragments() {
    let path = Path::disguised(PORT).unwrap();
    let options = ["--tun-mtu", "1400"];
    let _tunnel = Tunnel::up(path.server(), path.client(), &options).unwrap();
    exchange(&path).unwrap();
    for counters in path.counters().unwrap() {
        let of_too_long = ["tx_fragment", "rx_fragment", "tx_too_big"];
        let found = of_too_long.map(|name| counters.get(name).copied().unwrap_or(0));
        assert_eq!(found, [0; 3], "{counters:#?}");
    }
}
