//! A function as the engine sees it: programs in an object, and the hook of each.

use aya::programs::TcAttachType;

/// What xdptun does with packets: a set of programs.
#[derive(Debug)]
pub struct Function {
    /// Its name, also that of the directory above its pins.
    pub name: &'static str,
    /// The program at tc ingress.
    pub ingress: &'static str,
    /// The program at tc egress.
    pub egress: &'static str,
    /// The program at the splitter's far end.
    pub splitter: &'static str,
    /// The XDP program.
    pub xdp: &'static str,
    /// The same for packets in several buffers.
    pub xdp_frags: &'static str,
}

/// The tc programs on the interface itself.
pub const TC_PROGRAMS: [TcProgram; 2] = [TcProgram::Ingress, TcProgram::Egress];

/// A tc program by its hook; its number is the index of its filter in `Attachment`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcProgram {
    /// tc ingress.
    Ingress = 0,
    /// tc egress.
    Egress = 1,
    /// At the splitter's far end.
    Splitter = 2,
}

impl TcProgram {
    /// Where it is attached.
    pub const fn hook(self) -> TcAttachType {
        match self {
            Self::Egress => TcAttachType::Egress,
            Self::Ingress | Self::Splitter => TcAttachType::Ingress,
        }
    }
}

impl Function {
    /// The name of a tc program in the object.
    pub const fn program(&self, which: TcProgram) -> &'static str {
        match which {
            TcProgram::Ingress => self.ingress,
            TcProgram::Egress => self.egress,
            TcProgram::Splitter => self.splitter,
        }
    }
}
