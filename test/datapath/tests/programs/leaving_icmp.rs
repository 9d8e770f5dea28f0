//! Egress: an ICMP error about a datagram that came as a segment would show the datagram.

use std::net::IpAddr;
use std::sync::{LazyLock, Mutex};

use xdptun_common::tunnel::fragment::First;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::path::{OTHER, OWNED};
use xdptun_test_datapath::{
    Case, Config, Datapath, Family, Message, Moment, Packet, Path, Row, check, flags, row,
};

use crate::{Shared, datapath, lock, paths};

static PEERS_ONLY: Shared = LazyLock::new(|| {
    Mutex::new(Datapath::new(&Config {
        peers_only: true,
        ..Config::default()
    }))
});

/// A restored datagram that no socket received.
fn datagram(path: Path) -> Packet {
    path.inbound().payload(payload(100))
}

/// "Port unreachable".
const fn unreachable(family: Family) -> (u8, u8) {
    match family {
        Family::V4 => (3, 3),
        Family::V6 => (1, 4),
    }
}

/// A message of this host to the peer, of this type and code.
fn message(path: Path, (kind, code): (u8, u8), body: Vec<u8>) -> Packet {
    message_from(path.local.ip(), path, (kind, code), body)
}

fn message_from(from: IpAddr, path: Path, (kind, code): (u8, u8), body: Vec<u8>) -> Packet {
    let message = Message {
        kind,
        code,
        rest: 0,
        body,
    };
    message.packet(from, path.remote.ip()).tos(0xc0)
}

fn about(path: Path, quote: Vec<u8>) -> Packet {
    message(path, unreachable(path.family()), quote)
}

/// The message ends here.
fn hidden(message: &Packet) -> Case {
    Case::egress(message).drops(Outcome::TxDropIcmp)
}

/// A datagram to another port than owned ones.
fn other_datagram(family: Family) -> Packet {
    datagram(Path::new(family, 53, OTHER))
}

/// Every type, and which of them quote a packet.
fn kinds(family: Family) -> Vec<(u8, u8, bool)> {
    match family {
        Family::V4 => {
            let mut kinds: Vec<_> = (0..=15).map(|code| (3, code, true)).collect();
            kinds.extend([(4, 0, true), (5, 0, true), (5, 1, true)]);
            kinds.extend([(11, 0, true), (11, 1, true), (12, 0, true), (12, 2, true)]);
            kinds.extend([0, 8, 9, 10, 13, 14, 42, 255].map(|kind| (kind, 0, false)));
            kinds
        }
        Family::V6 => {
            let mut kinds: Vec<_> = (0..=8).map(|code| (1, code, true)).collect();
            kinds.extend([(2, 0, true), (3, 0, true), (3, 1, true), (4, 0, true)]);
            kinds.extend([(0, 0, true), (100, 0, true), (127, 0, true)]);
            kinds.extend([128, 129, 133, 134, 135, 136, 143, 255].map(|kind| (kind, 0, false)));
            kinds
        }
    }
}

#[test]
fn errors_about_datagrams_of_an_owned_port_do_not_leave() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for (kind, code, quotes) in kinds(path.family()) {
            let mine = message(path, (kind, code), datagram(path).quote(8 + 100));
            rows.push(row(format!("{path:?}, {kind}/{code}"), move |_| {
                if quotes {
                    hidden(&mine)
                } else {
                    Case::egress(&mine)
                }
            }));
            let other = other_datagram(path.family()).quote(8 + 100);
            let other = message(path, (kind, code), other);
            rows.push(row(format!("{path:?}, {kind}/{code}, other port"), {
                move |_| Case::egress(&other)
            }));
        }
        // This host forwards for others, and a router on its way complains.
        let time_exceeded = match path.family() {
            Family::V4 => (11, 0),
            Family::V6 => (3, 0),
        };
        let router = path.family().stranger();
        let message = message_from(router, path, time_exceeded, datagram(path).quote(8));
        rows.push(row(format!("{path:?}, forwarded"), move |_| {
            hidden(&message)
        }));
    }
    check(&mut datapath(), rows);
}

