//! DNS queries by UDP and by TCP.

use anyhow::{Result, ensure};
use xdptun_lab::segment::{Content, parse};
use xdptun_lab::{Capture, Frame, Host, Process, wait};
use xdptun_test_net::through::{self, Through};
use xdptun_test_net::{LIMIT, cli, unpacked};

/// The address of `small.test`.
const ADDRESS: &str = "198.51.100.80";

#[test]
fn queries_to_a_forwarded_port_are_answered() {
    through::forward(query);
}

#[test]
fn queries_of_an_inside_host_are_answered() {
    through::nat(query);
}

#[test]
fn queries_of_an_ipv6_only_client_are_answered() {
    through::nat64(query);
}

/// A short answer, and one that comes as fragments by UDP.
fn query(net: &Through) -> Result<()> {
    // A string of a TXT record has 255 bytes at most.
    let strings: Vec<String> = ('a'..='l').map(|one| one.to_string().repeat(250)).collect();
    let quoted: Vec<String> = strings.iter().map(|one| format!("\"{one}\"")).collect();
    let server = serve(net, &strings)?;
    let wire = Capture::fold(&net.client.netns, Host::DEV, 0, count_fragments)?;
    for (question, answer) in [
        (["small.test", "A"], ADDRESS),
        (["large.test", "TXT"], &quoted.join(" ")),
    ] {
        for by in ["+notcp", "+tcp"] {
            let found = ask(net, &[&question[..], &[by]].concat());
            let found = server.with_output(found)?;
            ensure!(found == [answer], "{question:?} {by}: {found:?}");
        }
    }
    let fragments = wire.stop()?;
    ensure!(
        fragments >= 2,
        "the large answer came as {fragments} fragments"
    );
    let from = format!(" from {}", net.seen);
    let queries = || {
        let log = server.stderr();
        log.iter().filter(|line| line.ends_with(&from)).count()
    };
    let what = format!("four queries{from}");
    server.with_output(wait::until(LIMIT, &what, || queries() == 4))
}

fn count_fragments(fragments: &mut usize, frame: &Frame) {
    let arrived = !frame.outgoing;
    if arrived && matches!(parse(frame), Ok(Content::Fragment(_))) {
        *fragments += 1;
    }
}

/// A DNS server that knows two names.
fn serve(net: &Through, strings: &[String]) -> Result<Process> {
    let mut dnsmasq = unpacked::program(&net.server.netns, "dnsmasq-base", "usr/sbin/dnsmasq");
    dnsmasq.args(["--no-daemon", "--log-queries", "--conf-file=/dev/null"]);
    dnsmasq.args(["--no-hosts", "--no-resolv", "--bind-interfaces"]);
    dnsmasq.arg(format!("--listen-address={}", net.service.ip()));
    dnsmasq.arg(format!("--port={}", net.service.port()));
    dnsmasq.arg("--edns-packet-max=4096");
    dnsmasq.arg(format!("--host-record=small.test,{ADDRESS}"));
    dnsmasq.arg(format!("--txt-record=large.test,{}", strings.join(",")));
    let server = Process::spawn(&mut dnsmasq)?;
    server.wait_for_line("dnsmasq: started", LIMIT)?;
    Ok(server)
}

/// What `dig` finds at the first attempt. It must not go on with TCP by itself.
fn ask(net: &Through, question: &[&str]) -> Result<Vec<String>> {
    let mut dig = net.client.netns.command("dig");
    dig.args(["-r", "+short", "+tries=1", "+ignore", "+bufsize=4096"]);
    dig.arg("-p").arg(net.called.port().to_string());
    dig.arg(format!("@{}", net.called.ip()));
    let ended = cli::finish(dig.args(question))?;
    ensure!(ended.code == Some(0), "dig: {ended:#?}");
    Ok(ended.stdout)
}
