//! Frames that the daemon puts on an interface of its group, through the `egress` program.
//!
//! A packet socket hands frames to the interface behind netfilter and routing,
//! which a queued datagram has passed already, and in front of the tc hook. So
//! the program disguises a queued datagram like any other; its mark tells other
//! programs on the hook that they have met it before. Any other marked frame becomes
//! the control segment that its mark asks for, with sequence numbers that only the
//! program knows.

use std::io;

use xdptun_common::bytes_of;
use xdptun_common::checksum::Sum;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::parse::{Shape, locate};
use xdptun_common::tunnel::config::Request;
use xdptun_common::wire::{Ip, Ipv4Header, Ipv6Header, LINK_NONE, Protocol, UdpHeader};

use crate::host::frame_socket::FrameSocket;
use crate::host::interface::Interface;

/// Sends frames on interfaces.
pub struct Injector {
    socket: FrameSocket,
}

impl Injector {
    /// A packet socket.
    ///
    /// # Errors
    ///
    /// If it cannot be made (CAP_NET_RAW).
    pub fn new() -> io::Result<Self> {
        let socket = FrameSocket::new()?;
        Ok(Self { socket })
    }

    /// Sends a queued frame again, its UDP checksum completed.
    ///
    /// # Errors
    ///
    /// If the kernel does not take it.
    pub fn resend(&self, key: &FlowKey, by: &Interface, mut frame: Vec<u8>) -> io::Result<()> {
        let link_len = by.link_len as usize;
        if key.is_ipv4() {
            complete_checksum::<Ipv4Header>(&mut frame, link_len);
        } else {
            complete_checksum::<Ipv6Header>(&mut frame, link_len);
        }
        self.send(key, by, &frame, Request::Resend.mark())
    }

    /// Asks the program for a control segment of a flow whose peer `link` reaches on that
    /// interface.
    ///
    /// # Errors
    ///
    /// If the kernel does not take the frame.
    pub fn request(
        &self,
        key: &FlowKey,
        link: [u8; 14],
        by: &Interface,
        request: Request,
    ) -> io::Result<()> {
        let mut frame = Vec::with_capacity(link.len() + Ipv6Header::LEN + UdpHeader::LEN);
        if by.link_len != LINK_NONE {
            frame.extend(link);
        }
        if key.is_ipv4() {
            empty_datagram::<Ipv4Header>(&mut frame, key);
        } else {
            empty_datagram::<Ipv6Header>(&mut frame, key);
        }
        self.send(key, by, &frame, request.mark())
    }

    fn send(&self, key: &FlowKey, by: &Interface, frame: &[u8], mark: u32) -> io::Result<()> {
        self.socket.send(by.index, key.is_ipv4(), mark, frame)
    }
}

/// Appends a datagram without payload.
fn empty_datagram<I: Ip>(frame: &mut Vec<u8>, key: &FlowKey) {
    let len = UdpHeader::LEN as u16;
    let ip = I::bare(
        key.local_address(),
        key.remote_address(),
        Protocol::UDP,
        len,
    );
    let udp = UdpHeader::new(key.local_port(), key.remote_port(), len, [0; 2]);
    let sum = ip.pseudo_header(Protocol::UDP, len).bytes(bytes_of(&udp));
    frame.extend(bytes_of(&ip));
    frame.extend(bytes_of(&udp.with_checksum(sum.udp_checksum())));
}

/// Writes the UDP checksum of a frame. The program copied the datagram before the device
/// completed the checksum, and a packet socket does not complete it either. Zero ("none",
/// RFC 768) stays.
fn complete_checksum<I: Ip>(frame: &mut [u8], link_len: usize) {
    let Some(located) = locate::<I>(&*frame, link_len) else {
        return;
    };
    let range = located.offset..located.offset + located.len;
    if !matches!(located.shape, Shape::Plain | Shape::Options) || located.protocol != Protocol::UDP
    {
        return;
    }
    let Some(datagram) = frame.get_mut(range) else {
        return;
    };
    let Some(udp) = xdptun_common::read_plain::<UdpHeader>(datagram) else {
        return;
    };
    if udp.checksum() == [0; 2] {
        return;
    }
    let (header, payload) = datagram.split_at_mut(UdpHeader::LEN);
    let sum: Sum = located
        .ip
        .pseudo_header(Protocol::UDP, udp.length())
        .bytes(bytes_of(&udp.with_checksum([0; 2])))
        .bytes(payload);
    header[UdpHeader::CHECKSUM_OFFSET..].copy_from_slice(&sum.udp_checksum());
}

#[cfg(test)]
mod tests {
    use etherparse::{
        IpHeaders, IpNumber, Ipv4Header as OtherIpv4Header, PacketBuilder, SlicedPacket,
        TransportSlice,
    };
    use proptest::prelude::*;

    use super::*;

    fn checksum_of(frame: &[u8]) -> u16 {
        match SlicedPacket::from_ethernet(frame).unwrap().transport {
            Some(TransportSlice::Udp(udp)) => udp.checksum(),
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn a_pending_checksum_becomes_the_right_one(
            v6: bool,
            options in 0..=10_usize,
            payload in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let ethernet = PacketBuilder::ethernet2([1; 6], [2; 6]);
            let ip = if v6 {
                ethernet.ipv6([3; 16], [4; 16], 64)
            } else {
                let mut header = OtherIpv4Header::new(0, 64, IpNumber::UDP, [10, 0, 0, 1], [10, 0, 0, 2]).unwrap();
                header.options = vec![1; options * 4].as_slice().try_into().unwrap();
                ethernet.ip(IpHeaders::Ipv4(header, Default::default()))
            };
            let mut frame = Vec::new();
            ip.udp(8000, 40000).write(&mut frame, &payload).unwrap();
            let right = checksum_of(&frame);

            let at = frame.len() - payload.len() - 2;
            frame[at..at + 2].copy_from_slice(&[0x12, 0x34]);
            if v6 {
                complete_checksum::<Ipv6Header>(&mut frame, 14);
            } else {
                complete_checksum::<Ipv4Header>(&mut frame, 14);
            }
            prop_assert_eq!(checksum_of(&frame), right);

            frame[at..at + 2].copy_from_slice(&[0, 0]);
            complete_checksum::<Ipv4Header>(&mut frame, 14);
            prop_assert_eq!(checksum_of(&frame), 0, "no checksum stays none");
        }
    }

    #[test]
    fn what_is_no_datagram_is_left_alone() {
        for len in 0..60 {
            let mut frame = vec![0x45; len];
            let before = frame.clone();
            complete_checksum::<Ipv4Header>(&mut frame, 14);
            assert_eq!(frame, before);
        }
    }
}
