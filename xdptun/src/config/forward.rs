//! The rules of `xdptun forward`: where packets are taken, where they go, and what source
//! the back end sees.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::str::FromStr;

use xdptun_common::wire::Protocol;

use crate::error::{Context as _, Error, Kind, Result, bail};
use crate::host::ports::{PortError, PortRange};

/// The first and the last port that a translated source gets, unless the rule says otherwise:
/// below the default of `net.ipv4.ip_local_port_range`, from which this host's own sockets
/// get theirs.
pub const SOURCE_PORTS: (u16, u16) = (1024, 32767);

/// The largest weight of a back end.
const MAX_WEIGHT: u16 = 256;

/// A rule: packets to an address and port go to a back end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Where packets are taken.
    pub listen: Listen,
    /// The back ends.
    pub to: Vec<To>,
    /// The source that they see.
    pub source: Source,
}

/// Where packets are taken: `[ADDRESS:]PORT[-PORT][/tcp|/udp]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address; `None` for any address of this host.
    pub address: Option<IpAddr>,
    /// The ports.
    pub ports: PortRange,
    /// The protocols.
    pub protocols: Protocols,
}

/// The protocols that a rule forwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocols {
    /// TCP and UDP.
    #[default]
    Both,
    /// TCP alone.
    Tcp,
    /// UDP alone.
    Udp,
}

/// A back end: `ADDRESS:PORT[-PORT][=WEIGHT]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct To {
    /// The address.
    pub address: IpAddr,
    /// The ports, as many as the rule listens to.
    pub ports: PortRange,
    /// Its share of the clients beside other back ends: 1 to 256.
    pub weight: u16,
}

/// The source that a back end sees: `keep`, `masquerade` or `ADDRESS[:PORT-PORT]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The client; the way back must lead through this host.
    #[default]
    Keep,
    /// The address that this host has on the way to the back end.
    Masquerade,
    /// An address of this host.
    Address {
        /// The address.
        address: IpAddr,
        /// The ports that it lends.
        ports: PortRange,
    },
}

/// Why a rule was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ForwardError {
    /// What stands for an address is none.
    #[error("`{text}`: `{address}` is no address; host names are not looked up here, write {like}")]
    NotAnAddress {
        /// The argument.
        text: String,
        /// The part in question.
        address: String,
        /// What would be right.
        like: &'static str,
    },
    /// An IPv6 address before a port has no brackets.
    #[error("`{text}`: an IPv6 address before a port stands in brackets; write {like}")]
    Brackets {
        /// The argument.
        text: String,
        /// What would be right.
        like: String,
    },
    /// An address has a zone.
    #[error(
        "`{text}`: `%` begins a zone, and an address with a zone holds on one link only; write \
         a global or unique local address"
    )]
    Zone {
        /// The argument.
        text: String,
    },
    /// Packets cannot be forwarded at, to or from the address.
    #[error("`{text}`: {address} {why}")]
    Unusable {
        /// The argument.
        text: String,
        /// The address.
        address: IpAddr,
        /// The cause and the next step.
        why: String,
    },
    /// There is an address and no port.
    #[error("`{text}` has no port; write {like}")]
    NoPort {
        /// The argument.
        text: String,
        /// What would be right.
        like: String,
    },
    /// A back end has a port and no address.
    #[error("`{text}` has no address; write 10.0.0.5:{text} or [fd00::5]:{text}")]
    NoAddress {
        /// The argument.
        text: String,
    },
    /// What stands for a port is none.
    #[error("`{text}`: {cause}")]
    Port {
        /// The argument.
        text: String,
        /// What is wrong with it.
        cause: PortError,
    },
    /// What stands for a protocol is none.
    #[error("`{text}`: `/{protocol}` is no protocol; write /tcp or /udp, or neither for both")]
    NotAProtocol {
        /// The argument.
        text: String,
        /// The part in question.
        protocol: String,
    },
    /// What stands for a weight is none.
    #[error("`{text}`: `{weight}` is no weight; weights are 1 to {MAX_WEIGHT}, as in =3")]
    NotAWeight {
        /// The argument.
        text: String,
        /// The part in question.
        weight: String,
    },
    /// A rule has no back end.
    #[error("`{listen}` leads nowhere; add a back end, as --to {like}")]
    NoBackEnd {
        /// Where the rule listens.
        listen: Listen,
        /// What would be right.
        like: String,
    },
    /// A back end has more ports or fewer than the rule listens to.
    #[error(
        "`{listen}` has {} and `{to}` has {}, and each port goes to one of its own; write {like}",
        many(*.listen_ports),
        many(*.to_ports)
    )]
    PortCount {
        /// Where the rule listens.
        listen: Listen,
        /// How many ports that is.
        listen_ports: u32,
        /// The back end.
        to: To,
        /// How many ports it has.
        to_ports: u32,
        /// What would be right.
        like: String,
    },
    /// A rule names addresses of both families.
    #[error(
        "`{listen}`: {v4} is IPv4 and {v6} is IPv6, and a rule forwards within one family; \
         write a rule for each, with a listen address of that family"
    )]
    Families {
        /// Where the rule listens.
        listen: Listen,
        /// The first address of IPv4.
        v4: Ipv4Addr,
        /// The first address of IPv6.
        v6: Ipv6Addr,
    },
    /// A back end is where the rule listens.
    #[error("`{listen}` leads to itself by `{to}`; name another address or port")]
    Loop {
        /// Where the rule listens.
        listen: Listen,
        /// The back end.
        to: To,
    },
    /// Two rules take the same packets.
    #[error("`{one}` and `{other}` both listen to {} port {port}; {hint}", name(*.protocol))]
    Clash {
        /// Where the earlier rule listens.
        one: Listen,
        /// Where the later rule listens.
        other: Listen,
        /// The first protocol that both have.
        protocol: Protocol,
        /// The first port that both have.
        port: u16,
        /// The next step.
        hint: &'static str,
    },
}

