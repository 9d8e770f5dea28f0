//! phantun on both hosts, with wireguard-go inside: what xdptun is compared with.

use anyhow::Result;
use xdptun_lab::Family;
use xdptun_test_real::compare::{Comparison, Speeds};
use xdptun_test_real::mixed::{Ends, run};
use xdptun_test_real::path::Path;
use xdptun_test_real::wireguard::{Outside, Pair};

const WIREGUARD: u16 = 51820;

#[test]
fn phantun_carries_wireguard() {
    let running = run(Ends::Phantun).unwrap();
    running.tunnel.ping().unwrap();
    running.tunnel.exchange().unwrap();
}

/// The same tunnel over each.
#[test]
fn xdptun_beside_phantun() {
    let over_xdptun = || -> Result<Speeds> {
        let path = Path::disguised(WIREGUARD)?;
        let outside = Outside {
            endpoint: path.server().socket(Family::V4, WIREGUARD),
            ports: [WIREGUARD; 2],
        };
        Pair::up(path.server(), path.client(), outside)?.speeds()
    };
    let names = ["over xdptun", "over phantun"];
    Comparison::new("wireguard-go over IPv4", names)
        .measure(over_xdptun, || run(Ends::Phantun)?.tunnel.speeds())
        .unwrap()
        .report();
}
