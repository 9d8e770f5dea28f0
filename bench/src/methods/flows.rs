//! Many flows: the rate, the time of the programs, the memory of the maps.
//!
//! A flow is a source address of the sender, of which it has 65,536 (a local
//! route to the loopback makes them all its own): one socket sends for all.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xdptun_lab::{Family, udp, xdptun};

use crate::document::Section;
use crate::glance::Headline;
use crate::harness::{Harness, Round};
use crate::kernel::map_memory;
use crate::load::{Batch, Load, Pace, Wait, carry_by};
use crate::plot::Bars;
use crate::results::Measured;
use crate::route::{PORT, Route};
use crate::table::{Bar, Goal, Table, median, number, spread};

/// Numbers of flows.
const COUNTS: [usize; 4] = [1, 1000, 10_000, 60_000];

/// Payload bytes.
const LENGTH: usize = 1400;

/// New flows under way at a time.
const PACE: usize = 256;

/// Drops what is sent back, as the sender's one socket has another address.
const NO_ANSWERS: &str = "table ip answers { chain in { type filter hook input priority 0; \
                          ip daddr 10.1.0.0/16 drop; }; }";

/// How long new flows may take to open.
const PATIENCE: Duration = Duration::from_secs(5);

const RATE: &str = "received/s";
const EGRESS: &str = "egress ns";
const INGRESS: &str = "ingress ns";
const BOTH: &str = "egress and ingress ns";
const ACKS: &str = "ACKs per datagram";
const MEMORY: &str = "maps, MiB";
const EACH: &str = "bytes of a flow";

/// What both programs may take, counting included, among so many flows or more.
const TIME_BAR: Bar = Bar::at_most(2100.0, 1500.0);
const MANY: usize = 10_000;

/// What a flow may take.
const MEMORY_GOAL: Goal = Goal::AtMost(224.0);

fn case(count: usize) -> String {
    match count {
        1 => "1 flow".to_owned(),
        count => format!("{} flows", number(count as f64)),
    }
}

/// A path whose sender has many addresses.
struct Rig {
    route: Route,
    sender: UdpSocket,
    receiver: UdpSocket,
}

impl Rig {
    fn new(route: Route) -> Result<Self> {
        let (a, b) = (&route.net.a, &route.net.b);
        a.netns
            .run("ip", ["route", "add", "local", "10.1.0.0/16", "dev", "lo"])?;
        let via = a.v4.to_string();
        b.netns
            .run("ip", ["route", "add", "10.1.0.0/16", "via", &via])?;
        a.netns.run_with_input("nft", ["-f", "-"], NO_ANSWERS)?;
        let sender = udp::bind(&a.netns, (Ipv4Addr::UNSPECIFIED, PORT))?;
        sender.connect(b.socket(Family::V4, PORT))?;
        let receiver = route.receiver(Family::V4)?;
        Ok(Self {
            route,
            sender,
            receiver,
        })
    }

    /// Sends one datagram for each source, waits until all have arrived, and answers each:
    /// flows that nobody answers have a share of the table, no more.
    fn open(&self, sources: &[Ipv4Addr]) -> Result<()> {
        self.receiver.set_read_timeout(Some(PATIENCE))?;
        let (mut send, mut room) = (Batch::new(64), [0; 64]);
        for some in sources.chunks(PACE) {
            for part in some.chunks(Batch::SIZE) {
                let sent = send.send_from(&self.sender, part)?;
                ensure!(sent == part.len(), "{sent} of {} were sent", part.len());
            }
            for arrived in 0..some.len() {
                let (_, from) = self.receiver.recv_from(&mut room).with_context(|| {
                    let (all, first) = (some.len(), some[0]);
                    format!("{arrived} of {all} new flows opened, from {first}")
                })?;
                self.receiver.send_to(&[0], from)?;
            }
        }
        Ok(())
    }

    /// How many ACKs of their own the receiver has sent, and how many datagrams it
    /// has restored.
    fn acknowledged(&self) -> Result<[f64; 2]> {
        let status = xdptun::status(&self.route.net.b.netns)?;
        let counters = &status["interfaces"][0]["counters"];
        let counter = |name: &str| {
            counters[name]
                .as_f64()
                .with_context(|| format!("no {name}"))
        };
        Ok([counter("sent_ack")?, counter("rx_restored")?])
    }

    /// Sends for one source after the other; datagrams received in a second.
    fn flood(&self, sources: &[Ipv4Addr], time: Duration) -> Result<f64> {
        let (mut batch, mut next) = (Batch::new(LENGTH), 0);
        let load = Load {
            length: LENGTH,
            pace: Pace::Saturated,
            wait: Wait::Sleep,
            time,
            count: u64::MAX,
        };
        let mut due = Vec::with_capacity(Batch::SIZE);
        let carried = carry_by(&self.receiver, load, |count| {
            due.clear();
            due.extend((0..count).map(|index| sources[(next + index) % sources.len()]));
            let sent = batch.send_from(&self.sender, &due)?;
            next = (next + sent) % sources.len();
            Ok(sent)
        })?;
        Ok(carried.per_second())
    }
}

