//! The maps by which the programs ask the daemon for something: to hold fragments, to tell the
//! sender of a packet that it was refused.

use std::collections::BTreeSet;

use aya::maps::{Array, HashMap, MapData, MapError, RingBuf};
use xdptun_common::flow::tick::Tick;
use xdptun_common::gateway::fragment::First;
use xdptun_common::parse::FragmentKey;

use crate::datapath::map::{Shape, Source, absent, take_map};
use crate::datapath::pod::AsPod;
use crate::error::{Context as _, Result};
use crate::host::clock::monotonic_ns;

/// The maps.
pub struct Requests {
    /// The requests, as long as the daemon does not read them; none of pins.
    pub ring: Option<RingBuf<MapData>>,
    firsts: HashMap<MapData, AsPod<FragmentKey>, AsPod<First>>,
    awake: Array<MapData, u32>,
    named: HashMap<MapData, [u8; 16], u8>,
    /// What the rules name that were written last.
    by_rules: BTreeSet<[u8; 16]>,
}

/// Their names, as pins and in the object.
const REQUESTS: &str = "REQUESTS";
const FIRSTS: &str = "FIRSTS";
const AWAKE: &str = "AWAKE";
const NAMED: &str = "NAMED";

/// Those that are pinned.
pub const PINNED: [&str; 6] = [REQUESTS, FIRSTS, AWAKE, NAMED, "AWAITED", "REQUEST_LIMITS"];

impl Requests {
    /// The maps of this source.
    ///
    /// # Errors
    ///
    /// If one is missing or not what its name says.
    pub fn open(source: &mut Source<'_>) -> Result<Self> {
        let ring = match source {
            Source::Object(ebpf) => Some(take_map(ebpf, REQUESTS)?.try_into()?),
            Source::Pins(_) => None,
        };
        let mut map = |name, shape| source.map(name, shape);
        Ok(Self {
            ring,
            firsts: map(FIRSTS, Shape::lru_hash::<FragmentKey, First>())?.try_into()?,
            awake: map(AWAKE, Shape::array::<u32>())?.try_into()?,
            named: map(NAMED, Shape::hash::<[u8; 16], u8>())?.try_into()?,
            by_rules: BTreeSet::new(),
        })
    }

    /// Tells the programs that the daemon is awake now.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn note_awake(&mut self) -> Result<(), MapError> {
        self.awake.set(0, Tick::at(monotonic_ns()).0, 0)
    }

    /// Tells the programs that there is no room for fragments, so that others do not come either for
    /// a while.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn note_full(&mut self) -> Result<(), MapError> {
        self.awake.set(1, Tick::at(monotonic_ns()).0, 0)
    }

    /// Whether the first fragment of a datagram has come.
    ///
    /// # Errors
    ///
    /// If the table cannot be read.
    pub fn has_come(&self, datagram: &FragmentKey) -> Result<bool, MapError> {
        let first = absent(self.firsts.get(&AsPod(*datagram), 0))?;
        Ok(first.is_some_and(|first| first.0.lasts(monotonic_ns())))
    }

    /// Notes addresses that rules name, beside those of the rules before.
    ///
    /// # Errors
    ///
    /// If there are too many.
    pub fn name(&mut self, addresses: BTreeSet<[u8; 16]>) -> Result<()> {
        for address in &addresses {
            self.named
                .insert(address, 1, 0)
                .context("cannot write the addresses of rules")?;
        }
        self.by_rules = addresses;
        Ok(())
    }

    /// Forgets addresses that only rules before name, whose sessions have been cut.
    ///
    /// # Errors
    ///
    /// If the map cannot be read or written.
    pub fn forget_unnamed(&mut self) -> Result<()> {
        let present: Vec<[u8; 16]> = self.named.keys().collect::<Result<_, _>>()?;
        for address in present {
            if !self.by_rules.contains(&address) {
                absent(self.named.remove(&address))?;
            }
        }
        Ok(())
    }
}
