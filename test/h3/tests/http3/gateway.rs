//! HTTP/3 through a gateway that forwards a port, or translates inside hosts.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use xdptun_lab::content::Filling;
use xdptun_lab::segment::{Content, parse};
use xdptun_lab::{Capture, Frame, Host};
use xdptun_test_h3::{Report, Scenario};
use xdptun_test_net::through::{self, Through};

/// Enough for sends of many datagrams: the congestion window opens far.
const MIB: usize = 16;

/// No datagram that the link carries is longer.
const MTU: usize = 1500;

#[test]
fn downloads_by_a_forwarded_port_are_intact() {
    through::forward(download);
}

#[test]
fn downloads_of_an_inside_host_are_intact() {
    through::nat(download);
}

/// One file. The server hands the kernel many datagrams at once, and the gateway gets them as one
/// packet.
fn download(net: &Through) -> Result<()> {
    let programs = Path::new(env!("CARGO_BIN_EXE_server")).parent().unwrap();
    let scenario = Scenario::new(&net.client, &net.server, programs)?;
    let expected = scenario.provide("test", MIB, Filling::Pattern)?;
    let wire = Capture::fold(&net.server.netns, Host::DEV, Wire::default(), Wire::add)?;
    let url = format!("https://{}/test", net.called);
    let said = scenario.client(&["-k", "--json", &url])?;
    let report: Report = serde_json::from_str(&said.join("\n")).context("no JSON")?;
    ensure!(
        report.downloads[0].sha256 == expected,
        "other bytes: {report}"
    );
    let wire = wire.stop()?;
    ensure!(
        wire.largest > MTU,
        "no send was of many datagrams: {wire:?}"
    );
    ensure!(wire.callers == [net.seen], "{wire:?}, not {}", net.seen);
    Ok(())
}

/// What crosses the link of the server.
#[derive(Debug, Default)]
struct Wire {
    /// The length of the largest packet that left.
    largest: usize,
    /// The addresses that packets came from.
    callers: Vec<std::net::IpAddr>,
}

impl Wire {
    fn add(&mut self, frame: &Frame) {
        let Ok(Content::Transport(packet)) = parse(frame) else {
            return;
        };
        let caller = packet.source.ip();
        if frame.outgoing {
            self.largest = self.largest.max(packet.ip_length);
        } else if !self.callers.contains(&caller) {
            self.callers.push(caller);
        }
    }
}
