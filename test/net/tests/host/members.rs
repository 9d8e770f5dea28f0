//! An interface of a group is recreated or renamed: the others go on with all flows, and it
//! is one of them again.

use xdptun_lab::{Attached, Multihomed, Netns, link, wait};
use xdptun_test_net::cli::run;
use xdptun_test_net::groups::{BOTH, Talk, assert_nothing_lost, assert_only_goes_on, watch};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::service::{add, attached};
use xdptun_test_net::status::{self, counter_on, counters_of, counters_on, flows_on, group};
use xdptun_test_net::traces::{Traces, pins, tcx_on};
use xdptun_test_net::wire::Wire;
use xdptun_test_net::{LIMIT, PORT, kernel};

fn wait_told(attached: &Attached, what: &str) {
    let process = attached.process();
    let told = || process.stderr().join("\n").contains(what);
    process.with_output(wait::until(LIMIT, what, told)).unwrap();
}

fn wait_ended(attached: &Attached) {
    let ended = || !attached.process().is_running().unwrap();
    wait::until(LIMIT, "the process to end", ended).unwrap();
}

/// Both interfaces of link 0 are deleted and made again; the flows are on link 1 meanwhile,
/// and take link 0 again when both groups carry it.
fn joins_again(mode: Mode) {
    let net = Multihomed::new().unwrap();
    let hosts = [&net.a, &net.b];
    let groups = mode.attach_groups(hosts, &BOTH, &[]).unwrap();
    let talk = Talk::start(&net.a, &net.b).unwrap();
    let stays = Wire::watch_on(&hosts, "eth1").unwrap();
    for round in 1..=2 {
        let context = format!("{mode:?}, round {round}");
        net.route(1).unwrap();
        // Nothing is under way on the link that goes.
        talk.settle().unwrap();
        talk.resume();
        net.unplug(0).unwrap();
        talk.round().unwrap();
        for group in &groups {
            let gone = || {
                let log = group.process().stderr();
                let gone = log
                    .iter()
                    .filter(|l| l.contains("eth0: the interface is gone"));
                gone.count() == round
            };
            let noticed = wait::until(LIMIT, "the loss to be noticed", gone);
            group.process().with_output(noticed).unwrap();
        }
        for host in hosts {
            let flows = flows_on(&host.netns, "eth1").unwrap();
            let states: Vec<&str> = flows.iter().map(|flow| flow.state.as_str()).collect();
            assert_eq!(states, ["established"; 2], "{context}");
        }
        net.plug_in(0).unwrap();
        for group in &groups {
            group.wait_ready("eth0", round + 1, LIMIT).unwrap();
        }
        for host in hosts {
            // In order of index.
            for dev in BOTH {
                assert_eq!(
                    group(&host.netns, dev).unwrap(),
                    ["eth1", "eth0"],
                    "{context}"
                );
            }
        }
        let again = Wire::watch_on(&hosts, "eth0").unwrap();
        let sent = || hosts.map(|host| counter_on(&host.netns, "eth0", "tx_disguised").unwrap());
        let before = sent();
        net.route(0).unwrap();
        talk.round().unwrap();
        for (before, after) in before.into_iter().zip(sent()) {
            assert!(
                after - before >= talk.of_round(),
                "{context}: {before} to {after}"
            );
        }
        assert_only_goes_on(again, &context);
    }
    talk.settle().unwrap();
    assert_only_goes_on(stays, &format!("{mode:?}"));
    for host in hosts {
        let counters = counters_on(&host.netns, "eth1").unwrap();
        assert_nothing_lost(&counters, &format!("{mode:?}"));
    }
    talk.finish().unwrap();
    for group in groups {
        group.stop().unwrap();
    }
    for host in hosts {
        assert_eq!(pins(&host.netns).unwrap(), [""; 0], "{mode:?}");
        let links = link::names(&host.netns).unwrap();
        assert_eq!(links, ["lo", "eth1", "eth0"], "{mode:?}");
    }
}

#[test]
fn tcx_links_join_again() {
    joins_again(mode::TC);
}

#[test]
fn filters_join_again() {
    joins_again(mode::TC_CLSACT);
}

#[test]
fn native_xdp_joins_again() {
    joins_again(mode::XDP);
}

