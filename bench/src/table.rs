//! Tables as the document shows them.

use std::fmt;

use crate::statistics::Summary;

/// A Markdown table; all columns but the first hold numbers.
#[derive(Debug, Clone)]
pub struct Table {
    columns: usize,
    text: String,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: &[&str]) -> Self {
        let rule = "---:|".repeat(columns.len() - 1);
        Self {
            columns: columns.len(),
            text: format!("| {} |\n|---|{rule}\n", columns.join(" | ")),
        }
    }

    /// Adds a row; cells that are missing at its end stay empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<String> = cells.into_iter().collect();
        cells.resize(self.columns, String::new());
        self.text += &format!("| {} |\n", cells.join(" | "));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A figure as people read it: three digits that matter, thousands apart.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let (sign, whole) = match whole.strip_prefix('-') {
        Some(whole) => ("-", whole),
        None => ("", whole),
    };
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{fraction}")
}

/// A median with its spread, or a dash.
pub fn spread(summary: Option<Summary>) -> String {
    summary.map_or_else(dash, |summary| {
        let Summary { median, min, max } = summary;
        format!("{} ({} to {})", number(median), number(min), number(max))
    })
}

/// A median alone, or a dash.
pub fn median(summary: Option<Summary>) -> String {
    summary.map_or_else(dash, |summary| number(summary.median))
}

fn dash() -> String {
    "-".to_owned()
}

/// The verdict where a goal has no figure.
pub const NOT_MEASURED: &str = "not measured";

/// The limit of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// Not less than this.
    AtLeast(f64),
    /// Not more than this.
    AtMost(f64),
}

impl Goal {
    /// The goal and whether a median is on the right side of it.
    pub fn judge(self, summary: Option<Summary>) -> String {
        let (sign, limit) = match self {
            Self::AtLeast(limit) => (">=", limit),
            Self::AtMost(limit) => ("<=", limit),
        };
        let limit_text = number(limit);
        let verdict = match (self, summary) {
            (_, None) => NOT_MEASURED,
            (Self::AtLeast(_), Some(found)) if found.median >= limit => "met",
            (Self::AtMost(_), Some(found)) if found.median <= limit => "met",
            (_, Some(_)) => "**not met**",
        };
        format!("{sign} {limit_text}: {verdict}")
    }
}

/// What a figure has to keep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bar {
    /// The limit that must hold, where the goal is beyond it.
    must: Option<Goal>,
    goal: Goal,
}

impl Bar {
    /// A goal and no more.
    pub const fn goal(goal: Goal) -> Self {
        Self { must: None, goal }
    }

    /// Not less than these.
    pub const fn at_least(must: f64, goal: f64) -> Self {
        Self {
            must: Some(Goal::AtLeast(must)),
            goal: Goal::AtLeast(goal),
        }
    }

    /// Not more than these.
    pub const fn at_most(must: f64, goal: f64) -> Self {
        Self {
            must: Some(Goal::AtMost(must)),
            goal: Goal::AtMost(goal),
        }
    }

    /// The limits and whether a median keeps them.
    pub fn judge(self, summary: Option<Summary>) -> String {
        let goal = self.goal.judge(summary);
        match self.must {
            Some(must) => format!("{}; goal {goal}", must.judge(summary)),
            None => goal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_all_columns() {
        let mut table = Table::new(&["path", "a", "b"]);
        table.row(["direct".to_owned(), "1".to_owned()]);
        let expected = "| path | a | b |\n|---|---:|---:|\n| direct | 1 |  |\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn numbers_have_the_digits_that_matter() {
        let texts = [0.9124, 9.99, 99.95, 1234.4, 1_234_567.0, -0.5].map(number);
        let expected = ["0.912", "9.99", "100.0", "1,234", "1,234,567", "-0.500"];
        assert_eq!(texts, expected);
    }

    #[test]
    fn a_bar_is_met_up_to_its_own_value() {
        let of = |value| Summary::of([value]);
        assert_eq!(Goal::AtLeast(0.9).judge(of(0.9)), ">= 0.900: met");
        assert_eq!(Goal::AtLeast(0.9).judge(of(0.8)), ">= 0.900: **not met**");
        assert_eq!(Goal::AtMost(120.0).judge(of(121.0)), "<= 120: **not met**");
        assert_eq!(Goal::AtMost(120.0).judge(None), "<= 120: not measured");
    }
}
