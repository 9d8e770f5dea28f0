//! The server and the client on two hosts of the laboratory.
//!
//! For end-to-end tests and benchmarks; the programs are run as a person would
//! run them.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use xdptun_lab::command::run;
use xdptun_lab::content::{self, Filling};
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Family, Host, Process};

use crate::PORT;
use crate::report::Report;

/// A server that takes longer to start does not.
const START_LIMIT: Duration = Duration::from_secs(10);

/// A connection that stalls ends by itself, after the 30 seconds of silence that
/// quinn allows. This is for one that crawls: the largest transfer, 1 GiB, takes
/// seconds on an idle machine and minutes on a crowded one.
const FETCH_LIMIT: Duration = Duration::from_secs(600);

/// How the server hands datagrams to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sends {
    /// Many at once where it takes them (UDP GSO), as quinn does by default.
    Batches,
    /// One at a time.
    Single,
}

/// A server of a folder, and a host to download from it.
#[derive(Debug)]
pub struct Scenario {
    client: Host,
    server: Host,
    programs: PathBuf,
    process: Process,
    scratch: Scratch,
}

impl Scenario {
    /// Makes a certificate and starts the server on its host.
    ///
    /// `programs` is the folder where cargo put the binaries of this package.
    pub fn new(client: &Host, server: &Host, programs: &Path) -> Result<Self> {
        Self::sending(client, server, programs, Sends::Batches)
    }

    /// The same with a choice of how the server sends.
    pub fn sending(client: &Host, server: &Host, programs: &Path, sends: Sends) -> Result<Self> {
        let scratch = Scratch::new()?;
        let (folder, tls) = (scratch.path().join("www"), scratch.path().join("tls"));
        std::fs::create_dir(&folder).context("cannot make a folder to serve")?;
        let names = [server.v4.to_string(), server.v6.to_string()];
        let mut make_cert = Command::new(programs.join("make-cert"));
        run(make_cert.arg("--directory").arg(&tls).args(names))?;
        let mut command = server.netns.command(programs.join("server"));
        command.arg("-c").arg(tls.join("test.crt"));
        command.arg("-k").arg(tls.join("test.key"));
        command.arg("-d").arg(&folder);
        if sends == Sends::Single {
            command.arg("--no-gso");
        }
        let process = Process::spawn(&mut command)?;
        process.wait_for_line("serving", START_LIMIT)?;
        Ok(Self {
            client: client.clone(),
            server: server.clone(),
            programs: programs.to_owned(),
            process,
            scratch,
        })
    }

    /// The served folder.
    pub fn folder(&self) -> PathBuf {
        self.scratch.path().join("www")
    }

    /// The server's certificate, which holds its addresses.
    pub fn certificate(&self) -> PathBuf {
        self.scratch.path().join("tls/test.crt")
    }

    /// Puts a file of `mib` MiB into the folder and returns its SHA-256.
    pub fn provide(&self, name: &str, mib: usize, filling: Filling) -> Result<String> {
        content::write(&self.folder().join(name), mib, filling)
    }

    /// The URL of a file by the server's address of one family.
    pub fn url(&self, family: Family, name: &str) -> String {
        let authority = match self.server.address(family) {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        format!("https://{authority}:{PORT}/{name}")
    }

    /// Runs the client on its host to its end; an error holds what both
    /// programs said.
    pub fn client(&self, args: &[&str]) -> Result<Vec<String>> {
        let mut command = self.client.netns.command(self.programs.join("client"));
        let client = Process::spawn(command.args(args))?;
        self.process.with_output(client.wait_success(FETCH_LIMIT))
    }

    /// Downloads files over one connection from [`PORT`] to [`PORT`], as the
    /// reference measurement does, all of them at once.
    pub fn fetch(&self, family: Family, names: &[&str]) -> Result<Report> {
        let urls: Vec<String> = names.iter().map(|name| self.url(family, name)).collect();
        let (port, parallel) = (PORT.to_string(), names.len().to_string());
        let mut args = vec![
            "-k",
            "--json",
            "--local-port",
            &port,
            "--parallel",
            &parallel,
        ];
        args.extend(urls.iter().map(String::as_str));
        let output = self.client(&args)?;
        serde_json::from_str(&output.join("\n"))
            .with_context(|| format!("the client printed {output:?}"))
    }
}
