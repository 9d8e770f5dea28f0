//! Words of messages.

/// The names of the first few things, and how many more there are.
#[must_use]
pub fn some_of(all: &[impl ToString]) -> String {
    const NAMED: usize = 3;
    let named: Vec<String> = all.iter().take(NAMED).map(ToString::to_string).collect();
    let named = named.join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_of_many_are_named() {
        assert_eq!(some_of(&[1]), "1");
        assert_eq!(some_of(&[1, 2, 3]), "1, 2, 3");
        assert_eq!(some_of(&[1, 2, 3, 4, 5]), "1, 2, 3 and 2 more");
    }
}
