//! The last datagram before a pause is lost on the way to a strict router. What the router has
//! not seen it lets nobody acknowledge, so the peer must not, whatever it is told later.

use std::net::{SocketAddr, UdpSocket};

use xdptun_lab::topology::Dropped;
use xdptun_lab::{Attached, Family, Host, Routed, udp, wait};
use xdptun_test_net::{LIMIT, PORT, mode, status};

/// What is lost: longer than all else.
const LOST: [u8; 1000] = [7; 1000];

/// Client and server, both attached, and a service over each family.
struct Scene {
    net: Routed,
    near: Attached,
    _far: Attached,
    echoes: Vec<(Family, udp::Server)>,
}

/// Sockets with open flows, and where these lead.
type Flows = Vec<(UdpSocket, SocketAddr)>;

impl Scene {
    fn attach() -> Self {
        let net = Routed::new().unwrap();
        net.offload("tx", false).unwrap();
        let [near, far] = mode::TC.attach_to([net.client(), &net.server]).unwrap();
        let echoes = Family::BOTH.map(|family| {
            let address = net.server.socket(family, PORT);
            let echo = udp::Server::echo(&net.server.netns, address).unwrap();
            (family, echo)
        });
        Self {
            net,
            near,
            _far: far,
            echoes: echoes.into(),
        }
    }

    fn open(&self) -> Flows {
        let client = self.net.client();
        let sockets = self.echoes.iter().map(|(family, echo)| {
            let socket = udp::bind(&client.netns, client.socket(*family, 0)).unwrap();
            udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
            (socket, echo.address())
        });
        sockets.collect()
    }

    fn count(&self, name: &str) -> u64 {
        status::counter(&self.net.client().netns, name).unwrap()
    }

    /// The client sends what is lost. Returns once it has left.
    fn lose(&self, flows: &Flows) {
        let sent = self.count("tx_disguised");
        self.net.router.lose(&["meta length > 1000"]).unwrap();
        for (socket, to) in flows {
            socket.send_to(&LOST, to).unwrap();
        }
        let all = || self.count("tx_disguised") == sent + flows.len() as u64;
        wait::until(LIMIT, "the datagrams to leave", all).unwrap();
    }
}

/// Each end asks, is answered, and the flows stay as they are.
#[test]
fn the_flow_goes_on() {
    let scene = Scene::attach();
    let flows = scene.open();
    let hosts = [scene.net.client(), &scene.net.server];
    let opened = || hosts.map(|host| status::counter(&host.netns, "sent_syn").unwrap());
    let before = opened();
    for round in 0..3 {
        let sent = |host: &Host, name| status::counter(&host.netns, name).unwrap();
        let (probes, answers) = (sent(hosts[0], "sent_probe"), sent(hosts[1], "sent_ack"));
        scene.lose(&flows);
        let answered = || {
            sent(hosts[0], "sent_probe") >= probes + flows.len() as u64
                && sent(hosts[1], "sent_ack") >= answers + flows.len() as u64
        };
        wait::until(LIMIT, "the probes to be answered", answered).unwrap();
        scene.net.router.lose_nothing().unwrap();
        for (socket, to) in &flows {
            udp::exchange(socket, *to, &[round], LIMIT).unwrap();
        }
        assert_eq!(opened(), before, "round {round}");
        assert_eq!(scene.net.router.dropped().unwrap(), Dropped::default());
    }
}

/// The answer to the SYN-ACK is lost as well: the peer has no flow until it is asked.
#[test]
fn the_flow_begins_all_the_same() {
    let scene = Scene::attach();
    let client = scene.net.client();
    let sent = scene.count("tx_disguised");
    // All that a client sends but SYNs.
    let drops = ["iifname lan0 meta l4proto tcp tcp flags & syn == 0"];
    scene.net.router.lose(&drops).unwrap();
    let sockets: Vec<_> = scene
        .echoes
        .iter()
        .map(|(family, echo)| {
            let socket = udp::bind(&client.netns, client.socket(*family, 0)).unwrap();
            socket.send_to(&LOST, echo.address()).unwrap();
            (socket, echo.address())
        })
        .collect();
    let flows = sockets.len() as u64;
    let left = || scene.count("tx_disguised") == sent + flows;
    wait::until(LIMIT, "the datagrams to leave", left).unwrap();
    // What leaves within the same tick of the clock as the SYN-ACK came is not asked after.
    let asked = || {
        for (socket, to) in &sockets {
            socket.send_to(&LOST, to).unwrap();
        }
        scene.count("sent_probe") >= flows
    };
    wait::until(LIMIT, "the server to be asked", asked).unwrap();
    scene.net.router.lose_nothing().unwrap();
    let answered = || scene.count("rx_ack") >= flows;
    wait::until(LIMIT, "the probes to be answered", answered).unwrap();
    for (socket, to) in &sockets {
        udp::exchange(socket, *to, b"hello", LIMIT).unwrap();
    }
    assert_eq!(scene.net.router.dropped().unwrap(), Dropped::default());
}

/// The FIN that follows has a number that the peer does not expect.
#[test]
fn the_flow_ends_cleanly() {
    let scene = Scene::attach();
    let flows = scene.open();
    scene.lose(&flows);
    let Scene { net, near, .. } = scene;
    near.stop().unwrap();
    wait::until_some(LIMIT, "the flows of the peer to end", || {
        let open = status::open_states(&net.server.netns)?;
        Ok(open.is_empty().then_some(()))
    })
    .unwrap();
    let resets = |name| status::counter(&net.server.netns, name).unwrap();
    assert_eq!([resets("rx_rst"), resets("sent_rst")], [0, 0]);
    assert_eq!(net.router.dropped().unwrap(), Dropped::default());
}
