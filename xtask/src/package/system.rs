//! The systems that packages are made for: where things are there, and what starts services.

/// A kind of system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Debian, Ubuntu, Raspberry Pi OS; any with systemd, by the archive.
    Debian,
    /// Fedora, openSUSE and others with rpm.
    Rpm,
    /// Arch Linux.
    Arch,
    /// Alpine, with OpenRC.
    Alpine,
    /// OpenWrt, with procd.
    OpenWrt,
}

/// A file of `xdptun/package`, where it goes, and its permissions.
pub type Copied = (&'static str, &'static str, u32);

/// The settings of `xdptun run`.
const SETTINGS: Copied = ("config.toml", "etc/xdptun/config.toml", 0o644);

const SYSTEMD: [Copied; 8] = [
    SETTINGS,
    (
        "xdptun.service",
        "usr/lib/systemd/system/xdptun.service",
        0o644,
    ),
    (
        "xdptun@.service",
        "usr/lib/systemd/system/xdptun@.service",
        0o644,
    ),
    // Settings that both units share.
    (
        "common.conf",
        "usr/lib/systemd/system/xdptun.service.d/10-common.conf",
        0o644,
    ),
    (
        "common.conf",
        "usr/lib/systemd/system/xdptun@.service.d/10-common.conf",
        0o644,
    ),
    ("sysusers.conf", "usr/lib/sysusers.d/xdptun.conf", 0o644),
    ("tmpfiles.conf", "usr/lib/tmpfiles.d/xdptun.conf", 0o644),
    ("eth0.env", "usr/share/doc/xdptun/examples/eth0.env", 0o644),
];

const OPENRC: [Copied; 2] = [
    SETTINGS,
    ("alpine/xdptun.initd", "etc/init.d/xdptun", 0o755),
];

const PROCD: [Copied; 4] = [
    SETTINGS,
    // A firmware upgrade keeps what is there, the secrets among it.
    ("openwrt/keep", "lib/upgrade/keep.d/xdptun", 0o644),
    ("openwrt/xdptun.init", "etc/init.d/xdptun", 0o755),
    // The settings hold names of secrets' files; other services' files there are root's alone too.
    ("openwrt/xdptun.config", "etc/config/xdptun", 0o600),
];

/// Licences where they are not Debian's `copyright`.
pub const LICENCES: &str = "usr/share/licenses/xdptun";

impl System {
    /// What starts services there, and its settings.
    pub fn service_files(self) -> &'static [Copied] {
        match self {
            Self::Debian | Self::Rpm | Self::Arch => &SYSTEMD,
            Self::Alpine => &OPENRC,
            Self::OpenWrt => &PROCD,
        }
    }

    /// Whether there is room for manual, documents and completions.
    pub fn has_room(self) -> bool {
        self != Self::OpenWrt
    }

    /// Where the shells look for completions of packages.
    pub fn completion(self, name: &str) -> Option<&'static str> {
        match (name, self) {
            ("xdptun.bash", _) => Some("usr/share/bash-completion/completions/xdptun"),
            ("_xdptun", Self::Debian) => Some("usr/share/zsh/vendor-completions/_xdptun"),
            ("_xdptun", _) => Some("usr/share/zsh/site-functions/_xdptun"),
            ("xdptun.fish", _) => Some("usr/share/fish/vendor_completions.d/xdptun.fish"),
            _ => None,
        }
    }
}
