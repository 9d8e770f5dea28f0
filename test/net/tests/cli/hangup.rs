//! The terminal of a command is gone.

use nix::sys::signal::Signal;
use xdptun_lab::{Direct, Process, wait, xdptun};
use xdptun_test_net::LIMIT;
use xdptun_test_net::cli::ATTACH;
use xdptun_test_net::traces::pins;

const SAYS: &str = "the terminal is gone (SIGHUP): detaching, as by Ctrl-C";

fn says_so(process: &Process) -> bool {
    process.stderr().iter().any(|line| line.contains(SAYS))
}

#[test]
fn a_command_detaches_and_says_why() {
    let net = Direct::new().unwrap();
    let mut process = xdptun::spawn(&net.a.netns, &ATTACH).unwrap();
    process.wait_for_line("ready:", LIMIT).unwrap();
    process.signal(Signal::SIGHUP).unwrap();
    assert!(process.wait(LIMIT).unwrap().success());
    assert!(says_so(&process));
    assert_eq!(pins(&net.a.netns).unwrap(), [""; 0]);
}

/// Whatever it writes fails then.
#[test]
fn so_it_does_if_the_terminal_is_really_gone() {
    let net = Direct::new().unwrap();
    let binary = xdptun::binary().unwrap();
    let line = format!("exec {} {}", binary.display(), ATTACH.join(" "));
    let mut command = net.a.netns.command("script");
    command.args(["-qfc", &line, "/dev/null"]);
    let terminal = Process::spawn(&mut command).unwrap();
    terminal.wait_for_line("ready:", LIMIT).unwrap();
    terminal.kill().unwrap();
    let detached = || pins(&net.a.netns).unwrap().is_empty();
    wait::until(LIMIT, "xdptun to detach", detached).unwrap();
}

#[test]
fn under_nohup_it_goes_on() {
    let net = Direct::new().unwrap();
    let mut command = net.a.netns.command("nohup");
    command.arg(xdptun::binary().unwrap()).args(ATTACH);
    let mut process = Process::spawn(&mut command).unwrap();
    process.wait_for_line("ready:", LIMIT).unwrap();
    process.signal(Signal::SIGHUP).unwrap();
    process.signal(Signal::SIGTERM).unwrap();
    assert!(process.wait(LIMIT).unwrap().success());
    assert!(!says_so(&process));
}
