//! What the parts of a translation can be, and what fits together.

use super::*;
use crate::error::{Error, Kind};

fn nat(inside: &[&str]) -> Nat {
    Nat::new(inside.iter().map(|one| one.parse().unwrap()).collect())
}

#[test]
fn what_is_accepted_is_shown_again() {
    for text in [
        "192.168.7.0/24",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "192.168.7.5/32",
    ] {
        assert_eq!(text.parse::<Inside>().unwrap().to_string(), text);
    }
    let host: Inside = "192.168.7.5".parse().unwrap();
    assert_eq!(host.to_string(), "192.168.7.5/32");
    for text in ["203.0.113.7", "192.168.0.2"] {
        assert_eq!(outside_address(text).unwrap().to_string(), text);
    }
    let networks = ["192.168.7.0/24", "10.0.0.0/8"];
    let named = Nat {
        outside: Some(Ipv4Addr::new(203, 0, 113, 7)),
        ports: "20000-29999".parse().unwrap(),
        filtering: Filtering::AddressAndPortDependent,
        ..nat(&networks)
    };
    for (nat, shown) in [
        (nat(&networks[..1]), "192.168.7.0/24, ports 1024-32767"),
        (
            nat(&networks),
            "192.168.7.0/24, 10.0.0.0/8, ports 1024-32767",
        ),
        (
            named,
            "192.168.7.0/24, 10.0.0.0/8, outside 203.0.113.7, ports 20000-29999, filtering \
             address-and-port-dependent",
        ),
    ] {
        assert_eq!(nat.check(), Ok(()));
        assert_eq!(nat.to_string(), shown);
    }
}

#[test]
fn what_is_no_inside_network_is_refused() {
    for (text, hint) in [
        ("", "`` is no network; write 192.168.7.0/24"),
        ("lan", "`lan` is no network"),
        ("192.168.7.0/33", "`192.168.7.0/33` is no network"),
        ("192.168.7/24", "or 192.168.7.5 for one host"),
        (
            "192.168.7.1/24",
            "`192.168.7.1/24` has bits beyond its prefix; write 192.168.7.0/24, or 192.168.7.1 \
             for one host",
        ),
        ("10.0.0.1/0", "write 0.0.0.0/0, or 10.0.0.1 for one host"),
        (
            "fd00::/64",
            "`fd00::/64` is IPv6, and nat translates IPv4 alone; write a network like \
             192.168.7.0/24",
        ),
        ("2001:db8::5", "`2001:db8::5` is IPv6"),
        ("0.0.0.0/0", "`0.0.0.0/0` is every address"),
        (
            "0.0.0.0",
            "`0.0.0.0/32` overlaps 0.0.0.0/32, the address of no host",
        ),
        (
            "127.1.0.0/16",
            "`127.1.0.0/16` overlaps 127.0.0.0/8, loopback addresses",
        ),
        ("64.0.0.0/2", "`64.0.0.0/2` overlaps 127.0.0.0/8"),
        (
            "128.0.0.0/1",
            "`128.0.0.0/1` overlaps 224.0.0.0/4, multicast",
        ),
        ("239.1.2.3", "name the networks of the inside hosts"),
        ("240.0.0.0/4", "overlaps 255.255.255.255/32, the broadcast"),
    ] {
        let error = text.parse::<Inside>().expect_err(text).to_string();
        assert!(error.contains(hint), "{text}: {hint}: {error}");
    }
}

#[test]
fn what_is_no_outside_address_is_refused() {
    for (text, hint) in [
        ("", "`` is no address"),
        (
            "gw.example.org",
            "`gw.example.org` is no address; host names are not looked up here, write 203.0.113.7",
        ),
        ("203.0.113.0/24", "`203.0.113.0/24` is no address"),
        (
            "2001:db8::1",
            "`2001:db8::1` is IPv6, and nat translates IPv4 alone; write an address like",
        ),
        (
            "0.0.0.0",
            "`0.0.0.0` is in 0.0.0.0/32, the address of no host",
        ),
        ("127.0.0.1", "`127.0.0.1` is in 127.0.0.0/8, loopback"),
        ("224.0.0.1", "`224.0.0.1` is in 224.0.0.0/4, multicast"),
        ("255.255.255.255", "name an address of the interface"),
    ] {
        let error = outside_address(text).expect_err(text).to_string();
        assert!(error.contains(hint), "{text}: {hint}: {error}");
    }
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let many: Vec<String> = (0..17).map(|third| format!("10.0.{third}.0/24")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(nat(&many[..MAX_INSIDE]).check(), Ok(()));
    for (inside, hint) in [
        (&[][..], "no network of inside hosts; name one"),
        (
            &many,
            "17 networks of inside hosts are too many, there is room for 16; write larger",
        ),
        (
            &["10.0.0.0/24", "10.0.1.0/24", "10.0.0.0/24"],
            "inside network 10.0.0.0/24 is listed twice",
        ),
        (
            &["10.0.1.0/24", "10.0.0.0/16"],
            "inside network 10.0.1.0/24 lies within 10.0.0.0/16, which holds its hosts; leave \
             10.0.1.0/24 out",
        ),
        (
            &["10.0.0.0/16", "10.0.1.1"],
            "inside network 10.0.1.1/32 lies within 10.0.0.0/16",
        ),
        (
            &["10.0.0.0/16", "203.0.113.0/29"],
            "the outside address 203.0.113.7 lies within the inside network 203.0.113.0/29; name",
        ),
    ] {
        let nat = Nat {
            outside: Some(Ipv4Addr::new(203, 0, 113, 7)),
            ..nat(inside)
        };
        let error = Error::from(nat.check().expect_err(hint));
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains(hint), "{hint}: {error}");
    }
}
