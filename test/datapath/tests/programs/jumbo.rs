//! XDP: packets that lie in several buffers, as jumbo frames do. (The kernel
//! makes such of all that exceeds a page and what it keeps in it.)

use std::sync::{LazyLock, Mutex};

use xdptun_common::tunnel::outcome::Outcome;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::path::OTHER;
use xdptun_test_datapath::{Case, Config, Datapath, Family, Path, Program, Row, check, flags, row};

use crate::effects::in_state;
use crate::restored::{restores, segment};
use crate::{Shared, lock, paths};

const PROGRAM: Program = Program::XdpFrags;
const MTU: u16 = 9000;

static JUMBO: Shared = LazyLock::new(|| {
    Mutex::new(Datapath::new(&Config {
        mtu: MTU,
        ..Config::default()
    }))
});

/// The longest payload whose segment fits.
const fn largest(family: Family) -> usize {
    MTU as usize - family.header_len() - 20
}

/// Around the end of the first buffer (a page, without what the kernel keeps in
/// it) and of the second, and the usual jumbo frames.
fn lengths() -> impl Iterator<Item = usize> {
    (3400..=3500)
        .step_by(7)
        .chain([4096, 5000, 7500, 7600, 8900])
}

#[test]
fn data_is_restored() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for len in lengths().chain([largest(path.family())]) {
            rows.push(row(format!("{path:?}, {len} bytes"), move |at| {
                let datagram = path.inbound().payload(payload(len));
                restores(PROGRAM, at, path, &datagram, len)
            }));
        }
        rows.push(row(format!("{path:?}, damaged"), move |at| {
            let datagram = path.inbound().payload(payload(8900));
            let mut arrived = segment(&path.established(at), &datagram).bytes();
            let mut expected = datagram.bytes();
            for bytes in [&mut arrived, &mut expected] {
                *bytes.last_mut().expect("payload") ^= 1;
            }
            restores(PROGRAM, at, path, &datagram, 8900)
                .meets(arrived)
                .passes_as(expected)
        }));
    }
    check(&mut lock(&JUMBO), rows);
}

#[test]
fn all_else_is_left_or_refused() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let (path, other) = (Path::server(family), Path::new(family, 53, OTHER));
        let plain = path.inbound().payload(payload(5000));
        let others = other.inbound().payload(payload(5000));
        let data = plain.clone().segment(flags::DATA, 0xffff_fff0, 0xffff_ffe0);
        // One byte more than there is.
        let long = data.clone().transport_len(5021);
        rows.push(row(format!("{family:?} plain UDP"), move |_| {
            Case::new(PROGRAM, &plain).drops(Outcome::RxDropPlainUdp)
        }));
        for (name, packet) in [
            ("other port", others),
            ("longer than the frame", long),
            (
                "longer than the MTU",
                data.clone().payload(payload(largest(family) + 1)),
            ),
            ("TCP options", data.clone().options(&[1; 4])),
        ] {
            rows.push(row(format!("{family:?} {name}"), move |at| {
                Case::new(PROGRAM, &packet).flow(path.key(), path.established(at))
            }));
        }
        // The other program meets the first buffer only, which is not enough.
        rows.push(row(format!("{family:?} in one buffer"), {
            let data = data.clone();
            move |at| Case::new(Program::Xdp, &data).flow(path.key(), path.established(at))
        }));
        rows.push(row(format!("{family:?} closing"), move |at| {
            let state = xdptun_common::tunnel::state::State::FinSent;
            Case::new(PROGRAM, &data).flow(path.key(), in_state(path.established(at), state))
        }));
    }
    check(&mut lock(&JUMBO), rows);
}
