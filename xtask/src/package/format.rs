//! The formats of packages, and the names of the files.

use std::fs;

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::about::{About, NAME};
use super::contents::{Contents, Sources};
use super::nfpm::{Package, Packager};
use super::scripts::Scripts;
use super::system::System;
use super::{archive, deb, oci};
use crate::debian::Arch;

/// What is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Debian, Ubuntu, Raspberry Pi OS
    Deb,
    /// An archive of the same files
    Tar,
    /// Fedora, openSUSE and others
    Rpm,
    /// Arch Linux
    Arch,
    /// Alpine
    Alpine,
    /// OpenWrt 24.10, and 23.05 on PCs
    OpenwrtIpk,
    /// OpenWrt from 25.12 on
    OpenwrtApk,
    /// An image for podman and docker
    Oci,
}

impl Format {
    /// Whether nfpm makes it.
    pub fn needs_nfpm(self) -> bool {
        self.packager().is_some()
    }

    /// Whether it is made for a processor. What runs on 32-bit ones is Debian and OpenWrt, mostly.
    pub fn is_for(self, target: Arch) -> bool {
        match target {
            Arch::X86_64 | Arch::Aarch64 => true,
            Arch::Armv7 => matches!(
                self,
                Self::Deb | Self::Tar | Self::OpenwrtIpk | Self::OpenwrtApk
            ),
        }
    }

    fn packager(self) -> Option<Packager> {
        match self {
            Self::Deb | Self::Tar | Self::Oci => None,
            Self::Rpm => Some(Packager::Rpm),
            Self::Arch => Some(Packager::Arch),
            Self::Alpine | Self::OpenwrtApk => Some(Packager::Apk),
            Self::OpenwrtIpk => Some(Packager::Ipk),
        }
    }

    /// The system whose files are in it.
    fn system(self) -> System {
        match self {
            Self::Deb | Self::Tar | Self::Oci => System::Debian,
            Self::Rpm => System::Rpm,
            Self::Arch => System::Arch,
            Self::Alpine => System::Alpine,
            Self::OpenwrtIpk | Self::OpenwrtApk => System::OpenWrt,
        }
    }
}

/// Packages for one machine.
#[derive(Debug)]
pub struct Job<'a> {
    pub sources: Sources<'a>,
    pub about: &'a About,
    pub target: Arch,
    /// Seconds since 1970, of everything.
    pub time: u64,
}

impl Job<'_> {
    /// Named as others of the format are; those of OpenWrt by the kind of processor.
    pub fn file_name(&self, format: Format) -> String {
        let About {
            version, release, ..
        } = self.about;
        let (debian, machine) = (self.target.debian(), self.machine());
        match format {
            Format::Deb => format!("{NAME}_{version}-{release}_{debian}.deb"),
            Format::Tar => format!("{}.tar.gz", self.folder()),
            Format::Rpm => format!("{NAME}-{version}-{release}.{machine}.rpm"),
            Format::Arch => format!("{NAME}-{version}-{release}-{machine}.pkg.tar.zst"),
            Format::Alpine => format!("{NAME}-{version}-r{release}_alpine_{machine}.apk"),
            Format::OpenwrtIpk => format!("{NAME}_{version}-{release}_openwrt_{machine}.ipk"),
            Format::OpenwrtApk => format!("{NAME}-{version}-r{release}_openwrt_{machine}.apk"),
            Format::Oci => format!("{NAME}-{version}-oci-{debian}.tar"),
        }
    }

    /// What is in the file of a format.
    pub fn build(&self, format: Format) -> Result<Vec<u8>> {
        let system = format.system();
        let package = self.sources.package();
        let machine = self.machine();
        if format == Format::Oci {
            return self.image();
        }
        let contents = Contents::collect(&self.sources, system)?;
        if format == Format::Tar {
            let folder = format!("{}/", self.folder());
            return archive::tar_gz(&contents.entries(), &folder, self.time);
        }
        let scripts = Scripts::read(system, &package, machine)?;
        let Some(packager) = format.packager() else {
            let machine = self.target.debian();
            return deb::build(&contents, &scripts, self.about, machine, self.time);
        };
        let package = Package {
            packager,
            system,
            contents: &contents,
            scripts: &scripts,
            about: self.about,
            machine,
            time: self.time,
        };
        package.build()
    }

    fn image(&self) -> Result<Vec<u8>> {
        let binary = self.sources.binary;
        let binary =
            fs::read(binary).with_context(|| format!("{}: cannot read", binary.display()))?;
        let containerfile = self.sources.package().join("Containerfile");
        let machine = self.target.debian();
        oci::build(&containerfile, binary, self.about, machine, self.time)
    }

    /// The folder of the archive.
    fn folder(&self) -> String {
        format!("{NAME}-{}-{}", self.about.version, self.target.triple())
    }

    /// What `uname -m` prints.
    fn machine(&self) -> &'static str {
        match self.target {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
            Arch::Armv7 => "armv7l",
        }
    }
}
