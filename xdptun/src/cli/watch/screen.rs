//! A terminal that is redrawn in place.

use std::io::{self, Stdout, Write as _, stdout};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Print, PrintStyledContent, Stylize as _};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, size,
};
use crossterm::{execute, queue};

/// The alternate screen of standard output; dropping it brings back what the
/// terminal showed before.
pub struct Screen(Stdout);

impl Screen {
    /// Enters the alternate screen.
    pub fn enter() -> io::Result<Self> {
        // Made first: its drop undoes a half-done entry.
        let mut screen = Self(stdout());
        execute!(screen.0, EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Shows as much of a text as fits, from the top, and a hint in the last row.
    pub fn show(&mut self, text: &str, hint: &str) -> io::Result<()> {
        let (columns, rows) = usable(size()?);
        let last = rows.saturating_sub(1);
        let out = &mut self.0;
        queue!(out, BeginSynchronizedUpdate, Clear(ClearType::All))?;
        for (row, line) in (0..).zip(clipped(text, columns, last)) {
            queue!(out, MoveTo(0, row))?;
            // Without colour if `NO_COLOR` is set.
            match line.starts_with(LOST) {
                true => queue!(out, PrintStyledContent(line.red()))?,
                false => queue!(out, Print(line))?,
            }
        }
        for line in clipped(hint, columns, 1) {
            queue!(out, MoveTo(0, last), PrintStyledContent(line.dim()))?;
        }
        queue!(out, EndSynchronizedUpdate)?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        let _gone = execute!(self.0, Show, LeaveAlternateScreen);
    }
}

/// How lines about lost packets begin.
const LOST: &str = "  lost ";

/// The size of the terminal, or a default: a serial line reports zero.
const fn usable((columns, rows): (u16, u16)) -> (u16, u16) {
    (
        if columns == 0 { 80 } else { columns },
        if rows == 0 { 24 } else { rows },
    )
}

/// The lines of a text that fit a screen, each cut to its width.
fn clipped(text: &str, columns: u16, rows: u16) -> impl Iterator<Item = String> {
    text.lines()
        .take(rows.into())
        .map(move |line| line.trim_end().chars().take(columns.into()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_left_out() {
        let text = "first line\nsecond  \n\nfourth\n";
        let lines: Vec<String> = clipped(text, 6, 3).collect();
        assert_eq!(lines, ["first ", "second", ""]);
    }

    #[test]
    fn a_terminal_without_a_size_is_not_blank() {
        assert_eq!(usable((0, 0)), (80, 24));
        assert_eq!(usable((132, 0)), (132, 24));
        assert_eq!(usable((1, 1)), (1, 1));
    }
}
