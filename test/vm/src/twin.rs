//! Orders from one guest to the other, over an ordinary TCP connection between
//! them, which xdptun must leave alone all the while.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use xdptun_lab::{Host, wait};

const PORT: u16 = 9000;

/// The other guest boots meanwhile, and verifiers take their time.
const LIMIT: Duration = Duration::from_secs(30);

/// An order of the leading guest to the other one.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// `xdptun attach` with these arguments.
    Attach(Vec<String>),
    /// End that, cleanly.
    Detach,
    /// WireGuard in place of the echo servers.
    Tunnel {
        /// Address with prefix length inside.
        address: String,
        /// MTU of its interface.
        mtu: u32,
        /// The input of `wg setconf`.
        setconf: String,
    },
    /// Remove WireGuard.
    NoTunnel,
    /// That was all.
    End,
}

/// One end of the connection.
#[derive(Debug)]
pub struct Twin(BufReader<TcpStream>);

impl Twin {
    /// Connects to the guest that obeys, as soon as it is there.
    pub fn lead(host: &Host, other: Ipv4Addr) -> Result<Self> {
        let connect = || TcpStream::connect_timeout(&(other, PORT).into(), LIMIT);
        let stream = wait::until_some(LIMIT, "the other guest", || {
            // The other guest cannot answer until it has its address.
            Ok(host.netns.enter(connect)?.ok())
        })?;
        Self::new(stream)
    }

    /// Waits for the guest that leads.
    pub fn follow(host: &Host) -> Result<Self> {
        let listener = host.netns.enter(|| TcpListener::bind((host.v4, PORT)))??;
        let (stream, _) = listener.accept()?;
        Self::new(stream)
    }

    fn new(stream: TcpStream) -> Result<Self> {
        stream.set_read_timeout(Some(wait::stretched(LIMIT)?))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Gives an order and goes on; [`Twin::done`] waits for it.
    pub fn order(&mut self, order: &Order) -> Result<()> {
        self.say(order)
    }

    /// Waits until the last order is carried out.
    pub fn done(&mut self) -> Result<()> {
        let answer: Result<(), String> = self.hear()?;
        answer.map_err(|error| anyhow!("the other guest: {error}"))
    }

    /// Carries out orders to the last one.
    pub fn obey(&mut self, mut carry_out: impl FnMut(&Order) -> Result<()>) -> Result<()> {
        loop {
            let order: Order = self.hear()?;
            let result = carry_out(&order);
            let answer: Result<(), String> = result
                .as_ref()
                .copied()
                .map_err(|error| format!("{error:#}"));
            self.say(&answer)?;
            result?;
            if matches!(order, Order::End) {
                return Ok(());
            }
        }
    }

    fn say(&mut self, what: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_string(what)?;
        line.push('\n');
        let stream = self.0.get_mut();
        stream
            .write_all(line.as_bytes())
            .context("cannot reach the other guest")
    }

    fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        let length = self.0.read_line(&mut line);
        let length = length.context("nothing from the other guest")?;
        ensure!(length > 0, "the other guest hung up");
        serde_json::from_str(&line).with_context(|| format!("the other guest said {line:?}"))
    }
}
