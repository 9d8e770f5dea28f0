//! `xdptun attach`: attach to interfaces, stay, detach at the end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Error, Result};
use clap::Args;

use super::terminal::Terminal;
use super::toward::interface_to;
use crate::config::{
    Compat, Config, GroChoice, IngressChoice, InterfaceConfig, LogLevel, MaxFlows, Peer,
    PeerConfig, Seconds, Secrets, TcChoice, Veil,
};
use crate::config::{IDLE_TIMEOUT, KEEPALIVE};
use crate::host::ports::PortRange;
use crate::service::{self, Mode};

/// Disguise UDP as TCP on interfaces until Ctrl-C or SIGTERM.
///
/// It carries datagrams whose local or remote port is one of the given ports.
/// Run it on both hosts before the programs that use the port.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Interface that leads to the peer; may be repeated. The interfaces share their flows: a
    /// flow may come in by one and leave by another.
    #[arg(
        long,
        short,
        required_unless_present = "to",
        value_name = "NAME",
        value_delimiter = ','
    )]
    iface: Vec<String>,

    /// In place of `--iface`: the interface by which this host reaches the peer now, an address or a
    /// host name.
    #[arg(long, value_name = "PEER", conflicts_with = "iface")]
    to: Option<String>,

    /// UDP port, or range like 8000-8010; may be repeated.
    #[arg(
        long,
        short,
        required = true,
        value_name = "PORT[-PORT]",
        value_delimiter = ','
    )]
    port: Vec<PortRange>,

    /// Carry only traffic with this peer (address, CIDR or host name); may be repeated.
    /// Default: any address.
    #[arg(long, value_name = "PEER", value_delimiter = ',')]
    peer: Vec<Peer>,

    /// Which program restores inbound data.
    #[arg(long, value_enum, default_value = "auto")]
    ingress: IngressChoice,

    /// Whether restored datagrams pass GRO, which merges them for sockets with UDP_GRO. The GRO of
    /// the interface (`ethtool -K`) stays as it is.
    #[arg(long, value_enum, default_value = "auto")]
    gro: GroChoice,

    /// How the tc programs are attached.
    #[arg(long, value_enum, default_value = "auto")]
    tc: TcChoice,

    /// Silence after which a flow is probed: seconds, or a number with s, m, h or d.
    #[arg(long, value_name = "TIME", default_value_t)]
    keepalive: Seconds<KEEPALIVE>,

    /// Time without data after which a flow is closed: seconds, or a number with s, m, h or d.
    #[arg(long, value_name = "TIME", default_value_t)]
    idle_timeout: Seconds<IDLE_TIMEOUT>,

    /// Answer only callers that know the secret in this file, the same on both
    /// hosts; other TCP to the ports goes to this host's own sockets. May be repeated:
    /// this host proves to peers that it knows the first secret, and admits callers that
    /// know any of them.
    #[arg(long, value_name = "FILE", long_help = SECRET_HELP)]
    secret: Vec<PathBuf>,

    /// Hide which protocol payloads belong to: cover their first bytes, and pad short datagrams to a
    /// random length of BYTES at most (0 to 256; 0 pads none; 256 if not given). Both hosts need it,
    /// and the same `--secret`, given once, and kernels with BTF. docs/veil.md lists what it does not
    /// hide.
    #[arg(
        long,
        value_name = "BYTES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = Veil::WITHOUT_VALUE
    )]
    veil: Option<Veil>,

    /// What the peers run. Of a phantun server, `--port` names the TCP port.
    #[arg(long, value_enum, default_value = "xdptun")]
    compat: Compat,

    /// How many flows the table holds.
    #[arg(long, value_name = "N", default_value_t)]
    max_flows: MaxFlows,

    /// Serve metrics for Prometheus on this address, like 127.0.0.1:9469.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,

    /// Take over from the xdptun that is attached to these interfaces, without losing a
    /// datagram: to upgrade it, to change its ports and peers, or to add interfaces.
    #[arg(long)]
    take_over: bool,

    /// How much to log; `trace` logs every packet and is slow.
    #[arg(long, value_enum, default_value = "info")]
    log_level: LogLevel,
}

const SECRET_HELP: &str = "\
Answer only callers that know the secret in this file, the same on both hosts; \
other TCP to the ports goes to this host's own sockets.

So a web server can share port 443 with the tunnel, and where nothing listens, a \
scan finds nothing. The clocks of both hosts must agree within three minutes. \
It needs Linux 6.1. `wg genkey > FILE` makes a good secret. docs/security.md lists what \
the secret does not hide.

To replace a secret, repeat the option, up to four times: this host proves to peers that it \
knows the first secret, and admits callers that know any of them. docs/security.md has the \
three steps.";

const EXAMPLES: &str = "\
Examples:
  xdptun attach --iface eth0 --port 51820
  xdptun attach --to 203.0.113.7 --port 51820
  xdptun attach --iface eth0 --iface wwan0 --port 51820
  xdptun attach --iface eth0 --port 443 --secret /etc/xdptun/secret
  xdptun attach --iface eth0 --port 443 --secret new.key --secret old.key
  xdptun attach --iface eth0 --port 443 --secret /etc/xdptun/secret --veil
  xdptun attach --iface eth0 --port 443,8000-8010 --peer 203.0.113.7,2001:db8::7
  xdptun attach --iface eth0 --port 4567 --peer 203.0.113.7 --compat phantun
  xdptun attach --iface eth0 --port 8000 --ingress tc --log-level debug";

/// Runs the verb.
pub fn run(arguments: Arguments) -> Result<()> {
    let frontend = Rc::new(Terminal::new(arguments.log_level).with_way_out("; Ctrl-C detaches"));
    let mode = Mode {
        file: None,
        incumbent: super::incumbent(arguments.take_over),
        drains: false,
    };
    let config = arguments.try_into()?;
    super::block_on(async { Ok(service::run(config, mode, frontend).await?) })
}

impl TryFrom<Arguments> for Config {
    type Error = Error;

    fn try_from(arguments: Arguments) -> Result<Self> {
        let interfaces = match arguments.to {
            Some(peer) => vec![interface_to(&peer)?],
            None => arguments.iface,
        };
        let secret = match arguments.secret {
            files if files.is_empty() => None,
            files => Some(Secrets::try_from(files)?),
        };
        let interface = InterfaceConfig {
            ports: arguments.port,
            peers: arguments.peer.into_iter().map(PeerConfig::from).collect(),
            ingress: arguments.ingress,
            gro: arguments.gro,
            tc: arguments.tc,
            keepalive: arguments.keepalive,
            idle_timeout: arguments.idle_timeout,
            secret,
            veil: arguments.veil,
            compat: arguments.compat,
            max_flows: arguments.max_flows,
            forward: Vec::new(),
            nat: None,
            policy: Vec::new(),
        };
        Ok(Self {
            log_level: arguments.log_level,
            metrics: arguments.metrics,
            interfaces: interfaces
                .into_iter()
                .map(|name| (name, interface.clone()))
                .collect(),
            ..Self::default()
        })
    }
}