impl From<ForwardError> for Error {
    fn from(cause: ForwardError) -> Self {
        Self::caused_by(Kind::Invalid, cause)
    }
}

impl Protocols {
    /// The protocols, one by one.
    #[must_use]
    pub const fn list(self) -> &'static [Protocol] {
        match self {
            Self::Both => &[Protocol::TCP, Protocol::UDP],
            Self::Tcp => &[Protocol::TCP],
            Self::Udp => &[Protocol::UDP],
        }
    }
}

impl FromStr for Listen {
    type Err = ForwardError;

    fn from_str(text: &str) -> Result<Self, ForwardError> {
        let (place, protocols) = match text.split_once('/') {
            None => (text, Protocols::Both),
            Some((place, "tcp")) => (place, Protocols::Tcp),
            Some((place, "udp")) => (place, Protocols::Udp),
            Some((_, protocol)) => {
                return Err(ForwardError::NotAProtocol {
                    text: text.to_owned(),
                    protocol: protocol.to_owned(),
                });
            }
        };
        let (address, ports) = split(Role::Listen, text, place)?;
        let ports = ports.ok_or_else(|| no_port(text, address))?;
        Ok(Self {
            address,
            ports: port_range(text, ports)?,
            protocols,
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => f.write_str(&at(address, self.ports))?,
            None => self.ports.fmt(f)?,
        }
        f.write_str(match self.protocols {
            Protocols::Both => "",
            Protocols::Tcp => "/tcp",
            Protocols::Udp => "/udp",
        })
    }
}

impl FromStr for To {
    type Err = ForwardError;

    fn from_str(text: &str) -> Result<Self, ForwardError> {
        let (place, weight) = match text.split_once('=') {
            None => (text, 1),
            Some((place, weight)) => match weight.parse() {
                Ok(number @ 1..=MAX_WEIGHT) => (place, number),
                _ => {
                    return Err(ForwardError::NotAWeight {
                        text: text.to_owned(),
                        weight: weight.to_owned(),
                    });
                }
            },
        };
        match split(Role::To, text, place)? {
            (Some(address), Some(ports)) => Ok(Self {
                address,
                ports: port_range(text, ports)?,
                weight,
            }),
            (None, Some(ports)) if ports.parse::<PortRange>().is_ok() => {
                Err(ForwardError::NoAddress {
                    text: text.to_owned(),
                })
            }
            (Some(address), None) => Err(no_port(text, Some(address))),
            (None, _) => Err(not_an_address(Role::To, text, place)),
        }
    }
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&at(self.address, self.ports))?;
        match self.weight {
            1 => Ok(()),
            weight => write!(f, "={weight}"),
        }
    }
}

impl Source {
    /// The first and the last port that the source can get; `None` if it stays.
    #[must_use]
    pub const fn ports(&self) -> Option<(u16, u16)> {
        match self {
            Self::Keep => None,
            Self::Masquerade => Some(SOURCE_PORTS),
            Self::Address { ports, .. } => Some(ports.bounds()),
        }
    }

    /// The address, if the rule names one.
    const fn address(&self) -> Option<IpAddr> {
        match *self {
            Self::Address { address, .. } => Some(address),
            Self::Keep | Self::Masquerade => None,
        }
    }
}

impl FromStr for Source {
    type Err = ForwardError;

    fn from_str(text: &str) -> Result<Self, ForwardError> {
        match text {
            "keep" => return Ok(Self::Keep),
            "masquerade" => return Ok(Self::Masquerade),
            _ => {}
        }
        let (first, last) = SOURCE_PORTS;
        match split(Role::Source, text, text)? {
            (Some(address), ports) => {
                let ports = match ports {
                    Some(ports) => port_range(text, ports)?,
                    None => port_range(text, &format!("{first}-{last}"))?,
                };
                Ok(Self::Address { address, ports })
            }
            (None, _) => Err(not_an_address(Role::Source, text, text)),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Keep => f.write_str("keep"),
            Self::Masquerade => f.write_str("masquerade"),
            Self::Address { address, ports } if ports.bounds() == SOURCE_PORTS => address.fmt(f),
            Self::Address { address, ports } => f.write_str(&at(address, ports)),
        }
    }
}

impl Forward {
    /// Checks that the parts of the rule fit each other.
    ///
    /// # Errors
    ///
    /// If there is no back end, one has another number of ports than the rule listens to,
    /// the addresses are of two families, or the rule leads to itself.
    pub fn check(&self) -> Result<(), ForwardError> {
        let listen = self.listen;
        if self.to.is_empty() {
            let address = match listen.address.or(self.source.address()) {
                Some(IpAddr::V6(_)) => IpAddr::V6(EXAMPLE_V6),
                _ => IpAddr::V4(EXAMPLE_V4),
            };
            let like = at(address, listen.ports);
            return Err(ForwardError::NoBackEnd { listen, like });
        }
        self.check_families()?;
        for &to in &self.to {
            let (listen_ports, to_ports) = (count(listen.ports), count(to.ports));
            if listen_ports != to_ports {
                return Err(ForwardError::PortCount {
                    listen,
                    listen_ports,
                    to,
                    to_ports,
                    like: with_count(to, listen_ports),
                });
            }
            if listen.address == Some(to.address) && listen.ports == to.ports {
                return Err(ForwardError::Loop { listen, to });
            }
        }
        Ok(())
    }