/// A group of which an interface stays away can be ended by the name of any.
#[test]
fn a_group_with_an_interface_gone_can_be_detached() {
    for name in BOTH {
        let net = Multihomed::new().unwrap();
        let netns = &net.a.netns;
        let before = Traces::on(netns, "eth1").unwrap();
        let group = mode::TC
            .attach_group(&net.a, &BOTH, &["--port", "8000"])
            .unwrap();
        net.unplug(0).unwrap();
        wait_told(&group, "eth0: the interface is gone");
        let detached = run(netns, &["detach", "--iface", name]).unwrap();
        assert_eq!(detached.code, Some(0), "{name}: {detached:#?}");
        wait_ended(&group);
        let after = Traces::on(netns, "eth1").unwrap();
        assert_eq!(after.links, ["lo", "eth1"], "{name}");
        let links = before.links.clone();
        assert_eq!(Traces { links, ..after }, before, "{name}");
    }
}

const NEW: &str = "wan0";

/// Kernels before 6.2 rename only what is down.
fn rename(net: &Multihomed) {
    let netns = &net.a.netns;
    for change in [&["eth0", "down"][..], &["eth0", "name", NEW], &[NEW, "up"]] {
        let set = [&["link", "set"], change].concat();
        netns.run("ip", set).unwrap();
    }
    link::wait_up(netns, NEW).unwrap();
    link::wait_up(&net.b.netns, "eth0").unwrap();
}

/// Whether a device has no program of any kind.
fn assert_untouched(netns: &Netns, dev: &str) {
    if kernel::has_tcx() {
        let programs = netns.enter(|| tcx_on(dev)).unwrap().unwrap();
        assert_eq!(programs, [""; 0]);
    }
    for way in ["ingress", "egress"] {
        let show = ["filter", "show", "dev", dev, way];
        assert_eq!(netns.run("tc", show).unwrap(), "");
    }
    let details = netns.run("ip", ["-details", "link", "show", "dev", dev]);
    let details = details.unwrap();
    assert!(!details.contains("prog/xdp"), "{details}");
}

/// Status and doctor know it by its new name, flows take it as before, and a device that
/// gets the old name is none of the group.
fn is_known_by_its_new_name(mode: Mode) {
    let net = Multihomed::new().unwrap();
    let netns = &net.a.netns;
    let [near, _far] = mode.attach_groups([&net.a, &net.b], &BOTH, &[]).unwrap();
    let talk = Talk::start(&net.a, &net.b).unwrap();
    let wires = watch(&net).unwrap();
    net.route(1).unwrap();
    talk.settle().unwrap();
    talk.resume();
    rename(&net);
    add(netns, "eth0");
    wait_told(&near, "eth0: it is called wan0 now");

    let renamed = [NEW, "eth1"];
    assert_eq!(attached(netns), renamed, "{mode:?}");
    for dev in renamed {
        assert_eq!(group(netns, dev).unwrap(), renamed, "{mode:?}");
    }
    assert!(status::interface(netns, "eth0").is_err(), "{mode:?}");
    assert_untouched(netns, "eth0");
    let doctor = run(netns, &["doctor"]).unwrap();
    let said = doctor.stdout.join("\n");
    for dev in renamed {
        let finding = format!("{dev}: every program is on its hook");
        assert!(said.contains(&finding), "{mode:?}: {doctor:#?}");
    }
    assert!(!said.contains("it is gone"), "{mode:?}: {doctor:#?}");

    let sent = || counter_on(netns, NEW, "tx_disguised").unwrap();
    let before = sent();
    net.route(0).unwrap();
    talk.round().unwrap();
    assert!(sent() - before >= talk.of_round(), "{mode:?}");
    let asked = talk.settle().unwrap();
    let counters = counters_of(netns, &renamed).unwrap();
    let carried = ["tx_disguised", "rx_restored"].map(|way| counters.get(way));
    assert_eq!(carried, [Some(&asked); 2], "{mode:?}: {counters:?}");
    assert_nothing_lost(&counters, &format!("{mode:?}"));
    for wire in wires {
        assert_only_goes_on(wire, &format!("{mode:?}"));
    }
    talk.finish().unwrap();

    let old = run(netns, &["detach", "--iface", "eth0"]).unwrap();
    old.assert_one_line(&["eth0", "nothing is attached"]);
    let detached = run(netns, &["detach", "--iface", NEW]).unwrap();
    assert_eq!(detached.code, Some(0), "{mode:?}: {detached:#?}");
    wait_ended(&near);
    assert_eq!(pins(netns).unwrap(), [""; 0], "{mode:?}");
    for dev in renamed {
        assert_untouched(netns, dev);
    }
}

