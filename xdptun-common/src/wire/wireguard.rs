/// Header of WireGuard's data messages (section 5.4.6 of its paper; `struct message_data` in
/// `drivers/net/wireguard/messages.h`), whose numbers are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct WireGuardData {
    /// 4, and three reserved bytes of zero.
    message_type: [u8; 4],
    receiver: [u8; 4],
    counter: [u8; 8],
}

crate::plain!(WireGuardData: 16);

impl WireGuardData {
    const MESSAGE_TYPE: [u8; 4] = [4, 0, 0, 0];

    /// Whether a payload that begins with these bytes is one.
    #[inline(always)]
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        u32::from_le_bytes(self.message_type) == u32::from_le_bytes(Self::MESSAGE_TYPE)
    }

    /// The number for fragments of this message. Within a session it repeats after 2^32 messages, and of
    /// IPv4, which has 16 bits for it, after 65,536; another session has another receiver index.
    #[inline(always)]
    #[must_use]
    pub const fn identification(&self) -> u32 {
        let [a, b, c, d, ..] = self.counter;
        u32::from_le_bytes(self.receiver) ^ u32::from_le_bytes([a, b, c, d])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: WireGuardData = WireGuardData {
        message_type: [4, 0, 0, 0],
        receiver: [0x78, 0x56, 0x34, 0x12],
        counter: [0; 8],
    };

    #[test]
    fn only_data_is_data() {
        assert!(FIRST.is_valid());
        // A handshake, a short header of QUIC, and what only begins alike.
        for message_type in [[1, 0, 0, 0], [0x44, 0, 0, 0], [4, 0, 0, 1], [4, 1, 0, 0]] {
            let other = WireGuardData {
                message_type,
                ..FIRST
            };
            assert!(!other.is_valid());
        }
    }

    #[test]
    fn each_message_has_its_number() {
        let counted = |counter: u64| WireGuardData {
            counter: counter.to_le_bytes(),
            ..FIRST
        };
        assert_eq!(counted(0).identification(), 0x1234_5678);
        assert_eq!(counted(0x20a).identification(), 0x1234_5472);
        assert_eq!(counted(1 << 32).identification(), 0x1234_5678);
    }
}
