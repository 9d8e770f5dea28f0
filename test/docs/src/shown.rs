//! Output compared with what a document shows.

use anyhow::{Result, ensure};
use regex::Regex;

/// Times, process ids, and the hook, which depends on the kernel.
pub const VARYING: [&str; 3] = [r"process \d+", r"\b\d+ s\b", r"\((TCX|clsact)\)"];

/// How much a flow carried.
pub const AMOUNTS: &str = r"\b\d+ / [\d.]+ K?i?B";

/// Lines as they are where the driver has XDP. Veth devices have it too, but there
/// `--ingress auto` takes tc, and says why.
#[must_use]
pub fn with_xdp(printed: &[String]) -> Vec<String> {
    let lines = printed.iter().filter(|line| !line.contains(VETH));
    let lines = lines.map(|line| {
        let line = line.replace(
            "inbound data restored by tc, merged again for sockets with UDP_GRO",
            "inbound data restored by xdp",
        );
        let line = line.replace("  ingress tc", "  ingress xdp");
        match line.starts_with("  hooks  ") {
            true => line + ", xdp",
            false => line,
        }
    });
    lines.collect()
}

/// A message that is only for veth devices.
pub const VETH: &str = ": no native XDP: it would switch TSO off";

/// Checks that lines are as a document shows them: what these regular expressions
/// match may differ, and spaces, and a line of three dots stands for any lines.
pub fn compare(shown: &[String], printed: &[String], varying: &[&str]) -> Result<()> {
    let varying: Vec<Regex> = varying
        .iter()
        .map(|text| Regex::new(text))
        .collect::<Result<_, _>>()?;
    let masked = |line: &String| {
        let masked = varying.iter().fold(line.clone(), |line, varying| {
            varying.replace_all(&line, "*").into_owned()
        });
        // The width of a column depends on the varying text.
        masked.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let shown: Vec<String> = shown.iter().map(masked).collect();
    let found: Vec<String> = printed.iter().map(masked).collect();
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
    fn a_veth_device_stands_for_a_card() {
        let printed = "eth0: inbound data restored by tc, merged again for sockets with UDP_GRO\n\
                       eth0: no native XDP: it would switch TSO off elsewhere\n\
                       \u{20} hooks  tc egress (TCX)";
        let shown = "eth0: inbound data restored by xdp\n  hooks  tc egress (TCX), xdp";
        assert_eq!(with_xdp(&lines(printed)), lines(shown));
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
