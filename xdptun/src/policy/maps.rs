//! The maps of the kernel side, typed.

use std::collections::{BTreeMap, BTreeSet};

use aya::maps::{Array, HashMap, MapData, MapError, MapType, PerCpuArray, PerCpuValues, RingBuf};
use xdptun_common::bytes_of;
use xdptun_common::member::ROWS;
use xdptun_common::policy::rule::{Direction, MAX_RULES, PLACES, Rule, Set, SetKey};

use super::plan::Settings;
use super::rules::{PresentRule, compiled, direction, text_of};
use crate::config::PolicyRule;
use crate::datapath::map::{Shape, Source, absent, take_map};
use crate::datapath::pod::AsPod;
use crate::error::{Context as _, Result, bail};

/// The maps that outlive the daemon.
pub struct Maps {
    sets: HashMap<MapData, AsPod<SetKey>, AsPod<Set>>,
    rules: Array<MapData, AsPod<Rule>>,
    hits: PerCpuArray<MapData, u64>,
    /// The events, as long as the daemon does not read them; none of pins.
    pub(super) events: Option<RingBuf<MapData>>,
    /// The rules of each interface by its name, and in that by direction.
    by_name: BTreeMap<String, Sets>,
    /// The places in use before rules were last written: a reload that fails goes back to them.
    before: BTreeSet<u8>,
}

/// The rules of an interface, by direction.
type Sets = [Set; 2];

/// Their names, as pins and in the object.
const RULE_SETS: &str = "RULE_SETS";
const RULES: &str = "RULES";
const HITS: &str = "HITS";
const POLICY_EVENTS: &str = "POLICY_EVENTS";

/// The pinned maps beside [those of any function](crate::datapath::engine_maps::NAMES).
pub const PINNED: [&str; 5] = [RULE_SETS, RULES, HITS, POLICY_EVENTS, "EVENT_LIMITS"];

const NO_RULES: Set = Set {
    count: 0,
    places: [0; MAX_RULES],
};

impl Maps {
    /// The maps of this source.
    ///
    /// # Errors
    ///
    /// If one is missing or not what its name says.
    pub fn open(source: &mut Source<'_>) -> Result<Self> {
        let events = match source {
            Source::Object(ebpf) => Some(take_map(ebpf, POLICY_EVENTS)?.try_into()?),
            Source::Pins(_) => None,
        };
        let hits = Shape(MapType::PerCpuArray, size_of::<u32>(), size_of::<u64>());
        let mut map = |name, shape| source.map(name, shape);
        Ok(Self {
            sets: map(RULE_SETS, Shape::hash::<SetKey, Set>())?.try_into()?,
            rules: map(RULES, Shape::array::<Rule>())?.try_into()?,
            hits: map(HITS, hits)?.try_into()?,
            events,
            by_name: BTreeMap::new(),
            before: BTreeSet::new(),
        })
    }

    /// Writes rules beside those in use. They take effect when [`Maps::set_interfaces`] names their
    /// interfaces. A rule that is in use already keeps its place, and so its hits. Interfaces share
    /// the place of equal rules: their hits are in rows of their own.
    ///
    /// # Errors
    ///
    /// If there are too many, or a map cannot be written.
    pub fn write_rules(&mut self, settings: &Settings) -> Result<()> {
        let used = self.used()?;
        let mut free: Vec<u8> = (0..PLACES as u8)
            .filter(|place| !used.contains(place))
            .collect();
        let mut known: BTreeSet<u8> = used.union(&self.before).copied().collect();
        let mut by_name = BTreeMap::new();
        wait_for_programs();
        for (name, policies) in settings {
            let sets = self.write_list(policies, &mut known, &mut free)?;
            by_name.insert(name.clone(), sets);
        }
        self.by_name = by_name;
        self.before = used;
        Ok(())
    }

    /// Writes the rules of an interface: those that one of the places `known` has stay there, the
    /// others get `free` ones, which are known from then on.
    fn write_list(
        &mut self,
        policies: &[PolicyRule],
        known: &mut BTreeSet<u8>,
        free: &mut Vec<u8>,
    ) -> Result<Sets> {
        let mut sets = [NO_RULES; 2];
        // Two rules of an interface have different names, so one place is not found twice.
        for (number, policy) in policies.iter().enumerate() {
            let rule = compiled(policy, number)?;
            let same = |place: &u8| {
                let present = self.rules.get(&u32::from(*place), 0);
                present.is_ok_and(|present| bytes_of(&present.0) == bytes_of(&*rule))
            };
            let place = match known.iter().copied().find(same) {
                Some(place) => {
                    free.retain(|one| *one != place);
                    place
                }
                None => {
                    let Some(place) = free.pop() else {
                        bail!(
                            Invalid,
                            "{} rules are too many beside those that they replace; there is room \
                             for {PLACES} in all",
                            policies.len()
                        );
                    };
                    self.clear_hits(place)?;
                    self.rules
                        .set(place.into(), AsPod(*rule), 0)
                        .context("cannot write the rules")?;
                    known.insert(place);
                    place
                }
            };
            let set = &mut sets[direction(policy.direction) as usize];
            let count = set.count as usize;
            if let Some(entry) = set.places.get_mut(count) {
                *entry = place;
                set.count += 1;
            }
        }
        Ok(sets)
    }

