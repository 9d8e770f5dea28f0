//! Which restored datagrams go up by way of GRO.
//!
//! A socket with `UDP_GRO` takes many datagrams at once, but the GRO of the interface has met the
//! segments, not the datagrams. So where many come, they pass a device whose GRO merges them, the
//! joiner, and come in by the interface again. That costs a lone datagram more than it saves, so
//! these go up directly.
//!
//! A flow has a [`Lane`] while it goes that way. It goes back to the direct way when nothing of it is
//! under way to the joiner and back: so none of its datagrams overtakes another. Of two flows
//! that want the same lane, the one that brings many datagrams keeps it; the other goes up directly.

/// How many lanes there are: so many flows with [`MANY`] datagrams bring a million a second together.
pub const LANES: u32 = 256;

/// 2^24 ns, 16.8 ms: times of lanes are counts of it. Longer than a tick of any kernel, so that two
/// ticks that follow each other are in the same period, or in two that do.
const PERIOD_BITS: u32 = 24;

/// So many datagrams of a period are many: 3,800 in a second, 46 Mbit/s of full ones.
pub const MANY: u32 = 64;

/// After so many that came out of the joiner, the lane rests if the packets had fewer than
/// [`ENOUGH`] of them on average: the socket takes one datagram at a time, or the datagrams do not
/// come in bursts.
pub const JUDGED: u32 = 256;

/// How many datagrams a packet must have for the joiner to pay.
pub const ENOUGH: u32 = 12;

/// How long a lane rests, in periods: 1.07 s. Flows grow, and a sender's bursts with them.
pub const REST: u32 = 64;

/// While no flow uses the joiner, programs look at one of so many datagrams of each flow, and count it
/// as so many: the others cost nothing.
pub const SAMPLE: u32 = 8;

/// When nothing has come back for so many periods (67 ms), what is under way was lost.
const LOST: i32 = 4;

/// What programs know of a flow that may go to the joiner. CPUs that race on it may count wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Lane {
    /// Tells the flow from others that want the lane.
    pub owner: u32,
    /// The period in which its datagrams were last counted.
    pub period: u32,
    /// How many came in it.
    pub count: u32,
    /// How many in the one right before.
    pub before: u32,
    /// The number of the datagram that was last sent to the joiner.
    pub sent: u32,
    /// The number of the one that last came back.
    pub landed: u32,
    /// The period in which it did, or in which the first behind it was sent.
    pub landed_in: u32,
    /// How many came out of the joiner since the lane was last judged.
    pub out: u32,
    /// In how many packets.
    pub packets: u32,
    /// The lane rests until this period.
    pub rests_until: u32,
    /// The queue of the joiner that holds what is under way.
    pub queue: u32,
}

crate::plain!(Lane: 44);

/// The period of a time in nanoseconds.
#[inline(always)]
#[must_use]
pub const fn period(now: u64) -> u32 {
    (now >> PERIOD_BITS) as u32
}

/// Whether datagrams may be under way to the joiner or back, if the last was sent in `sent`.
#[inline(always)]
#[must_use]
pub const fn is_in_use(period: u32, sent: u32) -> bool {
    passed(period, sent) < LOST
}

/// How many periods lie between two, the later one first. Clocks of two CPUs may be a tick apart.
#[inline(always)]
const fn passed(period: u32, since: u32) -> i32 {
    period.wrapping_sub(since).cast_signed()
}

impl Lane {
    /// Counts a datagram of the flow `owner` that came in `period` as `count`, and chooses its way:
    /// whether it goes to the joiner, under the number that follows [`sent`](Self::sent) and by
    /// [`queue`](Self::queue). `here` is the queue of this CPU.
    #[inline(always)]
    pub fn choose(&mut self, owner: u32, period: u32, count: u32, here: u32) -> bool {
        let passed = passed(period, self.period);
        if self.owner != owner {
            if self.is_held(passed) {
                return false;
            }
            *self = Self {
                owner,
                period,
                sent: self.sent,
                landed: self.sent,
                rests_until: period,
                ..Self::default()
            };
        } else if passed > 0 {
            self.before = if passed == 1 { self.count } else { 0 };
            self.count = 0;
            self.period = period;
        }
        self.count += count;
        if self.is_under_way() {
            if self::passed(period, self.landed_in) < LOST {
                return true;
            }
            self.landed = self.sent;
            self.rest(period);
        }
        let many = self.count >= MANY || self.before >= MANY;
        if !many || self::passed(self.rests_until, period) > 0 {
            return false;
        }
        self.queue = here;
        self.landed_in = period;
        true
    }

    /// For a while, datagrams go to the joiner only if they would overtake others there.
    #[inline(always)]
    pub fn rest(&mut self, period: u32) {
        self.rests_until = period.wrapping_add(REST);
    }

