//! A word that resets connections: a client talks to a server, and says it.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use xdptun_lab::{Attached, Capture, Direct, Family, Host, xdptun};

use super::Args;
use super::web::{list, packets};
use crate::progress::Progress;

/// Where the server listens.
const PORT: u16 = 8000;

/// The word.
const WORD: &str = "STEPH";

/// How long an end waits for the other.
const LIMIT: Duration = Duration::from_secs(10);

/// What was seen; the fields of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    /// Whether a message without the word was echoed.
    echoed: bool,
    /// What client and server heard after the word.
    heard: [String; 2],
    /// The last packets on the wire.
    wire: Vec<String>,
    /// What `xdptun status` printed.
    status: Vec<String>,
}

impl Report {
    fn is_right(&self) -> bool {
        let reset = |heard: &String| heard.contains("reset");
        self.echoed && self.heard.iter().all(reset)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let echoed = if self.echoed { "echoed" } else { "LOST" };
        let [client, server] = &self.heard;
        writeln!(f, "\nwithout the word {echoed}")?;
        writeln!(f, "client           {client}")?;
        writeln!(f, "server           {server}")?;
        list(f, "wire", &self.wire)?;
        list(f, "xdptun status", &self.status)
    }
}

/// Shows it, as root.
pub fn show(args: &Args) -> Result<()> {
    eprintln!(
        "A client talks to an echo server. The server's host searches what comes in for\n\
         \"{WORD}\": the packet that has it is dropped, and both ends are reset.\n"
    );
    let report = demonstrate()?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    ensure!(report.is_right(), "not what was promised");
    Ok(())
}

fn demonstrate() -> Result<Report> {
    let progress = Progress::start();
    progress.say("two namespaces");
    let net = Direct::new()?;
    let rule = ["--direction", "in", "--protocol", "tcp"];
    let rule = [&rule[..], &["--contains", WORD, "--action", "reset"]].concat();
    progress.say(&format!("xdptun policy --iface eth0 {}", rule.join(" ")));
    let attached = Attached::policy(&net.b.netns, Host::DEV, &rule)?;
    let at = net.b.socket(Family::V4, PORT);
    let listener = net.b.netns.enter(|| TcpListener::bind(at))?;
    let listener = listener.with_context(|| format!("cannot listen on {at}"))?;
    let wire = Capture::start(&net.b.netns, Host::DEV)?;
    let server = thread::spawn(move || echo(&listener));
    let stream = net.a.netns.enter(|| TcpStream::connect(at))?;
    let mut stream = stream.with_context(|| format!("cannot connect to {at}"))?;
    stream.set_read_timeout(Some(LIMIT))?;
    progress.say("a message without the word, and one with it");
    let mut answer = [0; 5];
    stream.write_all(b"hello")?;
    let echoed = stream.read_exact(&mut answer).is_ok() && answer == *b"hello";
    stream.write_all(format!("and {WORD}").as_bytes())?;
    let client = heard(stream.read(&mut answer));
    let server = server.join();
    let server = server.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let status = xdptun::run_in(&net.b.netns, &["status"])?;
    let frames = wire.stop()?;
    let wire = packets(&frames[frames.len().saturating_sub(4)..]);
    progress.say("SIGINT: xdptun detaches");
    attached.stop()?;
    Ok(Report {
        echoed,
        heard: [client, server],
        wire,
        status: status.lines().map(str::to_owned).collect(),
    })
}

/// Serves one client until its end; what that was.
fn echo(listener: &TcpListener) -> String {
    let serve = || -> std::io::Result<usize> {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(LIMIT))?;
        let mut buffer = [0; 1024];
        loop {
            match stream.read(&mut buffer)? {
                0 => return Ok(0),
                len => stream.write_all(&buffer[..len])?,
            }
        }
    };
    heard(serve())
}

/// What an end heard, in words.
fn heard(read: std::io::Result<usize>) -> String {
    match read {
        Ok(0) => "the end of the connection".to_owned(),
        Ok(len) => format!("{len} bytes"),
        Err(error) => error.to_string().to_lowercase(),
    }
}
