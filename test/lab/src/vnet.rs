//! What goes with a frame between the kernel and a device: the work that the
//! sender leaves to the receiver (`struct virtio_net_hdr`, VIRTIO 1.2 section
//! 5.1.6).

/// The receiver has to write the checksum (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
const NEEDS_CHECKSUM: u8 = 1;

/// Kinds of super-packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Gso {
    /// TCP over IPv4.
    TcpV4 = 1,
    /// TCP over IPv6.
    TcpV6 = 4,
    /// UDP over either.
    Udp = 5,
}

/// The header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Vnet {
    flags: u8,
    gso_type: u8,
    /// Bytes before the payload of a super-packet.
    header_len: u16,
    /// Payload bytes of each piece.
    gso_size: u16,
    /// Where the sum starts.
    csum_start: u16,
    /// Where it is written, from there.
    csum_offset: u16,
}

impl Vnet {
    /// Bytes on the descriptor.
    pub const LEN: usize = 10;

    /// The kernel and the device agree on the host's own byte order.
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let [flags, gso_type, words @ ..] = bytes;
        let ([a, b, c, d], []) = words.as_chunks() else {
            unreachable!("four words")
        };
        Self {
            flags,
            gso_type,
            header_len: u16::from_ne_bytes(*a),
            gso_size: u16::from_ne_bytes(*b),
            csum_start: u16::from_ne_bytes(*c),
            csum_offset: u16::from_ne_bytes(*d),
        }
    }

    /// The inverse of [`Vnet::from_bytes`].
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [self.flags, self.gso_type, 0, 0, 0, 0, 0, 0, 0, 0];
        let words = [
            self.header_len,
            self.gso_size,
            self.csum_start,
            self.csum_offset,
        ];
        for (to, from) in bytes[2..].chunks_exact_mut(2).zip(words) {
            to.copy_from_slice(&from.to_ne_bytes());
        }
        bytes
    }

    /// The same, with a super-packet of pieces of `size` payload bytes behind
    /// `header_len` bytes of headers.
    #[must_use]
    pub fn with_pieces(self, kind: Gso, header_len: u16, size: u16) -> Self {
        Self {
            gso_type: kind as u8,
            header_len,
            gso_size: size,
            ..self
        }
    }

    /// The same, with so many bytes of the frame in one piece and the others in
    /// pages. The kernel does so with frames longer than a page.
    #[must_use]
    pub fn with_linear(self, header_len: u16) -> Self {
        Self { header_len, ..self }
    }

    /// The same, with a checksum still to be written at `start` + `offset`.
    #[must_use]
    pub fn with_pending_checksum(self, start: u16, offset: u16) -> Self {
        Self {
            flags: self.flags | NEEDS_CHECKSUM,
            csum_start: start,
            csum_offset: offset,
            ..self
        }
    }

    /// Whether the checksum of the frame is still to be written.
    pub fn checksum_is_pending(self) -> bool {
        self.flags & NEEDS_CHECKSUM != 0
    }

    /// Whether the frame holds several segments or datagrams.
    pub fn is_super_packet(self) -> bool {
        self.gso_type != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_there_and_back() {
        let header = Vnet::default()
            .with_pieces(Gso::TcpV6, 74, 1000)
            .with_pending_checksum(54, 16);
        assert_eq!(Vnet::from_bytes(header.to_bytes()), header);
        assert_eq!(header.to_bytes()[..2], [1, 4]);
        assert!(header.checksum_is_pending() && header.is_super_packet());
        let plain = Vnet::from_bytes([0; Vnet::LEN]);
        assert!(!plain.checksum_is_pending() && !plain.is_super_packet());
    }
}
