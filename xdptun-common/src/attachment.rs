//! What user space notes of an attachment, for itself and for the process after it.

/// The process that holds an attachment, in a pinned map of its own. This value alone
/// never changes its layout, so that every version can end another version's attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Owner {
    /// Layout version of everything pinned beside it.
    pub layout: u32,
    /// Process id of the daemon.
    pub pid: u32,
}

crate::plain!(Owner: 8);

impl Owner {
    /// The layout that this version writes: directories, attachments, flows and counters.
    pub const LAYOUT: u32 = 14;
}

/// What was set up on one interface, in a pinned map by its index, for other processes to
/// read.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Attachment {
    /// An [`IngressMode`].
    pub ingress: u32,
    /// A [`Filters`].
    pub filters: u32,
    /// Which row of the counters is its own.
    pub row: u32,
    /// How far from the network the function's programs stand on a hook: 0 is next to it.
    pub order: u32,
    /// The interface name, padded with zeros.
    pub name: [u8; 16],
    /// Nanoseconds of `CLOCK_MONOTONIC` when it attached.
    pub since: u64,
    /// Datagrams that the daemon had to drop while they waited for a handshake.
    pub lost_in_queue: u64,
    /// 1 if restored datagrams that come in bursts are merged on their way up, else 0.
    pub gro: u64,
    /// Where the filters are, if there are any: ingress, egress, splitter, joiner.
    pub places: [FilterPlace; 4],
}

crate::plain!(Attachment: 88);

/// Where a tc filter is: what it takes to replace it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FilterPlace {
    /// Its handle.
    pub handle: u32,
    /// Its priority.
    pub priority: u32,
}

impl FilterPlace {
    /// Whether there is a filter.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.priority != 0
    }
}

/// What holds the tc programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Filters {
    /// TCX links.
    Tcx = 0,
    /// Filters of a clsact qdisc that was there before.
    Clsact = 1,
    /// Filters of a clsact qdisc that was added for them.
    OwnClsact = 2,
}

crate::from_raw! {
    /// What is stored as `value`.
    pub Filters: u32 { Tcx, Clsact, OwnClsact }
}

impl Filters {
    /// The name used on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcx => "tcx",
            Self::Clsact | Self::OwnClsact => "clsact",
        }
    }
}

/// Which program restores inbound data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum IngressMode {
    /// tc ingress alone.
    Tc = 0,
    /// XDP in the driver, tc for the rest.
    Xdp = 1,
    /// XDP in the stack (switches the interface's software GRO off), tc for the rest.
    XdpGeneric = 2,
}

crate::from_raw! {
    /// The mode stored as `value`.
    pub IngressMode: u32 { Tc, Xdp, XdpGeneric }
}

impl IngressMode {
    /// The name used on the command line and in status output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tc => "tc",
            Self::Xdp => "xdp",
            Self::XdpGeneric => "xdp-generic",
        }
    }
}
