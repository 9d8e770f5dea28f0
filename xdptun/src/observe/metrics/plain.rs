//! The text format of Prometheus itself, version 0.0.4, for programs that do not read OpenMetrics.
//!
//! It has the same lines of values. The names of families are those of their values here, an info is a
//! gauge, units are part of names alone, and there is no end mark
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

/// The content type of that text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether a client with this `Accept` header gets that text: it asks for plain text, and not for
/// OpenMetrics.
pub fn is_asked_for(accept: &str) -> bool {
    let has = |wanted: &str| {
        let types = accept.split(',').map(|one| one.split(';').next());
        types.flatten().any(|one| one.trim() == wanted)
    };
    has("text/plain") && !has("application/openmetrics-text")
}

/// That text, made of one in OpenMetrics.
pub fn from_openmetrics(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines() {
        if let Some(about) = line.strip_prefix("# HELP ") {
            help = about.split_once(' ');
            continue;
        }
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (family, kind) = typed.split_once(' ').unwrap_or((typed, "untyped"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                kind => ("", kind),
            };
            if let Some((_, words)) = help.take() {
                plain.push_str(&format!("# HELP {family}{suffix} {words}\n"));
            }
            plain.push_str(&format!("# TYPE {family}{suffix} {kind}\n"));
            continue;
        }
        if !line.starts_with('#') {
            plain.push_str(line);
            plain.push('\n');
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_the_names_of_their_values() {
        let text = "# HELP a_packets Packets.\n# TYPE a_packets counter\na_packets_total{x=\"# y\"} 7\n\
                    # HELP a_b About.\n# TYPE a_b info\na_b_info{v=\"1\"} 1\n\
                    # HELP a_size_bytes Size.\n# TYPE a_size_bytes gauge\n# UNIT a_size_bytes bytes\n\
                    a_size_bytes 1.0\n# EOF\n";
        let expected = "# HELP a_packets_total Packets.\n# TYPE a_packets_total counter\n\
                        a_packets_total{x=\"# y\"} 7\n\
                        # HELP a_b_info About.\n# TYPE a_b_info gauge\na_b_info{v=\"1\"} 1\n\
                        # HELP a_size_bytes Size.\n# TYPE a_size_bytes gauge\na_size_bytes 1.0\n";
        assert_eq!(from_openmetrics(text), expected);
    }

    #[test]
    fn only_who_asks_for_plain_text_gets_it() {
        for (accept, plain) in [
            ("text/plain", true),
            ("text/plain;version=0.0.4;q=0.5, */*;q=0.1", true),
            (
                "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
                false,
            ),
            ("*/*", false),
            ("", false),
        ] {
            assert_eq!(is_asked_for(accept), plain, "{accept}");
        }
    }
}
