//! Two values side by side, as far as they differ.

use std::fmt::{Debug, Write as _};

const LINE: usize = 16;

/// A hexdump of both; `-` is what was expected, `+` what came, `^` marks the
/// bytes that differ.
#[must_use]
pub fn hexdump(expected: &[u8], actual: &[u8]) -> String {
    let mut text = format!("expected {} bytes, got {}\n", expected.len(), actual.len());
    for start in (0..expected.len().max(actual.len())).step_by(LINE) {
        let (left, right) = (line(expected, start), line(actual, start));
        if left == right {
            writeln!(text, "  {start:04x} {}", bytes(left)).expect("a string");
            continue;
        }
        writeln!(text, "- {start:04x} {}", bytes(left)).expect("a string");
        writeln!(text, "+ {start:04x} {}", bytes(right)).expect("a string");
        let marks: String = (0..LINE)
            .map(|at| {
                if left.get(at) == right.get(at) {
                    "   "
                } else {
                    " ^^"
                }
            })
            .collect();
        writeln!(text, "       {}", marks.trim_end()).expect("a string");
    }
    text
}

fn line(bytes: &[u8], start: usize) -> &[u8] {
    let end = bytes.len().min(start + LINE);
    bytes.get(start..end).unwrap_or_default()
}

fn bytes(line: &[u8]) -> String {
    line.iter().map(|byte| format!(" {byte:02x}")).collect()
}

/// The lines of the two in which they differ; empty if none does.
#[must_use]
pub fn fields(expected: &impl Debug, actual: &impl Debug) -> String {
    let (expected, actual) = (format!("{expected:#?}"), format!("{actual:#?}"));
    if expected == actual {
        return String::new();
    }
    if expected.lines().count() != actual.lines().count() {
        return format!("expected {expected}\ngot {actual}\n");
    }
    let mut text = String::new();
    for (left, right) in expected.lines().zip(actual.lines()) {
        if left != right {
            writeln!(text, "- {}\n+ {}", left.trim(), right.trim()).expect("a string");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_the_bytes_that_differ() {
        let expected: Vec<u8> = (0..20).collect();
        let mut actual = expected.clone();
        actual[17] = 0xff;
        actual.push(0x14);
        assert_eq!(
            hexdump(&expected, &actual),
            "expected 20 bytes, got 21\n  \
             0000  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f\n\
             - 0010  10 11 12 13\n\
             + 0010  10 ff 12 13 14\n           \
             ^^       ^^\n"
        );
    }

    #[test]
    fn names_the_fields_that_differ() {
        let (a, b) = (Some([1, 2, 3]), Some([1, 5, 3]));
        assert_eq!(fields(&a, &a), "");
        assert_eq!(fields(&a, &b), "- 2,\n+ 5,\n");
    }
}
