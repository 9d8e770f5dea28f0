//! Several interfaces in one process: a group, attached, shown, taken over and ended as a
//! whole.

use std::net::UdpSocket;
use std::ops::Range;

use serde_json::Value;
use xdptun_lab::{Attached, Family, Host, Multihomed, Side, link, udp, wait, xdptun};
use xdptun_test_net::cli::{Outcome, run};
use xdptun_test_net::groups::{
    BOTH, Talk, assert_nothing_lost, assert_only_goes_on, echo, ends, watch,
};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::service::attached;
use xdptun_test_net::status::{
    self, Counters, counter_on, counters_of, counters_on, flows_of, flows_on, group,
};
use xdptun_test_net::traces::{Traces, pins};
use xdptun_test_net::wire::Wire;
use xdptun_test_net::{LIMIT, PORT};

/// Each way that programs are held.
const MODES: [Mode; 4] = [mode::TC, mode::XDP, mode::TC_CLSACT, mode::XDP_CLSACT];

/// The programs, filters, pins and settings of both interfaces of a host.
fn traces(host: &Host) -> [Traces; 2] {
    BOTH.map(|dev| Traces::on(&host.netns, dev).unwrap())
}

fn all_traces(net: &Multihomed) -> [[Traces; 2]; 2] {
    [traces(&net.a), traces(&net.b)]
}

fn attach(host: &Host, args: &[&str]) -> Outcome {
    let attach = ["attach", "--port", "8000"];
    run(&host.netns, &[&attach, args].concat()).unwrap()
}

fn wait_ended(attached: &Attached) {
    let ended = || !attached.process().is_running().unwrap();
    wait::until(LIMIT, "the process to end", ended).unwrap();
}

/// A socket of each family, with its echo server.
type Ends = [(UdpSocket, udp::Server); 2];

fn both_families(net: &Multihomed) -> Ends {
    Family::BOTH.map(|family| ends(net, family).unwrap())
}

fn echo_all(ends: &Ends, numbers: Range<u32>, context: &str) {
    for (socket, server) in ends {
        echo(socket, server.address(), numbers.clone())
            .unwrap_or_else(|error| panic!("{context}: {error:#}"));
    }
}

/// The options may name the interfaces in any order and form. A flow is shown with the
/// interface that carried its last packet, and each interface counts its own packets.
#[test]
fn status_shows_the_group_and_each_interface() {
    let net = Multihomed::with_links(3).unwrap();
    let netns = &net.a.netns;
    let near = mode::TC.attach_group(&net.a, &["eth1", "eth0"], &["--port", "8000"]);
    let near = near.unwrap();
    let alone = Attached::start(netns, "eth2", &["--port", "9000", "--ingress", "tc"]).unwrap();
    let mut command = net.b.netns.command(xdptun::binary().unwrap());
    command.args(["attach", "--iface", "eth0,eth1", "--port", "8000"]);
    let far = Attached::by(&net.b.netns, "eth0", &mut command).unwrap();
    far.wait_all_ready(&BOTH).unwrap();
    for attached in [&near, &far] {
        let summary = attached.summary();
        for dev in BOTH {
            let hooks = format!("{dev}: tc egress and tc ingress");
            let announced = summary.iter().filter(|line| line.starts_with(&hooks));
            assert_eq!(announced.count(), 1, "{summary:#?}");
        }
    }

    assert_eq!(attached(netns), ["eth0", "eth1", "eth2"]);
    assert_eq!(attached(&net.b.netns), BOTH);
    for (dev, members, process) in [
        ("eth0", &BOTH[..], &near),
        ("eth1", &BOTH, &near),
        ("eth2", &["eth2"], &alone),
    ] {
        assert_eq!(group(netns, dev).unwrap(), members, "{dev}");
        let shown = status::interface(netns, dev).unwrap();
        assert_eq!(shown["ifindex"], link::index(netns, dev).unwrap(), "{dev}");
        let pid = process.process().pid().as_raw();
        assert_eq!(shown["daemon"], pid, "{dev}");
        assert_eq!(shown["hooks"].as_array().unwrap().len(), 2, "{shown:#}");
    }

    let ends = both_families(&net);
    let shown_with = |netns, dev: &str, other: &str| {
        let what = format!("the flows to be shown with {dev} only");
        let shown = wait::until(LIMIT, &what, || {
            let count = |dev| flows_on(netns, dev).unwrap().len();
            (count(dev), count(other)) == (ends.len(), 0)
        });
        shown.unwrap_or_else(|error| panic!("{error:#}: {:#}", xdptun::status(netns).unwrap()));
    };
    // Of each family.
    let counts = [50, 70];
    echo_all(&ends, 0..50, "link 0");
    for host in [&net.a, &net.b] {
        shown_with(&host.netns, "eth0", "eth1");
    }
    net.route(1).unwrap();
    echo_all(&ends, 50..120, "link 1");
    for host in [&net.a, &net.b] {
        let netns = &host.netns;
        shown_with(netns, "eth1", "eth0");
        for (dev, count) in BOTH.into_iter().zip(counts) {
            for way in ["tx_disguised", "rx_restored"] {
                assert_eq!(counter_on(netns, dev, way).unwrap(), 2 * count, "{dev}");
            }
            let shown = status::interface(netns, dev).unwrap();
            let states = shown["flow_states"].as_object().unwrap().values();
            let states: u64 = states.map(|count| count.as_u64().unwrap()).sum();
            let flows = shown["flows"].as_array().unwrap();
            assert_eq!(states, flows.len() as u64, "{shown:#}");
        }
        let flows = flows_of(netns, &BOTH).unwrap();
        for flow in &flows {
            assert_eq!((flow.tx.0, flow.rx.0), (120, 120), "{flow:?}");
        }
    }
    assert_eq!(counters_on(netns, "eth2").unwrap(), Counters::new());
    assert!(flows_on(netns, "eth2").unwrap().is_empty());
    for attached in [near, alone, far] {
        attached.stop().unwrap();
    }
}

