//! The scripts that package managers run: what they do is in `xdptun/package`, and when they do
//! it is here.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::system::System;

/// The scripts of a package.
#[derive(Debug, Default)]
pub struct Scripts {
    /// Refuses the installation by its status.
    pub before_install: Option<String>,
    /// After the files are there; of formats that have no script of their own for it, also after an
    /// upgrade.
    pub after_install: Option<String>,
    /// After the files of another version are there.
    pub after_upgrade: Option<String>,
    /// Before the files go for good.
    pub before_remove: Option<String>,
    /// After that.
    pub after_remove: Option<String>,
}

impl Scripts {
    /// Reads those of a system from `package`. `machine` is what `uname -m` prints.
    pub fn read(system: System, package: &Path, machine: &str) -> Result<Self> {
        let read = |name: &str| {
            let path = package.join(name);
            fs::read_to_string(&path).with_context(|| format!("{}: cannot read", path.display()))
        };
        let systemd_removed =
            || -> Result<String> { Ok(read("after-remove")? + &read("systemd/after-remove")?) };
        Ok(match system {
            System::Debian => Self::debian(read, &systemd_removed()?)?,
            System::Rpm => Self {
                // Its argument is how many versions stay installed.
                after_install: Some(read("systemd/after-install")?),
                before_remove: Some(when("\"$1\" = 0", &read("systemd/before-remove")?)),
                after_remove: Some(when("\"$1\" = 0", &systemd_removed()?)),
                ..Self::default()
            },
            System::Arch => Self {
                after_install: Some(read("systemd/after-install")?),
                after_upgrade: Some(read("systemd/after-install")?),
                before_remove: Some(read("systemd/before-remove")?),
                after_remove: Some(systemd_removed()?),
                ..Self::default()
            },
            System::Alpine => Self {
                after_upgrade: Some(shell(&read("alpine/after-upgrade")?)),
                before_remove: Some(shell(&read("alpine/before-remove")?)),
                after_remove: Some(shell(&read("after-remove")?)),
                ..Self::default()
            },
            System::OpenWrt => Self::openwrt(read, machine)?,
        })
    }

    fn debian(read: impl Fn(&str) -> Result<String>, removed: &str) -> Result<Self> {
        let strict = |text: &str| shell(&format!("set -e\n\n{text}"));
        let removed = when("\"$1\" = remove", removed);
        let purged = when("\"$1\" = purge", &read("debian/purge")?);
        let installed = when("\"$1\" = configure", &read("systemd/after-install")?);
        let removing = when("\"$1\" = remove", &read("systemd/before-remove")?);
        Ok(Self {
            after_install: Some(strict(&installed)),
            before_remove: Some(strict(&removing)),
            after_remove: Some(strict(&format!("{removed}{purged}"))),
            ..Self::default()
        })
    }

    fn openwrt(read: impl Fn(&str) -> Result<String>, machine: &str) -> Result<Self> {
        let installed = read("openwrt/after-install")?;
        let check = read("openwrt/before-install")?;
        Ok(Self {
            before_install: Some(shell(&format!("machine={machine}\n{check}"))),
            after_install: Some(shell(&installed)),
            // opkg sets it by itself, apk has a script of its own.
            after_upgrade: Some(shell(&format!("PKG_UPGRADE=1\n{installed}"))),
            before_remove: Some(shell(&read("openwrt/before-remove")?)),
            after_remove: Some(shell(&read("after-remove")?)),
        })
    }
}

/// A script for a shell.
fn shell(text: &str) -> String {
    format!("#!/bin/sh\n{text}")
}

/// What is run only if `[ condition ]`.
fn when(condition: &str, text: &str) -> String {
    format!("if [ {condition} ]; then\n{text}fi\n")
}
