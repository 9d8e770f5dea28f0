//! The units under systemd, sandboxed as they are.

use std::fs;
use std::net::UdpSocket;

use serde_json::Value;
use xdptun_lab::{Attached, Direct, Family, Host, udp, wait};
use xdptun_test_package::machine::Machine;
use xdptun_test_package::root::Root;
use xdptun_test_package::{LIMIT, own_package};

const UNIT: &str = "xdptun@eth0.service";
const PORT: u16 = 8000;

/// The highest rating by `systemd-analyze security`, 0 being the best and 100 a service
/// without any sandbox.
const EXPOSURE: &str = "--threshold=23";

#[test]
fn the_units_are_sound_and_sandboxed() {
    let root = Root::new().unwrap();
    let package = root.bring(&own_package().unwrap()).unwrap();
    root.run("dpkg", &["--install", &package]).unwrap();
    let units = ["xdptun.service", UNIT];
    for unit in units {
        root.run("systemd-analyze", &["verify", "--man=no", unit])
            .unwrap();
        let rate = ["security", "--offline=yes", EXPOSURE, unit];
        root.run("systemd-analyze", &rate).unwrap();
    }
}

/// Requires that the service runs as a user of its own, with what it needs and no
/// more: CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW and CAP_PERFMON.
fn assert_unprivileged(machine: &Machine, unit: &str) {
    const NEEDED: u64 = 1 << 39 | 1 << 12 | 1 << 13 | 1 << 38;
    let user = machine.run("id", &["--user", "xdptun"]).unwrap();
    assert_ne!(user.trim(), "0");
    let process = machine.property(unit, "MainPID").unwrap();
    let status = machine
        .run("cat", &[&format!("/proc/{process}/status")])
        .unwrap();
    let field = |name: &str| {
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(field("Uid:"), [user.trim(); 4]);
    let needed = format!("{NEEDED:016x}");
    for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
        assert_eq!(field(set), [&needed], "{set}");
    }
    for set in ["CapInh:", "CapAmb:"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(field("NoNewPrivs:"), ["1"]);
}

/// Attaches without the unit, as the operator does; returns when it is ready.
fn attach_by_root(machine: &Machine, args: &[&str]) {
    let run = ["--unit=by-root", "--collect", "--property=Type=notify"];
    let attach = ["xdptun", "attach", "--iface", Host::DEV];
    let all = [&run[..], &attach, args].concat();
    machine.run("systemd-run", &all).unwrap();
}

/// Kills what [`attach_by_root`] began.
fn kill_by_root(machine: &Machine) {
    let unit = "by-root.service";
    machine
        .run("systemctl", &["kill", "--signal=KILL", unit])
        .unwrap();
    let gone = || machine.property(unit, "MainPID").unwrap() == "0";
    wait::until(LIMIT, "its end", gone).unwrap();
}

fn status(machine: &Machine) -> Value {
    serde_json::from_str(&machine.run("xdptun", &["status", "--json"]).unwrap()).unwrap()
}

/// The tunnel of a host that is upgraded and then given up.
#[test]
fn a_service_carries_through_an_upgrade_until_it_is_removed() {
    let net = Direct::new().unwrap();
    let _far = Attached::start(&net.b.netns, Host::DEV, &["--port", "8000"]).unwrap();
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let machine = Machine::boot(Root::new().unwrap(), &net.a.netns).unwrap();
    let package = machine.root().bring(&own_package().unwrap()).unwrap();
    machine.run("dpkg", &["--install", &package]).unwrap();
    let options = machine.root().inside("/etc/xdptun/eth0.env");
    fs::write(options, "XDPTUN_OPTIONS=--port 8000 --ingress tc\n").unwrap();
    // Comes back when it says that it is ready.
    machine
        .run("systemctl", &["enable", "--now", UNIT])
        .unwrap();
    let text = machine.property(UNIT, "StatusText").unwrap();
    assert_eq!(text, "eth0 carries UDP port 8000 as TCP");
    assert_unprivileged(&machine, UNIT);
    let socket = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    udp::exchange(&socket, echo.address(), b"carried", LIMIT).unwrap();
    let before = machine.property(UNIT, "MainPID").unwrap();
    let flow =
        |machine: &Machine| status(machine)["interfaces"][0]["flows"][0]["tx_packets"].clone();
    assert_eq!(flow(&machine), 1);

    // A reinstallation restarts it, and the flow goes on.
    machine.run("dpkg", &["--install", &package]).unwrap();
    assert_ne!(machine.property(UNIT, "MainPID").unwrap(), before);
    udp::exchange(&socket, echo.address(), b"still carried", LIMIT).unwrap();
    assert_eq!(flow(&machine), 2);

    // The operator, as root, takes it over and ends it.
    attach_by_root(
        &machine,
        &["--port", "8000", "--ingress", "tc", "--take-over"],
    );
    let inactive = || machine.property(UNIT, "ActiveState").unwrap() == "inactive";
    wait::until(LIMIT, "the service to leave", inactive).unwrap();
    udp::exchange(&socket, echo.address(), b"carried by root", LIMIT).unwrap();
    assert_eq!(flow(&machine), 3);
    // And the service takes over when root's process has gone.
    kill_by_root(&machine);
    machine.run("systemctl", &["start", UNIT]).unwrap();
    assert_unprivileged(&machine, UNIT);
    udp::exchange(&socket, echo.address(), b"carried again", LIMIT).unwrap();
    assert_eq!(flow(&machine), 4);
    let healthy = machine.run("xdptun", &["doctor"]).unwrap();
    assert!(healthy.contains("eth0"), "{healthy}");
    let shown = machine.run("xdptun", &["flows"]).unwrap();
    assert!(shown.contains("established"), "{shown}");

    machine.run("dpkg", &["--purge", "xdptun"]).unwrap();
    assert_eq!(machine.property(UNIT, "ActiveState").unwrap(), "inactive");
    let pins = machine.run("ls", &["/sys/fs/bpf"]).unwrap();
    assert!(!pins.contains("xdptun"), "{pins}");
    let left = machine.root().changed().unwrap();
    let of_ours = left.iter().filter(|path| path.contains("xdptun")).count();
    assert_eq!(of_ours, 0, "{left:#?}");
}

/// The tunnels of a host with a file for all of them.
struct Tunnels {
    net: Direct,
    machine: Machine,
    echo: udp::Server,
    _far: Attached,
}

impl Tunnels {
    const UNIT: &str = "xdptun.service";

    fn new() -> Self {
        let net = Direct::new().unwrap();
        let far = Attached::start(&net.b.netns, Host::DEV, &["--port", "8000"]).unwrap();
        let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
        let machine = Machine::boot(Root::new().unwrap(), &net.a.netns).unwrap();
        let package = machine.root().bring(&own_package().unwrap()).unwrap();
        machine.run("dpkg", &["--install", &package]).unwrap();
        Self {
            net,
            machine,
            echo,
            _far: far,
        }
    }

    /// Writes the file: the ports of `eth0`, and more.
    fn configure(&self, ports: &str, more: &str) {
        let text = format!("[interface.eth0]\nports = {ports}\n{more}");
        fs::write(self.machine.root().inside("/etc/xdptun/config.toml"), text).unwrap();
    }

    fn systemctl(&self, verb: &str) -> anyhow::Result<String> {
        self.machine.run("systemctl", &[verb, Self::UNIT])
    }

    fn property(&self, name: &str) -> String {
        self.machine.property(Self::UNIT, name).unwrap()
    }

    /// A client of the tunnel, and what it does again and again.
    fn client(&self) -> UdpSocket {
        udp::bind(&self.net.a.netns, self.net.a.socket(Family::V4, 0)).unwrap()
    }

    fn exchange(&self, socket: &UdpSocket) {
        udp::exchange(socket, self.echo.address(), b"carried", LIMIT).unwrap();
    }

    /// Requires that there is one flow, which took so many datagrams.
    fn assert_flow(&self, datagrams: u64) {
        let flows = status(&self.machine)["interfaces"][0]["flows"].clone();
        assert_eq!(flows.as_array().unwrap().len(), 1, "{flows}");
        assert_eq!(flows[0]["tx_packets"], datagrams, "{flows}");
    }

    /// Ends it, and requires that nothing is left but the service's part of bpffs.
    fn stop(&self) {
        self.systemctl("stop").unwrap();
        let pins = self.machine.run("find", &["/sys/fs/bpf/xdptun"]).unwrap();
        assert_eq!(pins, "/sys/fs/bpf/xdptun\n");
    }
}

#[test]
fn a_service_of_a_file_is_reloaded() {
    let tunnels = Tunnels::new();
    let machine = &tunnels.machine;
    let secret = "/etc/xdptun/secret";
    fs::write(machine.root().inside(secret), "correct horse battery").unwrap();
    machine.run("chmod", &["600", secret]).unwrap();
    tunnels.configure("[8000]", "");
    tunnels.systemctl("start").unwrap();
    assert_unprivileged(machine, Tunnels::UNIT);
    let socket = tunnels.client();
    tunnels.exchange(&socket);

    let ports = |expected: &[&str]| {
        let interface = &status(machine)["interfaces"][0];
        assert_eq!(interface["ports"], serde_json::json!(expected));
    };
    tunnels.configure("[8000, 9000]", "");
    tunnels.systemctl("reload").unwrap();
    ports(&["8000", "9000"]);
    let with_secret = format!("secret = \"{secret}\"\n");
    for (file, more, complaint) in [
        ("[80000]", "", "`80000` is not a port"),
        // The service cannot read a file that only root may read.
        (
            "[8000]",
            &with_secret[..],
            "`chgrp xdptun /etc/xdptun/secret`",
        ),
    ] {
        tunnels.configure(file, more);
        let refused = tunnels.systemctl("reload").unwrap_err();
        let text = format!("{refused:#}");
        assert!(text.contains(complaint), "{text}");
        ports(&["8000", "9000"]);
    }
    tunnels.exchange(&socket);
    tunnels.assert_flow(2);
    machine.run("chgrp", &["xdptun", secret]).unwrap();
    machine.run("chmod", &["640", secret]).unwrap();
    assert_eq!(
        machine.run("xdptun", &["check"]).unwrap().lines().count(),
        2
    );
    tunnels.systemctl("reload").unwrap();
    assert_eq!(status(machine)["interfaces"][0]["secret"], true);
    // Its sandbox has room for what root asks of it.
    let capture = ["capture", "--iface", "eth0", "-w", "/tmp/packets"];
    let capture = [&capture[..], &["--duration", "0.2"]].concat();
    machine.run("xdptun", &capture).unwrap();
    let journal = machine.run("journalctl", &["--no-pager", "--unit", Tunnels::UNIT]);
    let journal = journal.unwrap();
    assert!(!journal.contains("other users may read"), "{journal}");
    tunnels.stop();
}

/// It follows its interfaces, without root's help.
#[test]
fn a_service_follows_an_interface_that_goes_and_comes_back() {
    let tunnels = Tunnels::new();
    let netns = &tunnels.net.a.netns;
    let add = || {
        let pair = ["link", "add", "eth1", "type", "veth", "peer", "name", "far"];
        netns.run("ip", pair).unwrap();
    };
    tunnels.configure("[8000]", "[interface.eth1]\nports = [7]\n");
    tunnels.systemctl("start").unwrap();
    let told = |eth1: &str| {
        let text = format!("eth0 carries UDP port 8000 as TCP; {eth1}");
        let reached = wait::until(LIMIT, &text, || tunnels.property("StatusText") == text);
        reached.unwrap();
    };
    told("eth1: waiting for the interface");
    for _ in 0..2 {
        add();
        told("eth1 carries UDP port 7 as TCP");
        netns.run("ip", ["link", "delete", "eth1"]).unwrap();
        told("eth1: waiting for the interface");
    }
    tunnels.stop();
}

/// A version that ran as root leaves its pins as root's.
#[test]
fn a_service_goes_on_with_what_root_left() {
    let tunnels = Tunnels::new();
    let machine = &tunnels.machine;
    attach_by_root(machine, &["--port", "8000"]);
    let socket = tunnels.client();
    tunnels.exchange(&socket);
    kill_by_root(machine);
    let pins = "/sys/fs/bpf/xdptun";
    machine
        .run("chown", &["--recursive", "root:root", pins])
        .unwrap();
    machine.run("dpkg-reconfigure", &["xdptun"]).unwrap();
    tunnels.configure("[8000]", "");
    tunnels.systemctl("start").unwrap();
    assert_unprivileged(machine, Tunnels::UNIT);
    tunnels.exchange(&socket);
    tunnels.assert_flow(2);
    tunnels.stop();
}

/// Killed by systemd for its silence and started again; meanwhile, and after, its
/// flow goes on.
#[test]
fn a_service_that_hangs_is_killed_and_loses_no_flow() {
    let tunnels = Tunnels::new();
    let machine = &tunnels.machine;
    let sooner = "/etc/systemd/system/xdptun.service.d";
    machine.run("mkdir", &["--parents", sooner]).unwrap();
    let file = machine.root().inside(&format!("{sooner}/sooner.conf"));
    fs::write(file, "[Service]\nWatchdogSec=2\n").unwrap();
    machine.run("systemctl", &["daemon-reload"]).unwrap();
    tunnels.configure("[8000]", "");
    tunnels.systemctl("start").unwrap();
    let socket = tunnels.client();
    tunnels.exchange(&socket);
    let hangs = tunnels.property("MainPID");
    let stop = ["kill", "--kill-whom=main", "--signal=STOP", Tunnels::UNIT];
    machine.run("systemctl", &stop).unwrap();
    tunnels.exchange(&socket);
    let restarted = || {
        let process = tunnels.property("MainPID");
        process != hangs && tunnels.property("SubState") == "running"
    };
    wait::until(LIMIT, "systemd to start it again", restarted).unwrap();
    assert_eq!(tunnels.property("NRestarts"), "1");
    let journal = machine.run("journalctl", &["--no-pager", "--unit", Tunnels::UNIT]);
    let journal = journal.unwrap();
    assert!(journal.contains("Watchdog timeout"), "{journal}");
    assert!(
        journal.contains("took over what was attached, with 1 flows"),
        "{journal}"
    );
    tunnels.exchange(&socket);
    tunnels.assert_flow(3);
    assert_unprivileged(machine, Tunnels::UNIT);
    tunnels.stop();
}

/// WireGuard's unit waits for the network to be online, and so for the tunnels.
#[test]
fn a_service_is_ready_before_wireguard_begins() {
    const WIREGUARD: &str = "wg-quick@wg0.service";
    let tunnels = Tunnels::new();
    let machine = &tunnels.machine;
    // The order of wireguard-tools' unit, and a program that is there.
    let unit = "[Unit]\nAfter=network-online.target nss-lookup.target\n\
                Wants=network-online.target nss-lookup.target\n\
                [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n";
    let path = machine
        .root()
        .inside("/etc/systemd/system/wg-quick@.service");
    fs::write(path, unit).unwrap();
    machine.run("systemctl", &["daemon-reload"]).unwrap();
    for service in [Tunnels::UNIT, UNIT] {
        let before = machine.property(service, "Before").unwrap();
        assert!(
            before.contains("network-online.target"),
            "{service}: {before}"
        );
    }
    machine
        .run("systemctl", &["stop", "network-online.target"])
        .unwrap();
    tunnels.configure("[8000]", "");
    // Together, as at boot.
    let boot = format!("[Unit]\nWants={WIREGUARD} {}\n", Tunnels::UNIT);
    let path = machine.root().inside("/etc/systemd/system/boot.target");
    fs::write(path, boot).unwrap();
    machine.run("systemctl", &["start", "boot.target"]).unwrap();
    let time = |unit: &str, what: &str| -> u64 {
        let time = machine.property(unit, what).unwrap();
        time.parse().unwrap()
    };
    let ready = time(Tunnels::UNIT, "ActiveEnterTimestampMonotonic");
    let begun = time(WIREGUARD, "InactiveExitTimestampMonotonic");
    assert!(0 < ready && ready <= begun, "{ready} {begun}");
    tunnels.stop();
}
