//! What `cargo metadata` tells of a package.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::target::{Kind, Subject, Target};

/// A package of the workspace.
pub struct Package<'a> {
    name: String,
    /// The folder of its manifest.
    pub folder: PathBuf,
    settings: Settings,
    metadata: &'a Value,
}

impl<'a> Package<'a> {
    /// Reads what cargo tells of it.
    pub fn read(metadata: &'a Value) -> Result<Self> {
        let name = string(&metadata["name"])?;
        let mut folder = PathBuf::from(string(&metadata["manifest_path"])?);
        folder.pop();
        Ok(Self {
            settings: Settings::of(metadata).with_context(|| name.clone())?,
            name,
            folder,
            metadata,
        })
    }

    /// Its targets.
    pub fn targets(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        array(&self.metadata["targets"])
    }

    /// The tests of a target as one suite.
    pub fn suite(&self, target: &Value, title: &str, kind: Kind) -> Result<Target> {
        Ok(Target {
            package: self.name.clone(),
            folder: self.folder.clone(),
            name: string(&target["name"])?,
            title: format!("{} {title}", self.name),
            kind,
            module: None,
            subject: self.settings.subject,
            beside_others: self.settings.beside_others.contains(title),
            show_output: self.settings.show_output,
        })
    }

    /// The suites of a test program.
    pub fn suites(&self, target: &Value) -> Result<Vec<Target>> {
        if !self.settings.module_suites {
            let name = string(&target["name"])?;
            return Ok(vec![self.suite(target, &name, Kind::Test)?]);
        }
        let modules = modules(Path::new(&string(&target["src_path"])?))?.into_iter();
        let suites = modules.map(|module| {
            let suite = self.suite(target, &module, Kind::Test)?;
            Ok(Target {
                module: Some(module),
                ..suite
            })
        });
        suites.collect()
    }

    /// Checks that its settings name suites that need root, whose titles these are.
    pub fn check_settings(&self, titles: &BTreeSet<&str>) -> Result<()> {
        let name = &self.name;
        for suite in &self.settings.beside_others {
            ensure!(
                titles.contains(format!("{name} {suite}").as_str()),
                "{name}: `beside-others` names {suite}, which is no suite that needs root"
            );
        }
        Ok(())
    }
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
    /// Whether what passed tests print is shown.
    show_output: bool,
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

/// The members of a list; none if it is none.
pub fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn string(value: &Value) -> Result<String> {
    let text = value.as_str().context("`cargo metadata` lacks a name")?;
    Ok(text.to_owned())
}
