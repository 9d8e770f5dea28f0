//! The qdisc that holds tc programs before TCX (kernel 6.6).

use std::io;

use aya::programs::TcAttachType;
use aya::programs::tc::{TcError, qdisc_add_clsact, qdisc_detach_program};
use futures_util::StreamExt as _;
use rtnetlink::packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use crate::error::{Context as _, Result};
use crate::host::netlink;

/// Whether an interface has the qdisc.
pub fn exists(ifindex: u32) -> Result<bool> {
    netlink::block_on(async move |handle| {
        let qdiscs = handle.qdisc().get().index(ifindex.cast_signed()).execute();
        let is_clsact = async |qdisc: Result<TcMessage, _>| {
            qdisc.is_ok_and(|qdisc| {
                qdisc.header.index == ifindex.cast_signed()
                    && qdisc
                        .attributes
                        .contains(&TcAttribute::Kind("clsact".into()))
            })
        };
        Ok(Box::pin(qdiscs).any(is_clsact).await)
    })
}

/// Makes sure that an interface has the qdisc.
pub fn add(interface: &str) -> Result<()> {
    match qdisc_add_clsact(interface) {
        Ok(()) => Ok(()),
        Err(TcError::NetlinkError(error)) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        Err(error) => {
            Err(error).with_context(|| format!("cannot add the clsact qdisc to {interface}"))
        }
    }
}

/// Removes a filter by its name; returns whether there was one.
pub fn remove_filter(interface: &str, hook: TcAttachType, program: &str) -> Result<bool> {
    match qdisc_detach_program(interface, hook, program) {
        Ok(()) => Ok(true),
        Err(TcError::IoError(error)) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        // No clsact qdisc, or no such interface any more: nothing to remove.
        Err(TcError::IoError(error)) if error.raw_os_error() == Some(libc::ENODEV) => Ok(false),
        Err(TcError::NetlinkError(error))
            if matches!(
                error.raw_os_error(),
                Some(libc::EINVAL | libc::ENOENT | libc::ENODEV)
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error)
            .with_context(|| format!("cannot remove the filter {program} from {interface}")),
    }
}

/// Removes the qdisc, unless another process has put a filter there.
pub fn remove_if_unused(ifindex: u32) -> Result<()> {
    let index = ifindex.cast_signed();
    netlink::block_on(async move |handle| {
        let ingress = handle.traffic_filter(index).get().ingress().execute();
        let egress = handle.traffic_filter(index).get().egress().execute();
        // An error (no such interface) counts as "no filter" here and shows again below.
        let in_use = Box::pin(ingress.chain(egress))
            .any(async |filter| filter.is_ok())
            .await;
        if in_use {
            return Ok(());
        }
        let mut request = handle.qdisc().del(index);
        let TcMessage { header, .. } = request.message_mut();
        header.handle = TcHandle::from(0xffff_0000);
        header.parent = TcHandle::CLSACT;
        match request.execute().await {
            Ok(()) => Ok(()),
            Err(rtnetlink::Error::NetlinkError(error))
                if matches!(
                    error.raw_code().abs(),
                    libc::ENODEV | libc::ENOENT | libc::EINVAL
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error).context("cannot remove the clsact qdisc"),
        }
    })
}
