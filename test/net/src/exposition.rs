//! Metrics as a scraper reads them: the OpenMetrics 1.0 text format, without what
//! xdptun has no use for (histograms, exemplars, time stamps).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};

/// Name and labels of a sample.
type Series = (String, BTreeMap<String, String>);

/// All samples of one scrape.
#[derive(Debug, Default)]
pub struct Exposition {
    samples: BTreeMap<Series, f64>,
}

/// The family whose samples follow.
#[derive(Debug, Default)]
struct Family {
    name: String,
    kind: String,
}

impl Exposition {
    /// Reads a scrape. Whatever the format forbids is an error, not only what
    /// cannot be read.
    pub fn parse(text: &str) -> Result<Self> {
        let lines = text.strip_suffix("# EOF\n");
        let lines = lines.context("no `# EOF` at the end")?;
        let mut exposition = Self::default();
        let mut family = Family::default();
        let mut seen = BTreeSet::new();
        for line in lines.lines() {
            let read = match line.strip_prefix("# ") {
                Some(comment) => describe(comment, &mut family, &mut seen),
                None => exposition.add(line, &family),
            };
            read.with_context(|| line.to_owned())?;
        }
        Ok(exposition)
    }

    fn add(&mut self, line: &str, family: &Family) -> Result<()> {
        let ((name, labels), value) = sample(line)?;
        let suffix = match family.kind.as_str() {
            "counter" => "_total",
            "info" => "_info",
            "gauge" => "",
            kind => bail!("no such type: {kind}"),
        };
        ensure!(
            name == format!("{}{suffix}", family.name),
            "not of the family {family:?}"
        );
        let value: f64 = value.parse()?;
        ensure!(value.is_finite() && value >= 0.0, "not a number to expect");
        ensure!(suffix != "_info" || value == 1.0, "an info is not 1");
        let twice = self.samples.insert((name, labels), value);
        ensure!(twice.is_none(), "twice");
        Ok(())
    }

    /// The sample with exactly this name and these labels.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let series = (name.to_owned(), labels.collect());
        self.samples.get(&series).copied()
    }

    /// The values that a label has in the samples of a name; none if there is no
    /// such sample, or it has no such label.
    pub fn label_values(&self, name: &str, label: &str) -> BTreeSet<&str> {
        let samples = self.samples.keys().filter(|(found, _)| found == name);
        samples
            .filter_map(|(_, labels)| labels.get(label).map(String::as_str))
            .collect()
    }

    /// The names of all samples.
    pub fn names(&self) -> BTreeSet<&str> {
        self.samples.keys().map(|(name, _)| name.as_str()).collect()
    }
}

/// A line that tells of a family: HELP first, then TYPE, then UNIT if any.
fn describe(comment: &str, family: &mut Family, seen: &mut BTreeSet<String>) -> Result<()> {
    let mut words = comment.splitn(3, ' ');
    let mut word = || words.next().context("too few words");
    let (what, name, text) = (word()?, word()?, word()?);
    ensure!(is_name(name), "not a name");
    ensure!(!text.is_empty(), "nothing is told");
    match what {
        "HELP" => {
            ensure!(seen.insert(name.to_owned()), "its samples are not together");
            *family = Family {
                name: name.to_owned(),
                kind: String::new(),
            };
        }
        "TYPE" => {
            let first = name == family.name && family.kind.is_empty();
            ensure!(first, "out of order");
            text.clone_into(&mut family.kind);
        }
        "UNIT" => {
            let second = name == family.name && !family.kind.is_empty();
            ensure!(second, "out of order");
            ensure!(name.ends_with(&format!("_{text}")), "not in the name");
        }
        _ => bail!("an unknown comment"),
    }
    Ok(())
}

/// `name{label="value",...} value`.
fn sample(line: &str) -> Result<(Series, &str)> {
    let end = line.find(['{', ' ']).context("no value")?;
    let (name, mut rest) = line.split_at(end);
    ensure!(is_name(name), "not a name: {name}");
    let mut labels = BTreeMap::new();
    if let Some(mut inside) = rest.strip_prefix('{') {
        loop {
            let (label, after) = inside.split_once("=\"").context("no label")?;
            ensure!(is_name(label), "not a name: {label}");
            let (value, after) = quoted(after)?;
            let twice = labels.insert(label.to_owned(), value);
            ensure!(twice.is_none(), "{label} twice");
            match after.strip_prefix(',') {
                Some(next) => inside = next,
                None => {
                    rest = after.strip_prefix('}').context("labels do not end")?;
                    break;
                }
            }
        }
    }
    let value = rest.strip_prefix(' ').context("no value")?;
    Ok(((name.to_owned(), labels), value))
}

/// The text up to the closing quote, and what follows.
fn quoted(text: &str) -> Result<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => match letters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped @ ('"' | '\\'))) => value.push(escaped),
                _ => bail!("a bad escape"),
            },
            letter => value.push(letter),
        }
    }
    bail!("a quote does not end")
}

fn is_name(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.starts_with(|first: char| first.is_ascii_lowercase()) && text.chars().all(is_letter)
}
