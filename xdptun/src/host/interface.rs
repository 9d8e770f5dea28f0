//! A network interface, as the kernel describes it.

use futures_util::TryStreamExt as _;
use nix::libc;
use nix::net::if_::if_indextoname;
use rtnetlink::LinkGetRequest;
use rtnetlink::packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};
use xdptun_common::wire::{LINK_ETHERNET, LINK_NONE};

use crate::error::{Context as _, Error, Kind, Result, bail};
use crate::host::netlink;

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
    /// If there is none of that name ([kind](crate::error::Kind) `NoInterface`), or its link
    /// layer is one that xdptun cannot rewrite (`Unsupported`).
    pub fn find(name: &str) -> Result<Self> {
        Self::look_up(name, |links| links.match_name(name.to_owned()))
    }

    /// Looks an interface up by index: its name may have changed.
    ///
    /// # Errors
    ///
    /// As [`Interface::find`].
    pub fn at(index: u32) -> Result<Self> {
        let name = name_of(index).unwrap_or_else(|| format!("interface {index}"));
        Self::look_up(&name, |links| links.match_index(index))
    }

    /// An interface that is gone, of which only this is known.
    #[must_use]
    pub fn gone(index: u32, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            index,
            mtu: 0,
            link_len: LINK_ETHERNET,
            kind: None,
            is_up: false,
        }
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
            Ok(None) => Err(none_called(name)),
            // The kernel has EINVAL and ERANGE for names that cannot exist.
            Err(rtnetlink::Error::NetlinkError(error))
                if matches!(
                    error.raw_code().abs(),
                    libc::ENODEV | libc::EINVAL | libc::ERANGE
                ) =>
            {
                Err(none_called(name))
            }
            Err(error) => Err(error).context(format!("cannot look up {name}")),
        }
    }

    fn from_message(name: &str, message: &LinkMessage) -> Result<Self> {
        let link_len = match message.header.link_layer_type {
            LinkLayerType::Ether | LinkLayerType::Loopback => LINK_ETHERNET,
            LinkLayerType::None | LinkLayerType::Ppp | LinkLayerType::Rawip => LINK_NONE,
            other => bail!(
                Unsupported,
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
    /// Why `auto` does not choose native XDP here although the driver takes it.
    #[must_use]
    pub fn spare_xdp(&self) -> Option<&'static str> {
        match self.kind {
            // On veth, XDP costs other TCP through the pair more than it gains.
            Some(InfoKind::Veth) => Some("it would switch TSO off at the other end of the veth"),
            // The process behind a tun device may merge segments, which XDP cannot see.
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

fn none_called(name: &str) -> Error {
    let why = format!("{name}: no such interface; `ip link` lists them");
    Error::new(Kind::NoInterface, why)
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
                // The parent's index may belong to another namespace.
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

/// The kind of a virtual device; `None` for others.
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
    use crate::error::Kind;

    #[test]
    fn an_index_without_interface_has_no_name() {
        assert_eq!(name_of(1).as_deref(), Some("lo"));
        assert_eq!(name_of(0x7fff_ffff), None);
    }

    #[test]
    fn an_unknown_name_is_an_error_of_its_own_kind() {
        for name in ["no-such-link", "no such link", "longer-than-a-name-can-be"] {
            let error = Interface::find(name).expect_err(name);
            assert_eq!(error.kind(), Kind::NoInterface, "{error:#}");
            assert!(error.to_string().contains(name), "{error:#}");
        }
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
