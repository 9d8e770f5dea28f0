//! `xdptun capture`: segments on the wire and the datagrams restored from them, with the
//! reason for each drop; and no trace of a capture once it has ended.

use std::fs::{self, Permissions};
use std::io::{self, BufRead as _, BufReader};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use aya::programs::{SchedClassifier, TcAttachType};
use xdptun_lab::segment::Checksum;
use xdptun_lab::{Attached, Direct, Family, Frame, Host, Netns, udp, wait, xdptun};
use xdptun_lab::{scratch::Scratch, secret};
use xdptun_test_net::captured::{File, Running, Side};
use xdptun_test_net::cli::{finish, run};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::socket::discover_path;
use xdptun_test_net::traces::Traces;
use xdptun_test_net::traffic::Traffic;
use xdptun_test_net::wire::{Wire, packets, segments};
use xdptun_test_net::{LIMIT, PORT, kernel, raw, socket, status};

/// Each way that programs are held, and each that restores.
const MODES: [Mode; 4] = [mode::TC, mode::XDP, mode::XDP_GENERIC, mode::TC_CLSACT];

const CAPTURE: [&str; 5] = ["capture", "--iface", Host::DEV, "--write", "/dev/null"];

/// The tunnel's packets among all of a host, as they are.
fn ours(frames: &[Frame]) -> Vec<Vec<u8>> {
    let is_ours = |frame: &&Frame| !packets(std::slice::from_ref(*frame), PORT).is_empty();
    let ours = frames.iter().filter(is_ours);
    ours.map(|frame| frame.bytes.clone()).collect()
}

fn fate(side: Side, outgoing: bool, fate: &str) -> (Side, bool, String) {
    (side, outgoing, fate.to_owned())
}

/// Byte for byte what passed the cable, and what the sockets sent and got.
#[test]
fn both_sides_of_each_packet_are_there() {
    for mode in MODES {
        see_both_sides(mode, &[]);
    }
}

/// Under the veil as well: what was covered and padded on the cable is bare on the other side.
#[test]
fn under_the_veil_one_side_is_covered() {
    let scratch = Scratch::new().unwrap();
    let secret = secret::write(scratch.path(), "secret", "correct horse battery").unwrap();
    for mode in MODES {
        see_both_sides(mode, &["--secret", &secret, "--veil"]);
    }
}

fn see_both_sides(mode: Mode, more: &[&str]) {
    let net = Direct::new().unwrap();
    let _attached = mode.attach_with([&net.a, &net.b], more).unwrap();
    let ends = Family::BOTH.map(|family| {
        let echo = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
        udp::exchange(&client, echo.address(), b"opens the flow", LIMIT).unwrap();
        (client, echo)
    });
    let [sent, received] =
        [&net.a, &net.b].map(|host| Wire::watch(std::slice::from_ref(&host)).unwrap());
    let running = Running::start(&net.a.netns, &[]).unwrap();
    let mut payloads = Vec::new();
    for length in [0, 1, 2, 27, 333, 1000, 1440] {
        for (client, echo) in &ends {
            let payload = udp::pattern(length, 3);
            udp::exchange(client, echo.address(), &payload, LIMIT).unwrap();
            payloads.push(payload);
        }
    }
    let file = running.stop().unwrap();
    let [sent, received] = [sent, received].map(|wire| ours(&wire.stop().unwrap()));

    let context = format!("{mode:?} {more:?}: {:#?}", file.fates());
    assert_eq!(file.missing, 0, "{context}");
    for (outgoing, cable) in [(true, sent), (false, received)] {
        let frames = file.frames(Side::Wire, outgoing);
        // Before and after it a daemon may have asked whether the other is there.
        let captured = ours(&frames);
        let mut runs = cable.windows(captured.len());
        assert!(runs.any(|run| run == captured), "{context}");
        assert_eq!(frames.len(), captured.len(), "{context}");
        let segments = segments(&frames, PORT);
        let data = segments.iter().filter(|segment| segment.is_data());
        let data: Vec<_> = data.map(|segment| segment.payload).collect();
        assert_eq!(data.len(), payloads.len(), "{context}");
        for (carried, payload) in data.iter().zip(&payloads) {
            assert_eq!(carried == payload, more.is_empty(), "{context}");
        }

        let frames = file.frames(Side::Behind, outgoing);
        let datagrams = packets(&frames, PORT);
        let restored: Vec<_> = datagrams.iter().map(|packet| packet.payload).collect();
        assert_eq!(restored, payloads, "{context}");
        for datagram in &datagrams {
            assert!(datagram.tcp().is_none(), "{context}");
            let complete = outgoing || datagram.checksum == Checksum::Good;
            assert!(complete, "{context}: {datagram:?}");
        }
    }
    // The two sides of a packet have one time and one comment, and no packet
    // comes before an earlier one.
    assert!(
        file.seen
            .is_sorted_by_key(|seen| (seen.frame.time, seen.comment.clone())),
        "{context}"
    );
    let restored = file.seen.iter().filter(|seen| seen.side == Side::Behind);
    for seen in restored {
        let other = file.seen.iter().find(|other| {
            let same = (other.frame.time, other.frame.outgoing, &other.comment);
            other.side == Side::Wire
                && same == (seen.frame.time, seen.frame.outgoing, &seen.comment)
        });
        assert!(other.is_some(), "{seen:?}: {context}");
        let said = ["egress: tx_disguised", "ingress: rx_restored"];
        let xdp = "xdp: rx_restored";
        assert!(
            said.contains(&&*seen.comment) || mode.ingress != "tc" && seen.comment == xdp,
            "{context}"
        );
    }
    let by_xdp = file.seen.iter().any(|seen| seen.comment.starts_with("xdp"));
    // Under a veil XDP in the stack leaves all to tc.
    let expected = match mode.ingress {
        "xdp-generic" => more.is_empty(),
        ingress => ingress != "tc",
    };
    assert_eq!(by_xdp, expected, "{context}");
}

