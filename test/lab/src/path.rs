//! A router further on that refuses large packets, or lets some packets overtake
//! others. The kernel of this machine needs no netem for either.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::netns::Netns;

/// Routes with an MTU below that of their interface.
#[derive(Debug)]
#[must_use = "they stay narrow until `Narrow::widen`"]
pub struct Narrow {
    netns: Netns,
    /// For `ip -4` and `ip -6`: the routes as they were.
    routes: [(&'static str, String); 2],
}

/// Makes a router refuse packets of more than `mtu` bytes to the networks at one of its
/// interfaces, and tell their senders.
pub fn narrow(netns: &Netns, dev: &str, mtu: u32) -> Result<Narrow> {
    let mut routes = [("-4", String::new()), ("-6", String::new())];
    for (version, batch) in &mut routes {
        let show = [*version, "route", "show", "dev", dev, "proto", "kernel"];
        let mut narrow = String::new();
        for line in netns.run("ip", show)?.lines() {
            if line.starts_with("fe80::") {
                continue;
            }
            let route = format!("route replace {line} dev {dev} proto kernel");
            // Without the lock a router goes by the interface alone.
            narrow += &format!("{route} mtu lock {mtu}\n");
            *batch += &format!("{route}\n");
        }
        netns.run_with_input("ip", [*version, "-batch", "-"], &narrow)?;
    }
    Ok(Narrow {
        netns: netns.clone(),
        routes,
    })
}

impl Narrow {
    /// Lets packets pass as before. Senders that learned otherwise do not forget it.
    pub fn widen(self) -> Result<()> {
        for (version, batch) in self.routes {
            self.netns
                .run_with_input("ip", [version, "-batch", "-"], &batch)?;
        }
        Ok(())
    }
}

/// Makes a host forget the path MTUs that it learned.
pub fn forget_mtus(netns: &Netns) -> Result<()> {
    for version in ["-4", "-6"] {
        netns.run("ip", [version, "route", "flush", "cache"])?;
    }
    Ok(())
}

/// The slow lane: every packet takes 39 ms, as one of 4,875 bytes at 1 Mbit/s, and the next
/// one waits.
const RATE: &str = "rate 1mbit mpu 4875 burst 1b cburst 1b quantum 1500";
/// The rate at which packets enter it: one in 40 ms, and six at once, so that none waits
/// longer than 273 ms. A limit in bytes would let all of a second enter at once.
const ENTRY: &str = "limit rate 25/second burst 6 packets";

/// Gives interfaces of a router a slow lane beside the fast one, empty at first.
pub fn add_slow_lane<'a>(netns: &Netns, devs: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let mut batch = String::new();
    for dev in devs {
        // Class 0 is none: what is in no lane passes at once.
        batch += &format!(
            "qdisc add dev {dev} root handle 1: htb default 0\n\
             class add dev {dev} parent 1: classid 1:20 htb {RATE}\n\
             qdisc add dev {dev} parent 1:20 handle 20: pfifo limit 1000\n"
        );
    }
    netns.run_with_input("tc", ["-batch", "-"], &batch)?;
    Ok(())
}

/// From now on some of the packets that leave by these interfaces are overtaken by those
/// behind them. None is lost.
pub fn reorder<'a>(netns: &Netns, devs: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let lanes: String = devs
        .into_iter()
        .map(|dev| {
            format!("oifname {dev} numgen random mod 8 == 0 {ENTRY} meta priority set 1:20\n")
        })
        .collect();
    let rules = format!(
        "table inet lanes {{
            chain forward {{
                type filter hook forward priority filter + 1; policy accept;
                {lanes}
            }}
        }}"
    );
    netns.run_with_input("nft", ["-f", "-"], &rules)?;
    Ok(())
}

/// Ends [`reorder`]. Packets that wait in the slow lane still arrive.
pub fn keep_order(netns: &Netns) -> Result<()> {
    netns.run("nft", ["delete", "table", "inet", "lanes"])?;
    Ok(())
}

/// How many packets the slow lane of an interface has refused; none may be.
pub fn lost_in_slow_lane(netns: &Netns, dev: &str) -> Result<u64> {
    let text = netns.run("tc", ["-json", "-statistics", "qdisc", "show", "dev", dev])?;
    let qdiscs: Vec<Value> = serde_json::from_str(&text).context("`tc -json` printed no JSON")?;
    let lane = qdiscs.iter().find(|qdisc| qdisc["handle"] == "20:");
    lane.and_then(|lane| lane["drops"].as_u64())
        .with_context(|| format!("{dev} has no slow lane: {text}"))
}
