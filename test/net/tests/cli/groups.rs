//! `xdptun run` with equal tables, whose interfaces form a group, and reloads that change
//! it.

use serde_json::json;
use xdptun_lab::{Attached, Family, Host, Multihomed, Side, link, udp, wait, xdptun};
use xdptun_test_net::groups::{
    BOTH, Talk, assert_nothing_lost, assert_only_goes_on, echo, ends, watch,
};
use xdptun_test_net::mode;
use xdptun_test_net::service::{File, attached, control_socket, ports, reload, reloads};
use xdptun_test_net::status::{self, counter_on, counters_of, flows_on, group};
use xdptun_test_net::traces::Traces;
use xdptun_test_net::wire::Wire;
use xdptun_test_net::{LIMIT, PORT};

const ALL: [&str; 3] = ["eth0", "eth1", "eth2"];

const TABLE: &str = "ports = [8000]\n";

/// A file with a table for each of these interfaces.
fn tables(tables: &[(&str, &str)]) -> String {
    let tables = tables.iter();
    tables
        .map(|(dev, table)| format!("[interface.{dev}]\n{table}"))
        .collect()
}

/// A file with the same table for all of these interfaces.
fn equal(devs: &[&str], table: &str) -> String {
    let all: Vec<_> = devs.iter().map(|dev| (*dev, table)).collect();
    tables(&all)
}

fn run(file: &File, host: &Host, devs: &[&str]) -> Attached {
    let service = file.run(host);
    service.wait_all_ready(devs).unwrap();
    service
}

/// The programs, filters and settings of one interface of a host. Left out: the list of
/// interfaces and the pins, which show the other interfaces, too.
fn own_traces(host: &Host, dev: &str) -> Traces {
    let traces = Traces::on(&host.netns, dev).unwrap();
    Traces {
        links: Vec::new(),
        pins: Vec::new(),
        ..traces
    }
}

#[test]
fn equal_tables_form_a_group_and_others_do_not() {
    let net = Multihomed::with_links(3).unwrap();
    let netns = &net.a.netns;
    let before = ALL.map(|dev| Traces::on(netns, dev).unwrap());
    let file = File::new(&tables(&[
        ("eth0", TABLE),
        ("eth2", "ports = [8000]\nkeepalive = 20\n"),
        ("eth1", TABLE),
    ]));
    let service = run(&file, &net.a, &ALL);
    let far = mode::TC.attach_group(&net.b, &ALL, &["--port", "8000"]);
    let _far = far.unwrap();
    let pid = service.process().pid().as_raw();
    for (dev, members) in [("eth0", &BOTH[..]), ("eth1", &BOTH), ("eth2", &["eth2"])] {
        assert_eq!(group(netns, dev).unwrap(), members, "{dev}");
        let shown = status::interface(netns, dev).unwrap();
        assert_eq!(shown["daemon"], pid, "{dev}");
    }

    let wires = ALL.map(|dev| Wire::watch_on(&[&net.a], dev).unwrap());
    let syns = |link: usize| wires[link].count(PORT, |segment| segment.flags() == "S");
    let (socket, server) = ends(&net, Family::V4).unwrap();
    echo(&socket, server.address(), 0..10).unwrap();
    net.route(1).unwrap();
    echo(&socket, server.address(), 10..20).unwrap();
    wait::until(LIMIT, "the flow on eth1", || {
        let counts = BOTH.map(|dev| flows_on(netns, dev).unwrap().len());
        counts == [0, 1]
    })
    .unwrap();
    assert_eq!([0, 1, 2].map(syns), [1, 0, 0]);
    // The other group does not know the flow.
    net.route_from(Side::A, 2).unwrap();
    socket.send_to(b"unknown here", server.address()).unwrap();
    wait::until(LIMIT, "a handshake on eth2", || syns(2) > 0).unwrap();
    assert_eq!([0, 1].map(syns), [1, 0]);
    assert_eq!(flows_on(netns, "eth2").unwrap().len(), 1);
    for wire in wires {
        wire.stop().unwrap();
    }
    service.stop().unwrap();
    assert_eq!(ALL.map(|dev| Traces::on(netns, dev).unwrap()), before);
    assert!(!control_socket(netns).exists());
}

