//! httperf, which opens connections at a rate, each for one request.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use xdptun_lab::command::run;
use xdptun_lab::workspace;

use crate::methods::tcp::Ends;

/// What it says of its connections.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Report {
    /// How long a connection took from its first packet to its end, on average, in milliseconds;
    /// not a number if none came to its end.
    pub average: f64,
    /// The median of these times. httperf knows it to the millisecond.
    pub median: f64,
    /// Connections that failed, or had another answer than the page.
    pub errors: u32,
}

fn program() -> PathBuf {
    workspace::root().join(".tools/httperf/usr/bin/httperf")
}

/// Why it cannot measure, if it cannot.
pub fn missing() -> Option<String> {
    let program = program();
    (!program.is_file()).then(|| {
        let path = program.display();
        format!("{path}: no such file; `cargo xtask bench nat` unpacks Debian's package")
    })
}

/// Opens `count` connections, `rate` a second.
pub fn measure(ends: Ends<'_>, rate: u32, count: u32) -> Result<Report> {
    let mut command = ends.client.command(program());
    for (option, value) in [
        ("--server", ends.entry.ip().to_string()),
        ("--port", ends.entry.port().to_string()),
        ("--rate", rate.to_string()),
        ("--num-conns", count.to_string()),
        ("--timeout", "20".to_owned()),
    ] {
        command.args([option, &value]);
    }
    let text = run(&mut command)?;
    parse(&text, count).with_context(|| text.clone())
}

fn parse(text: &str, count: u32) -> Result<Report> {
    // It leaves out those for which it had no descriptor: errors.
    let opened: u32 = value(text, "Total: ", "connections ")?.parse()?;
    ensure!(opened <= count, "{opened} connections, not {count}");
    let errors: u32 = value(text, "Errors: ", "total ")?.parse()?;
    let pages: u32 = value(text, "Reply status: ", "2xx=")?.parse()?;
    let time = |which| -> Result<f64> {
        let time = value(text, "Connection time [ms]: ", which)?.parse()?;
        Ok(if pages == 0 { f64::NAN } else { time })
    };
    Ok(Report {
        average: time("avg ")?,
        median: time("median ")?,
        errors: errors.max(count.saturating_sub(pages)),
    })
}

/// The word after `name` in the first line that begins with `line`.
fn value<'a>(text: &'a str, line: &str, name: &str) -> Result<&'a str> {
    let found = text.lines().find_map(|text| text.strip_prefix(line));
    let found = found.with_context(|| format!("httperf prints no line `{line}`"))?;
    let after = found.split_once(name).map(|(_, after)| after);
    let word = after.and_then(|after| after.split_whitespace().next());
    word.with_context(|| format!("httperf prints no `{name}` after `{line}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Total: connections 8000 requests 8000 replies 7998 test-duration 80.027 s

Connection rate: 100.0 conn/s (10.0 ms/conn, <=20 concurrent connections)
Connection time [ms]: min 34.8 avg 48.8 max 1197.5 median 46.5 stddev 23.8
Connection time [ms]: connect 14.5
Connection length [replies/conn]: 1.000

Reply time [ms]: response 18.3 transfer 15.9
Reply status: 1xx=0 2xx=7997 3xx=0 4xx=0 5xx=1

Errors: total 2 client-timo 2 socket-timo 0 connrefused 0 connreset 0
Errors: fd-unavail 0 addrunavail 0 ftab-full 0 other 0
";

    #[test]
    fn every_connection_without_the_page_is_an_error() {
        let report = Report {
            average: 48.8,
            median: 46.5,
            errors: 3,
        };
        assert_eq!(parse(TEXT, 8000).unwrap(), report);
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = parse(TEXT, 100).unwrap_err().to_string();
        assert_eq!(error, "8000 connections, not 100");
        let text = TEXT.replace("Reply status", "Replies");
        let error = parse(&text, 8000).unwrap_err().to_string();
        assert!(error.contains("`Reply status: `"), "{error}");
    }
}
