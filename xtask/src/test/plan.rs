//! Which suites there are, from cargo's own knowledge of the workspace.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;
use xdptun_lab::command::run;
use xdptun_lab::workspace;

use super::compile::compile;
use super::suite::{Program, Suite};
use crate::build;
use crate::shell::cargo;

/// The kernel side has no test harness: `no_std`, and its tests are programs of
/// test/ that run it in the kernel.
const WITHOUT_HARNESS: &str = "xdptun-ebpf";

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
            if name == WITHOUT_HARNESS {
                continue;
            }
            let mut folder = PathBuf::from(string(&package["manifest_path"])?);
            folder.pop();
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
                };
                let Some(kind) = Kind::of(target) else {
                    continue;
                };
                match kind {
                    Kind::Test if needs_vm => plan.vm.push(make(&target_name, kind)),
                    Kind::Test if needs_root => plan.root.push(make(&target_name, kind)),
                    Kind::Test => plan.host.push(make(&target_name, kind)),
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
        }
        Ok(plan)
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
        let mut host = compile(&self.unit, &[])?;
        host.extend(compile(&self.host, &[])?);
        host.extend(self.documentation.into_iter().map(|target| Suite {
            program: Program::Documentation {
                package: target.package,
            },
            title: target.title,
            folder: target.folder,
        }));
        let mut both = self.root;
        let own = both.len();
        both.extend(self.vm);
        let mut options = vec!["--release"];
        options.extend(build::for_target(target));
        let mut root = compile(&both, &options)?;
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
        let metadata = json!({ "packages": [
            { "name": "tool", "manifest_path": "/w/tool/Cargo.toml", "targets": [
                target("tool", "bin", false), target("cli", "test", false)] },
            { "name": "test-net", "manifest_path": "/w/test/net/Cargo.toml", "targets": [
                target("test_net", "lib", true), target("echo", "test", false)] },
            { "name": "test-vm", "manifest_path": "/w/test/vm/Cargo.toml", "targets": [
                target("quick", "test", false), target("netem", "test", false)] },
            { "name": WITHOUT_HARNESS, "manifest_path": "/w/k/Cargo.toml", "targets": [
                target("k", "bin", false)] },
        ]});
        let mut plan = Plan::from_metadata(&metadata, Path::new("/w/test")).unwrap();
        assert_eq!(titles(&plan.unit), ["tool unit (program)", "test-net unit"]);
        assert_eq!(titles(&plan.host), ["tool cli"]);
        assert_eq!(titles(&plan.root), ["test-net echo"]);
        assert_eq!(titles(&plan.documentation), ["test-net documentation"]);
        assert_eq!(plan.retain_vm(|name| name == "quick"), ["test-vm netem"]);
        assert_eq!(titles(&plan.vm), ["test-vm quick"]);
    }
}
