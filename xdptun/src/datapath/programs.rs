//! The programs of a function as the engine sees them: their names in the object, and the hook
//! of each.

use aya::programs::TcAttachType;

/// The programs of a function.
#[derive(Debug)]
pub struct Programs {
    /// The function's name, also that of the directory above its pins.
    pub function: &'static str,
    /// How far from the network they stand on a hook: a packet that comes in meets the
    /// programs with the least order first, one that leaves meets them last. No two functions
    /// have the same.
    pub order: u32,
    /// Whether versions before groups had the function: they pinned what an interface has right
    /// below the network namespace.
    pub is_older_than_groups: bool,
    /// The device that the function makes for its programs, and that goes with them, if it does.
    pub device: Option<&'static str>,
    /// The program at tc ingress, if there is one.
    pub ingress: Option<&'static str>,
    /// The program at tc egress.
    pub egress: &'static str,
    /// The programs at the splitter, if the function splits super-packets.
    pub splitter: Option<SplitterPrograms>,
    /// The XDP programs, if it has some.
    pub xdp: Option<XdpPrograms>,
}

/// The programs at the two ends of a splitter.
#[derive(Clone, Copy, Debug)]
pub struct SplitterPrograms {
    /// At the far end, where pieces arrive.
    pub far: &'static str,
    /// At the near end, where merged datagrams arrive.
    pub near: &'static str,
}

/// An XDP program, of which there are two.
#[derive(Debug)]
pub struct XdpPrograms {
    /// For packets in one buffer.
    pub linear: &'static str,
    /// For packets in several buffers.
    pub frags: &'static str,
}

/// A tc program by its hook; its number is the index of its filter in `Attachment`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcProgram {
    /// tc ingress.
    Ingress = 0,
    /// tc egress.
    Egress = 1,
    /// At the splitter's far end.
    Splitter = 2,
    /// At its near end.
    Joiner = 3,
}

impl TcProgram {
    /// Where it is attached.
    pub const fn hook(self) -> TcAttachType {
        match self {
            Self::Egress => TcAttachType::Egress,
            Self::Ingress | Self::Splitter | Self::Joiner => TcAttachType::Ingress,
        }
    }
}

impl SplitterPrograms {
    /// Both, by name.
    pub const fn all(self) -> [(TcProgram, &'static str); 2] {
        [
            (TcProgram::Splitter, self.far),
            (TcProgram::Joiner, self.near),
        ]
    }
}

impl Programs {
    /// The tc programs on the interface itself, by name.
    pub fn on_interface(&self) -> impl DoubleEndedIterator<Item = (TcProgram, &'static str)> {
        let ingress = self.ingress.map(|name| (TcProgram::Ingress, name));
        ingress
            .into_iter()
            .chain([(TcProgram::Egress, self.egress)])
    }

    /// All tc programs, by name.
    pub fn at_tc(&self) -> impl Iterator<Item = &'static str> {
        let splitter = self.splitter.into_iter().flat_map(SplitterPrograms::all);
        self.on_interface().chain(splitter).map(|(_, name)| name)
    }
}