/// The datagram that opens a flow waits; all that xdptun makes itself is there. With a
/// secret the programs have most to do besides.
#[test]
fn a_handshake_is_seen_from_its_beginning() {
    let scratch = Scratch::new().unwrap();
    let secret = secret::write(scratch.path(), "secret", "correct horse battery").unwrap();
    for more in [&[][..], &["--secret", &secret]] {
        let net = Direct::new().unwrap();
        let _attached = mode::TC.attach_with([&net.a, &net.b], more).unwrap();
        see_handshakes(&net, more);
    }
}

fn see_handshakes(net: &Direct, context: &[&str]) {
    for family in Family::BOTH {
        let echo = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
        let running = Running::start(&net.a.netns, &[]).unwrap();
        udp::exchange(&client, echo.address(), b"opens the flow", LIMIT).unwrap();
        let mut file = running.stop().unwrap();
        // A daemon may ask meanwhile whether an older flow is alive.
        let port = client.local_addr().unwrap().port();
        file.seen
            .retain(|seen| !packets(std::slice::from_ref(&seen.frame), port).is_empty());
        let expected = [
            fate(Side::Behind, true, "held: tx_opened"),
            fate(Side::Wire, true, "egress: tx_opened"),
            fate(Side::Wire, false, "taken: rx_syn_ack"),
            fate(Side::Wire, true, "answer: rx_syn_ack"),
            fate(Side::Behind, true, "egress: tx_disguised"),
            fate(Side::Wire, true, "egress: tx_disguised"),
        ];
        assert_eq!(file.fates()[..6], expected, "{family}, {context:?}");
        let frames = file.frames(Side::Wire, true);
        let segments = segments(&frames, PORT);
        let flags: Vec<_> = segments.iter().take(3).map(|s| s.flags()).collect();
        assert_eq!(flags, ["S", ".", "P."], "{family}, {context:?}");
    }
}

/// The output of `xdptun explain` for a counter.
fn reason(netns: &Netns, counter: &str) -> String {
    let text = xdptun::run_in(netns, &["explain", counter]).unwrap();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.join(" ")
}

