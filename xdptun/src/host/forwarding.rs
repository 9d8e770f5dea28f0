//! Whether the kernel forwards packets.

use std::collections::BTreeSet;

use rtnetlink::IpVersion;

use super::sysctl;
use crate::error::Result;

/// The command after which the kernel forwards packets that come in by these interfaces, by
/// their names; `None` if it does so already.
///
/// # Errors
///
/// If a setting cannot be read.
pub fn missing(version: IpVersion, interfaces: &BTreeSet<String>) -> Result<Option<String>> {
    let all = match version {
        IpVersion::V4 => sysctl::number("ipv4/ip_forward")?,
        IpVersion::V6 => sysctl::number("ipv6/conf/all/forwarding")?,
    };
    let mut off = Vec::new();
    for name in interfaces {
        let own = match version {
            // That of all is copied to each when it changes, and has no say otherwise.
            IpVersion::V4 => sysctl::number(&format!("ipv4/conf/{name}/forwarding"))?,
            // Linux 6.17 has a setting for one interface, beside that of all.
            IpVersion::V6 => {
                let forced = sysctl::number(&format!("ipv6/conf/{name}/force_forwarding"))?;
                all.max(forced)
            }
        };
        if own == Some(0) {
            off.push(name.as_str());
        }
    }
    Ok(judge(version, all == Some(0), &off))
}

/// `off`: the interfaces that do not forward, as `is_off` says of the setting of all.
fn judge(version: IpVersion, is_off: bool, off: &[&str]) -> Option<String> {
    if off.is_empty() {
        return None;
    }
    let settings = match (version, is_off) {
        (IpVersion::V4, true) => vec!["net.ipv4.ip_forward=1".to_owned()],
        (IpVersion::V4, false) => {
            let of_each = |name: &&str| {
                let name = sysctl::interface(name);
                format!("net.ipv4.conf.{name}.forwarding=1")
            };
            off.iter().map(of_each).collect()
        }
        (IpVersion::V6, _) => vec!["net.ipv6.conf.all.forwarding=1".to_owned()],
    };
    Some(format!("sysctl -w {}", settings.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_lets_all_of_them_forward() {
        for (version, is_off, off, expected) in [
            (IpVersion::V4, true, &[][..], None),
            (
                IpVersion::V4,
                true,
                &["eth0"],
                Some("net.ipv4.ip_forward=1"),
            ),
            (
                IpVersion::V4,
                false,
                &["eth0.100", "lan0"],
                Some("net.ipv4.conf.eth0/100.forwarding=1 net.ipv4.conf.lan0.forwarding=1"),
            ),
            (IpVersion::V6, true, &[], None),
            (
                IpVersion::V6,
                true,
                &["eth0"],
                Some("net.ipv6.conf.all.forwarding=1"),
            ),
        ] {
            let expected = expected.map(|settings| format!("sysctl -w {settings}"));
            assert_eq!(judge(version, is_off, off), expected, "{off:?}");
        }
    }
}
