//! The packages for OpenWrt. There is neither opkg nor procd here: the formats are read, and the
//! init script runs with functions that write down what it asks of procd.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xdptun_lab::command::run;
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Direct, Host};
use xdptun_test_package::apk::Apk;
use xdptun_test_package::files::{self, EVERYWHERE, LICENCES};
use xdptun_test_package::shell::{self, Stub};
use xdptun_test_package::{PROCESSORS, Processor, made};

const SERVICE: [files::File; 3] = [
    ("-rw-r--r--", "lib/upgrade/keep.d/xdptun"),
    ("-rwxr-xr-x", "etc/init.d/xdptun"),
    ("-rw-------", "etc/config/xdptun"),
];
const FILES: [&[files::File]; 3] = [&EVERYWHERE, &LICENCES, &SERVICE];
const DEPENDS: [&str; 3] = ["kmod-sched-bpf", "kmod-tun", "kmod-veth"];

fn apk(processor: Processor) -> Apk {
    let name = concat!("xdptun-", env!("CARGO_PKG_VERSION"), "-r1");
    Apk::read(&made(&format!("{name}_openwrt_{}.apk", processor.name)).unwrap()).unwrap()
}

fn ipk(processor: Processor) -> PathBuf {
    let name = concat!("xdptun_", env!("CARGO_PKG_VERSION"), "-1");
    made(&format!("{name}_openwrt_{}.ipk", processor.name)).unwrap()
}

#[test]
fn apk_holds_the_program_the_service_and_the_licences() {
    for processor in PROCESSORS {
        let apk = apk(processor);
        files::check(&apk.listing, "", &FILES).unwrap();
        // Flash is small.
        assert!(!apk.listing.contains("usr/share/doc"), "{}", apk.listing);
        // OpenWrt has names of its own for processors.
        apk.check("noarch", &DEPENDS).unwrap();
        let scripts = [
            ".post-deinstall",
            ".post-install",
            ".post-upgrade",
            ".pre-deinstall",
            ".pre-install",
        ];
        assert_eq!(apk.scripts(), BTreeSet::from(scripts));
        for script in scripts.into_iter().chain(["etc/init.d/xdptun"]) {
            shell::parse(&apk.text(script).unwrap()).unwrap();
        }
        processor
            .check(&apk.file("usr/bin/xdptun").unwrap())
            .unwrap();
    }
}

#[test]
fn ipk_holds_the_same() {
    for processor in PROCESSORS {
        let scratch = Scratch::new().unwrap();
        let inside = |name: &str| scratch.path().join(name);
        files::unpack(&ipk(processor), scratch.path()).unwrap();
        assert_eq!(
            fs::read_to_string(inside("debian-binary")).unwrap(),
            "2.0\n"
        );
        files::check(
            &files::listing(&inside("data.tar.gz")).unwrap(),
            "./",
            &FILES,
        )
        .unwrap();
        let control = |name: &str| files::file(&inside("control.tar.gz"), name).unwrap();
        let said = control("./control");
        for line in [
            "Package: xdptun",
            concat!("Version: ", env!("CARGO_PKG_VERSION"), "-1"),
            "Architecture: all",
            "Depends: kmod-sched-bpf, kmod-tun, kmod-veth",
            "License: MIT OR Apache-2.0",
        ] {
            assert!(
                said.lines().any(|found| found == line),
                "no {line} in\n{said}"
            );
        }
        assert_eq!(
            control("./conffiles"),
            "/etc/config/xdptun\n/etc/xdptun/config.toml\n"
        );
        // The scripts are apk's.
        let apk = apk(processor);
        for (name, of_apk) in [
            ("preinst", ".pre-install"),
            ("postinst", ".post-install"),
            ("prerm", ".pre-deinstall"),
            ("postrm", ".post-deinstall"),
        ] {
            assert_eq!(control(name), apk.text(of_apk).unwrap(), "{name}");
        }
    }
}

#[test]
fn another_machine_is_refused() {
    let own = Processor::own().unwrap();
    for processor in PROCESSORS {
        let script = apk(processor).text(".pre-install").unwrap();
        let mut ash = Command::new("busybox");
        let result = run(ash.args(["ash", "-c", &script]));
        assert_eq!(result.is_ok(), processor.name == own.name, "{result:?}");
        // The image builder installs for another machine than its own.
        run(ash.env("IPKG_INSTROOT", "/nowhere")).unwrap();
    }
}

/// An upgrade leaves everything attached; a removal stops.
#[test]
fn its_scripts_ask_the_service() {
    let apk = apk(Processor::own().unwrap());
    let scratch = Scratch::new().unwrap();
    let calls_of = |before: &str, script: &str, program: &'static str| {
        let script = apk.text(script).unwrap();
        let script = script.replace("/etc/init.d/xdptun", "xdptun");
        let script = script.replace("/usr/bin/xdptun", "program");
        // The status of the script is that of the last line.
        let script = format!("{before}\n( {script} ) || echo refused >>calls");
        let stubs = [Stub("xdptun", "exit 0"), Stub("program", program)];
        let script = format!("cd {}\n{script}", scratch.path().display());
        shell::calls(scratch.path(), &stubs, &script).unwrap()
    };
    let calls = |before: &str, script: &str| {
        let all = calls_of(before, script, "exit 0");
        all.replace("program --version\n", "")
    };
    let upgrade = "PKG_UPGRADE=1";
    let builder = "IPKG_INSTROOT=/nowhere";
    assert_eq!(calls("", ".post-install"), "xdptun enable\nxdptun start\n");
    assert_eq!(calls(upgrade, ".post-install"), "xdptun renew\n");
    assert_eq!(calls("", ".post-upgrade"), "xdptun renew\n");
    assert_eq!(calls(builder, ".post-install"), "");
    assert_eq!(calls("", ".pre-deinstall"), "xdptun disable\nxdptun stop\n");
    assert_eq!(calls(upgrade, ".pre-deinstall"), "");
    assert_eq!(calls(builder, ".pre-deinstall"), "");
    // apk installs also what a script refuses: the process that runs must go on.
    for script in [".post-install", ".post-upgrade"] {
        let other_machine = calls_of("", script, "exit 126");
        assert_eq!(other_machine, "program --version\nrefused\n", "{script}");
    }
}

