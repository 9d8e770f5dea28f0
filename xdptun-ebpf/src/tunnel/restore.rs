//! A segment of an established flow becomes a datagram, for tc and XDP alike.

use aya_ebpf::bindings::BPF_F_ADJ_ROOM_NO_CSUM_RESET;
use aya_ebpf::bindings::bpf_adj_room_mode::BPF_ADJ_ROOM_NET;
use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::checksum::Sum;
use xdptun_common::tunnel::translate::{GROWTH, lost_by_ip, restore};
use xdptun_common::wire::{EthernetHeader, Ip, TcpHeader, UdpHeader};

use crate::packet::access::Packet;
use crate::packet::error::PacketError;
use crate::packet::link::{has_ethernet, link_len};
use crate::packet::resize::cut_head;

/// A packet from which bytes behind the IP header can be removed.
pub trait Cut: Packet {
    /// Removes `by` bytes behind the fixed IP header, in whose place `ip` comes; the link header
    /// stays.
    fn cut_after_ip<I: Ip>(&self, ip: I, by: usize) -> Result<(), PacketError>;

    /// Adds `by` to the word at `at`, which will be cut: by so much less does the rest add up to.
    fn balance(&self, at: usize, by: Sum) -> Option<()>;

    /// Writes the checksum after a change of the payload, so that a device's sum stays true: what
    /// `replace` balances, it reads from the packet. XDP needs none, as of `balance`.
    fn write_checksum(&self, at: usize, checksum: [u8; 2]) -> Option<()>;
}

impl Cut for TcContext {
    #[inline(always)]
    fn cut_after_ip<I: Ip>(&self, ip: I, by: usize) -> Result<(), PacketError> {
        self.write(link_len(), ip).ok_or(PacketError::OutOfBounds)?;
        // The datagram's checksum is right exactly if the segment's was, so what the device
        // found, if it verified that, still holds.
        let flags = u64::from(BPF_F_ADJ_ROOM_NO_CSUM_RESET);
        self.adjust_room(-(by as i32), BPF_ADJ_ROOM_NET, flags)
            .map_err(|_| PacketError::Resize)
    }

    /// A device may have added up the whole packet (`CHECKSUM_COMPLETE`). The kernel takes what
    /// is cut from its sum, and learns of nothing else.
    #[inline(always)]
    fn balance(&self, at: usize, by: Sum) -> Option<()> {
        let word: [u8; 2] = self.read(at)?;
        self.write(at, by.word(word).folded())
    }

    #[inline(always)]
    fn write_checksum(&self, at: usize, checksum: [u8; 2]) -> Option<()> {
        self.write(at, checksum)
    }
}

impl Cut for XdpContext {
    #[inline(always)]
    fn cut_after_ip<I: Ip>(&self, ip: I, by: usize) -> Result<(), PacketError> {
        if has_ethernet() {
            let link: EthernetHeader = self.read(0).ok_or(PacketError::OutOfBounds)?;
            self.write(by, link).ok_or(PacketError::OutOfBounds)?;
        }
        self.write(by + link_len(), ip)
            .ok_or(PacketError::OutOfBounds)?;
        cut_head(self, by)
    }

    /// The kernel makes no use of a device's sum after XDP.
    #[inline(always)]
    fn balance(&self, _at: usize, _by: Sum) -> Option<()> {
        Some(())
    }

    /// See [`Cut::balance`].
    #[inline(always)]
    fn write_checksum(&self, _at: usize, _checksum: [u8; 2]) -> Option<()> {
        Some(())
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
    let restored = restore(ip, tcp, len, options).ok_or(PacketError::OutOfBounds)?;
    replace(packet, restored, GROWTH + options_len)
}

/// Writes the headers of the datagram over the end of those of the segment, behind whose IP
/// header `by` bytes too many are. All is written before anything moves: afterwards the
/// verifier would want every bound checked again.
#[inline(always)]
pub fn replace<I: Ip>(
    packet: &impl Cut,
    (ip, udp): (I, UdpHeader),
    by: usize,
) -> Result<(), PacketError> {
    let at = link_len() + I::LEN;
    let overwritten: UdpHeader = packet.read(at + by).ok_or(PacketError::OutOfBounds)?;
    packet.write(at + by, udp).ok_or(PacketError::OutOfBounds)?;
    let lost = lost_by_ip::<I>(by as u16)
        .value(&overwritten)
        .without(Sum::new().value(&udp));
    packet.balance(at, lost).ok_or(PacketError::OutOfBounds)?;
    packet.cut_after_ip(ip, by)
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
        /// As `bpf_skb_adjust_room`: the sum loses what is cut, both headers move up.
        fn cut_after_ip<I: Ip>(&self, ip: I, by: usize) -> Result<(), PacketError> {
            let at = EthernetHeader::LEN + I::LEN;
            self.write(EthernetHeader::LEN, ip)
                .ok_or(PacketError::OutOfBounds)?;
            let bytes = self.packet.bytes();
            let cut = Sum::new().bytes(&bytes[at..at + by]);
            self.sum.set(self.sum.get().without(cut));
            self.packet.cut_head(by);
            for (offset, byte) in bytes[..at].iter().enumerate() {
                self.write(offset, *byte).ok_or(PacketError::OutOfBounds)?;
            }
            Ok(())
        }

        fn balance(&self, at: usize, by: Sum) -> Option<()> {
            let word: [u8; 2] = self.read(at)?;
            self.write(at, by.word(word).folded())
        }

        fn write_checksum(&self, at: usize, checksum: [u8; 2]) -> Option<()> {
            self.write(at, checksum)
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
