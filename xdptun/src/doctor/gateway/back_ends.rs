//! Whether back ends can be reached, and answer.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use xdptun_common::wire::Protocol;

use super::{Forwards, address};
use crate::doctor::{Finding, Level};
use crate::host::words::some_of;

pub const CHECK: &str = "back-end";

/// How many back ends are tried, all at once.
const TRIED: usize = 16;

/// How long a back end has to answer.
const PATIENCE: Duration = Duration::from_secs(1);

pub fn check(forwards: &Forwards) -> Vec<Finding> {
    let ends = tcp_ends(forwards);
    let (tried, untried) = ends.split_at(ends.len().min(TRIED));
    let results = Results {
        nowhere: nowhere(forwards),
        answers: tried.iter().copied().zip(try_all(tried)).collect(),
        untried: untried.len(),
    };
    judge(&forwards.interface, &results)
}

/// The back ends that no route leads to.
fn nowhere(forwards: &Forwards) -> Vec<IpAddr> {
    let legs = forwards.legs().filter(|leg| leg.way.is_none());
    legs.map(|leg| leg.to).collect()
}

/// The back ends of TCP that a route leads to; of each range the first port.
fn tcp_ends(forwards: &Forwards) -> Vec<SocketAddr> {
    let rules = forwards.rules.iter();
    let places = rules
        .filter(|rule| rule.protocol == Protocol::TCP)
        .flat_map(|rule| &rule.places);
    let reachable = places.filter(|place| forwards.ways[&address(place)].is_some());
    let ends: BTreeSet<SocketAddr> = reachable.map(|place| place.to.socket_addr()).collect();
    ends.into_iter().collect()
}

/// What became of the tries.
struct Results {
    nowhere: Vec<IpAddr>,
    answers: Vec<(SocketAddr, Answer)>,
    /// How many more back ends there are.
    untried: usize,
}

/// What a back end answers to a SYN.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Accepted,
    Refused,
    Silence,
    /// It cannot be asked.
    Error(String),
}