/// UCI's files are shell, as OpenWrt itself once read them. What procd is asked for is printed.
const OPENWRT: &str = r#"
config() { section=$2; sections="$sections $2"; eval "type_$2=$1"; }
option() { eval "option_${section}_$1=\$2"; }
list() { eval "list_${section}_$1=\"\${list_${section}_$1} \$2\""; }
config_load() { . "$SETTINGS"; }
config_get() { eval "$1=\${option_$2_$3:-$4}"; }
config_get_bool() { config_get "$@"; }
config_foreach() {
    local each kind
    for each in $sections; do
        eval "kind=\$type_$each"
        if [ "$kind" = "$2" ]; then "$1" "$each"; fi
    done
}
config_list_foreach() {
    local values value callback=$3
    eval "values=\$list_$1_$2"
    shift 3
    for value in $values; do "$callback" "$value" "$@"; done
}
procd_open_instance() { echo "instance $1"; }
procd_set_param() {
    if [ "$1" = command ]; then shift; line="$*"; else echo "$*"; fi
}
procd_append_param() { shift; line="$line $*"; }
procd_close_instance() { echo "command $line"; }
procd_send_signal() { echo "signal $*"; }
"#;

/// What the init script asks of procd in one of its functions, with these settings.
fn asked(folder: &Path, settings: &str, function: &str) -> String {
    let init = apk(Processor::own().unwrap())
        .text("etc/init.d/xdptun")
        .unwrap();
    let file = folder.join("settings");
    fs::write(&file, settings).unwrap();
    let script = format!("{OPENWRT}{init}\n{function}\n");
    let mut ash = Command::new("busybox");
    run(ash.args(["ash", "-e", "-c", &script]).env("SETTINGS", file)).unwrap()
}

#[test]
fn nothing_starts_before_it_is_enabled() {
    let scratch = Scratch::new().unwrap();
    let settings = apk(Processor::own().unwrap())
        .text("etc/config/xdptun")
        .unwrap();
    assert_eq!(asked(scratch.path(), &settings, "start_service"), "");
    let enabled = settings.replace("enabled '0'", "enabled '1'");
    let started = asked(scratch.path(), &enabled, "start_service");
    let common = "respawn 3600 1 0\nterm_timeout 20\nstdout 1\nstderr 1\n";
    let expected = format!(
        "instance file\nfile /etc/xdptun/config.toml\nreload_signal HUP\n{common}\
         command /usr/bin/xdptun run --config /etc/xdptun/config.toml\n\
         instance wan\n{common}\
         command /usr/bin/xdptun attach --iface eth0 --port 51820\n"
    );
    assert_eq!(started, expected);
    assert_eq!(asked(scratch.path(), "", "renew"), "signal xdptun * USR2\n");
}

/// xdptun takes the options that the section `attach` becomes.
#[test]
fn a_section_becomes_options_that_attach() {
    let net = Direct::new().unwrap();
    let scratch = Scratch::new().unwrap();
    let secret = scratch.path().join("secret");
    fs::write(&secret, "a secret of more than sixteen bytes\n").unwrap();
    let settings = format!(
        "config attach 'wan'\n option enabled '1'\n list device '{}'\n list port '8000'\n \
         list port '8010-8012'\n list peer '192.0.2.0/24'\n list peer '198.51.100.7'\n \
         option secret '{}'\n list argument '--max-flows=1024'\n list argument '--keepalive=20'\n",
        Host::DEV,
        secret.display()
    );
    let asked = asked(scratch.path(), &settings, "start_service");
    let line = asked
        .lines()
        .find_map(|line| line.strip_prefix("command /usr/bin/xdptun "));
    let arguments: Vec<&str> = line.unwrap().split(' ').collect();
    let unpacked = Scratch::new().unwrap();
    let own = ipk(Processor::own().unwrap());
    files::unpack(&own, unpacked.path()).unwrap();
    files::unpack(&unpacked.path().join("data.tar.gz"), unpacked.path()).unwrap();
    let mut command = net.a.netns.command(unpacked.path().join("usr/bin/xdptun"));
    let attached = Attached::by(&net.a.netns, Host::DEV, command.args(&arguments)).unwrap();
    let status = xdptun_lab::xdptun::status(&net.a.netns).unwrap();
    let ports = status["interfaces"][0]["ports"].to_string();
    assert_eq!(ports, "[\"8000\",\"8010-8012\"]", "{status:#}");
    attached.stop().unwrap();
}
