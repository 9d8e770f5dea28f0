//! What the demonstration found: as a table, as JSON, and as a judgement.

use std::fmt;

use indicatif::HumanCount;
use serde::Serialize;
use xdptun_lab::WireStats;

/// One download.
#[derive(Debug)]
pub struct Run {
    /// Average speed by curl's account.
    pub mib_s: f64,
    /// Whether SHA-256 of download and file are equal.
    pub intact: bool,
    /// The packets on the router's wire; `None` where no capture ran.
    pub wire: Option<WireStats>,
}

impl Run {
    /// Adds the packets that a capture saw.
    pub fn with(mut self, wire: WireStats) -> Self {
        self.wire = Some(wire);
        self
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let intact = if self.intact { "intact" } else { "DAMAGED" };
        write!(f, "{:.1} MiB/s, {intact}", self.mib_s)
    }
}

/// The fields of `--json`, for programs; their names do not change.
#[derive(Debug, Serialize)]
pub struct Summary {
    udp_on_wire: u64,
    tcp_segments: u64,
    bad_checksums: u64,
    sha256_ok: bool,
    direct_mib_s: f64,
    wireguard_mib_s: f64,
    wireguard_blocked: bool,
    xdptun_mib_s: f64,
}

/// All downloads and the router's view.
#[derive(Debug)]
pub struct Report {
    /// Between the hosts' own addresses.
    pub direct: Run,
    /// Through WireGuard.
    pub wireguard: Run,
    /// Whether nothing came through WireGuard alone after the router began to drop UDP.
    pub blocked: bool,
    /// Through WireGuard over xdptun, which UDP could not do any more.
    pub xdptun: Run,
    /// The router's TCP connections to the tunnel port.
    pub conntrack: Vec<String>,
    /// Packets the router dropped as invalid, over all.
    pub invalid: u64,
}

impl Report {
    /// Everything that breaks a promise, in words; empty when all is well.
    pub fn violations(&self) -> Vec<String> {
        let wire = self.disguised();
        let connection = |line: &String| line.contains("ESTABLISHED") && line.contains("[ASSURED]");
        let promises = [
            (self.intact(), "a download is damaged".to_owned()),
            (
                self.blocked,
                "WireGuard alone crossed a router that drops UDP".to_owned(),
            ),
            (
                wire.udp_datagrams == 0,
                format!("{} UDP datagrams on the wire", wire.udp_datagrams),
            ),
            (wire.tcp_segments > 0, "no TCP segment seen".to_owned()),
            (
                self.bad_checksums() == 0,
                format!(
                    "{} bad and {} unfinished checksums, such as {:?}",
                    wire.bad_checksums, wire.unready_checksums, wire.examples
                ),
            ),
            (!wire.handshakes.is_empty(), "no handshake seen".to_owned()),
            (
                self.conntrack.iter().any(connection),
                format!("no assured connection in {:?}", self.conntrack),
            ),
            (
                self.invalid == 0,
                format!("the router dropped {} packets as invalid", self.invalid),
            ),
        ];
        let broken = promises.into_iter().filter(|(kept, _)| !kept);
        broken.map(|(_, text)| text).collect()
    }

    /// The object that `--json` prints.
    pub fn summary(&self) -> Summary {
        let wire = self.disguised();
        Summary {
            udp_on_wire: wire.udp_datagrams,
            tcp_segments: wire.tcp_segments,
            bad_checksums: self.bad_checksums(),
            sha256_ok: self.intact(),
            direct_mib_s: rounded(self.direct.mib_s),
            wireguard_mib_s: rounded(self.wireguard.mib_s),
            wireguard_blocked: self.blocked,
            xdptun_mib_s: rounded(self.xdptun.mib_s),
        }
    }

    fn intact(&self) -> bool {
        [&self.direct, &self.wireguard, &self.xdptun]
            .iter()
            .all(|run| run.intact)
    }

    /// An unfinished checksum on the wire would be a wrong one on real
    /// hardware, so it counts as bad.
    fn bad_checksums(&self) -> u64 {
        let wire = self.disguised();
        wire.bad_checksums + wire.unready_checksums
    }

    fn disguised(&self) -> WireStats {
        self.xdptun.wire.clone().unwrap_or_default()
    }
}