/// Quotes and messages as no host of today makes them, but as one could.
#[test]
fn nor_do_odd_ones() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let inbound = path.inbound();
        for (name, quoted, len) in [
            ("eight bytes", datagram(path), 8),
            ("ports alone", datagram(path), 4),
            ("options quoted", inbound.clone().ip_options(10), 8),
            ("headers quoted", inbound.clone().extension(60.into(), 3), 8),
            ("routing quoted", inbound.clone().extension(43.into(), 1), 8),
            ("first fragment quoted", datagram(path).fragment(0, true), 8),
            ("padding", datagram(path), 100),
            ("wrong length", datagram(path).udp_length(7), 8),
        ] {
            let message = about(path, quoted.payload(payload(100)).quote(len));
            rows.push(row(format!("{path:?}, {name}"), {
                let message = message.clone();
                move |_| hidden(&message)
            }));
            let with_options = message.clone().ip_options(10).extension(60.into(), 4);
            rows.push(row(format!("{path:?}, {name}, with options"), move |_| {
                hidden(&with_options)
            }));
            let fragment = message.fragment(0, true);
            rows.push(row(format!("{path:?}, {name}, in fragments"), move |_| {
                hidden(&fragment).remembers(fragment.fragmented())
            }));
        }
        let marked = about(path, datagram(path).quote(8));
        rows.push(row(format!("{path:?}, with a mark"), move |_| {
            hidden(&marked).marked(5)
        }));
    }
    let path = Path::server(Family::V6);
    let far = about(path, datagram(path).quote(8)).extension(60.into(), 12);
    rows.push(row("too far behind", move |_| hidden(&far)));
    check(&mut datapath(), rows);
}

/// A later fragment has no ports: what became of its first says whose it is.
#[test]
fn errors_about_later_fragments_of_a_datagram_do_not_leave() {
    const ID: u32 = 0x1234_5678;
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let later = Packet::other(path.remote.ip(), path.local.ip(), 17.into());
        let later = later.payload([7; 104]).fragment_of(ID, 8, true);
        let first = move |at: Moment| {
            let ports = (path.remote.port(), path.local.port());
            First::carried(at.before_ms(100), ports)
        };
        for (name, came, hides) in [
            ("its first came", ID, true),
            ("another came", ID + 1, false),
        ] {
            let message = about(path, later.clone().quote(100));
            let fragment = message.clone().fragment(0, true);
            let came = datagram(path).fragment_of(came, 0, true).fragmented();
            rows.push(row(format!("{path:?} {name}"), move |at| {
                let case = if hides {
                    hidden(&message)
                } else {
                    Case::egress(&message)
                };
                case.after_first_in(came, first(at))
            }));
            if hides {
                rows.push(row(format!("{path:?} {name}, in fragments"), move |at| {
                    let case = hidden(&fragment).remembers(fragment.fragmented());
                    case.after_first_in(came, first(at))
                }));
            }
        }
    }
    check(&mut datapath(), rows);
}

#[test]
fn errors_about_something_else_leave() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let family = path.family();
        let quotes = [
            ("nothing", Vec::new()),
            ("no ports", datagram(path).quote(3)),
            ("a header alone", datagram(path).quote(0)),
            (
                "a segment",
                path.inbound().segment(flags::DATA, 1, 2).quote(20),
            ),
            ("no IP", payload(family.header_len() + 8)),
        ];
        for (name, quote) in quotes {
            let message = about(path, quote);
            rows.push(row(format!("{path:?}, {name}"), move |_| {
                Case::egress(&message)
            }));
        }
        let about_other = about(path, other_datagram(family).quote(8)).fragment(0, true);
        rows.push(row(format!("{path:?}, another port, in fragments"), {
            move |_| Case::egress(&about_other)
        }));
    }
    check(&mut datapath(), rows);
}

/// UDP of a stranger comes and goes undisguised, and so do errors about it, unless there
/// is a flow with it.
#[test]
fn errors_about_strangers_leave() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        for local in [OWNED, OTHER] {
            let mut path = Path::with_stranger(family);
            path.local.set_port(local);
            path.remote.set_port(OWNED);
            let message = about(path, datagram(path).quote(8));
            rows.push(row(format!("{path:?}"), {
                let message = message.clone();
                move |_| Case::egress(&message)
            }));
            rows.push(row(format!("{path:?}, with a flow"), move |at| {
                hidden(&message).flow(path.key(), path.established(at))
            }));
            let peer = Path::new(family, local, OWNED);
            let message = about(peer, datagram(peer).quote(8));
            rows.push(row(format!("{peer:?}"), move |_| hidden(&message)));
        }
    }
    check(&mut lock(&PEERS_ONLY), rows);
}
