//! Removal of what an attachment left.

use xdptun_common::attachment::Filters;

use super::pinned::Pinned;
use crate::datapath::programs::TC_PROGRAMS;
use crate::datapath::{clsact, pins, splitter};
use crate::error::{Context as _, Result};
use crate::host::interface::name_of;

/// Removes everything that an attachment of this interface left: links, filters, the
/// splitter, pins and their directory. Returns whether there was anything.
///
/// # Errors
///
/// If something is there and cannot be removed.
pub fn remove(ifindex: u32) -> Result<bool> {
    let removed = strip(ifindex)?;
    pins::remove_directory(&pins::directory(ifindex)?)
        .context("cannot remove the pin directory")?;
    Ok(removed)
}

/// As [`remove`], but leaves the directory, which is the lock, in place.
pub fn strip(ifindex: u32) -> Result<bool> {
    let directory = pins::directory(ifindex)?;
    let had_pins = Pinned::exists(ifindex)?;
    // Filters must go even if the pins cannot be read: look for both.
    let attachment = Pinned::open(ifindex).ok().flatten();
    let filters = attachment.as_ref().map_or(Filters::Clsact, Pinned::filters);
    let mut removed = false;
    // An interface that is gone took its filters along, and another interface may have its
    // name by now.
    if filters != Filters::Tcx
        && let Some(name) = name_of(ifindex)
    {
        for program in TC_PROGRAMS {
            removed |= clsact::remove_filter(&name, program.hook(), program.name())?;
        }
        if filters == Filters::OwnClsact {
            clsact::remove_if_unused(ifindex)?;
        }
    }
    if had_pins {
        pins::remove_links(&directory)
            .with_context(|| format!("cannot remove the links in {}", directory.display()))?;
    }
    removed |= splitter::remove(ifindex)?;
    if had_pins {
        pins::remove(&directory)
            .with_context(|| format!("cannot remove the pins in {}", directory.display()))?;
    }
    Ok(removed || had_pins)
}
