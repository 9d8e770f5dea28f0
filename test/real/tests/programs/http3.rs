//! Caddy as a server of HTTP/3, and a client on quic-go.

use anyhow::Result;
use xdptun_test_real::caddy::{PORT, Server, is_installed};
use xdptun_test_real::compare::{Comparison, Speeds};
use xdptun_test_real::path::{Path, ensure_disguised};

fn speeds(path: &Path) -> Result<Speeds> {
    Server::start(path.server())?.used_by(path.client())
}

#[test]
fn caddy_serves_uploads_and_downloads() {
    if !is_installed() {
        return;
    }
    let path = Path::disguised(PORT).unwrap();
    let wire = path.watch().unwrap();
    speeds(&path).unwrap();
    ensure_disguised(&wire.stop().unwrap()).unwrap();
    assert_eq!(path.net.router.dropped().unwrap().invalid, 0);
}

#[test]
fn its_speed_is_told() {
    if !is_installed() {
        return;
    }
    Comparison::new("Caddy and quic-go", ["over xdptun", "over plain UDP"])
        .measure(
            || speeds(&Path::disguised(PORT)?),
            || speeds(&Path::plain(PORT)?),
        )
        .unwrap()
        .report();
}
