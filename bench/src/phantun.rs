//! phantun as a path, set up as its own documentation tells.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use xdptun_lab::{Direct, Family, Host, Process, link, wait, workspace};

use crate::route::{PORT, Route, Tunnel};

/// The end of the server's tunnel device that speaks TCP; phantun's default.
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 168, 201, 2);

/// Where the receiver listens, beside the server.
const EXIT: u16 = 8001;

/// How long a program may take to make its device.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Where `cargo xtask bench` installs its programs, `client` and `server`.
fn folder() -> PathBuf {
    workspace::root().join(".tools/phantun/bin")
}

/// Why it cannot be measured, if it cannot.
pub fn missing() -> Option<String> {
    let program = folder().join("client");
    (!program.is_file()).then(|| {
        let path = program.display();
        format!("{path}: no such file; `cargo xtask bench peers` installs it with cargo")
    })
}

/// Starts both programs.
pub fn route() -> Result<Route> {
    let net = Direct::new()?;
    let Direct { a, b } = &net;
    let translate = format!(
        "table ip phantun {{
            chain out {{ type nat hook postrouting priority srcnat; oifname {dev} masquerade; }}
            chain in {{ type nat hook prerouting priority dstnat;
                iifname {dev} tcp dport {PORT} dnat to {SERVER}; }}
        }}",
        dev = Host::DEV
    );
    for host in [a, b] {
        host.netns.sysctl("net.ipv4.ip_forward", "1")?;
        host.netns.run_with_input("nft", ["-f", "-"], &translate)?;
    }
    let local = (Ipv4Addr::LOCALHOST, PORT).into();
    let exit = (Ipv4Addr::LOCALHOST, EXIT).into();
    let remote = b.socket(Family::V4, PORT);
    let server = start(b, "server", [PORT.to_string(), format!("{exit}")])?;
    let client = start(a, "client", [format!("{local}"), remote.to_string()])?;
    let tunnel = Tunnel {
        entry: local,
        exit,
        programs: [client, server],
    };
    Ok(Route::tunnelled("phantun", net, tunnel))
}

fn start(host: &Host, program: &str, [local, remote]: [String; 2]) -> Result<Process> {
    let mut command = host.netns.command(folder().join(program));
    command
        .env("RUST_LOG", "info")
        .args(["--ipv4-only", "--local", &local, "--remote", &remote]);
    let process = Process::spawn(&mut command)?;
    let started = wait::until_some(START_LIMIT, "phantun's device", || {
        let names = link::names(&host.netns)?;
        Ok(names
            .iter()
            .any(|name| name.starts_with("tun"))
            .then_some(()))
    });
    process.with_output(started)?;
    Ok(process)
}
