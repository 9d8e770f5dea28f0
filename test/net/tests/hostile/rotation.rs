//! Secrets that change: both hosts go over to another without losing anything, and a
//! peer has one of its own.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use xdptun_lab::{Attached, Direct, Family, Host, udp, wait};
use xdptun_lab::{scratch::Scratch, secret};
use xdptun_test_net::nets::second_address;
use xdptun_test_net::service::{File, instead_of, reload, reloads};
use xdptun_test_net::traffic::Traffic;
use xdptun_test_net::{LIMIT, PORT, socket, status};

/// Where the sink of the datagrams is that keep coming.
const SINK: u16 = PORT + 1;

/// Files with secrets.
struct Files(Scratch);

impl Files {
    fn new() -> Self {
        let files = Self(Scratch::new().unwrap());
        for name in ["old", "new", "own"] {
            let text = format!("the {name} secret of this test");
            secret::write(files.0.path(), name, &text).unwrap();
        }
        files
    }

    /// As it is written in a configuration file.
    fn name(&self, name: &str) -> String {
        format!("\"{}\"", self.0.path().join(name).display())
    }

    /// The configuration of a host with these secrets.
    fn config(&self, secrets: &[&str], more: &str) -> String {
        let secrets: Vec<_> = secrets.iter().map(|name| self.name(name)).collect();
        let secrets = secrets.join(", ");
        format!("[interface.eth0]\nports = [{PORT}, {SINK}]\nsecret = [{secrets}]\n{more}")
    }
}

/// A host with a file, the service that reads it, and a server.
struct End<'a> {
    host: &'a Host,
    file: File,
    service: Attached,
    servers: [udp::Server; 2],
}

impl<'a> End<'a> {
    fn new(host: &'a Host, config: &str) -> Self {
        let file = File::new(config);
        let service = file.run(host);
        Self::with(host, file, service)
    }

    fn with(host: &'a Host, file: File, service: Attached) -> Self {
        let echo = |family| udp::Server::echo(&host.netns, host.socket(family, PORT)).unwrap();
        Self {
            host,
            file,
            service,
            servers: Family::BOTH.map(echo),
        }
    }

    fn reload(&self, config: &str) {
        self.file.write(config);
        reloads(&self.host.netns, &["eth0: changed"]);
    }

    fn counter(&self, name: &str) -> u64 {
        status::counter(&self.host.netns, name).unwrap()
    }

    /// Opens a flow to another host over each IP version, from new ports.
    fn calls(&self, other: &Self) {
        for (family, server) in Family::BOTH.into_iter().zip(&other.servers) {
            let socket = udp::bind(&self.host.netns, self.host.socket(family, 0)).unwrap();
            udp::exchange(&socket, server.address(), b"a new flow", LIMIT).unwrap();
        }
    }

    /// A call from an address is answered.
    fn is_answered(&self, from: IpAddr, other: &Self) {
        let (socket, to) = self.call(from, other);
        udp::exchange(&socket, to, b"let me in", LIMIT).unwrap();
    }

    /// A call from an address is turned away.
    fn is_refused(&self, from: IpAddr, other: &Self) {
        let before = other.counter("rx_drop_unproven");
        let (socket, to) = self.call(from, other);
        socket.send_to(b"let me in", to).unwrap();
        wait::until(LIMIT, "the call to be turned away", || {
            other.counter("rx_drop_unproven") > before
        })
        .unwrap();
        let flows = status::flows(&other.host.netns).unwrap();
        let of_call = socket.local_addr().unwrap().to_string();
        assert!(flows.iter().all(|flow| flow.remote != of_call), "{flows:?}");
    }

    fn call(&self, from: IpAddr, other: &Self) -> (UdpSocket, SocketAddr) {
        let socket = udp::bind(&self.host.netns, SocketAddr::new(from, 0)).unwrap();
        let [v4, v6] = &other.servers;
        let to = if from.is_ipv4() { v4 } else { v6 };
        (socket, to.address())
    }
}

