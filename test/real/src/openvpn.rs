//! OpenVPN between two hosts: a TLS server and a client that know each other's certificate.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use sha2::{Digest, Sha256};
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Host, Process, wait};
use xdptun_test_net::unpacked;

/// OpenVPN's own port.
pub const PORT: u16 = 1194;

/// The addresses inside: server, client.
pub const INSIDE: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 8, 0, 1), Ipv4Addr::new(10, 8, 0, 2)];

/// The line that says that the tunnel is up.
const READY: &str = "Initialization Sequence Completed";

/// How long that may take: two TLS handshakes on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Both ends. Dropping them ends the tunnel.
#[derive(Debug)]
pub struct Tunnel {
    _ends: [Process; 2],
    _files: Scratch,
}

/// A certificate, its key, and its fingerprint as OpenVPN writes it.
struct Identity {
    certificate: PathBuf,
    key: PathBuf,
    fingerprint: String,
}

impl Identity {
    fn make(files: &Path, name: &str) -> Result<Self> {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed([name.to_owned()])?;
        let hash = Sha256::digest(cert.der());
        let bytes: Vec<String> = hash.iter().map(|byte| format!("{byte:02X}")).collect();
        let identity = Self {
            certificate: files.join(format!("{name}.crt")),
            key: files.join(format!("{name}.key")),
            fingerprint: bytes.join(":"),
        };
        fs::write(&identity.certificate, cert.pem())?;
        fs::write(&identity.key, signing_key.serialize_pem())?;
        Ok(identity)
    }
}

impl Tunnel {
    /// Brings a tunnel up from `client` to `server`, with OpenVPN's defaults and these `options`.
    pub fn up(server: &Host, client: &Host, options: &[&str]) -> Result<Self> {
        let files = Scratch::new()?;
        let [of_server, of_client] =
            ["server", "client"].map(|name| Identity::make(files.path(), name));
        let (of_server, of_client) = (of_server?, of_client?);
        let to = server.v4.to_string();
        let serves = [&["--tls-server", "--dh", "none"][..], options].concat();
        let calls = [&["--tls-client", "--nobind", "--remote", &to][..], options].concat();
        let [outer, inner] = INSIDE;
        let ends = [
            start(server, [&of_server, &of_client], [outer, inner], &serves)?,
            start(client, [&of_client, &of_server], [inner, outer], &calls)?,
        ];
        for end in &ends {
            let is_up = |line: &String| line.contains(READY);
            let up = wait::until(LIMIT, READY, || end.stdout().iter().any(is_up));
            end.with_output(up)?;
        }
        Ok(Self {
            _ends: ends,
            _files: files,
        })
    }
}

fn start(
    host: &Host,
    [own, other]: [&Identity; 2],
    [near, far]: [Ipv4Addr; 2],
    arguments: &[&str],
) -> Result<Process> {
    let mut openvpn = unpacked::program(&host.netns, "openvpn", "usr/sbin/openvpn");
    openvpn.args(["--dev", "tun0", "--topology", "p2p", "--proto", "udp"]);
    openvpn.args(["--ifconfig", &near.to_string(), &far.to_string()]);
    openvpn.args(["--port", &PORT.to_string()]);
    openvpn.arg("--cert").arg(&own.certificate);
    openvpn.arg("--key").arg(&own.key);
    openvpn.args(["--peer-fingerprint", &other.fingerprint]);
    openvpn.args(arguments);
    Process::spawn(&mut openvpn).context("openvpn")
}
