//! What the parser says, in words of the file.

/// How much a word looks like another that was meant, at least: 1 less the part of its letters that differ
/// (Damerau and Levenshtein).
const ALIKE: f64 = 0.6;

/// The message of a parser in words of the file. `parent` is the path of the table with the mistake.
pub fn in_words(message: &str, parent: &[String]) -> String {
    let mut words = message.split('`').skip(1).step_by(2);
    if message.starts_with("unknown field") {
        let unknown = words.next().unwrap_or_default();
        if let [first, name] = parent
            && first == "interface"
            && unknown.bytes().all(|byte| byte.is_ascii_digit())
        {
            return format!(
                "no key `{unknown}` here; write [interface.\"{name}.{unknown}\"] if that is the name \
                 of the interface"
            );
        }
        let known: Vec<&str> = words.collect();
        return format!("unknown key `{unknown}`; {}", meant(unknown, &known));
    }
    if message.starts_with("unknown variant") {
        let unknown = words.next().unwrap_or_default();
        let known: Vec<&str> = words.collect();
        return format!("`{unknown}` is not possible; {}", meant(unknown, &known));
    }
    if let Some(name) = missing(message) {
        return format!("`{name}` is missing");
    }
    if let Some(wanted) = message.strip_prefix("wanted ") {
        return format!(
            "expected {}",
            wanted.replace("string or table", "a word in quotes")
        );
    }
    let types = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "))
        .and_then(|types| types.split_once(", expected "));
    match types {
        Some((found, expected)) => {
            let of_parser = TYPES
                .into_iter()
                .find(|(name, _)| expected.starts_with(name));
            let expected = of_parser.map_or(expected, |(_, word)| word);
            format!("expected {expected}, found {found}")
        }
        None => message.to_owned(),
    }
}

/// The key that a message says is missing.
pub fn missing(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.strip_suffix('`')
}

/// What the parser calls types, and what they are in the file.
const TYPES: [(&str, &str); 7] = [
    ("u", "a number"),
    ("a nonzero u", "a number that is not 0"),
    ("a sequence", "a list"),
    ("a map", "a table"),
    ("struct ", "a table"),
    ("a string", "a text in quotes"),
    ("socket address", "a text like \"127.0.0.1:9469\""),
];

/// The word that may have been meant, or all that are known.
fn meant(unknown: &str, known: &[&str]) -> String {
    let alike = |word: &&&str| strsim::normalized_damerau_levenshtein(unknown, word);
    let nearest = known.iter().max_by(|a, b| alike(a).total_cmp(&alike(b)));
    match nearest.filter(|word| alike(word) >= ALIKE) {
        Some(word) => format!("did you mean `{word}`?"),
        None => {
            let known: Vec<_> = known.iter().map(|word| format!("`{word}`")).collect();
            format!("expected one of {}", known.join(", "))
        }
    }
}
