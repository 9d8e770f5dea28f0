//! Why a packet could not be read or changed.

/// Why a packet could not be read or changed.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum PacketError {
    /// A helper refused to change its length: the kernel is out of memory, or the buffer is of
    /// a kind that cannot be resized.
    Resize,
    /// A helper refused access to bytes: they are shared or in another page, and the kernel is
    /// out of memory.
    Access,
    /// Bytes are not where its headers say. Callers look before they read, so it takes a sender
    /// that changes the packet meanwhile, through the ring of a packet socket.
    OutOfBounds,
    /// It is longer than the programs can add up or move.
    TooLong,
    /// The value of this CPU in a map of one entry is not there. It always is; the verifier
    /// does not know.
    NoScratch,
}
