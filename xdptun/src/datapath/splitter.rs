//! The veth pair that splits super-packets (see `split.rs` of the programs).
//!
//! Its near end does no segmentation offload (`gso_max_segs` 1) and no checksum
//! offload, so the kernel splits super-packets sent to it into single packets with
//! complete checksums. In the other direction GRO merges restored datagrams (`tunnel/join.rs` of the
//! programs). Both ends have no address and no IPv6.

use std::fs;
use std::io;

use futures_util::TryStreamExt as _;
use nix::net::if_::if_nametoindex;
use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage};
use rtnetlink::{Handle, LinkUnspec, LinkVeth};
use tracing::warn;

use crate::error::{Context as _, Result, bail};
use crate::host::ethtool;
use crate::host::netlink;

/// A pair that exists.
#[derive(Clone, Debug)]
pub struct Splitter {
    /// The near end, which gets super-packets.
    pub near: End,
    /// The far end, where the pieces arrive.
    pub far: End,
}

/// One of its two devices.
#[derive(Clone, Debug)]
pub struct End {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
}

/// The largest MTU of a veth: pieces of any size pass.
const MTU: u32 = 65535;

/// Names of the two ends for an interface.
fn names(ifindex: u32) -> (String, String) {
    (format!("xdptun{ifindex}s"), format!("xdptun{ifindex}p"))
}

/// The link group that marks a pair as ours ("xdpt") from its creation. xdptun leaves other
/// devices of the same name alone.
const GROUP: u32 = 0x7864_7074;

/// Makes the pair for an interface. The caller holds the lock of the interface's group, so a pair
/// of ours that exists already was left by a killed process.
///
/// # Errors
///
/// If the kernel has no veth or refuses the set-up, or a foreign device has the name.
pub fn create(ifindex: u32) -> Result<Splitter> {
    remove(ifindex)?;
    let (near, far) = names(ifindex);
    let index = add_pair(&near, &far)?;
    set_up(&near, &far)?;
    let near = End { name: near, index };
    splitter(near, far)
}

fn splitter(near: End, far: String) -> Result<Splitter> {
    let index = if_nametoindex(far.as_str()).with_context(|| format!("{far} vanished"))?;
    let far = End { name: far, index };
    Ok(Splitter { near, far })
}

impl Splitter {
    /// Lets the near end merge what the far one sends it; returns whether it will. A veth receives
    /// with NAPI, which GRO needs, if its GRO is on and its peer does no TSO (`veth_xmit`, since
    /// 5.13). Each CPU needs a queue of its own (since 5.14), or one would do the work of all.
    #[must_use]
    pub fn merge(&self) -> bool {
        let (near, far) = (&self.near.name, &self.far.name);
        let merges = || {
            use_all_queues(near, far)?;
            ethtool::set(far, ethtool::SET_TSO, 0)?;
            ethtool::set(near, ethtool::SET_GRO, 1)?;
            ethtool::get(near, ethtool::GET_GRO)
        };
        match merges() {
            Ok(on) => on != 0,
            Err(error) => {
                warn!("{near} merges no restored datagrams, each goes up by itself: {error}");
                false
            }
        }
    }
}

/// Uses as many queues from the far end to the near one as both have: one for each CPU that the
/// machine can have.
fn use_all_queues(near: &str, far: &str) -> io::Result<()> {
    let (mut to, mut from) = (ethtool::channels(near)?, ethtool::channels(far)?);
    let queues = to.max_receive.min(from.max_send);
    if (to.receive, from.send) == (queues, queues) {
        return Ok(());
    }
    (to.receive, from.send) = (queues, queues);
    ethtool::set_channels(near, to)?;
    ethtool::set_channels(far, from)
}

/// The pair of an interface as a process left it, or a new one.
///
/// # Errors
///
/// As [`create`].
pub fn ensure(ifindex: u32) -> Result<Splitter> {
    let (near, far) = names(ifindex);
    let index = netlink::block_on(async |handle| {
        let link = find(&handle, &near).await?;
        Ok(link.filter(is_ours).map(|link| link.header.index))
    })?;
    match index {
        Some(index) => splitter(End { name: near, index }, far),
        None => create(ifindex),
    }
}

fn add_pair(near: &str, far: &str) -> Result<u32> {
    netlink::block_on(async |handle| {
        let pair = LinkVeth::new(near, far)
            .mtu(MTU)
            .link_group(GROUP)
            .append_extra_attribute(LinkAttribute::GsoMaxSegs(1))
            .build();
        let added = handle.link().add(pair).execute().await;
        added.with_context(|| {
            format!("cannot make the veth pair {near} that splits super-packets")
        })?;
        match find(&handle, near).await? {
            Some(link) => Ok(link.header.index),
            None => bail!(Other, "{near} vanished"),
        }
    })
}

fn set_up(near: &str, far: &str) -> Result<()> {
    for name in [near, far] {
        // No address, no neighbours, no router solicitations. A kernel without
        // IPv6 has no such file, and nothing to switch off.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
    }
    ethtool::set(near, ethtool::SET_TX_CHECKSUM, 0)
        .with_context(|| format!("cannot switch checksum offload of {near} off"))?;
    // Pieces shall be linear. Otherwise their data lie in pages, and the kernel does not count what
    // their head grows by (`pskb_expand_head`). GRO of the receiver then subtracts more memory than
    // was counted (`skb_gro_receive`), and the socket takes no more (6.18).
    ethtool::set(near, ethtool::SET_SG, 0)
        .with_context(|| format!("cannot switch scatter-gather of {near} off"))?;
    netlink::block_on(async |handle| {
        for name in [near, far] {
            let up = LinkUnspec::new_with_name(name).mtu(MTU).up().build();
            handle
                .link()
                .set(up)
                .execute()
                .await
                .with_context(|| format!("cannot set {name} up"))?;
        }
        Ok(())
    })
}

/// Removes the pair of an interface; returns whether there was one of ours.
///
/// # Errors
///
/// If it is there and cannot be removed.
pub fn remove(ifindex: u32) -> Result<bool> {
    let (name, _) = names(ifindex);
    netlink::block_on(async |handle| {
        let Some(link) = find(&handle, &name).await? else {
            return Ok(false);
        };
        if !is_ours(&link) {
            return Ok(false);
        }
        let removed = handle.link().del(link.header.index).execute().await;
        removed.with_context(|| format!("cannot remove {name}"))?;
        Ok(true)
    })
}

fn is_ours(link: &LinkMessage) -> bool {
    link.attributes.contains(&LinkAttribute::Group(GROUP))
}

async fn find(handle: &Handle, name: &str) -> Result<Option<LinkMessage>> {
    let found = handle
        .link()
        .get()
        .match_name(name.to_owned())
        .execute()
        .try_next()
        .await;
    match found {
        Ok(link) => Ok(link),
        Err(rtnetlink::Error::NetlinkError(_)) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot look up {name}")),
    }
}
