//! The floor: programs that do the least that a tunnel must (`xdptun-ebpf/src/bin/floor.rs`).

use anyhow::{Context, Result};
use aya::maps::Array;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};
use xdptun_common::ports::port_bit;
use xdptun_lab::Host;

use crate::kernel::Programs;

/// Its programs on one host, until dropped.
pub struct Floor(Ebpf);

impl Floor {
    /// Attaches them to a host, where they own one port. `ingress` names what restores: `tc` or
    /// `xdp`.
    pub fn attach(host: &Host, port: u16, ingress: &str) -> Result<Self> {
        let mut ebpf = EbpfLoader::new()
            .load(&xdptun_object::FLOOR.bytes())
            .context("cannot load the floor")?;
        let mut ports: Array<_, u64> = ebpf
            .take_map("FLOOR_PORTS")
            .context("FLOOR_PORTS")?
            .try_into()?;
        let (word, mask) = port_bit(port);
        ports.set(word, mask, 0)?;
        host.netns.enter(|| {
            classifier(&mut ebpf, "floor_egress", TcAttachType::Egress)?;
            if ingress == "xdp" {
                let program: &mut Xdp = program(&mut ebpf, "floor_xdp")?.try_into()?;
                program.load()?;
                program.attach(Host::DEV, XdpMode::Driver)?;
                return Ok(());
            }
            classifier(&mut ebpf, "floor_ingress", TcAttachType::Ingress)
        })??;
        Ok(Self(ebpf))
    }

    /// The time that its programs have spent so far.
    pub fn programs(&self) -> Result<Programs> {
        Programs::of_object(&self.0)
    }
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut aya::programs::Program> {
    ebpf.program_mut(name)
        .with_context(|| format!("the floor has no program {name}"))
}

fn classifier(ebpf: &mut Ebpf, name: &str, hook: TcAttachType) -> Result<()> {
    let program: &mut SchedClassifier = program(ebpf, name)?.try_into()?;
    program.load()?;
    let order = TcAttachOptions::TcxOrder(LinkOrder::first());
    program.attach_with_options(Host::DEV, hook, order)?;
    Ok(())
}
