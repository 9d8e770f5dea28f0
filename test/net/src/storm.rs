//! A wire that loses, reorders and doubles segments, the same ones for a seed.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xdptun_lab::numbered::{Tally, number};
use xdptun_lab::seeded::Random;
use xdptun_lab::{Carried, Kind, Relay, Side};

use crate::packet::{self, TcpPacket};

/// Each disturbance meets one segment of so many.
const ONE_IN: usize = 10;

/// How many later segments at most overtake one that is held back.
const OVERTAKEN: usize = 4;

/// How a wire disturbs segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disturbance {
    /// Some are lost.
    pub loses: bool,
    /// Some arrive after later ones.
    pub reorders: bool,
    /// Some arrive twice.
    pub doubles: bool,
}

impl Disturbance {
    /// Nothing at all.
    pub const NONE: Self = disturbance(false, false, false);
    /// Each alone, and all together.
    pub const ALL: [Self; 4] = [
        disturbance(true, false, false),
        disturbance(false, true, false),
        disturbance(false, false, true),
        disturbance(true, true, true),
    ];
}

const fn disturbance(loses: bool, reorders: bool, doubles: bool) -> Disturbance {
    Disturbance {
        loses,
        reorders,
        doubles,
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            (self.loses, "loses"),
            (self.reorders, "reorders"),
            (self.doubles, "doubles"),
        ];
        let words = words.iter().filter(|(on, _)| *on).map(|(_, word)| *word);
        f.write_str(&words.collect::<Vec<_>>().join(", "))
    }
}

/// The disturbances of a storm, both directions together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Segments that did not arrive.
    pub lost: u32,
    /// Segments that were held back.
    pub held: u32,
    /// Segments that arrived twice.
    pub doubled: u32,
}

/// A storm on a wire. What becomes of the nth segment of a direction depends on
/// the seed alone, whatever the other direction does meanwhile.
///
/// It meets TCP. Neighbour discovery passes, because losing it tests the kernel,
/// and all else does, because there must be none.
#[derive(Debug)]
pub struct Storm(Arc<Mutex<State>>);

struct State {
    kind: Kind,
    disturbance: Disturbance,
    to_a: Direction,
    to_b: Direction,
    done: Done,
}

struct Direction {
    random: Random,
    /// Held back, each with how many may still overtake it.
    held: Vec<(Carried, usize)>,
    /// Datagrams in segments that arrived.
    arrived: Tally,
}

impl Storm {
    /// Begins on a wire of this kind.
    pub fn begin(relay: &Relay, kind: Kind, seed: u64, disturbance: Disturbance) -> Self {
        let direction = |stream| Direction {
            random: Random::new(seed, stream, 0),
            held: Vec::new(),
            arrived: Tally::default(),
        };
        let state = Arc::new(Mutex::new(State {
            kind,
            disturbance,
            to_a: direction(0),
            to_b: direction(1),
            done: Done::default(),
        }));
        let program = Arc::clone(&state);
        relay.program(move |frame| lock(&program).carry(frame));
        Self(state)
    }

    /// Ends it. What is held back arrives with the next segment, before it.
    pub fn calm(&self) {
        lock(&self.0).disturbance = Disturbance::NONE;
    }

    /// Its disturbances so far.
    pub fn done(&self) -> Done {
        lock(&self.0).done
    }

    /// The datagrams in the segments that arrived at an end.
    pub fn arrived(&self, to: Side) -> Tally {
        lock(&self.0).direction(to).arrived.clone()
    }
}

impl State {
    fn direction(&mut self, to: Side) -> &mut Direction {
        match to {
            Side::A => &mut self.to_a,
            Side::B => &mut self.to_b,
        }
    }

    fn carry(&mut self, frame: Carried) -> Vec<Carried> {
        if TcpPacket::read(self.kind, &frame.bytes).is_err() {
            return vec![frame];
        }
        let (kind, disturbance, to) = (self.kind, self.disturbance, frame.to);
        let mut done = self.done;
        let direction = self.direction(to);
        let arriving = if disturbance == Disturbance::NONE {
            let held = direction.held.drain(..).map(|(frame, _)| frame);
            held.chain([frame]).collect()
        } else {
            direction.disturb(frame, disturbance, &mut done)
        };
        for frame in &arriving {
            if let Some(data) = packet::data(kind, frame)
                && let Ok(number) = number(&data.payload)
            {
                direction.arrived.add(number);
            }
        }
        self.done = done;
        arriving
    }
}

impl Direction {
    /// One segment, which makes those that it overtakes due.
    fn disturb(&mut self, frame: Carried, what: Disturbance, done: &mut Done) -> Vec<Carried> {
        // All are drawn, whatever is asked for, so that each alone is the same
        // as it is among the others.
        let [lost, held, doubled] = [(); 3].map(|()| self.random.once_in(ONE_IN));
        let overtaken = self.random.between(1, OVERTAKEN);
        let mut arriving = Vec::new();
        let mut later = Vec::new();
        if what.loses && lost {
            done.lost += 1;
        } else {
            if what.doubles && doubled {
                done.doubled += 1;
                arriving.push(frame.clone());
            }
            if what.reorders && held {
                done.held += 1;
                later.push((frame, overtaken));
            } else {
                arriving.push(frame);
            }
        }
        for (frame, left) in self.held.drain(..) {
            match left - 1 {
                0 => arriving.push(frame),
                left => later.push((frame, left)),
            }
        }
        self.held = later;
        arriving
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("disturbance", &self.disturbance)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
