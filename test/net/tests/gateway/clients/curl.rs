//! Downloads over HTTP.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use xdptun_lab::content::{self, Filling};
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Process, udp, wait};
use xdptun_test_net::through::{self, Through};
use xdptun_test_net::{LIMIT, cli};

/// The length of the large file in MiB.
const LARGE: usize = 32;

/// How many small files are downloaded at once.
const SMALL: u8 = 20;

#[test]
fn downloads_by_a_forwarded_port_are_intact() {
    through::forward(download);
}

#[test]
fn downloads_of_an_inside_host_are_intact() {
    through::nat(download);
}

#[test]
fn downloads_of_an_ipv6_only_client_are_intact() {
    through::nat64(download);
}

/// One large file, and small ones by as many connections.
fn download(net: &Through) -> Result<()> {
    let scratch = Scratch::new()?;
    let [served, got] = ["served", "got"].map(|name| scratch.path().join(name));
    for folder in [&served, &got] {
        fs::create_dir(folder)?;
    }
    let expected = content::write(&served.join("large"), LARGE, Filling::Pattern)?;
    let small = |number: u8| udp::pattern(1000 * usize::from(number), number);
    for number in 0..SMALL {
        fs::write(served.join(number.to_string()), small(number))?;
    }
    let server = serve(net, &served)?;
    let url = format!("http://{}", net.called);
    let large = got.join("large");
    server.with_output(fetch(net, &[&format!("{url}/large")], &large))?;
    ensure!(content::digest(&large)? == expected, "other bytes arrived");
    let at_once = ["--parallel", &format!("{url}/[0-{}]", SMALL - 1)];
    server.with_output(fetch(net, &at_once, &got.join("#1")))?;
    for number in 0..SMALL {
        let arrived = fs::read(got.join(number.to_string()))?;
        ensure!(arrived == small(number), "file {number}: other bytes");
    }
    let seen = format!("{} - - ", net.seen);
    let requests = || {
        let log = server.stderr();
        log.iter().filter(|line| line.starts_with(&seen)).count()
    };
    let what = format!("the requests of {}", net.seen);
    let all = usize::from(SMALL) + 1;
    server.with_output(wait::until(LIMIT, &what, || requests() == all))
}

/// A web server of the files in a folder.
fn serve(net: &Through, folder: &Path) -> Result<Process> {
    let address = net.service.ip().to_string();
    let port = net.service.port().to_string();
    let mut python = net.server.netns.command("python3");
    python.args(["-u", "-m", "http.server", &port, "--bind", &address]);
    let server = Process::spawn(python.arg("--directory").arg(folder))?;
    server.wait_for_line("Serving HTTP", LIMIT)?;
    Ok(server)
}

/// Runs curl without the settings of the user.
fn fetch(net: &Through, arguments: &[&str], to: &Path) -> Result<()> {
    let mut curl = net.client.netns.command("curl");
    curl.args(["--disable", "--noproxy", "*"]);
    curl.args(["--silent", "--show-error", "--fail", "--output"]);
    let ended = cli::finish(curl.arg(to).args(arguments))?;
    ensure!(ended.code == Some(0), "curl: {ended:#?}");
    Ok(())
}
