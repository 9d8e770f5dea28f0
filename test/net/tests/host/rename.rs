//! The interface is renamed while it is attached: every verb knows it by its present
//! name, flows go on, and another interface with the old name is another one.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;
use xdptun_lab::{Attached, Direct, Family, Host, Netns, udp, wait, xdptun};
use xdptun_test_net::cli::run;
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::service::{File, add, reloads};
use xdptun_test_net::traces::pins;
use xdptun_test_net::{LIMIT, PORT, http, status};

const NEW: &str = "wan0";

/// Kernels before 6.2 rename only what is down.
fn rename(netns: &Netns) {
    netns.run("ip", ["link", "set", Host::DEV, "down"]).unwrap();
    netns
        .run("ip", ["link", "set", Host::DEV, "name", NEW])
        .unwrap();
    netns.run("ip", ["link", "set", NEW, "up"]).unwrap();
}

fn text(netns: &Netns, args: &[&str]) -> String {
    xdptun::run_in(netns, args).unwrap()
}

fn first_interface(netns: &Netns, args: &[&str]) -> Value {
    let json: Value = serde_json::from_str(text(netns, args).trim()).unwrap();
    json["interfaces"][0].clone()
}

/// Packets can be captured by the new name.
fn captures(netns: &Netns) {
    let capture = [
        "capture",
        "--iface",
        NEW,
        "-w",
        "/dev/null",
        "--duration",
        "0.2",
    ];
    let captured = run(netns, &capture).unwrap();
    assert_eq!(captured.code, Some(0), "{captured:#?}");
}

fn wait_renamed(attached: &Attached) {
    let process = attached.process();
    let told = || {
        let log = process.stderr().join("\n");
        log.contains("eth0: it is called wan0 now")
    };
    process
        .with_output(wait::until(LIMIT, "the daemon to notice", told))
        .unwrap();
}

fn is_known_by_its_new_name(mode: Mode) {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    let before = pins(netns).unwrap();
    let [client, _server] = mode.attach_both(&net).unwrap();
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let socket = udp::bind(netns, net.a.socket(Family::V4, 0)).unwrap();
    udp::exchange(&socket, echo.address(), b"before", LIMIT).unwrap();

    rename(netns);
    // One that takes the old name is not it.
    add(netns, Host::DEV);
    wait_renamed(&client);
    udp::exchange(&socket, echo.address(), b"after", LIMIT).unwrap();

    let interface = status::interface(netns, NEW).unwrap();
    assert_eq!(interface["mtu"], 1500, "{mode:?}: {interface:#}");
    assert_eq!(interface["counters"]["tx_disguised"], 2, "{interface:#}");
    assert_eq!(interface["flows"].as_array().unwrap().len(), 1);
    let hooks = interface["hooks"].as_array().unwrap();
    let expected = if mode.ingress == "tc" { 2 } else { 3 };
    assert_eq!(hooks.len(), expected, "{mode:?}: {interface:#}");
    assert!(status::interface(netns, Host::DEV).is_err());
    for args in [
        &["flows", "--json", "--iface", NEW][..],
        &[
            "watch",
            "--json",
            "--iface",
            NEW,
            "--count",
            "1",
            "--interval",
            "0.2",
        ],
    ] {
        assert_eq!(first_interface(netns, args)["name"], NEW, "{args:?}");
    }
    for verb in ["flows", "watch"] {
        let old = run(netns, &[verb, "--iface", Host::DEV]).unwrap();
        old.assert_one_line(&[Host::DEV, "nothing is attached"]);
    }
    let doctor = run(netns, &["doctor"]).unwrap();
    let said = doctor.stdout.join("\n");
    for finding in ["wan0: every program is on its hook", "wan0: process"] {
        assert!(said.contains(finding), "{doctor:#?}");
    }
    assert!(!said.contains("it is gone"), "{doctor:#?}");
    captures(netns);
    udp::exchange(&socket, echo.address(), b"captured", LIMIT).unwrap();

    let old = run(netns, &["detach", "--iface", Host::DEV]).unwrap();
    old.assert_one_line(&[Host::DEV, "nothing is attached"]);
    let detached = run(netns, &["detach", "--iface", NEW]).unwrap();
    assert_eq!(detached.code, Some(0), "{mode:?}: {detached:#?}");
    let ended = || !client.process().is_running().unwrap();
    wait::until(LIMIT, "the daemon to end", ended).unwrap();
    assert_eq!(pins(netns).unwrap(), before);
    let filters = netns
        .run("tc", ["filter", "show", "dev", NEW, "egress"])
        .unwrap();
    assert_eq!(filters, "", "{mode:?}");
}

