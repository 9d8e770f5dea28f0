//! Segments that no peer sent, with the addresses and ports of a real flow.

use std::net::{SocketAddr, UdpSocket};

use anyhow::{Context, Result};
use etherparse::TcpHeader;
use xdptun_lab::Direct;
use xdptun_lab::seeded::Random;

use crate::wire::{Segment, Wire, describe, segments};
use crate::{PORT, raw};

/// The first bytes of forged data.
pub const PAYLOAD: &[u8] = b"forged";

/// The kind of forged packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Resets, with and without acknowledgement.
    Rst,
    /// Ends.
    Fin,
    /// Beginnings.
    Syn,
    /// Datagrams.
    Data,
    /// Acknowledgements alone.
    Ack,
}

impl Kind {
    /// All, to draw from.
    pub const ALL: [Self; 5] = [Self::Rst, Self::Fin, Self::Syn, Self::Data, Self::Ack];

    /// An IP packet with one; `numbers` draws sequence and acknowledgement.
    pub fn forge(
        self,
        from: SocketAddr,
        to: SocketAddr,
        random: &mut Random,
        numbers: impl FnOnce(&mut Random) -> (u32, u32),
    ) -> Result<Vec<u8>> {
        let mut payload = Vec::new();
        if self == Self::Data {
            payload.extend(PAYLOAD);
            let length = random.below(1000);
            payload.extend(random.bytes(length));
        }
        let fill = |tcp: &mut TcpHeader| {
            (tcp.sequence_number, tcp.acknowledgment_number) = numbers(random);
            tcp.ack = self != Self::Syn;
            match self {
                Self::Rst => {
                    tcp.rst = true;
                    tcp.ack = random.once_in(2);
                }
                Self::Fin => tcp.fin = true,
                Self::Syn => tcp.syn = true,
                Self::Data => tcp.psh = true,
                Self::Ack => {}
            }
        };
        raw::segment(from, to, fill, &payload)
    }
}

/// The numbers that each end of a flow expects next, by the other's last segment.
#[derive(Debug, Clone, Copy)]
pub struct Flow {
    /// The end without the owned port.
    pub client: SocketAddr,
    /// The end with the owned port.
    pub server: SocketAddr,
    /// Next sequence number of the server.
    pub next: u32,
    /// Next sequence number of the client.
    pub acknowledged: u32,
}

impl Flow {
    /// Lets data of `client`, a socket, pass both ways by `act` and reads the numbers of its
    /// flow off the wire.
    pub fn learn(net: &Direct, client: &UdpSocket, act: impl FnOnce()) -> Result<Self> {
        let wire = Wire::watch(&[&net.a, &net.b])?;
        act();
        let frames = wire.stop()?;
        let all = segments(&frames, PORT);
        let port = client.local_addr()?.port();
        let last = |end: fn(&Segment) -> SocketAddr| {
            let mut data = all.iter().rev().filter(|segment| segment.is_data());
            data.find(|segment| end(segment).port() == port)
                .with_context(|| format!("no data: {}", describe(&all)))
        };
        let (of_server, of_client) = (last(|data| data.destination)?, last(|data| data.source)?);
        Ok(Self {
            client: of_client.source,
            server: of_server.source,
            next: of_server.end(),
            acknowledged: of_client.end(),
        })
    }
}