/// The three steps of docs/security.md, one host after the other, while datagrams pass.
#[test]
fn a_secret_is_changed_for_another_while_datagrams_pass() {
    let files = Files::new();
    let net = Direct::new().unwrap();
    let ends = [&net.a, &net.b].map(|host| End::new(host, &files.config(&["old"], "")));
    let [near, far] = &ends;
    let sink = udp::Server::sink(&net.b.netns, net.b.socket(Family::V4, SINK)).unwrap();
    let busy = socket::roomy(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    busy.send_to(b"opens the flow", sink.address()).unwrap();
    wait::until(LIMIT, "the flow", || sink.datagrams() == 1).unwrap();
    let traffic = Traffic::start(&busy, sink.address(), 1000).unwrap();

    let mut flows = 0;
    for secrets in [&["old", "new"][..], &["new", "old"], &["new"]] {
        for end in &ends {
            end.reload(&files.config(secrets, ""));
            near.calls(far);
            far.calls(near);
            flows += 2;
        }
    }
    let sent = 1 + traffic.stop().unwrap();
    wait::until(LIMIT, "the last datagram", || sink.datagrams() == sent).unwrap();
    // One SYN for each flow: none was opened again, or refused at first.
    assert_eq!(near.counter("sent_syn"), flows + 1);
    assert_eq!(far.counter("sent_syn"), flows);
    for end in &ends {
        assert_eq!(end.counter("rx_drop_unproven"), 0);
        // The programs stayed.
        end.service.wait_ready(Host::DEV, 1, LIMIT).unwrap();
    }

    // The host that lost its secret is a stranger now; only the flows that it has go on.
    near.reload(&files.config(&["old"], ""));
    busy.send_to(b"goes on", sink.address()).unwrap();
    wait::until(LIMIT, "the datagram", || sink.datagrams() == sent + 1).unwrap();
    for family in Family::BOTH {
        near.is_refused(near.host.address(family), far);
        far.is_refused(far.host.address(family), near);
    }
}

#[test]
fn a_peer_has_a_secret_of_its_own() {
    let files = Files::new();
    let net = Direct::new().unwrap();
    let others = second_address(&net.a, 9);
    let peers = |address: &dyn Fn(Family) -> IpAddr| {
        let list = Family::BOTH.map(|family| {
            let (peer, own) = (address(family), files.name("own"));
            format!("{{ peer = \"{peer}\", secret = {own} }}")
        });
        format!(
            "peers = [\"10.0.0.0/8\", \"fd00::/16\", {}]\n",
            list.join(", ")
        )
    };
    let far = End::new(
        &net.b,
        &files.config(&["old"], &peers(&|family| net.a.address(family))),
    );
    let near = End::new(&net.a, &files.config(&["old"], ""));
    for (family, other) in Family::BOTH.into_iter().zip(others) {
        near.is_refused(net.a.address(family), &far);
        near.is_answered(other, &far);
    }
    near.reload(&files.config(&["own"], ""));
    for (family, other) in Family::BOTH.into_iter().zip(others) {
        near.is_answered(net.a.address(family), &far);
        near.is_refused(other, &far);
        // It is proved to that peer as well.
        let socket = udp::bind(&net.b.netns, net.b.socket(family, 0)).unwrap();
        let [v4, v6] = &near.servers;
        let to = if family == Family::V4 { v4 } else { v6 };
        udp::exchange(&socket, to.address(), b"the other way", LIMIT).unwrap();
    }
    // Another peer has it from now on.
    far.reload(&files.config(
        &["old"],
        &peers(&|family| others[usize::from(family == Family::V6)]),
    ));
    for (family, other) in Family::BOTH.into_iter().zip(others) {
        near.is_refused(net.a.address(family), &far);
        near.is_answered(other, &far);
    }
    // Without one of the interface's own the file says nothing of all others.
    let text = far.file.read();
    let (before, rest) = text.split_once("secret = [").unwrap();
    let (_, after) = rest.split_once('\n').unwrap();
    far.file.write(&format!("{before}{after}"));
    let refused = reload(&net.b.netns);
    assert_eq!(refused.code, Some(1), "{refused:#?}");
    refused.assert_first_line(&["nothing was changed", "and the interface has none; give"]);
}

/// A peer is known by its name: its secret goes where its address goes.
#[test]
fn the_secret_of_a_name_follows_its_address() {
    let files = Files::new();
    let net = Direct::new().unwrap();
    let first = net.a.address(Family::V4);
    let [second, _] = second_address(&net.a, 9);
    let hosts = files.0.path().join("hosts");
    let name = |address: IpAddr| fs::write(&hosts, format!("{address} peer.test\n")).unwrap();
    let own = files.name("own");
    let peers = format!("peers = [\"10.0.0.0/8\", {{ peer = \"peer.test\", secret = {own} }}]\n");
    let text = files.config(&["old"], &peers);
    let file = File::new(&format!("resolve-interval = 1\n{text}"));
    // Not found yet: the interface's secret holds for it.
    fs::write(&hosts, "").unwrap();
    let mut command = instead_of("/etc/hosts", &hosts, &file.command(&net.b.netns, &[]));
    net.b.netns.place(&mut command);
    let service = Attached::by(&net.b.netns, Host::DEV, &mut command).unwrap();
    let far = End::with(&net.b, file, service);
    let near = End::new(&net.a, &files.config(&["own"], ""));
    near.is_refused(first, &far);
    for (address, other) in [(first, second), (second, first)] {
        name(address);
        let network = format!("{address}/32");
        wait::until(LIMIT, "the address", || {
            let status = status::interface(&net.b.netns, Host::DEV).unwrap();
            let peers = status["peers"].as_array().unwrap();
            peers.iter().any(|peer| *peer == *network)
        })
        .unwrap();
        near.is_answered(address, &far);
        near.is_refused(other, &far);
    }
}
