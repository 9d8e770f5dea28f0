//! What an operator configures: a file for many interfaces, or the arguments of
//! `xdptun attach` for one.

mod peer;
#[cfg(test)]
mod reference;
mod secrets;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::num::{NonZeroU32, ParseIntError};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, fs};

use anyhow::{Context as _, Result, anyhow, bail};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tracing::warn;

pub use peer::{Peer, PeerConfig, PeerError, network, peers_fit};
pub use secrets::Secrets;

use crate::daemon::{IDLE_TIMEOUT, KEEPALIVE};
use crate::datapath::{DEFAULT_MAX_FLOWS, IngressChoice, TcChoice};
use crate::ports::PortRange;

/// Where the file is if nobody says otherwise.
pub const DEFAULT_PATH: &str = "/etc/xdptun/config.toml";

/// What WireGuard's `PersistentKeepalive` is by custom, in seconds.
const WIREGUARD_KEEPALIVE: u64 = 25;

/// The sample that is installed at [`DEFAULT_PATH`].
pub const SAMPLE: &str = include_str!("../../package/config.toml");

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// How much to log; `trace` logs every packet and is slow.
    pub log_level: LogLevel,
    /// Where to serve metrics for Prometheus; nowhere if it is not said.
    #[cfg_attr(test, schemars(title = "`\"address:port\"`"))]
    pub metrics: Option<SocketAddr>,
    /// How often the host names of peers are looked up again.
    pub resolve_interval: Seconds<60>,
    /// The interfaces, by name.
    #[serde(rename = "interface")]
    pub interfaces: BTreeMap<String, InterfaceConfig>,
}

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table like [interface.eth0]"
)]
pub struct InterfaceConfig {
    /// UDP ports and ranges that are carried as TCP: datagrams whose local or remote
    /// port is one of them.
    #[serde(deserialize_with = "at_least_one_port")]
    pub ports: Vec<PortRange>,
    /// Only these peers; any address if there are none. UDP and TCP of others are left
    /// alone. Where a peer has a `secret` (or a list) of its own, that holds for it alone,
    /// in the place of the interface's.
    #[serde(default, deserialize_with = "not_too_many_peers")]
    pub peers: Vec<PeerConfig>,
    /// Which program restores inbound data.
    #[serde(default)]
    #[cfg_attr(test, schemars(extend("fixed" = true)))]
    pub ingress: IngressChoice,
    /// How the tc programs are attached.
    #[serde(default)]
    #[cfg_attr(test, schemars(extend("fixed" = true)))]
    pub tc: TcChoice,
    /// Silence after which a flow is probed, so that NATs and firewalls on the way
    /// remember it.
    #[serde(default)]
    pub keepalive: Seconds<KEEPALIVE>,
    /// Time without data after which a flow is closed.
    #[serde(default)]
    pub idle_timeout: Seconds<IDLE_TIMEOUT>,
    /// File with the secret that callers must know; any caller if there is none. Of a
    /// list, the first is proved to peers and any admits callers, so that one can be
    /// changed for another.
    #[serde(default)]
    pub secret: Option<Secrets>,
    /// How many flows the table holds, 256 bytes of kernel memory each.
    #[serde(default)]
    #[cfg_attr(test, schemars(extend("fixed" = true)))]
    pub max_flows: MaxFlows,
}

impl InterfaceConfig {
    /// These ports, and the default of everything else.
    #[must_use]
    pub fn new(ports: Vec<PortRange>) -> Self {
        Self {
            ports,
            peers: Vec::new(),
            ingress: IngressChoice::default(),
            tc: TcChoice::default(),
            keepalive: Seconds::default(),
            idle_timeout: Seconds::default(),
            secret: None,
            max_flows: MaxFlows::default(),
        }
    }