#[test]
fn renamed_under_tcx() {
    is_known_by_its_new_name(mode::TC);
}

#[test]
fn renamed_under_clsact() {
    is_known_by_its_new_name(mode::TC_CLSACT);
}

#[test]
fn renamed_under_native_xdp() {
    is_known_by_its_new_name(mode::XDP);
}

/// What a killed process left is known by the new name as well: one that takes it over names
/// the interface as it is now.
#[test]
fn a_renamed_interface_is_taken_over_with_its_group() {
    let net = Multihomed::new().unwrap();
    let netns = &net.a.netns;
    let [near, _far] = mode::TC
        .attach_groups([&net.a, &net.b], &BOTH, &[])
        .unwrap();
    let talk = Talk::start(&net.a, &net.b).unwrap();
    net.route(1).unwrap();
    talk.round().unwrap();
    talk.settle().unwrap();
    let remains = near.kill().unwrap();
    rename(&net);
    let wires = watch_renamed(&net);
    talk.resume();
    talk.round().unwrap();
    let port = PORT.to_string();
    let alone = ["attach", "--iface", "eth1", "--port", &port];
    run(netns, &alone).unwrap().assert_one_line(&[NEW]);
    let renamed = [NEW, "eth1"];
    let next = mode::TC.attach_group(&net.a, &renamed, &["--port", &port]);
    let next = next.unwrap();
    assert_eq!(group(netns, "eth1").unwrap(), renamed);
    net.route(0).unwrap();
    talk.round().unwrap();
    talk.finish().unwrap();
    for wire in wires {
        assert_only_goes_on(wire, "renamed");
    }
    next.stop().unwrap();
    assert_eq!(pins(netns).unwrap(), [""; 0]);
    drop(remains);
}

/// Captures of what the first host sends by each interface.
fn watch_renamed(net: &Multihomed) -> [Wire; 2] {
    [NEW, "eth1"].map(|dev| Wire::watch_on(&[&net.a], dev).unwrap())
}

/// An interface that was in another network namespace may come back with its old index, and
/// its links are dead.
fn comes_back_with_its_index(mode: Mode) {
    let net = Multihomed::new().unwrap();
    let netns = &net.a.netns;
    let away = Netns::new("away").unwrap();
    let group = mode.attach_group(&net.a, &BOTH, &["--port", "8000"]);
    let group = group.unwrap();
    let index = link::index(netns, "eth0").unwrap();
    let move_to = |from: &Netns, to: &Netns| {
        let command = ["link", "set", "eth0", "netns", to.name()];
        from.run("ip", command).unwrap();
    };
    move_to(netns, &away);
    wait_told(&group, "eth0: the interface is gone");
    move_to(&away, netns);
    group.wait_ready("eth0", 2, LIMIT).unwrap();
    assert_eq!(link::index(netns, "eth0").unwrap(), index, "{mode:?}");
    assert_eq!(attached(netns), BOTH, "{mode:?}");
    let doctor = run(netns, &["doctor"]).unwrap();
    let said = doctor.stdout.join("\n");
    for dev in BOTH {
        let finding = format!("{dev}: every program is on its hook");
        assert!(said.contains(&finding), "{mode:?}: {doctor:#?}");
    }
    group.stop().unwrap();
    assert_eq!(pins(netns).unwrap(), [""; 0], "{mode:?}");
    for dev in BOTH {
        assert_untouched(netns, dev);
    }
}

#[test]
fn one_that_was_away_comes_back() {
    for mode in [mode::TC, mode::TC_CLSACT, mode::XDP] {
        comes_back_with_its_index(mode);
    }
}

/// A group of which an interface was made anew while no process kept it: the next one follows
/// it, and nothing of the old interface stays.
#[test]
fn one_that_was_made_anew_meanwhile_is_followed() {
    let net = Multihomed::new().unwrap();
    let netns = &net.a.netns;
    let start = || mode::TC.attach_group(&net.a, &BOTH, &["--port", "8000"]);
    let remains = start().unwrap().kill().unwrap();
    net.unplug(0).unwrap();
    net.plug_in(0).unwrap();
    let next = start().unwrap();
    let names = attached(netns);
    assert_eq!(names, ["eth1", "eth0"]);
    next.stop().unwrap();
    assert_eq!(pins(netns).unwrap(), [""; 0]);
    drop(remains);
}
