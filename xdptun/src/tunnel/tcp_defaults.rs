//! Window, scale and hop limit with which a TCP connection of this host begins.

use std::fs;
use std::path::Path;

use xdptun_common::tunnel::config::TcpDefaults;

/// The defaults for connections by an interface, from the settings of this network
/// namespace. Settings that cannot be read count as unchanged.
pub fn read(interface: &str) -> TcpDefaults {
    from_settings(|name| {
        let path = Path::new("/proc/sys/net").join(name.replace("<interface>", interface));
        fs::read_to_string(path).ok()
    })
}

/// `setting` gives the text of a setting below `/proc/sys/net`.
fn from_settings(setting: impl Fn(&str) -> Option<String>) -> TcpDefaults {
    let number = |name: &str| setting(name)?.trim().parse::<u32>().ok();
    let octet = |name: &str, default: u8| number(name).map_or(default, |value| value as u8);
    let (default, largest) = setting("ipv4/tcp_rmem")
        .and_then(|text| receive_buffers(&text))
        .unwrap_or((131_072, 6_291_456));
    // Older kernels show this setting only in the first network namespace.
    let largest = largest.max(number("core/rmem_max").unwrap_or(212_992));
    TcpDefaults {
        // Half of a buffer is for what it takes to keep the bytes
        // (`tcp_win_from_space`, `TCP_DEFAULT_SCALING_RATIO`).
        space: default / 2,
        window_scale: window_scale(largest.max(default / 2)),
        ecn: octet("ipv4/tcp_ecn", TcpDefaults::LINUX.ecn),
        ttl: octet("ipv4/ip_default_ttl", TcpDefaults::LINUX.ttl),
        hop_limit: octet(
            "ipv6/conf/<interface>/hop_limit",
            TcpDefaults::LINUX.hop_limit,
        ),
    }
}

/// The second and third number of `net.ipv4.tcp_rmem`, in bytes.
fn receive_buffers(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split_whitespace().skip(1).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// By how many bits windows must be shifted to name as many bytes
/// (`tcp_select_initial_window`).
fn window_scale(bytes: u32) -> u8 {
    /// `TCP_MAX_WSCALE`.
    const MOST: u32 = 14;
    bytes.max(1).ilog2().saturating_sub(15).min(MOST) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults(settings: &[(&str, &str)]) -> TcpDefaults {
        from_settings(|name| {
            let (_, text) = settings.iter().find(|(one, _)| *one == name)?;
            Some((*text).to_owned())
        })
    }

    #[test]
    fn a_host_as_linux_comes() {
        let expected = TcpDefaults {
            window_scale: 7,
            ..TcpDefaults::LINUX
        };
        assert_eq!(defaults(&[]), expected);
        let settings = [
            ("ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
            ("core/rmem_max", "212992\n"),
            ("ipv4/tcp_ecn", "2\n"),
            ("ipv4/ip_default_ttl", "64\n"),
            ("ipv6/conf/<interface>/hop_limit", "64\n"),
        ];
        assert_eq!(defaults(&settings), expected);
        assert_eq!(expected.first_window(1460), 64_240);
        assert_eq!(expected.first_window(1440), 64_800);
    }

    #[test]
    fn settings_count() {
        let settings = [
            ("ipv4/tcp_rmem", "4096 40000 67108864"),
            ("ipv4/tcp_ecn", "1"),
            ("ipv4/ip_default_ttl", "128"),
            ("ipv6/conf/<interface>/hop_limit", "255"),
        ];
        let expected = TcpDefaults {
            space: 20_000,
            window_scale: 11,
            ecn: 1,
            ttl: 128,
            hop_limit: 255,
        };
        assert_eq!(defaults(&settings), expected);
        assert_eq!(expected.first_window(1460), 18_980);
        // The larger of the two limits.
        let scale = |rmem_max| defaults(&[("core/rmem_max", rmem_max)]).window_scale;
        assert_eq!(
            [scale("16777216"), scale("4294967295"), scale("1")],
            [9, 14, 7]
        );
    }

    #[test]
    fn a_window_fits_its_field() {
        let wide = TcpDefaults {
            space: 1 << 20,
            ..TcpDefaults::LINUX
        };
        assert_eq!(
            (wide.first_window(1460), wide.first_window(0)),
            (65_535, 65_535)
        );
        let narrow = TcpDefaults {
            space: 1000,
            ..TcpDefaults::LINUX
        };
        assert_eq!(narrow.first_window(1460), 1000);
    }
}
