//! Packages of other Debian releases, through apt's own client.
//!
//! apt gets a state directory of its own, so that the machine's package lists
//! stay as they are and no root is needed. Mirror, proxy and the like are those
//! the machine is configured with.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use xdptun_lab::command::run;
use xdptun_lab::workspace;

use super::Arch;
use crate::shell::run_visible;

/// Releases whose kernels are looked through. A kernel that a newer release
/// dropped is not to be had: Debian's mirrors keep the current ones.
const SUITES: [&str; 6] = [
    "bullseye",
    "bookworm",
    "bookworm-backports",
    "trixie",
    "trixie-backports",
    "sid",
];

/// The release of a package that several releases have: packages that depend on each
/// other come from one release.
const STABLE: &str = "trixie";

/// The keys that packages are signed with, on every Debian.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// An apt that knows the packages of [`SUITES`] for one architecture.
#[derive(Debug)]
pub struct Apt {
    arch: Arch,
    directory: PathBuf,
    /// Set once this process has fetched the package lists.
    updated: OnceLock<()>,
}

impl Apt {
    /// Does nothing yet: the lists are fetched when the first package is asked for.
    pub fn new(arch: Arch) -> Self {
        Self {
            arch,
            directory: workspace::root().join(".tools/apt").join(arch.debian()),
            updated: OnceLock::new(),
        }
    }

    /// The architecture of its packages.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Fetches the package lists, once; takes some ten seconds.
    fn update(&self) -> Result<()> {
        if self.updated.get().is_some() {
            return Ok(());
        }
        for folder in ["etc/preferences.d", "lists/partial", "archives/partial"] {
            let folder = self.directory.join(folder);
            fs::create_dir_all(&folder)
                .with_context(|| format!("{}: cannot make", folder.display()))?;
        }
        self.write("status", "")?;
        self.write("apt.conf", &configuration(&self.directory, self.arch))?;
        let mirror = mirror()?;
        let mut sources = String::new();
        for suite in SUITES {
            writeln!(
                sources,
                "deb [target=Packages signed-by={KEYRING}] {mirror} {suite} main"
            )?;
        }
        self.write("etc/sources.list", &sources)?;
        let fetched = run_visible(self.command("apt-get").args(["--quiet", "update"]));
        if let Err(error) = fetched {
            // A mirror that is being updated has the list of one release in two versions; another
            // release may have what is wanted.
            ensure!(
                self.has_list_of(STABLE)?,
                "the package lists of Debian's releases cannot be fetched: {error:#}"
            );
            eprintln!(
                "not every package list can be fetched: what is missing below may be in one of those"
            );
        }
        self.updated.get_or_init(|| ());
        Ok(())
    }

    /// Whether the list of a release is there.
    fn has_list_of(&self, release: &str) -> Result<bool> {
        let list = format!("_{release}_main_binary-{}_Packages", self.arch.debian());
        let mut lists = fs::read_dir(self.directory.join("lists"))?;
        Ok(lists
            .any(|file| file.is_ok_and(|file| file.file_name().to_string_lossy().contains(&list))))
    }

    /// The names of all packages that begin with `prefix`.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>> {
        self.update()?;
        let names = run(self.command("apt-cache").args(["pkgnames", prefix]))?;
        Ok(names.lines().map(str::to_owned).collect())
    }

    /// Packages with all that they depend on, on a machine that has nothing yet.
    pub fn with_dependencies(&self, packages: &[&str]) -> Result<Vec<String>> {
        self.update()?;
        let mut command = self.command("apt-get");
        command.args(["--simulate", "--no-install-recommends", "install"]);
        let plan = run(command.args(packages))?;
        Ok(plan
            .lines()
            .filter_map(installed)
            .map(str::to_owned)
            .collect())
    }

    /// Downloads packages and unpacks them into one new folder, as [`unpack`].
    pub fn unpack(
        &self,
        packages: &[&str],
        folder: &Path,
        complete: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        self.update()?;
        unpack(self.command("apt-get"), packages, folder, complete)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .arg("--config-file")
            .arg(self.directory.join("apt.conf"));
        command
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.directory.join(name);
        fs::write(&path, text).with_context(|| format!("{}: cannot write", path.display()))
    }
}

