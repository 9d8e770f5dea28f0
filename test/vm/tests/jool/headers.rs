//! Fields and options of the IP headers, lengths, and hops.

use etherparse::IpNumber;
use xdptun_lab::Family::{V4, V6};
use xdptun_test_datapath::Packet;
use xdptun_test_datapath::packet::payload;

use crate::ends::{Ends, Protocol::Udp};
use crate::rows::{DEVICE, Group, Row};

/// xdptun is two hops.
const TWO_HOPS: &str = "this host routes a packet twice for xdptun, once for Jool";
/// Where errors of Jool come from.
const SHARED: &str =
    "an address that Jool shares is the gateway's own, and errors about it come from it";

pub fn groups() -> Vec<Group> {
    vec![
        Group {
            title: "Fields",
            rows: fields(),
        },
        Group {
            title: "Hops",
            rows: hops(),
        },
        Group {
            title: "Options and extension headers",
            rows: options(),
        },
        Group {
            title: "DF and lengths",
            rows: lengths(),
        },
    ]
}

fn fields() -> Vec<Row> {
    vec![
        Row::new("client: traffic class 0xb9", |ends| {
            ends.up(V6, Udp).tos(0xb9)
        })
        .because("RFC 7915 section 5.1: all eight bits. Jool leaves 0xb9 & 0x1c"),
        Row::new("client: a flow label", |ends| {
            ends.up(V6, Udp).flow_label(0x12345)
        }),
        Row::new("server: TOS 0xb9", |ends| ends.down(V4, Udp).tos(0xb9)),
        Row::new("client: the identification, 1280 bytes", |ends| {
            ends.up(V6, Udp).payload(payload(1280 - 48))
        })
        .identified(),
        Row::new("client: the identification, 1500 bytes", |ends| {
            ends.up(V6, Udp).payload(payload(1500 - 48))
        })
        .identified()
        .because("with DF the number means nothing (RFC 6864)"),
        Row::new("server: identification without DF", |ends| {
            ends.down(V4, Udp).without_df()
        }),
    ]
}

fn hops() -> Vec<Row> {
    let up = |hops| move |ends: &Ends| ends.up(V6, Udp).ttl(hops);
    let down = |hops| move |ends: &Ends| ends.down(V4, Udp).ttl(hops);
    vec![
        Row::new("client: hop limit 9", up(9)).because(TWO_HOPS),
        Row::new("client: hop limit 3", up(3)).because(TWO_HOPS),
        Row::new("client: hop limit 2", up(2)).because(TWO_HOPS),
        Row::new("client: hop limit 1", up(1)),
        Row::new("server: TTL 9", down(9)).because(TWO_HOPS),
        Row::new("server: TTL 3", down(3)).because(TWO_HOPS),
        Row::new("server: TTL 2", down(2)).because(TWO_HOPS),
        Row::new("server: TTL 1", down(1)).because(SHARED),
    ]
}

fn options() -> Vec<Row> {
    let with = |number| move |ends: &Ends| padded(&ends.up(V6, Udp).extension(number, 1));
    let options =
        |options: &'static [u8]| move |ends: &Ends| ends.down(V4, Udp).v4_options(options);
    vec![
        Row::new("client: hop-by-hop options", with(IpNumber::IPV6_HEADER_HOP_BY_HOP)),
        Row::new("client: destination options", with(IpNumber::IPV6_DESTINATION_OPTIONS)),
        Row::new("client: routing header, no segments left", |ends| {
            ends.up(V6, Udp).extension(IpNumber::IPV6_ROUTE_HEADER, 1)
        }),
        Row::new("client: routing header, a segment left", |ends| {
            let mut bytes = ends.up(V6, Udp).extension(IpNumber::IPV6_ROUTE_HEADER, 1).bytes();
            // Behind next header, length and type.
            bytes[40 + 3] = 1;
            bytes
        }).because("RFC 7915 section 5.1 asks for the error. xdptun drops the packet without one"),
        Row::new("client: authentication header", |ends| {
            ends.up(V6, Udp).extension(IpNumber::AUTHENTICATION_HEADER, 2)
        }).because("no translator may pass it. Jool leaves it to the kernel, which has no route here; xdptun drops it"),
        Row::new("client: destination options behind a fragment header", |ends| {
            let whole = ends.up(V6, Udp).fragment(0, false);
            whole.extension(IpNumber::IPV6_DESTINATION_OPTIONS, 1)
        }).because("RFC 7915 section 5.1.1 has it dropped. Jool puts fragments together before"),
        // No operation, four times.
        Row::new("server: IPv4 options that say nothing", options(&[1; 4])),
        // Type, length, pointer; then an address, and the end.
        Row::new("server: record route", options(&[7, 7, 4, 0, 0, 0, 0, 0])),
        Row::new(
            "server: loose source route with a hop left",
            options(&[131, 7, 4, 192, 0, 2, 1, 0]),
        ).because("the kernel drops it before xdptun sees it. RFC 7915 section 4.1 asks for the error"),
        Row::new(
            "server: loose source route that is used up",
            options(&[131, 7, 8, 192, 0, 2, 1, 0]),
        ).because("the kernel drops every source route while `accept_source_route` is 0"),
    ]
}

/// The packet with zeros as padding in its first extension header: the kernel drops others (RFC
/// 4942 section 2.1.9.5).
fn padded(packet: &Packet) -> Vec<u8> {
    let mut bytes = packet.bytes();
    bytes[40 + 4..40 + 8].fill(0);
    bytes
}

fn lengths() -> Vec<Row> {
    // Of whole packets.
    let up = |len: usize| move |ends: &Ends| ends.up(V6, Udp).payload(payload(len - 48));
    let down = |len: usize| move |ends: &Ends| ends.down(V4, Udp).payload(payload(len - 28));
    let loose = |len: usize| move |ends: &Ends| down(len)(ends).without_df();
    vec![
        Row::new("client: 1280 bytes", up(1280)),
        Row::new("client: 1281 bytes", up(1281)),
        Row::new("client: 1500 bytes, the IPv4 link takes 1400", up(1500)).because(DEVICE).behind(1400),
        Row::new("client: 1300 bytes, the IPv4 link takes 1200", up(1300)).because(DEVICE).behind(1200),
        Row::new("client: 1280 bytes, the IPv4 link takes 1200", up(1280)).because("RFC 7915 section 5.1: such packets have no DF, and IPv4 may fragment them. Jool refuses what no client can make smaller").behind(1200),
        Row::new("server: 1480 bytes with DF", down(1480)),
        Row::new("server: 1481 bytes with DF", down(1481)).because(SHARED),
        Row::new("server: 1500 bytes with DF", down(1500)).because(SHARED),
        Row::new("server: 1260 bytes without DF", loose(1260)),
        Row::new("server: 1400 bytes without DF", loose(1400)).because("Jool cuts to its `lowest-ipv6-mtu`, 1280; xdptun to `--mtu`, 1500"),
        Row::new("server: 1500 bytes without DF", loose(1500)).because("the same. The kernel cuts to 1480 bytes, and the program in two what the headers of IPv6 make too long"),
    ]
}
