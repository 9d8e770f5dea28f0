//! The veth pair that splits super-packets (see `split.rs` of the programs).
//!
//! Its near end does no segmentation offload (`gso_max_segs` 1) and no checksum
//! offload, so the kernel splits super-packets sent to it into single packets with
//! complete checksums. Both ends have no address and no IPv6.

use std::fs;

use futures_util::TryStreamExt as _;
use nix::net::if_::if_nametoindex;
use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage};
use rtnetlink::{Handle, LinkUnspec, LinkVeth};

use crate::error::{Context as _, Result, bail};
use crate::host::ethtool;
use crate::host::netlink;

/// A pair that exists.
#[derive(Clone, Debug)]
pub struct Splitter {
    /// Index of the near end, which gets super-packets.
    pub near: u32,
    /// Name of the far end, where the pieces arrive.
    pub far: String,
    /// Index of the far end.
    pub far_index: u32,
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
    splitter(index, far)
}

fn splitter(near: u32, far: String) -> Result<Splitter> {
    let found = if_nametoindex(far.as_str());
    Ok(Splitter {
        near,
        far_index: found.with_context(|| format!("{far} vanished"))?,
        far,
    })
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
        Some(near) => splitter(near, far),
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
