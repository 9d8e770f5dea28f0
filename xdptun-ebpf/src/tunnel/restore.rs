//! A segment of an established flow becomes a datagram, for tc and XDP alike.

use aya_ebpf::bindings::BPF_F_ADJ_ROOM_NO_CSUM_RESET;
use aya_ebpf::bindings::bpf_adj_room_mode::BPF_ADJ_ROOM_NET;
use aya_ebpf::helpers::generated::bpf_csum_update;
use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::checksum::Sum;
use xdptun_common::tunnel::translate::{GROWTH, restore};
use xdptun_common::wire::{EthernetHeader, Ip, TcpHeader, UdpHeader};

use crate::packet::access::Packet;
use crate::packet::error::PacketError;
use crate::packet::link::{has_ethernet, link_len};
use crate::packet::resize::cut_head;
use crate::packet::skb::Skb as _;

/// A packet from which bytes after the IP header can be removed. The caller
/// writes the IP header again; the link header stays.
pub trait Cut: Packet {
    /// Removes `by` bytes.
    fn cut_after_ip(&self, by: usize) -> Result<(), PacketError>;

    /// Tells the kernel that bytes were written, whose sum is now larger by `by`.
    fn sum_changed(&self, by: Sum);
}

impl Cut for TcContext {
    #[inline(always)]
    fn cut_after_ip(&self, by: usize) -> Result<(), PacketError> {
        // The datagram's checksum is right exactly if the segment's was, so what the device
        // found, if it verified that, still holds.
        let flags = u64::from(BPF_F_ADJ_ROOM_NO_CSUM_RESET);
        self.adjust_room(-(by as i32), BPF_ADJ_ROOM_NET, flags)
            .map_err(|_| PacketError::Resize)
    }

    #[inline(always)]
    fn sum_changed(&self, by: Sum) {
        // A device may have added up the whole packet (CHECKSUM_COMPLETE); the
        // helper refuses if none has, and then nothing is to be done.
        // SAFETY: the context is valid.
        unsafe { bpf_csum_update(self.raw(), by.unfolded()) };
    }
}

impl Cut for XdpContext {
    #[inline(always)]
    fn cut_after_ip(&self, by: usize) -> Result<(), PacketError> {
        if !has_ethernet() {
            return cut_head(self, by);
        }
        let link: EthernetHeader = self.read(0).ok_or(PacketError::OutOfBounds)?;
        cut_head(self, by)?;
        self.write(0, link).ok_or(PacketError::OutOfBounds)
    }

    #[inline(always)]
    fn sum_changed(&self, _by: Sum) {
        // The kernel makes no use of a device's sum after XDP.
    }
}

/// The most 32-bit words of TCP options (RFC 9293 section 3.1).
const MAX_OPTION_WORDS: usize = 10;

/// Turns the segment in the packet into the datagram it carries. The caller has
/// found that it is one, in the plain shape.
///
/// A subprogram that reads the headers again: keeping them alive across all
/// that precedes costs more stack than BPF has.
#[inline(never)]
pub fn into_datagram<I: Ip>(packet: &impl Cut) -> Result<(), PacketError> {
    let at = link_len() + I::LEN;
    let ip: I = packet.read(link_len()).ok_or(PacketError::OutOfBounds)?;
    let tcp: TcpHeader = packet.read(at).ok_or(PacketError::OutOfBounds)?;
    let len = ip.payload_len().ok_or(PacketError::OutOfBounds)?;
    let options_len = tcp.header_len().saturating_sub(TcpHeader::LEN);
    let options =
        sum_options(packet, at + TcpHeader::LEN, options_len).ok_or(PacketError::OutOfBounds)?;
    let (new_ip, udp) = restore(ip, tcp, len, options).ok_or(PacketError::OutOfBounds)?;
    packet.cut_after_ip(GROWTH + options_len)?;
    let overwritten: UdpHeader = packet.read(at).ok_or(PacketError::OutOfBounds)?;
    packet
        .write(link_len(), new_ip)
        .ok_or(PacketError::OutOfBounds)?;
    packet.write(at, udp).ok_or(PacketError::OutOfBounds)?;
    packet.sum_changed(
        Sum::new()
            .value(&new_ip)
            .without(Sum::new().value(&ip))
            .value(&udp)
            .without(Sum::new().value(&overwritten)),
    );
    Ok(())
}

