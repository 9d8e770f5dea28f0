//! Commands that run on another host.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail, ensure};
use xdptun_lab::Process;
use xdptun_lab::command::run;
use xdptun_lab::content::{self, Filling};
use xdptun_lab::scratch::Scratch;
use xdptun_test_net::through::{self, Through};
use xdptun_test_net::{LIMIT, cli, unpacked};

/// The package with the server.
const PACKAGE: &str = "openssh-server";

/// The name by which the client knows the key of the server, whatever address it calls.
const NAME: &str = "server.test";

/// Starts the server ($2) where `/run` and the users of the machine are those of a folder ($1). It
/// wants a directory in `/run`, and a user of its own.
const START: &str = "
    mount -t tmpfs tmpfs /run
    mkdir -m 755 /run/sshd
    mount --bind \"$1/passwd\" /etc/passwd
    mount --bind \"$1/shadow\" /etc/shadow
    exec \"$2\" -D -e -f \"$1/config\"
";

/// How many MiB a command reads and writes.
const LENGTH: usize = 8;

#[test]
fn commands_run_by_a_forwarded_port() {
    through::forward(run_commands);
}

#[test]
fn commands_of_an_inside_host_run() {
    through::nat(run_commands);
}

#[test]
fn commands_of_an_ipv6_only_client_run() {
    through::nat64(run_commands);
}

/// The first tells which connection it has, the second sends back what it gets.
pub fn run_commands(net: &Through) -> Result<()> {
    let scratch = Scratch::new()?;
    let folder = scratch.path();
    let server = serve(net, folder)?;
    let [input, output] = ["input", "output"].map(|name| folder.join(name));
    let expected = content::write(&input, LENGTH, Filling::Pattern)?;
    let told = ssh(net, folder, "echo $SSH_CONNECTION; exit 7");
    ensure!(server.with_output(told)? == Some(7), "another exit code");
    let connection = fs::read_to_string(&output)?;
    let words: Vec<&str> = connection.split_whitespace().collect();
    let [from, _, to, port] = words[..] else {
        bail!("not a connection: {connection}");
    };
    let service = SocketAddr::new(to.parse()?, port.parse()?);
    ensure!(from.parse() == Ok(net.seen), "{connection}");
    ensure!(service == net.service, "{connection}");
    let returned = ssh(net, folder, "cat");
    ensure!(server.with_output(returned)? == Some(0), "`cat` failed");
    ensure!(
        content::digest(&output)? == expected,
        "other bytes came back"
    );
    Ok(())
}

/// An SSH server with keys, users and a configuration of its own, all in a folder.
fn serve(net: &Through, folder: &Path) -> Result<Process> {
    for key in ["host", "user"] {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]);
        run(keygen.arg(folder.join(key)))?;
    }
    let host = fs::read_to_string(folder.join("host.pub"))?;
    fs::write(folder.join("known"), format!("{NAME} {host}"))?;
    let home = folder.display();
    let users = format!("root:*:0:0::{home}:/bin/sh\nsshd:*:65534:65534::/:/bin/false\n");
    fs::write(folder.join("passwd"), users)?;
    fs::write(folder.join("shadow"), "root:*:1::::::\nsshd:*:1::::::\n")?;
    fs::write(folder.join("config"), configuration(net, folder))?;
    let sshd = unpacked::program(&net.server.netns, PACKAGE, "usr/sbin/sshd");
    let mut command = net.server.netns.command("unshare");
    command.args(["--mount", "sh", "-ec", START, "sh"]);
    command.arg(folder).arg(sshd.get_program());
    for (name, value) in sshd.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let server = Process::spawn(&mut command)?;
    server.wait_for_line("Server listening", LIMIT)?;
    Ok(server)
}

fn configuration(net: &Through, folder: &Path) -> String {
    let (address, port) = (net.service.ip(), net.service.port());
    let home = folder.display();
    let mut text = format!(
        "ListenAddress {address}\nPort {port}\nHostKey {home}/host\nPidFile none\n\
         PermitRootLogin yes\nAuthorizedKeysFile {home}/user.pub\nStrictModes no\n"
    );
    // Programs that newer servers start by their path.
    let programs = unpacked::folder(PACKAGE).join("usr/lib/openssh");
    for (option, name) in [
        ("SshdSessionPath", "sshd-session"),
        ("SshdAuthPath", "sshd-auth"),
    ] {
        let path = programs.join(name);
        if path.exists() {
            text += &format!("{option} {}\n", path.display());
        }
    }
    text
}

/// Runs a command on the server. It reads the file `input` of the folder and writes `output`.
fn ssh(net: &Through, folder: &Path, command: &str) -> Result<Option<i32>> {
    let redirect = "exec \"$@\" <input >output";
    let mut shell = net.client.netns.command("sh");
    shell.current_dir(folder).args(["-c", redirect, "sh"]);
    shell.args(["ssh", "-F", "none", "-i", "user"]);
    for option in [
        "UserKnownHostsFile=known",
        "GlobalKnownHostsFile=none",
        &format!("HostKeyAlias={NAME}"),
        "StrictHostKeyChecking=yes",
        "IdentityAgent=none",
        "BatchMode=yes",
    ] {
        shell.args(["-o", option]);
    }
    shell.arg("-p").arg(net.called.port().to_string());
    shell.arg(format!("root@{}", net.host())).arg(command);
    let ended = cli::finish(&mut net.by_client(shell))?;
    // 255 is ssh's own.
    ensure!(ended.code != Some(255), "ssh: {ended:#?}");
    Ok(ended.code)
}
