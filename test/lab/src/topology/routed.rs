//! Clients behind a strict stateful router, and a server beyond it.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Result;

use super::host::{Family, Host, prefixed, v6};
use super::router::Router;
use crate::link::{self, End};
use crate::netns::Netns;

/// Clients with one network each, a router that masquerades them, a server.
///
/// The server has no route to the clients: it can only answer what the router
/// translated, as a host on the public Internet.
#[derive(Debug)]
pub struct Routed {
    /// Number `i` (from 0) is `10.1.i.2`, `fd00:1:i::2` at first.
    pub clients: Vec<Host>,
    /// The router that the clients are connected to.
    pub router: Router,
    /// A second one between that and the server, as carriers have them; it sees
    /// the first as its only client. See [`Routed::behind_two`].
    pub carrier: Option<Router>,
    /// `10.2.0.2`, `fd00:2::2`.
    pub server: Host,
}

impl Routed {
    /// A network with one client.
    pub fn new() -> Result<Self> {
        Self::with_clients(1)
    }

    /// A network with up to 250 clients.
    pub fn with_clients(count: u8) -> Result<Self> {
        let router = Router::new("router", Router::FIRST)?;
        Self::connect(count, router, None)
    }

    /// A network with one client and two routers in series, each of which
    /// masquerades what comes from the client's side.
    pub fn behind_two() -> Result<Self> {
        let carrier = Router::new("carrier", Router::FIRST)?;
        let router = Router::new("router", Router::SECOND)?;
        let (v4, v6) = (Ipv4Addr::new(10, 4, 0, 1), v6([0xfd00, 4], 1));
        link::veth(
            &End {
                netns: &router.netns,
                dev: Router::WAN,
                addresses: &prefixed(router.v4, router.v6),
            },
            &End {
                netns: &carrier.netns,
                dev: &Router::lan(0),
                addresses: &prefixed(v4, v6),
            },
        )?;
        set_default_route(&router.netns, [v4.into(), v6.into()])?;
        Self::connect(1, router, Some(carrier))
    }

    fn connect(count: u8, router: Router, carrier: Option<Router>) -> Result<Self> {
        let server = Host::new("server", Ipv4Addr::new(10, 2, 0, 2), v6([0xfd00, 2], 2))?;
        let last = carrier.as_ref().unwrap_or(&router);
        server.connect(&End {
            netns: &last.netns,
            dev: Router::WAN,
            addresses: &prefixed(last.v4, last.v6),
        })?;
        let clients = (0..count)
            .map(|number| client(&router, number))
            .collect::<Result<_>>()?;
        let net = Self {
            clients,
            router,
            carrier,
            server,
        };
        for router in net.routers() {
            router.be_strict()?;
        }
        Ok(net)
    }

    /// Every router, in the order in which the client's packets meet them.
    pub fn routers(&self) -> impl Iterator<Item = &Router> {
        [&self.router].into_iter().chain(&self.carrier)
    }

    /// The address that the server sees instead of the clients'.
    pub fn seen_address(&self, family: Family) -> IpAddr {
        let last = self.carrier.as_ref().unwrap_or(&self.router);
        last.address(family)
    }

    /// Gives a client its default routes, as its network manager does when the
    /// interface is up again.
    pub fn route_client(&self, number: u8) -> Result<()> {
        set_default_route(&self.clients[usize::from(number)].netns, gateways(number))
    }

    /// Gives a client other addresses in its network, as when it roams: host number `host`
    /// from now on. Sockets that are bound to the old ones cannot send any more.
    pub fn readdress(&mut self, number: u8, host: u8) -> Result<()> {
        let client = &mut self.clients[usize::from(number)];
        let [old, new] = [
            prefixed(client.v4, client.v6),
            prefixed(
                Ipv4Addr::new(10, 1, number, host),
                v6([0xfd00, 1, number.into()], host.into()),
            ),
        ];
        let dev = Host::DEV;
        let batch = format!(
            "address del {} dev {dev}\naddress del {} dev {dev}\n\
             address add {} dev {dev}\naddress add {} dev {dev} nodad\n",
            old[0], old[1], new[0], new[1]
        );
        client.netns.run_with_input("ip", ["-batch", "-"], &batch)?;
        client.v4 = Ipv4Addr::new(10, 1, number, host);
        client.v6 = v6([0xfd00, 1, number.into()], host.into());
        self.route_client(number)
    }

    /// Sets up the interface of a host that came back without addresses and routes: that of a
    /// client, or of the server, which has the number after the last client.
    pub fn set_up_again(&self, number: usize) -> Result<()> {
        let host = self.clients.get(number).unwrap_or(&self.server);
        link::configure(&End {
            netns: &host.netns,
            dev: Host::DEV,
            addresses: &prefixed(host.v4, host.v6),
        })?;
        link::wait_up(&host.netns, Host::DEV)?;
        match number < self.clients.len() {
            true => self.route_client(u8::try_from(number)?),
            false => Ok(()),
        }
    }

    /// Recreates a client's interface, as when a dongle is pulled out and put in
    /// again.
    pub fn replug(&self, number: u8) -> Result<()> {
        let client = &self.clients[usize::from(number)];
        client.netns.run("ip", ["link", "delete", Host::DEV])?;
        plug_in(client, &self.router, number)
    }

    /// The first client.
    pub fn client(&self) -> &Host {
        &self.clients[0]
    }

    /// Switches an offload on every host and on the router's interfaces.
    pub fn offload(&self, feature: &str, on: bool) -> Result<()> {
        let router = &self.router.netns;
        for (number, client) in self.clients.iter().enumerate() {
            client.offload(feature, on)?;
            link::offload(router, &Router::lan(number), feature, on)?;
        }
        if let Some(carrier) = &self.carrier {
            link::offload(&carrier.netns, &Router::lan(0), feature, on)?;
        }
        for router in self.routers() {
            link::offload(&router.netns, Router::WAN, feature, on)?;
        }
        self.server.offload(feature, on)
    }
}

fn client(router: &Router, number: u8) -> Result<Host> {
    let client = Host::new(
        &format!("client{number}"),
        Ipv4Addr::new(10, 1, number, 2),
        v6([0xfd00, 1, number.into()], 2),
    )?;
    plug_in(&client, router, number)?;
    Ok(client)
}

/// Connects a client to its router.
fn plug_in(client: &Host, router: &Router, number: u8) -> Result<()> {
    let [v4, v6] = gateways(number);
    client.connect(&End {
        netns: &router.netns,
        dev: &Router::lan(number.into()),
        addresses: &[format!("{v4}/24"), format!("{v6}/64")],
    })?;
    set_default_route(&client.netns, [v4, v6])
}

/// The addresses of the router that a client sees.
fn gateways(number: u8) -> [IpAddr; 2] {
    [
        Ipv4Addr::new(10, 1, number, 1).into(),
        v6([0xfd00, 1, number.into()], 1).into(),
    ]
}

fn set_default_route(netns: &Netns, gateways: [IpAddr; 2]) -> Result<()> {
    let routes = gateways.map(|gateway| format!("route replace default via {gateway}\n"));
    netns.run_with_input("ip", ["-batch", "-"], &routes.concat())?;
    Ok(())
}