/// Options come from a middlebox: ours have none on data.
#[inline(always)]
fn sum_options(packet: &impl Packet, at: usize, len: usize) -> Option<Sum> {
    let mut sum = Sum::new();
    for word in 0..MAX_OPTION_WORDS {
        if word * 4 >= len {
            break;
        }
        sum = sum.words(packet.read::<u32>(at + word * 4)?.to_ne_bytes());
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;
    use std::vec::Vec;

    use etherparse::TcpOptionElement::{Noop, Timestamp};
    use etherparse::{IpHeaders, PacketBuilder, PacketBuilderStep, TcpOptionElement};
    use xdptun_common::tunnel::window::with_df;
    use xdptun_common::wire::{Ipv4Header, Ipv6Header};

    use super::*;
    use crate::packet::buffer::Buffer;

    /// A packet and the sum of all behind its link header, as a device tells it.
    struct Summed {
        packet: Buffer,
        sum: Cell<Sum>,
    }

    impl Summed {
        fn new(bytes: &[u8]) -> Self {
            let packet = Buffer::new(bytes);
            let sum = Cell::new(sum(&packet));
            Self { packet, sum }
        }
    }

    fn sum(packet: &Buffer) -> Sum {
        Sum::new().bytes(&packet.bytes()[EthernetHeader::LEN..])
    }

    // SAFETY: as of the buffer.
    unsafe impl Packet for Summed {
        fn start(&self) -> usize {
            self.packet.start()
        }

        fn end(&self) -> usize {
            self.packet.end()
        }
    }

    impl Cut for Summed {
        fn cut_after_ip(&self, by: usize) -> Result<(), PacketError> {
            // As `bpf_skb_adjust_room`: both headers move up, the sum loses what is gone.
            let headers = self.packet.bytes();
            let ip_len = match headers[EthernetHeader::LEN] >> 4 {
                4 => Ipv4Header::LEN,
                _ => Ipv6Header::LEN,
            };
            self.packet.cut_head(by);
            for (offset, byte) in headers[..EthernetHeader::LEN + ip_len].iter().enumerate() {
                self.write(offset, *byte).ok_or(PacketError::OutOfBounds)?;
            }
            self.sum.set(sum(&self.packet));
            Ok(())
        }

        fn sum_changed(&self, by: Sum) {
            self.sum.set(self.sum.get().combine(by));
        }
    }

    /// A segment of this payload and the datagram that it was, both built by etherparse.
    fn pair(ip: IpHeaders, options: &[TcpOptionElement], payload: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let build = || PacketBuilder::ethernet2([2; 6], [4; 6]).ip(ip.clone());
        let (mut segment, mut datagram) = (Vec::new(), Vec::new());
        let tcp: PacketBuilderStep<_> = build().tcp(51820, 8000, 7, with_df(0x1230, true));
        let tcp = tcp.psh().ack(9).options(options).unwrap();
        tcp.write(&mut segment, payload).unwrap();
        build()
            .udp(51820, 8000)
            .write(&mut datagram, payload)
            .unwrap();
        (segment, datagram)
    }

    fn restores<I: Ip>(ip: &IpHeaders) {
        for options in [&[][..], &[Noop, Noop, Timestamp(1, 2)]] {
            for len in [0, 1, 2, 3, 148, 1399] {
                let payload: Vec<u8> = (0..len).map(|index| (index * 37) as u8).collect();
                let (segment, datagram) = pair(ip.clone(), options, &payload);
                let packet = Summed::new(&segment);
                assert!(into_datagram::<I>(&packet).is_ok());
                assert_eq!(packet.packet.bytes(), datagram);
                let told = packet.sum.get().folded();
                assert_eq!(told, sum(&packet.packet).folded(), "{len} bytes");
            }
        }
    }

    #[test]
    fn a_segment_becomes_its_datagram_and_the_sum_of_the_device_stays_true() {
        let ipv4 = etherparse::Ipv4Header::new(0, 64, 6.into(), [10, 0, 0, 1], [10, 0, 0, 2]);
        restores::<Ipv4Header>(&IpHeaders::Ipv4(ipv4.unwrap(), Default::default()));
        let ipv6 = etherparse::Ipv6Header {
            source: [0x20; 16],
            destination: [0x21; 16],
            hop_limit: 64,
            ..Default::default()
        };
        restores::<Ipv6Header>(&IpHeaders::Ipv6(ipv6, Default::default()));
    }

    #[test]
    fn a_segment_that_ends_in_its_options_is_refused() {
        let ip = etherparse::Ipv4Header::new(0, 64, 6.into(), [10, 0, 0, 1], [10, 0, 0, 2]);
        let ip = IpHeaders::Ipv4(ip.unwrap(), Default::default());
        let (mut segment, _) = pair(ip, &[], &[]);
        // The data offset: eleven words.
        segment[EthernetHeader::LEN + Ipv4Header::LEN + 12] = 0xb0;
        assert!(into_datagram::<Ipv4Header>(&Summed::new(&segment)).is_err());
    }
}
