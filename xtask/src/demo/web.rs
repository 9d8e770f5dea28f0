//! A web server, downloads from it, and the packets of their wires.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use xdptun_lab::segment::{Content, parse};
use xdptun_lab::{Frame, Netns, Process, wait};

/// How long the web server may take to start.
const START_LIMIT: Duration = Duration::from_secs(10);

/// How many packets of a wire are shown.
const SHOWN: usize = 4;

/// How curl ends if nobody listens.
const REFUSED: i32 = 7;

/// How curl ends if nobody answers.
const UNANSWERED: i32 = 28;

/// A web server of the files in a directory.
pub fn serve(netns: &Netns, at: SocketAddr, directory: &Path) -> Result<Process> {
    let (address, port) = (at.ip().to_string(), at.port().to_string());
    let mut command = netns.command("python3");
    command.args([
        "-m",
        "http.server",
        &port,
        "--bind",
        &address,
        "--directory",
    ]);
    let server = Process::spawn(command.arg(directory))?;
    let listens = wait::until(START_LIMIT, "the web server", || {
        let table = netns.run("ss", ["-Hltn"]);
        table.is_ok_and(|text| text.contains(&format!(":{port} ")))
    });
    server.with_output(listens)?;
    Ok(server)
}

/// Downloads a file, with these options of curl as well; the speed in MiB/s, or none if nobody
/// listens or answers.
pub fn download(netns: &Netns, url: &str, to: &Path, options: &[&str]) -> Result<Option<f64>> {
    let mut command = netns.command("curl");
    command.args(["--silent", "--connect-timeout", "2"]);
    command.args(["--write-out", "%{speed_download}", "--output"]);
    let output = command
        .arg(to)
        .args(options)
        .arg(url)
        .output()
        .context("cannot run curl")?;
    match output.status.code() {
        Some(0) => {
            let speed: f64 = String::from_utf8_lossy(&output.stdout).trim().parse()?;
            Ok(Some(speed / f64::from(1 << 20)))
        }
        Some(REFUSED | UNANSWERED) => Ok(None),
        _ => bail!("curl: {}", output.status),
    }
}

/// The first TCP segments of a capture.
pub fn packets(frames: &[Frame]) -> Vec<String> {
    let segments = frames.iter().filter_map(|frame| match parse(frame) {
        Ok(Content::Transport(packet)) => Some(packet.to_string()),
        _ => None,
    });
    // Checksums of devices that leave them to others are pending there.
    let shown = segments.map(|text| text.split(" (ip checksum").next().unwrap_or("").to_owned());
    shown.take(SHOWN).collect()
}

/// A speed with one digit behind the point.
pub fn rounded(mib_s: f64) -> f64 {
    (mib_s * 10.0).round() / 10.0
}

/// Whether a download is what was sent, in words.
pub const fn intact(is_intact: bool) -> &'static str {
    if is_intact { "intact" } else { "DAMAGED" }
}

/// Writes lines below a title.
pub fn list(f: &mut fmt::Formatter<'_>, title: &str, lines: &[String]) -> fmt::Result {
    writeln!(f, "\n{title}")?;
    lines.iter().try_for_each(|line| writeln!(f, "  {line}"))
}