/// Opens all flows, then sends on one, on some, on all of them.
pub fn measure(harness: &mut Harness) -> Result<()> {
    let counts = harness.extent.pick(COUNTS, [1, 100, 200, 1000]);
    let time = Duration::from_millis(harness.extent.pick(500, 50));
    let most = counts[counts.len() - 1];
    let first = u32::from(Ipv4Addr::new(10, 1, 0, 1));
    let sources: Vec<Ipv4Addr> = (first..).map(Ipv4Addr::from).take(most).collect();
    let direct = Rig::new(Route::direct()?)?;
    direct.open(&sources)?;
    let disguised = Rig::new(Route::xdptun("xdptun", "auto")?)?;
    let mut memories = Vec::new();
    let mut open = 0;
    for count in counts {
        disguised.open(&sources[open..count])?;
        open = count;
        memories.push(map_memory(disguised.route.process(0)?)?);
        harness.say(&format!("{count} flows are open"));
    }
    harness.note(format!("{LENGTH} bytes; {most} flows open all the time"));
    harness.rounds(|round| {
        for (count, memory) in counts.iter().zip(&memories) {
            let case = case(*count);
            let sources = &sources[..*count];
            let rate = direct.flood(sources, time)?;
            round.keep(&case, "direct", &[(RATE, rate)]);
            carry_over(round, &case, &disguised, sources, time)?;
            let each = (memory - memories[0]) as f64 / (count - counts[0]) as f64;
            let values = [(MEMORY, *memory as f64 / 1048576.0), (EACH, each)];
            round.keep(&case, "xdptun", &values);
        }
        Ok(())
    })
}

fn carry_over(
    round: &mut Round<'_>,
    case: &str,
    rig: &Rig,
    sources: &[Ipv4Addr],
    time: Duration,
) -> Result<()> {
    let rate = rig.flood(sources, time)?;
    // Counting costs time, and so is not part of the rate.
    let acks_before = rig.acknowledged()?;
    let [egress, ingress] = rig.route.time_programs(|| rig.flood(sources, time))?;
    let [acks, restored] = rig.acknowledged()?;
    let acks = (acks - acks_before[0]) / (restored - acks_before[1]);
    let values = [
        (RATE, rate),
        (EGRESS, egress),
        (INGRESS, ingress),
        (BOTH, egress + ingress),
        (ACKS, acks),
    ];
    round.keep(case, "xdptun", &values);
    Ok(())
}

/// The table of the document.
pub fn sections(measured: &Measured) -> Result<Vec<Section>> {
    let mut table = Table::new(&[
        "flows",
        "direct, received/s",
        "xdptun, received/s",
        "ratio",
        EGRESS,
        INGRESS,
        BOTH,
        "goal",
        ACKS,
        MEMORY,
        EACH,
        "goal",
    ]);
    let cases = measured.names(|sample| &sample.case);
    for case in &cases {
        let of = |metric| measured.summary(case, "xdptun", metric);
        let is_many = COUNTS
            .iter()
            .any(|&count| count >= MANY && *case == self::case(count));
        let time = is_many.then_some(TIME_BAR);
        let memory = is_many.then_some(MEMORY_GOAL);
        table.row([
            (*case).to_owned(),
            spread(measured.summary(case, "direct", RATE)),
            spread(of(RATE)),
            spread(measured.ratio(case, ["xdptun", "direct"], RATE)),
            spread(of(EGRESS)),
            spread(of(INGRESS)),
            spread(of(BOTH)),
            time.map_or_else(String::new, |bar| bar.judge(of(BOTH))),
            median(of(ACKS)),
            median(of(MEMORY)),
            median(of(EACH)),
            memory.map_or_else(String::new, |goal| goal.judge(of(EACH))),
        ]);
    }
    let section = Section::new("flows", table.to_string());
    Ok(vec![section.with_plot(plot(measured))])
}

/// What of it stands in the first section.
pub fn headline(measured: &Measured) -> Headline {
    let ratio = measured.ratio(&case(MANY), ["xdptun", "direct"], RATE);
    Headline::rate("datagrams a second, 10,000 flows", ratio)
}

fn plot(measured: &Measured) -> Bars {
    let mut bars = Bars::new("A datagram among many flows", "ns");
    for (colour, metric) in [EGRESS, INGRESS].into_iter().enumerate() {
        for case in measured.names(|sample| &sample.case) {
            let label = format!("{case}, {}", metric.trim_end_matches(" ns"));
            bars.add(label, colour, measured.summary(case, "xdptun", metric));
        }
    }
    bars
}
