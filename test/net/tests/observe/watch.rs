//! `xdptun watch`: rates that add up to what was sent, and a terminal that is left
//! as it was.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;

use nix::errno::Errno;
use nix::libc;
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::setsid;
use serde_json::Value;
use xdptun_lab::{Direct, Family, Host, Netns, Process, udp, wait, xdptun as product};
use xdptun_test_net::cli::run;
use xdptun_test_net::{LIMIT, PORT, mode, raw};

/// The lines so far.
fn lines(process: &Process) -> Vec<Value> {
    let lines = process.stdout();
    let parse = |line: &String| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    lines.iter().map(parse).collect()
}

/// The amount that a rate stands for, over all lines.
fn amount(lines: &[Value], rate: impl Fn(&Value) -> f64) -> f64 {
    let amounts = lines.iter().map(|line| {
        let seconds = line["interval_s"].as_f64().unwrap();
        rate(line) * seconds
    });
    amounts.sum()
}

/// Intervals are told to the millisecond, so what they add up to is that exact.
fn is_about(amount: f64, count: u64) -> bool {
    (amount - count as f64).abs() < 0.5
}

#[test]
fn rates_add_up_to_what_was_sent() {
    const COUNT: u64 = 25;
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    // The flow is there before, with one datagram that must not be told.
    udp::exchange(&client, echo.address(), &[1; 100], LIMIT).unwrap();
    let watch = ["watch", "--json", "--interval", "0.2", "--iface", Host::DEV];
    let watch = product::spawn(&net.a.netns, &watch).unwrap();
    watch.wait_for_line("{", LIMIT).unwrap();
    for _ in 0..COUNT {
        udp::exchange(&client, echo.address(), &[2; 100], LIMIT).unwrap();
    }
    for _ in 0..3 {
        let (from, to) = (
            net.b.socket(Family::V4, 4000),
            net.a.socket(Family::V4, PORT),
        );
        raw::send_segment(&net.b.netns, from, to, |header| header.rst = true, b"").unwrap();
    }
    let rate = |line: &Value, name: &str| line["interfaces"][0][name].as_f64().unwrap();
    let drops = |line: &Value| {
        let drops = &line["interfaces"][0]["drops"];
        drops["rx_drop_no_flow"]["per_s"].as_f64().unwrap_or(0.0)
    };
    wait::until(LIMIT, "the rates to add up", || {
        let lines = lines(&watch);
        is_about(amount(&lines, |line| rate(line, "tx_packets_per_s")), COUNT)
            && is_about(amount(&lines, |line| rate(line, "rx_packets_per_s")), COUNT)
            && is_about(amount(&lines, drops), 3)
    })
    .unwrap_or_else(|error| panic!("{error:#}: {:#?}", lines(&watch)));
    let lines = lines(&watch);
    for name in ["tx_bits_per_s", "rx_bits_per_s"] {
        let bits = amount(&lines, |line| rate(line, name));
        assert!(is_about(bits / 800.0, COUNT), "{name}: {bits}");
    }
    let busy = |line: &Value| {
        let busiest = line["interfaces"][0]["busiest"].as_array().unwrap();
        let flows = busiest.iter().inspect(|flow| {
            assert_eq!(flow["remote"], echo.address().to_string());
        });
        flows
            .map(|flow| flow["tx_packets_per_s"].as_f64().unwrap())
            .sum()
    };
    assert!(is_about(amount(&lines, busy), COUNT), "{lines:#?}");
    let dropped = lines.iter().rev().find(|line| drops(line) > 0.0).unwrap();
    let dropped = &dropped["interfaces"][0];
    assert_eq!(dropped["drops"]["rx_drop_no_flow"]["total"], 3);
    assert_eq!(dropped["flow_states"]["established"], 1);
    let names = dropped["drops"].as_object().unwrap().keys();
    assert_eq!(names.collect::<Vec<_>>(), ["rx_drop_no_flow"]);
}

/// It goes on when the interface is detached and attached again.
#[test]
fn goes_on_without_an_attachment() {
    let net = Direct::new().unwrap();
    let attached = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    let watch = ["watch", "--json", "--interval", "0.1"];
    let watch = product::spawn(&net.a.netns, &watch).unwrap();
    let shows = |count: usize| {
        wait::until(LIMIT, &format!("{count} interfaces"), || {
            let last = lines(&watch).pop();
            let interfaces = last.as_ref().and_then(|line| line["interfaces"].as_array());
            interfaces.is_some_and(|interfaces| interfaces.len() == count)
        })
        .unwrap();
    };
    shows(1);
    attached.stop().unwrap();
    shows(0);
    let _again = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    shows(1);
}

#[test]
fn prints_so_many_blocks() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    let args = ["watch", "--interval", "0.1", "--count", "3"];
    let text = run(&net.a.netns, &args).unwrap();
    assert_eq!(text.code, Some(0), "{text:#?}");
    let block = [
        "eth0  sent 0.0 packets/s, 0 bit/s  received 0.0 packets/s, 0 bit/s",
        "  no flows",
        "",
    ];
    assert_eq!(text.stdout, [block; 3].concat());
    run(&net.b.netns, &["watch", "--iface", Host::DEV])
        .unwrap()
        .assert_one_line(&[Host::DEV, "nothing is attached"]);
    for interval in ["0", "-1", "soon"] {
        let interval = format!("--interval={interval}");
        let refused = run(&net.a.netns, &["watch", &interval]).unwrap();
        refused.assert_first_line(&["error:", "--interval"]);
    }
}

