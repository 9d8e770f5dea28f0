//! Which suites there are, from cargo's own knowledge of the workspace.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use xdptun_lab::command::run;
use xdptun_lab::workspace;

use super::compile::{for_host, for_root};
use super::metadata::{Package, array};
use super::suite::{Program, Suite};
use super::target::{Kind, Subject, Target};
use crate::build;
use crate::shell::cargo;

/// The folder of the package whose tests need a guest.
const VM_TESTS: &str = "vm";

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
            let package = Package::read(package)?;
            for target in package.targets() {
                plan.add(&package, target, root_tests)?;
            }
            let titles: BTreeSet<&str> = plan.root.iter().map(|one| one.title.as_str()).collect();
            package.check_settings(&titles)?;
        }
        Ok(plan)
    }

    /// Adds the suites of one target.
    fn add(&mut self, package: &Package<'_>, target: &Value, root_tests: &Path) -> Result<()> {
        let Some(kind) = Kind::of(target) else {
            return Ok(());
        };
        match kind {
            Kind::Test if package.folder == root_tests.join(VM_TESTS) => {
                self.vm.extend(package.suites(target)?);
            }
            Kind::Test if package.folder.starts_with(root_tests) => {
                self.root.extend(package.suites(target)?);
            }
            Kind::Test => self.host.extend(package.suites(target)?),
            Kind::Lib if target["test"] == true => {
                self.unit.push(package.suite(target, "unit", kind)?);
            }
            Kind::Bin if target["test"] == true => {
                self.unit
                    .push(package.suite(target, "unit (program)", kind)?);
            }
            Kind::Lib | Kind::Bin | Kind::Documentation => {}
        }
        if kind == Kind::Lib && target["doctest"] == true {
            let documentation = package.suite(target, "documentation", Kind::Documentation)?;
            self.documentation.push(documentation);
        }
        Ok(())
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

    /// Whether anything runs programs of others.
    pub fn needs_real(&self) -> bool {
        self.root.iter().any(Target::runs_others)
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
            show_output: false,
            long: false,
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

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

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
