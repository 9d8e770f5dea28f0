//! Nothing is left behind, however xdptun ends; the programs that a dead daemon leaves
//! still work.

use std::fs;
use std::os::unix::fs::symlink;

use ::xdptun::datapath::pins as bpffs;
use ::xdptun::group::Function as _;
use ::xdptun::tunnel::Tunnel;
use nix::net::if_::if_nametoindex;
use nix::sys::signal::Signal;
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Direct, Family, Host, WireStats, udp, wait, xdptun};
use xdptun_test_net::traces::{Traces, pins, tcx};
use xdptun_test_net::wire::Wire;
use xdptun_test_net::{LIMIT, PORT, cli, kernel, mode, status};

fn both(net: &Direct) -> [Traces; 2] {
    [&net.a, &net.b].map(|host| Traces::of(host).unwrap())
}

/// Native XDP at one end changes the features of the other, so both are looked
/// at.
#[test]
fn a_signal_leaves_nothing_behind() {
    for (mode, signal) in mode::ALL
        .iter()
        .zip([Signal::SIGINT, Signal::SIGTERM].iter().cycle())
    {
        let net = Direct::new().unwrap();
        let before = both(&net);
        let attached = mode.attach_both(&net).unwrap();
        for family in Family::BOTH {
            let echo = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
            let socket = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
            udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
        }
        assert_ne!(both(&net), before);
        for attached in &attached {
            attached.process().signal(*signal).unwrap();
        }
        wait::until(LIMIT, "both to end", || {
            attached
                .iter()
                .all(|attached| !attached.process().is_running().unwrap())
        })
        .unwrap();
        assert_eq!(both(&net), before, "{mode:?} {signal}");
        for family in Family::BOTH {
            let echo = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
            let socket = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
            let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
            udp::exchange(&socket, echo.address(), b"plain again", LIMIT).unwrap();
            let stats = WireStats::of(PORT, &wire.stop().unwrap());
            assert_eq!(
                (stats.udp_datagrams, stats.tcp_segments),
                (2, 0),
                "{stats:#?}"
            );
        }
    }
}

/// Others use the clsact qdisc too; theirs stays.
#[test]
fn a_clsact_qdisc_and_filter_of_others_stay() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    netns
        .run("tc", ["qdisc", "add", "dev", Host::DEV, "clsact"])
        .unwrap();
    // One classic BPF instruction: it matches everything.
    let filter = "filter add dev eth0 egress protocol ip pref 7 bpf bytecode";
    let args = filter.split(' ').chain(["1,6 0 0 4294967295,"]);
    netns.run("tc", args).unwrap();
    let before = Traces::of(&net.a).unwrap();
    assert!(before.qdiscs.contains("clsact"), "{before:#?}");
    assert!(before.filters.contains("pref 7 bpf"), "{before:#?}");
    for mode in [mode::TC_CLSACT, mode::TC] {
        let attached = mode.attach(&net.a, &["--port", "8000"]).unwrap();
        assert_ne!(Traces::of(&net.a).unwrap(), before);
        attached.stop().unwrap();
        assert_eq!(Traces::of(&net.a).unwrap(), before, "{mode:?}");
    }
}

/// A failure after some of it was attached takes that back.
#[test]
fn a_failed_attach_leaves_nothing_behind() {
    let net = Direct::new().unwrap();
    // A bridge has no native XDP.
    const BRIDGE: &str = "br0";
    let add = ["link", "add", BRIDGE, "type", "bridge"];
    net.a.netns.run("ip", add).unwrap();
    let before = both(&net);
    let args = [
        "attach",
        "--iface",
        BRIDGE,
        "--port",
        "8000",
        "--ingress",
        "xdp",
    ];
    let refused = cli::run(&net.a.netns, &args).unwrap();
    refused.assert_one_line(&[BRIDGE, "XDP", "`ingress` to `tc`"]);
    assert_eq!(both(&net), before);
}

/// Ended in the middle of attaching, by a signal it can catch and by one it
/// cannot.
#[test]
fn an_interrupted_attach_can_be_cleaned_up() {
    for mode in [mode::TC, mode::XDP, mode::TC_CLSACT] {
        let net = Direct::new().unwrap();
        let before = both(&net);
        let args = ["attach", "--iface", Host::DEV, "--port", "8000"];
        let args = [&args[..], &["--ingress", mode.ingress, "--tc", mode.tc]].concat();
        let start = || {
            let process = xdptun::spawn(&net.a.netns, &args).unwrap();
            wait::until_some(LIMIT, "the first pins", || {
                let pins = pins(&net.a.netns)?;
                Ok(pins.iter().any(|pin| pin.ends_with("FLOWS")).then_some(()))
            })
            .unwrap();
            process
        };
        let mut process = start();
        process.signal(Signal::SIGINT).unwrap();
        process.wait(LIMIT).unwrap();
        assert_eq!(both(&net), before, "{mode:?}: {:?}", process.output());

        start().kill().unwrap();
        xdptun::run_in(&net.a.netns, &["detach", "--iface", Host::DEV]).unwrap();
        assert_eq!(both(&net), before, "{mode:?}");
        assert_eq!(pins(&net.a.netns).unwrap(), [""; 0], "{mode:?}");
    }
}

