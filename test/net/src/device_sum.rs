//! What a device found out of a packet's checksum, as it is behind the programs
//! under test: the sum of the whole packet (`CHECKSUM_COMPLETE`), or that it is
//! right (`CHECKSUM_UNNECESSARY`).
//!
//! The kernel does not complain of a wrong sum reliably: it adds the packet up
//! itself, and says "hw csum failure" once in its life, and not at all if the
//! sum was its own. So a program behind xdptun's writes what is known into the
//! packet mark, which the socket then tells.

use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result, bail};
use nix::libc;
use xdptun_bpf::bpf;
use xdptun_lab::bpf::classifier;
use xdptun_lab::{Netns, link, sockopt};

use crate::socket::receive_with;

/// A query about the packet: a helper, which takes the context and zero.
#[derive(Debug, Clone, Copy)]
#[repr(i32)]
pub enum Question {
    /// The sum that the device computed: `bpf_csum_update`.
    Sum = 40,
    /// Whether it found the checksum right: `bpf_csum_level`.
    Verified = 135,
}

/// The program on an interface; it is gone when dropped.
#[derive(Debug)]
pub struct Witness {
    _link: OwnedFd,
}

impl Witness {
    /// Attaches it behind all that is attached to TCX ingress so far.
    pub fn attach(netns: &Netns, dev: &str, question: Question) -> Result<Self> {
        let program = program(question);
        let program = classifier(program.as_flattened()).context("cannot load the witness")?;
        let index = link::index(netns, dev)?;
        // Interface indices are those of the calling thread's namespace.
        let link = netns.enter(|| attach(&program, index))??;
        Ok(Self { _link: link })
    }
}

/// Makes a socket tell the marks of its datagrams.
pub fn listen(socket: &UdpSocket) -> Result<()> {
    sockopt::set_int(socket, libc::SOL_SOCKET, SO_RCVMARK, 1)
}

/// Receives one datagram with the device's sum, folded to 16 bits.
pub fn receive(socket: &UdpSocket) -> Result<(Vec<u8>, u16)> {
    let (payload, answer) = receive_answer(socket)?;
    if answer == NO_SUM {
        bail!("the device made no sum");
    }
    let [a, b, c, d] = answer.to_ne_bytes();
    let halves = u32::from(u16::from_be_bytes([a, b])) + u32::from(u16::from_be_bytes([c, d]));
    let folded = (halves & 0xffff) + (halves >> 16);
    Ok((payload, u16::try_from(folded)?))
}

/// Receives one datagram, and tells whether the device found its checksum right.
pub fn receive_verified(socket: &UdpSocket) -> Result<(Vec<u8>, bool)> {
    let (payload, answer) = receive_answer(socket)?;
    match answer {
        // How many checksums further inside are right as well.
        0.. => Ok((payload, true)),
        NOT_VERIFIED => Ok((payload, false)),
        error => bail!("bpf_csum_level: {error}"),
    }
}

fn receive_answer(socket: &UdpSocket) -> Result<(Vec<u8>, i32)> {
    let (payload, marks) = receive_with(socket, libc::SOL_SOCKET, libc::SO_MARK)?;
    let [mark] = &marks[..] else {
        bail!("{} marks", marks.len());
    };
    Ok((payload, i32::from_ne_bytes(mark.as_slice().try_into()?)))
}

/// `SO_RCVMARK` (5.19).
const SO_RCVMARK: i32 = 75;

/// The helper's result for a packet without such a sum: `-ENOTSUPP`.
const NO_SUM: i32 = -524;
/// The result of the other helper for a packet with an unverified checksum.
const NOT_VERIFIED: i32 = -libc::EACCES;

/// An instruction: operation, registers (destination in the low half), offset
/// and immediate value.
const fn instruction(operation: u8, registers: u8, offset: i16, value: i32) -> [u8; 8] {
    let [a, b] = offset.to_ne_bytes();
    let [c, d, e, f] = value.to_ne_bytes();
    [operation, registers, a, b, c, d, e, f]
}

/// `context->mark = helper(context, 0); return TCX_NEXT;`
const fn program(helper: Question) -> [[u8; 8]; 6] {
    [
        instruction(0xbf, 0x16, 0, 0),             // r6 = r1
        instruction(0xb7, 0x02, 0, 0),             // r2 = 0
        instruction(0x85, 0x00, 0, helper as i32), // call helper
        instruction(0x63, 0x06, 8, 0),             // *(u32 *)(r6 + offsetof(mark)) = r0
        instruction(0xb7, 0x00, 0, -1),            // r0 = TCX_NEXT
        instruction(0x95, 0x00, 0, 0),             // exit
    ]
}

fn attach(program: &OwnedFd, index: u32) -> Result<OwnedFd> {
    const LINK_CREATE: libc::c_int = 28;
    /// The head of this command's part of `union bpf_attr`.
    #[repr(C)]
    struct Create {
        program: u32,
        index: u32,
        kind: u32,
        flags: u32,
    }
    const TCX_INGRESS: u32 = 46;
    let mut create = Create {
        program: program.as_raw_fd().cast_unsigned(),
        index,
        kind: TCX_INGRESS,
        flags: 0,
    };
    // SAFETY: the attributes are those of the command, and nothing else owns the descriptor
    // that it makes.
    unsafe {
        let link = bpf(LINK_CREATE, &mut create).context("cannot attach the witness")?;
        Ok(OwnedFd::from_raw_fd(link))
    }
}
