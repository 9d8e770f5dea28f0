//! An IPv6-only client: it downloads from a web server that has only IPv4.

use std::fmt;
use std::net::Ipv6Addr;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use xdptun_lab::content::{Filling, digest, write};
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Capture, Family, Frame, Host, Inside, xdptun};

use super::Args;
use super::web::{download, intact, list, packets, rounded, serve};
use crate::progress::Progress;

/// Where the web server listens.
const SERVICE: u16 = 8080;

/// The network of the client, and the gateway's address in it.
const CLIENTS: &str = "fd00:7::/64";
const GATEWAY: Ipv6Addr = Ipv6Addr::new(0xfd00, 7, 0, 0, 0, 0, 0, 1);

/// What was seen; the fields of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    /// Whether the web server was out of reach before and after.
    unreachable: [bool; 2],
    /// Whether SHA-256 of download and file are equal.
    sha256_ok: bool,
    /// Average speed by curl's account.
    mib_s: f64,
    /// Whether the client's wire had IPv6 alone, and the web server's IPv4 alone.
    one_version: [bool; 2],
    /// The first packets on the client's wire, and on the web server's.
    wires: [Vec<String>; 2],
    /// What `xdptun sessions` printed meanwhile.
    sessions: Vec<String>,
}

impl Report {
    fn is_right(&self) -> bool {
        self.unreachable == [true; 2] && self.one_version == [true; 2] && self.sha256_ok
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, after] = self.unreachable.map(|unreachable| match unreachable {
            true => "no way to IPv4",
            false => "REACHED",
        });
        writeln!(f, "\nbefore         {before}")?;
        writeln!(
            f,
            "with nat64     {:.1} MiB/s, {}",
            self.mib_s,
            intact(self.sha256_ok)
        )?;
        writeln!(f, "after          {after}")?;
        let [client, server] = self
            .one_version
            .map(|one| if one { "none" } else { "SOME" });
        writeln!(f, "IPv4 on the client's wire: {client}")?;
        writeln!(f, "IPv6 on the web server's wire: {server}")?;
        let [near, far] = &self.wires;
        list(f, "wire of the client", near)?;
        list(f, "the same packets on the web server's wire", far)?;
        list(f, "xdptun sessions", &self.sessions)
    }
}

/// Shows it, as root.
pub fn show(args: &Args) -> Result<()> {
    eprintln!(
        "A client has only IPv6, a web server outside only IPv4. The gateway between them\n\
         translates: the client calls the server's address behind 64:ff9b::/96.\n"
    );
    let report = demonstrate(args)?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    ensure!(report.is_right(), "not what was promised");
    Ok(())
}

fn demonstrate(args: &Args) -> Result<Report> {
    let progress = Progress::start();
    progress.say(&format!(
        "seven namespaces, a file of {} MiB, python3 -m http.server",
        args.size_mib
    ));
    let net = Inside::new()?;
    let client = &net.a;
    client.without_ipv4(GATEWAY)?;
    let scratch = Scratch::new()?;
    let file = scratch.path().join("file");
    let expected = write(&file, usize::try_from(args.size_mib)?, Filling::Pattern)?;
    let [server, _] = &net.outside;
    let service = server.socket(Family::V4, SERVICE);
    let _server = serve(&server.netns, service, scratch.path())?;
    let url = format!("http://[64:ff9b::{}]:{SERVICE}/file", server.v4);
    let copy = scratch.path().join("copy");
    let fetch = || {
        progress.say(&format!("curl '{url}'"));
        download(&client.netns, &url, &copy, &["--globoff"])
    };

    let before = fetch()?.is_none();
    // The server has an address for documentation, which is not global.
    let options = [
        "--inside",
        CLIENTS,
        "--iface",
        Inside::WAN,
        "--allow-private",
    ];
    progress.say(&format!("xdptun nat64 {}", options.join(" ")));
    let attached = Attached::nat64(&net.gateway, &options)?;
    attached.wait_all_ready(&[Inside::WAN])?;
    let near = Capture::start(&client.netns, Host::DEV)?;
    let far = Capture::start(&server.netns, Host::DEV)?;
    let speed = fetch().and_then(|speed| speed.context("no answer came back"));
    let mib_s = attached.explain(speed)?;
    progress.say(&format!("          {mib_s:.1} MiB/s"));
    let sessions = xdptun::run_in(&net.gateway, &["sessions"])?;
    let [near, far] = [near.stop()?, far.stop()?];
    let sha256_ok = digest(&copy)? == expected;
    progress.say("SIGINT: xdptun detaches");
    attached.stop()?;
    let after = fetch()?.is_none();
    Ok(Report {
        unreachable: [before, after],
        sha256_ok,
        mib_s: rounded(mib_s),
        one_version: [!near.iter().any(is_ipv4), !far.iter().any(is_ipv6)],
        wires: [packets(&near), packets(&far)],
        sessions: sessions.lines().map(str::to_owned).collect(),
    })
}

/// Whether a frame holds a packet of IPv4.
fn is_ipv4(frame: &Frame) -> bool {
    frame.bytes.get(12..14) == Some(&[8, 0])
}

/// Whether a frame holds a TCP segment of IPv6: kernels ask for routers on any wire.
fn is_ipv6(frame: &Frame) -> bool {
    frame.bytes.get(12..14) == Some(&[0x86, 0xdd]) && frame.bytes.get(20) == Some(&6)
}
