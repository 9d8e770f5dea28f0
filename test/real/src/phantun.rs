//! phantun, as its own documentation sets it up: a TUN device, and a NAT that leads to it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, ensure};
use xdptun_lab::{Host, Process, link, wait, workspace};

/// The end of a server's TUN device that speaks TCP; phantun's default.
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 168, 201, 2);

/// How long a program may take to make its device.
const START_LIMIT: Duration = Duration::from_secs(10);

/// One end.
#[derive(Debug)]
pub struct End {
    /// The program, to look at its output.
    pub process: Process,
}

/// Takes UDP datagrams to `local` of a host, and opens flows to `remote`.
pub fn client(host: &Host, local: SocketAddr, remote: SocketAddr) -> Result<End> {
    let nat = format!(
        "table ip phantun {{
            chain out {{
                type nat hook postrouting priority srcnat
                oifname {} masquerade
            }}
        }}",
        Host::DEV
    );
    start(
        host,
        "client",
        &nat,
        [&local.to_string(), &remote.to_string()],
    )
}

/// Accepts flows to TCP port `local` of a host, and sends UDP datagrams to `remote`.
pub fn server(host: &Host, local: u16, remote: SocketAddr) -> Result<End> {
    let nat = format!(
        "table ip phantun {{
            chain in {{
                type nat hook prerouting priority dstnat
                iifname {} tcp dport {local} dnat to {SERVER}
            }}
        }}",
        Host::DEV
    );
    start(
        host,
        "server",
        &nat,
        [&local.to_string(), &remote.to_string()],
    )
}

fn start(host: &Host, program: &str, nat: &str, [local, remote]: [&str; 2]) -> Result<End> {
    let path = workspace::root().join(".tools/phantun/bin").join(program);
    ensure!(path.is_file(), "{}: {}", path.display(), ADVICE);
    host.netns.sysctl("net.ipv4.ip_forward", "1")?;
    host.netns.run_with_input("nft", ["-f", "-"], nat)?;
    let mut command = host.netns.command(path);
    command
        .env("RUST_LOG", "info")
        .args(["--ipv4-only", "--local", local, "--remote", remote]);
    let process = Process::spawn(&mut command)?;
    let is_tun = |name: &String| name.starts_with("tun");
    let started = wait::until_some(START_LIMIT, "phantun's device", || {
        let names = link::names(&host.netns)?;
        Ok(names.iter().any(is_tun).then_some(()))
    });
    process.with_output(started)?;
    Ok(End { process })
}

/// What is told if it is not there.
const ADVICE: &str = "no such file; `cargo xtask setup` installs it with cargo";
