//! Inside hosts that share an outside address: two of them download from a web server that has no
//! route to them, from the same port.

use std::fmt;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use xdptun_lab::content::{Filling, digest, write};
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Capture, Family, Frame, Host, Inside, Netns, xdptun};

use super::Args;
use super::web::{download, intact, list, packets, rounded, serve};
use crate::progress::Progress;

/// Where the web server listens.
const SERVICE: u16 = 8080;

/// The port of both inside hosts.
const LOCAL: &str = "5000";

/// What was seen; the fields of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    /// Whether the web server's answers reached nobody before and after.
    unanswered: [bool; 2],
    /// Whether no packet with an inside address was on the web server's wire meanwhile.
    hidden: bool,
    /// What each of both inside hosts has seen.
    hosts: [Seen; 2],
    /// What `xdptun sessions` printed meanwhile.
    sessions: Vec<String>,
}

/// The download of an inside host.
#[derive(Debug, Serialize)]
struct Seen {
    /// Whether SHA-256 of download and file are equal.
    sha256_ok: bool,
    /// Average speed by curl's account.
    mib_s: f64,
    /// The first packets on the inside host's wire, and on the web server's.
    wires: [Vec<String>; 2],
    #[serde(skip)]
    hidden: bool,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, after] = self.unanswered.map(|unanswered| match unanswered {
            true => "no answer comes back",
            false => "ANSWERED",
        });
        writeln!(f, "\nbefore         {before}")?;
        for (seen, which) in self.hosts.iter().zip(["first host", "second host"]) {
            let intact = intact(seen.sha256_ok);
            writeln!(f, "{which:15}{:.1} MiB/s, {intact}", seen.mib_s)?;
        }
        writeln!(f, "after          {after}")?;
        let hidden = if self.hidden { "none" } else { "SOME" };
        writeln!(f, "inside addresses on the wire outside: {hidden}")?;
        for (seen, which) in self.hosts.iter().zip(["first", "second"]) {
            let [inside, outside] = &seen.wires;
            list(f, &format!("wire of the {which} inside host"), inside)?;
            list(f, "the same packets on the web server's wire", outside)?;
        }
        list(f, "xdptun sessions", &self.sessions)
    }
}

/// Shows it, as root.
pub fn show(args: &Args) -> Result<()> {
    eprintln!(
        "Two hosts with private addresses are behind a gateway. A web server outside has no\n\
         route to them. Both call it from port {LOCAL}.\n"
    );
    let report = demonstrate(args)?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    let are_intact = report.hosts.iter().all(|seen| seen.sha256_ok);
    let is_right = report.unanswered == [true; 2] && report.hidden && are_intact;
    ensure!(is_right, "not what was promised");
    Ok(())
}

fn demonstrate(args: &Args) -> Result<Report> {
    let progress = Progress::start();
    progress.say(&format!(
        "seven namespaces, a file of {} MiB, python3 -m http.server",
        args.size_mib
    ));
    let net = Inside::new()?;
    let scratch = Scratch::new()?;
    let file = scratch.path().join("file");
    let expected = write(&file, usize::try_from(args.size_mib)?, Filling::Pattern)?;
    let [server, _] = &net.outside;
    let service = server.socket(Family::V4, SERVICE);
    let _server = serve(&server.netns, service, scratch.path())?;
    let url = format!("http://{service}/file");
    let copy = scratch.path().join("copy");
    let fetch = |from: &Netns| {
        progress.say(&format!("curl --local-port {LOCAL} {url}"));
        download(from, &url, &copy, &["--local-port", LOCAL])
    };

    let before = fetch(&net.a.netns)?.is_none();
    progress.say(&format!(
        "xdptun nat --iface {} --inside {}",
        Inside::WAN,
        Inside::NETWORK
    ));
    let attached = Attached::nat(&net.gateway, Inside::WAN, &["--inside", Inside::NETWORK])?;
    let see = |host: &Host| {
        let near = Capture::start(&host.netns, Host::DEV)?;
        let far = Capture::start(&server.netns, Host::DEV)?;
        let speed = fetch(&host.netns).and_then(|speed| speed.context("no answer came back"));
        let mib_s = attached.explain(speed)?;
        progress.say(&format!("          {mib_s:.1} MiB/s"));
        let [near, far] = [near.stop()?, far.stop()?];
        anyhow::Ok(Seen {
            sha256_ok: digest(&copy)? == expected,
            mib_s: rounded(mib_s),
            wires: [packets(&near), packets(&far)],
            hidden: !far.iter().any(shows_inside),
        })
    };
    let hosts = [see(&net.a)?, see(&net.b)?];
    let sessions = xdptun::run_in(&net.gateway, &["sessions"])?;
    progress.say("SIGINT: xdptun detaches");
    attached.stop()?;
    let after = fetch(&net.a.netns)?.is_none();
    Ok(Report {
        unanswered: [before, after],
        hidden: hosts.iter().all(|seen| seen.hidden),
        hosts,
        sessions: sessions.lines().map(str::to_owned).collect(),
    })
}

/// Whether an IPv4 packet in a frame has an address of an inside host.
fn shows_inside(frame: &Frame) -> bool {
    const INSIDE: [u8; 3] = [192, 168, 7];
    let addresses = frame.bytes.get(26..34).unwrap_or_default();
    frame.bytes.get(12..14) == Some(&[8, 0])
        && addresses
            .chunks(4)
            .any(|address| address.starts_with(&INSIDE))
}