    /// The peers.
    pub fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().map(|one| &one.peer)
    }

    /// Warns of what works, and not as one may think.
    pub fn warn(&self, name: &str) {
        let idle = Duration::from(self.idle_timeout);
        if idle < Duration::from_secs(WIREGUARD_KEEPALIVE) {
            warn!(
                "{name}: a flow is closed after {} s without a datagram (`idle-timeout`), and \
                 WireGuard sends one each {WIREGUARD_KEEPALIVE} s if nothing else is to be sent: \
                 the flow would be closed and opened again and again",
                self.idle_timeout
            );
        }
    }
}

/// A time in whole seconds, at least one; `DEFAULT` if none is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(transparent)]
pub struct Seconds<const DEFAULT: u32>(NonZeroU32);

impl<const DEFAULT: u32> Default for Seconds<DEFAULT> {
    fn default() -> Self {
        const { assert!(DEFAULT != 0) };
        Self(NonZeroU32::MIN.saturating_add(DEFAULT - 1))
    }
}

impl<const DEFAULT: u32> From<Seconds<DEFAULT>> for Duration {
    fn from(seconds: Seconds<DEFAULT>) -> Self {
        Self::from_secs(seconds.0.get().into())
    }
}

impl<const DEFAULT: u32> FromStr for Seconds<DEFAULT> {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

impl<const DEFAULT: u32> fmt::Display for Seconds<DEFAULT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A capacity of the flow table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(try_from = "u32")]
pub struct MaxFlows(u32);

impl MaxFlows {
    /// More would take gigabytes of memory that the kernel cannot swap.
    const MOST: u32 = 1 << 24;

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Default for MaxFlows {
    fn default() -> Self {
        Self(DEFAULT_MAX_FLOWS)
    }
}

impl TryFrom<u32> for MaxFlows {
    type Error = String;

    fn try_from(flows: u32) -> Result<Self, String> {
        match flows {
            1..=Self::MOST => Ok(Self(flows)),
            _ => Err(format!("the table holds 1 to {} flows", Self::MOST)),
        }
    }
}

impl FromStr for MaxFlows {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let flows: u32 = text.parse().map_err(|error| format!("{error}"))?;
        flows.try_into()
    }
}

impl fmt::Display for MaxFlows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How much to log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the levels of `tracing`")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// Reads a list; says how one is written where there is none.
fn list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    file: D,
    like: &'static str,
) -> Result<Vec<T>, D::Error> {
    struct List<T>(&'static str, PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, values: A) -> Result<Vec<T>, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(values))
        }
    }

    file.deserialize_seq(List(like, PhantomData))
}

fn not_too_many_peers<'de, D: Deserializer<'de>>(file: D) -> Result<Vec<PeerConfig>, D::Error> {
    let peers: Vec<PeerConfig> = list(file, "a list like [\"203.0.113.7\"]")?;
    peers_fit(peers.len()).map_err(D::Error::custom)?;
    if let Some(peer) = peer::contradiction(&peers) {
        let error = format!("peer {peer} stands here twice, with different secrets");
        return Err(D::Error::custom(error));
    }
    Ok(peers)
}

/// Whether the kernel could have an interface of that name (`dev_valid_name`).
fn is_interface_name(name: &str) -> bool {
    let bad = |letter: char| letter == '/' || letter == ':' || letter.is_whitespace();
    (1..=15).contains(&name.len()) && name != "." && name != ".." && !name.contains(bad)
}

