/// UDP header (RFC 768).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct UdpHeader {
    source: [u8; 2],
    destination: [u8; 2],
    length: [u8; 2],
    checksum: [u8; 2],
}

crate::plain!(UdpHeader: 8);

impl UdpHeader {
    /// Length in bytes.
    pub const LEN: usize = size_of::<Self>();
    /// Where the checksum field starts.
    pub const CHECKSUM_OFFSET: usize = 6;

    /// A header; ports and `length` (header and payload, in bytes) are native
    /// numbers, the checksum is the field as it lies in memory.
    #[inline(always)]
    #[must_use]
    pub const fn new(source: u16, destination: u16, length: u16, checksum: [u8; 2]) -> Self {
        Self {
            source: source.to_be_bytes(),
            destination: destination.to_be_bytes(),
            length: length.to_be_bytes(),
            checksum,
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

    /// Header and payload together, in bytes.
    #[inline(always)]
    #[must_use]
    pub const fn length(&self) -> u16 {
        u16::from_be_bytes(self.length)
    }

    /// The checksum field as it lies in memory; zero says "none".
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
}
