//! Output compared with what a document shows.

use anyhow::{Result, ensure};
use regex::Regex;

/// What is another time or process each time.
pub const VARYING: [&str; 2] = [r"process \d+", r"\b\d+ s\b"];

/// A line as an interface prints it whose driver has XDP. On veth devices, which have
/// it too, `--ingress auto` takes tc, and says why.
fn with_xdp(line: &str) -> Option<String> {
    if line.contains(": no native XDP: ") {
        return None;
    }
    let line = line.replace(
        "inbound data restored by tc",
        "inbound data restored by xdp",
    );
    let line = line.replace("  ingress tc", "  ingress xdp");
    Some(match line.starts_with("  hooks  ") {
        true => line + ", xdp",
        false => line,
    })
}

/// Checks that lines are as a document shows them: what these regular expressions
/// match may differ, a line of three dots stands for any lines, and the interface is
/// taken for one whose driver has XDP.
pub fn compare(shown: &[String], printed: &[String], varying: &[&str]) -> Result<()> {
    let varying: Vec<Regex> = varying
        .iter()
        .map(|text| Regex::new(text))
        .collect::<Result<_, _>>()?;
    let masked = |line: &String| {
        let masked = varying.iter().fold(line.clone(), |line, varying| {
            varying.replace_all(&line, "*").into_owned()
        });
        masked.trim_end().to_owned()
    };
    let shown: Vec<String> = shown.iter().map(masked).collect();
    let found = printed.iter().filter_map(|line| with_xdp(line));
    let found: Vec<String> = found.map(|line| masked(&line)).collect();
    ensure!(
        fits(&shown, &found),
        "the document shows\n{}\nand it prints\n{}",
        shown.join("\n"),
        printed.join("\n")
    );
    Ok(())
}

fn fits(shown: &[String], printed: &[String]) -> bool {
    match (shown, printed) {
        ([dots, shown @ ..], printed) if dots.trim() == "..." => {
            (0..=printed.len()).any(|skipped| fits(shown, &printed[skipped..]))
        }
        ([line, shown @ ..], [found, printed @ ..]) => line == found && fits(shown, printed),
        (shown, printed) => shown.is_empty() && printed.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn an_interface_is_shown_with_xdp() {
        let shown = "eth0: inbound data restored by xdp\n  hooks  tc egress (TCX), xdp";
        let printed =
            "eth0: inbound data restored by tc\neth0: no native XDP: why\n  hooks  tc egress (TCX)";
        compare(&lines(shown), &lines(printed), &[]).unwrap();
    }

    #[test]
    fn only_what_varies_may_differ() {
        let shown = lines("daemon process 4711\nage 8 s\n  ...\nend");
        let compare = |printed: &str| compare(&shown, &lines(printed), &VARYING).is_ok();
        assert!(compare("daemon process 9\nage 12 s\nend"));
        assert!(compare("daemon process 9\nage 12 s\nx\ny\nend"));
        assert!(!compare("daemon process 9\nage 12 s\nx"));
        assert!(!compare("daemon process 9\nend"));
        assert!(!compare("daemon none\nage 12 s\nend"));
    }
}
