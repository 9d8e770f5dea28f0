//! Host names of peers, looked up again from time to time.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use ipnet::IpNet;
use tokio::net::lookup_host;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::config::Peer;
use crate::error::{Error, Kind, Result, bail};

/// How long the look-up of a name may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// How many addresses a name may have: a wrong answer of a name server must not fill the
/// table of peers.
const MAX_ADDRESSES: usize = 16;

/// The addresses that names last resolved to, shared by all interfaces. So a reload while
/// no name server answers removes no peer.
#[derive(Clone, Debug, Default)]
pub struct Known(Rc<RefCell<BTreeMap<String, Vec<IpNet>>>>);

impl Known {
    /// The host names among peers, with the addresses that are known already.
    #[must_use]
    pub fn names_among<'a>(&self, peers: impl Iterator<Item = &'a Peer>) -> Names {
        let names = peers.filter_map(Peer::host);
        Names {
            names: names
                .map(|name| (name.to_owned(), self.addresses(name)))
                .collect(),
            known: self.clone(),
            failing: false,
        }
    }

    /// Forgets all names but those among peers: old addresses of a name say nothing.
    pub fn retain<'a>(&self, peers: impl Iterator<Item = &'a Peer>) {
        let names: BTreeSet<&str> = peers.filter_map(Peer::host).collect();
        let mut all = self.0.borrow_mut();
        all.retain(|name, _| names.contains(name.as_str()));
    }

    fn addresses(&self, name: &str) -> Vec<IpNet> {
        self.0.borrow().get(name).cloned().unwrap_or_default()
    }

    fn set(&self, name: &str, addresses: &[IpNet]) {
        let mut all = self.0.borrow_mut();
        all.insert(name.to_owned(), addresses.to_vec());
    }
}

/// The addresses of each name; `None` until it has been found once.
pub type Addresses = BTreeMap<String, Vec<IpNet>>;

/// All addresses; `None` until each name has been found once.
#[must_use]
pub fn all(addresses: &Addresses) -> Option<Vec<IpNet>> {
    let known = addresses.values().all(|found| !found.is_empty());
    known.then(|| addresses.values().flatten().copied().collect())
}

/// Names, and the addresses that they last resolved to.
#[derive(Clone, Debug, Default)]
pub struct Names {
    names: Addresses,
    known: Known,
    /// Whether the last look-up missed a name.
    failing: bool,
}

impl Names {
    /// The host names among peers, not looked up yet.
    #[must_use]
    pub fn among<'a>(peers: impl Iterator<Item = &'a Peer>) -> Self {
        Known::default().names_among(peers)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Their addresses.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        self.names.clone()
    }

    /// What xdptun does as long as a name is not found.
    #[must_use]
    pub fn meanwhile(&self) -> String {
        let unknown = self.names.iter().filter(|(_, found)| found.is_empty());
        let unknown: Vec<&str> = unknown.map(|(name, _)| name.as_str()).collect();
        if unknown.is_empty() {
            return "its last addresses stay".to_owned();
        }
        let unknown = unknown.join(" and ");
        format!("until {unknown} is found, any address counts as a peer")
    }

    /// Looks all names up, at once. One that is not found keeps the addresses it had.
    ///
    /// # Errors
    ///
    /// Names those that are not found; of [`Kind::NameLookup`].
    pub async fn look_up(&mut self) -> Result<()> {
        let known = &self.known;
        let answers = self.names.iter_mut().map(async |(name, addresses)| {
            match look_up(name).await {
                Ok(found) => {
                    known.set(name, &found);
                    *addresses = found;
                    Ok(())
                }
                Err(error) => {
                    // Another interface may have found it since.
                    let last = known.addresses(name);
                    if !last.is_empty() {
                        *addresses = last;
                    }
                    Err(format!("{error:#}"))
                }
            }
        });
        let answers = join_all(answers).await;
        let missed: Vec<String> = answers.into_iter().filter_map(Result::err).collect();
        self.failing = !missed.is_empty();
        if self.failing {
            return Err(Error::new(Kind::NameLookup, missed.join("; ")));
        }
        Ok(())
    }

    /// Looks them up at each interval, and sooner after a failure; calls `changed` when the
    /// addresses change. Ends only if there are no names.
    pub async fn keep(mut self, interval: Duration, mut changed: impl FnMut(Addresses)) {
        const AFTER_FAILURE: Duration = Duration::from_secs(5);
        while !self.is_empty() {
            let pause = if self.failing {
                interval.min(AFTER_FAILURE)
            } else {
                interval
            };
            sleep(pause).await;
            let (before, told) = (self.addresses(), self.failing);
            if let Err(error) = self.look_up().await
                // Only the first of a row of failures.
                && !told
            {
                warn!("{error:#}; {}", self.meanwhile());
            }
            let now = self.addresses();
            if now != before {
                let text: Vec<String> = now.values().flatten().map(ToString::to_string).collect();
                info!("peers by name are now {}", text.join(", "));
                changed(now);
            }
        }
    }
}

/// The addresses of a name, in order.
async fn look_up(name: &str) -> Result<Vec<IpNet>> {
    let Ok(found) = timeout(PATIENCE, lookup_host((name, 0))).await else {
        bail!(NameLookup, "peer {name}: no answer from the name server");
    };
    let found = found.map_err(|error| {
        let why = format!("peer {name}: cannot look up the name");
        Error::caused_by(Kind::NameLookup, error).context(why)
    })?;
    let mut addresses: Vec<IpNet> = found.map(|address| address.ip().into()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    match addresses.len() {
        0 => bail!(NameLookup, "peer {name}: the name has no address"),
        1..=MAX_ADDRESSES => {}
        more => {
            bail!(
                NameLookup,
                "peer {name}: the name has {more} addresses, at most {MAX_ADDRESSES} are allowed; write addresses instead"
            )
        }
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(peers: &str) -> Names {
        let config = format!("[interface.a]\nports = [1]\npeers = {peers}");
        let config = crate::config::Config::parse(&config).unwrap();
        Names::among(config.interfaces["a"].peers())
    }

    #[tokio::test]
    async fn a_name_that_is_not_found_keeps_its_addresses() {
        let mut names = names(r#"["localhost", "10.0.0.1"]"#);
        names.look_up().await.unwrap();
        let found = all(&names.addresses()).unwrap();
        assert!(found.iter().all(|net| net.addr().is_loopback()) && !found.is_empty());
        let addresses = names.names.remove("localhost").unwrap();
        let gone = "no-such-host.invalid".to_owned();
        names.names.insert(gone, addresses);
        let error = names.look_up().await.unwrap_err();
        assert!(error.to_string().contains("peer no-such-host.invalid"));
        assert_eq!(all(&names.addresses()).unwrap(), found);
        let never = "never-found.invalid".to_owned();
        names.names.insert(never, Vec::new());
        assert_eq!(all(&names.addresses()), None);
    }
}