/// Downloads packages by a given `apt-get` and unpacks them into one new folder, which is made
/// complete and then moved to its place: it is there whole or not at all.
pub fn unpack(
    mut apt_get: Command,
    packages: &[&str],
    folder: &Path,
    complete: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let parent = folder.parent().context("a folder without a parent")?;
    fs::create_dir_all(parent).with_context(|| format!("{}: cannot make", parent.display()))?;
    let scratch = tempfile::tempdir_in(parent)
        .with_context(|| format!("{}: cannot write there", parent.display()))?;
    let archives = scratch.path().join("archives");
    fs::create_dir(&archives)?;
    run_visible(
        apt_get
            .args(["--quiet", "download"])
            .args(packages)
            .current_dir(&archives),
    )?;
    let unpacked = scratch.path().join("unpacked");
    for archive in fs::read_dir(&archives)? {
        let mut command = Command::new("dpkg-deb");
        run(command.arg("--extract").args([&archive?.path(), &unpacked]))?;
    }
    complete(&unpacked)?;
    fs::rename(&unpacked, folder)
        .with_context(|| format!("{}: cannot move there", folder.display()))
}

/// Read after the machine's own configuration, which it completes.
///
/// The hooks of the machine tend its own lists. The sandbox user could not write
/// here.
fn configuration(directory: &Path, arch: Arch) -> String {
    let (directory, arch) = (directory.display(), arch.debian());
    format!(
        r##"#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear APT::Architectures;
APT::Architecture "{arch}";
APT::Architectures {{ "{arch}"; }};
APT::Sandbox::User "";
APT::Default-Release "{STABLE}";
Acquire::Languages "none";
Dir::Etc "{directory}/etc";
Dir::State "{directory}";
Dir::State::status "{directory}/status";
Dir::Cache "{directory}";
"##
    )
}

/// The package in a line of `apt-get --simulate`. `Conf ...` repeats each.
fn installed(line: &str) -> Option<&str> {
    line.strip_prefix("Inst ")?.split_whitespace().next()
}

/// Where the machine itself gets Debian's packages from.
pub fn mirror() -> Result<String> {
    let uris = run(Command::new("apt-get").args(["--print-uris", "update"]))
        .context("apt does not tell its sources; kernels and systems to try come from there")?;
    let mirror = uris.lines().find_map(mirror_of).context(
        "no source of apt is a Debian release; add one as sources.list(5) tells, \
         kernels and systems to try come from there",
    )?;
    ensure!(
        Path::new(KEYRING).exists(),
        "{KEYRING}: no such file; install the package debian-archive-keyring"
    );
    Ok(mirror.to_owned())
}

/// The mirror in `'MIRROR/dists/RELEASE/InRelease' ...`. Updates and security
/// fixes (`RELEASE-...`) may lie elsewhere, without the other releases.
fn mirror_of(line: &str) -> Option<&str> {
    let uri = line.strip_prefix('\'')?.split('\'').next()?;
    let (mirror, release) = uri.strip_suffix("/InRelease")?.split_once("/dists/")?;
    (!release.contains('-')).then_some(mirror)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_mirror_in_what_apt_would_fetch() {
        let line = |release: &str| format!("'http://mirror.test/debian/dists/{release}' a_b 0 ");
        assert_eq!(
            mirror_of(&line("bookworm/InRelease")),
            Some("http://mirror.test/debian")
        );
        for other in ["bookworm-updates/InRelease", "bookworm/main/Packages.xz"] {
            assert_eq!(mirror_of(&line(other)), None);
        }
        assert_eq!(mirror_of(""), None);
    }

    #[test]
    fn finds_the_packages_in_what_apt_would_do() {
        let told =
            "1 newly installed\nInst kmod (34.2-2 Debian:13/stable [arm64])\nConf kmod (34.2-2)";
        let found: Vec<&str> = told.lines().filter_map(installed).collect();
        assert_eq!(found, ["kmod"]);
    }
}
