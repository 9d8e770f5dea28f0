//! The last datagram before a pause is lost on the way to a strict router. What the router has
//! not seen it lets nobody acknowledge, so the peer must not, whatever it is told later.

use xdptun_lab::topology::Dropped;
use xdptun_lab::{Attached, Family, Routed, udp, wait};
use xdptun_test_net::{LIMIT, PORT, mode, status};

/// What is lost: longer than all else.
const LOST: [u8; 1000] = [7; 1000];

/// A flow of each family between client and server, both attached.
struct Scene {
    net: Routed,
    near: Attached,
    _far: Attached,
    ends: Vec<(std::net::UdpSocket, udp::Server)>,
}

impl Scene {
    fn new() -> Self {
        let net = Routed::new().unwrap();
        net.offload("tx", false).unwrap();
        let [near, far] = mode::TC.attach_to([net.client(), &net.server]).unwrap();
        let ends = Family::BOTH.map(|family| {
            let server = &net.server;
            let echo = udp::Server::echo(&server.netns, server.socket(family, PORT)).unwrap();
            let socket = udp::bind(&net.client().netns, net.client().socket(family, 0)).unwrap();
            udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
            (socket, echo)
        });
        Self {
            net,
            near,
            _far: far,
            ends: ends.into(),
        }
    }

    fn count(&self, name: &str) -> u64 {
        status::counter(&self.net.client().netns, name).unwrap()
    }

    /// The client sends what is lost. Returns once it has left.
    fn lose(&self) {
        let sent = self.count("tx_disguised");
        self.net.router.lose(&["meta length > 1000"]).unwrap();
        for (socket, echo) in &self.ends {
            socket.send_to(&LOST, echo.address()).unwrap();
        }
        let all = || self.count("tx_disguised") == sent + self.ends.len() as u64;
        wait::until(LIMIT, "the datagrams to leave", all).unwrap();
    }
}

/// Each end asks, is answered, and the flows stay as they are.
#[test]
fn the_flow_goes_on() {
    let scene = Scene::new();
    let flows = scene.ends.len() as u64;
    let hosts = [scene.net.client(), &scene.net.server];
    let opened = || hosts.map(|host| status::counter(&host.netns, "sent_syn").unwrap());
    let before = opened();
    for round in 0..3 {
        let answers = scene.count("rx_ack");
        scene.lose();
        let answered = || scene.count("rx_ack") >= answers + flows;
        wait::until(LIMIT, "the probes to be answered", answered).unwrap();
        scene.net.router.lose_nothing().unwrap();
        for (socket, echo) in &scene.ends {
            udp::exchange(socket, echo.address(), &[round], LIMIT).unwrap();
        }
        assert_eq!(opened(), before, "round {round}");
        assert_eq!(scene.net.router.dropped().unwrap(), Dropped::default());
    }
}

/// The FIN that follows has a number that the peer does not expect.
#[test]
fn the_flow_ends_cleanly() {
    let scene = Scene::new();
    scene.lose();
    let Scene { net, near, .. } = scene;
    near.stop().unwrap();
    wait::until_some(LIMIT, "the flows of the peer to end", || {
        let open = status::open_states(&net.server.netns)?;
        Ok(open.is_empty().then_some(()))
    })
    .unwrap();
    let resets = |host: &xdptun_lab::Host| status::counter(&host.netns, "rx_rst").unwrap();
    assert_eq!(resets(&net.server), 0);
    assert_eq!(net.router.dropped().unwrap(), Dropped::default());
}
