//! What either made of each row, for people.

use std::fmt::Write as _;

use crate::rows::{Group, Row};

/// The rows with the results of both.
fn compared<'a>(
    groups: &'a [Group],
    jool: &'a [Vec<String>],
    xdptun: &'a [Vec<String>],
) -> impl Iterator<Item = (&'a str, Vec<(&'a Row, [&'a str; 2])>)> {
    let both = groups.iter().zip(jool.iter().zip(xdptun));
    both.map(|(group, (jool, xdptun))| {
        let both = jool.iter().zip(xdptun);
        let rows = group.rows.iter().zip(both);
        let rows = rows.map(|(row, (jool, xdptun))| (row, [jool.as_str(), xdptun.as_str()]));
        (group.title, rows.collect())
    })
}

/// A table for each group, as `docs/nat64.md` has them.
pub fn markdown(groups: &[Group], jool: &[Vec<String>], xdptun: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (title, rows) in compared(groups, jool, xdptun) {
        let _ = write!(
            text,
            "| {title} | Jool | `xdptun nat64` | why |\n|---|---|---|---|\n"
        );
        for (row, [jool, xdptun]) in rows {
            let xdptun = if jool == xdptun { "the same" } else { xdptun };
            let _ = writeln!(text, "| {} | {jool} | {xdptun} | {} |", row.sent, row.why);
        }
        text.push('\n');
    }
    text
}

/// The rows that differ without a reason, or have a reason and do not differ.
pub fn unexplained(groups: &[Group], jool: &[Vec<String>], xdptun: &[Vec<String>]) -> Vec<String> {
    compared(groups, jool, xdptun)
        .flat_map(|(_, rows)| rows)
        .filter(|(row, [jool, xdptun])| (jool == xdptun) != row.why.is_empty())
        .map(|(row, [jool, xdptun])| format!("{}\n  {jool}\n  {xdptun}\n  {}", row.sent, row.why))
        .collect()
}
