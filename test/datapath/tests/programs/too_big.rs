//! Egress: the sender of a datagram whose segment would exceed the MTU is told
//! so. That depends on a real interface, for its MTU.

use std::net::{IpAddr, SocketAddr};

use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::state::State;
use xdptun_lab::{Direct, Host, link};
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::path::{OTHER, OWNED};
use xdptun_test_datapath::{
    Case, Config, Datapath, Family, Limited, Message, Moment, Packet, Path, Program, Row, Skb,
    check, row,
};

use crate::effects::in_state;
use crate::established::disguises;
use crate::limit::EMPTY;
use crate::{largest, options};

/// The default MTU of a veth device.
pub const MTU: u32 = 1500;

/// Runs `work` where the interface with this index is.
pub fn on_device(mtu: u32, work: impl FnOnce(&mut Datapath, u32) + Send) {
    let net = Direct::new().unwrap();
    link::set_mtu(&net.a.netns, Host::DEV, mtu).unwrap();
    // The first half of a packet leaves with the second behind it. No program is attached here that
    // would trim it.
    link::set_mtu(&net.b.netns, Host::DEV, 2 * mtu).unwrap();
    let ifindex = link::index(&net.a.netns, Host::DEV).unwrap();
    net.a
        .netns
        .enter(|| work(&mut Datapath::new(&Config::default()), ifindex))
        .unwrap();
}

/// The ICMP error for the sender of `datagram`, which has no options.
pub fn told(path: Path, mtu: u32, datagram: &Packet) -> Packet {
    let mtu = match path.family() {
        Family::V4 => mtu - 12,
        // No link has less (RFC 8200 section 5).
        Family::V6 => (mtu - 12).max(1280),
    };
    Message::too_big(path.family(), mtu, datagram.quote(8))
        .packet(path.remote.ip(), path.local.ip())
}

/// The datagram becomes the message.
pub fn returns(ifindex: u32, datagram: &Packet, message: &Packet) -> Case {
    Case::egress(datagram)
        .on(ifindex)
        .answers(message)
        // Else `ingress` would take it for a forged one.
        .marks(Request::OwnError.mark())
        .counts(Outcome::TxTooBig)
}

/// Whatever the flow is at, and without one.
#[test]
fn the_sender_is_told() {
    on_device(MTU, |datapath, ifindex| {
        let mut rows: Vec<Row> = Vec::new();
        for path in crate::paths() {
            // A datagram of these lengths fits by itself.
            for excess in [1, 2, 11, 12] {
                let datagram = path
                    .outbound()
                    .payload(payload(largest(path.family()) + excess))
                    .tos(0x2a)
                    .ttl(9)
                    .id(0x4321)
                    .without_df();
                for datagram in [datagram.clone(), datagram.without_checksum()] {
                    let message = told(path, MTU, &datagram);
                    let name = format!("{path:?}, {excess} too many");
                    for state in [
                        State::Closed,
                        State::SynSent,
                        State::SynReceived,
                        State::Established,
                        State::FinSent,
                    ] {
                        let (datagram, message) = (datagram.clone(), message.clone());
                        rows.push(row(format!("{name}, {state:?}"), move |at| {
                            let flow = in_state(path.established(at), state);
                            returns(ifindex, &datagram, &message).flow(path.key(), flow)
                        }));
                    }
                    rows.push(row(format!("{name}, no flow"), move |_| {
                        returns(ifindex, &datagram, &message)
                    }));
                }
            }
        }
        check(datapath, rows);
    });
}

#[test]
fn what_just_fits_leaves() {
    on_device(MTU, |datapath, ifindex| {
        let mut rows: Vec<Row> = Vec::new();
        for path in crate::paths() {
            let len = largest(path.family());
            let datagram = path.outbound().payload(payload(len));
            rows.push(row(format!("{path:?}, padded"), {
                let datagram = datagram.clone();
                move |at| {
                    disguises(at, path, &datagram, len)
                        .on(ifindex)
                        .meets(datagram.clone().padded_to(1514))
                }
            }));
            rows.push(row(format!("{path:?}"), move |at| {
                disguises(at, path, &datagram, len).on(ifindex)
            }));
        }
        check(datapath, rows);
    });
}