/// A flow that takes the other of two attachments is not known there; the second command says so.
#[test]
fn two_attach_commands_share_no_flow() {
    let net = Multihomed::new().unwrap();
    let netns = &net.a.netns;
    let port = ["--port", "8000"];
    let near = BOTH.map(|dev| Attached::start(netns, dev, &port).unwrap());
    let warning = format!(
        "eth0: kept by process {}, so flows are not shared with eth1",
        near[0].process().pid()
    );
    let warns = || {
        let said = near[1].process().stderr();
        said.iter().any(|line| line.contains(&warning))
    };
    wait::until(LIMIT, "the second command to say so", warns).unwrap();
    let _far = mode::TC.attach_group(&net.b, &BOTH, &port).unwrap();
    for dev in BOTH {
        assert_eq!(group(netns, dev).unwrap(), [dev]);
    }
    let (socket, server) = ends(&net, Family::V4).unwrap();
    echo(&socket, server.address(), 0..10).unwrap();
    assert_eq!(flows_on(netns, "eth0").unwrap().len(), 1);
    assert!(flows_on(netns, "eth1").unwrap().is_empty());
    let wire = Wire::watch_on(&[&net.a], "eth1").unwrap();
    net.route_from(Side::A, 1).unwrap();
    socket.send_to(b"unknown here", server.address()).unwrap();
    let opens = || wire.count(PORT, |segment| segment.flags() == "S") > 0;
    wait::until(LIMIT, "a handshake on the other link", opens).unwrap();
    let ends_on = |dev| {
        let flows = flows_on(netns, dev).unwrap().into_iter();
        flows
            .map(|flow| (flow.local, flow.remote))
            .collect::<Vec<_>>()
    };
    assert_eq!(ends_on("eth0"), ends_on("eth1"));
    assert_eq!(ends_on("eth0").len(), 1);
    wire.stop().unwrap();
}

