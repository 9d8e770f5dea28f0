//! All mistakes of a file at once, each with its place.

use std::fmt::{self, Write as _};
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer};

use super::places::{contains, key, list_at, removed, with_list};
use super::words::{in_words, missing};
use crate::error::{Error, Kind, Result};

/// As many are shown.
const MOST: usize = 20;

/// As much of a line is shown, in letters.
const WIDTH: usize = 70;

/// The tables of a file, which know their places, and its mistakes so far.
pub struct Reading<'a> {
    text: &'a str,
    table: DeTable<'a>,
    mistakes: Vec<Mistake>,
    /// Whether there are more than are shown.
    has_more: bool,
}

struct Mistake {
    /// Where it is, in bytes from the start; `None` if it is in no one place.
    place: Option<Range<usize>>,
    what: String,
    /// Whether the place is the mistake, and is shown; else it is in the table that begins there.
    is_there: bool,
}

impl<'a> Reading<'a> {
    /// Reads a text.
    ///
    /// # Errors
    ///
    /// [`Kind::Invalid`] with all mistakes, if there are any.
    pub fn of<T: DeserializeOwned>(text: &'a str) -> Result<(T, Self)> {
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut reading = Self {
            text,
            table: table.into_inner(),
            mistakes: Vec::new(),
            has_more: false,
        };
        for error in &errors {
            reading.add(error.span(), error.message().to_owned());
        }
        // Of a text that is no TOML, too little is known to say more.
        reading.end()?;
        let value = reading.value()?;
        Ok((value, reading))
    }

    /// What the tables say. After a mistake they are read again without what is wrong.
    fn value<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut rest = self.table.clone();
        let mut gone = Vec::new();
        while !self.has_more {
            let whole = Spanned::new(0..self.text.len(), rest.clone());
            let error = match T::deserialize(Deserializer::from(whole)) {
                Ok(value) => return self.end().map(|()| value),
                Err(error) => error,
            };
            let message = error.message();
            let place = error.span();
            // What was wrong with it has been said.
            let missing = missing(message);
            let is_told = missing.is_some_and(|name| gone.iter().any(|one| one == name));
            let list = match &place {
                Some(place) if !is_told => wrong_elements::<T>(&rest, place, message),
                _ => None,
            };
            let at = list.as_ref().map(|(at, _)| at).or(place.as_ref());
            let path = at.and_then(|at| removed(&mut rest, at, missing.is_some()));
            let parent = path.as_ref().and_then(|path| path.split_last());
            let parent = parent.map_or(&[][..], |(_, parent)| parent);
            if let Some((_, wrong)) = list {
                for (place, what) in wrong {
                    self.add(Some(place), in_words(&what, parent));
                }
            } else if !is_told {
                self.add(place, in_words(message, parent));
            }
            match path.and_then(|mut path| path.pop()) {
                Some(name) => gone.push(name),
                None => break,
            }
        }
        Err(self.error())
    }

    /// Adds a mistake of the table with this path.
    pub fn add_at(&mut self, path: &[&str], error: &Error) {
        let place = key(&self.table, path);
        self.push(place, format!("{error:#}"), false);
    }

    fn add(&mut self, place: Option<Range<usize>>, what: String) {
        self.push(place, what, true);
    }

    fn push(&mut self, place: Option<Range<usize>>, what: String, is_there: bool) {
        match self.mistakes.len() {
            MOST => self.has_more = true,
            _ => self.mistakes.push(Mistake {
                place,
                what,
                is_there,
            }),
        }
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// As [`Reading::of`].
    pub fn end(&mut self) -> Result<()> {
        match self.mistakes.is_empty() {
            true => Ok(()),
            false => Err(self.error()),
        }
    }

    fn error(&mut self) -> Error {
        self.mistakes.sort_by_key(|mistake| {
            let place = mistake.place.as_ref();
            place.map_or(usize::MAX, |place| place.start)
        });
        Error::new(Kind::Invalid, self.to_string())
    }
}

impl fmt::Display for Reading<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let count @ 2.. = self.mistakes.len() {
            let more = if self.has_more { "more than " } else { "" };
            writeln!(f, "{more}{count} mistakes")?;
        }
        for (number, mistake) in self.mistakes.iter().enumerate() {
            if number != 0 {
                f.write_char('\n')?;
            }
            mistake.show(self.text, f)?;
        }
        Ok(())
    }
}

