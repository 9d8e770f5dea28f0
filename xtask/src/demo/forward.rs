//! A forwarded port: a client downloads from a web server that it cannot name, through a host that
//! forwards.

use std::fmt;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use xdptun_lab::content::{Filling, digest, write};
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Capture, Family, Host, Served, xdptun};

use super::Args;
use super::web::{download, intact, list, packets, rounded, serve};
use crate::progress::Progress;

/// What the client calls, and where the web server listens.
const LISTEN: u16 = 7000;
/// See [`LISTEN`].
const SERVICE: u16 = 8080;

/// What was seen; the fields of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    /// Whether the port led nowhere before and after.
    refused: [bool; 2],
    /// Whether SHA-256 of download and file are equal.
    sha256_ok: bool,
    /// Average speed by curl's account.
    mib_s: f64,
    /// The first packets on the client's wire, and on the back end's.
    wires: [Vec<String>; 2],
    /// What `xdptun sessions` printed meanwhile.
    sessions: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, after] = self.refused.map(|refused| match refused {
            true => "refused",
            false => "ANSWERED",
        });
        let intact = intact(self.sha256_ok);
        writeln!(f, "\nbefore         {before}")?;
        writeln!(f, "forwarded      {:.1} MiB/s, {intact}", self.mib_s)?;
        writeln!(f, "after          {after}")?;
        let [client, back_end] = &self.wires;
        list(f, "wire of the client", client)?;
        list(f, "wire of the back end", back_end)?;
        list(f, "xdptun sessions", &self.sessions)
    }
}

/// Shows it, as root.
pub fn show(args: &Args) -> Result<()> {
    eprintln!(
        "A client calls port {LISTEN} of a host. Behind the host is a web server at port\n\
         {SERVICE}, which sees the client's own address.\n"
    );
    let report = demonstrate(args)?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    let is_right = report.refused == [true; 2] && report.sha256_ok;
    ensure!(is_right, "not what was promised");
    Ok(())
}

fn demonstrate(args: &Args) -> Result<Report> {
    let progress = Progress::start();
    progress.say(&format!(
        "three namespaces, a file of {} MiB, python3 -m http.server",
        args.size_mib
    ));
    let net = Served::new()?;
    let scratch = Scratch::new()?;
    let file = scratch.path().join("file");
    let expected = write(&file, usize::try_from(args.size_mib)?, Filling::Pattern)?;
    let service = net.back_end.socket(Family::V4, SERVICE);
    let _server = serve(&net.back_end.netns, service, scratch.path())?;
    let listen = net.listen_at(Family::V4, LISTEN);
    let url = format!("http://{listen}/file");
    let copy = scratch.path().join("copy");
    let client = &net.client.netns;
    let fetch = || download(client, &url, &copy, &[]);

    progress.say(&format!("curl {url}"));
    let before = fetch()?.is_none();
    let (port, to) = (LISTEN.to_string(), service.to_string());
    progress.say(&format!(
        "xdptun forward --iface {} --listen {port} --to {to}",
        Served::WAN
    ));
    let attached = Attached::forward(&net.gateway, Served::WAN, &["--listen", &port, "--to", &to])?;
    let captures = [&net.client, &net.back_end];
    let captures = captures.map(|host| Capture::start(&host.netns, Host::DEV));
    let [near, far] = captures;
    let (near, far) = (near?, far?);
    progress.say(&format!("curl {url}"));
    let mib_s = attached.explain(fetch().and_then(|speed| speed.context("it was refused")))?;
    progress.say(&format!("          {mib_s:.1} MiB/s"));
    let sessions = xdptun::run_in(&net.gateway, &["sessions"])?;
    let wires = [packets(&near.stop()?), packets(&far.stop()?)];
    let sha256_ok = digest(&copy)? == expected;
    progress.say("SIGINT: xdptun detaches");
    attached.stop()?;
    progress.say(&format!("curl {url}"));
    let after = fetch()?.is_none();
    Ok(Report {
        refused: [before, after],
        sha256_ok,
        mib_s: rounded(mib_s),
        wires,
        sessions: sessions.lines().map(str::to_owned).collect(),
    })
}
