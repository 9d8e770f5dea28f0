//! Whether resolvers give names that have IPv4 addresses alone one of IPv6 (DNS64, RFC 6147).
//!
//! `ipv4only.arpa` has no IPv6 address but one that DNS64 makes (RFC 7050 section 2).

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use nix::net::if_::if_nametoindex;

use crate::doctor::Finding;
use crate::error::{Context as _, Error, Result};
use crate::host::random;
use crate::host::words::some_of;

pub const DNS64: &str = "nat64-dns64";

/// How long a resolver may take.
const LIMIT: Duration = Duration::from_secs(1);

/// So many are asked, as the C library does (`MAXNS`).
const MAX_RESOLVERS: usize = 3;

/// What a resolver says of the name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// Its IPv6 addresses.
    Addresses(Vec<Ipv6Addr>),
    /// An error that tells nothing of the name, as that it answers this host no questions
    /// (RFC 1035 section 4.1.1).
    Error(u8),
}

impl Answer {
    fn addresses(&self) -> &[Ipv6Addr] {
        match self {
            Self::Addresses(addresses) => addresses,
            Self::Error(_) => &[],
        }
    }
}

/// What each resolver answered; `None` if it did not.
type Answers = Vec<(IpAddr, Option<Answer>)>;

/// Asks the resolvers of this host. Clients may have others.
pub fn check(prefix: Ipv6Net) -> Result<Vec<Finding>> {
    let text = fs::read_to_string("/etc/resolv.conf").context("/etc/resolv.conf")?;
    let resolvers = resolvers(&text).into_iter();
    let answers = resolvers.map(|resolver| (resolver.ip(), ask(resolver).ok()));
    Ok(vec![judge(prefix, &answers.collect())])
}

/// The resolvers that `resolv.conf` names.
fn resolvers(text: &str) -> Vec<SocketAddr> {
    let named = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next())?
    });
    named.filter_map(resolver).take(MAX_RESOLVERS).collect()
}

/// A resolver by its address, with the name or index of an interface behind one that only its
/// link knows (`fe80::1%eth0`).
fn resolver(word: &str) -> Option<SocketAddr> {
    const PORT: u16 = 53;
    let Some((address, zone)) = word.split_once('%') else {
        return Some(SocketAddr::new(word.parse().ok()?, PORT));
    };
    let index = zone.parse().ok().or_else(|| if_nametoindex(zone).ok())?;
    Some(SocketAddrV6::new(address.parse().ok()?, PORT, 0, index).into())
}

fn judge(prefix: Ipv6Net, answers: &Answers) -> Finding {
    const CLIENTS: &str = "if clients ask other resolvers, those count";
    let told = |answer: &Option<Answer>| matches!(answer, Some(Answer::Addresses(_)));
    if !answers.iter().any(|(_, answer)| told(answer)) {
        let what = match answers.as_slice() {
            [] => "/etc/resolv.conf names no resolver".to_owned(),
            all => format!(
                "no resolver of this host tells of ipv4only.arpa ({})",
                failures(all)
            ),
        };
        return Finding::warn(
            DNS64,
            format!("{what}, so DNS64 was not looked at; {CLIENTS}"),
        );
    }
    let given = answers.iter().flat_map(|(resolver, answer)| {
        let addresses = answer.iter().flat_map(Answer::addresses);
        addresses.map(|address| (*resolver, *address))
    });
    let given: Vec<(IpAddr, Ipv6Addr)> = given.collect();
    if let Some((resolver, _)) = given.iter().find(|(_, address)| prefix.contains(address)) {
        let what = format!("the resolver {resolver} gives names IPv6 addresses behind {prefix}");
        return Finding::ok(DNS64, what);
    }
    if let Some((resolver, address)) = given.first() {
        return Finding::warn(
            DNS64,
            format!(
                "the resolver {resolver} gives names IPv6 addresses behind another prefix than \
                 {prefix} ({address} for ipv4only.arpa): clients that ask it do not get here; give \
                 both the same prefix; {CLIENTS}"
            ),
        );
    }
    let asked = answers.iter().filter(|(_, answer)| told(answer));
    let asked: Vec<IpAddr> = asked.map(|(resolver, _)| *resolver).collect();
    Finding::warn(
        DNS64,
        format!(
            "the resolvers of this host ({}) are no DNS64: names with IPv4 addresses alone have none \
             behind {prefix}, and IPv6-only clients that ask them do not find the servers; {CLIENTS}",
            some_of(&asked)
        ),
    )
}

