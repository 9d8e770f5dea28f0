//! What the kernel says of a network interface.

use anyhow::{Context as _, Result, bail};
use futures_util::TryStreamExt as _;
use rtnetlink::packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};
use xdptun_common::config::{LINK_ETHERNET, LINK_NONE};

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
    /// Whether it is one end of a veth pair.
    pub is_veth: bool,
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
        let found = netlink::block_on(async |handle| {
            let request = handle.link().get().match_name(name.to_owned());
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
        let is_veth = message.attributes.iter().any(|attribute| {
            matches!(attribute, LinkAttribute::LinkInfo(info)
                if info.contains(&LinkInfo::Kind(InfoKind::Veth)))
        });
        Ok(Self {
            name: name.to_owned(),
            index: message.header.index,
            mtu: mtu.with_context(|| format!("{name}: the kernel names no MTU"))?,
            link_len,
            is_veth,
            is_up: message.header.flags.contains(LinkFlags::Up),
        })
    }
}
