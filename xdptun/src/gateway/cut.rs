//! Sessions of rules that are gone: they end, and both ends hear of it.
//!
//! Nothing can send a segment that its ends believe before one of them has sent one, as only that
//! has the numbers. So what is left of a session is a note of its packets: to the next segment of
//! either end the daemon answers with RST.

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, OwnedFd};

use aya::maps::{Array, HashMap, Map, MapData};
use tracing::info;
use xdptun_common::flow::tick::Tick;
use xdptun_common::gateway::rule::{BackEnd, ListenKey};
use xdptun_common::gateway::tuple::{End, Side, Tuple};

use super::maps::Maps;
use crate::datapath::batch;
use crate::datapath::map::{Shape, Source, absent};
use crate::datapath::pod::AsPod;
use crate::error::{Context as _, Result, bail};
use crate::host::clock::monotonic_ns;

const CUT: &str = "CUT";
const CUT_ORDER: &str = "CUT_ORDER";

/// Those that are pinned.
pub const PINNED: [&str; 2] = [CUT, CUT_ORDER];

/// An order to end the sessions that no rule has any more. Each is carried out once, also if
/// another process goes on; zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutOrder(u32);

impl CutOrder {
    /// A new one.
    #[must_use]
    pub fn now() -> Self {
        Self(Tick::at(monotonic_ns()).0.max(1))
    }
}

/// The maps of sessions that were cut.
pub struct Cut {
    /// The tuples of their packets, and until when they are answered, a [`Tick`].
    notes: HashMap<MapData, AsPod<Tuple>, u32>,
    /// The same map.
    table: OwnedFd,
    /// The order that was carried out last.
    order: Array<MapData, u32>,
}

impl Cut {
    /// The maps of this source.
    ///
    /// # Errors
    ///
    /// If one is missing or not what its name says.
    pub fn open(source: &mut Source<'_>) -> Result<Self> {
        let notes = source.map(CUT, Shape::hash::<Tuple, u32>())?;
        let Map::HashMap(data) = &notes else {
            bail!(Other, "{CUT} is not a hash map");
        };
        Ok(Self {
            table: data.fd().as_fd().try_clone_to_owned()?,
            notes: notes.try_into()?,
            order: source.map(CUT_ORDER, Shape::array::<u32>())?.try_into()?,
        })
    }

    /// Forgets those whose time has passed.
    ///
    /// # Errors
    ///
    /// If the map cannot be read or written.
    pub fn sweep(&mut self) -> Result<()> {
        let all: Vec<(Tuple, u32)> = batch::entries(&self.table)?;
        let now = Tick::at(monotonic_ns());
        let over = all.iter().filter(|(_, until)| is_over(*until, now));
        for (tuple, _) in over {
            absent(self.notes.remove(&AsPod(*tuple)))?;
        }
        Ok(())
    }
}

/// Whether a time has passed.
const fn is_over(until: u32, now: Tick) -> bool {
    until.wrapping_sub(now.0).cast_signed() <= 0
}

/// Carries out an order, unless that was done.
///
/// # Errors
///
/// If a map cannot be read or written.
pub fn carry_out(maps: &mut Maps, order: CutOrder) -> Result<()> {
    if order == CutOrder::default() || order.0 == maps.cut.order.get(&0, 0)? {
        return Ok(());
    }
    let carried = Carried::by(maps)?;
    let until = Tick::at(monotonic_ns()).0;
    let until = until.wrapping_add(maps.timers()?.tcp_ended);
    let mut cut = 0_u64;
    // Read first: a session that lasts from now on is found once more, in the other table.
    let waiting = maps.waiting()?;
    // Those that last come first, as there may not be room for all notes.
    let parts = maps.lasting_parts()?.chain([Ok(waiting)]);
    for part in parts {
        for (call, entry) in part.context("cannot read the sessions")? {
            let marks = entry.marks();
            let is_call = marks.is_counted() && !marks.is_bound();
            if is_call && !carried.has(&call, entry.to) {
                cut += u64::from(end(maps, &call, entry.to, until)?);
            }
        }
    }
    if cut > 0 {
        info!("cut sessions that no rule has any more: {cut}");
    }
    maps.requests.forget_unnamed()?;
    Ok(maps.cut.order.set(0, order.0, 0)?)
}

/// Ends a session of a client's packets with a back end; `false` if it is not there any more.
fn end(maps: &mut Maps, call: &Tuple, to: End, until: u32) -> Result<bool> {
    // The client may have begun another one since.
    if maps
        .entry_anywhere(call)?
        .is_none_or(|entry| entry.to != to)
    {
        return Ok(false);
    }
    let tuples = tuples_of(maps, call, to)?;
    // All notes before the first entry goes, so that no packet finds neither. Without room for them
    // the ends hear nothing until they give up.
    for tuple in &tuples {
        let _ = maps.cut.notes.insert(AsPod(*tuple), until, 0);
    }
    for tuple in &tuples {
        maps.forget(tuple).context("cannot remove a session")?;
    }
    Ok(true)
}

/// The tuples of all packets of a session, as the hooks meet them.
fn tuples_of(maps: &Maps, call: &Tuple, to: End) -> Result<Vec<Tuple>> {
    let mut tuples = vec![*call, call.answer(to)];
    let leaving = call.with_translated(to).at(Side::Out);
    if let Some(source) = maps.entry_anywhere(&leaving)? {
        tuples.extend([leaving, leaving.answer(source.to)]);
    }
    Ok(tuples)
}

/// What the rules forward, and to where.
struct Carried(BTreeSet<(ListenKey, End)>);

impl Carried {
    /// By the rules that interfaces have now.
    fn by(maps: &Maps) -> Result<Self> {
        // The ports of a rule share its places.
        let mut known = BTreeMap::new();
        let mut carried = BTreeSet::new();
        for (key, listen) in maps.listen_in_use()? {
            let back_ends: &Vec<BackEnd> = match known.entry((listen.first, listen.places)) {
                Slot::Occupied(known) => known.into_mut(),
                Slot::Vacant(new) => new.insert(maps.back_ends(&listen)?),
            };
            let back_ends = back_ends.iter().map(|one| one.end(listen.offset));
            carried.extend(back_ends.map(|back_end| (key.of_set(0), back_end)));
        }
        Ok(Self(carried))
    }

    /// Whether a rule forwards packets of a session to where they go.
    fn has(&self, call: &Tuple, to: End) -> bool {
        let listen = call.destination();
        let key = ListenKey::new(0, listen.address(), listen.port(), call.protocol());
        let mut keys = [key, key.of_any()].into_iter();
        keys.any(|key| self.0.contains(&(key, to)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_over_when_its_time_has_passed() {
        let now = Tick(u32::MAX - 1);
        for (until, over) in [
            (u32::MAX - 2, true),
            (u32::MAX - 1, true),
            (u32::MAX, false),
            (5, false),
        ] {
            assert_eq!(is_over(until, now), over, "{until}");
        }
    }
}
