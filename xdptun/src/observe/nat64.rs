//! What NAT64 has attached, as `xdptun status --json` prints it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use serde::Serialize;

use super::status::{AttachmentStatus, each_as_text};
use crate::error::Result;
use crate::nat64::{Pinned, session};

/// What NAT64 has attached to its device, and what it translates.
#[derive(Clone, Debug, Serialize)]
pub struct Nat64Status {
    /// What is attached.
    #[serde(flatten)]
    pub attachment: AttachmentStatus,
    /// The networks of clients, as CIDR in JSON.
    #[serde(serialize_with = "each_as_text")]
    pub inside: Vec<Ipv6Net>,
    /// The prefix behind which they find IPv4 addresses, as CIDR.
    pub prefix: String,
    /// The IPv4 addresses that they get, as CIDR.
    pub pool: String,
    /// Whether they may reach addresses that are not global.
    pub private: bool,
    /// How many clients of one network of 64 bits may have an address.
    pub max_per_prefix: u32,
    /// How many clients can have an address.
    pub max_clients: u32,
    /// How many clients are in each state, by
    /// [`State::name`](crate::nat64::session::State::name).
    pub client_states: BTreeMap<&'static str, usize>,
}

impl AsRef<AttachmentStatus> for Nat64Status {
    fn as_ref(&self) -> &AttachmentStatus {
        &self.attachment
    }
}

impl Nat64Status {
    pub(super) fn read(pinned: &Pinned) -> Result<Self> {
        let maps = &pinned.group.maps;
        let translator = maps.translator()?;
        let (prefix, prefix_len) = translator.prefix.parts();
        let (pool, pool_len) = translator.pool.parts();
        let own = Ipv6Net::from(Ipv6Addr::from(translator.own_v6));
        let mut inside = maps.inside()?;
        inside.retain(|network| *network != own);
        let pool_len = u8::try_from(pool_len).unwrap_or_default();
        Ok(Self {
            attachment: AttachmentStatus::read(pinned)?,
            inside,
            prefix: format!("{}/{prefix_len}", Ipv6Addr::from(prefix)),
            pool: Ipv4Net::new(Ipv4Addr::from(pool), pool_len)
                .map_or_else(|_| String::new(), |pool| pool.to_string()),
            private: translator.only_global == 0,
            max_per_prefix: translator.max_per_network,
            max_clients: translator.pool.clients(),
            client_states: session::states(maps)?,
        })
    }
}
