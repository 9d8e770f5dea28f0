//! Whether resolvers give names that have IPv4 addresses alone one of IPv6 (DNS64, RFC 6147).
//!
//! `ipv4only.arpa` has no IPv6 address but one that DNS64 makes (RFC 7050 section 2).

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;

use crate::doctor::{Finding, some_of};
use crate::error::{Context as _, Error, Result};
use crate::host::random;

pub const DNS64: &str = "nat64-dns64";

/// How long a resolver may take.
const LIMIT: Duration = Duration::from_secs(1);

/// So many are asked, as the C library does (`MAXNS`).
const MAX_RESOLVERS: usize = 3;

/// What resolvers answered, each with the addresses that it gave.
type Answers = Vec<(IpAddr, Vec<Ipv6Addr>)>;

/// Asks the resolvers of this host. Clients may have others.
pub fn check(prefix: Ipv6Net) -> Result<Vec<Finding>> {
    let text = fs::read_to_string("/etc/resolv.conf").context("/etc/resolv.conf")?;
    let resolvers = resolvers(&text);
    let mut answers = Answers::new();
    for resolver in &resolvers {
        if let Ok(addresses) = ask(SocketAddr::new(*resolver, 53)) {
            answers.push((*resolver, addresses));
        }
    }
    Ok(vec![judge(prefix, &resolvers, &answers)])
}

/// The resolvers that `resolv.conf` names.
fn resolvers(text: &str) -> Vec<IpAddr> {
    let named = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next())?
    });
    let addresses = named.filter_map(|word| word.parse().ok());
    addresses.take(MAX_RESOLVERS).collect()
}

fn judge(prefix: Ipv6Net, resolvers: &[IpAddr], answers: &Answers) -> Finding {
    const CLIENTS: &str = "if clients ask other resolvers, those count";
    if answers.is_empty() {
        let what = match resolvers {
            [] => "/etc/resolv.conf names no resolver".to_owned(),
            all => format!("no resolver of this host answers ({})", some_of(all)),
        };
        return Finding::warn(
            DNS64,
            format!("{what}, so DNS64 was not looked at; {CLIENTS}"),
        );
    }
    let made = |(resolver, addresses): &(IpAddr, Vec<Ipv6Addr>)| {
        let address = addresses.first()?;
        Some((*resolver, *address))
    };
    let is_behind = |(_, addresses): &&(IpAddr, Vec<Ipv6Addr>)| {
        addresses.iter().any(|one| prefix.contains(one))
    };
    if let Some((resolver, _)) = answers.iter().find(is_behind) {
        let what = format!("the resolver {resolver} gives names IPv6 addresses behind {prefix}");
        return Finding::ok(DNS64, what);
    }
    if let Some((resolver, address)) = answers.iter().find_map(made) {
        return Finding::warn(
            DNS64,
            format!(
                "the resolver {resolver} gives names IPv6 addresses behind another prefix than \
                 {prefix} ({address} for ipv4only.arpa): clients that ask it do not get here; give \
                 both the same prefix; {CLIENTS}"
            ),
        );
    }
    let asked: Vec<IpAddr> = answers.iter().map(|(resolver, _)| *resolver).collect();
    Finding::warn(
        DNS64,
        format!(
            "the resolvers of this host ({}) are no DNS64: names with IPv4 addresses alone have none \
             behind {prefix}, and IPv6-only clients that ask them do not find the servers; {CLIENTS}",
            some_of(&asked)
        ),
    )
}

/// The IPv6 addresses that a resolver has for `ipv4only.arpa`.
fn ask(resolver: SocketAddr) -> Result<Vec<Ipv6Addr>> {
    let any: IpAddr = match resolver {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let id = (random::number()? as u16).to_be_bytes();
    let asked = |error: io::Error| Error::from(error);
    let socket = UdpSocket::bind((any, 0)).map_err(asked)?;
    socket.connect(resolver).map_err(asked)?;
    socket.send(&question(id)).map_err(asked)?;
    let begin = Instant::now();
    let mut buffer = [0; 1232];
    loop {
        let left = LIMIT.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Err(asked(io::ErrorKind::TimedOut.into()));
        }
        socket.set_read_timeout(Some(left)).map_err(asked)?;
        let len = socket.recv(&mut buffer).map_err(asked)?;
        if let Some(addresses) = addresses(&buffer[..len], id) {
            return Ok(addresses);
        }
    }
}

/// `ipv4only.arpa`, as DNS writes names.
const NAME: &[u8] = b"\x08ipv4only\x04arpa\0";

/// The type of an IPv6 address, AAAA (RFC 3596 section 2.1).
const AAAA: [u8; 2] = [0, 28];

/// The class of the Internet.
const INTERNET: [u8; 2] = [0, 1];

