//! The units under systemd, sandboxed as they are.

use std::fs;

use serde_json::Value;
use xdptun_lab::{Attached, Direct, Family, Host, udp};
use xdptun_test_package::machine::Machine;
use xdptun_test_package::root::Root;
use xdptun_test_package::{LIMIT, own_package};

const UNIT: &str = "xdptun@eth0.service";
const PORT: u16 = 8000;

/// What `systemd-analyze security` may find, 0 being nothing and 100 a service
/// without any sandbox.
const EXPOSURE: &str = "--threshold=35";

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
    let socket = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    udp::exchange(&socket, echo.address(), b"carried", LIMIT).unwrap();
    let before = machine.property(UNIT, "MainPID").unwrap();
    let flow =
        |machine: &Machine| status(machine)["interfaces"][0]["flows"][0]["tx_packets"].clone();
    assert_eq!(flow(&machine), 1);

    // Installed anew it is restarted, and the flow goes on.
    machine.run("dpkg", &["--install", &package]).unwrap();
    assert_ne!(machine.property(UNIT, "MainPID").unwrap(), before);
    udp::exchange(&socket, echo.address(), b"still carried", LIMIT).unwrap();
    assert_eq!(flow(&machine), 2);

    machine.run("dpkg", &["--purge", "xdptun"]).unwrap();
    assert_eq!(machine.property(UNIT, "ActiveState").unwrap(), "inactive");
    let pins = machine.run("ls", &["/sys/fs/bpf"]).unwrap();
    assert!(!pins.contains("xdptun"), "{pins}");
    let left = machine.root().changed().unwrap();
    let of_ours = left.iter().filter(|path| path.contains("xdptun")).count();
    assert_eq!(of_ours, 0, "{left:#?}");
}

/// The tunnels of a host with a file for all of them.
#[test]
fn a_service_of_a_file_is_reloaded() {
    const UNIT: &str = "xdptun.service";
    let net = Direct::new().unwrap();
    let _far = Attached::start(&net.b.netns, Host::DEV, &["--port", "8000"]).unwrap();
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let machine = Machine::boot(Root::new().unwrap(), &net.a.netns).unwrap();
    let package = machine.root().bring(&own_package().unwrap()).unwrap();
    machine.run("dpkg", &["--install", &package]).unwrap();
    let file = machine.root().inside("/etc/xdptun/config.toml");
    let sample = fs::read_to_string(&file).unwrap();
    let write = |ports: &str| {
        let text = format!("{sample}\n[interface.eth0]\nports = {ports}\n");
        fs::write(&file, text).unwrap();
    };
    write("[8000]");
    machine
        .run("systemctl", &["enable", "--now", UNIT])
        .unwrap();
    let socket = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    udp::exchange(&socket, echo.address(), b"carried", LIMIT).unwrap();

    write("[8000, 9000]");
    machine.run("systemctl", &["reload", UNIT]).unwrap();
    let interface = |machine: &Machine| status(machine)["interfaces"][0].clone();
    assert_eq!(
        interface(&machine)["ports"],
        serde_json::json!(["8000", "9000"])
    );
    write("[80000]");
    let refused = machine.run("systemctl", &["reload", UNIT]).unwrap_err();
    let text = format!("{refused:#}");
    assert!(text.contains("`80000` is not a port"), "{text}");
    udp::exchange(&socket, echo.address(), b"still carried", LIMIT).unwrap();
    assert_eq!(
        interface(&machine)["ports"],
        serde_json::json!(["8000", "9000"])
    );
    assert_eq!(interface(&machine)["flows"][0]["tx_packets"], 2);

    machine.run("systemctl", &["stop", UNIT]).unwrap();
    let pins = machine.run("ls", &["/sys/fs/bpf"]).unwrap();
    assert!(!pins.contains("xdptun"), "{pins}");
}
