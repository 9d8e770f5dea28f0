//! xdptun inside another program: attaches to an interface, tells what becomes of
//! its flows, and at Ctrl-C what each of them carried. Then it detaches.

use std::env;
use std::pin::pin;

use anyhow::{Context as _, Result};
use tokio::signal::unix::{SignalKind, signal};
use xdptun::config::InterfaceConfig;
use xdptun::flow::FlowKey;
use xdptun::group::{Group, Handle, Incumbent, Order, Progress, Trace};
use xdptun::host::ports::carries;
use xdptun::observe::status::Status;
use xdptun::tunnel::daemon::{News, Observer};
use xdptun::tunnel::resolve::Names;
use xdptun::tunnel::{Plan, Tunnel};

struct Printer;

impl Observer for Printer {
    fn flow(&self, flow: &FlowKey, news: News) {
        println!("{} -> {}: {news:?}", flow.local(), flow.remote());
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let usage = "usage: embed INTERFACE PORT [PEER ...]";
    let interface = arguments.next().context(usage)?;
    let port = arguments.next().context(usage)?.parse()?;

    // What `xdptun attach` has options for; the rest has defaults.
    let mut config = InterfaceConfig::new(vec![port]);
    config.peers = arguments
        .map(|peer| peer.parse())
        .collect::<Result<_, _>>()?;
    // Peers may be host names.
    let mut names = Names::among(config.peers());
    names.look_up().await?;

    // A process that is killed leaves its programs attached: from here on Ctrl-C
    // must not kill it.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let plan = Plan::new(&config, &names, Trace::Off)?;
    let group =
        Group::<Tunnel>::attach(std::slice::from_ref(&interface), plan, Incumbent::Respect)?;
    let (handle, mut orders) = Handle::new();
    let mut group = pin!(group.run(&mut orders, &Printer, |progress| {
        match progress {
            Progress::Carrying { .. } => println!("ready: {}", carries(&interface, &[port])),
            Progress::Waiting(name) => println!("{name}: the interface is gone"),
            Progress::Loaded { .. } | Progress::GivenUp(..) => {}
        }
        Ok(())
    }));
    tokio::select! {
        ended = &mut group => return Ok(ended?),
        _ = interrupt.recv() => {}
    }

    let status = Status::read();
    // Closes the flows and takes everything away.
    handle.order(Order::Stop);
    group.await?;
    for flow in status?
        .of(&interface)?
        .interfaces
        .iter()
        .flat_map(|found| &found.flows)
    {
        println!(
            "{} -> {}: {} datagrams sent, {} received",
            flow.local, flow.remote, flow.tx_packets, flow.rx_packets
        );
    }
    Ok(())
}