/// The answer of each.
fn try_all(ends: &[SocketAddr]) -> Vec<Answer> {
    thread::scope(|scope| {
        let tries = ends
            .iter()
            .map(|end| scope.spawn(|| answer(TcpStream::connect_timeout(end, PATIENCE))));
        // All begin before the first is waited for.
        let tries: Vec<_> = tries.collect();
        let answers = tries.into_iter().map(|one| one.join());
        answers
            .map(|answer| answer.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

fn answer(connected: io::Result<TcpStream>) -> Answer {
    match connected {
        Ok(_) => Answer::Accepted,
        Err(error) => match error.kind() {
            ErrorKind::ConnectionRefused => Answer::Refused,
            ErrorKind::TimedOut => Answer::Silence,
            _ => Answer::Error(error.to_string()),
        },
    }
}

fn judge(interface: &str, results: &Results) -> Vec<Finding> {
    let nowhere: Vec<String> = results.nowhere.iter().map(ToString::to_string).collect();
    let [mut accepted, mut refused, mut silent, mut failed] = [const { Vec::new() }; 4];
    for (end, answer) in &results.answers {
        match answer {
            Answer::Accepted => accepted.push(end.to_string()),
            Answer::Refused => refused.push(end.to_string()),
            Answer::Silence => silent.push(end.to_string()),
            Answer::Error(error) => failed.push(format!("{end} ({error})")),
        }
    }
    let lists = [
        (
            Level::Fail,
            "no route leads to",
            nowhere,
            "; `ip route get` tells more",
        ),
        (
            Level::Warn,
            "TCP from this host is refused by",
            refused,
            ": does a server listen there? If it serves UDP alone, forward UDP alone (`/udp`)",
        ),
        (
            Level::Warn,
            "TCP from this host is not answered within 1 s by",
            silent,
            ": is it up, and does every firewall on the way let TCP in?",
        ),
        (Level::Warn, "TCP from this host cannot reach", failed, ""),
        (Level::Ok, "TCP from this host reaches", accepted, ""),
    ];
    let lists = lists.iter().filter(|(_, _, ends, _)| !ends.is_empty());
    let mut findings: Vec<Finding> = lists
        .map(|(level, before, ends, after)| {
            let what = format!("{interface}: {before} {}{after}", some_of(ends));
            Finding::new(CHECK, *level, what)
        })
        .collect();
    if results.untried > 0 {
        let what = format!(
            "{interface}: {} more back ends were not tried",
            results.untried
        );
        findings.push(Finding::ok(CHECK, what));
    }
    if findings.is_empty() {
        let what = format!("{interface}: a route leads to each back end; UDP is not tried");
        findings.push(Finding::ok(CHECK, what));
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::tests::{by, forwards, local};
    use super::*;

    fn end(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 80))
    }

    /// The level of each finding about these answers and so many untried back ends, and the
    /// words that follow the interface.
    fn told(nowhere: &[IpAddr], answers: &[Answer], untried: usize) -> Vec<(Level, String)> {
        let results = Results {
            nowhere: nowhere.to_vec(),
            answers: (1..).map(end).zip(answers.iter().cloned()).collect(),
            untried,
        };
        let findings = judge("eth0", &results).into_iter();
        let told = findings.map(|one| (one.level, one.what.replacen("eth0: ", "", 1)));
        told.collect()
    }

    #[test]
    fn each_kind_of_answer_has_a_finding() {
        let error = || Answer::Error("odd".to_owned());
        let (ok, warn, fail) = (Level::Ok, Level::Warn, Level::Fail);
        for (answers, expected) in [
            (&[][..], &[(ok, "a route leads to each")][..]),
            (
                &[Answer::Accepted],
                &[(ok, "TCP from this host reaches 10.0.0.1:80")],
            ),
            (
                &[Answer::Refused],
                &[(warn, "TCP from this host is refused")],
            ),
            (
                &[Answer::Silence],
                &[(warn, "TCP from this host is not answered within 1 s")],
            ),
            (
                &[error()],
                &[(warn, "TCP from this host cannot reach 10.0.0.1:80 (odd)")],
            ),
            (
                &[Answer::Accepted, Answer::Refused, Answer::Refused],
                &[
                    (
                        warn,
                        "TCP from this host is refused by 10.0.0.2:80, 10.0.0.3:80:",
                    ),
                    (ok, "TCP from this host reaches 10.0.0.1:80"),
                ],
            ),
        ] {
            let found = told(&[], answers, 0);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for ((level, what), (expected, words)) in found.iter().zip(expected) {
                assert_eq!(level, expected, "{what}");
                assert!(what.starts_with(words), "{what}");
            }
        }
        let found = told(&[end(9).ip()], &[Answer::Accepted], 3);
        assert_eq!(found[0].0, fail);
        assert!(found[0].1.starts_with("no route leads to 10.0.0.9;"));
        assert_eq!(found[2], (ok, "3 more back ends were not tried".to_owned()));
    }

    #[test]
    fn every_end_of_tcp_that_a_route_leads_to_is_tried_once() {
        let (tcp, udp) = (Protocol::TCP, Protocol::UDP);
        let forwards = forwards(&[
            ("10.0.0.2:80", tcp, by(8)),
            ("10.0.0.1:80", tcp, local()),
            ("10.0.0.1:80", tcp, local()),
            ("10.0.0.1:53", udp, local()),
            ("10.0.0.3:80", tcp, None),
            ("10.0.0.4:53", udp, None),
        ]);
        assert_eq!(tcp_ends(&forwards), [end(1), end(2)]);
        assert_eq!(nowhere(&forwards), [end(3).ip(), end(4).ip()]);
    }

    #[test]
    fn a_server_is_told_from_none() {
        let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let there = server.local_addr().unwrap();
        assert_eq!(try_all(&[there]), [Answer::Accepted]);
        drop(server);
        assert_eq!(try_all(&[there; 2]), [Answer::Refused, Answer::Refused]);
    }
}
