//! Tables that a command of this tree writes into its documents.

use std::fs;

use anyhow::{Context, Result};

use crate::workspace;

/// Replaces what a document of the tree has between the markers of a name,
/// `<!-- NAME -->` and `<!-- /NAME -->`.
pub fn write_between_markers(document: &str, name: &str, new: &str) -> Result<()> {
    let path = workspace::root().join(document);
    let text = fs::read_to_string(&path).with_context(|| format!("{document}: cannot read"))?;
    let text = replace(&text, name, new).with_context(|| document.to_owned())?;
    fs::write(&path, text).with_context(|| format!("{document}: cannot write"))?;
    eprintln!("wrote {name} in {document}");
    Ok(())
}

/// Whether a document of the tree has this text there.
pub fn is_between_markers(document: &str, name: &str, text: &str) -> Result<bool> {
    let path = workspace::root().join(document);
    let whole = fs::read_to_string(&path).with_context(|| format!("{document}: cannot read"))?;
    let same = replace(&whole, name, text).with_context(|| document.to_owned())?;
    Ok(same == whole)
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
