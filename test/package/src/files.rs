//! The files of packages, as `tar -tv` and its like list them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xdptun_lab::command::run;

/// How its mode begins, and its path. Directories have 0755.
pub type File = (&'static str, &'static str);

/// In each package.
pub const EVERYWHERE: [File; 3] = [
    ("-rw-r--r--", "etc/xdptun/config.toml"),
    ("-rwxr-xr-x", "usr/bin/xdptun"),
    ("d", "etc/xdptun"),
];

/// In each but those for OpenWrt.
pub const DOCUMENTS: [File; 39] = [
    ("-rw-r--r--", "usr/share/bash-completion/completions/xdptun"),
    ("-rw-r--r--", "usr/share/doc/xdptun/grafana-dashboard.json"),
    (
        "-rw-r--r--",
        "usr/share/fish/vendor_completions.d/xdptun.fish",
    ),
    ("-rw-r--r--", "usr/share/doc/xdptun/architecture.md"),
    ("-rw-r--r--", "usr/share/doc/xdptun/capture.md"),
    ("-rw-r--r--", "usr/share/doc/xdptun/configuration.md"),
    ("-rw-r--r--", "usr/share/doc/xdptun/doctor.md"),
    ("-rw-r--r--", "usr/share/doc/xdptun/forward.md"),
    ("-rw-r--r--", "usr/share/doc/xdptun/json.md"),
    ("-rw-r--r--", "usr/share/doc/xdptun/kernels.md"),
    ("-rw-r--r--", "usr/share/doc/xdptun/limits.md"),
    ("-rw-r--r--", "usr/share/doc/xdptun/nat.md"),
    ("-rw-r--r--", "usr/share/doc/xdptun/nat64.md"),
    ("-rw-r--r--", "usr/share/doc/xdptun/operating.md"),
    ("-rw-r--r--", "usr/share/doc/xdptun/packages.md"),
    ("-rw-r--r--", "usr/share/doc/xdptun/phantun.md"),
    ("-rw-r--r--", "usr/share/doc/xdptun/policy.md"),
    ("-rw-r--r--", "usr/share/doc/xdptun/security.md"),
    ("-rw-r--r--", "usr/share/doc/xdptun/troubleshooting.md"),
    ("-rw-r--r--", "usr/share/doc/xdptun/veil.md"),
    ("-rw-r--r--", "usr/share/man/man5/xdptun.toml.5.gz"),
    ("-rw-r--r--", "usr/share/man/man8/xdptun.8.gz"),
    ("-rw-r--r--", "usr/share/man/man8/xdptun-attach.8.gz"),
    ("-rw-r--r--", "usr/share/man/man8/xdptun-capture.8.gz"),
    ("-rw-r--r--", "usr/share/man/man8/xdptun-check.8.gz"),
    ("-rw-r--r--", "usr/share/man/man8/xdptun-completions.8.gz"),
    ("-rw-r--r--", "usr/share/man/man8/xdptun-detach.8.gz"),
    ("-rw-r--r--", "usr/share/man/man8/xdptun-doctor.8.gz"),
    ("-rw-r--r--", "usr/share/man/man8/xdptun-explain.8.gz"),
    ("-rw-r--r--", "usr/share/man/man8/xdptun-flows.8.gz"),
    ("-rw-r--r--", "usr/share/man/man8/xdptun-forward.8.gz"),
    ("-rw-r--r--", "usr/share/man/man8/xdptun-nat.8.gz"),
    ("-rw-r--r--", "usr/share/man/man8/xdptun-nat64.8.gz"),
    ("-rw-r--r--", "usr/share/man/man8/xdptun-policy.8.gz"),
    ("-rw-r--r--", "usr/share/man/man8/xdptun-reload.8.gz"),
    ("-rw-r--r--", "usr/share/man/man8/xdptun-run.8.gz"),
    ("-rw-r--r--", "usr/share/man/man8/xdptun-sessions.8.gz"),
    ("-rw-r--r--", "usr/share/man/man8/xdptun-status.8.gz"),
    ("-rw-r--r--", "usr/share/man/man8/xdptun-watch.8.gz"),
];

