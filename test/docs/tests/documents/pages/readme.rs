//! README.md.

use std::net::SocketAddr;

use xdptun_lab::udp;
use xdptun_test_docs::machine::Machine;
use xdptun_test_docs::page::Page;
use xdptun_test_net::LIMIT;

/// Bytes of a ping within WireGuard.
const PING: usize = 148;

pub fn walk(page: &mut Page) {
    let by_ci = "CI runs them, or what they are made of";
    page.pass_over(by_ci, &["cargo xtask setup", "cargo build --release"])
        .unwrap();
    let [near, far] = Machine::two_hosts().unwrap();
    near.run(page, "sudo install target/release/xdptun /usr/local/bin/")
        .unwrap();
    far.install_xdptun().unwrap();

    let attach = "sudo xdptun attach --iface eth0 --port 51820";
    let here = near.attach(page, "eth0", attach).unwrap();
    let there = far.attach_too("eth0", attach).unwrap();
    let [a, b]: [SocketAddr; 2] =
        ["192.0.2.10:51820", "203.0.113.7:51820"].map(|address| address.parse().unwrap());
    let echo = udp::Server::echo(&far.netns, b).unwrap();
    let socket = udp::bind(&near.netns, a).unwrap();
    for _ in 0..12 {
        udp::exchange(&socket, b, &[7; PING], LIMIT).unwrap();
    }
    near.run(page, "sudo xdptun status").unwrap();
    here.stop().unwrap();
    there.stop().unwrap();
    echo.stop().unwrap();

    for command in [
        "sudo mkdir -p /etc/xdptun",
        "sudo sh -c 'umask 077; head -c 32 /dev/urandom | base64 > /etc/xdptun/secret'",
    ] {
        near.run(page, command).unwrap();
    }
    far.write(
        "/etc/xdptun/secret",
        &near.read("/etc/xdptun/secret").unwrap(),
    )
    .unwrap();
    let attach = "sudo xdptun attach --iface eth0 --port 443 --secret /etc/xdptun/secret";
    let _here = near.attach(page, "eth0", attach).unwrap();
    let _there = far.attach_too("eth0", attach).unwrap();
    let echo = udp::Server::echo(&far.netns, SocketAddr::new(b.ip(), 443)).unwrap();
    udp::exchange(&socket, echo.address(), b"known", LIMIT).unwrap();

    page.pass_over(
        by_ci,
        &[
            "cargo xtask demo",
            "cargo xtask demo forward",
            "cargo xtask demo nat",
            "cargo xtask demo nat64",
            "cargo xtask demo policy",
            "cargo xtask test",
        ],
    )
    .unwrap();
}