    fn check_families(&self) -> Result<(), ForwardError> {
        let back_ends = self.to.iter().map(|to| to.address);
        let ends = self.listen.address.into_iter().chain(back_ends);
        let (mut first_v4, mut first_v6) = (None, None);
        for address in ends.chain(self.source.address()) {
            match address {
                IpAddr::V4(v4) => first_v4 = first_v4.or(Some(v4)),
                IpAddr::V6(v6) => first_v6 = first_v6.or(Some(v6)),
            }
        }
        match (first_v4, first_v6) {
            (Some(v4), Some(v6)) => Err(ForwardError::Families {
                listen: self.listen,
                v4,
                v6,
            }),
            _ => Ok(()),
        }
    }

    /// The listen address; that of no host, of the family of the back ends, if it is any of this
    /// host's.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        let is_v6 = self.to.first().is_some_and(|to| to.address.is_ipv6());
        self.listen.address.unwrap_or(match is_v6 {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => Ipv4Addr::UNSPECIFIED.into(),
        })
    }
}

/// Checks each rule, and that no two take the same packets. A rule for one address goes
/// before one for any address, so those do not clash. One for any address takes packets of the
/// family of its back ends.
///
/// # Errors
///
/// Names the rules that do not fit.
pub fn check_all(rules: &[Forward]) -> Result<(), ForwardError> {
    for rule in rules {
        rule.check()?;
    }
    for protocol in Protocols::Both.list() {
        // Without an address a rule takes packets of the family of its back ends.
        let mut places: Vec<(IpAddr, (u16, u16), usize)> = rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| rule.listen.protocols.list().contains(protocol))
            .map(|(index, rule)| (rule.address(), rule.listen.ports.bounds(), index))
            .collect();
        places.sort_unstable();
        for pair in places.windows(2) {
            let &[(address, (_, last), one), (next_address, (port, _), other)] = pair else {
                continue;
            };
            // Without a clash so far, none of those before reaches further than `last`.
            if address == next_address && port <= last {
                let (one, other) = (&rules[one.min(other)], &rules[one.max(other)]);
                let hint = match address.is_unspecified() {
                    true => "leave one out, or name the address that it listens to",
                    false => "leave one out, or give it another port",
                };
                return Err(ForwardError::Clash {
                    one: one.listen,
                    other: other.listen,
                    protocol: *protocol,
                    port,
                    hint,
                });
            }
        }
    }
    Ok(())
}

/// Reads a table file: a line of comment, then lines `port=address|port`.
///
/// # Errors
///
/// If it cannot be read ([`Kind::Io`] or [`Kind::Permission`]), or has lines that do not say
/// what to forward ([`Kind::Invalid`]), each with line, column and what would be right.
pub fn read_table(path: &Path) -> Result<Vec<Forward>> {
    let name = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    parse_table(&text).with_context(|| name.to_string())
}

/// Reads the text of a table file.
///
/// # Errors
///
/// [`Kind::Invalid`], as of [`read_table`].
pub fn parse_table(text: &str) -> Result<Vec<Forward>> {
    let mut rules = Vec::new();
    let mut mistakes = Vec::new();
    // The line of each port that is forwarded.
    let mut lines = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let is_comment = number == 1;
        if line.trim().is_empty() {
            continue;
        }
        let entry = entry(line, |at, port| match lines.get(&port) {
            Some(earlier) => Err(Mistake::new(
                at,
                format!("port {port} stands in line {earlier} as well; leave one out"),
            )),
            None if is_comment => Ok(()),
            None => {
                lines.insert(port, number);
                Ok(())
            }
        });
        match entry {
            Ok(_) if is_comment => {
                let why = "the first line is a comment and forwards nothing; write a comment \
                           above this one";
                mistakes.push(Mistake::new(0, why).show(number, line));
            }
            Err(_) if is_comment => {}
            Ok(rule) => rules.push(rule),
            Err(mistake) => mistakes.push(mistake.show(number, line)),
        }
    }
    if !mistakes.is_empty() {
        bail!(Invalid, "{}", mistakes.join("\n"));
    }
    if rules.is_empty() {
        bail!(
            Invalid,
            "no line forwards a port; the first is a comment, {LINES}"
        );
    }
    Ok(rules)
}

/// How the lines of a table are written.
const LINES: &str = "lines are written port=address|port, as 7000=192.168.0.18|7000";

/// What is wrong with a line, and at which of its bytes.
struct Mistake {
    at: usize,
    why: String,
}

impl Mistake {
    fn new(at: usize, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { at, why }
    }

    /// As the parser of `config.toml` shows its own.
    fn show(&self, number: u32, line: &str) -> String {
        let before = line.chars().count() - line[self.at..].chars().count();
        let number = number.to_string();
        let margin = " ".repeat(number.len());
        // One place for each letter, so that the mark stands below the right one.
        let shown = line.trim_end().replace(char::is_control, " ");
        format!(
            "line {number}, column {column}: {why}\n\
             {margin} |\n{number} | {shown}\n{margin} | {before}^",
            column = before + 1,
            why = self.why,
            // A width of `format!` ends at 65535.
            before = " ".repeat(before),
        )
    }
}

