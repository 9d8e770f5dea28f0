//! What stands where in the tables of a file.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// Removes what is at a place; its path, `None` if there is nothing. Of a list, the element goes that
/// holds the place, if there are others. The place of a list of `[[name]]` is that of its first table,
/// which goes alone if `is_table`.
pub(super) fn removed(
    table: &mut DeTable<'_>,
    place: &Range<usize>,
    is_table: bool,
) -> Option<Vec<String>> {
    let is_at = |span: Range<usize>| contains(&span, place);
    let mut at = None;
    for (key, value) in table.iter_mut() {
        let span = value.span();
        let mut has = is_at(key.span()) || is_at(span.clone());
        let inner = match value.get_mut() {
            _ if is_at(key.span()) => None,
            DeValue::Table(inner) => removed(inner, place, is_table),
            DeValue::Array(elements) => {
                // Those of `[[name]]` lie apart.
                has |= elements.iter().any(|one| is_at(one.span()));
                let inner = elements.iter_mut().find_map(|one| match one.get_mut() {
                    DeValue::Table(inner) => removed(inner, place, is_table),
                    _ => None,
                });
                let is_list = span == *place && !is_table;
                match inner {
                    None if !is_list => remove_element(elements, place),
                    inner => inner,
                }
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

/// Removes the element that holds a place, unless it is the only one. It has no name.
fn remove_element(elements: &mut DeArray<'_>, place: &Range<usize>) -> Option<Vec<String>> {
    let mut others = DeArray::new();
    for one in elements.iter().filter(|one| !contains(&one.span(), place)) {
        others.push(one.clone());
    }
    let is_one_less = !others.is_empty() && others.len() < elements.len();
    is_one_less.then(|| {
        *elements = others;
        Vec::new()
    })
}

/// The innermost list that holds a place, and where it stands; `None` if there is none, or if a table
/// in it holds the place.
pub(super) fn list_at<'t, 'a>(
    table: &'t DeTable<'a>,
    place: &Range<usize>,
) -> Option<(Range<usize>, &'t DeArray<'a>)> {
    table.iter().find_map(|(_, value)| match value.get_ref() {
        DeValue::Table(inner) => list_at(inner, place),
        DeValue::Array(list) => {
            let inner = tables(list).find_map(|(_, inner)| list_at(inner, place));
            let in_table = tables(list).any(|(span, _)| contains(&span, place));
            let is_there = contains(&value.span(), place) && !in_table;
            inner.or_else(|| is_there.then(|| (value.span(), list)))
        }
        _ => None,
    })
}

/// A table that has the list at a place with these elements, and nothing else beside what leads there.
pub(super) fn with_list<'a>(
    table: &DeTable<'a>,
    place: &Range<usize>,
    elements: &DeArray<'a>,
) -> Option<DeTable<'a>> {
    table.iter().find_map(|(key, value)| {
        let inner = match value.get_ref() {
            DeValue::Table(inner) => DeValue::Table(with_list(inner, place, elements)?),
            DeValue::Array(_) if value.span() == *place => DeValue::Array(elements.clone()),
            DeValue::Array(list) => tables(list).find_map(|(span, inner)| {
                let inner = DeValue::Table(with_list(inner, place, elements)?);
                let mut only = DeArray::new();
                only.push(Spanned::new(span, inner));
                Some(DeValue::Array(only))
            })?,
            _ => return None,
        };
        let mut only = DeTable::new();
        only.insert(key.clone(), Spanned::new(value.span(), inner));
        Some(only)
    })
}

/// The tables among the elements of a list, and where they stand.
fn tables<'t, 'a>(list: &'t DeArray<'a>) -> impl Iterator<Item = (Range<usize>, &'t DeTable<'a>)> {
    list.iter().filter_map(|one| match one.get_ref() {
        DeValue::Table(table) => Some((one.span(), table)),
        _ => None,
    })
}

/// Whether all of `place` lies in `span`.
pub(super) fn contains(span: &Range<usize>, place: &Range<usize>) -> bool {
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

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;
    use toml::de::Deserializer;

    use super::*;

    /// A list of a large file is read again without the rest.
    #[test]
    fn what_leads_to_a_list_stands_alone() {
        let text = "a = 1\n[b]\nc = [1]\n[[d.e]]\nf = 2\n[[d.e]]\ng = [3, 4]\nh = [5]\n";
        let table = DeTable::parse(text).unwrap().into_inner();
        let four = text.find('4').unwrap();
        let (at, list) = list_at(&table, &(four..four + 1)).unwrap();
        assert_eq!((&text[at.clone()], list.len()), ("[3, 4]", 2));
        let only = with_list(&table, &at, &DeArray::new()).unwrap();
        let expected = DeTable::parse("d = { e = [{ g = [] }] }").unwrap();
        let value = |table: DeTable<'_>| {
            toml::Table::deserialize(Deserializer::from(Spanned::new(0..0, table))).unwrap()
        };
        assert_eq!(value(only), value(expected.into_inner()));
    }
}
