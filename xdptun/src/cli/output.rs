//! Standard output for people: no line is wider than the terminal.

use std::io::{self, IsTerminal as _, Stdout, Write};

use textwrap::{Options, wrap};

/// Columns of a terminal that does not say how many it has, as a serial line.
const USUAL: u16 = 80;

/// Where the text of a line may begin behind names, in columns; what goes on below begins there.
const NAMES: usize = 30;

/// The columns of the terminal that standard output is; `None` if it is none.
pub fn columns() -> Option<usize> {
    let out = io::stdout();
    out.is_terminal().then(|| {
        let columns = crossterm::terminal::size().map_or(0, |(columns, _)| columns);
        match columns {
            0 => USUAL.into(),
            columns => columns.into(),
        }
    })
}

/// Standard output. A line that is wider than its terminal goes on below its text; what is no terminal
/// gets lines as they are, for other programs.
pub fn output() -> Fitted<Stdout> {
    Fitted {
        out: io::stdout(),
        columns: columns(),
        line: Vec::new(),
    }
}

/// Writes lines that fit.
pub struct Fitted<W: Write> {
    out: W,
    columns: Option<usize>,
    /// The beginning of a line.
    line: Vec<u8>,
}

impl<W: Write> Fitted<W> {
    fn end_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        match (self.columns, str::from_utf8(&line)) {
            (Some(columns), Ok(text)) => self.out.write_all(fit(text, columns).as_bytes()),
            _ => self.out.write_all(&line),
        }
    }
}

impl<W: Write> Write for Fitted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.end_line()?;
            }
        }
        Ok(bytes.len())
    }

    /// Leaves the beginning of a line for its end.
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A line, with its end, in as many lines as it takes.
fn fit(line: &str, columns: usize) -> String {
    let text = line.trim_end();
    if text.chars().count() <= columns {
        return format!("{text}\n");
    }
    let indent = " ".repeat(text_column(text).min(columns / 2));
    let options = Options::new(columns)
        .subsequent_indent(&indent)
        .break_words(false);
    wrap(text, options).join("\n") + "\n"
}

/// Where the text of a line begins: behind names, which two spaces end, or behind its indent.
fn text_column(line: &str) -> usize {
    let indent = line.len() - line.trim_start().len();
    let mut begins = indent + 2;
    let mut spaces = 0;
    for (column, letter) in line.chars().enumerate().skip(indent).take(NAMES) {
        match letter {
            ' ' => spaces += 1,
            _ if spaces >= 2 => (begins, spaces) = (column, 0),
            _ => spaces = 0,
        }
    }
    begins
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(text: &str, columns: Option<usize>) -> String {
        let mut fitted = Fitted {
            out: Vec::new(),
            columns,
            line: Vec::new(),
        };
        // In parts, as formatting writes.
        for part in text.as_bytes().chunks(3) {
            fitted.write_all(part).unwrap();
        }
        String::from_utf8(fitted.out).unwrap()
    }

    #[test]
    fn long_lines_go_on_below_their_text() {
        let text = "  MTU    1500; for WireGuard inside 1428\neth0: takes all peers for phantuns\n";
        assert_eq!(fitted(text, None), text);
        assert_eq!(
            fitted(text, Some(24)),
            "  MTU    1500; for\n         WireGuard\n         inside 1428\n\
             eth0: takes all peers\n  for phantuns\n"
        );
        let narrow = fitted(text, Some(20));
        assert!(narrow.lines().all(|line| line.len() <= 20), "{narrow}");
    }

    #[test]
    fn what_cannot_be_broken_stays_whole() {
        let address = "2001:0db8:1234:5678:9abc:def0:1234:5678\n";
        assert_eq!(fitted(address, Some(20)), address);
    }
}
