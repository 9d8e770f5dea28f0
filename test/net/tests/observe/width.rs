//! At a terminal no line is wider than it, except for commands to copy; elsewhere lines stay whole.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};

use nix::libc::EIO;
use nix::pty::{Winsize, openpty};
use xdptun_lab::{Attached, Direct, Family, Host, Netns, scratch::Scratch, udp, xdptun as product};
use xdptun_test_net::cli::run;
use xdptun_test_net::{LIMIT, PORT, mode};

/// What a verb prints at a terminal of so many columns.
fn at_terminal(netns: &Netns, columns: u16, verb: &[&str]) -> Vec<String> {
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let terminal = openpty(Some(&size), None).unwrap();
    let mut command = netns.command(product::binary().unwrap());
    let error_output = terminal.slave.try_clone().unwrap();
    command
        .args(verb)
        .stdout(terminal.slave)
        .stderr(error_output);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    let mut terminal = File::from(terminal.master);
    // The other end is closed.
    let ends = |error: &std::io::Error| error.raw_os_error() == Some(EIO);
    loop {
        match terminal.read(&mut part) {
            Ok(0) => break,
            Ok(len) => bytes.extend_from_slice(&part[..len]),
            Err(error) if ends(&error) => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{error}"),
        }
    }
    child.wait().unwrap();
    let text = String::from_utf8(bytes).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let net = Direct::new().unwrap();
    let _near = mode::TC
        .attach(&net.a, &["--port", "8000,8002,8004,8006"])
        .unwrap();
    let _far = mode::TC.attach(&net.b, &["--port", "8000"]).unwrap();
    let pattern = "a long pattern ".repeat(8);
    let rule = [
        "--direction",
        "in",
        "--contains",
        &pattern,
        "--action",
        "count",
    ];
    let _policy = Attached::policy(&net.a.netns, Host::DEV, &rule).unwrap();
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V6, PORT)).unwrap();
    let socket = udp::bind(&net.a.netns, net.a.socket(Family::V6, 0)).unwrap();
    udp::exchange(&socket, echo.address(), &[7; 100], LIMIT).unwrap();
    let scratch = Scratch::new().unwrap();
    let file = scratch.path().join("config.toml");
    let mistakes = "[interface.eth0]\nports = [0]\npeers = [\"not a name\"]\n";
    fs::write(&file, mistakes).unwrap();
    for (verb, word) in [
        (&["status"][..], "[fd00::2]:8000"),
        (&["flows"], "[fd00::2]:8000"),
        (&["explain"], "tx_disguised"),
        (&["doctor", "--iface", Host::DEV], "flows"),
        (&["check", file.to_str().unwrap()], "2 mistakes"),
    ] {
        for columns in [60, 80, 132] {
            let lines = at_terminal(&net.a.netns, columns, verb);
            let context = format!("{verb:?} in {columns} columns: {lines:#?}");
            assert!(lines.iter().any(|line| line.contains(word)), "{context}");
            let is_wide =
                |line: &&String| line.chars().count() > usize::from(columns) && !line.contains('`');
            assert_eq!(lines.iter().find(is_wide), None, "{context}");
        }
    }
    // Another program reads whole lines.
    let text = run(&net.a.netns, &["explain", "tx_opened_lost"]).unwrap();
    assert_eq!(text.stdout.len(), 2, "{text:?}");
}
