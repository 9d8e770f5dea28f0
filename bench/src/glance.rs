//! The first section of the document: what a person reads in a minute.

use std::fs;

use anyhow::{Context, Result};
use clap::ValueEnum;
use xdptun_lab::workspace;

use crate::document::{RESULTS, Section};
use crate::methods::Method;
use crate::plot::Bars;
use crate::results::Results;
use crate::statistics::Summary;
use crate::table::{Table, spread};

/// Which way a ratio is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// A rate.
    More,
    /// A time.
    Less,
}

/// A ratio to the same traffic without a tunnel.
#[derive(Debug, Clone, PartialEq)]
pub struct Headline {
    /// What is compared.
    pub what: &'static str,
    /// Which way it is good.
    pub better: Better,
    /// That of xdptun.
    pub xdptun: Option<Summary>,
    /// That of phantun, if it is measured.
    pub phantun: Option<Summary>,
}

impl Headline {
    /// A rate that no other program is measured for.
    pub const fn rate(what: &'static str, xdptun: Option<Summary>) -> Self {
        Self {
            what,
            better: Better::More,
            xdptun,
            phantun: None,
        }
    }
}

/// Made of the results that are kept.
pub fn section() -> Result<Section> {
    let mut headlines = Vec::new();
    for method in Method::value_variants() {
        let path = workspace::root()
            .join(RESULTS)
            .join(format!("{method}.json"));
        let describe = || format!("{}", path.display());
        let text = fs::read_to_string(&path).with_context(describe)?;
        let results: Results = serde_json::from_str(&text).with_context(describe)?;
        headlines.extend(method.headlines(&results.measured));
    }
    let mut table = Table::new(&["with a tunnel, divided by without", "xdptun", "phantun"]);
    for headline in &headlines {
        let better = match headline.better {
            Better::More => "more is better",
            Better::Less => "less is better",
        };
        let phantun = headline.phantun.map(|found| spread(Some(found)));
        table.row([
            format!("{}; {better}", headline.what),
            spread(headline.xdptun),
            phantun.unwrap_or_default(),
        ]);
    }
    Ok(Section::new("glance", table.to_string()).with_plot(plot(&headlines)))
}

/// The rates.
fn plot(headlines: &[Headline]) -> Bars {
    let mut bars = Bars::new("Rates with a tunnel, divided by those without", "ratio");
    let rates = headlines
        .iter()
        .filter(|headline| headline.better == Better::More);
    for Headline {
        what,
        xdptun,
        phantun,
        ..
    } in rates
    {
        bars.add(*what, 0, *xdptun);
        if phantun.is_some() {
            bars.add(format!("{what}, phantun"), 1, *phantun);
        }
    }
    bars
}

#[cfg(test)]
mod tests {
    use xdptun_lab::document::is_between_markers;

    use super::*;

    #[test]
    fn the_document_shows_the_results_that_are_kept() {
        let section = section().unwrap();
        assert!(!section.text().contains("| - |"), "{}", section.text());
        assert!(is_between_markers("BENCHMARKS.md", "bench:glance", section.text()).unwrap());
    }
}
