//! The interface is deleted and recreated, as by a dongle that is pulled out, a
//! PPP session that starts over, or a network service that restarts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use xdptun_lab::topology::Router;
use xdptun_lab::{Attached, Capture, Family, Host, Routed, WireStats, udp, wait, xdptun};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::traces::pins;
use xdptun_test_net::{LIMIT, PORT, cli, status};

/// The longest wait for data, from the moment that the path can carry it.
const BACK: Duration = Duration::from_secs(3);

/// How often it said that it is ready.
fn times_ready(attached: &Attached) -> usize {
    let summary = attached.summary();
    summary
        .iter()
        .filter(|line| line.starts_with("ready:"))
        .count()
}

fn is_there_again(mode: Mode) {
    const PAUSE: Duration = Duration::from_millis(2);
    let net = Routed::new().unwrap();
    let (client, server) = (net.client(), &net.server);
    let attached = mode.attach_to([client, server]).unwrap();
    let wan = (&net.router.netns, Router::WAN);
    let capture = Capture::fold(wan.0, wan.1, WireStats::new(PORT), WireStats::add).unwrap();
    let echo = udp::Server::echo(&server.netns, server.socket(Family::V4, PORT)).unwrap();
    let socket = udp::bind(
        &client.netns,
        "0.0.0.0:0".parse::<std::net::SocketAddr>().unwrap(),
    )
    .unwrap();
    udp::exchange(&socket, echo.address(), b"before", LIMIT).unwrap();

    let (stop, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    socket.set_read_timeout(Some(PAUSE)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            // Never a pause in which something undisguised could slip out unseen.
            while !stop.load(Ordering::Relaxed) {
                // Without an interface there is no route.
                let _ = socket.send_to(b"all the while", echo.address());
                if socket.recv(&mut [0; 100]).is_ok() {
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let replug = |round: usize| -> anyhow::Result<()> {
            net.replug(0)?;
            let there = Instant::now();
            let before = answers.load(Ordering::Relaxed);
            let is_answered = || answers.load(Ordering::Relaxed) > before;
            attached[0].explain(wait::until(BACK, "an answer", is_answered))?;
            println!("{mode:?}: back after {:?}", there.elapsed());
            // Until then it goes on as it was, and would miss another change.
            let is_ready = || times_ready(&attached[0]) == round + 2;
            wait::until(LIMIT, "the programs to be set up anew", is_ready)
        };
        let back = (0..3).try_for_each(replug);
        stop.store(true, Ordering::Relaxed);
        back.unwrap();
    });
    let stats = capture.stop().unwrap();
    assert_eq!(stats.udp_datagrams, 0, "{mode:?}: {stats:#?}");
    assert!(stats.data_segments > 3, "{mode:?}: {stats:#?}");
    let interface = status::interface(&client.netns, Host::DEV).unwrap();
    assert_eq!(interface["ingress"], mode.ingress);
    for attached in attached {
        attached.stop().unwrap();
    }
    assert_eq!(pins(&client.netns).unwrap(), [""; 0]);
}

#[test]
fn tcx_links_follow() {
    is_there_again(mode::TC);
}

#[test]
fn filters_follow() {
    is_there_again(mode::TC_CLSACT);
}

#[test]
fn native_xdp_follows() {
    is_there_again(mode::XDP);
}

/// While it waits it says so, and ends when told to.
#[test]
fn an_interface_that_stays_away_can_be_detached() {
    let net = Routed::new().unwrap();
    let client = &net.client().netns;
    let attached = mode::TC.attach(net.client(), &["--port", "8000"]).unwrap();
    client.run("ip", ["link", "delete", Host::DEV]).unwrap();
    wait::until(LIMIT, "the daemon to notice", || {
        let output = attached.process().output();
        output
            .iter()
            .any(|(_, line)| line.contains("the interface is gone"))
    })
    .unwrap();
    let text = xdptun::run_in(client, &["status"]).unwrap();
    assert!(text.contains("attaches to it when it comes back"), "{text}");
    let detached = cli::run(client, &["detach", "--iface", Host::DEV]).unwrap();
    assert_eq!(detached.code, Some(0), "{detached:#?}");
    let ended = || !attached.process().is_running().unwrap();
    wait::until(LIMIT, "the daemon to end", ended).unwrap();
    assert_eq!(pins(client).unwrap(), [""; 0]);
    let links = xdptun_lab::link::names(client).unwrap();
    assert_eq!(links, ["lo"]);
}