/// Each of these would make two groups of one, whose flows are in one table.
#[test]
fn a_reload_that_takes_a_group_apart_is_refused() {
    let net = Multihomed::new().unwrap();
    let netns = &net.a.netns;
    let good = equal(&BOTH, TABLE);
    let file = File::new(&good);
    let service = run(&file, &net.a, &BOTH);
    let far = mode::TC.attach_group(&net.b, &BOTH, &["--port", "8000-9000"]);
    let _far = far.unwrap();
    let talk = Talk::start(&net.a, &net.b).unwrap();
    let wires = watch(&net).unwrap();
    let before = BOTH.map(|dev| Traces::on(netns, dev).unwrap());
    let both = "ports = [8000, 9000]\n";
    for tables in [
        tables(&[("eth0", TABLE), ("eth1", both)]),
        tables(&[("eth0", both), ("eth1", TABLE)]),
        tables(&[
            ("eth0", TABLE),
            ("eth1", "ports = [8000]\nkeepalive = 20\n"),
        ]),
        tables(&[
            ("eth0", TABLE),
            ("eth1", "ports = [8000]\npeers = [\"10.6.0.2\"]\n"),
        ]),
        // A new interface that could be attached comes with it.
        tables(&[("lo", "ports = [9]\n"), ("eth0", TABLE), ("eth1", both)]),
    ] {
        file.write(&tables);
        reload(netns).assert_one_line(&["nothing was changed", "eth0", "eth1"]);
        assert_eq!(BOTH.map(|dev| Traces::on(netns, dev).unwrap()), before);
        assert_eq!(attached(netns), BOTH);
        for dev in BOTH {
            assert_eq!(ports(netns, dev), "8000");
            assert_eq!(group(netns, dev).unwrap(), BOTH);
            let shown = status::interface(netns, dev).unwrap();
            assert!(shown["peers"].as_array().unwrap().is_empty(), "{shown:#}");
        }
        for link in [1, 0] {
            net.route(link).unwrap();
            talk.round().unwrap();
        }
    }
    file.write(&good);
    reloads(netns, &["no interface changed"]);
    let asked = talk.settle().unwrap();
    let counters = counters_of(netns, &BOTH).unwrap();
    assert_eq!(counters["tx_disguised"], asked, "{counters:?}");
    assert_nothing_lost(&counters, "refused reloads");
    talk.finish().unwrap();
    for wire in wires {
        assert_only_goes_on(wire, "refused reloads");
    }
    service.stop().unwrap();
}

/// Ports, and then settings that take other programs, while datagrams pass.
#[test]
fn a_reload_changes_a_group_as_a_whole() {
    let net = Multihomed::new().unwrap();
    let netns = &net.a.netns;
    let file = File::new(&equal(&BOTH, TABLE));
    let service = run(&file, &net.a, &BOTH);
    let far = mode::TC.attach_group(&net.b, &BOTH, &["--port", "8000-9000"]);
    let _far = far.unwrap();
    net.route_from(Side::B, 1).unwrap();
    let talk = Talk::start(&net.a, &net.b).unwrap();
    let wires = watch(&net).unwrap();
    let table = "ports = [8000, 9000]\npeers = [\"10.6.0.2\", \"fd00:6::2\"]\nkeepalive = 5\n";
    for (before, tables) in [
        ("", equal(&BOTH, "ports = [8000, 9000]\n")),
        ("", equal(&BOTH, table)),
        ("log-level = \"trace\"\n", equal(&BOTH, table)),
        ("", equal(&BOTH, table)),
    ] {
        file.write(&format!("{before}{tables}"));
        let outcome = reload(netns);
        assert_eq!(outcome.code, Some(0), "{outcome:#?}");
        for dev in BOTH {
            assert_eq!(ports(netns, dev), "8000 9000");
            assert_eq!(group(netns, dev).unwrap(), BOTH);
        }
        talk.round().unwrap();
    }
    let asked = talk.settle().unwrap();
    for host in [&net.a, &net.b] {
        let counters = counters_of(&host.netns, &BOTH).unwrap();
        assert_nothing_lost(&counters, host.netns.name());
        let carried = ["tx_disguised", "rx_restored"].map(|way| counters.get(way));
        assert_eq!(carried, [Some(&asked); 2], "{counters:?}");
    }
    talk.finish().unwrap();
    for wire in wires {
        assert_only_goes_on(wire, "reloads");
    }
    // The new port is one of the group as well: its flow takes either link.
    let at = net.b.socket(Family::V4, 9000);
    let server = udp::Server::echo(&net.b.netns, at).unwrap();
    let socket = udp::bind(netns, net.a.socket(Family::V4, 0)).unwrap();
    let wires = BOTH.map(|dev| Wire::watch_on(&[&net.a], dev).unwrap());
    for link in [0, 1] {
        net.route(link).unwrap();
        let numbers = u32::from(link) * 10..u32::from(link) * 10 + 10;
        echo(&socket, server.address(), numbers).unwrap();
    }
    let syns = |wire: &Wire| wire.count(9000, |segment| segment.flags() == "S");
    // A capture lags behind.
    let opens = || wires.each_ref().map(syns) == [1, 0];
    wait::until(LIMIT, "one SYN on the first link alone", opens).unwrap();
    for wire in wires {
        wire.stop().unwrap();
    }
    service.stop().unwrap();
}

