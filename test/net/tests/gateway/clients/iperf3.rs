//! Throughput by TCP and UDP, both ways.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xdptun_lab::Process;
use xdptun_test_net::through::{self, Through};
use xdptun_test_net::{LIMIT, unpacked};

#[test]
fn data_passes_both_ways_by_a_forwarded_port() {
    through::forward(measure_all);
}

#[test]
fn data_of_an_inside_host_passes_both_ways() {
    through::nat(measure_all);
}

#[test]
fn data_of_an_ipv6_only_client_passes_both_ways() {
    through::nat64(measure_all);
}

/// One connection and four, datagrams that fit and datagrams of three fragments; from the client,
/// and from the server (`--reverse`).
pub fn measure_all(net: &Through) -> Result<()> {
    let datagrams = ["--udp", "--bitrate", "50M"];
    for (mebibytes, options) in [
        (20, &[][..]),
        (20, &["--parallel", "4"]),
        (4, &[&datagrams[..], &["--length", "1400"]].concat()),
        (4, &[&datagrams[..], &["--length", "4000"]].concat()),
    ] {
        for direction in [&[][..], &["--reverse"]] {
            measure(net, mebibytes, &[options, direction].concat())?;
        }
    }
    Ok(())
}

/// Measures once. `iperf3` compares no bytes, and ends before all have arrived.
fn measure(net: &Through, mebibytes: u64, options: &[&str]) -> Result<()> {
    let program = |host| unpacked::program(host, "iperf3", "usr/bin/iperf3");
    let mut command = program(&net.server.netns);
    command.args(["--server", "--one-off", "--forceflush"]);
    command.arg("--bind").arg(net.service.ip().to_string());
    command.arg("--port").arg(net.service.port().to_string());
    let server = Process::spawn(&mut command)?;
    server.wait_for_line("Server listening", LIMIT)?;
    let mut command = program(&net.client.netns);
    command.args(["--json", "--connect-timeout", "5000"]);
    // Less than is sent: it may end while the buffers of all connections are full.
    command.args(["--window", "128K"]);
    command.arg("--client").arg(net.host());
    command.arg("--port").arg(net.called.port().to_string());
    command.arg("--bytes").arg(format!("{mebibytes}M"));
    command.args(options);
    let client = Process::spawn(&mut net.by_client(command))?;
    let said = server.with_output(client.wait_success(LIMIT * 3))?;
    let said: Value = serde_json::from_str(&said.join("\n")).context("no JSON")?;
    let bytes = |sum: &str| said["end"][sum]["bytes"].as_u64().unwrap_or_default();
    let (sent, received) = (bytes("sum_sent"), bytes("sum_received"));
    println!("{options:?}: {sent} bytes sent, {received} received");
    let all = mebibytes << 20;
    ensure!(
        sent >= all && received >= all / 2,
        "{options:?}: {sent} bytes sent, {received} received: {said:#}"
    );
    let server = server.wait_success(LIMIT)?;
    let accepted = format!("Accepted connection from {}, ", net.seen);
    let seen = server.iter().any(|line| line.starts_with(&accepted));
    ensure!(seen, "no `{accepted}` in {server:#?}");
    Ok(())
}
