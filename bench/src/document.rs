//! Writing results and tables where they belong.

use std::fs;

use anyhow::{Context, Result};
use xdptun_lab::document::write_between_markers;
use xdptun_lab::workspace;

use crate::results::Results;
use crate::table::NOT_MEASURED;

/// The document.
const DOCUMENT: &str = "BENCHMARKS.md";

/// What a method writes into the document, between the markers of its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    name: String,
    text: String,
}

impl Section {
    /// The text between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
        }
    }

    /// The same with the origin of its figures below.
    #[must_use]
    pub fn signed(mut self, results: &Results) -> Self {
        self.text = format!("{}\n{results}\n", self.text);
        self
    }

    /// Whether every bar in it has a figure.
    pub fn is_complete(&self) -> bool {
        !self.text.contains(NOT_MEASURED)
    }

    /// As it is shown to a person.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Keeps the raw numbers of a measurement.
pub fn write_results(name: &str, results: &Results) -> Result<()> {
    let folder = workspace::root().join("bench/results");
    fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    let path = folder.join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(results)? + "\n";
    fs::write(&path, text).with_context(|| format!("{}: cannot write", path.display()))?;
    eprintln!("wrote bench/results/{name}.json");
    Ok(())
}

/// Replaces what the document has between the markers of each section.
pub fn write_sections(sections: &[Section]) -> Result<()> {
    sections.iter().try_for_each(|Section { name, text }| {
        write_between_markers(DOCUMENT, &format!("bench:{name}"), text)
    })
}
