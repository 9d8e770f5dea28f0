//! The paths that are measured.

use std::net::UdpSocket;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use xdptun_lab::Family;

use super::{Input, PIECES};
use crate::forwarded::Forwarded;
use crate::kernel::Programs;
use crate::load::{Batch, Load, Pace, Wait, carry_by, first_delivery};
use crate::route::Route;

/// A path with a flow of each family that stays open, perhaps with something to forward on it.
pub struct Rig {
    pub route: Route,
    forwarded: Option<Forwarded>,
    senders: [UdpSocket; 2],
}

/// The programs of sender and receiver, before and after something was sent.
pub type BeforeAndAfter = [[Programs; 2]; 2];

impl Rig {
    pub fn new(name: &'static str, ingress: &str) -> Result<Self> {
        let route = Route::xdptun(name, ingress)?;
        let forwarded = Some(Forwarded::new(&route.net)?);
        Self::on(route, forwarded)
    }

    /// With options of xdptun, and nothing to forward.
    pub fn with(name: &'static str, options: &[&str]) -> Result<Self> {
        Self::on(Route::xdptun_with(name, options)?, None)
    }

    pub fn floor(name: &'static str, ingress: &str) -> Result<Self> {
        Self::on(Route::floor(name, ingress)?, None)
    }

    fn on(route: Route, forwarded: Option<Forwarded>) -> Result<Self> {
        let [v4, v6] = Family::BOTH.map(|family| {
            let sender = route.sender(family)?;
            let opened = first_delivery(&sender, &route.receiver(family)?)?;
            opened.context("the first datagram is lost")?;
            anyhow::Ok(sender)
        });
        Ok(Self {
            senders: [v4?, v6?],
            route,
            forwarded,
        })
    }

    /// Sends one kind of datagrams.
    pub fn send(
        &self,
        family: Family,
        length: usize,
        input: Input,
        count: u64,
    ) -> Result<BeforeAndAfter> {
        self.route.net.offload("tx", input.is_partial())?;
        if input.has_room() {
            let receiver = self.route.receiver(family)?;
            let forwarded = self.forwarded.as_ref().context("nothing is forwarded")?;
            forwarded.open(family, &receiver)?;
            let before = self.route.programs()?;
            forwarded.send(family, length, input.is_partial(), count)?;
            return Ok([before, self.route.programs()?]);
        }
        let mut load = saturated(length, count);
        let mut segment = 0;
        if input == Input::Gso {
            segment = i32::try_from(length)?;
            load.length *= PIECES;
            load.count /= PIECES as u64;
        }
        self.send_from_socket(family, segment, &[], load)
    }

    /// Sends datagrams with these first bytes and complete checksums from a socket.
    pub fn send_starting_with(
        &self,
        family: Family,
        length: usize,
        first: &[u8],
        count: u64,
    ) -> Result<BeforeAndAfter> {
        self.route.net.offload("tx", false)?;
        self.send_from_socket(family, 0, first, saturated(length, count))
    }

    /// `segment` is the length that super-packets are split into; 0 for none.
    fn send_from_socket(
        &self,
        family: Family,
        segment: i32,
        first: &[u8],
        load: Load,
    ) -> Result<BeforeAndAfter> {
        let receiver = self.route.receiver(family)?;
        let sender = &self.senders[family as usize];
        setsockopt(sender, UdpGsoSegment, &segment)?;
        let mut batch = Batch::starting_with(first, load.length);
        let before = self.route.programs()?;
        carry_by(&receiver, load, |due| batch.send(sender, due))?;
        Ok([before, self.route.programs()?])
    }
}

/// So many datagrams, as fast as they are taken.
pub fn saturated(length: usize, count: u64) -> Load {
    Load {
        length,
        pace: Pace::Saturated,
        wait: Wait::Sleep,
        time: Duration::from_secs(5),
        count,
    }
}
