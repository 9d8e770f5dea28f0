//! Two guests on one wire, with network cards as machines have them.
//!
//! The emulator captures the wire, behind the offloads of the cards: the capture
//! shows what a cable would carry.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow, ensure};
use clap::ValueEnum;
use pcap_file::pcap::PcapReader;
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Frame, WireStats, wait};
use xdptun_test_wg::TUNNEL_PORT;

use crate::debian::Arch;
use crate::guest::{Guest, Hypervisor, option};
use crate::setup;
use crate::test::guests::{PAIR_SUITE, report, suites_job};
use crate::test::suite::{Suite, Totals};
use crate::test::{self, worker};

/// A card that QEMU emulates and Debian has the driver of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Model {
    /// Paravirtual; XDP in the driver.
    VirtioNet,
    /// Intel's of 2002; checksum and segmentation offload.
    E1000,
    /// Its successor on PCI Express.
    E1000e,
    /// VMware's; XDP in the driver since Linux 6.6.
    Vmxnet3,
}

impl Model {
    /// As Linux calls the driver.
    fn driver(self) -> &'static str {
        match self {
            Self::VirtioNet => "virtio_net",
            Self::E1000 => "e1000",
            Self::E1000e => "e1000e",
            Self::Vmxnet3 => "vmxnet3",
        }
    }

    /// As QEMU calls the card.
    fn device(self) -> &'static str {
        match self {
            Self::VirtioNet => "virtio-net-pci",
            Self::E1000 => "e1000",
            Self::E1000e => "e1000e",
            Self::Vmxnet3 => "vmxnet3",
        }
    }
}

/// The tests of the guests, the one that listens on the wire's socket first.
const ROLES: [&str; 2] = ["leads", "follows"];

/// Runs the suite on a pair of guests and judges the packets on their wire.
pub fn run(model: Model, kernel: &str, limit: Duration) -> Result<()> {
    setup::ensure_vm()?;
    let suite = test::build_special_suite(PAIR_SUITE)?;
    let files = Scratch::new()?;
    let (socket, capture) = (files.path().join("wire"), files.path().join("capture"));
    let hypervisor = Hypervisor::new(Arch::X86_64);
    let mut guests = Vec::new();
    for (number, role) in ROLES.iter().enumerate() {
        let devices = devices(model, number, &socket, &capture);
        let mut job = suites_job(Arch::X86_64, &job_of(&suite, role))?;
        job.environment = vec![(DRIVER, model.driver().to_owned())];
        guests.push(hypervisor.boot(kernel, &job, &devices)?);
        wait::until(SOCKET_LIMIT, "the wire's socket", || socket.exists())?;
    }
    run_together(&mut guests, limit)?;
    let wire = read(&capture)?;
    println!(
        "\n{}, Linux {kernel}, on the wire: {wire:#?}",
        model.driver()
    );
    judge(&wire)
}

/// The environment variable that tells a guest which driver to load.
const DRIVER: &str = "XDPTUN_NIC";

/// The emulator makes it before anything else.
const SOCKET_LIMIT: Duration = Duration::from_secs(10);

fn job_of(suite: &Suite, role: &str) -> worker::Job {
    worker::Job {
        suites: vec![suite.clone()],
        harness: vec![
            role.to_owned(),
            "--exact".to_owned(),
            "--nocapture".to_owned(),
        ],
        totals: Totals::new(SystemTime::now()),
    }
}

/// One end of the wire. The emulator of the first one captures.
fn devices(model: Model, number: usize, socket: &Path, capture: &Path) -> Vec<OsString> {
    let server = if number == 0 { "on" } else { "off" };
    let wire = format!("stream,id=wire,server={server},addr.type=unix,addr.path=");
    let card = format!(
        "{},netdev=wire,mac=52:54:00:00:00:0{}",
        model.device(),
        number + 1
    );
    let mut devices = vec![
        "-netdev".into(),
        option(&wire, socket).into(),
        "-device".into(),
        card.into(),
    ];
    if number == 0 {
        devices.push("-object".into());
        devices.push(option("filter-dump,id=capture,netdev=wire,file=", capture).into());
    }
    devices
}

/// Runs both jobs to their end; an error of one does not hide the other's.
fn run_together(guests: &mut [Guest], limit: Duration) -> Result<()> {
    let results: Vec<Result<()>> = thread::scope(|scope| {
        let runs: Vec<_> = guests
            .iter_mut()
            .zip(ROLES)
            .map(|(guest, role)| {
                scope.spawn(move || {
                    let ended = guest.run(limit, move |line| println!("{role:>7} | {line}"))?;
                    let report = report(guest, ended)?;
                    let mut totals = Totals::new(SystemTime::now());
                    report
                        .outcomes
                        .into_iter()
                        .for_each(|outcome| totals.add(outcome));
                    totals.conclude()
                })
            })
            .collect();
        let join = |run: thread::ScopedJoinHandle<'_, Result<()>>| {
            run.join()
                .unwrap_or_else(|_| Err(anyhow!("a thread panicked")))
        };
        runs.into_iter().map(join).collect()
    });
    for (result, role) in results.into_iter().zip(ROLES) {
        result.with_context(|| format!("the guest that {role}"))?;
    }
    Ok(())
}

/// Reads the emulator's capture.
fn read(capture: &Path) -> Result<WireStats> {
    let describe = || format!("{}: cannot read the capture of the wire", capture.display());
    let file = File::open(capture).with_context(describe)?;
    let mut reader = PcapReader::new(file).with_context(describe)?;
    let mut wire = WireStats::new(TUNNEL_PORT);
    while let Some(packet) = reader.next_packet() {
        let packet = packet.with_context(describe)?;
        wire.add(&Frame {
            bytes: packet.data.into_owned(),
            outgoing: true,
            vlan: None,
            checksum_ready: true,
            bare: false,
            time: packet.timestamp,
        });
    }
    Ok(wire)
}

fn judge(wire: &WireStats) -> Result<()> {
    ensure!(wire.data_segments > 0, "the wire carried no data at all");
    ensure!(wire.udp_datagrams == 0, "UDP was on the wire");
    ensure!(
        wire.bad_checksums == 0 && wire.malformed == 0,
        "there were bad packets on the wire: {:?}",
        wire.examples
    );
    ensure!(wire.fragments == 0, "there were fragments on the wire");
    ensure!(wire.rst == 0, "there were resets on the wire");
    Ok(())
}