    /// Whether another flow must leave the lane to its owner, from which nothing was counted for so
    /// many periods.
    #[inline(always)]
    const fn is_held(&self, passed: i32) -> bool {
        match passed {
            ..=0 => self.owner != 0,
            1 => self.count >= MANY || self.is_under_way(),
            _ => passed < LOST && self.is_under_way(),
        }
    }

    /// Whether datagrams are under way to the joiner and back.
    #[inline(always)]
    const fn is_under_way(&self) -> bool {
        (self.sent ^ self.landed) & NUMBER != 0
    }

    /// Notes that `count` datagrams came out of the joiner in one packet.
    #[inline(always)]
    pub fn joined(&mut self, count: u32, period: u32) {
        self.out += count;
        self.packets += 1;
        if self.out < JUDGED {
            return;
        }
        if self.out < self.packets * ENOUGH {
            self.rest(period);
        }
        (self.out, self.packets) = (0, 0);
    }

    /// Notes that a packet of `count` datagrams, the first of which had this number, is back. If one
    /// of them was lost, the number of the last is higher, and the next packet tells.
    #[inline(always)]
    pub fn land(&mut self, number: u32, count: u32, period: u32) {
        let last = number.wrapping_add(count).wrapping_sub(1);
        // GRO hands some datagrams up at once, ahead of those that it keeps.
        if (last.wrapping_sub(self.landed) as u16).cast_signed() > 0 {
            self.landed = last;
        }
        self.landed_in = period;
    }
}

/// The bits of a datagram's number that its mark has. The joiner's queue (256) and the kernel's
/// (`netdev_max_backlog`, 1,000 packets) never hold as many.
const NUMBER: u32 = 0xffff;

/// The first of the marks of datagrams that are under way to the joiner and back.
const FIRST: u32 = (b'j' as u32) << 24;

/// The mark of a datagram that is under way to the joiner and back: its lane and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinMark {
    /// Its lane.
    pub lane: u32,
    /// The last bits of its number.
    pub number: u32,
}

impl JoinMark {
    /// The mark.
    #[inline(always)]
    #[must_use]
    pub const fn to_raw(self) -> u32 {
        FIRST | (self.lane % LANES) << 16 | self.number & NUMBER
    }

