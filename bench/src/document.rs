//! Writing results and tables where they belong.

use std::fs;

use anyhow::{Context, Result};
use xdptun_lab::document::write_between_markers;
use xdptun_lab::workspace;

use crate::plot::Bars;
use crate::results::Results;
use crate::table::NOT_MEASURED;

/// The document.
const DOCUMENT: &str = "BENCHMARKS.md";

/// The folder of raw numbers and pictures.
pub const RESULTS: &str = "bench/results";

/// The text that a method writes into the document, between the markers of its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    name: String,
    text: String,
    plot: Option<Bars>,
}

impl Section {
    /// The text between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
            plot: None,
        }
    }

    /// The same with a picture below, `bench/results/NAME.svg`.
    #[must_use]
    pub fn with_plot(mut self, plot: Bars) -> Self {
        self.text += &format!("\n![{}]({RESULTS}/{}.svg)\n", plot.title, self.name);
        self.plot = Some(plot);
        self
    }

    /// The same with the origin of its figures below.
    #[must_use]
    pub fn signed(mut self, results: &Results) -> Self {
        self.text = format!("{}\n{results}\n", self.text);
        self
    }

    /// Whether every goal in it has a figure.
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
    let folder = workspace::root().join(RESULTS);
    fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    let path = folder.join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(results)? + "\n";
    fs::write(&path, text).with_context(|| format!("{}: cannot write", path.display()))?;
    eprintln!("wrote {RESULTS}/{name}.json");
    Ok(())
}

/// Replaces the text between the markers of each section, and writes
/// its picture.
pub fn write_sections(sections: &[Section]) -> Result<()> {
    for Section { name, text, plot } in sections {
        if let Some(plot) = plot {
            let path = format!("{RESULTS}/{name}.svg");
            fs::write(workspace::root().join(&path), plot.svg()?)
                .with_context(|| format!("{path}: cannot write"))?;
            eprintln!("wrote {path}");
        }
        write_between_markers(DOCUMENT, &format!("bench:{name}"), text)?;
    }
    Ok(())
}