#[test]
fn ten_interfaces_are_carried_in_little_memory() {
    const LINKS: u8 = 10;
    /// Resident memory of each process.
    const MOST_KIB: u64 = 30 << 10;
    let net = Multihomed::with_links(LINKS).unwrap();
    let hosts = [&net.a, &net.b];
    let names: Vec<String> = (0..LINKS).map(Multihomed::dev).collect();
    let devs: Vec<&str> = names.iter().map(String::as_str).collect();
    let all = mode::TC.attach_groups(hosts, &devs, &[]).unwrap();
    for host in hosts {
        assert_eq!(attached(&host.netns), devs);
        assert_eq!(group(&host.netns, "eth9").unwrap(), devs);
    }
    // A flow that stays on each link, and one that takes all of them.
    let (roaming, server) = ends(&net, Family::V4).unwrap();
    for (dev, number) in devs.iter().zip(0..) {
        let at = Multihomed::on_link(Side::B, number, Family::V6, PORT);
        let from = Multihomed::on_link(Side::A, number, Family::V6, 0);
        let staying = udp::Server::echo(&net.b.netns, at).unwrap();
        let socket = udp::bind(&net.a.netns, from).unwrap();
        udp::exchange(&socket, at, dev.as_bytes(), LIMIT).unwrap();
        net.route(number).unwrap();
        udp::exchange(&roaming, server.address(), dev.as_bytes(), LIMIT).unwrap();
        staying.stop().unwrap();
    }
    for host in hosts {
        for dev in &devs {
            let counters = counters_on(&host.netns, dev).unwrap();
            let carried = ["tx_disguised", "rx_restored"].map(|way| counters.get(way));
            assert_eq!(carried, [Some(&2); 2], "{dev}: {counters:?}");
        }
        let counters = counters_of(&host.netns, &devs).unwrap();
        let syns = ["sent_syn", "rx_syn"].map(|name| counters.get(name).copied());
        let opened = Some(u64::from(LINKS) + 1);
        let opens = if host.v4 == net.a.v4 {
            [opened, None]
        } else {
            [None, opened]
        };
        assert_eq!(syns, opens, "{counters:?}");
        assert_nothing_lost(&counters, host.netns.name());
        let flows = flows_of(&host.netns, &devs).unwrap();
        assert_eq!(flows.len(), usize::from(LINKS) + 1, "{flows:?}");
    }
    for attached in all {
        let resident = attached.process().resident_kib().unwrap();
        assert!(resident <= MOST_KIB, "{resident} KiB");
        attached.stop().unwrap();
    }
    for host in hosts {
        assert_eq!(pins(&host.netns).unwrap(), [""; 0]);
    }
}

#[test]
fn to_detach_one_interface_ends_the_whole_group() {
    for mode in MODES {
        for killed in [false, true] {
            let net = Multihomed::new().unwrap();
            let before = all_traces(&net);
            let context = format!("{mode:?}, killed {killed}");
            let group = mode
                .attach_group(&net.a, &BOTH, &["--port", "8000"])
                .unwrap();
            for (now, before) in traces(&net.a).iter().zip(&before[0]) {
                assert_ne!(now, before, "{context}");
            }
            let pid = group.process().pid();
            let detach = || run(&net.a.netns, &["detach", "--iface", "eth1"]).unwrap();
            let detached = if killed {
                let remains = group.kill().unwrap();
                assert_eq!(attached(&net.a.netns), BOTH, "{context}");
                let detached = detach();
                drop(remains);
                detached
            } else {
                let detached = detach();
                wait_ended(&group);
                let told = detached.stdout.join("\n");
                let stopped = format!("stopped process {pid}");
                assert!(told.contains(&stopped), "{context}: {detached:#?}");
                detached
            };
            assert_eq!(detached.code, Some(0), "{context}: {detached:#?}");
            assert_eq!(all_traces(&net), before, "{context}");
            assert_eq!(attached(&net.a.netns), [""; 0], "{context}");
        }
    }
}

/// Without a process flows go on by either link. The next process has to take all interfaces;
/// it goes on with the flows.
#[test]
fn after_a_crash_the_next_attach_goes_on_with_the_group() {
    for mode in MODES {
        let net = Multihomed::new().unwrap();
        let hosts = [&net.a, &net.b];
        let before = all_traces(&net);
        let first = mode.attach_groups(hosts, &BOTH, &[]).unwrap();
        let ends = both_families(&net);
        let context = format!("{mode:?}");
        echo_all(&ends, 0..10, &context);
        let wires = watch(&net).unwrap();
        let remains = first.map(|attached| attached.kill().unwrap());
        echo_all(&ends, 10..20, &context);
        net.route(1).unwrap();
        echo_all(&ends, 20..30, &context);

        let left = traces(&net.a);
        for [one, other] in [BOTH, ["eth1", "eth0"]] {
            let hooks = ["--ingress", mode.ingress, "--tc", mode.tc];
            let alone = attach(&net.a, &[&["--iface", one], &hooks[..]].concat());
            alone.assert_one_line(&[other]);
            assert_eq!(traces(&net.a), left, "{context}");
        }
        echo_all(&ends, 30..40, &context);

        let next = mode.attach_groups(hosts, &["eth1", "eth0"], &[]).unwrap();
        for attached in &next {
            let summary = attached.summary().join("\n");
            let told = "took over what was attached, with 2 flows";
            assert!(summary.contains(told), "{context}: {summary}");
        }
        echo_all(&ends, 40..50, &context);
        net.route(0).unwrap();
        echo_all(&ends, 50..60, &context);
        for wire in wires {
            assert_only_goes_on(wire, &context);
        }
        for host in hosts {
            let netns = &host.netns;
            assert_eq!(group(netns, "eth0").unwrap(), BOTH, "{context}");
            let counters = counters_of(netns, &BOTH).unwrap();
            let carried = ["tx_disguised", "rx_restored"].map(|way| counters.get(way));
            assert_eq!(carried, [Some(&120); 2], "{context}: {counters:?}");
        }
        for attached in next {
            attached.stop().unwrap();
        }
        assert_eq!(all_traces(&net), before, "{context}");
        drop(remains);
    }
}