fn rounded(mib_s: f64) -> f64 {
    (mib_s * 10.0).round() / 10.0
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_table(f)?;
        writeln!(f)?;
        let disguised = self.disguised();
        if let Some(handshake) = disguised.handshakes.first() {
            writeln!(
                f,
                "handshake   SYN, SYN-ACK, ACK within {:.2} ms",
                handshake.as_secs_f64() * 1e3
            )?;
        }
        for connection in &self.conntrack {
            writeln!(f, "conntrack   {connection}")?;
        }
        writeln!(f, "dropped     {} packets as invalid", self.invalid)?;
        writeln!(
            f,
            "\nThe wire is the router's, the datagrams and segments are those of the tunnel's port. An\n\
             unfinished checksum is one that the sender left to an offload: fine for UDP between two\n\
             namespaces, and what a disguise must not leave behind."
        )
    }
}

impl Report {
    /// A column for each download.
    fn write_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        type Count = fn(&WireStats) -> u64;
        let runs = [&self.direct, &self.wireguard, &self.xdptun];
        let row = |f: &mut fmt::Formatter<'_>, title: &str, cell: &dyn Fn(&Run) -> String| {
            write!(f, "{title:<26}")?;
            for (run, width) in runs.iter().zip([12, 13, 24]) {
                write!(f, "{:>width$}", cell(run))?;
            }
            writeln!(f)
        };
        let [direct, wireguard, xdptun] = ["direct", "WireGuard", "WireGuard over xdptun"];
        writeln!(f, "\n{:26}{direct:>12}{wireguard:>13}{xdptun:>24}", "")?;
        let alone = if self.blocked { "blocked" } else { "PASSES" };
        let [title, passes] = ["where UDP is dropped", "passes"];
        writeln!(f, "{title:26}{:>12}{alone:>13}{passes:>24}", "-")?;
        row(f, "speed, MiB/s", &|run| format!("{:.1}", run.mib_s))?;
        row(f, "SHA-256", &|run| {
            let intact = if run.intact { "equal" } else { "DIFFERS" };
            intact.to_owned()
        })?;
        let counts: [(&str, Count); 4] = [
            ("UDP datagrams on the wire", |wire| wire.udp_datagrams),
            ("TCP segments", |wire| wire.tcp_segments),
            ("bad checksums", |wire| wire.bad_checksums),
            ("unfinished checksums", |wire| wire.unready_checksums),
        ];
        for (title, count) in counts {
            row(f, title, &|run| match &run.wire {
                Some(wire) => HumanCount(count(wire)).to_string(),
                None => "-".to_owned(),
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn run(mib_s: f64) -> Run {
        Run {
            mib_s,
            intact: true,
            wire: None,
        }
    }

    fn good() -> Report {
        let mut wire = WireStats::new(8000);
        wire.tcp_segments = 1_234_567;
        wire.handshakes.push(Duration::from_micros(420));
        Report {
            direct: run(901.26),
            wireguard: run(80.14),
            blocked: true,
            xdptun: run(78.0).with(wire),
            conntrack: vec!["tcp 6 432000 ESTABLISHED src=10.1.0.2 [ASSURED]".into()],
            invalid: 0,
        }
    }

    fn wire(report: &mut Report) -> &mut WireStats {
        report.xdptun.wire.as_mut().unwrap()
    }

    #[test]
    fn json_has_exactly_the_promised_fields() {
        assert_eq!(
            serde_json::to_string(&good().summary()).unwrap(),
            r#"{"udp_on_wire":0,"tcp_segments":1234567,"bad_checksums":0,"sha256_ok":true,"direct_mib_s":901.3,"wireguard_mib_s":80.1,"wireguard_blocked":true,"xdptun_mib_s":78.0}"#
        );
    }

    #[test]
    fn a_good_report_breaks_no_promise() {
        assert_eq!(good().violations(), [""; 0]);
    }

    #[test]
    fn every_broken_promise_is_named() {
        type Break = fn(&mut Report);
        let breaks: [(Break, &str); 9] = [
            (|report| report.direct.intact = false, "damaged"),
            (|report| report.blocked = false, "WireGuard alone"),
            (|report| wire(report).udp_datagrams = 3, "3 UDP datagrams"),
            (|report| wire(report).tcp_segments = 0, "no TCP segment"),
            (|report| wire(report).bad_checksums = 1, "1 bad"),
            (|report| wire(report).unready_checksums = 2, "2 unfinished"),
            (|report| wire(report).handshakes.clear(), "no handshake"),
            (|report| report.conntrack.clear(), "no assured connection"),
            (|report| report.invalid = 4, "dropped 4"),
        ];
        for (break_it, expected) in breaks {
            let mut report = good();
            break_it(&mut report);
            let violations = report.violations();
            assert_eq!(violations.len(), 1, "{violations:?}");
            assert!(violations[0].contains(expected), "{violations:?}");
        }
    }

    #[test]
    fn the_table_groups_digits() {
        assert!(good().to_string().contains("1,234,567"));
    }
}