#[test]
fn under_tcx() {
    is_known_by_its_new_name(mode::TC);
}

#[test]
fn under_clsact() {
    is_known_by_its_new_name(mode::TC_CLSACT);
}

#[test]
fn under_native_xdp() {
    is_known_by_its_new_name(mode::XDP);
}

#[test]
fn metrics_have_the_new_name() -> Result<()> {
    const AT: &str = "127.0.0.1:9470";
    let net = Direct::new()?;
    let netns = &net.a.netns;
    let attached = mode::TC.attach(&net.a, &["--port", "8000", "--metrics", AT])?;
    rename(netns);
    wait_renamed(&attached);
    let page = http::request(netns, AT.parse()?, "GET", "/metrics")?;
    assert!(page.body.contains("interface=\"wan0\""), "{page:#?}");
    assert!(!page.body.contains("interface=\"eth0\""), "{page:#?}");
    attached.stop()
}

/// Another process takes over under the new name, and is then the one that is asked.
#[test]
fn a_take_over_goes_by_the_new_name() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    let first = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    rename(netns);
    wait_renamed(&first);
    let remains = first.kill().unwrap();
    let second = Attached::start(netns, NEW, &["--port", "8000"]).unwrap();
    drop(remains);
    assert!(status::interface(netns, NEW).unwrap()["daemon"].is_i64());
    captures(netns);
    netns.run("ip", ["link", "delete", NEW]).unwrap();
    let gone = text(netns, &["status"]);
    assert!(gone.contains("wan0  ports 8000"), "{gone}");
    second.stop().unwrap();
}

/// The remains of a killed daemon, its socket included, are detached by the new name.
#[test]
fn remains_are_detached_by_the_new_name() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    let attached = mode::TC_CLSACT.attach(&net.a, &["--port", "8000"]).unwrap();
    let asked_at = format!("/run/xdptun/{}-tunnel-eth0.sock", netns.cookie().unwrap());
    wait::until(LIMIT, "the socket", || Path::new(&asked_at).exists()).unwrap();
    rename(netns);
    let _remains = attached.kill().unwrap();
    let detached = run(netns, &["detach", "--iface", NEW]).unwrap();
    assert_eq!(detached.code, Some(0), "{detached:#?}");
    assert_eq!(pins(netns).unwrap(), [""; 0]);
    assert!(!Path::new(&asked_at).exists());
}

/// The service knows it by the name in its file; a reload reaches it, and so do new
/// programs.
#[test]
fn the_service_goes_on_under_the_name_in_its_file() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    let file = File::new("[interface.eth0]\nports = [8000]\n");
    let service = file.run(&net.a);
    rename(netns);
    wait_renamed(&service);
    // A lookup by name would find this one.
    add(netns, Host::DEV);
    file.write("log-level = \"trace\"\n[interface.eth0]\nports = [8000, 9000]\n");
    reloads(netns, &["eth0: changed"]);
    let interface = status::interface(netns, NEW).unwrap();
    assert_eq!(interface["ports"], serde_json::json!(["8000", "9000"]));
    file.write("[interface.eth0]\nports = [8000]\nmax-flows = 7\n");
    let refused = run(netns, &["reload"]).unwrap();
    refused.assert_one_line(&[
        "nothing was changed",
        "max-flows",
        "take eth0 out of the file",
    ]);
    let refused = run(netns, &["detach", "--iface", NEW]).unwrap();
    refused.assert_one_line(&["xdptun run", "take eth0 out of its file"]);
    service.stop().unwrap();
    assert_eq!(pins(netns).unwrap(), [""; 0]);
}