impl Mistake {
    /// Shows it below the line that it is in.
    fn show(&self, text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(place) = &self.place else {
            return f.write_str(&self.what);
        };
        let (before, rest) = text.split_at(text.floor_char_boundary(place.start));
        let number = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let column = before[start..].chars().count() + 1;
        write!(f, "line {number}, column {column}: {}", self.what)?;
        if !self.is_there {
            return Ok(());
        }
        let line = text[start..].lines().next().unwrap_or_default();
        // Of a long line, what is around the place.
        let skipped = column.saturating_sub(WIDTH / 2);
        let skipped = if column < WIDTH { 0 } else { skipped };
        let shown: String = line.chars().skip(skipped).take(WIDTH).collect();
        let indent = shown.chars().take(column - 1 - skipped);
        let indent: String = indent
            .map(|letter| if letter == '\t' { '\t' } else { ' ' })
            .collect();
        let wrong = rest
            .get(..place.len())
            .and_then(|wrong| wrong.lines().next());
        let width = wrong.map_or(1, |wrong| wrong.chars().count());
        let room = WIDTH.saturating_sub(indent.chars().count());
        let carets = "^".repeat(width.min(room).max(1));
        let margin = " ".repeat(number.to_string().len());
        write!(f, "\n{number} | {shown}\n{margin} | {indent}{carets}")
    }
}

/// A list that elements are wrong in: where it stands, and each mistake with its place.
type WrongList = (Range<usize>, Vec<(Range<usize>, String)>);

