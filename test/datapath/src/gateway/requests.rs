//! What the programs ask of the daemon.

use std::net::IpAddr;

use aya::maps::{Array, HashMap};
use xdptun_common::address::address_bytes;
use xdptun_common::flow::tick::Tick;
use xdptun_common::gateway::request::{Kind, Request};
use xdptun_common::gateway::tuple::Tuple;

use super::Gateway;
use crate::kernel::{Record, within};
use crate::moment::Moment;

impl Gateway {
    /// Lets the programs believe that a daemon runs.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn has_daemon(&mut self) {
        let mut awake: Array<_, u32> = within(&mut self.ebpf, "AWAKE");
        let now = Tick(Moment::now().tick());
        awake.set(0, now.0, 0).expect("it can be written");
    }

    /// Lets rules name an address.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn names(&mut self, address: IpAddr) {
        let mut named: HashMap<_, [u8; 16], u8> = within(&mut self.ebpf, "NAMED");
        let written = named.insert(address_bytes(address), 1, 0);
        written.expect("it can be written");
    }

    /// Notes that the sessions of these packets were cut, until so many ticks from now.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn cuts(&mut self, packets: &[Tuple], ticks: i32) {
        let mut cut: HashMap<_, Record<Tuple>, u32> = within(&mut self.ebpf, "CUT");
        let until = Moment::now().tick().wrapping_add_signed(ticks);
        for packet in packets {
            let written = cut.insert(Record(*packet), until, 0);
            written.expect("it can be written");
        }
    }

    /// What the daemon was asked since the last call, and the packets that it got.
    ///
    /// # Panics
    ///
    /// If a request is not one.
    pub fn requests(&mut self) -> Vec<(Kind, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some(item) = self.requests.next() {
            let request: Request = xdptun_common::read_plain(&item).expect("a request");
            let kind = Kind::from_raw(request.kind).expect("a kind that is known");
            let packet = &item[size_of::<Request>()..][..request.len as usize];
            all.push((kind, packet.to_vec()));
        }
        all
    }
}