/// What kept resolvers from telling anything.
fn failures(answers: &[(IpAddr, Option<Answer>)]) -> String {
    let failures = answers.iter().map(|(resolver, answer)| match answer {
        Some(Answer::Error(2)) => format!("{resolver} fails"),
        Some(Answer::Error(5)) => format!("{resolver} refuses"),
        Some(Answer::Error(code)) => format!("{resolver} answers with error {code}"),
        Some(Answer::Addresses(_)) | None => format!("{resolver} does not answer"),
    });
    failures.collect::<Vec<_>>().join(", ")
}

/// What a resolver says of `ipv4only.arpa`.
fn ask(resolver: SocketAddr) -> Result<Answer> {
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
        if let Some(answer) = parse(&buffer[..len], id) {
            return Ok(answer);
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

/// What an answer says; `None` if it is none to this question.
fn parse(answer: &[u8], id: [u8; 2]) -> Option<Answer> {
    const IS_ANSWER: u8 = 0x80;
    // No error, and no such name.
    const TELLING: [u8; 2] = [0, 3];
    let (header, mut rest) = answer.split_at_checked(12)?;
    let asked = [NAME, &AAAA, &INTERNET].concat();
    if header[..2] != id || header[2] & IS_ANSWER == 0 {
        return None;
    }
    let code = header[3] & 0x0f;
    if !TELLING.contains(&code) {
        return Some(Answer::Error(code));
    }
    if header[4..6] != [0, 1] {
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
    Some(Answer::Addresses(addresses))
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
        let of = |addresses: &[Ipv6Addr]| Some(Answer::Addresses(addresses.to_vec()));
        assert_eq!(parse(&whole, ID), of(&[made]));
        assert_eq!(parse(&whole, [7, 8]), None, "to another question");
        assert_eq!(parse(&question(ID), ID), None, "no answer");
        assert_eq!(parse(&answer(ID, &[]), ID), of(&[]));
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len], ID), None, "{len} bytes");
        }
        let short = answer(ID, &[(AAAA, &[1; 15])]);
        assert_eq!(parse(&short, ID), None);
        // An answer that refuses need not repeat the question.
        let mut refused = answer(ID, &[])[..12].to_vec();
        (refused[3], refused[5]) = (5, 0);
        assert_eq!(parse(&refused, ID), Some(Answer::Error(5)));
        let mut unknown = answer(ID, &[]);
        unknown[3] |= 3;
        assert_eq!(parse(&unknown, ID), of(&[]), "no such name");
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
        assert_eq!(ask(at).unwrap(), Answer::Addresses(vec![made]));
        serves.join().unwrap();
    }

    #[test]
    fn resolvers_are_named_by_the_file() {
        let text = "# nameserver 9.9.9.9\nsearch lan\nnameserver 10.0.0.1\nnameserver ::1%nowhere\n\
                    nameserver fe80::1%lo\n nameserver\t2001:db8::1 \nnameserver\n";
        let lo = if_nametoindex("lo").unwrap();
        let expected: [SocketAddr; 3] = [
            "10.0.0.1:53".parse().unwrap(),
            SocketAddrV6::new(address("fe80::1"), 53, 0, lo).into(),
            "[2001:db8::1]:53".parse().unwrap(),
        ];
        assert_eq!(resolvers(text), expected);
        assert_eq!(resolver("fe80::1%7"), "[fe80::1%7]:53".parse().ok());
        assert_eq!(resolvers(&"nameserver ::1\n".repeat(5)).len(), 3);
    }

    #[test]
    fn answers_are_judged() {
        let resolver: IpAddr = "10.0.0.1".parse().unwrap();
        let gives = |addresses: &[&str]| {
            let addresses = addresses.iter().map(|text| address(text)).collect();
            Some(Answer::Addresses(addresses))
        };
        let fails = Some(Answer::Error(2));
        for (answers, level, words) in [
            (
                vec![gives(&["64:ff9b::c000:aa"])],
                Level::Ok,
                "64:ff9b::/96",
            ),
            (
                vec![fails.clone(), gives(&["64:ff9b::c000:aa"])],
                Level::Ok,
                "64:ff9b::/96",
            ),
            (
                vec![gives(&["fd00::c000:aa"])],
                Level::Warn,
                "another prefix",
            ),
            (
                vec![None, gives(&[])],
                Level::Warn,
                "(10.0.0.1) are no DNS64",
            ),
            (
                vec![None, fails, Some(Answer::Error(5)), Some(Answer::Error(4))],
                Level::Warn,
                "10.0.0.1 does not answer, 10.0.0.1 fails, 10.0.0.1 refuses, \
                 10.0.0.1 answers with error 4",
            ),
            (Vec::new(), Level::Warn, "names no resolver"),
        ] {
            let answers = answers.into_iter().map(|answer| (resolver, answer));
            let found = judge(prefix(), &answers.collect());
            assert_eq!(found.level, level, "{}", found.what);
            assert!(found.what.contains(words), "{}", found.what);
        }
    }
}
