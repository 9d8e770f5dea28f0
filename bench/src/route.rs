//! Ways for datagrams from one host to another.

use std::net::{SocketAddr, UdpSocket};
use std::thread;

use anyhow::{Context, Result, anyhow};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;
use nix::unistd::Pid;
use xdptun_lab::{Attached, Direct, Family, Host, Process, udp};

use crate::floor::Floor;
use crate::kernel::{Counting, Programs};

/// The owned port.
pub const PORT: u16 = 8000;

/// Room for bursts while the receiver does not run, in bytes.
const RECEIVE_BUFFER: usize = 16 << 20;

/// A network of its own with a way across it.
pub struct Route {
    /// Its name in the results.
    pub name: &'static str,
    /// The two hosts.
    pub net: Direct,
    /// Sender and receiver, where xdptun is.
    attached: Option<[Attached; 2]>,
    /// The same of the floor.
    floor: Option<[Floor; 2]>,
    /// Where programs take datagrams and give them back, if they do that on the
    /// hosts themselves.
    tunnel: Option<Tunnel>,
}

/// Programs that carry datagrams in a tunnel of their own.
pub struct Tunnel {
    /// Where the sender's program takes datagrams.
    pub entry: SocketAddr,
    /// Where the receiver's program delivers them.
    pub exit: SocketAddr,
    /// The programs; they end with it.
    pub programs: [Process; 2],
}

impl Route {
    /// Datagrams as they are.
    pub fn direct() -> Result<Self> {
        Self::direct_as("direct")
    }

    /// The same by another name.
    pub fn direct_as(name: &'static str) -> Result<Self> {
        Ok(Self {
            name,
            net: Direct::new()?,
            attached: None,
            floor: None,
            tunnel: None,
        })
    }

    /// Through programs that run on both hosts.
    pub fn tunnelled(name: &'static str, net: Direct, tunnel: Tunnel) -> Self {
        Self {
            name,
            net,
            attached: None,
            floor: None,
            tunnel: Some(tunnel),
        }
    }

    /// xdptun on both hosts, restoring by `ingress`.
    pub fn xdptun(name: &'static str, ingress: &str) -> Result<Self> {
        Self::xdptun_with(name, &["--ingress", ingress])
    }

    /// xdptun on both hosts, with options.
    pub fn xdptun_with(name: &'static str, options: &[&str]) -> Result<Self> {
        let net = Direct::new()?;
        let attached = attach(&net, options)?;
        Ok(Self {
            name,
            net,
            attached: Some(attached),
            floor: None,
            tunnel: None,
        })
    }

    /// The floor on both hosts, restoring by `ingress`.
    pub fn floor(name: &'static str, ingress: &str) -> Result<Self> {
        let net = Direct::new()?;
        let floor = [&net.a, &net.b].map(|host| Floor::attach(host, PORT, ingress));
        let [a, b] = floor;
        Ok(Self {
            name,
            net,
            attached: None,
            floor: Some([a?, b?]),
            tunnel: None,
        })
    }

    /// Adds the output of the tunnel's programs to an error.
    pub fn explain<T>(&self, result: Result<T>) -> Result<T> {
        match &self.tunnel {
            None => result.with_context(|| self.name),
            Some(Tunnel {
                programs: [a, b], ..
            }) => b.with_output(a.with_output(result)),
        }
    }

    /// The xdptun of the sender (0) or the receiver (1).
    pub fn process(&self, host: usize) -> Result<Pid> {
        let attached = self.attached.as_ref();
        let attached = attached.with_context(|| format!("{}: nothing attached", self.name))?;
        Ok(attached[host].process().pid())
    }

    /// The time that the programs of sender and receiver have spent so far.
    pub fn programs(&self) -> Result<[Programs; 2]> {
        if let Some([a, b]) = &self.floor {
            return Ok([a.programs()?, b.programs()?]);
        }
        let of = |host| Programs::of_process(self.process(host)?);
        Ok([of(0)?, of(1)?])
    }

    /// Nanoseconds of one run of the sender's egress and of the receiver's ingress
    /// program while something is sent, counting included.
    pub fn time_programs<T>(&self, send: impl FnOnce() -> Result<T>) -> Result<[f64; 2]> {
        let _counting = Counting::start()?;
        let [out_before, in_before] = self.programs()?;
        send()?;
        let [out_after, in_after] = self.programs()?;
        Ok([
            out_after.since(&out_before, "xdptun_egress")?.each()?,
            in_after.since(&in_before, "xdptun_ingress")?.each()?,
        ])
    }

    /// A socket that receives the datagrams.
    pub fn receiver(&self, family: Family) -> Result<UdpSocket> {
        let b = &self.net.b;
        let address = self.tunnel.as_ref().map(|tunnel| tunnel.exit);
        let address = address.unwrap_or_else(|| b.socket(family, PORT));
        let socket = udp::bind(&b.netns, address)?;
        setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER)
            .context("cannot enlarge the receive buffer")?;
        Ok(socket)
    }

    /// A new socket that sends to the receiver: a new flow.
    pub fn sender(&self, family: Family) -> Result<UdpSocket> {
        let Direct { a, b } = &self.net;
        let (from, to) = match &self.tunnel {
            Some(tunnel) => (SocketAddr::new(tunnel.entry.ip(), 0), tunnel.entry),
            None => (a.socket(family, 0), b.socket(family, PORT)),
        };
        let socket = udp::bind(&a.netns, from)?;
        socket
            .connect(to)
            .with_context(|| format!("{}: cannot reach {to}", self.name))?;
        Ok(socket)
    }
}

/// Attaches to both hosts at once, for the verifier takes its time.
fn attach(net: &Direct, options: &[&str]) -> Result<[Attached; 2]> {
    let port = PORT.to_string();
    let options = [&["--port", &port], options].concat();
    let on = |host: &Host| Attached::start(&host.netns, Host::DEV, &options);
    thread::scope(|scope| {
        let sender = scope.spawn(|| on(&net.a));
        let receiver = on(&net.b);
        let sender = sender.join().map_err(|_| anyhow!("attaching panicked"))?;
        Ok([sender?, receiver?])
    })
}
