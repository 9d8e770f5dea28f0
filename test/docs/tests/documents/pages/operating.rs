//! docs/operating.md, a function for each section.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use xdptun_lab::command::run;
use xdptun_lab::tap::Tap;
use xdptun_lab::{Attached, Kind, Offload, link, udp};
use xdptun_test_docs::machine::Machine;
use xdptun_test_docs::page::Page;
use xdptun_test_docs::shown::{AMOUNTS, VARYING};
use xdptun_test_net::LIMIT;

/// The host that is called.
const CALLED: &str = "203.0.113.7";

pub fn walk(page: &mut Page) {
    wireguard(page);
    quic(page);
    lan(page);
    docker(page);
    pppoe(page);
}

fn two_hosts() -> [Machine; 2] {
    let hosts = Machine::two_hosts().unwrap();
    for host in &hosts {
        host.install_xdptun().unwrap();
    }
    hosts
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::new(CALLED.parse().unwrap(), port)
}

/// Sends a datagram there and back.
fn talk(from: &Machine, local: &str, to: SocketAddr) {
    let local: SocketAddr = local.parse().unwrap();
    let socket = udp::bind(&from.netns, local).unwrap();
    udp::exchange(&socket, to, &[7; 100], LIMIT).unwrap();
}

fn wireguard(page: &mut Page) {
    let [calls, called] = two_hosts();
    let make_key = "sudo sh -c 'umask 077; wg genkey > /etc/wireguard/private.key'";
    let tell_key = "sudo sh -c 'wg pubkey < /etc/wireguard/private.key'";
    page.command(make_key).unwrap();
    page.command(tell_key).unwrap();
    let keys = [&calls, &called].map(|host| {
        run(&mut host.shell(make_key).unwrap()).unwrap();
        let public = run(&mut host.shell(tell_key).unwrap()).unwrap();
        let private = host.read("/etc/wireguard/private.key").unwrap();
        (private.trim().to_owned(), public.trim().to_owned())
    });
    let [(own, public), (other, other_public)] = keys;
    let path = "/etc/wireguard/wg0.conf";
    let file = page.file(path).unwrap();
    let file = file
        .replace("OWN_PRIVATE_KEY", &other)
        .replace("PUBLIC_KEY_OF_THE_CLIENT", &public);
    called.write(path, &file).unwrap();
    let file = page.file(path).unwrap();
    let file = file
        .replace("OWN_PRIVATE_KEY", &own)
        .replace("PUBLIC_KEY_OF_THE_SERVER", &other_public);
    calls.write(path, &file).unwrap();

    let attach = "sudo xdptun attach --iface eth0 --port 51820";
    let _there = called.attach_too("eth0", attach).unwrap();
    let _here = calls.attach(page, "eth0", attach).unwrap();
    let up = "sudo wg-quick up wg0";
    run(&mut called.shell(up).unwrap()).unwrap();
    calls.run(page, up).unwrap();
    calls.run(page, "ping -c 3 10.9.0.1").unwrap();
    // What pings become differs among implementations.
    let varying = [&VARYING[..], &[AMOUNTS]].concat();
    calls
        .run_varying(page, "sudo xdptun flows", &varying)
        .unwrap();
    for host in [&calls, &called] {
        run(&mut host.shell("wg-quick down wg0").unwrap()).unwrap();
    }
}

fn quic(page: &mut Page) {
    let [client, server] = two_hosts();
    for command in [
        "sudo mkdir -p /etc/xdptun",
        "sudo sh -c 'umask 077; head -c 32 /dev/urandom | base64 > /etc/xdptun/secret'",
    ] {
        server.run(page, command).unwrap();
    }
    let secret = server.read("/etc/xdptun/secret").unwrap();
    client.write("/etc/xdptun/secret", &secret).unwrap();
    let attach = "sudo xdptun attach --iface eth0 --port 443 --secret /etc/xdptun/secret";
    let _there = server.attach(page, "eth0", attach).unwrap();
    let attach = format!("{attach} --peer {CALLED}");
    let _here = client.attach(page, "eth0", &attach).unwrap();
    let _echo = udp::Server::echo(&server.netns, address(443)).unwrap();
    talk(&client, "192.0.2.10:0", address(443));

    // A TCP client, like a browser, reaches the web server.
    let listener = server
        .netns
        .enter(|| TcpListener::bind(address(443)).unwrap())
        .unwrap();
    let answers = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"over TCP").unwrap();
    });
    let mut stream = client
        .netns
        .enter(|| TcpStream::connect(address(443)).unwrap())
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    answers.join().unwrap();
    assert_eq!(text, "over TCP");
}

