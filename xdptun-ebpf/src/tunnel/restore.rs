//! A segment of an established flow becomes a datagram, for tc and XDP alike.

use aya_ebpf::bindings::BPF_F_ADJ_ROOM_NO_CSUM_RESET;
use aya_ebpf::bindings::bpf_adj_room_mode::BPF_ADJ_ROOM_NET;
use aya_ebpf::helpers::generated::bpf_csum_update;
use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::checksum::Sum;
use xdptun_common::tunnel::translate::restore;
use xdptun_common::wire::{EthernetHeader, Ip, TcpHeader, UdpHeader};

use crate::packet::access::Packet;
use crate::packet::link::{has_ethernet, link_len};
use crate::packet::resize::{ResizeError, cut_head};
use crate::packet::skb::Skb as _;

/// A packet from which bytes after the IP header can be removed. The caller
/// writes the IP header again; the link header stays.
pub trait Cut: Packet {
    /// Removes `by` bytes.
    fn cut_after_ip(&self, by: usize) -> Result<(), ResizeError>;

    /// Tells the kernel that bytes were written, whose sum is now larger by `by`.
    fn sum_changed(&self, by: Sum);
}

impl Cut for TcContext {
    #[inline(always)]
    fn cut_after_ip(&self, by: usize) -> Result<(), ResizeError> {
        // The device has verified the segment's checksum or nobody has, and the
        // datagram's is right exactly if that was: what it found still holds.
        let flags = u64::from(BPF_F_ADJ_ROOM_NO_CSUM_RESET);
        self.adjust_room(-(by as i32), BPF_ADJ_ROOM_NET, flags)
            .map_err(|_| ResizeError)
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
    fn cut_after_ip(&self, by: usize) -> Result<(), ResizeError> {
        if !has_ethernet() {
            return cut_head(self, by);
        }
        let link: EthernetHeader = self.read(0).ok_or(ResizeError)?;
        cut_head(self, by)?;
        self.write(0, link).ok_or(ResizeError)
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
pub fn run<I: Ip>(packet: &impl Cut) -> Result<(), ResizeError> {
    let at = link_len() + I::LEN;
    let ip: I = packet.read(link_len()).ok_or(ResizeError)?;
    let tcp: TcpHeader = packet.read(at).ok_or(ResizeError)?;
    let len = ip.payload_len().ok_or(ResizeError)?;
    let options_len = tcp.header_len().saturating_sub(TcpHeader::LEN);
    let options = sum_options(packet, at + TcpHeader::LEN, options_len).ok_or(ResizeError)?;
    let (new_ip, udp) = restore(ip, tcp, len, options).ok_or(ResizeError)?;
    packet.cut_after_ip(TcpHeader::GROWTH + options_len)?;
    let overwritten: UdpHeader = packet.read(at).ok_or(ResizeError)?;
    packet.write(link_len(), new_ip).ok_or(ResizeError)?;
    packet.write(at, udp).ok_or(ResizeError)?;
    packet.sum_changed(
        Sum::new()
            .record(&new_ip)
            .without(Sum::new().record(&ip))
            .record(&udp)
            .without(Sum::new().record(&overwritten)),
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
