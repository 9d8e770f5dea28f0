//! Which suites there are, from cargo's own knowledge of the workspace.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use xdptun_lab::command::run;
use xdptun_lab::workspace;

use super::compile::{for_host, for_root};
use super::suite::{Program, Suite};
use crate::build;
use crate::shell::cargo;

/// The folder of the package whose tests need a guest.
const VM_TESTS: &str = "vm";

/// The folder of the package whose tests need a Debian system, and packages.
const PACKAGE_TESTS: &str = "package";

/// Suites by the way they are built and run.
#[derive(Debug, Default)]
pub struct Plan {
    /// Tests inside libraries and programs.
    unit: Vec<Target>,
    /// Integration tests on the host.
    host: Vec<Target>,
    /// Examples in the documentation, by package.
    documentation: Vec<Target>,
    /// Integration tests of the packages under `test/`: they need root.
    root: Vec<Target>,
    /// Integration tests that need a guest with another kernel as well.
    vm: Vec<Target>,
}

/// A plan's programs.
#[derive(Debug, Default)]
pub struct Suites {
    /// Run as the user.
    pub host: Vec<Suite>,
    /// Run as root, here or in a guest.
    pub root: Vec<Suite>,
    /// Run as root, in a guest.
    pub vm: Vec<Suite>,
}

/// One target of one package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) package: String,
    pub(super) folder: PathBuf,
    pub(super) name: String,
    pub(super) title: String,
    pub(super) kind: Kind,
    /// The module that holds the tests, if it is not the whole program.
    pub(super) module: Option<String>,
    pub(super) subject: Subject,
    pub(super) beside_others: bool,
}

/// What a package tells this command, in `[package.metadata.xtask]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// Whether each module of a test program is a suite, instead of the program.
    module_suites: bool,
    /// What its tests that need root are about.
    subject: Subject,
    /// Suites that bear that others run at the same time: they measure no time, lose no
    /// datagram to a busy core, and take none for long.
    beside_others: BTreeSet<String>,
}

/// What tests are about, which is built before them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Subject {
    /// The command.
    #[default]
    Command,
    /// The kernel side alone.
    Object,
}

impl Settings {
    fn of(package: &Value) -> Result<Self> {
        let settings = package["metadata"].get("xtask");
        let settings = settings.map(Self::deserialize).transpose();
        Ok(settings
            .context("package.metadata.xtask")?
            .unwrap_or_default())
    }
}

/// The modules beside the main file of a test program, in alphabetical order. The
/// compiler does not see a file that the main file does not name.
fn modules(main: &Path) -> Result<Vec<String>> {
    let describe = || format!("{}: cannot read", main.display());
    let text = fs::read_to_string(main).with_context(describe)?;
    let folder = main.parent().with_context(describe)?;
    let mut modules = Vec::new();
    for entry in fs::read_dir(folder).with_context(describe)? {
        let path = entry.with_context(describe)?.path();
        if path == main {
            continue;
        }
        let name = path.file_stem().with_context(describe)?;
        let name = name.to_string_lossy().into_owned();
        ensure!(
            text.lines().any(|line| line == format!("mod {name};")),
            "{}: has no `mod {name};` for {}",
            main.display(),
            path.display()
        );
        modules.push(name);
    }
    modules.sort();
    Ok(modules)
}

impl Target {
    fn tries_packages(&self) -> bool {
        self.folder.ends_with(Path::new("test").join(PACKAGE_TESTS))
    }
}

/// What cargo calls the kind of a target, as far as tests go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Lib,
    Bin,
    Test,
    Documentation,
}

impl Kind {
    pub(super) fn of(target: &Value) -> Option<Self> {
        let kinds: Vec<&str> = array(&target["kind"]).filter_map(Value::as_str).collect();
        [("lib", Self::Lib), ("bin", Self::Bin), ("test", Self::Test)]
            .into_iter()
            .find(|(name, _)| kinds.contains(name))
            .map(|(_, kind)| kind)
    }

    /// The option that makes cargo build its tests.
    pub(super) fn selector(self) -> &'static str {
        match self {
            Self::Lib => "--lib",
            Self::Bin => "--bins",
            Self::Test => "--test",
            Self::Documentation => "--doc",
        }
    }
}