/// Reads a line. `new` takes the byte of the port that is listened to and the port, and
/// says whether it may stand there.
fn entry(
    line: &str,
    new: impl FnOnce(usize, u16) -> Result<(), Mistake>,
) -> Result<Forward, Mistake> {
    let end = line.trim_end().len();
    let start = line.len() - line.trim_start().len();
    if line[start..].starts_with('#') {
        let why = format!("only the first line is a comment; {LINES}");
        return Err(Mistake::new(start, why));
    }
    let Some(equals) = line.find('=') else {
        let digits = line[start..end].find(|letter: char| !letter.is_ascii_digit());
        let at = digits.map_or(end, |digits| start + digits);
        return Err(Mistake::new(at, format!("expected `=`; {LINES}")));
    };
    let (at, text) = part(line, 0, equals);
    let (port, ports) = single_port(text).map_err(|why| Mistake::new(at, why))?;
    new(at, port)?;
    let Some(bar) = line[equals..].find('|').map(|bar| equals + bar) else {
        return Err(Mistake::new(end, format!("expected `|`; {LINES}")));
    };
    let (at, text) = part(line, equals + 1, bar);
    let address = table_address(text).map_err(|why| Mistake::new(at, why))?;
    let (at, text) = part(line, bar + 1, end);
    let (_, to_ports) = single_port(text).map_err(|why| Mistake::new(at, why))?;
    Ok(Forward {
        listen: Listen {
            address: None,
            ports,
            protocols: Protocols::Both,
        },
        to: vec![To {
            address,
            ports: to_ports,
            weight: 1,
        }],
        source: Source::Keep,
    })
}

/// A part of a line without the spaces around it, and the byte where it begins.
fn part(line: &str, from: usize, to: usize) -> (usize, &str) {
    let text = &line[from..to];
    let text = text.trim_start();
    (to - text.len(), text.trim_end())
}

fn single_port(text: &str) -> Result<(u16, PortRange), String> {
    let ports: PortRange = text
        .parse()
        .map_err(|_| format!("`{text}` is not a port; ports are 1 to 65535, {LINES}"))?;
    match ports.bounds() {
        (first, last) if first == last => Ok((first, ports)),
        _ => Err(format!(
            "`{text}` is more than one port; write a line for each, or --listen and --to"
        )),
    }
}

fn table_address(text: &str) -> Result<IpAddr, String> {
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    if text.contains('%') {
        return Err(ForwardError::Zone { text: text.into() }.to_string());
    }
    let address = match bare {
        Some(bare) => bare.parse().map(IpAddr::V6).ok(),
        None => text.parse().ok(),
    };
    let address: IpAddr = address.ok_or_else(|| {
        format!("`{text}` is no address; host names are not looked up here, {LINES}")
    })?;
    match unusable(Role::To, address) {
        Some(why) => Err(format!("{address} {why}")),
        None => Ok(address),
    }
}

/// What an address is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Listen,
    To,
    Source,
}

impl Role {
    /// How it is written.
    const fn like(self) -> &'static str {
        match self {
            Self::Listen => "7000, 203.0.113.7:7000 or [2001:db8::1]:7000",
            Self::To => "10.0.0.5:7000 or [fd00::5]:7000",
            Self::Source => {
                "keep, masquerade, 203.0.113.7, 203.0.113.7:20000-29999 or \
                 [2001:db8::1]:20000-29999"
            }
        }
    }
}

const EXAMPLE_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
const EXAMPLE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5);

/// Splits `[ADDRESS:]PORTS` or `ADDRESS`; `text` is the argument that it is of.
fn split<'a>(
    role: Role,
    text: &str,
    place: &'a str,
) -> Result<(Option<IpAddr>, Option<&'a str>), ForwardError> {
    if place.contains('%') {
        return Err(ForwardError::Zone {
            text: text.to_owned(),
        });
    }
    let (address, ports) = if let Some(rest) = place.strip_prefix('[') {
        let bad = || not_an_address(role, text, place);
        let (address, rest) = rest.split_once(']').ok_or_else(bad)?;
        let address: Ipv6Addr = address
            .parse()
            .map_err(|_| not_an_address(role, text, &format!("[{address}]")))?;
        match rest.strip_prefix(':') {
            None if !rest.is_empty() => return Err(bad()),
            ports => (IpAddr::V6(address), ports),
        }
    } else if let Ok(address) = place.parse() {
        (address, None)
    } else if let Some((address, ports)) = place.rsplit_once(':') {
        match address.parse() {
            Ok(IpAddr::V4(address)) => (IpAddr::V4(address), Some(ports)),
            Ok(IpAddr::V6(address)) => {
                return Err(ForwardError::Brackets {
                    text: text.to_owned(),
                    like: at(IpAddr::V6(address), ports),
                });
            }
            Err(_) => return Err(not_an_address(role, text, address)),
        }
    } else {
        return Ok((None, Some(place)));
    };
    match unusable(role, address) {
        None => Ok((Some(address), ports)),
        Some(why) => Err(ForwardError::Unusable {
            text: text.to_owned(),
            address,
            why,
        }),
    }
}

/// Why packets cannot be forwarded with an address, and what to do, if they cannot.
fn unusable(role: Role, address: IpAddr) -> Option<String> {
    let mapped = match address {
        IpAddr::V6(address) => address.to_ipv4_mapped(),
        IpAddr::V4(_) => None,
    };
    if let Some(v4) = mapped {
        return Some(format!("is an IPv4 address; write {v4}"));
    }
    let why = if address.is_unspecified() {
        match role {
            Role::Listen => "stands for any address; leave it out, a port alone means the same",
            Role::To => "is no address of a host; name the back end's",
            Role::Source => "is no address of a host; name one of this host's, or `masquerade`",
        }
    } else if address.is_loopback() {
        match (role, address) {
            (Role::Source, _) => {
                "is a loopback address, and packets from those do not leave this host; name \
                 another of this host's, or `masquerade`"
            }
            (_, IpAddr::V4(_)) => {
                "is a loopback address, and packets that come in by an interface are not routed \
                 to those (unless `net.ipv4.route_localnet` is set, which opens them to the \
                 network); let the service listen on an address of an interface, and name that"
            }
            (_, IpAddr::V6(_)) => {
                "is the loopback address, and packets that come in by an interface are not \
                 routed to it (IPv6 has no `net.ipv4.route_localnet`); let the service listen \
                 on an address of an interface, and name that"
            }
        }
    } else if address.is_multicast() {
        "is a multicast group; name the address of one host"
    } else if address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        "is a broadcast address; name the address of one host"
    } else if matches!(address, IpAddr::V6(address) if address.is_unicast_link_local()) {
        "is a link-local address, which is not routed; name a global or unique local one"
    } else {
        return None;
    };
    Some(why.to_owned())
}