/// A question for the IPv6 addresses, to be answered by asking others (RFC 1035 section 4.1).
fn question(id: [u8; 2]) -> Vec<u8> {
    let header = [id[0], id[1], 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    [&header[..], NAME, &AAAA, &INTERNET].concat()
}

/// The IPv6 addresses of an answer; `None` if it is none to this question.
fn addresses(answer: &[u8], id: [u8; 2]) -> Option<Vec<Ipv6Addr>> {
    const IS_ANSWER: u8 = 0x80;
    // No error, and no such name: a resolver that refuses or fails tells nothing about the name.
    const TELLING: [u8; 2] = [0, 3];
    let (header, mut rest) = answer.split_at_checked(12)?;
    let asked = [NAME, &AAAA, &INTERNET].concat();
    if header[..2] != id || header[2] & IS_ANSWER == 0 || header[4..6] != [0, 1] {
        return None;
    }
    if !TELLING.contains(&(header[3] & 0x0f)) {
        return None;
    }
    rest = rest.strip_prefix(&asked[..])?;
    let mut addresses = Vec::new();
    for _ in 0..u16::from_be_bytes([header[6], header[7]]) {
        rest = behind_name(rest)?;
        let (fixed, data) = rest.split_at_checked(10)?;
        let (data, next) =
            data.split_at_checked(u16::from_be_bytes([fixed[8], fixed[9]]).into())?;
        if fixed[..2] == AAAA {
            addresses.push(<[u8; 16]>::try_from(data).ok()?.into());
        }
        rest = next;
    }
    Some(addresses)
}

/// What stands behind a name: labels up to an empty one, or a pointer of two bytes to others (RFC
/// 1035 section 4.1.4).
fn behind_name(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let (len, behind) = rest.split_first()?;
        rest = match len {
            0 => return Some(behind),
            0xc0.. => return behind.get(1..),
            len => behind.get(usize::from(*len)..)?,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::doctor::Level;

    const ID: [u8; 2] = [7, 9];

    fn prefix() -> Ipv6Net {
        "64:ff9b::/96".parse().unwrap()
    }

    /// An answer with these records: the type, and the data.
    fn answer(id: [u8; 2], records: &[([u8; 2], &[u8])]) -> Vec<u8> {
        let mut answer = question(id);
        answer[2] |= 0x80;
        answer[7] = records.len() as u8;
        for (kind, data) in records {
            let len = (data.len() as u16).to_be_bytes();
            answer.extend([&[0xc0, 12][..], kind, &INTERNET, &[0; 4], &len, data].concat());
        }
        answer
    }

    fn address(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_of_an_answer() {
        let made = address("64:ff9b::c000:aa");
        // An alias before it.
        let records = [([0, 5], NAME), (AAAA, &made.octets())];
        let whole = answer(ID, &records);
        assert_eq!(addresses(&whole, ID), Some(vec![made]));
        assert_eq!(addresses(&whole, [7, 8]), None, "to another question");
        assert_eq!(addresses(&question(ID), ID), None, "no answer");
        assert_eq!(addresses(&answer(ID, &[]), ID), Some(Vec::new()));
        for len in 0..whole.len() {
            assert_eq!(addresses(&whole[..len], ID), None, "{len} bytes");
        }
        let short = answer(ID, &[(AAAA, &[1; 15])]);
        assert_eq!(addresses(&short, ID), None);
        let mut refused = answer(ID, &[]);
        refused[3] |= 5;
        assert_eq!(addresses(&refused, ID), None, "refused");
    }

    #[test]
    fn a_silent_resolver_is_not_waited_for() {
        let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let begin = Instant::now();
        assert!(ask(silent.local_addr().unwrap()).is_err());
        assert!(begin.elapsed() < LIMIT * 10);
    }

    #[test]
    fn a_resolver_is_asked() {
        let made = address("64:ff9b::c000:aa");
        let resolver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = resolver.local_addr().unwrap();
        let serves = thread::spawn(move || {
            let mut buffer = [0; 512];
            let (len, from) = resolver.recv_from(&mut buffer).unwrap();
            let id = [buffer[0], buffer[1]];
            assert_eq!(buffer[..len], question(id));
            // What answers another question is passed over.
            let other = answer([id[0], !id[1]], &[]);
            let records = [(AAAA, &made.octets()[..])];
            for answer in [other, answer(id, &records)] {
                resolver.send_to(&answer, from).unwrap();
            }
        });
        assert_eq!(ask(at).unwrap(), [made]);
        serves.join().unwrap();
    }

    #[test]
    fn resolvers_are_named_by_the_file() {
        let text = "# nameserver 9.9.9.9\nsearch lan\nnameserver 10.0.0.1\n\
                    nameserver fe80::1%eth0\n nameserver\t2001:db8::1 \nnameserver\n";
        let expected: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        assert_eq!(resolvers(text), expected);
        assert_eq!(resolvers(&"nameserver ::1\n".repeat(5)).len(), 3);
    }

    #[test]
    fn answers_are_judged() {
        let resolver: IpAddr = "10.0.0.1".parse().unwrap();
        let one = |addresses: &[&str]| {
            let addresses = addresses.iter().map(|text| address(text)).collect();
            vec![(resolver, addresses)]
        };
        for (resolvers, answers, level, words) in [
            (
                vec![resolver],
                one(&["64:ff9b::c000:aa"]),
                Level::Ok,
                "64:ff9b::/96",
            ),
            (
                vec![resolver],
                one(&["fd00::c000:aa"]),
                Level::Warn,
                "another prefix",
            ),
            (vec![resolver], one(&[]), Level::Warn, "are no DNS64"),
            (
                vec![resolver],
                Vec::new(),
                Level::Warn,
                "no resolver of this host answers (10.0.0.1)",
            ),
            (Vec::new(), Vec::new(), Level::Warn, "names no resolver"),
        ] {
            let found = judge(prefix(), &resolvers, &answers);
            assert_eq!(found.level, level, "{}", found.what);
            assert!(found.what.contains(words), "{}", found.what);
        }
    }
}
