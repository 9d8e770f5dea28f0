//! Features of the running kernel, found by trying.

use std::path::Path;

use anyhow::{Context, Result};
use aya::programs::{SchedClassifier, TcAttachType};
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use xdptun_lab::{Direct, Family, udp};

/// RFC 863; no socket listens.
const DISCARD: u16 = 9;

/// Whether tc programs can be attached through TCX links (Linux 6.6).
pub fn has_tcx() -> bool {
    SchedClassifier::query_tcx("lo", TcAttachType::Ingress).is_ok()
}

/// Whether it was built with BTF.
pub fn has_btf() -> bool {
    Path::new("/sys/kernel/btf/vmlinux").exists()
}

/// The values of `--tc` that this kernel accepts.
pub fn tc_hooks() -> &'static [&'static str] {
    if has_tcx() {
        &["tcx", "clsact"]
    } else {
        &["clsact"]
    }
}

/// The settings of checksum offload with which a host can send UDP
/// super-packets: before Linux 6.11 (10154dbded6d) only with it on, without it
/// the send fails. Leaves it off.
pub fn offloads_for_super_packets(net: &Direct) -> Result<&'static [bool]> {
    net.offload("tx", false)?;
    let socket = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0))?;
    setsockopt(&socket, UdpGsoSegment, &100).context("no UDP_SEGMENT")?;
    match socket.send_to(&[0; 200], net.b.socket(Family::V4, DISCARD)) {
        Ok(_) => Ok(&[true, false]),
        Err(error) if error.raw_os_error() == Some(Errno::EIO as i32) => Ok(&[true]),
        Err(error) => Err(error).context("cannot send a UDP super-packet"),
    }
}
