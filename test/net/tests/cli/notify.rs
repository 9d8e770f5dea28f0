//! Messages to the service manager: ready, alive, stopping.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Direct, Host, Process, wait, xdptun};
use xdptun_test_net::LIMIT;
use xdptun_test_net::cli::ATTACH;
use xdptun_test_net::service::File;
use xdptun_test_net::traces::{Traces, pins};

/// How long the service manager waits for a sign of life. Half of it must suffice.
const WATCHDOG: Duration = Duration::from_secs(2);

/// The end of the service manager.
struct Manager {
    socket: UnixDatagram,
    scratch: Scratch,
}

impl Manager {
    fn new() -> Self {
        let scratch = Scratch::new().unwrap();
        let socket = UnixDatagram::bind(scratch.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Self { socket, scratch }
    }

    fn start(&self, host: &Host, args: &[&str]) -> Process {
        let mut command = host.netns.command(xdptun::binary().unwrap());
        command.args(ATTACH).args(args);
        self.spawn(&mut command)
    }

    fn spawn(&self, command: &mut Command) -> Process {
        command
            .env("NOTIFY_SOCKET", self.scratch.path().join("notify"))
            .env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
        Process::spawn(command).unwrap()
    }

    /// Requires that it attaches, and is ready then.
    fn hears_ready(&self) {
        let status = "STATUS=eth0 carries UDP port 8000 as TCP\n";
        assert_eq!(self.hears_news(), status);
        assert_eq!(self.hears_news(), "READY=1\n");
    }

    fn hears(&self) -> String {
        let mut text = [0; 1000];
        let length = self.socket.recv(&mut text).unwrap();
        String::from_utf8(text[..length].to_vec()).unwrap()
    }

    /// Signs of life aside.
    fn hears_news(&self) -> String {
        loop {
            let text = self.hears();
            if text != "WATCHDOG=1\n" {
                return text;
            }
        }
    }

    /// Requires signs of life, in time and not more often than is of use.
    fn hears_life(&self) {
        let mut before = None;
        for _ in 0..3 {
            assert_eq!(self.hears(), "WATCHDOG=1\n");
            let now = Instant::now();
            if let Some(before) = before.replace(now) {
                let pause = now.duration_since(before);
                assert!((WATCHDOG / 4..WATCHDOG).contains(&pause), "{pause:?}");
            }
        }
    }
}

#[test]
fn a_service_manager_hears_that_it_is_ready_and_lives_and_ends() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let net = Direct::new().unwrap();
        let manager = Manager::new();
        let mut process = manager.start(&net.a, &[]);
        manager.hears_ready();
        manager.hears_life();
        process.signal(signal).unwrap();
        assert_eq!(manager.hears_news(), "STOPPING=1\n");
        assert!(process.wait(LIMIT).unwrap().success());
    }
}

#[test]
fn one_that_is_replaced_says_so_as_well() {
    let net = Direct::new().unwrap();
    let (old, new) = (Manager::new(), Manager::new());
    let mut replaced = old.start(&net.a, &[]);
    old.hears_ready();
    let mut process = new.start(&net.a, &["--take-over"]);
    new.hears_ready();
    assert_eq!(old.hears_news(), "STOPPING=1\n");
    assert!(replaced.wait(LIMIT).unwrap().success());
    process.signal(Signal::SIGTERM).unwrap();
    assert!(process.wait(LIMIT).unwrap().success());
}

/// A restart with the signal that the unit names for it: the programs stay
/// attached in between, and the next process goes on with them.
#[test]
fn a_restarted_one_leaves_nothing_bare() {
    let net = Direct::new().unwrap();
    let manager = Manager::new();
    let mut old = manager.start(&net.a, &[]);
    manager.hears_ready();
    let attached = Traces::of(&net.a).unwrap();
    old.signal(Signal::SIGUSR2).unwrap();
    assert_eq!(manager.hears_news(), "STOPPING=1\n");
    assert!(old.wait(LIMIT).unwrap().success());
    assert_eq!(Traces::of(&net.a).unwrap(), attached);
    let mut new = manager.start(&net.a, &[]);
    manager.hears_ready();
    let adopted = "eth0: took over what was attached, with 0 flows";
    assert!(new.stdout().iter().any(|line| line == adopted));
    new.signal(Signal::SIGTERM).unwrap();
    assert!(new.wait(LIMIT).unwrap().success());
    assert_eq!(pins(&net.a.netns).unwrap(), [""; 0]);
}

/// It waits for the interface, which may take days, and is not dead meanwhile.
#[test]
fn one_without_its_interface_lives() {
    let net = Direct::new().unwrap();
    let manager = Manager::new();
    let mut process = manager.start(&net.a, &[]);
    manager.hears_ready();
    net.a.netns.run("ip", ["link", "del", Host::DEV]).unwrap();
    let waiting = "STATUS=eth0: waiting for the interface\n";
    assert_eq!(manager.hears_news(), waiting);
    manager.hears_life();
    process.signal(Signal::SIGTERM).unwrap();
    assert_eq!(manager.hears_news(), "STOPPING=1\n");
    process.wait(LIMIT).unwrap();
    assert_eq!(pins(&net.a.netns).unwrap(), [""; 0]);
}

/// The status is that of all interfaces, also after a reload.
#[test]
fn one_with_many_interfaces_tells_of_all() {
    let net = Direct::new().unwrap();
    let manager = Manager::new();
    let one = |ports: &str| format!("[interface.eth0]\nports = {ports}\n");
    let file = File::new(&format!("{}[interface.eth1]\nports = [7]\n", one("[8000]")));
    let mut process = manager.spawn(&mut file.command(&net.a.netns, &[]));
    let hears = |news: &[&str]| {
        for news in news {
            assert_eq!(manager.hears_news(), format!("{news}\n"));
        }
    };
    // Changes of a reload run concurrently, so their messages come in any order.
    let hears_one_of = |news: [&str; 2]| {
        let heard = manager.hears_news();
        assert!(news.contains(&heard.trim_end()), "{heard}");
    };
    hears(&[
        "STATUS=eth0 carries UDP port 8000 as TCP",
        "STATUS=eth0 carries UDP port 8000 as TCP; eth1: waiting for the interface",
        "READY=1",
    ]);
    file.write(&one("[8000, 9000]"));
    process.signal(Signal::SIGHUP).unwrap();
    hears_one_of([
        "STATUS=eth0 carries UDP ports 8000, 9000 as TCP; eth1: waiting for the interface",
        "STATUS=eth0 carries UDP port 8000 as TCP",
    ]);
    hears(&["STATUS=eth0 carries UDP ports 8000, 9000 as TCP"]);
    file.write("");
    process.signal(Signal::SIGHUP).unwrap();
    hears(&["STATUS=nothing is carried"]);
    process.signal(Signal::SIGTERM).unwrap();
    hears(&["STOPPING=1"]);
    assert!(process.wait(LIMIT).unwrap().success());
}

/// The tunnel matters more than what is told about it.
#[test]
fn a_service_manager_that_cannot_be_told_is_named() {
    let net = Direct::new().unwrap();
    let manager = Manager::new();
    std::fs::remove_file(manager.scratch.path().join("notify")).unwrap();
    let mut process = manager.start(&net.a, &[]);
    process.wait_for_line("ready:", LIMIT).unwrap();
    let warned = |line: &String| {
        line.contains("service manager cannot be told") && line.contains("No such file")
    };
    wait::until(LIMIT, "the warning", || process.stderr().iter().any(warned)).unwrap();
    process.signal(Signal::SIGTERM).unwrap();
    assert!(process.wait(LIMIT).unwrap().success());
}
