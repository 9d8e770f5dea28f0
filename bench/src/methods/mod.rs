//! The measurements, one file per method.

mod datapath;
mod download;
mod flows;
mod forward;
mod h3;
mod nat;
mod nat64;
mod peers;
mod policy;
mod start;
mod tcp;
mod udp;
mod web;
mod wg;

use std::fmt;

use anyhow::Result;
use clap::ValueEnum;

use crate::document::Section;
use crate::glance::Headline;
use crate::harness::{Extent, Harness};
use crate::results::Measured;

/// A method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// A download: direct, over WireGuard, over WireGuard over xdptun
    Wg,
    /// A download over HTTP/3, with and without xdptun
    H3,
    /// Nanoseconds of each program for a packet, and of its parts
    Datapath,
    /// Bare UDP: rates, CPU time, round trips, first datagrams
    Udp,
    /// One flow to 60,000: rates, time of the programs, memory
    Flows,
    /// How long it takes to attach and to detach
    Start,
    /// Bare UDP, by xdptun and by other programs of its kind
    Peers,
    /// Forwarded TCP connections, one and many, by xdptun and by others
    Forward,
    /// TCP connections through a NAT: xdptun's, the kernel's, none
    Nat,
    /// IPv6-only clients of an IPv4 server: by xdptun, by Tayga, beside NAT of IPv4
    Nat64,
    /// TCP whose payload is searched: by the policy, by the kernel's xt_string, behind NFQUEUE
    Policy,
}

impl Method {
    /// Measures, as root.
    pub fn measure(self, extent: Extent) -> Result<Measured> {
        let mut harness = Harness::start(extent, self.rounds())?;
        let measure = match self {
            Self::Wg => wg::measure,
            Self::H3 => h3::measure,
            Self::Datapath => datapath::measure,
            Self::Udp => udp::measure,
            Self::Flows => flows::measure,
            Self::Start => start::measure,
            Self::Peers => peers::measure,
            Self::Forward => forward::measure,
            Self::Nat => nat::measure,
            Self::Nat64 => nat64::measure,
            Self::Policy => policy::measure,
        };
        measure(&mut harness)?;
        Ok(harness.finish())
    }

    /// How many rounds count: fewer where one takes minutes.
    const fn rounds(self) -> u32 {
        match self {
            Self::Nat => 3,
            Self::Wg | Self::H3 | Self::Peers | Self::Forward | Self::Nat64 | Self::Policy => 5,
            Self::Datapath | Self::Udp | Self::Flows | Self::Start => 7,
        }
    }

    /// The sections of the document.
    pub fn sections(self, measured: &Measured) -> Result<Vec<Section>> {
        match self {
            Self::Wg => wg::sections(measured),
            Self::H3 => h3::sections(measured),
            Self::Datapath => datapath::sections(measured),
            Self::Udp => udp::sections(measured),
            Self::Flows => flows::sections(measured),
            Self::Start => start::sections(measured),
            Self::Peers => peers::sections(measured),
            Self::Forward => forward::sections(measured),
            Self::Nat => nat::sections(measured),
            Self::Nat64 => nat64::sections(measured),
            Self::Policy => policy::sections(measured),
        }
    }

    /// What of it stands in the first section.
    pub fn headlines(self, measured: &Measured) -> Vec<Headline> {
        match self {
            Self::Wg => vec![wg::headline(measured)],
            Self::H3 => vec![h3::headline(measured)],
            Self::Peers => peers::headlines(measured).into(),
            Self::Flows => vec![flows::headline(measured)],
            Self::Datapath
            | Self::Udp
            | Self::Start
            | Self::Forward
            | Self::Nat
            | Self::Nat64
            | Self::Policy => Vec::new(),
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