#[test]
fn a_new_interface_with_an_equal_table_joins() {
    let net = Multihomed::with_links(3).unwrap();
    let netns = &net.a.netns;
    let file = File::new(&equal(&BOTH, TABLE));
    let service = run(&file, &net.a, &BOTH);
    let far = mode::TC.attach_group(&net.b, &ALL, &["--port", "8000"]);
    let _far = far.unwrap();
    let talk = Talk::start(&net.a, &net.b).unwrap();
    let hosts = [&net.a, &net.b];
    let wires = ["eth0", "eth2"].map(|dev| Wire::watch_on(&hosts, dev).unwrap());
    file.write(&equal(&ALL, TABLE));
    reloads(netns, &["eth2: attached"]);
    assert_eq!(attached(netns), ALL);
    for dev in ALL {
        assert_eq!(group(netns, dev).unwrap(), ALL);
    }
    net.route(2).unwrap();
    talk.round().unwrap();
    let carried = counter_on(netns, "eth2", "tx_disguised").unwrap();
    assert!(carried >= talk.of_round(), "{carried}");

    // One that is not there yet joins when it is.
    net.unplug(1).unwrap();
    let waits = "eth1: the interface is gone; waiting for it to come back";
    let told = || service.process().stderr().join("\n").contains(waits);
    wait::until(LIMIT, "the loss to be noticed", told).unwrap();
    let four = ["eth0", "eth1", "eth2", "eth3"];
    file.write(&equal(&four, TABLE));
    reloads(netns, &["eth3: waited for, as there is no such interface"]);
    net.plug_in(1).unwrap();
    service.wait_ready("eth1", 2, LIMIT).unwrap();
    net.plug_in(3).unwrap();
    service.wait_ready("eth3", 1, LIMIT).unwrap();
    let by_index = ["eth0", "eth2", "eth1", "eth3"];
    assert_eq!(attached(netns), by_index);
    assert_eq!(group(netns, "eth3").unwrap(), by_index);
    talk.finish().unwrap();
    for wire in wires {
        assert_only_goes_on(wire, "joined");
    }
    service.stop().unwrap();
}

/// Whichever it is, the flows of the group go on by the other under traffic, and nothing ends
/// them on the wire.
#[test]
fn an_interface_leaves_its_group_and_the_flows_stay() {
    for (link, leaves) in (0..).zip(BOTH) {
        let (other, stays) = (1 - link, BOTH[usize::from(1 - link)]);
        let net = Multihomed::new().unwrap();
        let netns = &net.a.netns;
        let before = own_traces(&net.a, leaves);
        let file = File::new(&equal(&BOTH, TABLE));
        let service = run(&file, &net.a, &BOTH);
        let far = mode::TC.attach_group(&net.b, &BOTH, &["--port", "8000"]);
        let _far = far.unwrap();
        net.route(link).unwrap();
        let talk = Talk::start(&net.a, &net.b).unwrap();
        let wires = watch(&net).unwrap();
        // The kernel would reset what comes in where no program is.
        net.route(other).unwrap();
        talk.round().unwrap();
        assert_ne!(own_traces(&net.a, leaves), before, "{leaves}");
        let earlier = counter_on(netns, leaves, "tx_disguised").unwrap();

        file.write(&equal(&[stays], TABLE));
        let told = format!("{leaves}: detached");
        reloads(netns, &[&told]);
        assert_eq!(attached(netns), [stays], "{leaves}");
        assert_eq!(group(netns, stays).unwrap(), [stays], "{leaves}");
        assert_eq!(own_traces(&net.a, leaves), before);
        talk.round().unwrap();
        let asked = talk.settle().unwrap();
        let sent = counter_on(netns, stays, "tx_disguised").unwrap();
        assert_eq!(sent, asked - earlier, "{leaves}");
        let flows = flows_on(netns, stays).unwrap();
        let carried: u64 = flows.iter().map(|flow| flow.tx.0).sum();
        assert_eq!((flows.len(), carried), (2, asked), "{leaves}: {flows:?}");
        talk.finish().unwrap();
        for wire in wires {
            assert_only_goes_on(wire, leaves);
        }
        service.stop().unwrap();
        let shown = xdptun::status(netns).unwrap();
        assert_eq!(shown["interfaces"], json!([]), "{leaves}");
        let links = link::names(netns).unwrap();
        assert_eq!(links, ["lo", "eth0", "eth1"], "{leaves}");
    }
}
