//! Data of WireGuard that does not fit: xdptun divides it into two fragments, and does not tell its
//! sender.

use std::net::UdpSocket;
use std::time::Duration;

use anyhow::{Result, ensure};
use xdptun_lab::{Direct, Family, udp, wait};

use crate::{LIMIT, socket};

/// The longest datagram that fits an MTU of 1500, in bytes of payload.
#[must_use]
pub const fn fits(family: Family) -> usize {
    match family {
        Family::V4 => 1460,
        Family::V6 => 1440,
    }
}

/// A datagram of WireGuard, `len` bytes, whose counter is this number.
#[must_use]
pub fn data(len: usize, number: u8) -> Vec<u8> {
    let mut data = udp::pattern(len, number);
    // The type of the message, its receiver, and its counter.
    data[..16].copy_from_slice(&[4, 0, 0, 0, 9, 8, 7, 6, number, 0, 0, 0, 0, 0, 0, 0]);
    data
}

/// Opens a flow to an echo, and waits until each host knows that the other takes fragments.
pub fn client(net: &Direct, family: Family, server: &udp::Server) -> Result<UdpSocket> {
    let client = socket::roomy(&net.a.netns, net.a.socket(family, 0))?;
    udp::exchange(&client, server.address(), &data(100, 0), LIMIT)?;
    // A host that does not know yet loses what does not fit, and asks; so the client repeats. Late
    // answers come before that to what is sent last.
    let long = data(fits(family) + 1, 1);
    wait::until_some(LIMIT, "both to know that fragments are taken", || {
        client.send_to(&long, server.address())?;
        Ok(udp::receive(&client, Duration::from_millis(200)).ok())
    })?;
    client.send_to(b"the last", server.address())?;
    loop {
        let (answer, _) = udp::receive(&client, LIMIT)?;
        if answer == b"the last" {
            return Ok(client);
        }
        ensure!(answer == long, "another answer: {answer:x?}");
    }
}
