//! Caddy, a web server that speaks HTTP/3, and a client on quic-go.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use xdptun_lab::content::{self, Filling};
use xdptun_lab::extent::Extent;
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Host, Process, wait, workspace};

use crate::compare::{Speeds, mib};

/// Where HTTP/3 is served. Caddy has no TCP port of this number here.
pub const PORT: u16 = 4433;

/// Where uploads end, behind Caddy.
const SINK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9000);

/// The file.
const FILE: &str = "test";

/// How long the programs may take to listen.
const START_LIMIT: Duration = Duration::from_secs(20);

/// How long all requests of one kind may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Where Caddy is.
fn caddy() -> PathBuf {
    workspace::root().join(".tools/caddy/bin/caddy")
}

/// Where the client is.
fn client() -> PathBuf {
    workspace::root().join(".tools/http3/bin/http3")
}

/// Whether both are there. CI has them.
///
/// # Panics
///
/// If they are not, and this is CI.
#[must_use]
pub fn is_installed() -> bool {
    let missing = [caddy(), client()].into_iter().find(|path| !path.is_file());
    let Some(path) = missing else {
        return true;
    };
    let path = path.display();
    let reason =
        format!("{path}: no such file; `cargo xtask setup` builds it where Go is installed");
    assert!(std::env::var_os("CI").is_none(), "{reason}");
    eprintln!("skipped: {reason}");
    false
}

/// A server with a file, and a place for uploads behind it.
#[derive(Debug)]
pub struct Server {
    process: Process,
    _sink: Process,
    address: Ipv4Addr,
    files: Scratch,
    bytes: usize,
    digest: String,
}

impl Server {
    /// Starts it, for HTTP/3 alone.
    pub fn start(host: &Host) -> Result<Self> {
        let files = Scratch::new()?;
        let path = files.path();
        let megabytes = Extent::here().pick(16, 128);
        let served = path.join("served");
        fs::create_dir(&served)?;
        let digest = content::write(&served.join(FILE), megabytes, Filling::Pattern)?;
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed([host.v4.to_string()])?;
        fs::write(path.join("certificate.pem"), cert.pem())?;
        fs::write(path.join("key.pem"), signing_key.serialize_pem())?;
        let folder = path.to_str().context("the folder has a strange name")?;
        let configuration = format!(
            "{{
                admin off
                auto_https off
                persist_config off
                servers {{
                    protocols h3
                }}
            }}
            https://{}:{PORT} {{
                tls {folder}/certificate.pem {folder}/key.pem
                root * {folder}/served
                handle /sink {{
                    reverse_proxy {SINK}
                }}
                handle {{
                    file_server
                }}
            }}\n",
            host.v4
        );
        let caddyfile = path.join("Caddyfile");
        fs::write(&caddyfile, configuration)?;
        let sink = Process::spawn(
            host.netns
                .command(client())
                .args(["sink", &SINK.to_string()]),
        )?;
        sink.wait_for_line("listening", START_LIMIT)?;
        let mut command = host.netns.command(caddy());
        command
            .args(["run", "--adapter", "caddyfile", "--config"])
            .arg(&caddyfile)
            .env("HOME", path);
        for folder in ["XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
            command.env(folder, path);
        }
        let process = Process::spawn(&mut command)?;
        let serves = |line: &String| line.contains("serving initial configuration");
        let up = wait::until_some(START_LIMIT, "Caddy to serve", || {
            ensure!(process.is_running()?, "Caddy ended");
            Ok(process.stderr().iter().any(serves).then_some(()))
        });
        process.with_output(up)?;
        Ok(Self {
            process,
            _sink: sink,
            address: host.v4,
            files,
            bytes: megabytes << 20,
            digest,
        })
    }

    /// Uploads and downloads from a host; what arrives is compared. Speeds of the requests
    /// together, up and down.
    pub fn used_by(&self, host: &Host) -> Result<Speeds> {
        let requests = Extent::here().pick(1, 2);
        let mut speeds = [0.0; 2];
        let ways = [("put", "sink", true), ("get", FILE, false)];
        for (speed, (verb, name, is_upload)) in speeds.iter_mut().zip(ways) {
            let mut command = host.netns.command(client());
            command
                .arg(verb)
                .arg(format!("https://{}:{PORT}/{name}", self.address))
                .arg(self.files.path().join("certificate.pem"))
                .args([PORT.to_string(), requests.to_string()]);
            if is_upload {
                command.arg(self.bytes.to_string());
            }
            let said = Process::spawn(&mut command)?.wait_success(LIMIT);
            let said = self.process.with_output(said)?;
            let done: Vec<_> = said.iter().filter_map(|line| parse(line)).collect();
            ensure!(done.len() == requests, "{verb}: {said:#?}");
            let mut seconds = 0.0;
            for (bytes, took, digest) in done {
                ensure!(bytes == self.bytes, "{verb}: {bytes} bytes");
                // The client has compared what it sent with what arrived.
                ensure!(is_upload || digest == self.digest, "other bytes arrived");
                seconds += took;
            }
            *speed = mib(requests * self.bytes) / seconds;
        }
        Ok(speeds)
    }
}

/// The bytes, seconds and digest of a request.
fn parse(line: &str) -> Option<(usize, f64, String)> {
    let mut words = line.strip_prefix("done ")?.split(' ');
    let bytes = words.next()?.parse().ok()?;
    let seconds = words.next()?.parse().ok()?;
    Some((bytes, seconds, words.next()?.to_owned()))
}
