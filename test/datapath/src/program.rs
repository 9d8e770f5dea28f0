//! The programs, and what goes with a packet into one.

use xdptun_common::attachment::IngressMode;
use xdptun_common::tunnel::config::Phantuns;
use xdptun_common::wire::LINK_ETHERNET;

use crate::kernel::MTU;

/// One of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// tc egress.
    Egress,
    /// tc ingress.
    Ingress,
    /// tc ingress of the splitter's far end.
    Splitter,
    /// XDP.
    Xdp,
    /// XDP, for packets in several buffers as well.
    XdpFrags,
}

impl Program {
    /// The programs on the interface itself, which see every packet.
    pub const ALL: [Self; 4] = [Self::Egress, Self::Ingress, Self::Xdp, Self::XdpFrags];
    /// The programs for XDP, of which an interface has one.
    pub const XDP: [Self; 2] = [Self::Xdp, Self::XdpFrags];
    /// The programs for inbound packets.
    pub const INBOUND: [Self; 3] = [Self::Ingress, Self::Xdp, Self::XdpFrags];

    /// Whether it is one of [`Program::XDP`].
    #[must_use]
    pub const fn is_xdp(self) -> bool {
        matches!(self, Self::Xdp | Self::XdpFrags)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Egress => "xdptun_egress",
            Self::Ingress => "xdptun_ingress",
            Self::Splitter => "xdptun_splitter",
            Self::Xdp => "xdptun_xdp",
            Self::XdpFrags => "xdptun_xdp_frags",
        }
    }
}

/// The interface that answers leave by, if a test names none. There is no such interface:
/// clones that a program sends are lost at once.
pub const NOWHERE: u32 = i32::MAX.cast_unsigned();

/// The settings of the programs when they are loaded.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Only the configured peers are ours.
    pub peers_only: bool,
    /// Which peers are phantuns; with [`Phantuns::Some`], the configured peers.
    pub phantuns: Phantuns,
    /// Which program restores inbound data; if XDP does, it has refused plain UDP
    /// before tc sees a packet.
    pub ingress: IngressMode,
    /// The interface's MTU.
    pub mtu: u16,
    /// Length of the link header.
    pub link_len: u32,
    /// The interface that answers leave by.
    pub ifindex: u32,
    /// The near end of the splitter; 0 if there is none.
    pub near_end: u32,
    /// Old kernels: packets are shrunk in two steps.
    pub shrink_twice: bool,
    /// Whether callers must prove that they know the secret of
    /// [`crate::moment::PROOF_KEY`].
    pub hidden: bool,
    /// Whether payloads are veiled, by [`crate::moment::VEIL_KEY`], and the length up to which
    /// datagrams are padded.
    pub veil: Option<u32>,
    /// Whether the programs look for a key of each peer.
    pub veil_by_peer: bool,
    /// Whether every packet is traced.
    pub trace: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            peers_only: false,
            phantuns: Phantuns::None,
            ingress: IngressMode::Tc,
            mtu: MTU,
            link_len: LINK_ETHERNET,
            ifindex: NOWHERE,
            near_end: 0,
            shrink_twice: false,
            hidden: false,
            veil: None,
            veil_by_peer: false,
            trace: false,
        }
    }
}

/// The metadata of a packet for a tc program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skb {
    /// The packet mark.
    pub mark: u32,
    /// Index of the packet's interface; 0 is the loopback, MTU 65536.
    pub ifindex: u32,
    /// Not zero if the buffer holds several segments.
    pub gso_size: u32,
}

impl Skb {
    /// `sizeof(struct __sk_buff)`, `include/uapi/linux/bpf.h`.
    pub(crate) const LEN: usize = 192;
    // Where the fields are in it.
    pub(crate) const MARK: usize = 8;
    const IFINDEX: usize = 40;
    const GSO_SEGS: usize = 164;
    const GSO_SIZE: usize = 176;

    pub(crate) fn context(self) -> [u8; Self::LEN] {
        let mut context = [0; Self::LEN];
        let mut put = |at: usize, value: u32| {
            context[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        };
        put(Self::MARK, self.mark);
        put(Self::IFINDEX, self.ifindex);
        put(Self::GSO_SIZE, self.gso_size);
        put(Self::GSO_SEGS, if self.gso_size == 0 { 0 } else { 2 });
        context
    }
}
