//! wireguard-go with the MTU that wg-quick chooses, over IPv6. Its longest datagrams fill the
//! path, and are 12 bytes too long for it as segments: it is told so by ICMP, and IP cuts them.
//! IP does not cut what is sent many at once (UDP GSO): it refuses that with EMSGSIZE as soon as
//! the datagrams are longer than the path takes, and wireguard-go gives them up. So here it sends
//! one by one.

use anyhow::Result;
use xdptun_lab::Family;
use xdptun_test_real::compare::{Comparison, Speeds};
use xdptun_test_real::path::{Path, ensure_disguised};
use xdptun_test_real::wireguard::{Outside, Pair};

const PORT: u16 = 51820;

fn up(path: &Path) -> Result<Pair> {
    let outside = Outside {
        endpoint: path.server().socket(Family::V6, PORT),
        ports: [PORT; 2],
    };
    Pair::up(path.server(), path.client(), outside)
}

#[test]
fn its_default_mtu_works_over_ipv6() {
    let path = Path::disguised(PORT).unwrap();
    let wire = path.watch().unwrap();
    let tunnel = up(&path).unwrap();
    tunnel.send_one_by_one().unwrap();
    tunnel.ping().unwrap();
    let before = path.counters().unwrap();
    tunnel.exchange().unwrap();
    ensure_disguised(&wire.stop().unwrap()).unwrap();
    path.ensure_nothing_lost(&before).unwrap();
    path.ensure_fragments().unwrap();
}

#[test]
fn its_speed_is_told() {
    let speeds = |path: Path| -> Result<Speeds> {
        let tunnel = up(&path)?;
        tunnel.send_one_by_one()?;
        tunnel.ping()?;
        tunnel.speeds()
    };
    Comparison::new("wireguard-go over IPv6", ["over xdptun", "over plain UDP"])
        .measure(
            || speeds(Path::disguised(PORT)?),
            || speeds(Path::plain(PORT)?),
        )
        .unwrap()
        .report();
}

#[test]
#[ignore = "the kernel refuses UDP GSO of datagrams that it would have to cut, and wireguard-go \
            loses them: a megabyte takes a minute"]
fn it_may_send_many_at_once() {
    let path = Path::disguised(PORT).unwrap();
    let tunnel = up(&path).unwrap();
    tunnel.ping().unwrap();
    tunnel.speeds().unwrap();
}