#[test]
fn what_does_not_pass_is_there_with_its_reason() {
    for mode in [mode::TC, mode::XDP] {
        for family in Family::BOTH {
            let net = Direct::new().unwrap();
            // The other end knows nothing of it.
            let _attached = mode.attach(&net.a, &["--port", "8000"]).unwrap();
            let (inside, outside) = (net.a.socket(family, PORT), net.b.socket(family, 4000));
            let owned = net.b.socket(family, PORT);
            let running = Running::start(&net.a.netns, &[]).unwrap();
            let before = status::counters(&net.a.netns).unwrap();
            let counted = |counters: &[(&str, u64)]| {
                status::wait_moved(&net.a.netns, &before, counters).unwrap();
            };

            let reset = |tcp: &mut etherparse::TcpHeader| tcp.rst = true;
            raw::send_segment(&net.b.netns, outside, inside, reset, b"").unwrap();
            counted(&[("rx_drop_no_flow", 1)]);
            let plain = udp::bind(&net.b.netns, outside).unwrap();
            plain.send_to(b"undisguised", inside).unwrap();
            counted(&[("rx_drop_no_flow", 1), ("rx_drop_plain_udp", 1)]);
            let careful = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
            discover_path(&careful, family).unwrap();
            careful.connect(owned).unwrap();
            let too_long = 1500 - family.header_len() - 8;
            careful.send(&udp::pattern(too_long, 1)).unwrap();
            counted(&[
                ("rx_drop_no_flow", 1),
                ("rx_drop_plain_udp", 1),
                ("tx_too_big", 1),
            ]);
            let file = running.stop().unwrap();

            let context = format!("{mode:?}, {family}: {:#?}", file.seen);
            let expected = [
                fate(Side::Wire, false, "dropped: rx_drop_no_flow"),
                fate(Side::Wire, false, "dropped: rx_drop_plain_udp"),
                fate(Side::Behind, true, "refused: tx_too_big"),
                fate(Side::Behind, false, "answer: tx_too_big"),
            ];
            assert_eq!(file.fates(), expected, "{context}");
            for (seen, counter) in file
                .seen
                .iter()
                .zip(["rx_drop_no_flow", "rx_drop_plain_udp"])
            {
                let reason = reason(&net.a.netns, counter);
                assert_eq!(seen.comment, format!("dropped: {reason}"), "{context}");
            }
            let met = [&file.seen[1].frame, &file.seen[2].frame].map(|frame| {
                let found = packets(std::slice::from_ref(frame), PORT);
                found[0].payload.to_vec()
            });
            let sent = [b"undisguised".to_vec(), udp::pattern(too_long, 1)];
            assert_eq!(met, sent, "{context}");
        }
    }
}

