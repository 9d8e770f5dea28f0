//! Programs of an IPv6-only client that know servers of IPv4 by their names alone: unbound on the
//! gateway gives these IPv6 addresses, by the file in docs/nat64.md.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Host, Inside, Process, wait, workspace};
use xdptun_test_net::through::{self, Named, Through};
use xdptun_test_net::translated::{self, CLIENTS, behind_prefix};
use xdptun_test_net::{LIMIT, cli, unpacked};

use super::{iperf3, ssh};

/// The name of the server; unbound itself answers for `test`.
const NAME: &str = "server.example.net";

/// Where clients ask: the gateway.
const RESOLVER: &str = "fd00:7::1";

#[test]
fn names_lead_an_ipv6_only_client_to_ipv4() {
    let net = Inside::new().unwrap();
    let attached = translated::nat64(&net, &[]);
    let talked = talk(&net).and_then(|()| translated::all_passed(&net.gateway));
    attached.explain(talked).unwrap();
    attached.stop().unwrap();
}

fn talk(net: &Inside) -> Result<()> {
    let scratch = Scratch::new()?;
    let folder = scratch.path();
    let [server, _] = &net.outside;
    let names = serve_names(server)?;
    let unbound = make_addresses(net, folder, server)?;
    let resolver = folder.join("resolv.conf");
    fs::write(&resolver, format!("nameserver {RESOLVER}\n"))?;
    let name = NAME.to_owned();
    let through = through::to_ipv4(net, Some(Named { name, resolver }));
    let made = ask_by_name(&through, folder)
        .and_then(|()| ssh::run_commands(&through))
        .and_then(|()| iperf3::measure_all(&through));
    names.with_output(unbound.with_output(made))
}

fn ask_by_name(net: &Through, folder: &Path) -> Result<()> {
    let server = &net.server;
    let address = behind_prefix(server.v4).to_string();
    for (name, addresses) in [
        (NAME, vec![address.as_str()]),
        // RFC 7050 section 2.2.
        ("ipv4only.arpa", vec!["64:ff9b::c000:aa"]),
    ] {
        let dig = ["dig", "-r", "+short", "+tries=1", "AAAA", name];
        let found = run(net, &dig)?;
        ensure!(found == addresses, "{name}: {found:?}");
    }
    run(net, &["ping", "-c", "1", "-W", "5", NAME])?;
    let served = folder.join("served");
    fs::create_dir(&served)?;
    fs::write(served.join("page"), "by name\n")?;
    let mut python = server.netns.command("python3");
    python.args(["-u", "-m", "http.server", "80", "--bind"]);
    python.arg(server.v4.to_string());
    let web = Process::spawn(python.arg("--directory").arg(&served))?;
    web.wait_for_line("Serving HTTP", LIMIT)?;
    let url = format!("http://{NAME}/page");
    let curl = ["curl", "--disable", "--noproxy", "*", "--silent", "--fail"];
    let page = web.with_output(run(net, &[&curl[..], &[&url]].concat()))?;
    ensure!(page == ["by name"], "{page:?}");
    Ok(())
}

/// A DNS server of the outside host, which knows addresses of IPv4 alone.
fn serve_names(server: &Host) -> Result<Process> {
    let mut dnsmasq = unpacked::program(&server.netns, "dnsmasq-base", "usr/sbin/dnsmasq");
    dnsmasq.args(["--no-daemon", "--conf-file=/dev/null", "--no-hosts"]);
    dnsmasq.args(["--no-resolv", "--bind-interfaces", "--local=//"]);
    dnsmasq.arg(format!("--listen-address={}", server.v4));
    dnsmasq.arg(format!("--host-record={NAME},{}", server.v4));
    dnsmasq.arg("--host-record=ipv4only.arpa,192.0.0.170");
    let names = Process::spawn(&mut dnsmasq)?;
    names.wait_for_line("dnsmasq: started", LIMIT)?;
    Ok(names)
}

/// unbound with the file of the page, for the clients here. It asks the outside host, and runs
/// without a user and a directory of its own.
fn make_addresses(net: &Inside, folder: &Path, server: &Host) -> Result<Process> {
    let page = fs::read_to_string(workspace::root().join("docs/nat64.md"))?;
    let (_, rest) = page
        .split_once("```conf\n")
        .context("no file on the page")?;
    let (file, _) = rest.split_once("```").context("the file does not end")?;
    let file = file.replace("fd00:6::/64", CLIENTS);
    let file = file.replace("fd00:6::1", RESOLVER);
    ensure!(file.contains(CLIENTS) && file.contains(RESOLVER), "{file}");
    let config = folder.join("unbound.conf");
    let own = format!(
        "    username: \"\"\n    chroot: \"\"\n    pidfile: \"\"\n    directory: \"{}\"\n\
         \x20   use-syslog: no\n    verbosity: 1\n\
         remote-control:\n    control-enable: no\n\
         forward-zone:\n    name: \".\"\n    forward-addr: {}\n",
        folder.display(),
        server.v4
    );
    fs::write(&config, file + &own)?;
    let mut unbound = unpacked::program(&net.gateway, "unbound", "usr/sbin/unbound");
    let unbound = Process::spawn(unbound.args(["-d", "-p", "-c"]).arg(&config))?;
    // Behind the time and the number of the process.
    let is_ready = || {
        unbound
            .stderr()
            .iter()
            .any(|line| line.contains("start of service"))
    };
    unbound.with_output(wait::until(LIMIT, "unbound", is_ready))?;
    Ok(unbound)
}

/// What a program of the client prints.
fn run(net: &Through, program: &[&str]) -> Result<Vec<String>> {
    let mut command = net.client.netns.command(program[0]);
    command.args(&program[1..]);
    let ended = cli::finish(&mut net.by_client(command))?;
    ensure!(ended.code == Some(0), "{program:?}: {ended:#?}");
    Ok(ended.stdout)
}
