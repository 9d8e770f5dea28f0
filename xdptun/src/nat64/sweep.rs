//! Removes leases that are over, and counts the others.
//!
//! The program makes leases at the same time, and renews them. So a lease is looked at once more as it
//! is removed; one that was renewed meanwhile comes back, and until then its client asks for the same
//! address anew and gets it.

use std::collections::BTreeMap;

use tokio::task::yield_now;
use xdptun_common::flow::tick::Tick;
use xdptun_common::nat64::lease::{Lease, NetworkKey, Number, Standing};

use super::maps::Maps;
use crate::error::Result;
use crate::host::clock::monotonic_ns;

/// Removes leases that are over, and tells the program how many are left. Lets other tasks go on
/// between parts of the table.
///
/// # Errors
///
/// If a map cannot be read or written.
pub async fn sweep(maps: &mut Maps) -> Result<()> {
    // Before the table: a lease that begins meanwhile is counted twice until the next sweep, rather
    // than never.
    let [began, answered] = [maps.number(Number::Began)?, maps.number(Number::Answered)?];
    let networks = maps.networks()?;
    let translator = maps.translator()?;
    let mut left: BTreeMap<NetworkKey, u32> = BTreeMap::new();
    let mut unanswered = 0_u32;
    for part in maps.leases()? {
        for (address, lease) in part? {
            let now = Tick::at(monotonic_ns());
            if lease.is_over(&translator, now)
                && remove(maps, &address, |lease| lease.is_over(&translator, now))?
            {
                continue;
            }
            match lease.standing() {
                Some(Standing::Static) => continue,
                Some(Standing::Answered) => {}
                Some(Standing::Unanswered) | None => unanswered += 1,
            }
            *left.entry(NetworkKey::began(lease.client)).or_default() += 1;
        }
        yield_now().await;
    }
    let gone = began.wrapping_sub(answered).wrapping_sub(unanswered);
    maps.set_number(Number::Unanswered, gone)?;
    for (key, number) in networks.iter().filter(|(key, _)| key.is_began()) {
        match left.get(key).copied().unwrap_or_default() {
            0 => maps.forget_network(*key)?,
            left => maps.set_network(key.gone(), number.wrapping_sub(left))?,
        }
    }
    Ok(())
}

/// Removes the lease of an address if it is still as `is_to_go` says; whether it was.
fn remove(
    maps: &mut Maps,
    address: &[u8; 4],
    is_to_go: impl FnOnce(&Lease) -> bool,
) -> Result<bool> {
    let Some(taken) = maps.take(address)? else {
        return Ok(true);
    };
    if is_to_go(&taken) {
        maps.forget_client(&taken.client, address)?;
        return Ok(true);
    }
    maps.put_back(address, &taken)?;
    Ok(false)
}