#[test]
fn it_keeps_what_is_asked_for() {
    const HEAD: u32 = 64;
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let netns = &net.a.netns;
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let client = udp::bind(netns, net.a.socket(Family::V4, 0)).unwrap();
    let exchange = || udp::exchange(&client, echo.address(), &[7; 1000], LIMIT).unwrap();
    exchange();

    // Four packets, of which three are wanted.
    let three = ["--count", "3", "--snaplen", "64"];
    let running = Running::start(netns, &three).unwrap();
    let mode = fs::metadata(running.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    exchange();
    exchange();
    let told = running.process.wait_for_line("3 packets captured", LIMIT);
    assert_eq!(
        told.unwrap(),
        "3 packets captured, 0 missed because a buffer was full"
    );
    let file = running.finish().unwrap();
    let data: Vec<_> = file.seen.iter().filter(|seen| seen.length > 1000).collect();
    assert!(!data.is_empty());
    for seen in data {
        let udp = 14 + 20 + 8 + 1000;
        let tcp = udp + 12;
        let length = if seen.side == Side::Wire { tcp } else { udp };
        assert_eq!(
            (seen.length, seen.frame.bytes.len()),
            (length, HEAD as usize)
        );
    }

    let running = Running::start(netns, &["--drops"]).unwrap();
    exchange();
    let (from, to) = (
        net.b.socket(Family::V4, 4000),
        net.a.socket(Family::V4, PORT),
    );
    raw::send_segment(&net.b.netns, from, to, |tcp| tcp.rst = true, b"").unwrap();
    let dropped = || status::counter(netns, "rx_drop_no_flow").unwrap() == 1;
    wait::until(LIMIT, "the drop", dropped).unwrap();
    let fates = running.stop().unwrap().fates();
    assert_eq!(fates, [fate(Side::Wire, false, "dropped: rx_drop_no_flow")]);

    // A time that is over, and a file that others could read before.
    let scratch = Scratch::new().unwrap();
    let path = scratch.path().join("old");
    fs::write(&path, "something longer than what comes").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let name = path.to_str().unwrap();
    let args = ["capture", "-i", Host::DEV, "-w", name, "--duration", "0.1s"];
    xdptun::run_in(netns, &args).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert!(File::read(&path).unwrap().seen.is_empty());

    // Standard output, into a pipe.
    let binary = xdptun::binary().unwrap();
    let script = format!(
        "{} capture -i eth0 -w - --count 1 | cat > {name}",
        binary.display()
    );
    let mut shell = netns.command("sh");
    let piped = xdptun_lab::Process::spawn(shell.args(["-c", &script])).unwrap();
    piped.wait_for_line("capturing on eth0", LIMIT).unwrap();
    exchange();
    piped.wait_success(LIMIT).unwrap();
    assert!(!File::read(&path).unwrap().seen.is_empty());

    // A capture whose reader has gone ends, even if no packet passes.
    let script = format!("{} capture -i eth0 -w - | head -c 1", binary.display());
    let mut shell = netns.command("sh");
    let piped = xdptun_lab::Process::spawn(shell.args(["-c", &script])).unwrap();
    piped.wait_success(LIMIT).unwrap();
}

/// How large the programs of the host's interface are for the kernel; nothing where
/// it cannot tell which they are.
fn sizes(host: &Host) -> Vec<Option<u32>> {
    if !kernel::has_tcx() {
        return Vec::new();
    }
    let sizes = || {
        [TcAttachType::Ingress, TcAttachType::Egress].map(|hook| {
            let (_, programs) = SchedClassifier::query_tcx(Host::DEV, hook).unwrap();
            programs[0].size_translated()
        })
    };
    host.netns.enter(sizes).unwrap().to_vec()
}

/// Waits until the log of the process that holds the interface has a line so many times.
fn wait_logged(attached: &Attached, line: &str, times: usize) {
    let logged = || {
        let log = attached.process().stderr();
        log.iter().filter(|logged| logged.contains(line)).count() == times
    };
    wait::until(LIMIT, line, logged).unwrap();
}

const BEGUN: &str = "packets are recorded";
const ENDED: &str = "packets are not recorded any more";

/// Neither a capture that begins nor one that ends loses a datagram, however it ends.
#[test]
fn traffic_goes_on_and_nothing_stays() {
    for mode in [mode::TC, mode::XDP] {
        let net = Direct::new().unwrap();
        let attached = mode.attach_both(&net).unwrap();
        let before = [&net.a, &net.b].map(|host| Traces::of(host).unwrap());
        let bare = [&net.a, &net.b].map(sizes);
        let sink = udp::Server::sink(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
        let socket = socket::roomy(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
        let to = sink.address();
        socket.send_to(&[0; 1200], to).unwrap();
        wait::until(LIMIT, "the flow", || sink.datagrams() == 1).unwrap();
        let traffic = Traffic::start(&socket, to, 1200).unwrap();
        let hosts = [&net.a, &net.b];
        for ((host, bare), attached) in hosts.iter().zip(&bare).zip(&attached) {
            let counted = Running::start(&host.netns, &["--count", "100"]).unwrap();
            counted.finish().unwrap();
            wait_logged(attached, ENDED, 1);
            assert_eq!(sizes(host), *bare, "{mode:?}");

            let killed = Running::start(&host.netns, &[]).unwrap();
            wait_logged(attached, BEGUN, 2);
            let recording = sizes(host);
            for (recording, bare) in recording.iter().zip(bare) {
                assert!(recording > bare, "{recording:?} {bare:?}");
            }
            killed.process.kill().unwrap();
            wait_logged(attached, ENDED, 2);
            assert_eq!(sizes(host), *bare, "{mode:?}");
        }
        // And the one that opened the flow.
        let sent = 1 + traffic.stop().unwrap();
        wait::until(LIMIT, "the last datagram", || sink.datagrams() >= sent)
            .unwrap_or_else(|_| panic!("{mode:?}: {} of {sent}", sink.datagrams()));
        assert_eq!(sink.datagrams(), sent, "{mode:?}");
        let after = [&net.a, &net.b].map(|host| Traces::of(host).unwrap());
        assert_eq!(after.map(outline), before.map(outline), "{mode:?}");
        for attached in attached {
            // Announced only once.
            let ready = attached.summary();
            let ready = ready.iter().filter(|line| line.starts_with("ready: "));
            assert_eq!(ready.count(), 1, "{mode:?}");
            attached.stop().unwrap();
        }
    }
}

/// The traces that stay the same when programs are replaced.
fn outline(traces: Traces) -> [Vec<String>; 3] {
    [traces.links, traces.tcx, traces.pins]
}

/// A reader that does not keep up misses packets, and is told how many: each datagram
/// is in the file or among those.
#[test]
fn what_is_missed_is_counted() {
    const COUNT: u64 = 40_000;
    for mode in [mode::TC, mode::XDP] {
        let net = Direct::new().unwrap();
        let _attached = mode.attach_both(&net).unwrap();
        let (sender, receiver) = (&net.b, &net.a.netns);
        let sink = udp::Server::sink(receiver, net.a.socket(Family::V4, PORT)).unwrap();
        let socket = udp::bind(&sender.netns, sender.socket(Family::V4, 0)).unwrap();
        let send = || socket.send_to(&[7; 1200], sink.address()).unwrap();
        send();
        wait::until(LIMIT, "the flow", || sink.datagrams() == 1).unwrap();
        let before = status::counters(receiver).unwrap();
        let running = Running::start(receiver, &[]).unwrap();
        let suspended = running.process.suspend().unwrap();
        for sent in 1..COUNT {
            send();
            // No more at once than a queue on the way holds.
            if sent % 64 == 0 {
                wait::until(LIMIT, "the datagrams", || sink.datagrams() > sent).unwrap();
            }
        }
        wait::until(LIMIT, "the last", || sink.datagrams() == COUNT).unwrap();
        suspended.resume();
        let file = running.stop().unwrap();
        let after = status::counters(receiver).unwrap();
        let mut moved = status::moved(&before, &after);
        moved.retain(|name, _| !name.starts_with("sent_"));
        let context = format!("{mode:?}: {} missing, {moved:?}", file.missing);
        assert!(file.missing > 0, "{context}");
        let datagrams = file.frames(Side::Behind, false).len() as u64;
        assert!(datagrams + file.missing >= COUNT - 1, "{context}");
        // Both sides of a packet have one time, which no other has.
        let mut times: Vec<_> = file.seen.iter().map(|seen| seen.frame.time).collect();
        times.dedup();
        let told = times.len() as u64 + file.missing;
        assert!(told <= moved.values().sum(), "{told}, {context}");
    }
}

#[test]
fn it_says_why_it_cannot_begin() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    let refused = |words: &[&str]| run(netns, &CAPTURE).unwrap().assert_one_line(words);
    refused(&[
        "eth0: nothing is attached for the tunnel",
        "`xdptun attach --iface eth0",
    ]);
    let eth9 = ["capture", "--iface", "eth9", "--write", "/dev/null"];
    run(netns, &eth9)
        .unwrap()
        .assert_one_line(&["eth9: no such interface"]);

    let attached = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    let running = Running::start(netns, &[]).unwrap();
    refused(&["eth0: another client captures on this group of interfaces already"]);
    // It goes on.
    assert!(running.process.is_running().unwrap());
    running.stop().unwrap();
    // A name that is no file.
    let nowhere = ["capture", "-i", Host::DEV, "-w", "/no/such/directory/file"];
    run(netns, &nowhere)
        .unwrap()
        .assert_one_line(&["cannot write /no/such/directory/file"]);
    // For that nothing was begun.
    wait_logged(&attached, ENDED, 1);
    wait_logged(&attached, BEGUN, 1);
    let binary = xdptun::binary().unwrap();
    let mut nobody = netns.command("setpriv");
    let identity = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let scratch = Scratch::new().unwrap();
    let copy = scratch.path().join("xdptun");
    fs::copy(binary, &copy).unwrap();
    for path in [scratch.path(), &copy] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    finish(nobody.args(identity).arg(copy).args(CAPTURE))
        .unwrap()
        .assert_one_line(&["run it as root"]);

    let remains = attached.kill().unwrap();
    refused(&["eth0: attached, but no daemon runs"]);
    let socket = control_socket(netns);
    assert!(fs::exists(&socket).unwrap());
    drop(remains);
    assert!(!fs::exists(&socket).unwrap());
    for (option, value) in [("--count", "0"), ("--duration", "soon"), ("--snaplen", "1")] {
        let refused = run(netns, &[&CAPTURE[..], &[option, value]].concat()).unwrap();
        refused.assert_first_line(&["error:", option]);
    }
}

/// Where `xdptun attach` listens.
fn control_socket(netns: &Netns) -> String {
    format!("/run/xdptun/{}-tunnel-eth0.sock", netns.cookie().unwrap())
}

/// Requires that a capture ends with this reason, and a whole file.
fn ends(mut running: Running, why: &str) -> File {
    let status = running.process.wait(LIMIT).unwrap();
    let told = running.process.stderr().join("\n");
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(told.contains(why), "{told}");
    File::read(running.path()).unwrap()
}

/// Changes of ports and of all else do not end it; what ends the recording itself
/// does, with a whole file.
#[test]
fn it_survives_a_reload_and_ends_with_the_interface() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    let scratch = Scratch::new().unwrap();
    let config = scratch.path().join("config.toml");
    let service = |more: &[&str]| {
        let mut command: Command = netns.command(xdptun::binary().unwrap());
        command.arg("run").arg("--config").arg(&config).args(more);
        Attached::by(netns, Host::DEV, &mut command).unwrap()
    };
    fs::write(&config, "[interface.eth0]\nports = [8000]\n").unwrap();
    let old = service(&[]);
    let _peer = mode::TC.attach(&net.b, &["--port", "8000"]).unwrap();
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let client = udp::bind(netns, net.a.socket(Family::V4, 0)).unwrap();
    let exchange = |payload: &[u8]| {
        udp::exchange(&client, echo.address(), payload, LIMIT).unwrap();
    };
    exchange(b"opens the flow");
    let running = Running::start(netns, &[]).unwrap();
    exchange(b"before");
    fs::write(&config, "[interface.eth0]\nports = [8000, 9000]\n").unwrap();
    xdptun::run_in(netns, &["reload"]).unwrap();
    exchange(b"other ports");
    fs::write(
        &config,
        "[interface.eth0]\nports = [8000]\nkeepalive = 9\npeers = [\"10.0.0.0/8\"]\n",
    )
    .unwrap();
    xdptun::run_in(netns, &["reload"]).unwrap();
    exchange(b"other programs");
    let new = service(&["--take-over"]);
    let file = ends(running, "eth0: another xdptun takes over");
    let sent = file.frames(Side::Behind, true);
    let sent = packets(&sent, PORT);
    let sent: Vec<_> = sent.iter().map(|packet| packet.payload).collect();
    assert_eq!(sent, [&b"before"[..], b"other ports", b"other programs"]);
    drop(old);

    let running = Running::start(netns, &[]).unwrap();
    netns.run("ip", ["link", "delete", Host::DEV]).unwrap();
    ends(running, "eth0: the interface is gone");
    drop(new);
}

#[test]
fn it_ends_with_the_xdptun_that_records() {
    let net = Direct::new().unwrap();
    let stopped = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    let running = Running::start(&net.a.netns, &[]).unwrap();
    stopped.stop().unwrap();
    ends(running, "eth0: xdptun ends");
    let killed = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    let running = Running::start(&net.a.netns, &[]).unwrap();
    let remains = killed.kill().unwrap();
    ends(running, "eth0: the running xdptun has ended");
    // The next one does not record.
    let again = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    let bare = sizes(&net.a);
    let running = Running::start(&net.a.netns, &[]).unwrap();
    running.stop().unwrap();
    wait_logged(&again, ENDED, 1);
    assert_eq!(sizes(&net.a), bare);
    again.stop().unwrap();
    drop(remains);
}

/// Into a pipe that is full: the process waits in a write, and hears Ctrl-C all the same.
#[test]
fn it_ends_although_nobody_reads_its_output() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    let _attached = mode::TC.attach_both(&net).unwrap();
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let client = udp::bind(netns, net.a.socket(Family::V4, 0)).unwrap();
    let (_reader, output) = io::pipe().unwrap();
    let mut command = netns.command(xdptun::binary().unwrap());
    command
        .args(["capture", "--iface", Host::DEV, "--write", "-"])
        .stdout(output.try_clone().unwrap())
        .stderr(Stdio::piped());
    let mut capture = command.spawn().unwrap();
    let mut says = BufReader::new(capture.stderr.take().unwrap());
    let mut line = String::new();
    says.read_line(&mut line).unwrap();
    assert!(line.starts_with("capturing on eth0"), "{line}");
    let exchange = |times: usize| {
        for _ in 0..times {
            udp::exchange(&client, echo.address(), &[7; 1200], LIMIT).unwrap();
        }
    };
    wait::until(LIMIT, "the pipe to be full", || {
        exchange(20);
        let room = PollFd::new(output.as_fd(), PollFlags::POLLOUT);
        poll(&mut [room], PollTimeout::ZERO).unwrap() == 0
    })
    .unwrap();
    // Whatever room is left, this fills it.
    exchange(200);
    kill(Pid::from_raw(capture.id() as i32), Signal::SIGINT).unwrap();
    wait::until(LIMIT, "the capture to end", || {
        capture.try_wait().unwrap().is_some()
    })
    .unwrap();
    line.clear();
    says.read_line(&mut line).unwrap();
    assert!(line.contains("nobody reads the output"), "{line}");
}
