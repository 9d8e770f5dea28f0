//! Writing results and tables where they belong.

use std::fs;

use anyhow::{Context, Result};
use serde::Serialize;
use xdptun_lab::workspace;

/// Keeps the raw numbers of a measurement.
pub fn write_results(name: &str, results: &impl Serialize) -> Result<()> {
    let folder = workspace::root().join("bench/results");
    fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    let path = folder.join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(results)? + "\n";
    fs::write(&path, text).with_context(|| format!("{}: cannot write", path.display()))?;
    eprintln!("wrote bench/results/{name}.json");
    Ok(())
}

/// Replaces what a document of the tree has between the markers of a table.
pub fn write_table(document: &str, name: &str, table: &str) -> Result<()> {
    let path = workspace::root().join(document);
    let text = fs::read_to_string(&path).with_context(|| format!("{document}: cannot read"))?;
    let text = replace(&text, name, table).with_context(|| document.to_owned())?;
    fs::write(&path, text).with_context(|| format!("{document}: cannot write"))?;
    eprintln!("wrote the table {name} in {document}");
    Ok(())
}

fn replace(text: &str, name: &str, table: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
    let missing = || format!("there is no `{}` ... `{end}`", begin.trim_end());
    let (before, rest) = text.split_once(&begin).with_context(missing)?;
    let (_, after) = rest.split_once(&end).with_context(missing)?;
    Ok(format!("{before}{begin}\n{}\n\n{end}{after}", table.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_between_the_markers_changes() {
        let text = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n";
        let once = replace(text, "x", "new\n").unwrap();
        assert_eq!(once, "a\n<!-- x -->\n\nnew\n\n<!-- /x -->\nb\n");
        assert_eq!(replace(&once, "x", "new\n").unwrap(), once);
        assert!(replace(text, "y", "new").is_err());
    }
}
