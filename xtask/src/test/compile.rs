//! Compiling test programs without running them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::suite::{Program, Suite};
use super::target::{Kind, Target};
use crate::build;
use crate::shell::{Supervised, cargo};

/// Compiles the tests of the host, all of kinds that make a program.
pub(super) fn for_host(targets: &[Target]) -> Result<Vec<Suite>> {
    let mut command = cargo();
    command.args(["test", "--no-run"]);
    command.args(packages_of(targets));
    compile(targets, &mut command)
}

/// Compiles the tests of root, and the program that runs them as root.
pub(super) fn for_root(targets: &[Target], machine: Option<&str>) -> Result<Vec<Suite>> {
    let mut command = cargo();
    command.args(["build", "--release", "--bin", build::WORKER]);
    match machine {
        None => command.arg(build::ALL_PACKAGES),
        // The tests of HTTP/3 would need a C compiler for that machine.
        Some(_) => command
            .args(build::for_target(machine))
            .args(["--package", build::WORKER])
            .args(packages_of(targets)),
    };
    compile(targets, &mut command)
}

/// Selects the packages of some targets.
fn packages_of(targets: &[Target]) -> Vec<&str> {
    let packages = targets.iter().map(|target| target.package.as_str());
    let packages: BTreeSet<_> = packages.collect();
    let options = packages.into_iter().map(|package| ["--package", package]);
    options.flatten().collect()
}

fn compile(targets: &[Target], command: &mut Command) -> Result<Vec<Suite>> {
    if targets.is_empty() {
        return Ok(Vec::new());
    }
    command
        .args(["--locked", "--message-format=json-render-diagnostics"])
        .stdout(Stdio::piped());
    let selected = targets.iter().map(|target| {
        let name = (target.kind == Kind::Test).then_some(&target.name);
        (target.kind.selector(), name)
    });
    for (option, value) in selected.collect::<BTreeSet<_>>() {
        command.arg(option).args(value);
    }
    let mut cargo = Supervised::spawn(command)?;
    let output = cargo.child().stdout.take().context("no output of cargo")?;
    let mut programs = Vec::new();
    for line in BufReader::new(output).lines() {
        let message: Value = serde_json::from_str(&line?).context("a message of cargo")?;
        programs.extend(program(&message));
    }
    let status = cargo.wait()?;
    ensure!(status.success(), "the tests do not compile");
    targets
        .iter()
        .map(|target| {
            let found = programs.iter().find(|program| {
                program.folder == target.folder
                    && program.name == target.name
                    && program.kind == target.kind
            });
            let built = found
                .with_context(|| format!("{}: cargo built no program for it", target.title))?;
            Ok(Suite {
                program: Program::Executable {
                    path: built.executable.clone(),
                    module: target.module.clone(),
                },
                beside_others: target.beside_others,
                show_output: target.show_output,
                long: false,
                title: target.title.clone(),
                folder: target.folder.clone(),
            })
        })
        .collect()
}

/// A test program that cargo built.
#[derive(Debug, PartialEq, Eq)]
struct Built {
    folder: PathBuf,
    name: String,
    kind: Kind,
    executable: PathBuf,
}

/// Reads one message of cargo; `None` for messages about anything else.
fn program(message: &Value) -> Option<Built> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let mut folder = PathBuf::from(message["manifest_path"].as_str()?);
    folder.pop();
    Some(Built {
        folder,
        name: message["target"]["name"].as_str()?.to_owned(),
        kind: Kind::of(&message["target"])?,
        executable: message["executable"].as_str()?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn takes_only_test_programs_from_cargos_messages() {
        let artifact = |test: bool| {
            json!({ "reason": "compiler-artifact", "manifest_path": "/w/a/Cargo.toml",
                "target": { "name": "a", "kind": ["bin"] }, "profile": { "test": test }, "executable": "/t/a-1" })
        };
        let expected = Built {
            folder: "/w/a".into(),
            name: "a".into(),
            kind: Kind::Bin,
            executable: "/t/a-1".into(),
        };
        assert_eq!(program(&artifact(true)), Some(expected));
        assert_eq!(program(&artifact(false)), None);
        assert_eq!(program(&json!({ "reason": "build-finished" })), None);
    }
}