/// A router, with a host behind it that is 192.168.1.2, and the host that is called.
fn router(dev: &str, gateway: Option<&str>) -> [Machine; 3] {
    let [router, called] = two_hosts();
    let inside = Machine::new("inside").unwrap();
    let own = Some("192.168.1.2/24");
    inside
        .connect(("eth0", own), &router, (dev, gateway))
        .unwrap();
    [inside, router, called]
}

fn attach_called(called: &Machine, options: &str) -> Attached {
    let attach = format!("xdptun attach --iface eth0 {options}");
    called.attach_too("eth0", &attach).unwrap()
}

fn go_through(inside: &Machine, gateway: &str) {
    let route = ["route", "add", "default", "via", gateway];
    inside.netns.run("ip", route).unwrap();
}

fn lan(page: &mut Page) {
    let [inside, router, called] = router("lan0", Some("192.168.1.1/24"));
    go_through(&inside, "192.168.1.1");
    let path = "/etc/nftables.conf";
    router.write(path, &page.file(path).unwrap()).unwrap();
    router
        .run(page, "sudo sysctl -w net.ipv4.ip_forward=1")
        .unwrap();
    router.run(page, "sudo nft -f /etc/nftables.conf").unwrap();
    let attach = format!("sudo xdptun attach --iface eth0 --port 51820 --peer {CALLED}");
    let _here = router.attach(page, "eth0", &attach).unwrap();
    let _there = attach_called(&called, "--port 51820");
    let _echo = udp::Server::echo(&called.netns, address(51820)).unwrap();
    talk(&inside, "192.168.1.2:51820", address(51820));
    router.run(page, "sudo xdptun flows").unwrap();
}

/// What Docker makes for a network and a published port.
const DOCKER: &str = "
table ip nat {
    chain prerouting {
        type nat hook prerouting priority dstnat
        iifname != docker0 udp dport 53000 dnat to 192.168.1.2:53000
    }
    chain postrouting {
        type nat hook postrouting priority srcnat
        ip saddr 192.168.1.0/24 oifname != docker0 masquerade
    }
}";

fn docker(page: &mut Page) {
    let [container, host, called] = router("veth0", None);
    let bridge = "
        link add docker0 type bridge
        address add 192.168.1.1/24 dev docker0
        link set veth0 master docker0
        link set docker0 up";
    host.netns
        .run_with_input("ip", ["-batch", "-"], bridge)
        .unwrap();
    host.netns
        .run_with_input("nft", ["-f", "-"], DOCKER)
        .unwrap();
    host.netns.sysctl("net.ipv4.ip_forward", "1").unwrap();
    go_through(&container, "192.168.1.1");
    let _published = udp::Server::echo(&container.netns, inside(53000)).unwrap();
    let _echo = udp::Server::echo(&called.netns, address(51820)).unwrap();
    let both_ways = || {
        talk(&container, "192.168.1.2:51820", address(51820));
        talk(
            &called,
            "203.0.113.7:40000",
            "192.0.2.10:53000".parse().unwrap(),
        );
    };
    let attach = format!("sudo xdptun attach --iface eth0 --port 51820,53000 --peer {CALLED}");
    let here = host.attach(page, "eth0", &attach).unwrap();
    let there = attach_called(&called, "--port 51820,53000");
    both_ways();
    host.run(page, "sudo xdptun flows --sort remote").unwrap();
    here.stop().unwrap();
    there.stop().unwrap();

    for machine in [&host, &called] {
        machine
            .write("/etc/xdptun/secret", "known to both hosts")
            .unwrap();
    }
    let secret = "--secret /etc/xdptun/secret";
    let _here = host
        .attach_too("eth0", &format!("{attach} {secret}"))
        .unwrap();
    let _there = attach_called(&called, &format!("--port 51820,53000 {secret}"));
    both_ways();
}

fn inside(port: u16) -> SocketAddr {
    SocketAddr::new([192, 168, 1, 2].into(), port)
}

fn pppoe(page: &mut Page) {
    let host = Machine::new("host").unwrap();
    host.install_xdptun().unwrap();
    let device = Tap::open(&host.netns, "ppp0", Kind::Tun, Offload::None).unwrap();
    link::set_mtu(&host.netns, "ppp0", 1492).unwrap();
    host.netns.run("ip", ["link", "set", "ppp0", "up"]).unwrap();
    let attach = "sudo xdptun attach --iface ppp0 --port 51820";
    let attached = host.attach(page, "ppp0", attach).unwrap();
    attached.stop().unwrap();
    drop(device);
}