/// How each frame begins.
const FRAME: &str = "\x1b[?2026h";

/// `xdptun watch` at a terminal.
struct AtTerminal {
    watch: Child,
    keyboard: File,
    shown: mpsc::Receiver<String>,
    reader: thread::JoinHandle<()>,
    text: String,
}

impl AtTerminal {
    fn start(netns: &Netns, (rows, columns): (u16, u16), has_keys: bool) -> Self {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let terminal = openpty(Some(&size), None).unwrap();
        let mut command = netns.command(product::binary().unwrap());
        let input = match has_keys {
            true => terminal.slave.try_clone().unwrap().into(),
            false => Stdio::null(),
        };
        command
            .args(["watch", "--interval", "0.1"])
            .stdin(input)
            .stdout(terminal.slave);
        // SAFETY: the closure makes two system calls, and neither allocates nor takes a
        // lock, which is what a child between fork and exec may do.
        unsafe {
            command.pre_exec(|| {
                setsid()?;
                let given = libc::ioctl(libc::STDOUT_FILENO, libc::TIOCSCTTY, 0);
                Errno::result(given).map(drop).map_err(Into::into)
            })
        };
        let watch = command.spawn().unwrap();
        drop(command);
        let keyboard = File::from(terminal.master);
        let (shown, reader) = read(keyboard.try_clone().unwrap());
        Self {
            watch,
            keyboard,
            shown,
            reader,
            text: String::new(),
        }
    }

    fn wait_until(&mut self, what: &str, is_so: impl Fn(&str) -> bool) {
        wait::until(LIMIT, what, || {
            self.text.extend(self.shown.try_iter());
            is_so(&self.text)
        })
        .unwrap_or_else(|error| panic!("{error:#}: {:?}", self.text));
    }

    fn press(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    /// All that it showed, after it ended.
    fn end(mut self) -> String {
        assert!(self.watch.wait().unwrap().success());
        self.reader.join().unwrap();
        self.text.extend(self.shown.try_iter());
        self.text
    }
}

/// Ctrl-C brings back what a terminal showed, and no frame is longer than it.
#[test]
fn a_terminal_is_redrawn_and_left_as_it_was() {
    const ROWS: u16 = 3;
    const CTRL_C: &[u8] = b"\x03";
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    udp::exchange(&client, echo.address(), b"a flow", LIMIT).unwrap();
    let mut watch = AtTerminal::start(&net.a.netns, (ROWS, 30), false);
    watch.wait_until("three frames", |text| text.matches(FRAME).count() > 3);
    watch.press(CTRL_C);
    let text = watch.end();
    let (before, rest) = text.split_once(FRAME).unwrap();
    assert!(before.contains("\x1b[?1049h"), "{text:?}");
    assert!(rest.ends_with("\x1b[?25h\x1b[?1049l"), "{text:?}");
    let mut frames = rest.split(FRAME);
    let waiting = frames.next().unwrap();
    assert!(
        waiting.contains("waiting for the first interval"),
        "{waiting:?}"
    );
    let first = frames.next().unwrap();
    assert!(first.contains("eth0  sent "), "{first:?}");
    assert!(first.contains("  flows  1 established"), "{first:?}");
    assert!(first.contains("Ctrl-C quits"), "{first:?}");
    for row in 1..=ROWS {
        assert!(first.contains(&format!("\x1b[{row};1H")), "{first:?}");
    }
    let below = format!("\x1b[{};1H", ROWS + 1);
    assert!(!first.contains(&below), "{first:?}");
    assert!(!first.contains("received 0.0 packets/s"), "{first:?}");
}

/// They work at once, without Enter.
#[test]
fn keys_sort_and_quit() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    let mut watch = AtTerminal::start(&net.a.netns, (24, 80), true);
    let sorts_by = |order: &str| {
        let hint = format!("q quits, s sorts flows: {order}");
        move |text: &str| text.contains(&hint)
    };
    let terminal = watch.keyboard.try_clone().unwrap();
    let collects_lines = || {
        let flags = tcgetattr(&terminal).unwrap().local_flags;
        flags.contains(LocalFlags::ICANON | LocalFlags::ECHO)
    };
    watch.wait_until("the order", sorts_by("traffic"));
    assert!(!collects_lines());
    watch.press(b"xs");
    watch.wait_until("the next order", sorts_by("sent"));
    watch.press(b"q");
    let text = watch.end();
    assert!(collects_lines());
    assert!(text.ends_with("\x1b[?25h\x1b[?1049l"), "{text:?}");
}

/// The output to a terminal until its last writer closes it.
fn read(mut master: File) -> (mpsc::Receiver<String>, thread::JoinHandle<()>) {
    let (sender, receiver) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = master.read(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    (receiver, reader)
}
