use core::mem::offset_of;
use core::ops::BitOr;

/// TCP control bits (RFC 9293 section 3.1). Of inbound segments the low six are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push: here, "this segment is a datagram", so that an empty datagram
    /// differs from a bare acknowledgement.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement field counts.
    pub const ACK: Self = Self(0x10);
    /// Echo of congestion (RFC 3168); in a SYN-ACK, "I understand it".
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168); in a SYN together with ECE, "do you?".
    pub const CWR: Self = Self(0x80);

    /// Whether all bits of `other` are set.
    #[inline(always)]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is set.
    #[inline(always)]
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets together, where an operator cannot be used.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for Flags {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl core::fmt::Debug for Flags {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let names = [
            (Self::SYN, "SYN"),
            (Self::FIN, "FIN"),
            (Self::RST, "RST"),
            (Self::PSH, "PSH"),
            (Self::ACK, "ACK"),
        ];
        f.debug_set()
            .entries(
                names
                    .iter()
                    .filter(|(flag, _)| self.contains(*flag))
                    .map(|(_, name)| name),
            )
            .finish()
    }
}

/// TCP header without options (RFC 9293 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct TcpHeader {
    source: [u8; 2],
    destination: [u8; 2],
    sequence: [u8; 4],
    acknowledgment: [u8; 4],
    /// Header length in 32-bit words, in the high four bits.
    data_offset: u8,
    flags: u8,
    window: [u8; 2],
    checksum: [u8; 2],
    urgent: [u8; 2],
}

crate::plain!(TcpHeader: 20);

/// What a [`TcpHeader`] is made of, in native numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFields {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgment: u32,
    /// Control bits.
    pub flags: Flags,
    /// Window field, unscaled.
    pub window: u16,
    /// How many bytes of options follow, a multiple of four.
    pub options_len: usize,
}

impl TcpHeader {
    /// Length in bytes, without options.
    pub const LEN: usize = size_of::<Self>();
    /// Where the control bits are.
    pub const FLAGS_OFFSET: usize = offset_of!(Self, flags);
    /// Where the acknowledgement number is.
    pub const ACKNOWLEDGMENT_OFFSET: usize = offset_of!(Self, acknowledgment);
    /// Where the checksum is.
    pub const CHECKSUM_OFFSET: usize = offset_of!(Self, checksum);
    /// Where the header's own length is.
    pub const LENGTH_OFFSET: usize = offset_of!(Self, data_offset);
    /// Where the window is.
    pub const WINDOW_OFFSET: usize = offset_of!(Self, window);

    /// A header with these fields, and checksum zero.
    #[inline(always)]
    #[must_use]
    pub const fn new(fields: TcpFields) -> Self {
        Self {
            source: fields.source.to_be_bytes(),
            destination: fields.destination.to_be_bytes(),
            sequence: fields.sequence.to_be_bytes(),
            acknowledgment: fields.acknowledgment.to_be_bytes(),
            data_offset: (((Self::LEN + fields.options_len) / 4) << 4) as u8,
            flags: fields.flags.0,
            window: fields.window.to_be_bytes(),
            checksum: [0; 2],
            urgent: [0; 2],
        }
    }

    /// Source port.
    #[inline(always)]
    #[must_use]
    pub const fn source(&self) -> u16 {
        u16::from_be_bytes(self.source)
    }

    /// Destination port.
    #[inline(always)]
    #[must_use]
    pub const fn destination(&self) -> u16 {
        u16::from_be_bytes(self.destination)
    }

    /// Sequence number of the first payload byte (of the SYN, if set).
    #[inline(always)]
    #[must_use]
    pub const fn sequence(&self) -> u32 {
        u32::from_be_bytes(self.sequence)
    }

    /// The next sequence number that the sender expects.
    #[inline(always)]
    #[must_use]
    pub const fn acknowledgment(&self) -> u32 {
        u32::from_be_bytes(self.acknowledgment)
    }

    /// Header length in bytes, options included; less than 20 is malformed.
    #[inline(always)]
    #[must_use]
    pub const fn header_len(&self) -> usize {
        Self::length(self.data_offset)
    }

    /// The same from the byte at [`TcpHeader::LENGTH_OFFSET`].
    #[inline(always)]
    #[must_use]
    pub const fn length(data_offset: u8) -> usize {
        ((data_offset >> 4) as usize) * 4
    }

    /// Control bits.
    #[inline(always)]
    #[must_use]
    pub const fn flags(&self) -> Flags {
        Flags(self.flags & 0x3f)
    }

    /// Window field, unscaled.
    #[inline(always)]
    #[must_use]
    pub const fn window(&self) -> u16 {
        u16::from_be_bytes(self.window)
    }

    /// The checksum field as it lies in memory.
    #[inline(always)]
    #[must_use]
    pub const fn checksum(&self) -> [u8; 2] {
        self.checksum
    }

    /// The same header with another checksum field.
    #[inline(always)]
    #[must_use]
    pub const fn with_checksum(self, checksum: [u8; 2]) -> Self {
        Self { checksum, ..self }
    }

    /// The same header with another window, unscaled; the checksum follows.
    #[inline(always)]
    #[must_use]
    pub const fn with_window(self, window: u16) -> Self {
        let sum = crate::checksum::Sum::of_checksum(self.checksum)
            .without_word(self.window)
            .number(window);
        Self {
            window: window.to_be_bytes(),
            checksum: sum.checksum(),
            ..self
        }
    }

    /// The same header without PSH; the checksum follows.
    #[inline(always)]
    #[must_use]
    pub const fn without_psh(self) -> Self {
        let flags = self.flags & !Flags::PSH.0;
        let sum = crate::checksum::Sum::of_checksum(self.checksum)
            .without_word([self.data_offset, self.flags])
            .word([self.data_offset, flags]);
        Self {
            flags,
            checksum: sum.checksum(),
            ..self
        }
    }

    /// The sum of the twenty bytes, checksum field included.
    #[inline(always)]
    pub const fn sum(&self) -> crate::checksum::Sum {
        crate::checksum::Sum::new()
            .word(self.source)
            .word(self.destination)
            .words(self.sequence)
            .words(self.acknowledgment)
            .word([self.data_offset, self.flags])
            .word(self.window)
            .word(self.checksum)
            .word(self.urgent)
    }
}