/// Where systemd starts services.
pub const SYSTEMD: [File; 7] = [
    (
        "-rw-r--r--",
        "usr/lib/systemd/system/xdptun.service.d/10-common.conf",
    ),
    (
        "-rw-r--r--",
        "usr/lib/systemd/system/xdptun@.service.d/10-common.conf",
    ),
    ("-rw-r--r--", "usr/lib/sysusers.d/xdptun.conf"),
    ("-rw-r--r--", "usr/lib/tmpfiles.d/xdptun.conf"),
    ("-rw-r--r--", "usr/lib/systemd/system/xdptun.service"),
    ("-rw-r--r--", "usr/lib/systemd/system/xdptun@.service"),
    ("-rw-r--r--", "usr/share/doc/xdptun/examples/eth0.env"),
];

/// In the package for Debian, and in the archive.
pub const DEBIAN: [File; 6] = [
    ("d", "usr/share/man/man8"),
    ("-rw-r--r--", "usr/share/lintian/overrides/xdptun"),
    ("-rw-r--r--", "usr/share/doc/xdptun/changelog.Debian.gz"),
    ("-rw-r--r--", "usr/share/doc/xdptun/copyright"),
    ("-rw-r--r--", "usr/share/doc/xdptun/third-party.txt.gz"),
    ("-rw-r--r--", "usr/share/zsh/vendor-completions/_xdptun"),
];

/// In the packages for other systems than Debian and OpenWrt.
pub const OTHERS: [File; 1] = [("-rw-r--r--", "usr/share/zsh/site-functions/_xdptun")];

/// In the packages for other systems than Debian.
pub const LICENCES: [File; 3] = [
    ("-rw-r--r--", "usr/share/licenses/xdptun/LICENSE-APACHE"),
    ("-rw-r--r--", "usr/share/licenses/xdptun/LICENSE-MIT"),
    ("-rw-r--r--", "usr/share/licenses/xdptun/third-party.txt.gz"),
];

/// What is in an archive of a format that libarchive knows: tar, rpm, apk.
pub fn listing(archive: &Path) -> Result<String> {
    run(Command::new("bsdtar").arg("-tvf").arg(archive))
}

/// One file of such an archive.
pub fn file(archive: &Path, path: &str) -> Result<String> {
    run(Command::new("bsdtar").arg("-xOf").arg(archive).arg(path))
}

/// Unpacks such an archive.
pub fn unpack(archive: &Path, folder: &Path) -> Result<()> {
    let mut command = Command::new("bsdtar");
    command.arg("-xf").arg(archive).arg("-C").arg(folder);
    run(&mut command).map(drop)
}

/// Requires that everything in a listing is root's, that only the owner may write it, and that
/// these files are there. `prefix` is how all paths begin.
pub fn check(listing: &str, prefix: &str, expected: &[&[File]]) -> Result<()> {
    let entries = listing.lines().map(|line| entry(line, prefix));
    let entries: Vec<(&str, &str)> = entries.collect::<Result<_>>()?;
    for (mode, path) in expected.concat() {
        let found = entries
            .iter()
            .any(|(found, name)| found.starts_with(mode) && *name == path);
        ensure!(found, "no {mode} {path} in\n{listing}");
    }
    Ok(())
}

/// Mode and path in a line.
fn entry<'a>(line: &'a str, prefix: &str) -> Result<(&'a str, &'a str)> {
    const OWNERS: [&str; 4] = [" root/root ", " 0/0 ", " root root ", " 0 0 "];
    const MODES: [&str; 4] = ["-rw-r--r--", "-rwxr-xr-x", "drwxr-xr-x", "-rw-------"];
    let words: Vec<&str> = line.split_whitespace().collect();
    let (Some(&mode), Some(path)) = (words.first(), words.last()) else {
        anyhow::bail!("an empty line");
    };
    let spaced = words.join(" ");
    ensure!(
        OWNERS.iter().any(|owner| spaced.contains(owner)),
        "{line}: not root's"
    );
    ensure!(MODES.contains(&mode), "{line}: its mode");
    let path = path.strip_prefix(prefix);
    let path = path.with_context(|| format!("{line}: not below {prefix}"))?;
    Ok((mode, path.trim_end_matches('/')))
}
