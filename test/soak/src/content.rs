//! Datagrams that name themselves. Every byte follows from a name, so that a
//! receiver knows the whole datagram from its head.

use anyhow::{Context, Result, ensure};
use xdptun_lab::content::fill;

/// Bytes that name a datagram: stream, number, length.
pub const HEAD: usize = 4 + 4 + 2;

/// The way a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From a client to the server.
    Question,
    /// Back.
    Answer,
}

impl Way {
    /// In the stream's number.
    const ANSWER: u32 = 1 << 31;

    fn mark(self) -> u32 {
        match self {
            Self::Question => 0,
            Self::Answer => Self::ANSWER,
        }
    }

    /// The filling of datagrams that are too short for a name.
    fn filling(self) -> u8 {
        match self {
            Self::Question => b'?',
            Self::Answer => b'!',
        }
    }
}

/// The name of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// One of a kind.
    Numbered {
        /// The socket of the client.
        stream: u32,
        /// Its place there, from 0.
        number: u32,
        /// Its length in bytes, at least [`HEAD`].
        length: u16,
    },
    /// Too short for a number: one like all of its length.
    Short(u8),
}

impl Name {
    /// The datagram.
    pub fn datagram(self, way: Way) -> Vec<u8> {
        match self {
            Self::Short(length) => vec![way.filling(); length.into()],
            Self::Numbered {
                stream,
                number,
                length,
            } => {
                let stream = stream | way.mark();
                let mut bytes = vec![0; length.into()];
                let (head, body) = bytes.split_at_mut(HEAD);
                head[..4].copy_from_slice(&stream.to_be_bytes());
                head[4..8].copy_from_slice(&number.to_be_bytes());
                head[8..].copy_from_slice(&length.to_be_bytes());
                fill(u64::from(stream) << 32 | u64::from(number), body);
                bytes
            }
        }
    }

    /// The name of a datagram, if all its bytes are as they were made.
    pub fn read(way: Way, bytes: &[u8]) -> Result<Self> {
        let name = if bytes.len() < HEAD {
            Self::Short(u8::try_from(bytes.len())?)
        } else {
            let word = |at: usize| -> Result<u32> {
                let word = bytes[at..].first_chunk().context("cut short")?;
                Ok(u32::from_be_bytes(*word))
            };
            let length = bytes[8..].first_chunk().context("cut short")?;
            Self::Numbered {
                stream: word(0)? & !Way::ANSWER,
                number: word(4)?,
                length: u16::from_be_bytes(*length).max(u16::try_from(HEAD)?),
            }
        };
        ensure!(
            bytes == name.datagram(way),
            "{} bytes that neither client nor server sent, such as {:02x?}",
            bytes.len(),
            &bytes[..bytes.len().min(32)]
        );
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERED: Name = Name::Numbered {
        stream: 7,
        number: 300,
        length: 1000,
    };

    #[test]
    fn names_are_read_back() {
        for name in [NUMBERED, Name::Short(0), Name::Short(9)] {
            for way in [Way::Question, Way::Answer] {
                assert_eq!(Name::read(way, &name.datagram(way)).unwrap(), name);
            }
        }
    }

    #[test]
    fn every_change_shows() {
        let good = NUMBERED.datagram(Way::Question);
        assert!(Name::read(Way::Answer, &good).is_err(), "reflected");
        assert!(Name::read(Way::Question, &good[..999]).is_err(), "cut");
        assert!(Name::read(Way::Question, &good[..9]).is_err(), "cut short");
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] ^= 1;
            assert!(Name::read(Way::Question, &bad).is_err(), "byte {index}");
        }
    }
}
