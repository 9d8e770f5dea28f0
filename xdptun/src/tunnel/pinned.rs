//! What the tunnel carries on an interface, as its pins tell.

use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::state::Flow;

use super::Pinned;

impl Pinned {
    /// Whether callers must know a secret.
    #[must_use]
    pub fn has_secret(&self) -> bool {
        let group = self.group.maps.group();
        group.is_ok_and(|group| group.hidden != 0)
    }

    /// Those of its group's flows that last sent by the interface. Flows of an interface that
    /// was made anew or has left count for the first one of the group.
    #[must_use]
    pub fn own_flows(&self, of_group: &[(FlowKey, Flow)]) -> Vec<(FlowKey, Flow)> {
        let is_own = |(_, flow): &&(FlowKey, Flow)| {
            flow.interface == self.ifindex
                || self.is_first() && !self.group.members.contains_key(&flow.interface)
        };
        of_group.iter().filter(is_own).copied().collect()
    }
}
