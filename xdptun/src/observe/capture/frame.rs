//! The frames on the socket during a capture. Each has a kind, a length and a body, in this
//! machine's byte order.

use xdptun_common::read_plain;
use xdptun_common::report::copy::Record;

use crate::error::{Result, bail};

const COPY: u32 = 0;
const ROUND: u32 = 1;
const END: u32 = 2;

/// Length of kind and length in bytes.
const HEAD: usize = 8;

/// A frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A copy that a program made on a CPU. Copies of one CPU come in order.
    Copy {
        /// The CPU.
        cpu: u32,
        /// The program's note on the packet.
        record: Record,
        /// The first bytes of the packet.
        bytes: &'a [u8],
    },
    /// All copies of packets before a time have been sent.
    Round {
        /// The time, in nanoseconds of `CLOCK_MONOTONIC`.
        until: u64,
        /// How many packets were not recorded, in all.
        unrecorded: u64,
    },
    /// The last frame, with the reason of the end; empty if the client wanted it.
    End(&'a str),
}

impl<'a> Frame<'a> {
    /// The frame at the start of `bytes`, and its length; `None` if it is not complete
    /// yet.
    ///
    /// # Errors
    ///
    /// If that is no frame.
    pub fn first(bytes: &'a [u8]) -> Result<Option<(Self, usize)>> {
        let Some([kind, len]) = read_plain::<[u32; 2]>(bytes) else {
            return Ok(None);
        };
        let end = HEAD + len as usize;
        let Some(body) = bytes.get(HEAD..end) else {
            return Ok(None);
        };
        let frame = match kind {
            COPY => Self::copy(body),
            ROUND => read_plain::<[u64; 2]>(body)
                .map(|[until, unrecorded]| Self::Round { until, unrecorded }),
            END => str::from_utf8(body).ok().map(Self::End),
            _ => None,
        };
        match frame {
            Some(frame) => Ok(Some((frame, end))),
            None => bail!(
                OtherVersion,
                "this xdptun does not understand the answer of the running one"
            ),
        }
    }

    fn copy(body: &'a [u8]) -> Option<Self> {
        const CPU: usize = size_of::<u32>();
        let cpu = read_plain(body)?;
        let record: Record = read_plain(body.get(CPU..)?)?;
        let from = CPU + size_of::<Record>();
        let bytes = body.get(from..from + record.copied as usize)?;
        Some(Self::Copy { cpu, record, bytes })
    }
}

/// Appends a copy, which the kernel hands over in two pieces.
pub fn push_copy(out: &mut Vec<u8>, cpu: u32, head: &[u8], tail: &[u8]) {
    push(out, COPY, &[&cpu.to_ne_bytes(), head, tail]);
}

/// Appends a [`Frame::Round`].
pub fn push_round(out: &mut Vec<u8>, until: u64, unrecorded: u64) {
    push(
        out,
        ROUND,
        &[&until.to_ne_bytes(), &unrecorded.to_ne_bytes()],
    );
}

/// Appends a [`Frame::End`].
pub fn push_end(out: &mut Vec<u8>, why: &str) {
    push(out, END, &[why.as_bytes()]);
}

fn push(out: &mut Vec<u8>, kind: u32, body: &[&[u8]]) {
    let len: usize = body.iter().map(|part| part.len()).sum();
    out.extend(kind.to_ne_bytes());
    // The kernel's events end at 64 KiB.
    out.extend((len as u32).to_ne_bytes());
    for part in body {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use xdptun_common::bytes_of;
    use xdptun_common::report::copy::MET;

    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in() {
        let record = Record {
            at: 7,
            hook: 1,
            end: MET,
            len: 1500,
            copied: 5,
            interface: 2,
            reserved: 0,
        };
        // The kernel pads what it hands over.
        let sample = [bytes_of(&record), b"bytes\0\0\0"].concat();
        let (head, tail) = sample.split_at(34);
        let mut out = Vec::new();
        push_copy(&mut out, 3, head, tail);
        push_round(&mut out, 8, 9);
        push_end(&mut out, "gone");
        let expected = [
            Frame::Copy {
                cpu: 3,
                record,
                bytes: b"bytes",
            },
            Frame::Round {
                until: 8,
                unrecorded: 9,
            },
            Frame::End("gone"),
        ];
        let mut rest = &out[..];
        for frame in expected {
            for cut in 0..rest.len().min(HEAD + 1) {
                assert_eq!(Frame::first(&rest[..cut]).unwrap(), None);
            }
            let (first, len) = Frame::first(rest).unwrap().unwrap();
            assert_eq!(first, frame);
            rest = &rest[len..];
        }
        assert_eq!(rest, b"");
        let mut unknown = Vec::new();
        push(&mut unknown, 3, &[]);
        assert!(Frame::first(&unknown).is_err());
    }
}
