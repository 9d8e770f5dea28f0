//! The names of the programs, and the hook of each.

use aya::programs::TcAttachType;

/// The XDP program.
pub const XDP_PROGRAM: &str = "xdptun_xdp";
/// The same for packets in several buffers.
pub const XDP_FRAGS_PROGRAM: &str = "xdptun_xdp_frags";
/// The tc programs on the interface itself.
pub const TC_PROGRAMS: [TcProgram; 2] = [TcProgram::Ingress, TcProgram::Egress];

/// A tc program; its number is the index of its filter in `Attachment`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcProgram {
    Ingress = 0,
    Egress = 1,
    /// At the splitter's far end.
    Splitter = 2,
}

impl TcProgram {
    /// Its name in the object.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "xdptun_ingress",
            Self::Egress => "xdptun_egress",
            Self::Splitter => "xdptun_splitter",
        }
    }

    /// Where it is attached.
    pub const fn hook(self) -> TcAttachType {
        match self {
            Self::Egress => TcAttachType::Egress,
            Self::Ingress | Self::Splitter => TcAttachType::Ingress,
        }
    }
}
