//! Connection tracking sees this host's tunnel as UDP, and tunnels that it forwards for other
//! hosts as TCP.

use super::Finding;
use crate::error::{Context as _, Result};
use crate::host::sysctl;
use crate::tunnel::daemon::Timers;

const CHECK: &str = "conntrack";

/// The settings of this network namespace.
struct Settings {
    /// Seconds until a UDP conversation is forgotten.
    udp_stream: u64,
    /// Seconds until an established connection is forgotten.
    tcp_established: u64,
    /// Whether connections are picked up in the middle (`nf_conntrack_tcp_loose`).
    tcp_loose: u64,
    /// Whether segments outside the window are let through.
    tcp_be_liberal: u64,
    /// Whether the host forwards at all.
    forwards: bool,
}

impl Settings {
    /// Reads them; `None` if connections are not tracked.
    fn read() -> Result<Option<Self>> {
        let conntrack = |name: &str| sysctl::number(&format!("netfilter/nf_conntrack_{name}"));
        let Some(udp_stream) = conntrack("udp_timeout_stream")? else {
            return Ok(None);
        };
        let known = |name: &str| {
            conntrack(name)?.with_context(|| format!("the kernel has no nf_conntrack_{name}"))
        };
        let forwarding =
            ["ipv4/conf/all/forwarding", "ipv6/conf/all/forwarding"].map(sysctl::number);
        let mut forwards = false;
        for family in forwarding {
            forwards |= family?.is_some_and(|value| value != 0);
        }
        Ok(Some(Self {
            udp_stream,
            tcp_established: known("tcp_timeout_established")?,
            tcp_loose: known("tcp_loose")?,
            tcp_be_liberal: known("tcp_be_liberal")?,
            forwards,
        }))
    }
}

pub fn check() -> Result<Vec<Finding>> {
    Ok(match Settings::read()? {
        Some(settings) => judge(&settings),
        None => vec![Finding::ok(CHECK, "this host tracks no connections")],
    })
}

fn judge(settings: &Settings) -> Vec<Finding> {
    let keepalive = Timers::default().keepalive.as_secs();
    let mut findings = Vec::new();
    if settings.udp_stream <= keepalive {
        let what = format!(
            "a UDP conversation is forgotten after {} s, before WireGuard's keepalive of \
             {keepalive} s can renew it",
            settings.udp_stream
        );
        let mend = "sysctl -w net.netfilter.nf_conntrack_udp_timeout_stream=120";
        findings.push(Finding::warn(CHECK, what).mend(mend));
    }
    // Segments to this host become datagrams before connection tracking.
    if settings.forwards && settings.tcp_established <= keepalive {
        let what = format!(
            "flows that this host forwards are forgotten after {} s, before the keepalive of \
             {keepalive} s can renew them",
            settings.tcp_established
        );
        let mend = "sysctl -w net.netfilter.nf_conntrack_tcp_timeout_established=7440";
        findings.push(Finding::warn(CHECK, what).mend(mend));
    }
    if settings.forwards && settings.tcp_loose == 0 {
        let what = "if this host forgets a flow that it forwards, for example when it restarts, \
                    the flow is not taken up again: data is lost until xdptun opens it again";
        let mend = "sysctl -w net.netfilter.nf_conntrack_tcp_loose=1";
        findings.push(Finding::warn(CHECK, what).mend(mend));
    }
    if findings.is_empty() {
        let mut what = format!("UDP is remembered for {} s", settings.udp_stream);
        if settings.forwards {
            let window = match settings.tcp_be_liberal {
                0 => "inside the window only",
                _ => "also outside the window",
            };
            what += &format!(
                ", forwarded flows for {} s and {window}",
                settings.tcp_established
            );
        }
        findings.push(Finding::ok(CHECK, what));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    const LINUX: Settings = Settings {
        udp_stream: 120,
        tcp_established: 432_000,
        tcp_loose: 1,
        tcp_be_liberal: 0,
        forwards: true,
    };

    #[test]
    fn the_defaults_are_fine() {
        let [finding] = &judge(&LINUX)[..] else {
            panic!("one line");
        };
        assert_eq!(finding.level, Level::Ok);
        assert!(finding.what.contains("432000 s and inside"), "{finding:?}");
    }

    #[test]
    fn what_is_tcp_matters_to_a_router_only() {
        let strict = Settings {
            tcp_established: 25,
            tcp_loose: 0,
            ..LINUX
        };
        assert_eq!(judge(&strict).len(), 2);
        let host = Settings {
            forwards: false,
            ..strict
        };
        assert_eq!(judge(&host)[0].level, Level::Ok);
        let forgetful = Settings {
            udp_stream: 25,
            ..host
        };
        assert_eq!(judge(&forgetful)[0].level, Level::Warn);
    }
}
