//! WireGuard through a gateway that forwards its port, in every mixture of plain and disguised
//! wires.

mod case;
mod counted;
mod passed_on;
mod reopened;

use xdptun_lab::Family;
use xdptun_test_wg::Forwarding;
use xdptun_test_wg::forwarding::Form::{Disguised, Plain};
use xdptun_test_wg::forwarding::{Source, Start};

use case::{Case, Checksums};

/// Downloads by IPv4 from a server that sees the client, and by IPv6 from one that does not.
fn is_carried(forwarding: Forwarding) {
    for (family, source) in [(Family::V4, Source::Keep), (Family::V6, Source::Masquerade)] {
        let forwarding = Forwarding {
            source,
            ..forwarding
        };
        let checksums = Checksums::Complete;
        Case {
            family,
            forwarding,
            checksums,
        }
        .check();
    }
}

#[test]
fn a_plain_client_reaches_a_plain_server() {
    is_carried(Forwarding::new([Plain, Plain]));
}

#[test]
fn a_disguised_client_reaches_a_plain_server() {
    is_carried(Forwarding::new([Disguised, Plain]));
}

#[test]
fn a_plain_client_reaches_a_disguised_server() {
    is_carried(Forwarding::new([Plain, Disguised]));
}

#[test]
fn a_disguised_client_reaches_a_disguised_server() {
    is_carried(Forwarding::new([Disguised, Disguised]));
}

#[test]
fn one_file_does_what_the_commands_do() {
    is_carried(Forwarding {
        start: Start::File,
        ..Forwarding::new([Disguised, Disguised])
    });
}

/// A plain host leaves its checksums to the card, and the gateway forwards them unfinished.
#[test]
fn a_checksum_that_nobody_has_computed_is_settled_by_the_disguise() {
    for (wires, source) in [
        ([Plain, Disguised], Source::Masquerade),
        ([Disguised, Plain], Source::Keep),
    ] {
        let forwarding = Forwarding {
            source,
            ..Forwarding::new(wires)
        };
        Case {
            family: Family::V4,
            forwarding,
            checksums: Checksums::LeftToCards,
        }
        .check();
    }
}
