//! What every package says of itself.

use std::path::Path;
use std::{env, fs};

use anyhow::{Context, Result, ensure};

pub const NAME: &str = "xdptun";
pub const SECTION: &str = "net";
pub const PRIORITY: &str = "optional";
pub const LICENCE: &str = env!("CARGO_PKG_LICENSE");
pub const SUMMARY: &str = "carries UDP through networks that pass only TCP";
/// The paragraph below the summary.
pub const TEXT: &str = "\
On the way out every datagram of a port (of WireGuard, of QUIC) becomes a TCP
segment of a connection that a firewall can follow; on the way in the segment
becomes the same datagram again. eBPF programs on the network interface do
both; no kernel module is needed. xdptun runs on both hosts.";

/// What depends on the version and on the person who builds the packages.
#[derive(Debug)]
pub struct About {
    /// Of the program.
    pub version: String,
    /// The number of this package of that version.
    pub release: String,
    /// Name and address of the person to ask about the package.
    pub maintainer: String,
    /// Where the project is on the web, if it is there.
    pub homepage: Option<String>,
}

impl About {
    /// The version is that of the newest entry of the Debian changelog.
    pub fn new(
        changelog: &Path,
        maintainer: Option<String>,
        homepage: Option<String>,
    ) -> Result<Self> {
        let name = changelog.display();
        let text = fs::read_to_string(changelog).with_context(|| format!("{name}: cannot read"))?;
        let (version, release) =
            newest(&text).with_context(|| format!("{name}: no version in its first line"))?;
        let program = env!("CARGO_PKG_VERSION");
        ensure!(
            version == program,
            "{name}: its newest entry is of {version}, and the program is {program}; add an entry"
        );
        let known = Some(env!("CARGO_PKG_HOMEPAGE")).filter(|homepage| !homepage.is_empty());
        Ok(Self {
            version: version.to_owned(),
            release: release.to_owned(),
            maintainer: maintainer.unwrap_or_else(|| env!("CARGO_PKG_AUTHORS").to_owned()),
            homepage: homepage.or(known.map(str::to_owned)),
        })
    }
}

/// Version and release of the first entry.
fn newest(changelog: &str) -> Option<(&str, &str)> {
    let (_, rest) = changelog.lines().next()?.split_once('(')?;
    rest.split_once(')')?.0.split_once('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_entry_comes_first() {
        let text = "xdptun (0.2.0-3) stable; urgency=medium\n\nxdptun (0.1.0-1) stable\n";
        assert_eq!(newest(text), Some(("0.2.0", "3")));
        assert_eq!(newest(""), None);
    }
}
