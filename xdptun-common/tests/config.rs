//! `config` and `event`: numbers that cross between the two sides.

use std::collections::HashSet;

use xdptun_common::again::is_own;
use xdptun_common::attachment::{Filters, IngressMode};
use xdptun_common::ports::{PORT_WORDS, port_bit};
use xdptun_common::report::copy::Hook;
use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::event::Kind;

#[test]
fn every_port_has_a_bit_of_its_own() {
    let mut seen = HashSet::new();
    for port in 0..=u16::MAX {
        let (word, mask) = port_bit(port);
        assert!(word < PORT_WORDS && mask.is_power_of_two(), "{port}");
        assert!(seen.insert((word, mask)), "{port}");
    }
}

#[test]
fn requests_survive_the_mark_and_no_other_mark_is_one() {
    let all = [
        Request::Acknowledge,
        Request::RetransmitSyn,
        Request::Probe,
        Request::Finish,
        Request::Reopen,
        Request::OwnError,
        Request::Confirm,
        Request::Resend,
    ];
    for request in all {
        assert_eq!(Request::from_mark(request.mark()), Some(request));
        assert!(is_own(request.mark()), "{request:?}");
    }
    let (first, last) = (all[0].mark(), all[7].mark());
    for mark in [0, 1, first - 1, last + 1, u32::MAX] {
        assert_eq!(Request::from_mark(mark), None, "{mark:#x}");
    }
    for mark in [0, 1, first - 1, first + 0x100, u32::MAX] {
        assert!(!is_own(mark), "{mark:#x}");
    }
}

#[test]
fn modes_and_kinds_survive_the_map() {
    let mut names = HashSet::new();
    for mode in [IngressMode::Tc, IngressMode::Xdp, IngressMode::XdpGeneric] {
        assert_eq!(IngressMode::from_raw(mode as u32), Some(mode));
        assert!(names.insert(mode.name()));
    }
    for filters in [Filters::Tcx, Filters::Clsact, Filters::OwnClsact] {
        assert_eq!(Filters::from_raw(filters as u32), Some(filters));
    }
    for hook in [Hook::Egress, Hook::Ingress, Hook::Xdp] {
        assert_eq!(Hook::from_raw(hook as u32), Some(hook));
    }
    for kind in [Kind::Queued, Kind::Established, Kind::Finished, Kind::Reset] {
        assert_eq!(Kind::from_raw(kind as u32), Some(kind));
    }
    assert_eq!(IngressMode::from_raw(3), None);
    assert_eq!(Filters::from_raw(3), None);
    assert_eq!(Hook::from_raw(3), None);
    assert_eq!(Kind::from_raw(u32::MAX), None);
}