/// While one process replaces another on both hosts, datagrams go by one link and answers by
/// the other; not one is lost.
#[test]
fn a_running_group_is_replaced_without_loss() {
    for mode in MODES {
        let net = Multihomed::new().unwrap();
        net.route_from(Side::B, 1).unwrap();
        let hosts = [&net.a, &net.b];
        let before = all_traces(&net);
        let old = mode.attach_groups(hosts, &BOTH, &[]).unwrap();
        let talk = Talk::start(&net.a, &net.b).unwrap();
        let wires = watch(&net).unwrap();
        let new = mode.attach_groups(hosts, &BOTH, &["--take-over"]).unwrap();
        old.iter().for_each(wait_ended);
        talk.round().unwrap();
        let asked = talk.settle().unwrap();
        let context = format!("{mode:?}");
        for (host, attached) in hosts.iter().zip(&new) {
            let summary = attached.summary().join("\n");
            let told = "took over what was attached, with 2 flows";
            assert!(summary.contains(told), "{context}: {summary}");
            let counters = counters_of(&host.netns, &BOTH).unwrap();
            let carried = ["tx_disguised", "rx_restored"].map(|way| counters.get(way));
            assert_eq!(carried, [Some(&asked); 2], "{context}: {counters:?}");
            assert_nothing_lost(&counters, &context);
            let pid = attached.process().pid().as_raw();
            for dev in BOTH {
                let daemon: Value = status::interface(&host.netns, dev).unwrap()["daemon"].take();
                assert_eq!(daemon, pid, "{context}, {dev}");
            }
        }
        for wire in wires {
            assert_only_goes_on(wire, &context);
        }
        talk.finish().unwrap();
        for attached in new {
            attached.stop().unwrap();
        }
        assert_eq!(all_traces(&net), before, "{context}");
        drop(old);
    }
}

/// Another process would leave the rest of the group without a daemon.
#[test]
fn a_running_group_is_not_taken_apart() {
    let net = Multihomed::new().unwrap();
    let group = mode::TC
        .attach_groups([&net.a, &net.b], &BOTH, &[])
        .unwrap();
    let before = traces(&net.a);
    for [one, other] in [BOTH, ["eth1", "eth0"]] {
        attach(&net.a, &["--iface", one]).assert_one_line(&[one, "already attached"]);
        attach(&net.a, &["--iface", one, "--take-over"]).assert_one_line(&[other]);
        assert_eq!(traces(&net.a), before);
    }
    assert!(group[0].process().is_running().unwrap());
    let (socket, server) = ends(&net, Family::V4).unwrap();
    echo(&socket, server.address(), 0..10).unwrap();
    net.route(1).unwrap();
    echo(&socket, server.address(), 10..20).unwrap();
}

/// If one interface cannot be attached, none is.
#[test]
fn a_group_is_attached_as_a_whole_or_not_at_all() {
    let net = Multihomed::new().unwrap();
    // A bridge has no native XDP.
    let bridge = ["link", "add", "br0", "type", "bridge"];
    net.a.netns.run("ip", bridge).unwrap();
    let before = all_traces(&net);
    let poor = ["--iface", "eth0", "--iface", "br0", "--ingress", "xdp"];
    attach(&net.a, &poor).assert_one_line(&["br0", "XDP"]);
    assert_eq!(all_traces(&net), before);
    let missing = ["--iface", "eth0", "--iface", "eth9"];
    attach(&net.a, &missing).assert_one_line(&["eth9", "no such interface"]);
    assert_eq!(all_traces(&net), before);
}
