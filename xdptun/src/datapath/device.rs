//! A device of a function's own, on which its program meets what is routed there.
//!
//! It is a TUN device without a process behind it: it has no link header and no neighbours, and lives
//! until it is removed. The kernel says that it has no carrier, and routes to it all the same.

use std::fs::{self, OpenOptions};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;

use futures_util::TryStreamExt as _;
use ipnet::IpNet;
use nix::libc;
use nix::net::if_::if_nametoindex;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags};
use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage};
use rtnetlink::packet_route::route::{RouteAttribute, RouteMetric, RouteScope};
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};

use super::pins;
use super::programs::Programs;
use crate::error::{Context as _, Error, Result, bail};
use crate::host::netlink;

/// What a device is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: &'static str,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The networks that are routed to it, each with the MTU that the kernel tells senders, if that is
    /// not the device's.
    pub routes: Vec<(IpNet, Option<u32>)>,
}

/// The link group that marks a device as ours ("xdpd"). xdptun leaves other devices of the same name
/// alone.
const GROUP: u32 = 0x7864_7064;

/// The largest MTU of a TUN device: super-packets pass.
const MTU: u32 = 65535;

impl Device {
    /// Makes the device, or gives the one that is there what it is to have; returns whether it was made.
    ///
    /// # Errors
    ///
    /// If there is a foreign device of that name ([kind](crate::error::Kind) `Conflict`), or the kernel
    /// refuses a step: then nothing is left of a device that was made.
    pub fn ensure(&self) -> Result<bool> {
        let is_there = match find(self.name)? {
            None => false,
            Some(link) if is_ours(&link) => true,
            Some(_) => bail!(
                Conflict,
                "{name}: there is a device of this name, which xdptun did not make; rename it or \
                 remove it (`ip link del {name}`)",
                name = self.name
            ),
        };
        if !is_there {
            create(self.name).with_context(|| {
                format!("cannot make the TUN device {} (/dev/net/tun)", self.name)
            })?;
        }
        match self.set_up() {
            Ok(()) => Ok(!is_there),
            Err(error) => {
                if !is_there {
                    delete(self.name)?;
                }
                Err(error)
            }
        }
    }

    fn set_up(&self) -> Result<()> {
        let name = self.name;
        // No addresses that nobody asked for. A kernel without IPv6 has nothing to switch off.
        for (parameter, value) in [
            ("disable_ipv6", "0"),
            ("addr_gen_mode", "1"),
            ("accept_ra", "0"),
        ] {
            let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/{parameter}"), value);
        }
        for (version, parameter, value) in [
            // It has no carrier, and its routes count all the same.
            ("ipv4", "ignore_routes_with_linkdown", "0"),
            ("ipv6", "ignore_routes_with_linkdown", "0"),
            // Errors of IPv6 routers come in by it from its own address (RFC 6791). The kernel takes a
            // local source for a martian, and drops it.
            ("ipv4", "accept_local", "1"),
        ] {
            let path = format!("/proc/sys/net/{version}/conf/{name}/{parameter}");
            let _ = fs::write(path, value);
        }
        let index = if_nametoindex(name).with_context(|| format!("{name} vanished"))?;
        netlink::block_on(async |handle| {
            let up = LinkUnspec::new_with_index(index)
                .mtu(MTU)
                .append_extra_attribute(LinkAttribute::Group(GROUP))
                .up()
                .build();
            let set = handle.link().set(up).execute().await;
            set.with_context(|| format!("cannot set {name} up"))?;
            for address in &self.addresses {
                add_address(&handle, index, *address)
                    .await
                    .with_context(|| format!("cannot give {name} the address {address}"))?;
            }
            for (to, mtu) in &self.routes {
                add_route(&handle, index, *to, *mtu)
                    .await
                    .with_context(|| format!("cannot route {to} to {name}"))?;
            }
            Ok(())
        })
    }
}

/// Removes the device of that name and index; whether there was one of ours.
///
/// # Errors
///
/// If it is there and cannot be removed.
pub fn remove(name: &str, ifindex: u32) -> Result<bool> {
    match find(name)? {
        Some(link) if is_ours(&link) && link.header.index == ifindex => {
            delete(name)?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Removes the device of that name if it is one of ours, and no pins are left of a program on it.
///
/// # Errors
///
/// If it is there and cannot be removed.
pub fn remove_unused(programs: &Programs, name: &str) -> Result<()> {
    match if_nametoindex(name) {
        Ok(ifindex) if pins::group_of(programs, ifindex)?.is_none() => {
            remove(name, ifindex).map(drop)
        }
        _ => Ok(()),
    }
}

fn delete(name: &str) -> Result<()> {
    netlink::block_on(async |handle| {
        let index = if_nametoindex(name)?;
        let removed = handle.link().del(index).execute().await;
        removed.with_context(|| format!("cannot remove {name}"))
    })
}

fn is_ours(link: &LinkMessage) -> bool {
    link.attributes.contains(&LinkAttribute::Group(GROUP))
}

fn find(name: &str) -> Result<Option<LinkMessage>> {
    netlink::block_on(async |handle| {
        let links = handle.link().get().match_name(name.to_owned());
        match links.execute().try_next().await {
            Ok(link) => Ok(link),
            Err(rtnetlink::Error::NetlinkError(_)) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot look up {name}")),
        }
    })
}

async fn add_address(handle: &Handle, index: u32, address: IpAddr) -> Result<(), Error> {
    let mut request = handle
        .address()
        .add(index, address, IpNet::from(address).prefix_len())
        .replace();
    if address.is_ipv6() {
        // Nobody else can have it.
        let flags = AddressAttribute::Flags(AddressFlags::Nodad);
        request.message_mut().attributes.push(flags);
    }
    Ok(request.execute().await?)
}

async fn add_route(handle: &Handle, index: u32, to: IpNet, mtu: Option<u32>) -> Result<(), Error> {
    let mut route = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(to.addr(), to.prefix_len())
        .map_err(Error::other)?
        .output_interface(index)
        .scope(match to {
            IpNet::V4(_) => RouteScope::Link,
            IpNet::V6(_) => RouteScope::Universe,
        })
        .build();
    let metrics = mtu.map(|mtu| RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)]));
    route.attributes.extend(metrics);
    Ok(handle.route().add(route).replace().execute().await?)
}

/// Makes a TUN device that outlives this process (`TUNSETIFF`, `TUNSETPERSIST` of `linux/if_tun.h`).
fn create(name: &str) -> io::Result<()> {
    const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
    const TUNSETPERSIST: libc::Ioctl = 0x4004_54cb;
    let tun = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")?;
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: the request outlives the call, and has the layout that the command asks for.
    let made = unsafe { libc::ioctl(tun.as_raw_fd(), TUNSETIFF, &raw mut request) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the argument is a number.
    let kept = unsafe { libc::ioctl(tun.as_raw_fd(), TUNSETPERSIST, 1) };
    match kept {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
