//! Owned ports that the kernel may give to any UDP socket of this host, whose datagrams
//! then leave as TCP. (A TCP connection that gets one works: xdptun leaves it alone.)

use std::fs;

use xdptun_common::ports::{PORT_WORDS, port_bit};

use crate::error::{Context as _, Result, bail};
use crate::host::ports::{PortRange, from_words, to_words};

const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

/// Owned ports that are not reserved.
#[derive(Debug, PartialEq, Eq)]
pub struct Exposed {
    ports: Vec<PortRange>,
    /// The ports that are reserved already.
    reserved: Vec<u64>,
}

impl Exposed {
    /// The ports among `owned` that are not reserved, if there are any, by the settings of
    /// this network namespace. They hold for IPv6 as well.
    ///
    /// # Errors
    ///
    /// If the settings cannot be read.
    pub fn among(owned: &[PortRange]) -> Result<Option<Self>> {
        let read = |path| fs::read_to_string(path).context(path);
        judge(owned, &read(RANGE)?, &read(RESERVED)?)
    }

    /// The ports: "51820, 53000-53010".
    pub fn ports(&self) -> String {
        list(&self.ports, ", ")
    }

    /// The command that reserves them too.
    pub fn command(&self) -> String {
        let own = to_words(&self.ports);
        let all: Vec<u64> = own
            .iter()
            .zip(&self.reserved)
            .map(|(own, reserved)| own | reserved)
            .collect();
        let all = list(&from_words(&all), ",");
        format!("sysctl -w net.ipv4.ip_local_reserved_ports={all}")
    }
}

fn list(ports: &[PortRange], separator: &str) -> String {
    let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
    ports.join(separator)
}

/// Compares the owned ports with the texts of both settings.
fn judge(owned: &[PortRange], range: &str, reserved: &str) -> Result<Option<Exposed>> {
    let bounds: Vec<&str> = range.split_whitespace().collect();
    let [first, last] = bounds[..] else {
        bail!(Other, "{RANGE}: {range:?} is no range");
    };
    let given = words([(first, last)]).with_context(|| format!("{RANGE}: {range:?}"))?;
    let parts = reserved.trim().split(',').filter(|part| !part.is_empty());
    let parts = parts.map(|part| part.split_once('-').unwrap_or((part, part)));
    let reserved = words(parts).with_context(|| format!("{RESERVED}: {reserved:?}"))?;
    let exposed: Vec<u64> = to_words(owned)
        .iter()
        .zip(given.iter().zip(&reserved))
        .map(|(owned, (given, reserved))| owned & given & !reserved)
        .collect();
    let ports = from_words(&exposed);
    Ok((!ports.is_empty()).then_some(Exposed { ports, reserved }))
}

/// A bit for each port, as in the `PORTS` map. Port 0 is valid here.
fn words<'a>(ranges: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Vec<u64>> {
    let mut words = vec![0; PORT_WORDS as usize];
    for (first, last) in ranges {
        let (first, last): (u16, u16) = (first.trim().parse()?, last.trim().parse()?);
        for port in first..=last {
            let (word, mask) = port_bit(port);
            words[word as usize] |= mask;
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's default.
    const LINUX: &str = "32768\t60999\n";

    fn judged(owned: &[&str], reserved: &str) -> Option<Exposed> {
        let owned: Vec<PortRange> = owned.iter().map(|port| port.parse().unwrap()).collect();
        judge(&owned, LINUX, reserved).unwrap()
    }

    #[test]
    fn ports_outside_the_range_and_reserved_ones_are_safe() {
        for (owned, reserved) in [
            (&["443", "8000-8010"][..], "\n"),
            (&["32767", "61000-65535"], ""),
            (&["51820"], "51820\n"),
            (&["51820", "51821"], "8080,51000-52000\n"),
            (&[], "\n"),
        ] {
            assert_eq!(judged(owned, reserved), None, "{owned:?} {reserved:?}");
        }
    }

    #[test]
    fn the_command_keeps_what_is_reserved() {
        for (owned, reserved, ports, all) in [
            (&["51820"][..], "\n", "51820", "51820"),
            (
                &["51820"],
                "0,8080,9148-9150\n",
                "51820",
                "0,8080,9148-9150,51820",
            ),
            (
                &["51821-51823"],
                "51820-51821\n",
                "51822-51823",
                "51820-51823",
            ),
            (
                &["443", "32760-32770", "60999"],
                "1\n",
                "32768-32770, 60999",
                "1,32768-32770,60999",
            ),
        ] {
            let exposed = judged(owned, reserved).unwrap();
            assert_eq!(exposed.ports(), ports);
            let command = format!("sysctl -w net.ipv4.ip_local_reserved_ports={all}");
            assert_eq!(exposed.command(), command);
        }
    }

    #[test]
    fn what_the_kernel_does_not_write_is_refused() {
        for (range, reserved) in [
            ("", ""),
            ("1", ""),
            ("1 70000", ""),
            ("1 2", "x"),
            ("1 2", "1-"),
        ] {
            assert!(
                judge(&[], range, reserved).is_err(),
                "{range:?} {reserved:?}"
            );
        }
    }
}