/// Options count; they are not quoted.
#[test]
fn with_options() {
    on_device(MTU, |datapath, ifindex| {
        let mut rows: Vec<Row> = Vec::new();
        for family in Family::ALL {
            let path = Path::client(family);
            for options in options::carried(family) {
                let fits = largest(family) - options.len();
                rows.push(row(format!("{options:?}, just fits"), {
                    let datagram = options.on(path.outbound().payload(payload(fits)));
                    move |at| disguises(at, path, &datagram, fits).on(ifindex)
                }));
                for excess in [1, 12] {
                    let datagram = path.outbound().payload(payload(fits + excess));
                    let message = told(path, MTU, &datagram);
                    let datagram = options.on(datagram);
                    rows.push(row(format!("{options:?}, {excess} too many"), move |at| {
                        returns(ifindex, &datagram, &message).flow(path.key(), path.established(at))
                    }));
                }
            }
        }
        check(datapath, rows);
    });
}

/// The MTU is the device's of now, not that of the time of attaching.
#[test]
fn the_message_names_the_mtu_of_the_device() {
    for mtu in [1280, 1499, 2000] {
        on_device(mtu, |datapath, ifindex| {
            let mut rows: Vec<Row> = Vec::new();
            for family in Family::ALL {
                let path = Path::client(family);
                let fits = mtu as usize - family.header_len() - 20;
                rows.push(row(format!("{family:?} {mtu}, fits"), move |at| {
                    let datagram = path.outbound().payload(payload(fits));
                    disguises(at, path, &datagram, fits).on(ifindex)
                }));
                rows.push(row(format!("{family:?} {mtu}, too big"), move |_| {
                    let datagram = path.outbound().payload(payload(fits + 1));
                    returns(ifindex, &datagram, &told(path, mtu, &datagram))
                }));
            }
            check(datapath, rows);
        });
    }
}

/// RFC 1122 section 3.2.2, RFC 4443 section 2.4 (e): no error about what goes to
/// many. (Too big is an exception in IPv6, for routers.)
#[test]
fn no_sender_is_told_of_a_multicast() {
    on_device(MTU, |datapath, ifindex| {
        let destinations = ["224.0.0.251", "255.255.255.255", "ff02::1", "ff0e::114"];
        let rows = destinations.map(|destination| {
            row(destination, move |_| {
                let destination: IpAddr = destination.parse().expect("an address");
                let family = match destination {
                    IpAddr::V4(_) => Family::V4,
                    IpAddr::V6(_) => Family::V6,
                };
                let local = SocketAddr::new(family.host(), OWNED);
                let remote = SocketAddr::new(destination, OTHER);
                let datagram = Packet::datagram(local, remote);
                Case::egress(datagram.payload(payload(largest(family) + 1)))
                    .on(ifindex)
                    .drops(Outcome::TxDropTooBig)
            })
        });
        check(datapath, rows);
    });
}

#[test]
fn the_messages_have_a_rate_limit_of_their_own() {
    on_device(MTU, |datapath, ifindex| {
        let path = Path::client(Family::V6);
        let datagram = path.outbound().payload(payload(largest(Family::V6) + 1));
        let frame = datagram.bytes();
        let message = told(path, MTU, &datagram);
        let rows = [
            row("nothing left", move |_| {
                Case::egress(&datagram)
                    .on(ifindex)
                    .bucket(Limited::Errors, EMPTY)
                    .drops(Outcome::TxDropTooBig)
            }),
            row("no replies left", move |_| {
                let datagram = path.outbound().payload(payload(largest(Family::V6) + 1));
                let replies = Limited::ALL.into_iter().filter(|it| *it != Limited::Errors);
                replies.fold(returns(ifindex, &datagram, &message), |case, limited| {
                    case.bucket(limited, EMPTY)
                })
            }),
        ];
        check(datapath, rows);

        let skb = Skb {
            ifindex,
            ..Skb::default()
        };
        let mut after = |bucket| {
            datapath.reset();
            datapath.set_bucket(Limited::Errors, bucket);
            assert_eq!(datapath.run(Program::Egress, &frame, skb).verdict, 7);
            // Which CPU runs the program is not ours to choose.
            let cpus = datapath.buckets(Limited::Errors).into_iter();
            cpus.filter(|cpu| *cpu != bucket).collect::<Vec<_>>()
        };
        assert_eq!(after([1, u64::MAX]), [[0, u64::MAX]]);
        assert_eq!(after([9, u64::MAX]), [[8, u64::MAX]]);
        let long_ago = Moment::now().before_ms(1100);
        let changed = after([0, long_ago]);
        assert_eq!(changed.len(), 1);
        assert_eq!(changed[0][0], 255, "the bucket is full after a pause");
        assert!(changed[0][1] > long_ago);
    });
}
