//! The file of rules: a first line of comment, then lines `port=address|port`.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use super::address::{Role, unusable};
use super::error::ForwardError;
use super::{Forward, Listen, Protocols, Source, To};
use crate::error::{Context as _, Result, bail};
use crate::host::ports::PortRange;

/// Reads a table file: a line of comment, then lines `port=address|port`.
///
/// # Errors
///
/// Of these [kinds](crate::error::Kind):
///
/// * `Io` or `Permission`: the file cannot be read;
/// * `Invalid`: lines do not say what to forward, each with line, column and what would be
///   right.
pub fn read_table(path: &Path) -> Result<Vec<Forward>> {
    let name = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    parse_table(&text).with_context(|| name.to_string())
}

/// Reads the text of a table file.
///
/// # Errors
///
/// `Invalid`, as of [`read_table`].
pub fn parse_table(text: &str) -> Result<Vec<Forward>> {
    let mut rules = Vec::new();
    let mut mistakes = Vec::new();
    // The line of each port that is forwarded.
    let mut lines = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let is_comment = number == 1;
        if line.trim().is_empty() {
            continue;
        }
        let entry = entry(line, |at, port| match lines.get(&port) {
            Some(earlier) => Err(Mistake::new(
                at,
                format!("port {port} stands in line {earlier} as well; leave one out"),
            )),
            None if is_comment => Ok(()),
            None => {
                lines.insert(port, number);
                Ok(())
            }
        });
        match entry {
            Ok(_) if is_comment => {
                let why = "the first line is a comment and forwards nothing; write a comment \
                           above this one";
                mistakes.push(Mistake::new(0, why).show(number, line));
            }
            Err(_) if is_comment => {}
            Ok(rule) => rules.push(rule),
            Err(mistake) => mistakes.push(mistake.show(number, line)),
        }
    }
    if !mistakes.is_empty() {
        bail!(Invalid, "{}", mistakes.join("\n"));
    }
    if rules.is_empty() {
        bail!(
            Invalid,
            "no line forwards a port; the first is a comment, {LINES}"
        );
    }
    Ok(rules)
}

/// How the lines of a table are written.
const LINES: &str = "lines are written port=address|port, as 7000=192.168.0.18|7000";

/// What is wrong with a line, and at which of its bytes.
struct Mistake {
    at: usize,
    why: String,
}

impl Mistake {
    fn new(at: usize, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { at, why }
    }

    /// As the parser of `config.toml` shows its own.
    fn show(&self, number: u32, line: &str) -> String {
        let before = line.chars().count() - line[self.at..].chars().count();
        let number = number.to_string();
        let margin = " ".repeat(number.len());
        // One place for each letter, so that the mark stands below the right one.
        let shown = line.trim_end().replace(char::is_control, " ");
        format!(
            "line {number}, column {column}: {why}\n\
             {margin} |\n{number} | {shown}\n{margin} | {before}^",
            column = before + 1,
            why = self.why,
            // A width of `format!` ends at 65535.
            before = " ".repeat(before),
        )
    }
}

/// Reads a line. `new` takes the byte of the port that is listened to and the port, and
/// says whether it may stand there.
fn entry(
    line: &str,
    new: impl FnOnce(usize, u16) -> Result<(), Mistake>,
) -> Result<Forward, Mistake> {
    let end = line.trim_end().len();
    let start = line.len() - line.trim_start().len();
    if line[start..].starts_with('#') {
        let why = format!("only the first line is a comment; {LINES}");
        return Err(Mistake::new(start, why));
    }
    let Some(equals) = line.find('=') else {
        let digits = line[start..end].find(|letter: char| !letter.is_ascii_digit());
        let at = digits.map_or(end, |digits| start + digits);
        return Err(Mistake::new(at, format!("expected `=`; {LINES}")));
    };
    let (at, text) = part(line, 0, equals);
    let (port, ports) = single_port(text).map_err(|why| Mistake::new(at, why))?;
    new(at, port)?;
    let Some(bar) = line[equals..].find('|').map(|bar| equals + bar) else {
        return Err(Mistake::new(end, format!("expected `|`; {LINES}")));
    };
    let (at, text) = part(line, equals + 1, bar);
    let address = table_address(text).map_err(|why| Mistake::new(at, why))?;
    let (at, text) = part(line, bar + 1, end);
    let (_, to_ports) = single_port(text).map_err(|why| Mistake::new(at, why))?;
    Ok(Forward {
        listen: Listen {
            address: None,
            ports,
            protocols: Protocols::Both,
        },
        to: vec![To {
            address,
            ports: to_ports,
            weight: 1,
        }],
        source: Source::Keep,
        steal: false,
    })
}

