//! Starting guests.

use std::ffi::OsString;

use anyhow::Result;

use super::job::Job;
use super::jool;
use super::kernel::{Kernel, busybox};
use super::machine::{Guest, Hardware};
use super::programs;
use crate::build;
use crate::debian::{Apt, Arch};
use crate::progress::Progress;

/// The part of this machine that starts guests of one architecture.
pub struct Hypervisor {
    apt: Apt,
    progress: Progress,
}

impl Hypervisor {
    /// Starts nothing yet.
    pub fn new(arch: Arch) -> Self {
        Self {
            apt: Apt::new(arch),
            progress: Progress::start(),
        }
    }

    /// The architecture of its guests.
    pub fn arch(&self) -> Arch {
        self.apt.arch()
    }

    /// Downloads all that a guest with this kernel needs and that is not there yet. Guests
    /// that start at the same time must find it there.
    pub fn fetch(&self, kernel: &str) -> Result<()> {
        self.kernel(kernel)?;
        busybox(&self.apt)?;
        programs::get(&self.apt).map(drop)
    }

    /// A kernel, with what it needs to take the programs.
    fn kernel(&self, wanted: &str) -> Result<Kernel> {
        let kernel = Kernel::get(wanted, &self.apt)?;
        if kernel.is_user_mode {
            build::any_alignment()?;
        }
        Ok(kernel)
    }

    /// Builds Jool for a kernel.
    pub fn build_jool(&self, kernel: &str) -> Result<()> {
        jool::build(&Kernel::get(kernel, &self.apt)?, &self.apt)
    }

    /// Starts a guest with a job and further arguments of the emulator.
    pub fn boot(&self, kernel: &str, job: &Job, devices: &[OsString]) -> Result<Guest> {
        let kernel = self.kernel(kernel)?;
        let busybox = busybox(&self.apt)?;
        let programs = programs::get(&self.apt)?;
        let hardware = Hardware {
            arch: self.apt.arch(),
            kernel: &kernel,
            busybox: &busybox,
            programs: programs.as_deref(),
            devices,
        };
        self.progress
            .say(&format!("booting Linux {}", kernel.release));
        Guest::start(&hardware, job)
    }
}
