//! `ab`, which asks for a page again and again, each time over a connection of its own.

use anyhow::{Context, Result, ensure};
use xdptun_lab::command::run;

use super::tools;
use crate::methods::tcp::Ends;

/// Asks so many times, one after the other; how many requests a second were answered. A single one
/// without the page is an error.
pub fn measure(ends: Ends<'_>, requests: u32) -> Result<f64> {
    let mut command = ends.client.command(tools::ab());
    tools::with_libraries(&mut command);
    let url = format!("http://{}/", ends.entry);
    let text = run(command.args(["-q", "-n", &requests.to_string(), &url]))?;
    parse(&text, requests).with_context(|| text.clone())
}

fn parse(text: &str, requests: u32) -> Result<f64> {
    let complete: u32 = value(text, "Complete requests:")?.parse()?;
    let failed: u32 = value(text, "Failed requests:")?.parse()?;
    ensure!(
        complete == requests && failed == 0,
        "of {requests} requests {complete} were answered, and {failed} failed"
    );
    // A line that is there only if it has something to tell.
    let refused = value(text, "Non-2xx responses:");
    ensure!(refused.is_err(), "answers without the page");
    Ok(value(text, "Requests per second:")?.parse()?)
}

/// The word after the name at the beginning of a line.
fn value<'a>(text: &'a str, name: &str) -> Result<&'a str> {
    let after = text.lines().find_map(|line| line.strip_prefix(name));
    let word = after.and_then(|after| after.split_whitespace().next());
    word.with_context(|| format!("ab prints no `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Concurrency Level:      1
Complete requests:      50000
Failed requests:        0
Requests per second:    383.80 [#/sec] (mean)
";

    #[test]
    fn requests_a_second_are_read() {
        assert_eq!(parse(TEXT, 50_000).unwrap(), 383.80);
    }

    #[test]
    fn a_single_failure_is_an_error() {
        for (good, bad) in [
            ("Failed requests:        0", "Failed requests:        1"),
            (
                "Complete requests:      50000",
                "Complete requests:      49999",
            ),
            ("Concurrency", "Non-2xx responses:      1\nConcurrency"),
        ] {
            assert!(parse(&TEXT.replace(good, bad), 50_000).is_err(), "{bad}");
        }
    }
}
