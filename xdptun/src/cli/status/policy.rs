//! What the policy searches for.

use std::io::Write;

use anyhow::Result;
use comfy_table::CellAlignment;

use super::{Words, print_attachment, print_counters};
use crate::cli::report::{limit_width, table};
use crate::observe::policy::PolicyStatus;

/// Prints an attachment of the policy.
pub fn print(out: &mut impl Write, columns: Option<usize>, policy: &PolicyStatus) -> Result<()> {
    let attachment = &policy.attachment;
    writeln!(out, "{}  policy", attachment.name)?;
    let words = Words {
        shared: None,
        no_hooks: Some("nothing is searched"),
        no_daemon: "rules count and drop, nothing is logged, no end is told of a reset; the same \
                    command goes on with them",
    };
    print_attachment(out, attachment, &words)?;
    let mut rules = table(&["RULE", "HITS", "DOES"], 1);
    if let Some(column) = rules.column_mut(2) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    for rule in &policy.rules {
        rules.add_row([rule.name.clone(), rule.hits.to_string(), rule.rule.clone()]);
    }
    if let Some(columns) = columns {
        limit_width(&mut rules, columns);
    }
    writeln!(out, "{rules}")?;
    print_counters(out, attachment)
}
