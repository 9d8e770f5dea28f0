//! wireguard-go with the MTU that wg-quick chooses, over IPv6. Its longest datagrams fill the
//! path, and are 12 bytes too long for it as segments: each leaves as two fragments.

use anyhow::Result;
use xdptun_lab::Family;
use xdptun_test_real::compare::Comparison;
use xdptun_test_real::path::{Path, ensure_disguised};
use xdptun_test_real::wireguard::{Outside, Pair};

const PORT: u16 = 51820;

fn up(path: &Path) -> Result<Pair> {
    let outside = Outside {
        endpoint: path.server().socket(Family::V6, PORT),
        ports: [PORT; 2],
    };
    let tunnel = Pair::up(path.server(), path.client(), outside)?;
    tunnel.ping()?;
    Ok(tunnel)
}

/// All bytes of an exchange arrive after `prepare`, and nothing is lost.
fn carries(prepare: fn(&Pair) -> Result<()>) {
    let path = Path::disguised(PORT).unwrap();
    let wire = path.watch().unwrap();
    let tunnel = up(&path).unwrap();
    prepare(&tunnel).unwrap();
    let before = path.counters().unwrap();
    tunnel.exchange().unwrap();
    ensure_disguised(&wire.stop().unwrap()).unwrap();
    path.ensure_nothing_lost(&before).unwrap();
    path.ensure_fragments().unwrap();
}

#[test]
fn its_default_mtu_works_over_ipv6() {
    carries(|_| Ok(()));
}

#[test]
fn its_default_mtu_works_without_gso() {
    carries(Pair::send_one_by_one);
}

#[test]
fn its_speed_is_told() {
    let speeds = |path: Path| up(&path)?.speeds();
    Comparison::new("wireguard-go over IPv6", ["over xdptun", "over plain UDP"])
        .measure(
            || speeds(Path::disguised(PORT)?),
            || speeds(Path::plain(PORT)?),
        )
        .unwrap()
        .report();
}
