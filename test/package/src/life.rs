//! A package comes, is replaced and goes, on a system whose systemd only writes down what it is
//! asked for.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::root::Root;
use crate::shell;

/// The operator's settings.
const SETTINGS: &str = "/etc/xdptun/config.toml";

/// Where the calls are written down.
const CALLS: &str = "/tmp/calls";

/// Stands for `systemctl` and `systemd-tmpfiles`. One unit of an interface runs.
const SYSTEMD: &str = "\
#!/bin/sh
echo \"${0##*/} $*\" >>/tmp/calls
if [ \"$1\" = list-units ]; then echo 'xdptun@eth0.service loaded active running'; fi
";

const STARTED: &str = "\
systemctl daemon-reload
systemd-tmpfiles --create xdptun.conf
systemctl try-restart xdptun.service xdptun@*.service
";

const STOPPED: &str = "\
systemctl disable --now xdptun.service
systemctl list-units --all --plain --no-legend xdptun@*.service
systemctl disable --now xdptun@eth0.service
systemctl daemon-reload
";

/// How a package manager does it, in a root.
pub struct Manager<'a> {
    /// Installs, or puts the same package in its own place, which is an upgrade for scripts.
    pub install: &'a dyn Fn(&Root) -> Result<String>,
    /// Removes it.
    pub remove: &'a dyn Fn(&Root) -> Result<String>,
    /// What it calls settings that it leaves behind.
    pub kept_as: &'static str,
}

/// Installs, upgrades and removes a package; services go on and end as they should, and the
/// operator's settings stay.
pub fn check(manager: &Manager<'_>) -> Result<()> {
    let root = Root::new()?;
    for program in ["systemctl", "systemd-tmpfiles"] {
        let path = root.inside(&format!("/usr/bin/{program}"));
        fs::remove_file(&path).with_context(|| path.display().to_string())?;
        shell::program(&path, SYSTEMD)?;
    }
    fs::create_dir_all(root.inside("/run/systemd/system"))?;

    (manager.install)(&root)?;
    ensure_calls(&root, STARTED)?;
    let version = root.run("xdptun", &["--version"])?;
    ensure!(
        version == concat!("xdptun ", env!("CARGO_PKG_VERSION"), "\n"),
        "{version}"
    );
    let user = root.run("getent", &["passwd", "xdptun"])?;
    ensure!(user.ends_with(":/usr/sbin/nologin\n"), "{user}");

    let operators = "# the operator's\n";
    fs::write(root.inside(SETTINGS), operators)?;
    (manager.install)(&root)?;
    ensure_calls(&root, STARTED)?;
    let settings = fs::read_to_string(root.inside(SETTINGS))?;
    ensure!(settings == operators, "{settings}");

    (manager.remove)(&root)?;
    ensure_calls(&root, STOPPED)?;
    let kept = fs::read_to_string(root.inside(manager.kept_as))?;
    ensure!(kept == operators, "{kept}");
    for path in ["/usr/bin/xdptun", "/usr/share/doc/xdptun", SETTINGS] {
        ensure!(!root.inside(path).exists(), "{path} is still there");
    }
    Ok(())
}

/// Requires that systemd was asked for this since the last time.
fn ensure_calls(root: &Root, expected: &str) -> Result<()> {
    let calls = root.inside(CALLS);
    let found = fs::read_to_string(&calls).context("systemd was asked for nothing")?;
    ensure!(
        found == expected,
        "systemd was asked for\n{found}and not\n{expected}"
    );
    fs::remove_file(calls).context("the list of calls")
}
