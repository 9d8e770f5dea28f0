//! The package for Alpine. There is no apk here: its format is read, and OpenRC is Debian's.

use std::fs;
use std::path::{Path, PathBuf};

use xdptun_lab::command::run;
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Direct, Host, workspace};
use xdptun_test_package::apk::Apk;
use xdptun_test_package::files::{self, DOCUMENTS, EVERYWHERE, LICENCES, OTHERS};
use xdptun_test_package::root::Root;
use xdptun_test_package::shell::{self, Stub};
use xdptun_test_package::{Processor, made, with_all_formats};

const SERVICE: [files::File; 1] = [("-rwxr-xr-x", "etc/init.d/xdptun")];

fn package(processor: Processor) -> PathBuf {
    let name = concat!("xdptun-", env!("CARGO_PKG_VERSION"), "-r1");
    made(&format!("{name}_alpine_{}.apk", processor.name)).unwrap()
}

#[test]
fn it_holds_everything_and_belongs_to_root() {
    let expected: [&[files::File]; 5] = [&EVERYWHERE, &DOCUMENTS, &SERVICE, &OTHERS, &LICENCES];
    for processor in with_all_formats() {
        let apk = Apk::read(&package(processor)).unwrap();
        files::check(&apk.listing, "", &expected).unwrap();
        assert!(!apk.listing.contains("systemd"), "{}", apk.listing);
        apk.check(processor.name, &[]).unwrap();
        processor
            .check(&apk.file("usr/bin/xdptun").unwrap())
            .unwrap();
    }
}

#[test]
fn its_shell_is_busyboxs() {
    let apk = Apk::read(&package(Processor::own().unwrap())).unwrap();
    let scripts = [
        "etc/init.d/xdptun",
        ".post-upgrade",
        ".pre-deinstall",
        ".post-deinstall",
    ];
    for script in scripts {
        shell::parse(&apk.text(script).unwrap()).unwrap();
    }
    assert_eq!(apk.scripts(), scripts[1..].iter().copied().collect());
}

/// An upgrade leaves everything attached; a removal stops.
#[test]
fn its_scripts_ask_openrc() {
    let apk = Apk::read(&package(Processor::own().unwrap())).unwrap();
    let scratch = Scratch::new().unwrap();
    let calls = |script: &str, running: bool| {
        let status = if running {
            "exit 0"
        } else {
            "[ \"$3\" != status ]"
        };
        let stubs = [Stub("rc-service", status), Stub("rc-update", "exit 0")];
        shell::calls(scratch.path(), &stubs, &apk.text(script).unwrap()).unwrap()
    };
    let asked = "rc-service --quiet xdptun status\n";
    assert_eq!(calls(".post-upgrade", false), asked);
    assert_eq!(
        calls(".post-upgrade", true),
        format!("{asked}rc-service xdptun renew\n")
    );
    assert_eq!(
        calls(".pre-deinstall", true),
        "rc-service --ifstarted xdptun stop\nrc-update --quiet --all del xdptun\n"
    );
}

/// OpenRC as it is after it has brought up a system on which the package is.
const BOOTED: &str = "\
set -e
cd \"$1\"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t bpf bpf sys/fs/bpf
mount -t tmpfs tmpfs run
mount --bind /dev dev
for state in starting started stopping inactive wasinactive failed hotplugged daemons options \\
    exclusive scheduled; do
    mkdir -p run/openrc/$state
done
touch run/openrc/softlevel
timeout 60 chroot . sh -c \"$2\"
# This shell waits for what others leave behind, as a first process has to.
exit 0";

/// The package's life; a line for each step.
const LIFE: &str = "\
set -e
daemon() { xdptun status --json | grep -o '\"daemon\":[0-9][0-9]*'; }
until_another_than() {
    until found=$(daemon) && [ \"$found\" != \"$1\" ]; do sleep 0.1; done
}
rc-update --quiet add xdptun boot
rc-service xdptun start
until_another_than nothing
first=$found
sh /tmp/.post-upgrade
# Something is attached at any time.
until found=$(daemon) && [ \"$found\" != \"$first\" ]; do
    ls -d /sys/fs/bpf/xdptun/*/tunnel/* >/dev/null
done
echo upgraded
echo metrics=true >>/etc/xdptun/config.toml
if rc-service xdptun reload; then exit 1; fi
echo refused
sh /tmp/.pre-deinstall
xdptun status
ls /etc/runlevels/boot";

/// Puts Debian's OpenRC over its systemd, and the package beside it.
fn install(root: &Root, apk: &Apk) {
    let openrc = workspace::root().join(".tools/openrc");
    assert!(
        openrc.is_dir(),
        "no {}; `cargo xtask setup` makes it",
        openrc.display()
    );
    copy(&openrc, root.path());
    // Those of Debian have other names for what they need.
    fs::remove_dir_all(root.inside("/etc/init.d")).unwrap();
    fs::create_dir_all(root.inside("/etc/runlevels/boot")).unwrap();
    copy(apk.folder(), root.path());
    let stub = "#!/sbin/openrc-run\nstart() { :; }\n";
    shell::program(&root.inside("/etc/init.d/localmount"), stub).unwrap();
    // Debian's OpenRC looks for it.
    fs::write(root.inside("/etc/insserv.conf"), "").unwrap();
    for script in [".post-upgrade", ".pre-deinstall"] {
        fs::copy(apk.folder().join(script), root.inside("/tmp").join(script)).unwrap();
    }
    let settings = format!("[interface.{}]\nports = [8000]\n", Host::DEV);
    fs::write(root.inside("/etc/xdptun/config.toml"), settings).unwrap();
}

/// Copies a tree; links to directories stay what they are.
fn copy(from: &Path, to: &Path) {
    let script = "tar -C \"$1\" -c . | tar -C \"$2\" -x --keep-directory-symlink";
    run(std::process::Command::new("sh")
        .args(["-c", script, "sh"])
        .args([from, to]))
    .unwrap();
}

#[test]
fn openrc_starts_it_upgrades_leave_it_attached_and_a_removal_stops_it() {
    let net = Direct::new().unwrap();
    let root = Root::new().unwrap();
    let apk = Apk::read(&package(Processor::own().unwrap())).unwrap();
    install(&root, &apk);
    let mut command = net.a.netns.command("unshare");
    command.args([
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--fork",
        "--kill-child",
    ]);
    command
        .args(["sh", "-c", BOOTED, "sh"])
        .arg(root.path())
        .arg(LIFE);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let told = run(&mut command).unwrap();
    let end = "refused\n";
    assert!(told.contains("upgraded\n"), "{told}");
    let rest = told.split(end).nth(1).unwrap();
    assert!(
        rest.ends_with("nothing is attached in this network namespace\n"),
        "{told}"
    );
}