/// The mistakes of the elements of the list that a place is in, and one more than are shown at most. serde
/// stops at the first, and says of an untagged enum where the list is, not the element; so each element
/// is read alone.
fn wrong_elements<T: DeserializeOwned>(
    table: &DeTable<'_>,
    place: &Range<usize>,
    message: &str,
) -> Option<WrongList> {
    let (at, list) = list_at(table, place)?;
    // Not all of a large file for each element.
    let around = with_list(table, &at, &DeArray::new())?;
    let read = |elements: &DeArray<'_>| {
        let whole = Spanned::new(0..at.end, with_list(&around, &at, elements)?);
        let error = T::deserialize(Deserializer::from(whole)).err()?;
        Some((error.span()?, error.message().to_owned()))
    };
    // The mistake is that there is a list.
    if read(&DeArray::new()).is_some_and(|(found, what)| found == at && what == message) {
        return None;
    }
    let mistake = |element: &Spanned<DeValue<'_>>| {
        let mut only = DeArray::new();
        only.push(element.clone());
        let (found, what) = read(&only)?;
        let place = match contains(&element.span(), &found) {
            true => found,
            false if found == at => element.span(),
            // It is about what was left out.
            false => return None,
        };
        Some((place, what))
    };
    let wrong: Vec<_> = list.iter().filter_map(mistake).take(MOST + 1).collect();
    (!wrong.is_empty()).then_some((at, wrong))
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn mistakes(text: &str) -> String {
        format!("{:#}", Config::parse(text).unwrap_err())
    }

    #[test]
    fn all_mistakes_are_shown_at_once() {
        let text = "log-levle = \"info\"\n\
                    [interface.eth0]\n\
                    \tprots = [8000]\n\
                    \tkeepalive = \"soon\"  # a comment\n\
                    [interface.eth1]\n\
                    ports = [1]\n\
                    ingress = \"xpd\"\n";
        let expected = "4 mistakes\n\
            line 1, column 1: unknown key `log-levle`; did you mean `log-level`?\n\
            1 | log-levle = \"info\"\n  \
              | ^^^^^^^^^\n\
            line 3, column 2: unknown key `prots`; did you mean `ports`?\n\
            3 | \tprots = [8000]\n  \
              | \t^^^^^\n\
            line 4, column 14: `soon` is no time; write 25, \"25s\", \"10m\", \"2h\" or \"1d\"\n\
            4 | \tkeepalive = \"soon\"  # a comment\n  \
              | \t            ^^^^^^\n\
            line 7, column 11: `xpd` is not possible; did you mean `xdp`?\n\
            7 | ingress = \"xpd\"\n  \
              |           ^^^^^";
        assert_eq!(mistakes(text), expected);
    }

    #[test]
    fn every_mistake_of_a_list_is_shown() {
        let told = mistakes("[interface.eth0]\nports = [5555, \"x-1\", 70000, \"1-\"]\n");
        let places: Vec<_> = told
            .lines()
            .filter(|line| line.starts_with("line"))
            .collect();
        let [text, number, range] = places[..] else {
            panic!("{told}")
        };
        assert!(text.starts_with("line 2, column 16: "), "{told}");
        assert!(number.starts_with("line 2, column 23: "), "{told}");
        assert!(range.starts_with("line 2, column 30: "), "{told}");
        let two = "\"10.0.0.1\", \"a b\", \"10.0.0.0/33\"";
        let told = mistakes(&format!("[interface.eth0]\nports = [1]\npeers = [{two}]\n"));
        assert!(told.starts_with("2 mistakes\n"), "{told}");
    }

    #[test]
    fn every_mistake_in_tables_of_a_list_is_shown() {
        let peers = "[{ peer = \"bad!\" }, { peer = \"bad2!\" }, \"c d\"]";
        let told = mistakes(&format!("[interface.eth0]\nports = [1]\npeers = {peers}\n"));
        assert!(told.starts_with("3 mistakes\n"), "{told}");
        // Of two kinds.
        let told = mistakes("[interface.eth0]\nports = [99999999999999999999999, \"x\"]\n");
        assert!(told.starts_with("2 mistakes\n"), "{told}");
        // There should be none.
        let told = mistakes("[[interface]]\nports = [1]\n[[interface]]\nports = [2]\n");
        assert!(told.starts_with("line 1, "), "{told}");
        let rule = "[[interface.eth0.forward]]\nto = \"10.0.0.1:1\"\nlisten = ";
        let told = mistakes(&format!("[interface.eth0]\n{rule}0\n{rule}\"x\"\n"));
        assert!(told.starts_with("2 mistakes\n"), "{told}");
    }

    #[test]
    fn interfaces_with_impossible_settings_are_all_named() {
        let text =
            "[interface.eth0]\n[interface.eth1]\nports = [1]\n[interface.\"a b\"]\nports = [1]\n";
        let told = mistakes(text);
        assert!(
            told.starts_with("2 mistakes\nline 1, column 12: interface eth0: "),
            "{told}"
        );
        assert!(
            told.contains("line 4, column 12: `a b` cannot be the name"),
            "{told}"
        );
    }

    /// A mistake in a value does not make its key missing.
    #[test]
    fn one_mistake_is_told_once() {
        for text in [
            "forward = [{ listen = 0, to = \"10.0.0.5:1\" }]",
            "nat = { inside = 7 }",
            "ports = [1]\npeers = [{ peer = \"bad!\" }]",
        ] {
            let told = mistakes(&format!("[interface.eth0]\n{text}\n"));
            assert!(told.starts_with("line "), "{told}");
        }
        let forward = "[[interface.eth0.forward]]\nlisten = 1\nto = \"10.0.0.5:1\"\n\
                       [[interface.eth0.forward]]\nlisten = 2\n[interface.eth1]\nprots = [1]\n";
        let told = mistakes(forward);
        assert!(told.starts_with("2 mistakes\nline 4, "), "{told}");
        assert!(
            told.contains("\nline 7, column 1: unknown key `prots`"),
            "{told}"
        );
    }

    #[test]
    fn a_long_line_is_shown_around_the_place() {
        let many = vec!["\"10.0.0.1\""; 7000].join(", ");
        let text = format!("[interface.eth0]\nports = [1]\nx = [{many}]\npeers = [{many}, 7]\n");
        let told = mistakes(&text);
        assert!(told.lines().all(|line| line.len() < 200), "{told}");
        let letters: String = "ä".repeat(300);
        let told = mistakes(&format!("x = \"{letters}\"  # {letters}\r\n"));
        assert!(
            told.starts_with("line 1, column 1: unknown key `x`"),
            "{told}"
        );
        assert_eq!(told.lines().count(), 3, "{told}");
    }

    #[test]
    fn a_text_of_another_kind_is_not_shown_whole() {
        let told = mistakes(&"{ \"not\": [toml] }\n".repeat(500));
        assert!(told.starts_with("more than 20 mistakes\n"), "{told}");
        assert_eq!(told.lines().count(), 61);
    }

    #[test]
    fn a_name_with_a_dot_wants_quotes() {
        let told = mistakes("[interface.eth0.100]\nports = [1]\n");
        assert!(told.contains("write [interface.\"eth0.100\"]"), "{told}");
    }

    #[test]
    fn all_that_is_no_toml_is_shown() {
        let told = mistakes("metrics =\n[interface.eth0]\nports =\n");
        assert!(told.starts_with("2 mistakes\nline 1, "), "{told}");
        assert!(told.contains("\nline 3, "), "{told}");
    }

    #[test]
    fn words_of_the_parser_are_put_in_those_of_the_file() {
        for (text, expected) in [
            ("log-level = 3", "expected a word in quotes"),
            (
                "metrics = 3",
                "expected a text like \"127.0.0.1:9469\", found integer `3`",
            ),
            (
                "max-sessions = \"many\"",
                "expected a number, found string \"many\"",
            ),
            ("interface = 3", "expected a table, found integer `3`"),
            ("[[interface]]\n", "expected a table, found sequence"),
        ] {
            let told = mistakes(text);
            assert!(told.contains(expected), "{told}");
            assert!(!told.contains("invalid type"), "{told}");
        }
    }
}