/// A part of a line without the spaces around it, and the byte where it begins.
fn part(line: &str, from: usize, to: usize) -> (usize, &str) {
    let text = &line[from..to];
    let text = text.trim_start();
    (to - text.len(), text.trim_end())
}

fn single_port(text: &str) -> Result<(u16, PortRange), String> {
    let ports: PortRange = text
        .parse()
        .map_err(|_| format!("`{text}` is not a port; ports are 1 to 65535, {LINES}"))?;
    match ports.bounds() {
        (first, last) if first == last => Ok((first, ports)),
        _ => Err(format!(
            "`{text}` is more than one port; write a line for each, or --listen and --to"
        )),
    }
}

fn table_address(text: &str) -> Result<IpAddr, String> {
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    if text.contains('%') {
        return Err(ForwardError::Zone { text: text.into() }.to_string());
    }
    let address = match bare {
        Some(bare) => bare.parse().map(IpAddr::V6).ok(),
        None => text.parse().ok(),
    };
    let address: IpAddr = address.ok_or_else(|| {
        format!("`{text}` is no address; host names are not looked up here, {LINES}")
    })?;
    match unusable(Role::To, address) {
        Some(why) => Err(format!("{address} {why}")),
        None => Ok(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::forward::check_all;
    use crate::config::forward::tests::rule;
    use crate::error::Kind;

    #[test]
    fn a_table_is_read() {
        let text = "# port forward table - each entry must be on a line {port=svr_addr|svr_port}\n\
                    7000=192.168.0.18|7000\r\n\
                    \n  \t\n\
                    8000 = 192.168.0.17 | 7000 \n\
                    9000=fd00::5|80\n\
                    9001=[fd00::5]|81";
        let expected = [
            rule("7000", &["192.168.0.18:7000"], "keep"),
            rule("8000", &["192.168.0.17:7000"], "keep"),
            rule("9000", &["[fd00::5]:80"], "keep"),
            rule("9001", &["[fd00::5]:81"], "keep"),
        ];
        let rules = parse_table(text).unwrap();
        assert_eq!(rules, expected);
        assert_eq!(check_all(&rules), Ok(()));
    }

    #[test]
    fn mistakes_of_a_table_are_shown_where_they_are() {
        for (line, column, hint) in [
            (
                "7000=x|7000",
                6,
                "`x` is no address; host names are not looked up here, lines are",
            ),
            ("7000=|7000", 6, "`` is no address"),
            ("7000=[10.0.0.5]|7000", 6, "`[10.0.0.5]` is no address"),
            ("7000=fd00::5%eth0|7000", 6, "zone"),
            ("7000=127.0.0.1|7000", 6, "`net.ipv4.route_localnet`"),
            ("7000=0.0.0.0|7000", 6, "0.0.0.0 is no address of a host"),
            ("7000= 224.0.0.1|7000", 7, "224.0.0.1 is a multicast group"),
            (
                "70000=10.0.0.5|7000",
                1,
                "`70000` is not a port; ports are 1 to 65535",
            ),
            ("  0=10.0.0.5|7000", 3, "`0` is not a port"),
            ("=10.0.0.5|7000", 1, "`` is not a port"),
            ("7000=10.0.0.5|0", 15, "`0` is not a port"),
            ("7000=10.0.0.5|", 15, "`` is not a port"),
            ("7000=10.0.0.5| x ", 16, "`x` is not a port"),
            ("7000=10.0.0.5|1|2", 15, "`1|2` is not a port"),
            (
                "7000-7009=10.0.0.5|7000-7009",
                1,
                "write a line for each, or --listen and --to",
            ),
            ("7000=10.0.0.5|7000-7009", 15, "more than one port"),
            (
                "7000=10.0.0.5:7000",
                19,
                "expected `|`; lines are written port=address|port",
            ),
            (
                "7000 10.0.0.5|7000",
                5,
                "expected `=`; lines are written port=address|port",
            ),
            ("7000", 5, "expected `=`"),
            ("é|", 1, "expected `=`"),
            ("7000=é|é", 6, "`é` is no address"),
            ("é=10.0.0.5|1", 1, "`é` is not a port"),
            ("# a comment", 1, "only the first line is a comment"),
            (
                " #7000=10.0.0.5|7000",
                2,
                "only the first line is a comment",
            ),
            (
                "6000=10.0.0.5|7000",
                1,
                "port 6000 stands in line 2 as well; leave one out",
            ),
        ] {
            let text = format!("# comment\n6000=10.0.0.5|6000\n{line}\n");
            let error = parse_table(&text).expect_err(line);
            assert_eq!(error.kind(), Kind::Invalid, "{error:#}");
            let error = error.to_string();
            let place = format!("line 3, column {column}: ");
            assert!(error.starts_with(&place), "{place}: {error}");
            assert!(error.contains(hint), "{hint}: {error}");
            assert!(
                error.contains(&format!("\n3 | {}\n", line.trim_end())),
                "{error}"
            );
        }
    }

    #[test]
    fn all_mistakes_of_a_table_are_shown() {
        let text = "7000=10.0.0.5|7000\n\t8000=10.0.0.5|x\n8001=10.0.0.5|1\n8001=y|1\n8000=z|1";
        let expected = "\
line 1, column 1: the first line is a comment and forwards nothing; write a comment above this one
  |
1 | 7000=10.0.0.5|7000
  | ^
line 2, column 16: `x` is not a port; ports are 1 to 65535, lines are written port=address|port, as 7000=192.168.0.18|7000
  |
2 |  8000=10.0.0.5|x
  |                ^
line 4, column 1: port 8001 stands in line 3 as well; leave one out
  |
4 | 8001=y|1
  | ^
line 5, column 1: port 8000 stands in line 2 as well; leave one out
  |
5 | 8000=z|1
  | ^";
        assert_eq!(parse_table(text).unwrap_err().to_string(), expected);
    }

    #[test]
    fn a_long_line_of_a_table_is_shown() {
        let text = format!("#\n{}=", "1".repeat(70_000));
        let error = parse_table(&text).unwrap_err().to_string();
        assert!(error.starts_with("line 2, column 1: "), "{error}");
        let text = format!("#\n{}x", "1".repeat(70_000));
        let error = parse_table(&text).unwrap_err().to_string();
        assert!(error.starts_with("line 2, column 70001: "), "{error}");
    }

    #[test]
    fn a_table_without_a_rule_is_refused() {
        for text in ["", "# comment", "# comment\n\n", "\n\n"] {
            let error = parse_table(text).expect_err(text).to_string();
            assert!(
                error.starts_with("no line forwards a port; the first is a comment"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_table_file_is_named() {
        let missing = Path::new("/nonexistent/port_fwd_table.config");
        let error = read_table(missing).unwrap_err();
        assert_eq!(error.kind(), Kind::Io);
        let shown = format!("{error:#}");
        let what = "cannot read /nonexistent/port_fwd_table.config: ";
        assert!(shown.starts_with(what), "{shown}");
        // Not a table.
        let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let error = read_table(&other).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        let shown = format!("{error:#}");
        assert!(
            shown.starts_with(&format!("{}: line 2, column ", other.display())),
            "{shown}"
        );
    }
}
