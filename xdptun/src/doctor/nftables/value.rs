//! What conditions compare packets with.

use serde_json::Value;

use crate::host::ports::PortRange;

/// The ports of a value: one port, or a range.
pub fn port_range(value: &Value) -> Option<PortRange> {
    let number = |value: &Value| u16::try_from(value.as_u64()?).ok();
    let (first, last) = match value["range"].as_array().map(Vec::as_slice) {
        Some([first, last]) => number(first).zip(number(last))?,
        _ => (number(value)?, number(value)?),
    };
    PortRange::new(first, last).ok()
}

/// Whether names, or prefixes of names, include an interface.
pub fn is_named(names: &[&Value], interface: &str) -> bool {
    let is_meant = |name: &str| match name.strip_suffix('*') {
        Some(prefix) => interface.starts_with(prefix),
        None => name == interface,
    };
    names.iter().filter_map(|name| name.as_str()).any(is_meant)
}