    /// The places that programs read.
    fn used(&self) -> Result<BTreeSet<u8>> {
        let mut used = BTreeSet::new();
        for entry in self.sets.iter() {
            let (_, AsPod(set)) = entry.context("cannot read the rules")?;
            used.extend(set.places.iter().take(set.count as usize));
        }
        Ok(used)
    }

    /// Lets the interfaces among these that have rules search by them, and no others.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn set_interfaces(&mut self, interfaces: &BTreeMap<u32, String>) -> Result<(), MapError> {
        let mut wanted = BTreeMap::new();
        for (interface, name) in interfaces {
            let sets = self.by_name.get(name).copied().unwrap_or([NO_RULES; 2]);
            for (direction, set) in [Direction::In, Direction::Out].into_iter().zip(sets) {
                if set.count != 0 {
                    wanted.insert(key(*interface, direction), set);
                }
            }
        }
        for (key, set) in &wanted {
            let present = absent(self.sets.get(&AsPod(*key), 0))?;
            if present.is_none_or(|present| present.0 != *set) {
                // The kernel writes a value where that of another key was, which a program may
                // still read (`alloc_htab_elem` in its `kernel/bpf/hashtab.c`).
                wait_for_programs();
                self.sets.insert(AsPod(*key), AsPod(*set), 0)?;
            }
        }
        let present: Vec<_> = self.sets.keys().collect::<Result<_, _>>()?;
        for AsPod(key) in present {
            if !wanted.contains_key(&key) {
                absent(self.sets.remove(&AsPod(key)))?;
            }
        }
        Ok(())
    }

    /// The rules of an interface as they are at this moment, with their hits in its row.
    ///
    /// # Errors
    ///
    /// If a map cannot be read.
    pub fn rules_of(&self, interface: u32, row: u32) -> Result<Vec<PresentRule>> {
        let mut rules = Vec::new();
        for direction in [Direction::In, Direction::Out] {
            let set = absent(self.sets.get(&AsPod(key(interface, direction)), 0))?;
            let set = set.map_or(NO_RULES, |set| set.0);
            for place in set.places.iter().take(set.count as usize) {
                let rule = self.rules.get(&u32::from(*place), 0)?;
                let hits = self
                    .hits
                    .get(&(row * PLACES as u32 + u32::from(*place)), 0)?;
                rules.push(PresentRule::of(&rule.0, hits.iter().sum()));
            }
        }
        Ok(rules)
    }

    /// The name of the rule at a place, if there is one.
    #[must_use]
    pub fn name_at(&self, place: u8) -> Option<String> {
        let rule = self.rules.get(&place.into(), 0).ok()?;
        Some(text_of(&rule.0.name))
    }

    /// Sets the hits in a row to zero, for another interface.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn clear_row(&mut self, row: u32) -> Result<()> {
        (0..PLACES as u32).try_for_each(|place| self.clear_hit(row, place))
    }

    /// Sets the hits of a place to zero, for another rule.
    fn clear_hits(&mut self, place: u8) -> Result<()> {
        let before = self.rules.get(&place.into(), 0)?.0;
        // A rule has a name; where none was, nothing was hit.
        match before.name[0] {
            0 => Ok(()),
            _ => (0..ROWS).try_for_each(|row| self.clear_hit(row, place.into())),
        }
    }

    fn clear_hit(&mut self, row: u32, place: u32) -> Result<()> {
        let index = row * PLACES as u32 + place;
        let hits = self.hits.get(&index, 0)?;
        if hits.iter().any(|hits| *hits != 0) {
            let zeros = PerCpuValues::try_from(vec![0; hits.len()])?;
            self.hits.set(index, zeros, 0)?;
        }
        Ok(())
    }
}

const fn key(interface: u32, direction: Direction) -> SetKey {
    SetKey {
        interface,
        direction: direction as u32,
    }
}

/// Waits until every program has ended that may have read a set of rules which is gone: places of
/// such rules are free only then. `MEMBARRIER_CMD_GLOBAL` waits for a grace period of RCU, in which
/// all programs end (`synchronize_rcu` in the kernel's `kernel/sched/membarrier.c`).
fn wait_for_programs() {
    // A kernel that knows no such barrier (`nohz_full`) refuses. Then the rest of this call has to
    // be the time for a program to end.
    // SAFETY: no pointers are involved.
    let _refused =
        unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
}
