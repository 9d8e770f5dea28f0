//! Ports that sockets of this host use as well.

use std::collections::BTreeSet;

use super::Forwards;
use crate::doctor::Finding;
use crate::error::Result;
use crate::gateway::preflight::served_ports;
use crate::host::ephemeral::Exposed;
use crate::host::listeners::Servers;
use crate::host::ports::PortRange;
use crate::host::words::some_of;

pub const SOURCE: &str = "source-ports";
pub const SERVED: &str = "served-port";

pub fn check_source(forwards: &Forwards) -> Result<Vec<Finding>> {
    let ranges = source_ranges(forwards)?;
    if ranges.is_empty() {
        return Ok(Vec::new());
    }
    let exposed = Exposed::among(&ranges)?;
    Ok(vec![judge_source(&forwards.interface, exposed.as_ref())])
}

/// The ports that translated sources get.
fn source_ranges(forwards: &Forwards) -> Result<Vec<PortRange>> {
    let translating = forwards.places().filter(|place| place.masquerades());
    let ranges: BTreeSet<[u16; 2]> = translating.map(|place| place.ports).collect();
    let ranges = ranges.into_iter();
    let ranges = ranges.map(|[first, last]| Ok(PortRange::new(first, last)?));
    ranges.collect()
}

fn judge_source(name: &str, exposed: Option<&Exposed>) -> Finding {
    match exposed {
        None => {
            let what = format!(
                "{name}: the kernel gives sockets of this host none of the sessions' source ports"
            );
            Finding::ok(SOURCE, what)
        }
        Some(exposed) => {
            let what = format!(
                "{name}: sessions and sockets of this host both get source port {}: a back end's \
                 answer to such a socket goes to the session's client. Reserve the ports, or choose \
                 others (`--source`, in a file `source`)",
                exposed.ports()
            );
            Finding::warn(SOURCE, what).mend(exposed.command())
        }
    }
}

pub fn check_served(forwards: &Forwards) -> Result<Vec<Finding>> {
    let servers = Servers::read()?;
    let rules = forwards.rules.iter();
    let served =
        rules.flat_map(|rule| served_ports(&servers, rule.address, rule.ports, &[rule.protocol]));
    let served: Vec<String> = served.collect();
    Ok(vec![judge_served(&forwards.interface, &served)])
}

fn judge_served(name: &str, served: &[String]) -> Finding {
    if served.is_empty() {
        let what = format!("{name}: no server of this host waits at a forwarded port");
        return Finding::ok(SERVED, what);
    }
    let what = format!(
        "{name}: a server of this host waits at {}, and clients that come in here reach a back end \
         instead (`--steal`, in a file `steal = true`); `ss -lntup` lists servers",
        some_of(served)
    );
    Finding::warn(SERVED, what)
}

#[cfg(test)]
mod tests {
    use xdptun_common::wire::Protocol;

    use super::super::tests::{by, forwards};
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn only_translated_sources_get_ports() {
        let end = ("10.0.0.1:80", Protocol::TCP, by(8));
        let mut forwards = forwards(&[end; 3]);
        for (rule, source) in forwards.rules.iter_mut().zip([0, 1, 1]) {
            rule.places[0].source = [source; 16];
            rule.places[0].ports = [20_000, 20_009];
        }
        let expected = ["20000-20009".parse().unwrap()];
        assert_eq!(source_ranges(&forwards).unwrap(), expected);
        forwards.rules.truncate(1);
        assert!(check_source(&forwards).unwrap().is_empty());
    }

    #[test]
    fn ports_that_sockets_get_as_well_are_to_be_reserved() {
        assert_eq!(judge_source("eth0", None).level, Level::Ok);
        // No host reserves all ports from which sockets get theirs.
        let all = ["1-65535".parse().unwrap()];
        let exposed = Exposed::among(&all).unwrap().unwrap();
        let finding = judge_source("eth0", Some(&exposed));
        assert_eq!(finding.level, Level::Warn);
        assert_eq!(finding.mend, Some(exposed.command()));
    }

    #[test]
    fn a_server_behind_a_forwarded_port_is_told() {
        assert_eq!(judge_served("eth0", &[]).level, Level::Ok);
        let finding = judge_served("eth0", &["7000/tcp".to_owned()]);
        assert_eq!(finding.level, Level::Warn);
        assert!(finding.what.contains("7000/tcp"), "{}", finding.what);
    }
}
