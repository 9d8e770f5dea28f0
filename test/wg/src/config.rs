//! The peers' `wg0.conf` files, in the notation of `wg-quick`.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};

use crate::keys::KeyPair;

const PEER1: &str = include_str!("../peer1/wg0.conf");
const PEER2: &str = include_str!("../peer2/wg0.conf");

/// The MTU in place of the templates' where peer 2 is reached over IPv6: theirs leaves no room for
/// the disguise.
const MTU_OVER_IPV6: u32 = 1408;

/// One peer's configuration, taken apart as `wg-quick` does it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Address with prefix length inside the tunnel.
    pub address: String,
    /// MTU of the tunnel's interface.
    pub mtu: u32,
    /// The input of `wg setconf`.
    pub setconf: String,
}

/// Both peers with fresh keys; `peer2_address` is where peer 2 is reached.
pub fn generate(peer2_address: IpAddr) -> Result<[Config; 2]> {
    let (peer1, peer2) = (KeyPair::generate()?, KeyPair::generate()?);
    // An IPv6 endpoint is written in brackets.
    let endpoint = match peer2_address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let fill = |template: &str| {
        let text = template
            .replace("@PEER1_PRIVATE_KEY@", &peer1.private)
            .replace("@PEER1_PUBLIC_KEY@", &peer1.public)
            .replace("@PEER2_PRIVATE_KEY@", &peer2.private)
            .replace("@PEER2_PUBLIC_KEY@", &peer2.public)
            .replace("@PEER2_ADDRESS@", &endpoint);
        let mut config = Config::parse(&text)?;
        if peer2_address.is_ipv6() {
            config.mtu = MTU_OVER_IPV6;
        }
        anyhow::Ok(config)
    };
    Ok([
        fill(PEER1).context("test/wg/peer1/wg0.conf")?,
        fill(PEER2).context("test/wg/peer2/wg0.conf")?,
    ])
}

impl Config {
    /// Separates what `wg-quick` sets on the interface from what `wg` takes.
    fn parse(text: &str) -> Result<Self> {
        let mut address = None;
        let mut mtu = None;
        let mut setconf = String::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            ensure!(!line.contains('@'), "a placeholder is left in `{line}`");
            match line.split_once(" = ") {
                Some(("Address", value)) => address = Some(value.to_owned()),
                Some(("MTU", value)) => mtu = Some(value.parse().context("MTU")?),
                _ => setconf += &format!("{line}\n"),
            }
        }
        Ok(Self {
            address: address.context("no Address")?,
            mtu: mtu.context("no MTU")?,
            setconf,
        })
    }

    /// The address inside the tunnel without the prefix length.
    pub fn ip(&self) -> Result<IpAddr> {
        let (ip, _) = self.address.split_once('/').context("no prefix length")?;
        ip.parse()
            .with_context(|| format!("{}: not an address", self.address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separates_the_interface_from_the_tunnel() {
        let text =
            "# words\n[Interface]\nAddress = 192.168.2.1/24\nListenPort = 8000\nMTU = 1420\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.address, "192.168.2.1/24");
        assert_eq!(config.mtu, 1420);
        assert_eq!(config.setconf, "[Interface]\nListenPort = 8000\n");
        assert_eq!(config.ip().unwrap(), IpAddr::from([192, 168, 2, 1]));
    }

    #[test]
    fn a_forgotten_placeholder_is_an_error() {
        let error = Config::parse("PrivateKey = @PEER1_PRIVATE_KEY@\n").unwrap_err();
        assert!(error.to_string().contains("placeholder"), "{error}");
    }

    #[test]
    fn the_committed_templates_hold_no_keys() {
        for template in [PEER1, PEER2] {
            for line in template.lines().filter(|line| line.contains("Key")) {
                assert!(line.starts_with('#') || line.ends_with("_KEY@"), "{line}");
            }
        }
    }
}