impl Plan {
    /// All suites whose title contains one of the words; no words mean all.
    pub fn discover(words: &[&str]) -> Result<Self> {
        let mut command = cargo();
        command.args(["metadata", "--format-version", "1", "--no-deps"]);
        let metadata = run(&mut command)?;
        let metadata = serde_json::from_str(&metadata).context("`cargo metadata`")?;
        let mut plan = Self::from_metadata(&metadata, &workspace::root().join("test"))?;
        for targets in plan.kinds_mut() {
            targets.retain(|target| {
                words.is_empty() || words.iter().any(|word| target.title.contains(word))
            });
        }
        Ok(plan)
    }

    fn from_metadata(metadata: &Value, root_tests: &Path) -> Result<Self> {
        let mut plan = Self::default();
        for package in array(&metadata["packages"]) {
            let name = string(&package["name"])?;
            let mut folder = PathBuf::from(string(&package["manifest_path"])?);
            folder.pop();
            let settings = Settings::of(package).with_context(|| name.clone())?;
            let needs_root = folder.starts_with(root_tests);
            let needs_vm = folder == root_tests.join(VM_TESTS);
            for target in array(&package["targets"]) {
                let target_name = string(&target["name"])?;
                let make = |title: &str, kind| Target {
                    package: name.clone(),
                    folder: folder.clone(),
                    name: target_name.clone(),
                    title: format!("{name} {title}"),
                    kind,
                    module: None,
                    subject: settings.subject,
                    beside_others: settings.beside_others.contains(title),
                };
                let suites = || {
                    if !settings.module_suites {
                        return Ok(vec![make(&target_name, Kind::Test)]);
                    }
                    let modules = modules(Path::new(&string(&target["src_path"])?))?;
                    let suites = modules.into_iter().map(|module| Target {
                        module: Some(module.clone()),
                        ..make(&module, Kind::Test)
                    });
                    anyhow::Ok(suites.collect())
                };
                let Some(kind) = Kind::of(target) else {
                    continue;
                };
                match kind {
                    Kind::Test if needs_vm => plan.vm.extend(suites()?),
                    Kind::Test if needs_root => plan.root.extend(suites()?),
                    Kind::Test => plan.host.extend(suites()?),
                    Kind::Lib if target["test"] == true => plan.unit.push(make("unit", kind)),
                    Kind::Bin if target["test"] == true => {
                        plan.unit.push(make("unit (program)", kind));
                    }
                    Kind::Lib | Kind::Bin | Kind::Documentation => {}
                }
                if kind == Kind::Lib && target["doctest"] == true {
                    let documentation = make("documentation", Kind::Documentation);
                    plan.documentation.push(documentation);
                }
            }
            let titles: BTreeSet<&str> = plan.root.iter().map(|one| one.title.as_str()).collect();
            for suite in &settings.beside_others {
                let title = format!("{name} {suite}");
                ensure!(
                    titles.contains(title.as_str()),
                    "{name}: `beside-others` names {suite}, which is no suite that needs root"
                );
            }
        }
        Ok(plan)
    }

    /// Builds what the tests of root are about, for another machine if one is named.
    pub fn build_subjects(&self, target: Option<&str>) -> Result<()> {
        let about = |subject| {
            let mut targets = self.root.iter().chain(&self.vm);
            targets.any(|target| target.subject == subject)
        };
        if about(Subject::Command) {
            build::binary(target)?;
        }
        if about(Subject::Object) {
            build::object(target)?;
        }
        Ok(())
    }

    /// Whether nothing is to be run.
    pub fn is_empty(&self) -> bool {
        self.kinds().iter().all(|targets| targets.is_empty())
    }

    /// Whether anything makes namespaces or loads programs.
    pub fn needs_root(&self) -> bool {
        !self.root.is_empty()
    }

    /// Whether anything runs in a guest.
    pub fn needs_vm(&self) -> bool {
        !self.vm.is_empty()
    }

    /// Whether anything tries packages.
    pub fn needs_packages(&self) -> bool {
        self.root.iter().any(Target::tries_packages)
    }

    /// Leaves only what can run in a guest.
    pub fn keep_for_guest(&mut self) {
        let Self { mut root, vm, .. } = std::mem::take(self);
        root.retain(|target| !target.tries_packages());
        *self = Self {
            root,
            vm,
            ..Self::default()
        };
    }