fn at_least_one_port<'de, D: Deserializer<'de>>(file: D) -> Result<Vec<PortRange>, D::Error> {
    let ports: Vec<PortRange> = list(file, "a list like [51820]")?;
    if ports.is_empty() {
        return Err(D::Error::custom(
            "no port: xdptun would carry nothing; leave the interface out instead",
        ));
    }
    Ok(ports)
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or says what xdptun does not understand: then with
    /// line, column and what would be right.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        Self::parse(&text).with_context(|| name.to_string())
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    ///
    /// As [`Config::read`].
    pub fn parse(text: &str) -> Result<Self> {
        // Its own text names line and column and shows the place.
        let config: Self =
            toml::from_str(text).map_err(|error| anyhow!("{}", error.to_string().trim_end()))?;
        for (name, interface) in &config.interfaces {
            if !is_interface_name(name) {
                bail!(
                    "`{name}` is no name of an interface: those have 1 to 15 bytes, no space, \
                     slash or colon; `ip link` lists them"
                );
            }
            let mut with_own = interface.peers.iter().filter(|one| one.secret.is_some());
            if interface.secret.is_none()
                && let Some(PeerConfig { peer, .. }) = with_own.next()
            {
                bail!(
                    "interface {name}: peer {peer} has a secret and the interface has none; give \
                     the interface one as well, for all other callers"
                );
            }
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> InterfaceConfig {
        let config = Config::parse(&format!("[interface.eth0]\n{text}")).unwrap();
        config.interfaces["eth0"].clone()
    }

    #[test]
    fn a_port_is_all_it_takes() {
        let interface = one("ports = [51820]");
        let expected = InterfaceConfig::new(vec!["51820".parse().unwrap()]);
        assert_eq!(interface, expected);
        assert_eq!(Duration::from(interface.keepalive).as_secs(), 25);
        assert_eq!(Duration::from(interface.idle_timeout).as_secs(), 600);
    }

    #[test]
    fn everything_can_be_said() {
        let text = r#"
            log-level = "debug"
            metrics = "[::1]:9469"
            resolve-interval = 5
            [interface."eth0.100"]
            ports = [443, "8000-8010"]
            peers = ["203.0.113.7", { peer = "2001:db8::/32", secret = "b" }, "gw.example.org"]
            ingress = "xdp-generic"
            tc = "clsact"
            keepalive = 10
            idle-timeout = 60
            secret = ["/etc/xdptun/secret", "a"]
            max-flows = 1000
        "#;
        let config = Config::parse(text).unwrap();
        assert_eq!(config.log_level, LogLevel::Debug);
        assert_eq!(config.resolve_interval.to_string(), "5");
        assert_eq!(config.metrics, "[::1]:9469".parse().ok());
        let interface = &config.interfaces["eth0.100"];
        let ports: Vec<String> = interface.ports.iter().map(ToString::to_string).collect();
        assert_eq!(ports, ["443", "8000-8010"]);
        let peers: Vec<String> = interface.peers().map(ToString::to_string).collect();
        assert_eq!(peers, ["203.0.113.7/32", "2001:db8::/32", "gw.example.org"]);
        assert_eq!(interface.ingress, IngressChoice::XdpGeneric);
        assert_eq!(interface.tc, TcChoice::Clsact);
        assert_eq!(interface.keepalive.to_string(), "10");
        assert_eq!(interface.idle_timeout.to_string(), "60");
        let files = |secret: &Option<Secrets>| {
            let files = secret.iter().flat_map(Secrets::files);
            files
                .map(|file| file.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(files(&interface.secret), ["/etc/xdptun/secret", "a"]);
        assert_eq!(files(&interface.peers[1].secret), ["b"]);
        assert_eq!(interface.max_flows.get(), 1000);
    }

    /// Every mistake is shown with its line and column, and what would be right.
    #[test]
    fn mistakes_are_shown_where_they_are() {
        for (line, column, hint) in [
            ("prots = [1]", 1, "expected one of `ports`, `peers`"),
            ("ports = []", 9, "no port"),
            ("ports = 8000", 9, "expected a list like [51820]"),
            ("ports = [0]", 9, "ports are 1 to 65535"),
            ("ports = [70000]", 9, "ports are 1 to 65535"),
            ("ports = [\"9-8\"]", 9, "write 8-9"),
            (
                "ports = [1]\npeers = [\"10.0.0.0/33\"]",
                10,
                "203.0.113.0/24",
            ),
            (
                "ports = [1]\ningress = \"magic\"",
                11,
                "expected one of `auto`, `xdp`",
            ),
            ("ports = [1]\nkeepalive = 0", 13, "nonzero"),
            ("ports = [1]\nsecret = 1", 10, "expected a file like"),
            ("ports = [1]\nsecret = []", 10, "no file with a secret"),
            (
                "ports = [1]\nsecret = [\"a\", \"b\", \"a\"]",
                10,
                "a: the same secret twice",
            ),
            (
                "ports = [1]\nsecret = [\"a\", \"b\", \"c\", \"d\", \"e\"]",
                10,
                "5 secrets are too many, 4 hold at once",
            ),
            ("ports = [1]\npeers = [7]", 10, "expected a peer like"),
            (
                "ports = [1]\npeers = [{ peer = \"10.0.0.1\", secrets = \"a\" }]",
                31,
                "expected `peer` or `secret`",
            ),
            (
                "ports = [1]\npeers = [\"10.0.0.1\", { peer = \"10.0.0.1\", secret = \"a\" }]",
                9,
                "peer 10.0.0.1/32 stands here twice",
            ),
            ("ports = [1]\nidle-timeout = \"1h\"", 16, "string \"1h\""),
            ("ports = [1]\nmax-flows = 0", 13, "1 to 16777216 flows"),
            ("keepalive = 5", 1, "missing field `ports`"),
            ("ports = [1", 11, "array"),
        ] {
            let text = format!("[interface.eth0]\n{line}");
            let error = format!("{:#}", Config::parse(&text).expect_err(line));
            let row = 1 + line.lines().count();
            // What is missing is missing from the table.
            let row = if hint.starts_with("missing") { 1 } else { row };
            let place = format!("line {row}, column {column}");
            assert!(error.contains(&place), "{place}: {error}");
            assert!(error.contains(hint), "{hint}: {error}");
        }
    }

    #[test]
    fn a_peers_secret_takes_one_of_the_interface() {
        let peers = "ports = [1]\npeers = [{ peer = \"10.0.0.1\", secret = [\"b\", \"c\"] }]\n";
        let interface = one(&format!("{peers}secret = \"a\""));
        let own = interface.peers[0].secret.as_ref().unwrap();
        assert_eq!(own.files().count(), 2);
        let error = Config::parse(&format!("[interface.eth0]\n{peers}")).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("peer 10.0.0.1/32 has a secret and the interface has none; give"),
            "{error}"
        );
    }

    #[test]
    fn what_no_interface_can_be_called_is_refused() {
        for name in ["", "a/b", "a b", "..", "sixteen-letters-"] {
            let text = format!("[interface.\"{name}\"]\nports = [1]\n");
            let error = Config::parse(&text).expect_err(name).to_string();
            assert!(error.contains(&format!("`{name}`")), "{error}");
        }
        let peers = "\"10.0.0.1\", ".repeat(1025);
        let text = format!("[interface.a]\nports = [1]\npeers = [{peers}]\n");
        let error = Config::parse(&text).unwrap_err().to_string();
        assert!(error.contains("1025 peers are too many"), "{error}");
    }

    /// What the sample shows as a default is one, and it shows all there is.
    #[test]
    fn the_sample_tells_the_truth() {
        assert_eq!(Config::parse(SAMPLE).unwrap(), Config::default());
        let enabled: String = SAMPLE
            .lines()
            .map(|line| match line.strip_prefix('#') {
                // "#name = value"; text has a space there.
                Some(option) if !option.starts_with(' ') => format!("{option}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        let config = Config::parse(&enabled).unwrap();
        assert_eq!(
            (config.log_level, config.resolve_interval),
            Default::default()
        );
        let interface = &config.interfaces["eth0"];
        assert!(!interface.peers.is_empty() && interface.secret.is_some());
        let InterfaceConfig { ports, .. } = interface.clone();
        let expected = InterfaceConfig {
            ports,
            peers: interface.peers.clone(),
            secret: interface.secret.clone(),
            ..one("ports = [1]")
        };
        assert_eq!(*interface, expected);
        for option in ["ingress", "tc", "keepalive", "idle-timeout", "max-flows"] {
            let shown = format!("\n#{option} = ");
            assert!(SAMPLE.contains(&shown), "{option}");
        }
    }
}
