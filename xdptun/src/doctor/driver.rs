//! The XDP features of an interface's driver, from the `netdev` family of generic netlink
//! (Linux 6.3, `Documentation/netlink/specs/netdev.yaml`).

use std::fmt::Debug;

use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use rtnetlink::packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload, Nla as _,
    NlasIterator, Parseable as _, ParseableParametrized, parse_u64,
};
use rtnetlink::sys::protocols::NETLINK_GENERIC;
use rtnetlink::sys::{Socket, SocketAddr};

use crate::error::{Context as _, Result, bail};

const FAMILY: &str = "netdev";
/// `NETDEV_CMD_DEV_GET`.
const GET_DEVICE: u8 = 1;
/// `NETDEV_A_DEV_IFINDEX`.
const INDEX: u16 = 1;
/// `NETDEV_A_DEV_XDP_FEATURES`.
const XDP_FEATURES: u16 = 3;
/// `NETDEV_XDP_ACT_BASIC`: aborts, drops, passes and sends back.
const XDP_BASIC: u64 = 1;

/// Attributes of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Device(Vec<DefaultNla>);

impl GenlFamily for Device {
    fn family_name() -> &'static str {
        FAMILY
    }

    fn command(&self) -> u8 {
        GET_DEVICE
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for Device {
    fn buffer_len(&self) -> usize {
        self.0.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.0.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Device {
    fn parse_with_param(buffer: &[u8], _: GenlHeader) -> Result<Self, DecodeError> {
        let attributes: Result<Vec<_>, _> = NlasIterator::new(buffer)
            .map(|attribute| DefaultNla::parse(&attribute?))
            .collect();
        Ok(Self(attributes?))
    }
}

impl Device {
    /// Whether it runs XDP programs; `None` if it does not tell.
    fn takes_xdp(&self) -> Option<bool> {
        let features = self
            .0
            .iter()
            .find(|attribute| attribute.kind() == XDP_FEATURES)?;
        let mut value = vec![0; features.value_len()];
        features.emit_value(&mut value);
        Some(parse_u64(&value).ok()? & XDP_BASIC != 0)
    }
}

/// Whether the driver of an interface runs XDP programs; `None` if the kernel does
/// not tell (before 6.3).
///
/// # Errors
///
/// If there is no generic netlink, or the interface is gone.
pub fn takes_xdp(index: u32) -> Result<Option<bool>> {
    let mut socket = Socket::new(NETLINK_GENERIC).context("cannot open a netlink socket")?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let family = GenlCtrl {
        cmd: GenlCtrlCmd::GetFamily,
        nlas: vec![GenlCtrlAttrs::FamilyName(FAMILY.into())],
    };
    let Some(family) = ask(&socket, GenlMessage::from_payload(family))? else {
        return Ok(None);
    };
    let id = family
        .payload
        .nlas
        .iter()
        .find_map(|attribute| match attribute {
            GenlCtrlAttrs::FamilyId(id) => Some(*id),
            _ => None,
        });
    let wanted = Device(vec![DefaultNla::new(INDEX, index.to_ne_bytes().to_vec())]);
    let mut message = GenlMessage::from_payload(wanted);
    message.set_resolved_family_id(id.context("the family has no number")?);
    let device = ask(&socket, message)?;
    Ok(device.and_then(|device| device.payload.takes_xdp()))
}

/// The kernel's answer; `None` if it has no such family or device.
fn ask<F>(socket: &Socket, question: GenlMessage<F>) -> Result<Option<GenlMessage<F>>>
where
    F: GenlFamily + Emitable + ParseableParametrized<[u8], GenlHeader> + Debug,
{
    let mut message = NetlinkMessage::from(question);
    message.header.flags = NLM_F_REQUEST;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0).context("cannot ask the kernel")?;
    let (answer, _) = socket
        .recv_from_full()
        .context("the kernel does not answer")?;
    match NetlinkMessage::<GenlMessage<F>>::deserialize(&answer)?.payload {
        NetlinkPayload::InnerMessage(message) => Ok(Some(message)),
        NetlinkPayload::Error(error) if error.raw_code() == -libc::ENOENT => Ok(None),
        NetlinkPayload::Error(error) => Err(error.to_io()).context("the kernel refuses to tell"),
        _ => bail!(Other, "the kernel answered something else"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_tells_by_one_bit() {
        let device = |features: u64| {
            Device(vec![DefaultNla::new(
                XDP_FEATURES,
                features.to_ne_bytes().to_vec(),
            )])
        };
        assert_eq!(device(0x23).takes_xdp(), Some(true));
        assert_eq!(device(0x22).takes_xdp(), Some(false));
        assert_eq!(Device(Vec::new()).takes_xdp(), None);
    }
}
