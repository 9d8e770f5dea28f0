//! What stands where in the tables of a file.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// Removes what is at a place; its path, `None` if there is nothing.
pub(super) fn removed(table: &mut DeTable<'_>, place: &Range<usize>) -> Option<Vec<String>> {
    let is_at = |span: Range<usize>| holds(&span, place);
    let mut at = None;
    for (key, value) in table.iter_mut() {
        let mut has = is_at(key.span()) || is_at(value.span());
        let inner = match value.get_mut() {
            _ if is_at(key.span()) => None,
            DeValue::Table(inner) => removed(inner, place),
            DeValue::Array(elements) => {
                // Those of `[[name]]` lie apart.
                has |= elements.iter().any(|one| is_at(one.span()));
                elements.iter_mut().find_map(|one| match one.get_mut() {
                    DeValue::Table(inner) => removed(inner, place),
                    _ => None,
                })
            }
            _ => None,
        };
        if let Some(mut path) = inner {
            path.insert(0, key.get_ref().to_string());
            return Some(path);
        }
        if has {
            at = Some(key.get_ref().to_string());
        }
    }
    let name = at?;
    table.remove(name.as_str()).map(|_| vec![name])
}

/// The list that a place is in, or that stands there, unless it is in a table of that list.
pub(super) fn list_at<'t, 'a>(
    table: &'t mut DeTable<'a>,
    place: &Range<usize>,
) -> Option<&'t mut DeArray<'a>> {
    let mut values = table.iter_mut().map(|(_, value)| value);
    values.find_map(|value| list_in(value, place))
}

fn list_in<'t, 'a>(
    value: &'t mut Spanned<DeValue<'a>>,
    place: &Range<usize>,
) -> Option<&'t mut DeArray<'a>> {
    let is_there = holds(&value.span(), place);
    match value.get_mut() {
        DeValue::Table(inner) => list_at(inner, place),
        DeValue::Array(list) => {
            if let Some(inner) = list
                .iter_mut()
                .position(|one| list_in(one, place).is_some())
            {
                return list.get_mut(inner).and_then(|one| list_in(one, place));
            }
            let in_table =
                |one: &Spanned<DeValue<'_>>| one.get_ref().is_table() && holds(&one.span(), place);
            (is_there && !list.iter().any(in_table)).then_some(list)
        }
        _ => None,
    }
}

/// Whether a place is within `span`.
pub(super) fn holds(span: &Range<usize>, place: &Range<usize>) -> bool {
    span.start <= place.start && place.end <= span.end
}

/// The place of the last name of a path.
pub(super) fn key(table: &DeTable<'_>, path: &[&str]) -> Option<Range<usize>> {
    let (name, rest) = path.split_first()?;
    let (key, value) = table.get_key_value(*name)?;
    match (rest, value.get_ref()) {
        ([], _) => Some(key.span()),
        (rest, DeValue::Table(inner)) => self::key(inner, rest),
        _ => None,
    }
}
