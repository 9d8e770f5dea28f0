//! The examples that `--help` ends with run as they are written.

use std::time::Duration;

use clap::Command;
use nix::sys::signal::Signal;
use xdptun_lab::command::run;
use xdptun_lab::{Attached, Process};
use xdptun_test_docs::machine::Machine;
use xdptun_test_net::LIMIT;

/// How long a run may take that ends by itself.
const PATIENCE: Duration = Duration::from_secs(30);

/// It prints after ten seconds, and ends after a minute.
const TOO_LONG: &str = "xdptun watch --iface eth0 --interval 10 --count 6";

/// Every run of the program in the examples of a verb, without the program that reads its
/// output.
fn examples(verb: &Command) -> Vec<String> {
    let help = verb.get_after_help().map(ToString::to_string);
    let help = help.unwrap_or_else(|| panic!("{}: no example", verb.get_name()));
    let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
    // Other lines tell of exit codes.
    let lines = lines.filter(|line| line.starts_with("xdptun "));
    // Behind two spaces stands what it does.
    let lines = lines.filter_map(|line| line.split("  ").next()?.split(" | ").next());
    let runs = lines.flat_map(|line| line.split(" && ")).map(str::to_owned);
    let runs: Vec<String> = runs.collect();
    assert!(!runs.is_empty(), "{}: no example", verb.get_name());
    runs
}

fn all_examples() -> Vec<String> {
    let command = xdptun::cli::command();
    let verbs = command.get_subcommands().chain([&command]);
    let mut all: Vec<String> = verbs.flat_map(examples).collect();
    all.sort();
    all.dedup();
    all
}

/// The verbs that go on until they are ended.
const STAYING: [&str; 6] = ["attach", "forward", "nat", "nat64", "policy", "run"];

fn verb(example: &str) -> &str {
    let rest = example
        .strip_prefix("xdptun ")
        .unwrap_or_else(|| panic!("{example}"));
    rest.split(' ').next().unwrap()
}

/// A host with what the examples name.
fn machine() -> [Machine; 2] {
    let hosts = Machine::two_hosts().unwrap();
    let [host, peer] = &hosts;
    host.install_xdptun().unwrap();
    let lan = ("lan0", Some("192.168.7.1/24"));
    host.connect(lan, peer, ("lan0", None)).unwrap();
    host.netns.sysctl("net.ipv4.ip_forward", "1").unwrap();
    host.write("/etc/xdptun/secret", "known to both hosts")
        .unwrap();
    let settings = "[interface.eth0]\nports = [51820]\n\
                    [interface.eth0.nat]\ninside = \"192.168.7.0/24\"\n";
    host.write("/etc/xdptun/config.toml", settings).unwrap();
    host.write(
        "/etc/xdptun/table",
        "# port = back end\n7000=10.0.0.5|7000\n",
    )
    .unwrap();
    let table = "cp /etc/xdptun/table port_fwd_table.config";
    let copy = "cp /etc/xdptun/config.toml two-links.toml";
    let keys = "echo a secret of tomorrow > new.key; echo a secret of yesterday > old.key";
    for command in [table, copy, keys] {
        run(&mut host.shell(command).unwrap()).unwrap();
    }
    hosts
}

fn attach(host: &Machine, example: &str) -> Attached {
    let attached = host.attach_too("eth0", example);
    attached.unwrap_or_else(|error| panic!("`{example}`: {error:#}"))
}

/// A line that the terminal breaks cannot be copied.
#[test]
fn they_fit_a_terminal() {
    let command = xdptun::cli::command();
    for verb in command.get_subcommands().chain([&command]) {
        let help = verb.get_after_help().map(ToString::to_string);
        for line in help.iter().flat_map(|help| help.lines()) {
            assert!(line.chars().count() <= 80, "{}: {line}", verb.get_name());
        }
    }
}

#[test]
fn those_that_stay_attached() {
    let [host, peer] = machine();
    let link = ("wwan0", None);
    host.connect(link, &peer, link).unwrap();
    let examples = all_examples().into_iter();
    let mut count = 0;
    for example in examples.filter(|example| STAYING.contains(&verb(example))) {
        let attached = match verb(&example) {
            "nat64" => host.translate_too(&example).unwrap(),
            "forward" | "nat" => host.forward_too("eth0", &example).unwrap(),
            "policy" => host.search_too("eth0", &example).unwrap(),
            _ => attach(&host, &example),
        };
        attached.stop().unwrap();
        count += 1;
    }
    assert_ne!(count, 0);
}

#[test]
fn those_that_look_or_change() {
    let [host, _peer] = machine();
    let service = attach(&host, "xdptun run");
    for example in all_examples() {
        match verb(&example) {
            // Of the other tests.
            "detach" => {}
            staying if STAYING.contains(&staying) => {}
            "watch" if example == TOO_LONG => {
                let words = example.split(' ');
                xdptun::cli::command().try_get_matches_from(words).unwrap();
            }
            "watch" => {
                let mut process = Process::spawn(&mut host.shell(&example).unwrap()).unwrap();
                process.wait_for_line("", LIMIT).unwrap();
                process.signal(Signal::SIGINT).unwrap();
                let status = process.wait(LIMIT).unwrap();
                assert!(status.success(), "`{example}`: {status}");
            }
            "capture" => {
                // The file is no text; the messages are on standard error.
                let command = format!("exec {example} 2>&1 >written");
                let mut process = Process::spawn(&mut host.shell(&command).unwrap()).unwrap();
                process.wait_for_line("capturing on eth0", LIMIT).unwrap();
                process.signal(Signal::SIGINT).unwrap();
                let status = process.wait(LIMIT).unwrap();
                assert!(status.success(), "`{example}`: {status}");
            }
            "check" | "completions" | "doctor" | "explain" | "flows" | "reload" | "sessions"
            | "status" => {
                let process = Process::spawn(&mut host.shell(&example).unwrap()).unwrap();
                let lines = process.wait_success(PATIENCE);
                let lines = lines.unwrap_or_else(|error| panic!("`{example}`: {error:#}"));
                assert!(!lines.is_empty(), "`{example}` prints nothing");
            }
            _ => panic!("no test runs `{example}`"),
        }
    }
    service.stop().unwrap();
}

#[test]
fn those_that_clean_up() {
    let [host, peer] = machine();
    let link = ("wwan0", None);
    host.connect(link, &peer, link).unwrap();
    let examples = all_examples().into_iter();
    let mut count = 0;
    for example in examples.filter(|example| verb(example) == "detach") {
        let _remains = attach(&host, "xdptun attach --iface eth0 --port 51820")
            .kill()
            .unwrap();
        let output = run(&mut host.shell(&example).unwrap()).unwrap();
        assert_eq!(output, "eth0: detached\n", "`{example}`");
        count += 1;
    }
    assert_ne!(count, 0);
}