    /// What a mark says; `None` if it is another's.
    #[inline(always)]
    #[must_use]
    pub const fn from_raw(mark: u32) -> Option<Self> {
        if mark & 0xff00_0000 != FIRST {
            return None;
        }
        Some(Self {
            lane: (mark >> 16) % LANES,
            number: mark & NUMBER,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: u32 = 1;

    /// Lets datagrams of the owner come; whether the last goes to the joiner.
    fn come(lane: &mut Lane, period: u32, count: u32) -> bool {
        let mut goes = false;
        for _ in 0..count {
            goes = lane.choose(OWNER, period, 1, 0);
            lane.sent = lane.sent.wrapping_add(goes.into());
        }
        goes
    }

    /// A lane that got so many datagrams in a period.
    fn busy(period: u32, count: u32) -> (Lane, bool) {
        let mut lane = Lane::default();
        let goes = come(&mut lane, period, count);
        (lane, goes)
    }

    #[test]
    fn many_datagrams_go_to_the_joiner_and_few_do_not() {
        for (count, expected) in [(1, false), (MANY - 1, false), (MANY, true), (200, true)] {
            assert_eq!(busy(7, count).1, expected, "{count}");
        }
        // They go on in the period that follows, from its first one on.
        for (count, period, expected) in [(MANY, 8, true), (MANY, 9, false), (MANY - 1, 8, false)] {
            let (mut lane, _) = busy(7, count);
            lane.landed = lane.sent;
            assert_eq!(come(&mut lane, period, 1), expected, "{count}, {period}");
        }
    }

    #[test]
    fn none_overtakes_those_under_way() {
        let (mut lane, _) = busy(7, MANY + 1);
        assert_eq!(lane.sent, 2);
        // Few now, but two are under way.
        assert!(come(&mut lane, 10, 1));
        // Two came back merged, and the third.
        lane.land(1, 2, 10);
        assert!(come(&mut lane, 10, 1), "the third is under way");
        lane.land(3, 2, 10);
        assert!(!come(&mut lane, 10, 1));
    }

    #[test]
    fn a_flow_that_changes_its_cpu_stays_in_its_queue_while_some_are_under_way() {
        let (mut lane, _) = busy(7, MANY);
        assert!(lane.choose(OWNER, 7, 1, 3) && lane.queue == 0);
        lane.land(lane.sent, 1, 7);
        assert!(lane.choose(OWNER, 7, 1, 3) && lane.queue == 3);
    }

    #[test]
    fn a_clock_that_is_behind_changes_nothing() {
        let (mut lane, _) = busy(7, MANY);
        assert!(come(&mut lane, 6, 1));
        assert_eq!((lane.period, lane.count), (7, MANY + 1));
    }

    #[test]
    fn what_is_lost_is_not_waited_for() {
        let (lane, _) = busy(7, MANY + 3);
        let late = 7 + LOST.cast_unsigned();
        assert!(come(&mut lane.clone(), late - 1, 1));
        assert!(!come(&mut lane.clone(), late, 1));
        // Nor if datagrams go on coming, and then the lane rests.
        let mut deaf = lane;
        for period in 8..late {
            assert!(come(&mut deaf, period, MANY));
        }
        assert!(!come(&mut deaf, late, MANY));
        assert!(!come(&mut deaf, late + REST - 1, MANY));
        assert!(come(&mut deaf, late + REST, MANY));
        // Or something behind it comes back.
        let mut lane = lane;
        lane.land(lane.sent & NUMBER, 1, 9);
        assert!(!come(&mut lane, 9, 1));
    }

    #[test]
    fn what_gro_hands_up_first_does_not_hide_what_it_keeps() {
        let (mut lane, _) = busy(7, MANY + 1);
        lane.land(2, 1, 7);
        lane.land(1, 1, 7);
        assert_eq!(lane.landed, 2);
    }

    #[test]
    fn one_datagram_may_stand_for_several() {
        let mut lane = Lane::default();
        for _ in 1..MANY / SAMPLE {
            assert!(!lane.choose(OWNER, 7, SAMPLE, 0));
        }
        assert!(lane.choose(OWNER, 7, SAMPLE, 0));
    }

    #[test]
    fn a_lane_works_at_any_time() {
        for period in [0, 1, u32::MAX / 2, u32::MAX / 2 + 2, u32::MAX] {
            assert!(busy(period, MANY).1, "{period}");
        }
    }

    #[test]
    fn the_second_flow_takes_the_lane_that_the_first_has_left() {
        let other = |mut lane: Lane, period| {
            lane.choose(2, period, 1, 0);
            lane.owner == 2
        };
        let (few, _) = busy(7, MANY - 1);
        let (mut many, _) = busy(7, MANY);
        assert!(!other(many, 8), "one is under way");
        many.land(1, 1, 8);
        let cases = [
            (few, 6, false),
            (few, 7, false),
            (few, 8, true),
            (many, 8, false),
            (many, 9, true),
        ];
        for (lane, period, taken) in cases {
            assert_eq!(other(lane, period), taken, "{lane:?}, {period}");
        }
        // What the first has lost is not the second's.
        let (mut lost, _) = busy(7, MANY + 3);
        assert!(!other(lost, 10));
        assert!(!lost.choose(2, 11, 1, 0) && lost.owner == 2);
        assert!(!lost.choose(OWNER, 11, 1, 0));
    }

    #[test]
    fn a_lane_whose_packets_have_few_datagrams_rests() {
        let (mut lane, _) = busy(7, MANY);
        lane.land(1, 1, 7);
        for _ in 0..JUDGED.div_ceil(ENOUGH) {
            lane.joined(ENOUGH, 7);
        }
        assert!(lane.choose(OWNER, 7, 1, 0), "they had enough");
        let full = JUDGED / ENOUGH - 1;
        for _ in 0..full {
            lane.joined(ENOUGH, 7);
        }
        for _ in full * ENOUGH..JUDGED {
            lane.joined(1, 7);
        }
        assert!(!lane.choose(OWNER, 7, 1, 0));
        let awake = 7 + REST;
        lane.period = awake - 1;
        assert!(!lane.clone().choose(OWNER, awake - 1, 1, 0));
        assert!(lane.choose(OWNER, awake, 1, 0));
    }

    #[test]
    fn numbers_wrap() {
        let mut lane = Lane {
            owner: OWNER,
            period: 7,
            count: MANY,
            sent: u32::MAX,
            landed: u32::MAX,
            ..Lane::default()
        };
        assert!(come(&mut lane, 7, 1));
        assert!(come(&mut lane, 10, 1), "under way");
        lane.land(1, 1, 10);
        assert!(!come(&mut lane, 10, 1));
    }

    #[test]
    fn marks_tell_lane_and_number() {
        for (lane, number) in [(0, 0), (5, 7), (LANES - 1, NUMBER)] {
            let mark = JoinMark { lane, number };
            assert_eq!(JoinMark::from_raw(mark.to_raw()), Some(mark));
        }
        for mark in [0, 1, FIRST - 1, FIRST + (1 << 24)] {
            assert_eq!(JoinMark::from_raw(mark), None, "{mark:#x}");
        }
    }
}
