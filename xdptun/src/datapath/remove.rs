//! Removal of what a function left.

use std::path::Path;

use xdptun_common::attachment::{Attachment, Filters};

use super::engine_maps::EngineMaps;
use super::map::Source;
use super::programs::Programs;
use super::{clsact, device, pins, splitter};
use crate::error::{Context as _, Result};
use crate::host::interface::name_of;

/// Removes everything of a group: links, filters, splitters, pins and their directory. Returns
/// whether there was anything.
///
/// # Errors
///
/// If something is there and cannot be removed.
pub fn remove(programs: &Programs, group: &Path) -> Result<bool> {
    let removed = clear(programs, group)?;
    pins::remove_directory(group).context("cannot remove the pin directory")?;
    Ok(removed)
}

/// As [`remove`], but leaves the directory, which is the lock, in place.
///
/// # Errors
///
/// As [`remove`].
pub fn clear(programs: &Programs, group: &Path) -> Result<bool> {
    let had_maps = pins::has_maps(group)?;
    let mut removed = had_maps;
    // Filters must go even if the pins cannot be read, and links of another version.
    let engine = EngineMaps::open(&mut Source::Pins(group)).ok();
    for ifindex in pins::members(group)? {
        let attachment = engine.as_ref().map(|engine| engine.attachment(ifindex));
        let attachment = attachment.transpose().ok().flatten().flatten();
        removed |= remove_member(programs, group, ifindex, attachment)?;
    }
    if had_maps {
        pins::remove_maps(group)
            .with_context(|| format!("cannot remove the pins in {}", group.display()))?;
    }
    Ok(removed)
}

/// Removes what is on an interface of a group, and its directory. `attachment` tells what, if it
/// could be read.
///
/// # Errors
///
/// If something is there and cannot be removed.
pub fn remove_member(
    programs: &Programs,
    group: &Path,
    ifindex: u32,
    attachment: Option<Attachment>,
) -> Result<bool> {
    let filters = attachment.and_then(|attachment| Filters::from_raw(attachment.filters));
    let filters = filters.unwrap_or(Filters::Clsact);
    let mut removed = false;
    // An interface that is gone took its filters along, and another interface may have its
    // name by now.
    if filters != Filters::Tcx
        && let Some(name) = name_of(ifindex)
    {
        for (which, program) in programs.on_interface() {
            removed |= clsact::remove_filter(&name, which.hook(), program)?;
        }
        if filters == Filters::OwnClsact {
            clsact::remove_if_unused(ifindex)?;
        }
    }
    let member = pins::member(group, ifindex);
    pins::remove_links(programs, &member)
        .with_context(|| format!("cannot remove the links in {}", member.display()))?;
    if programs.splitter.is_some() {
        removed |= splitter::remove(ifindex)?;
    }
    if let Some(name) = programs.device {
        removed |= device::remove(name, ifindex)?;
    }
    pins::remove_member(group, ifindex)
        .with_context(|| format!("cannot remove {}", member.display()))?;
    Ok(removed)
}
