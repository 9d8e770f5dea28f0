//! The order of functions on a hook: by [`Programs::order`], whichever was attached first.
//!
//! A packet that comes in meets the programs with the least order first, and one that leaves
//! meets them last. TCX has a list of links: a new one goes next to a link of
//! the functions closer to the network. A filter of clsact has a priority.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::{LinkOrder, ProgramId, TcAttachType};
use xdptun_bpf::programs_on;
use xdptun_common::attachment::Attachment;

use super::engine_maps::EngineMaps;
use super::map::Source;
use super::pins;
use super::programs::Programs;
use crate::error::{Context as _, Result};

/// What another function has on an interface.
pub struct Other {
    group: PathBuf,
    /// How it is attached.
    pub attachment: Attachment,
}

/// What other functions have on an interface.
///
/// # Errors
///
/// If pins cannot be read.
pub fn others(programs: &Programs, ifindex: u32) -> Result<Vec<Other>> {
    let mut others = Vec::new();
    for group in pins::groups_of_others(programs, ifindex)? {
        if pins::has_maps(&group)?
            && let Some(attachment) =
                EngineMaps::open(&mut Source::Pins(&group))?.attachment(ifindex)?
        {
            others.push(Other { group, attachment });
        }
    }
    Ok(others)
}

/// The place of a new link on a TCX hook. The caller holds the lock of the network namespace
/// until the link is there: another function may look for its own place.
///
/// # Errors
///
/// If the hook or the links of other functions cannot be looked at.
pub fn on_tcx(
    programs: &Programs,
    (interface, ifindex): (&str, u32),
    hook: TcAttachType,
) -> Result<LinkOrder> {
    let mut closer = BTreeSet::new();
    for Other { group, attachment } in others(programs, ifindex)? {
        if attachment.order < programs.order {
            for pin in pins::links(&pins::member(&group, ifindex))? {
                let cannot_open = || format!("cannot open the pinned link {}", pin.display());
                let link = PinnedLink::from_pin(&pin).with_context(cannot_open)?;
                closer.insert(FdLink::from(link).info()?.program_id());
            }
        }
    }
    let on_hook = match closer.is_empty() {
        true => Vec::new(),
        false => programs_on(ifindex, hook_number(hook))
            .with_context(|| format!("cannot list the programs on {interface}"))?,
    };
    let mut on_hook = on_hook.into_iter();
    let is_closer = |id: &u32| closer.contains(id);
    // SAFETY: the kernel refuses an identifier that is none of a program on the hook.
    let id = |id| unsafe { ProgramId::new(id) };
    Ok(match hook {
        TcAttachType::Egress => match on_hook.find(is_closer) {
            Some(next) => LinkOrder::before_program_id(id(next)),
            None => LinkOrder::last(),
        },
        TcAttachType::Ingress | TcAttachType::Custom(_) => match on_hook.rfind(is_closer) {
            Some(previous) => LinkOrder::after_program_id(id(previous)),
            None => LinkOrder::first(),
        },
    })
}

/// A TCX hook in `enum bpf_attach_type`.
const fn hook_number(hook: TcAttachType) -> u32 {
    match hook {
        TcAttachType::Egress => 47,
        TcAttachType::Ingress | TcAttachType::Custom(_) => 46,
    }
}

/// The priorities among which a filter takes the first that is free: a priority holds filters
/// of one kind and protocol (`tcf_chain_tp_find`). The least goes first.
pub const fn priorities(order: u32, hook: TcAttachType) -> RangeInclusive<u16> {
    const EACH: u16 = 16;
    let from = EACH * order as u16;
    match hook {
        TcAttachType::Egress => u16::MAX - from - EACH + 1..=u16::MAX - from,
        TcAttachType::Ingress | TcAttachType::Custom(_) => from + 1..=from + EACH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_order_is_next_to_the_network() {
        for order in 1..8 {
            let [ingress, egress] = [TcAttachType::Ingress, TcAttachType::Egress]
                .map(|hook| [order - 1, order].map(|order| priorities(order, hook)));
            assert!(ingress[0].end() < ingress[1].start(), "{order}");
            assert!(egress[1].end() < egress[0].start(), "{order}");
            assert!(*ingress[0].start() > 0, "zero lets the kernel choose");
        }
    }
}
