//! What the kernel says of a network interface.

use anyhow::{Context as _, Result, bail};
use futures_util::TryStreamExt as _;
use nix::net::if_::if_indextoname;
use rtnetlink::LinkGetRequest;
use rtnetlink::packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};
use xdptun_common::tunnel::config::{LINK_ETHERNET, LINK_NONE};

use crate::netlink;

/// A network interface of this network namespace.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// The length of its link header in bytes: [`LINK_ETHERNET`] or [`LINK_NONE`].
    pub link_len: u32,
    kind: Option<InfoKind>,
    /// Whether it is administratively up.
    pub is_up: bool,
}

impl Interface {
    /// Looks an interface up by name.
    ///
    /// # Errors
    ///
    /// If there is none of that name, or its link layer is one that xdptun
    /// cannot rewrite.
    pub fn find(name: &str) -> Result<Self> {
        Self::look_up(name, |links| links.match_name(name.to_owned()))
    }

    /// Looks an interface up by index, whatever it is called by now.
    ///
    /// # Errors
    ///
    /// As [`Interface::find`].
    pub fn at(index: u32) -> Result<Self> {
        let name = name_of(index).unwrap_or_else(|| format!("interface {index}"));
        Self::look_up(&name, |links| links.match_index(index))
    }

    fn look_up(
        name: &str,
        matching: impl FnOnce(LinkGetRequest) -> LinkGetRequest + Send,
    ) -> Result<Self> {
        let found = netlink::block_on(async |handle| {
            let request = matching(handle.link().get());
            Ok(request.execute().try_next().await)
        })?;
        match found {
            Ok(Some(message)) => Self::from_message(name, &message),
            // The kernel's ENODEV, and its EINVAL for names that cannot exist.
            Ok(None) | Err(rtnetlink::Error::NetlinkError(_)) => {
                bail!("{name}: no such interface; `ip link` lists them")
            }
            Err(error) => Err(error).context(format!("cannot look up {name}")),
        }
    }

    fn from_message(name: &str, message: &LinkMessage) -> Result<Self> {
        let link_len = match message.header.link_layer_type {
            LinkLayerType::Ether | LinkLayerType::Loopback => LINK_ETHERNET,
            LinkLayerType::None | LinkLayerType::Ppp | LinkLayerType::Rawip => LINK_NONE,
            other => bail!(
                "{name}: link layer {other:?} is not supported; \
                 xdptun knows Ethernet and devices without a link header (tun, wireguard, ppp)"
            ),
        };
        let mtu = message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Mtu(mtu) => Some(*mtu),
                _ => None,
            });
        Ok(Self {
            name: name.to_owned(),
            index: message.header.index,
            mtu: mtu.with_context(|| format!("{name}: the kernel names no MTU"))?,
            link_len,
            kind: kind(message).cloned(),
            is_up: message.header.flags.contains(LinkFlags::Up),
        })
    }
}

impl Interface {
    /// Why native XDP is not to be chosen here although the driver takes it.
    #[must_use]
    pub fn spare_xdp(&self) -> Option<&'static str> {
        match self.kind {
            // It costs all other TCP through the pair more than XDP gains.
            Some(InfoKind::Veth) => Some("it would switch TSO off at the other end of the veth"),
            // Who writes to it may merge segments, which XDP cannot see.
            Some(InfoKind::Tun) => Some("a tun device may hand over merged segments"),
            _ => None,
        }
    }

    /// The names of the VLAN devices on it.
    ///
    /// # Errors
    ///
    /// If the interfaces cannot be listed.
    pub fn vlans(&self) -> Result<Vec<String>> {
        let links = netlink::block_on(async |handle| {
            let all: Result<Vec<_>, _> = handle.link().get().execute().try_collect().await;
            all.context("cannot list the interfaces")
        })?;
        Ok(vlans_on(self.index, &links))
    }
}

/// The name of an interface, if there is one of that index.
#[must_use]
pub fn name_of(index: u32) -> Option<String> {
    let name = if_indextoname(index).ok()?;
    // nix 0.31 takes the null pointer of a failure for success.
    (!name.is_empty()).then(|| name.to_string_lossy().into_owned())
}

/// The names of the VLAN devices whose parent is the link `parent`.
fn vlans_on(parent: u32, links: &[LinkMessage]) -> Vec<String> {
    links
        .iter()
        .filter(|link| {
            link.attributes.contains(&LinkAttribute::Link(parent))
                // The parent's index may be one of another namespace.
                && !link
                    .attributes
                    .iter()
                    .any(|attribute| matches!(attribute, LinkAttribute::LinkNetNsId(_)))
                && kind(link) == Some(&InfoKind::Vlan)
        })
        .filter_map(|link| {
            link.attributes
                .iter()
                .find_map(|attribute| match attribute {
                    LinkAttribute::IfName(name) => Some(name.clone()),
                    _ => None,
                })
        })
        .collect()
}

/// What kind of device a link is, if it is a virtual one.
pub(crate) fn kind(link: &LinkMessage) -> Option<&InfoKind> {
    link.attributes
        .iter()
        .filter_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(info) => Some(info),
            _ => None,
        })
        .flatten()
        .find_map(|info| match info {
            LinkInfo::Kind(kind) => Some(kind),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_without_interface_has_no_name() {
        assert_eq!(name_of(1).as_deref(), Some("lo"));
        assert_eq!(name_of(0x7fff_ffff), None);
    }

    fn link(name: &str, parent: u32, kind: InfoKind) -> LinkMessage {
        let mut link = LinkMessage::default();
        link.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Link(parent),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]),
        ];
        link
    }

    #[test]
    fn only_the_vlans_of_the_interface_are_named() {
        let links = [
            link("eth0.100", 2, InfoKind::Vlan),
            link("eth1.100", 3, InfoKind::Vlan),
            link("veth0", 2, InfoKind::Veth),
            link("eth0.200", 2, InfoKind::Vlan),
        ];
        assert_eq!(vlans_on(2, &links), ["eth0.100", "eth0.200"]);
        let mut elsewhere = link("eth0.300", 2, InfoKind::Vlan);
        elsewhere.attributes.push(LinkAttribute::LinkNetNsId(0));
        assert!(vlans_on(2, &[elsewhere]).is_empty());
        assert!(vlans_on(4, &links).is_empty());
    }
}
