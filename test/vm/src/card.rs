//! The guest's network card.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use xdptun_lab::command::run;
use xdptun_lab::{Direct, Host};

/// The environment variable with the card's driver.
const DRIVER: &str = "XDPTUN_NIC";

/// The driver of this guest's card.
pub fn driver() -> Result<String> {
    std::env::var(DRIVER).with_context(|| {
        format!("{DRIVER} is not set: this suite takes two guests, `cargo xtask vm --nic MODEL`")
    })
}

/// Loads the card's driver and makes it the interface of a host, number 1 or 2.
pub fn host(number: u8) -> Result<Host> {
    // Nothing loads drivers in a guest by itself.
    run(Command::new("modprobe").arg(driver()?))?;
    let interfaces = fs::read_dir("/sys/class/net").context("/sys/class/net")?;
    let names: Vec<String> = interfaces
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    let card = names.iter().find(|name| name.starts_with("eth"));
    let card = card.with_context(|| format!("no network card among {names:?}"))?;
    Direct::one(number, card)
}