/// What removes links has them detached when it is done: the kernel lets go of a link
/// whose pin is removed only at some later time, and until then its program would run.
#[test]
fn what_is_detached_does_not_run_on() {
    if !kernel::has_tcx() {
        eprintln!("skipped: the kernel has no TCX");
        return;
    }
    let net = Direct::new().unwrap();
    for mode in [mode::TC, mode::XDP] {
        let remains = mode.attach(&net.a, &["--port", "8000"]).unwrap().kill();
        let left = net.a.netns.enter(|| {
            assert_eq!(tcx().unwrap().len(), 2, "{mode:?}");
            let index = if_nametoindex(Host::DEV).unwrap();
            let group = bpffs::group_of(Tunnel::PROGRAMS, index).unwrap().unwrap();
            bpffs::remove_links(Tunnel::PROGRAMS, &bpffs::member(&group, index)).unwrap();
            tcx().unwrap()
        });
        assert_eq!(left.unwrap(), [""; 0], "{mode:?}");
        let details = net.a.netns.run("ip", ["link", "show", "dev", Host::DEV]);
        let details = details.unwrap();
        assert!(!details.contains("prog/xdp"), "{mode:?}: {details}");
        drop(remains);
    }
}

/// The programs carry on without the daemon, established flows and new ones; a
/// new flow loses only what was sent before its handshake. `detach` ends it.
#[test]
fn flows_survive_a_killed_daemon() {
    for mode in mode::ALL {
        let net = Direct::new().unwrap();
        let before = both(&net);
        let [near, far] = mode.attach_both(&net).unwrap();
        let echo = |family| udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let servers = Family::BOTH.map(echo);
        let sockets = Family::BOTH.map(|family| {
            let socket = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
            let server = net.b.socket(family, PORT);
            udp::exchange(&socket, server, b"before", LIMIT).unwrap();
            (socket, server)
        });
        let remains = [near, far].map(|attached: Attached| attached.kill().unwrap());
        let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
        for (socket, server) in &sockets {
            for round in 0..50 {
                let payload = udp::pattern(usize::from(round) * 20, round);
                udp::exchange(socket, *server, &payload, LIMIT)
                    .unwrap_or_else(|error| panic!("{mode:?}: {error:#}"));
            }
        }
        let daemon = &xdptun::status(&net.a.netns).unwrap()["interfaces"][0]["daemon"];
        assert!(daemon.is_null(), "{daemon}");
        for family in Family::BOTH {
            let socket = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
            let local = socket.local_addr().unwrap().to_string();
            socket
                .send_to(b"opens the flow", net.b.socket(family, PORT))
                .unwrap();
            wait::until_some(LIMIT, "the new flow", || {
                let flows = status::flows(&net.a.netns)?;
                let mut ours = flows.iter().filter(|flow| flow.local == local);
                Ok(ours.any(|flow| flow.state == "established").then_some(()))
            })
            .unwrap();
            udp::exchange(&socket, net.b.socket(family, PORT), b"passes", LIMIT).unwrap();
        }
        let stats = WireStats::of(PORT, &wire.stop().unwrap());
        assert_eq!((stats.udp_datagrams, stats.rst), (0, 0), "{stats:#?}");
        assert_eq!((stats.bad_checksums, stats.syn), (0, 2), "{stats:#?}");

        for host in [&net.a, &net.b] {
            xdptun::run_in(&host.netns, &["detach", "--iface", Host::DEV]).unwrap();
            assert_eq!(pins(&host.netns).unwrap(), [""; 0]);
        }
        assert_eq!(both(&net), before, "{mode:?}");
        drop((remains, servers));
    }
}

/// Pins outlive their interface; `detach` still finds them by its name.
#[test]
fn pins_of_an_interface_that_is_gone_can_be_removed() {
    let net = Direct::new().unwrap();
    let attached = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    let remains = attached.kill().unwrap();
    assert_ne!(pins(&net.a.netns).unwrap(), [""; 0]);
    net.a
        .netns
        .run("ip", ["link", "delete", Host::DEV])
        .unwrap();
    xdptun::run_in(&net.a.netns, &["detach", "--iface", Host::DEV]).unwrap();
    assert_eq!(pins(&net.a.netns).unwrap(), [""; 0]);
    drop(remains);
}

/// Pins may belong to the user of a service, which must not reach root's files through
/// them: root's commands follow no links and check the kind of each pin.
#[test]
fn what_lies_in_place_of_pins_is_not_followed() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    let detach = || cli::run(netns, &["detach", "--iface", Host::DEV]).unwrap();
    let remains = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap().kill();
    let directory = xdptun::pin_dir(netns, Host::DEV).unwrap();

    // An array for each CPU copies more bytes than there is room for one record.
    let exchange = || {
        let [counters, owner, aside] =
            ["COUNTERS", "OWNER", "aside"].map(|name| directory.join(name));
        fs::rename(&counters, &aside).unwrap();
        fs::rename(&owner, &counters).unwrap();
        fs::rename(&aside, &owner).unwrap();
    };
    exchange();
    let status = cli::run(netns, &["status"]).unwrap();
    status.assert_one_line(&["OWNER", "not the map that xdptun made"]);
    exchange();

    let scratch = Scratch::new().unwrap();
    let precious = scratch.path().join("precious");
    fs::write(&precious, "root's").unwrap();
    let aside = directory.with_file_name("aside");
    fs::rename(&directory, &aside).unwrap();
    symlink(scratch.path(), &directory).unwrap();
    assert_ne!(detach().code, Some(0));
    assert_eq!(fs::read_to_string(&precious).unwrap(), "root's");
    fs::remove_file(&directory).unwrap();
    fs::rename(&aside, &directory).unwrap();

    assert_eq!(detach().code, Some(0));
    assert_eq!(pins(netns).unwrap(), Vec::<String>::new());
    drop(remains);
}