fn not_an_address(role: Role, text: &str, address: &str) -> ForwardError {
    ForwardError::NotAnAddress {
        text: text.to_owned(),
        address: address.to_owned(),
        like: role.like(),
    }
}

fn no_port(text: &str, address: Option<IpAddr>) -> ForwardError {
    ForwardError::NoPort {
        text: text.to_owned(),
        like: at(address.unwrap_or(EXAMPLE_V4.into()), 7000),
    }
}

fn port_range(text: &str, ports: &str) -> Result<PortRange, ForwardError> {
    ports.parse().map_err(|cause| ForwardError::Port {
        text: text.to_owned(),
        cause,
    })
}

/// An address with ports.
fn at(address: IpAddr, ports: impl fmt::Display) -> String {
    match address {
        IpAddr::V4(address) => format!("{address}:{ports}"),
        IpAddr::V6(address) => format!("[{address}]:{ports}"),
    }
}

/// How many ports there are.
fn count(ports: PortRange) -> u32 {
    let (first, last) = ports.bounds();
    u32::from(last - first) + 1
}

/// The back end with so many ports, from the same first port if it has room for them.
fn with_count(to: To, ports: u32) -> String {
    let (first, _) = to.ports.bounds();
    let first = u32::from(first).min(0x1_0000 - ports);
    let ports = match first + ports - 1 {
        last if last == first => first.to_string(),
        last => format!("{first}-{last}"),
    };
    match to.weight {
        1 => at(to.address, ports),
        weight => at(to.address, format_args!("{ports}={weight}")),
    }
}

fn many(ports: u32) -> String {
    match ports {
        1 => "1 port".to_owned(),
        ports => format!("{ports} ports"),
    }
}

const fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::TCP => "TCP",
        _ => "UDP",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(listen: &str, to: &[&str], source: &str) -> Forward {
        Forward {
            listen: listen.parse().unwrap(),
            to: to.iter().map(|to| to.parse().unwrap()).collect(),
            source: source.parse().unwrap(),
        }
    }

    /// Parses each text, which has to fail with a message that holds the text and the hint.
    fn refused<T: FromStr<Err = ForwardError> + fmt::Debug>(texts: &[(&str, &str)]) {
        for (text, hint) in texts {
            let error = text.parse::<T>().expect_err(text).to_string();
            assert!(error.starts_with(&format!("`{text}`")), "{text}: {error}");
            assert!(error.contains(hint), "{text}: {hint}: {error}");
        }
    }

    #[test]
    fn what_is_accepted_is_shown_again() {
        for text in [
            "7000",
            "7000/tcp",
            "8000-8009",
            "203.0.113.7:443/udp",
            "203.0.113.7:1-65535",
            "[2001:db8::1]:8000-8009/tcp",
            "[2001:db8::1]:53",
        ] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        for text in [
            "10.0.0.5:51820",
            "[fd00::5]:80=3",
            "10.0.0.1:9000-9009",
            "10.0.0.1:9000-9009=256",
        ] {
            assert_eq!(text.parse::<To>().unwrap().to_string(), text);
        }
        for text in [
            "keep",
            "masquerade",
            "203.0.113.7",
            "2001:db8::1",
            "203.0.113.7:20000-29999",
            "[2001:db8::1]:20000-29999",
        ] {
            assert_eq!(text.parse::<Source>().unwrap().to_string(), text);
        }
        for (text, shown) in [
            ("10.0.0.5:80=1", "10.0.0.5:80"),
            ("10.0.0.5:80-80=02", "10.0.0.5:80=2"),
        ] {
            assert_eq!(text.parse::<To>().unwrap().to_string(), shown);
        }
        for (text, shown) in [
            ("203.0.113.7:1024-32767", "203.0.113.7"),
            ("[2001:db8::1]", "2001:db8::1"),
        ] {
            assert_eq!(text.parse::<Source>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn the_parts_are_told_apart() {
        let listen: Listen = "[2001:db8::1]:8000-8009/tcp".parse().unwrap();
        assert_eq!(listen.address, "2001:db8::1".parse().ok());
        assert_eq!(listen.ports.bounds(), (8000, 8009));
        assert_eq!(listen.protocols.list(), [Protocol::TCP]);
        let listen: Listen = "7000".parse().unwrap();
        assert_eq!(listen.address, None);
        assert_eq!(listen.protocols.list(), [Protocol::TCP, Protocol::UDP]);
        let listen: Listen = "7000/udp".parse().unwrap();
        assert_eq!(listen.protocols.list(), [Protocol::UDP]);
        let to: To = "10.0.0.1:9000-9009=7".parse().unwrap();
        assert_eq!((to.ports.bounds(), to.weight), ((9000, 9009), 7));
        let ports = |text: &str| text.parse::<Source>().unwrap().ports();
        assert_eq!(Source::default(), Source::Keep);
        assert_eq!(ports("keep"), None);
        assert_eq!(ports("masquerade"), Some(SOURCE_PORTS));
        assert_eq!(ports("203.0.113.7"), Some(SOURCE_PORTS));
        assert_eq!(ports("[2001:db8::1]:5-6"), Some((5, 6)));
    }

    #[test]
    fn what_is_no_listen_address_is_refused() {
        refused::<Listen>(&[
            ("", "`` is not a port; ports are 1 to 65535"),
            ("0", "`0` is not a port"),
            ("65536", "`65536` is not a port"),
            ("http", "`http` is not a port"),
            ("9-8", "write 8-9"),
            ("203.0.113.7:", "`` is not a port"),
            ("203.0.113.7:9-8", "write 8-9"),
            ("203.0.113.7", "has no port; write 203.0.113.7:7000"),
            ("2001:db8::1", "has no port; write [2001:db8::1]:7000"),
            ("[2001:db8::1]", "has no port; write [2001:db8::1]:7000"),
            ("2001:db8:0:0:0:0:0:1:80", "write [2001:db8::1]:80"),
            (
                ":7000",
                "`` is no address; host names are not looked up here, write 7000, ",
            ),
            ("*:7000", "`*` is no address"),
            ("a.example:7000", "`a.example` is no address"),
            ("[203.0.113.7]:80", "`[203.0.113.7]` is no address"),
            ("[2001:db8::1:80", "`[2001:db8::1:80` is no address"),
            ("[2001:db8::1]80", "`[2001:db8::1]80` is no address"),
            ("[fe80::1%eth0]:80", "`%` begins a zone"),
            ("7000/sctp", "`/sctp` is no protocol; write /tcp or /udp"),
            ("7000/tcp/udp", "`/tcp/udp` is no protocol"),
            ("7000/", "`/` is no protocol"),
            ("0.0.0.0:80", "0.0.0.0 stands for any address; leave it out"),
            ("[::]:80", ":: stands for any address; leave it out"),
            ("127.0.0.1:80", "`net.ipv4.route_localnet`"),
            ("[::1]:80", "not routed to it"),
            ("224.0.0.1:80", "multicast group"),
            ("[ff02::1]:80", "multicast group"),
            ("255.255.255.255:80", "broadcast"),
            ("[fe80::1]:80", "link-local"),
            ("[::ffff:203.0.113.7]:80", "write 203.0.113.7"),
        ]);
    }

    #[test]
    fn what_is_no_back_end_is_refused() {
        refused::<To>(&[
            ("", "`` is no address"),
            (
                "7000",
                "has no address; write 10.0.0.5:7000 or [fd00::5]:7000",
            ),
            ("7000-7009", "has no address; write 10.0.0.5:7000-7009"),
            ("a.example", "`a.example` is no address"),
            (
                "a.example:80",
                "`a.example` is no address; host names are not looked up here",
            ),
            ("10.0.0.5", "has no port; write 10.0.0.5:7000"),
            ("fd00::5:80", "has no port; write [fd00::5:80]:7000"),
            ("fd00::5:80-89", "stands in brackets; write [fd00::5]:80-89"),
            ("10.0.0.5:0", "`0` is not a port"),
            ("10.0.0.5:80/tcp", "`80/tcp` is not a port"),
            ("10.0.0.5:80=0", "`0` is no weight; weights are 1 to 256"),
            ("10.0.0.5:80=257", "`257` is no weight"),
            ("10.0.0.5:80=", "`` is no weight"),
            ("10.0.0.5:80=1=2", "`1=2` is no weight"),
            ("127.0.0.1:80", "127.0.0.1 is a loopback address"),
            ("127.255.0.1:80", "`net.ipv4.route_localnet`"),
            ("[::1]:80", "::1 is the loopback address"),
            ("0.0.0.0:80", "0.0.0.0 is no address of a host"),
            ("[::]:80", ":: is no address of a host"),
            ("239.1.2.3:80", "239.1.2.3 is a multicast group"),
            ("[ff05::1]:80", "ff05::1 is a multicast group"),
            (
                "255.255.255.255:80",
                "255.255.255.255 is a broadcast address",
            ),
            ("[fe80::5%eth1]:80", "zone"),
            ("[fe80::5]:80", "fe80::5 is a link-local address"),
            ("[::ffff:10.0.0.5]:80", "is an IPv4 address; write 10.0.0.5"),
        ]);
    }

    #[test]
    fn what_is_no_source_is_refused() {
        refused::<Source>(&[
            ("", "`` is no address"),
            ("Keep", "write keep, masquerade, 203.0.113.7"),
            ("20000-29999", "`20000-29999` is no address"),
            ("eth0:1-2", "`eth0` is no address"),
            ("203.0.113.7:x", "`x` is not a port"),
            ("203.0.113.7:9-8", "write 8-9"),
            (
                "2001:db8::1:1-2",
                "stands in brackets; write [2001:db8::1]:1-2",
            ),
            ("2001:db8::1%eth0", "zone"),
            ("0.0.0.0", "or `masquerade`"),
            ("127.0.0.1", "do not leave this host"),
            ("224.0.0.1", "multicast group"),
        ]);
    }

    #[test]
    fn rules_that_fit() {
        let rules = [
            rule("7000", &["10.0.0.123:7000"], "keep"),
            rule("203.0.113.7:7000", &["10.0.0.5:51820"], "masquerade"),
            rule("[2001:db8::1]:7000", &["[fd00::5]:80"], "2001:db8::2"),
            rule(
                "8000-8009/tcp",
                &["10.0.0.1:9000-9009=2", "10.0.0.2:9000-9009"],
                "203.0.113.7",
            ),
            rule("8000-8009/udp", &["[fd00::5]:8000-8009"], "keep"),
            rule("8010", &["[fd00::5]:8010"], "keep"),
            // Another port of the same address.
            rule("203.0.113.7:80", &["203.0.113.7:8080"], "keep"),
        ];
        assert_eq!(check_all(&rules), Ok(()));
        assert_eq!(check_all(&[]), Ok(()));
    }

    #[test]
    fn rules_that_do_not_fit_are_refused() {
        for (listen, to, source, hint) in [
            (
                "7000",
                &[][..],
                "keep",
                "`7000` leads nowhere; add a back end, as --to 10.0.0.5:7000",
            ),
            ("[2001:db8::1]:1-2", &[], "keep", "--to [fd00::5]:1-2"),
            ("7", &[], "2001:db8::1", "--to [fd00::5]:7"),
            (
                "8000-8009/tcp",
                &["10.0.0.1:9000-9009", "10.0.0.2:9000=3"],
                "keep",
                "`8000-8009/tcp` has 10 ports and `10.0.0.2:9000=3` has 1 port, and each port \
                 goes to one of its own; write 10.0.0.2:9000-9009=3",
            ),
            (
                "80",
                &["10.0.0.1:80-81"],
                "keep",
                "has 1 port and `10.0.0.1:80-81` has 2 ports",
            ),
            ("80", &["10.0.0.1:80-81"], "keep", "write 10.0.0.1:80"),
            (
                "1-65535",
                &["10.0.0.1:80"],
                "keep",
                "write 10.0.0.1:1-65535",
            ),
            (
                "1-10",
                &["[fd00::5]:65530"],
                "keep",
                "write [fd00::5]:65526-65535",
            ),
            (
                "7000",
                &["10.0.0.5:7000", "[fd00::5]:7000"],
                "keep",
                "`7000`: 10.0.0.5 is IPv4 and fd00::5 is IPv6, and a rule forwards within one",
            ),
            (
                "203.0.113.7:80",
                &["[fd00::5]:80"],
                "keep",
                "203.0.113.7 is IPv4 and fd00::5 is",
            ),
            (
                "80",
                &["[fd00::5]:80"],
                "203.0.113.7",
                "203.0.113.7 is IPv4 and fd00::5 is IPv6",
            ),
            (
                "80",
                &["10.0.0.5:80"],
                "2001:db8::1",
                "10.0.0.5 is IPv4 and 2001:db8::1 is IPv6",
            ),
            (
                "203.0.113.7:80/tcp",
                &["10.0.0.5:80", "203.0.113.7:80=2"],
                "keep",
                "`203.0.113.7:80/tcp` leads to itself by `203.0.113.7:80=2`; name another",
            ),
        ] {
            let rules = [rule("9", &["10.0.0.9:9"], "keep"), rule(listen, to, source)];
            let error = rules[1].check().expect_err(hint);
            assert!(error.to_string().contains(hint), "{hint}: {error}");
            assert_eq!(check_all(&rules), Err(error));
        }
    }

    #[test]
    fn rules_that_take_the_same_packets_are_refused() {
        for (one, other, hint) in [
            (
                "7000",
                "7000-7010/tcp",
                "`7000` and `7000-7010/tcp` both listen to TCP port 7000; leave one out, or name",
            ),
            ("7000/udp", "6000-7000", "both listen to UDP port 7000"),
            ("1-65535", "7000", "both listen to TCP port 7000"),
            (
                "203.0.113.7:5-9",
                "203.0.113.7:8-20/udp",
                "`203.0.113.7:5-9` and `203.0.113.7:8-20/udp` both listen to UDP port 8; leave \
                 one out, or give it another port",
            ),
            (
                "[2001:db8::1]:5",
                "[2001:db8::1]:5",
                "both listen to TCP port 5",
            ),
        ] {
            let with_back_end = |text: &str| {
                let listen: Listen = text.parse().unwrap();
                let family = match listen.address {
                    Some(IpAddr::V6(_)) => IpAddr::V6(EXAMPLE_V6),
                    _ => IpAddr::V4(EXAMPLE_V4),
                };
                rule(text, &[&at(family, listen.ports)], "keep")
            };
            let aside = with_back_end("20000");
            let aside_of_udp = with_back_end("20001/udp");
            let mut rules = vec![
                aside_of_udp,
                with_back_end(one),
                with_back_end(other),
                aside,
            ];
            if one == "1-65535" {
                rules.truncate(3);
                rules.remove(0);
            }
            let error = check_all(&rules).expect_err(hint).to_string();
            assert!(error.contains(hint), "{hint}: {error}");
        }
        let families = [
            rule("7000", &["10.0.0.5:7000"], "keep"),
            rule("7000", &["[fd00::5]:7000"], "keep"),
        ];
        assert_eq!(check_all(&families), Ok(()));
        let twice = [families[0].clone(), families[0].clone()];
        let error = Error::from(check_all(&twice).unwrap_err());
        assert_eq!(error.kind(), Kind::Invalid);
    }

    /// Whatever the order of many rules, a clash among them is found.
    #[test]
    fn a_clash_among_many_is_found() {
        let many: Vec<Forward> = (1..=65535)
            .rev()
            .map(|port| rule(&port.to_string(), &[&format!("10.0.0.5:{port}")], "keep"))
            .collect();
        assert_eq!(check_all(&many), Ok(()));
        let mut one_more = many;
        one_more.push(rule("443/udp", &["10.0.0.5:443"], "keep"));
        let error = check_all(&one_more).unwrap_err().to_string();
        assert!(
            error.starts_with("`443` and `443/udp` both listen to UDP port 443"),
            "{error}"
        );
    }

    #[test]
    fn a_table_is_read() {
        let text = "# port forward table - each entry must be on a line {port=svr_addr|svr_port}\n\
                    7000=192.168.0.18|7000\r\n\
                    \n  \t\n\
                    8000 = 192.168.0.17 | 7000 \n\
                    9000=fd00::5|80\n\
                    9001=[fd00::5]|81";
        let expected = [
            rule("7000", &["192.168.0.18:7000"], "keep"),
            rule("8000", &["192.168.0.17:7000"], "keep"),
            rule("9000", &["[fd00::5]:80"], "keep"),
            rule("9001", &["[fd00::5]:81"], "keep"),
        ];
        let rules = parse_table(text).unwrap();
        assert_eq!(rules, expected);
        assert_eq!(check_all(&rules), Ok(()));
    }

    #[test]
    fn mistakes_of_a_table_are_shown_where_they_are() {
        for (line, column, hint) in [
            (
                "7000=x|7000",
                6,
                "`x` is no address; host names are not looked up here, lines are",
            ),
            ("7000=|7000", 6, "`` is no address"),
            ("7000=[10.0.0.5]|7000", 6, "`[10.0.0.5]` is no address"),
            ("7000=fd00::5%eth0|7000", 6, "zone"),
            ("7000=127.0.0.1|7000", 6, "`net.ipv4.route_localnet`"),
            ("7000=0.0.0.0|7000", 6, "0.0.0.0 is no address of a host"),
            ("7000= 224.0.0.1|7000", 7, "224.0.0.1 is a multicast group"),
            (
                "70000=10.0.0.5|7000",
                1,
                "`70000` is not a port; ports are 1 to 65535",
            ),
            ("  0=10.0.0.5|7000", 3, "`0` is not a port"),
            ("=10.0.0.5|7000", 1, "`` is not a port"),
            ("7000=10.0.0.5|0", 15, "`0` is not a port"),
            ("7000=10.0.0.5|", 15, "`` is not a port"),
            ("7000=10.0.0.5| x ", 16, "`x` is not a port"),
            ("7000=10.0.0.5|1|2", 15, "`1|2` is not a port"),
            (
                "7000-7009=10.0.0.5|7000-7009",
                1,
                "write a line for each, or --listen and --to",
            ),
            ("7000=10.0.0.5|7000-7009", 15, "more than one port"),
            (
                "7000=10.0.0.5:7000",
                19,
                "expected `|`; lines are written port=address|port",
            ),
            (
                "7000 10.0.0.5|7000",
                5,
                "expected `=`; lines are written port=address|port",
            ),
            ("7000", 5, "expected `=`"),
            ("é|", 1, "expected `=`"),
            ("7000=é|é", 6, "`é` is no address"),
            ("é=10.0.0.5|1", 1, "`é` is not a port"),
            ("# a comment", 1, "only the first line is a comment"),
            (
                " #7000=10.0.0.5|7000",
                2,
                "only the first line is a comment",
            ),
            (
                "6000=10.0.0.5|7000",
                1,
                "port 6000 stands in line 2 as well; leave one out",
            ),
        ] {
            let text = format!("# comment\n6000=10.0.0.5|6000\n{line}\n");
            let error = parse_table(&text).expect_err(line);
            assert_eq!(error.kind(), Kind::Invalid, "{error:#}");
            let error = error.to_string();
            let place = format!("line 3, column {column}: ");
            assert!(error.starts_with(&place), "{place}: {error}");
            assert!(error.contains(hint), "{hint}: {error}");
            assert!(
                error.contains(&format!("\n3 | {}\n", line.trim_end())),
                "{error}"
            );
        }
    }

    #[test]
    fn all_mistakes_of_a_table_are_shown() {
        let text = "7000=10.0.0.5|7000\n\t8000=10.0.0.5|x\n8001=10.0.0.5|1\n8001=y|1\n8000=z|1";
        let expected = "\
line 1, column 1: the first line is a comment and forwards nothing; write a comment above this one
  |
1 | 7000=10.0.0.5|7000
  | ^
line 2, column 16: `x` is not a port; ports are 1 to 65535, lines are written port=address|port, as 7000=192.168.0.18|7000
  |
2 |  8000=10.0.0.5|x
  |                ^
line 4, column 1: port 8001 stands in line 3 as well; leave one out
  |
4 | 8001=y|1
  | ^
line 5, column 1: port 8000 stands in line 2 as well; leave one out
  |
5 | 8000=z|1
  | ^";
        assert_eq!(parse_table(text).unwrap_err().to_string(), expected);
    }

    #[test]
    fn a_long_line_of_a_table_is_shown() {
        let text = format!("#\n{}=", "1".repeat(70_000));
        let error = parse_table(&text).unwrap_err().to_string();
        assert!(error.starts_with("line 2, column 1: "), "{error}");
        let text = format!("#\n{}x", "1".repeat(70_000));
        let error = parse_table(&text).unwrap_err().to_string();
        assert!(error.starts_with("line 2, column 70001: "), "{error}");
    }

    #[test]
    fn a_table_without_a_rule_is_refused() {
        for text in ["", "# comment", "# comment\n\n", "\n\n"] {
            let error = parse_table(text).expect_err(text).to_string();
            assert!(
                error.starts_with("no line forwards a port; the first is a comment"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_table_file_is_named() {
        let missing = Path::new("/nonexistent/port_fwd_table.config");
        let error = read_table(missing).unwrap_err();
        assert_eq!(error.kind(), Kind::Io);
        let shown = format!("{error:#}");
        let what = "cannot read /nonexistent/port_fwd_table.config: ";
        assert!(shown.starts_with(what), "{shown}");
        // Not a table.
        let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let error = read_table(&other).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        let shown = format!("{error:#}");
        assert!(
            shown.starts_with(&format!("{}: line 2, column ", other.display())),
            "{shown}"
        );
    }
}
