//! docs/capture.md.

use nix::sys::signal::Signal;
use xdptun_lab::Process;
use xdptun_lab::command::run;
use xdptun_test_docs::machine::Machine;
use xdptun_test_docs::page::Page;
use xdptun_test_net::LIMIT;

/// The type of the block that a pcapng file begins with.
const SECTION_HEADER: &str = "0a0d0d0a";

pub fn walk(page: &mut Page) {
    let [host, _peer] = Machine::two_hosts().unwrap();
    host.install_xdptun().unwrap();
    let attach = "xdptun attach --iface eth0 --port 51820";
    let _attached = host.attach_too("eth0", attach).unwrap();
    let capture = "sudo xdptun capture --iface eth0 -w tunnel.pcapng";
    page.command(capture).unwrap();
    // Its messages are on standard error.
    let command = format!("exec {capture} 2>&1");
    let mut process = Process::spawn(&mut host.shell(&command).unwrap()).unwrap();
    process.wait_for_line("capturing on eth0", LIMIT).unwrap();
    process.signal(Signal::SIGINT).unwrap();
    assert!(process.wait(LIMIT).unwrap().success());
    let head = "head --bytes 4 tunnel.pcapng | od -A n -t x1 | tr -d ' \\n'";
    let head = run(&mut host.shell(head).unwrap()).unwrap();
    assert_eq!(head, SECTION_HEADER);
    page.pass_over("a window for a person", &["wireshark tunnel.pcapng"])
        .unwrap();
    let piped = "ssh root@host xdptun capture --iface eth0 -w - | wireshark -k -i -";
    page.pass_over("the same, and another machine", &[piped])
        .unwrap();
}