    /// Leaves only some of the tests that need a guest, by name; returns the
    /// titles of the others.
    pub fn retain_vm(&mut self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let others = self.vm.extract_if(.., |target| !wanted(&target.name));
        others.map(|target| target.title).collect()
    }

    /// Builds all suites; those of root for another machine if one is named.
    pub fn build(self, target: Option<&str>) -> Result<Suites> {
        let mut host = self.unit;
        host.extend(self.host);
        let mut host = for_host(&host)?;
        host.extend(self.documentation.into_iter().map(|target| Suite {
            program: Program::Documentation {
                package: target.package,
            },
            beside_others: false,
            title: target.title,
            folder: target.folder,
        }));
        let mut both = self.root;
        let own = both.len();
        both.extend(self.vm);
        let mut root = for_root(&both, target)?;
        let vm = root.split_off(own);
        Ok(Suites { host, root, vm })
    }

    fn kinds(&self) -> [&Vec<Target>; 5] {
        [
            &self.unit,
            &self.host,
            &self.documentation,
            &self.root,
            &self.vm,
        ]
    }

    fn kinds_mut(&mut self) -> [&mut Vec<Target>; 5] {
        [
            &mut self.unit,
            &mut self.host,
            &mut self.documentation,
            &mut self.root,
            &mut self.vm,
        ]
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = ["user", "user", "user", "root", "vm"];
        for (place, targets) in places.iter().zip(self.kinds()) {
            for target in targets {
                writeln!(f, "{place:<4}  {}", target.title)?;
            }
        }
        Ok(())
    }
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn string(value: &Value) -> Result<String> {
    let text = value.as_str().context("`cargo metadata` lacks a name")?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn titles(targets: &[Target]) -> Vec<&str> {
        targets.iter().map(|target| target.title.as_str()).collect()
    }

    #[test]
    fn sorts_targets_by_what_they_need() {
        let target = |name: &str, kind: &str, doctest: bool| json!({ "name": name, "kind": [kind], "test": true, "doctest": doctest });
        let untested = json!({ "name": "object", "kind": ["bin"], "test": false });
        let metadata = json!({ "packages": [
            { "name": "tool", "manifest_path": "/w/tool/Cargo.toml", "targets": [
                target("tool", "bin", false), target("cli", "test", false)] },
            { "name": "test-net", "manifest_path": "/w/test/net/Cargo.toml", "targets": [
                target("test_net", "lib", true), target("echo", "test", false)] },
            { "name": "test-vm", "manifest_path": "/w/test/vm/Cargo.toml", "targets": [
                target("quick", "test", false), target("netem", "test", false)] },
            { "name": "kernel", "manifest_path": "/w/kernel/Cargo.toml", "targets": [
                target("kernel", "lib", false), untested] },
        ]});
        let mut plan = Plan::from_metadata(&metadata, Path::new("/w/test")).unwrap();
        assert_eq!(
            titles(&plan.unit),
            ["tool unit (program)", "test-net unit", "kernel unit"]
        );
        assert_eq!(titles(&plan.host), ["tool cli"]);
        assert_eq!(titles(&plan.root), ["test-net echo"]);
        assert_eq!(titles(&plan.documentation), ["test-net documentation"]);
        assert_eq!(plan.retain_vm(|name| name == "quick"), ["test-vm netem"]);
        assert_eq!(titles(&plan.vm), ["test-vm quick"]);
    }
    #[test]
    fn a_module_is_a_suite_where_the_package_wants_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        file("main.rs", "mod nat;\nmod echo;\n");
        file("nat.rs", "");
        file("echo.rs", "");
        let metadata = json!({ "packages": [
            { "name": "test-net", "manifest_path": "/w/test/net/Cargo.toml",
                "metadata": { "xtask": { "module-suites": true } },
                "targets": [{ "name": "tunnel", "kind": ["test"],
                    "src_path": folder.path().join("main.rs") }] },
        ]});
        let read = || Plan::from_metadata(&metadata, Path::new("/w/test"));
        let plan = read().unwrap();
        assert_eq!(titles(&plan.root), ["test-net echo", "test-net nat"]);
        assert!(plan.root.iter().all(|target| target.name == "tunnel"));
        file("forgotten.rs", "");
        assert!(read().unwrap_err().to_string().contains("`mod forgotten;`"));
    }
}
