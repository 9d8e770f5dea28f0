//! Flows that have ended while their session goes on.

use std::time::Duration;

use xdptun_lab::content::Filling;
use xdptun_lab::{Family, wait};
use xdptun_test_wg::forwarding::{Form, Source};
use xdptun_test_wg::{Between, Forwarding, Gateway, Scenario};

use crate::counted::{counted, flow_states};

/// How long flows that nothing uses may take to end.
const LIMIT: Duration = Duration::from_secs(20);

/// The server opens a flow to the address that it sees. If that is the client's, the gateway has no
/// such address, and answers all the same.
#[test]
fn a_server_that_speaks_first_opens_both_flows_anew() {
    for source in [Source::Keep, Source::Masquerade] {
        let between = Between::Gateway(Family::V4);
        let scenario = Scenario::new(between, 1, Filling::Pattern).unwrap();
        let gateway = scenario.gateway().unwrap();
        let forwarding = Forwarding {
            source,
            idle_timeout: 2,
            ..Forwarding::new([Form::Disguised; 2])
        };
        let running = forwarding.start(gateway).unwrap();
        scenario.ping().unwrap();
        // The peer that received the last packet may send a keepalive later: now that is the server.
        scenario.ping_back().unwrap();
        wait_for_no_flow(gateway);
        let [wan, lan] = opened(gateway);

        let wires = gateway.watch().unwrap();
        scenario.ping_back().unwrap();
        scenario.down().unwrap();
        for wire in wires {
            let stats = wire.stop().unwrap().stats;
            let shown = (stats.udp_datagrams, stats.rst, stats.bad_checksums);
            assert_eq!(shown, (0, 0, 0), "{source:?}: {stats:#?}");
            assert_eq!(stats.handshakes.len(), 1, "{source:?}: {stats:#?}");
        }
        assert_eq!(opened(gateway), [wan + 1, lan], "{source:?}");
        running.stop().unwrap();
    }
}

fn wait_for_no_flow(gateway: &Gateway) {
    wait::until_some(LIMIT, "both flows to end", || {
        let states = flow_states(gateway.netns())?;
        Ok(states.iter().all(|state| state == "closed").then_some(()))
    })
    .unwrap();
}

/// How many flows the gateway itself has opened, by each interface.
fn opened(gateway: &Gateway) -> [u64; 2] {
    let counted = counted(gateway.netns()).unwrap();
    Gateway::DEVS.map(|dev| {
        let counters = &counted[&("tunnel".to_owned(), dev.to_owned())];
        counters.get("tx_opened").copied().unwrap_or(0)
    })
}
