//! `xdptun nat`: translate packets of inside hosts until Ctrl-C.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::Result;
use clap::Args;

use super::gateway::Options;
use crate::config::{
    Config, Filtering, Inside, InterfaceConfig, MaxBindings, MaxBindingsPerHost, Nat,
    outside_address,
};
use crate::host::ports::{PortRange, SOURCE_PORTS};

/// Translate packets of inside hosts to an address of this host until Ctrl-C or SIGTERM.
///
/// Inside hosts share one outside IPv4 address. eBPF programs in the kernel translate TCP, UDP
/// and ICMP echo. A port of an inside host has one outside port, whichever address it sends to. This
/// host has to route (`sysctl -w net.ipv4.ip_forward=1`), and nothing else may masquerade on the
/// interface.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Interface that leads outside.
    #[arg(long, short, value_name = "NAME")]
    iface: String,

    /// Network of inside hosts; may be repeated.
    #[arg(
        long,
        required = true,
        value_name = "ADDRESS[/PREFIX]",
        value_delimiter = ','
    )]
    inside: Vec<Inside>,

    /// Outside address. Default: the first address of the interface, also after that changes.
    #[arg(long, value_name = "ADDRESS", value_parser = outside_address)]
    outside: Option<Ipv4Addr>,

    /// Outside ports that inside hosts share.
    #[arg(long, value_name = "PORT[-PORT]", default_value_t = SOURCE_PORTS)]
    ports: PortRange,

    /// Which packets from outside reach an inside host that has sent from the port.
    #[arg(long, value_enum, default_value_t)]
    filtering: Filtering,

    /// How many bindings of inside addresses and ports to outside ports there may be at once.
    #[arg(long, value_name = "N", default_value_t)]
    max_bindings: MaxBindings,

    /// How many bindings one inside host may have at once.
    #[arg(long, value_name = "N", default_value_t)]
    max_bindings_per_host: MaxBindingsPerHost,

    #[command(flatten)]
    options: Options,
}

const EXAMPLES: &str = "\
Examples:
  xdptun nat --iface eth0 --inside 192.168.7.0/24
  xdptun nat -i eth0 --inside 192.168.7.0/24 --ports 20000-29999
  xdptun nat -i eth0 --inside 10.1.0.0/16,10.2.0.0/16 --max-bindings 100000
  xdptun nat -i eth0 --inside 10.1.0.9 --filtering address-and-port-dependent";

/// Runs the verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let advice = "one process translates for an interface; to forward ports there as well, write \
                  both into the file of `xdptun run`";
    arguments
        .options
        .run(arguments.configuration()?, false, advice)
}

impl Arguments {
    /// What they ask for.
    fn configuration(&self) -> Result<Config> {
        let nat = Nat {
            inside: self.inside.clone(),
            outside: self.outside,
            ports: self.ports,
            filtering: self.filtering,
            max_bindings_per_host: self.max_bindings_per_host,
        };
        nat.check()?;
        let interface = InterfaceConfig {
            tc: self.options.tc(),
            nat: Some(nat),
            ..InterfaceConfig::new(Vec::new())
        };
        Ok(Config {
            max_bindings: self.max_bindings,
            interfaces: BTreeMap::from([(self.iface.clone(), interface)]),
            ..self.options.configuration()
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    fn configured(words: &str) -> Result<Config> {
        let words = ["xdptun", "nat"].into_iter().chain(words.split(' '));
        let matches = crate::cli::command().try_get_matches_from(words)?;
        let (_, matches) = matches.subcommand().unwrap();
        Arguments::from_arg_matches(matches)?.configuration()
    }

    #[test]
    fn a_network_is_all_it_takes() {
        let config = configured("--iface wan0 --inside 192.168.7.0/24").unwrap();
        let file = "[interface.wan0.nat]\ninside = \"192.168.7.0/24\"";
        assert_eq!(config, Config::parse(file).unwrap());
    }

    #[test]
    fn options_are_keys_of_the_file() {
        let config = configured(
            "-i wan0 --inside 10.1.0.0/16,10.2.0.1 --inside 10.3.0.0/16 --outside 203.0.113.7 \
             --ports 20000-29999 --filtering address-and-port-dependent --max-bindings 2000 \
             --max-bindings-per-host 100 --max-sessions 3000 --udp-timeout 60 --tcp-timeout 600 \
             --tcp-transitory-timeout 30 --tc clsact --log-level debug",
        );
        let file = r#"
            log-level = "debug"
            max-bindings = 2000
            max-sessions = 3000
            udp-timeout = 60
            tcp-timeout = 600
            tcp-transitory-timeout = 30
            [interface.wan0]
            tc = "clsact"
            [interface.wan0.nat]
            inside = ["10.1.0.0/16", "10.2.0.1", "10.3.0.0/16"]
            outside = "203.0.113.7"
            ports = "20000-29999"
            filtering = "address-and-port-dependent"
            max-bindings-per-host = 100
        "#;
        assert_eq!(config.unwrap(), Config::parse(file).unwrap());
    }

    #[test]
    fn mistakes_are_named() {
        let usual = "--iface wan0 --inside 192.168.7.0/24";
        for (words, hint) in [
            ("--iface wan0", "--inside <ADDRESS[/PREFIX]>"),
            ("--inside 192.168.7.0/24", "--iface <NAME>"),
            (&format!("{usual} -i eth1"), "cannot be used multiple times"),
            (
                "-i wan0 --inside 192.168.7.1/24",
                "has bits beyond its prefix; write 192.168.7.0/24",
            ),
            (&format!("{usual} --inside fd00::/64"), "is IPv6"),
            (
                &format!("{usual} --inside 192.168.0.0/16"),
                "192.168.7.0/24 lies within 192.168.0.0/16",
            ),
            (
                &format!("{usual} --outside 2001:db8::1"),
                "write an address like 203.0.113.7",
            ),
            (
                &format!("{usual} --outside 192.168.7.1"),
                "the outside address 192.168.7.1 lies within",
            ),
            (&format!("{usual} --ports 0"), "`0` is not a port"),
            (&format!("{usual} --filtering none"), "endpoint-independent"),
            (
                &format!("{usual} --max-bindings 0"),
                "0 is not possible; give 1 to 4194304",
            ),
        ] {
            let error = configured(words).expect_err(words).to_string();
            assert!(error.contains(hint), "{words}: {hint}: {error}");
        }
    }
}
