//! Standard output and standard error for people: no line is wider than the terminal, except for
//! commands to copy.

use std::io::{self, IsTerminal, Stderr, Stdout, Write};
use std::os::fd::AsFd;

use terminal_size::{Width, terminal_size_of};
use textwrap::core::{Word, display_width};
use textwrap::{Options, WordSeparator, WordSplitter, wrap};

/// Columns of a terminal that does not say how many it has, as a serial line.
const USUAL: u16 = 80;

/// Where the text of a line may begin behind names, in columns; what goes on below begins there.
const NAMES: usize = 30;

/// The columns of the terminal that standard output is; `None` if it is none.
pub fn columns() -> Option<usize> {
    columns_of(&io::stdout())
}

fn columns_of(out: &(impl IsTerminal + AsFd)) -> Option<usize> {
    out.is_terminal().then(|| {
        let columns = terminal_size_of(out).map_or(USUAL, |(Width(columns), _)| columns);
        columns.into()
    })
}

/// Standard output. A line that is wider than its terminal goes on below its text; what is no terminal
/// gets lines as they are, for other programs.
pub fn output() -> Fitted<Stdout> {
    Fitted::new(io::stdout())
}

/// Standard error, as [`output`] is standard output.
pub fn error_output() -> Fitted<Stderr> {
    Fitted::new(io::stderr())
}

/// Writes lines that fit.
pub struct Fitted<W: Write> {
    out: W,
    columns: Option<usize>,
    /// The beginning of a line.
    line: Vec<u8>,
}

impl<W: Write + IsTerminal + AsFd> Fitted<W> {
    fn new(out: W) -> Self {
        Self {
            columns: columns_of(&out),
            out,
            line: Vec::new(),
        }
    }
}

impl<W: Write> Fitted<W> {
    /// The columns of its terminal; `None` if it is none.
    pub const fn columns(&self) -> Option<usize> {
        self.columns
    }
}

impl<W: Write> Write for Fitted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(columns) = self.columns else {
            return self.out.write(bytes);
        };
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                let line = String::from_utf8_lossy(&line);
                self.out.write_all(wrapped(&line, columns).as_bytes())?;
            }
        }
        Ok(bytes.len())
    }

    /// Writes the beginning of a line as well.
    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&std::mem::take(&mut self.line))?;
        self.out.flush()
    }
}

/// A line, with its end, in as many lines as it takes.
fn wrapped(line: &str, columns: usize) -> String {
    let text = line.trim_end();
    if display_width(text) <= columns || is_quote(text) {
        return format!("{text}\n");
    }
    let indent = " ".repeat(text_column(text).min(columns / 2));
    let options = Options::new(columns)
        .subsequent_indent(&indent)
        .word_separator(WordSeparator::Custom(words))
        .word_splitter(WordSplitter::NoHyphenation)
        .break_words(false);
    let lines = wrap(text, options).into_iter();
    // Where the first word does not fit behind its indent, there is a blank line before it.
    let lines = lines.filter(|line| !line.trim().is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

/// Whether it shows a line of a file, or marks a place in it, as mistakes do.
fn is_quote(line: &str) -> bool {
    let number = |letter: char| letter.is_ascii_digit() || letter == ' ';
    line.trim_start_matches(number).starts_with("| ")
}

/// The words of a line. What stands between backticks is one: a command that can be copied.
fn words(line: &str) -> Box<dyn Iterator<Item = Word<'_>> + '_> {
    let is_even = line.matches('`').count().is_multiple_of(2);
    let (mut words, mut start, mut in_command) = (Vec::new(), 0, false);
    for (at, letter) in line.char_indices() {
        in_command ^= is_even && letter == '`';
        let ends = letter == ' ' && !in_command && !line[at + 1..].starts_with(' ');
        if ends {
            words.push(Word::from(&line[start..=at]));
            start = at + 1;
        }
    }
    words.push(Word::from(&line[start..]));
    Box::new(words.into_iter())
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
        fitted.flush().unwrap();
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
        assert_eq!(fitted("no end", Some(24)), "no end");
    }

    #[test]
    fn what_cannot_be_broken_stays_whole() {
        for whole in [
            "2001:0db8:1234:5678:9abc:def0:1234:5678\n",
            "a-name-with-hyphens-and-more\n",
            "12 | ports = [8000, 8001, 8002]\n   |                     ^^^^\n",
        ] {
            assert_eq!(fitted(whole, Some(20)), whole);
        }
    }

    #[test]
    fn commands_can_be_copied() {
        let text = "fail  mtu  too large; fix: `ip link set mtu 1420 dev wg0`, and again\n";
        let expected = "fail  mtu  too large;\n           fix:\n           \
                        `ip link set mtu 1420 dev wg0`,\n           and again\n";
        assert_eq!(fitted(text, Some(24)), expected);
        // One backtick is none.
        assert_eq!(
            fitted("a ` b c d e f g\n", Some(8)),
            "a ` b c\n  d e f\n  g\n"
        );
    }
}
