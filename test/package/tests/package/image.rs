//! A container with the Containerfile's image and the manifest's mounts carries datagrams,
//! and the next container goes on with its flows.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use xdptun_lab::command::run;
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{
    Attached, Capture, Direct, Family, Host, WireStats, udp, wait, workspace, xdptun,
};
use xdptun_test_package::{Processor, files, made, with_all_formats};

const LIMIT: Duration = Duration::from_secs(10);
const PORT: u16 = 8000;

/// The image for a processor.
fn image(processor: Processor) -> PathBuf {
    let name = concat!("xdptun-", env!("CARGO_PKG_VERSION"), "-oci");
    made(&format!("{name}-{}.tar", processor.debian)).unwrap()
}

/// An image as skopeo reads it, with all digests checked: what its configuration says, and its
/// files, which go to `root`.
fn unpack(kind: &str, image: &Path, root: &Path) -> Value {
    let scratch = Scratch::new().unwrap();
    let parts = scratch.path().join("parts");
    let mut skopeo = Command::new("skopeo");
    skopeo.args(["--insecure-policy", "copy", "--quiet"]);
    skopeo.arg(format!("{kind}:{}", image.display()));
    run(skopeo.arg(format!("dir:{}", parts.display()))).unwrap();
    let part = |of: &Value| {
        let digest = of["digest"].as_str().unwrap();
        parts.join(digest.strip_prefix("sha256:").unwrap())
    };
    let json = |path: PathBuf| -> Value {
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    };
    let manifest = json(parts.join("manifest.json"));
    fs::create_dir_all(root).unwrap();
    for layer in manifest["layers"].as_array().unwrap() {
        files::unpack(&part(layer), root).unwrap();
    }
    json(part(&manifest["config"]))
}

/// A root with nothing but what is copied, read-only, with the mounts of the manifest
/// and those of every container. `chroot` is all that is allowed beyond the manifest.
const CONTAINER: &str = "\
set -e
cd \"$1\"
mount --bind . .
cd \"$1\"
mount --bind /dev dev
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs sysfs sys
mount --bind /sys/fs/bpf sys/fs/bpf
mount --bind \"$2\" etc/xdptun
mount -o remount,bind,ro etc/xdptun
mount -t tmpfs run run/xdptun
mount -o remount,bind,ro .
shift 2
exec setpriv --no-new-privs --bounding-set \"$CAPABILITIES\" chroot . \"$@\"";

/// The value of an instruction, which is a list of words.
fn words(containerfile: &str, instruction: &str) -> Vec<String> {
    let line = containerfile
        .lines()
        .find_map(|line| line.strip_prefix(instruction));
    serde_json::from_str(line.unwrap()).unwrap()
}

fn container(host: &Host, root: &Path, settings: &Path) -> Attached {
    let sources = workspace::root().join("xdptun/package");
    let containerfile = fs::read_to_string(sources.join("Containerfile")).unwrap();
    let manifest = fs::read_to_string(sources.join("daemonset.yaml")).unwrap();
    let added = manifest
        .lines()
        .find_map(|line| line.trim().strip_prefix("add: ["));
    let added = added.unwrap().trim_end_matches(']').to_lowercase();
    let capabilities: Vec<String> = added.split(", ").map(|name| format!("+{name}")).collect();

    let folders = ["dev", "proc", "sys/fs/bpf", "etc/xdptun", "run/xdptun"];
    for folder in folders {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    let mut command = host.netns.command("unshare");
    command
        .args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            CONTAINER,
            "sh",
        ])
        .args([root, settings])
        .args(words(&containerfile, "ENTRYPOINT "))
        .args(words(&containerfile, "CMD "))
        .env(
            "CAPABILITIES",
            format!("-all,+sys_chroot,{}", capabilities.join(",")),
        );
    Attached::by(&host.netns, Host::DEV, &mut command).unwrap()
}

/// As the layout of OCI and as docker's own, it says what the Containerfile says.
#[test]
fn the_image_is_that_of_the_containerfile() {
    let sources = workspace::root().join("xdptun/package");
    let containerfile = fs::read_to_string(sources.join("Containerfile")).unwrap();
    for processor in with_all_formats() {
        for kind in ["oci-archive", "docker-archive"] {
            let scratch = Scratch::new().unwrap();
            let root = scratch.path();
            let said = unpack(kind, &image(processor), root);
            assert_eq!(said["architecture"], processor.debian);
            let config = &said["config"];
            assert_eq!(
                config["Entrypoint"],
                json!(words(&containerfile, "ENTRYPOINT "))
            );
            assert_eq!(config["Cmd"], json!(words(&containerfile, "CMD ")));
            assert_eq!(config["StopSignal"], "SIGUSR2");
            assert_eq!(config["Labels"]["org.opencontainers.image.title"], "xdptun");
            let listing = run(Command::new("find").arg(root).args(["-type", "f"])).unwrap();
            let program = root.join("usr/bin/xdptun");
            assert_eq!(listing.trim(), program.display().to_string());
            assert_eq!(fs::metadata(&program).unwrap().mode(), 0o100_755);
            processor.check(&fs::read(program).unwrap()).unwrap();
        }
    }
}

#[test]
fn a_container_carries_datagrams_and_leaves_them_to_the_next() {
    let net = Direct::new().unwrap();
    let scratch = Scratch::new().unwrap();
    let [root, settings] = ["root", "settings"].map(|name| scratch.path().join(name));
    fs::create_dir_all(&settings).unwrap();
    unpack("oci-archive", &image(Processor::own().unwrap()), &root);
    let text = "metrics = \"127.0.0.1:9469\"\n[interface.eth0]\nports = [8000]\n";
    fs::write(settings.join("config.toml"), text).unwrap();
    let peer = ["attach", "--iface", Host::DEV, "--port", "8000"];
    let mut peer_command: Command = net.b.netns.command(xdptun::binary().unwrap());
    let _peer = Attached::by(&net.b.netns, Host::DEV, peer_command.args(peer)).unwrap();
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let socket = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    let talk = || udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
    let wire = Capture::start(&net.a.netns, Host::DEV).unwrap();
    let daemon = || xdptun::status(&net.a.netns).unwrap()["interfaces"][0]["daemon"].clone();

    let first = container(&net.a, &root, &settings);
    talk();
    assert_eq!(daemon(), first.process().pid().as_raw());
    // The signal that `STOPSIGNAL` names.
    first.process().signal(Signal::SIGUSR2).unwrap();
    wait::until(LIMIT, "its end", || !first.process().is_running().unwrap()).unwrap();
    talk();
    assert!(daemon().is_null());

    let second = container(&net.a, &root, &settings);
    talk();
    let mut frames = wire.stop().unwrap();
    frames.retain(|frame| frame.outgoing);
    let stats = WireStats::of(PORT, &frames);
    let counts = (stats.udp_datagrams, stats.syn, stats.fin, stats.rst);
    assert_eq!(counts, (0, 1, 0, 0), "{stats:#?}");
    second.stop().unwrap();
    assert!(!xdptun::pin_dir(&net.a.netns, Host::DEV).unwrap().exists());
    drop(first);
}
