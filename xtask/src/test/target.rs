//! The targets of packages, as far as they have tests.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// The folder of the package whose tests need a Debian system, and packages.
const PACKAGE_TESTS: &str = "package";

/// The folder of the package that runs programs of others.
const REAL_TESTS: &str = "real";

/// One target of one package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub package: String,
    pub folder: PathBuf,
    pub name: String,
    pub title: String,
    pub kind: Kind,
    /// The module that holds the tests, if it is not the whole program.
    pub module: Option<String>,
    pub subject: Subject,
    pub beside_others: bool,
    pub show_output: bool,
}

/// What tests are about, which is built before them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// The command.
    #[default]
    Command,
    /// The kernel side alone.
    Object,
}

impl Target {
    /// Whether it tries packages.
    pub fn tries_packages(&self) -> bool {
        self.folder.ends_with(Path::new("test").join(PACKAGE_TESTS))
    }

    /// Whether it runs programs of others.
    pub fn runs_others(&self) -> bool {
        self.folder.ends_with(Path::new("test").join(REAL_TESTS)) && self.kind == Kind::Test
    }
}

/// What cargo calls the kind of a target, as far as tests go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Lib,
    Bin,
    Test,
    Documentation,
}

impl Kind {
    pub fn of(target: &Value) -> Option<Self> {
        let kinds = target["kind"].as_array().into_iter().flatten();
        let kinds: Vec<&str> = kinds.filter_map(Value::as_str).collect();
        [("lib", Self::Lib), ("bin", Self::Bin), ("test", Self::Test)]
            .into_iter()
            .find(|(name, _)| kinds.contains(name))
            .map(|(_, kind)| kind)
    }

    /// The option that makes cargo build its tests.
    pub fn selector(self) -> &'static str {
        match self {
            Self::Lib => "--lib",
            Self::Bin => "--bins",
            Self::Test => "--test",
            Self::Documentation => "--doc",
        }
    }
}
