//! `xdptun nat64`: let IPv6-only clients reach IPv4 until Ctrl-C.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::Args;

use super::gateway::Options;
use crate::config::{
    ClientNetwork, Config, Fixed, Inside, InterfaceConfig, Mtu, Nat, Nat64, PerPrefix, Pool, Prefix,
};

/// Let IPv6-only clients reach IPv4 until Ctrl-C or SIGTERM.
///
/// A client finds the IPv4 address 198.51.100.7 at 64:ff9b::198.51.100.7; DNS64 (as of unbound) gives
/// it such addresses for names. Each client gets an IPv4 address of the pool. An eBPF program
/// translates TCP, UDP and ICMP on a device of its own, `xdptun64`, to which the prefix and the pool
/// are routed. A client gives its address back after the longer of `--udp-timeout` and
/// `--tcp-timeout` without a packet of its own, and one that nothing was sent to after the longer of
/// `--udp-timeout` and `--tcp-transitory-timeout`. This host has to route (`sysctl -w
/// net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1`).
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Network of IPv6 clients; may be repeated.
    #[arg(
        long,
        required = true,
        value_name = "ADDRESS[/PREFIX]",
        value_delimiter = ','
    )]
    inside: Vec<ClientNetwork>,

    /// Prefix behind which clients find IPv4 addresses.
    #[arg(long, value_name = "ADDRESS/PREFIX", default_value_t)]
    prefix: Prefix,

    /// IPv4 addresses that clients get, one each.
    #[arg(long, value_name = "ADDRESS/PREFIX", default_value_t)]
    pool: Pool,

    /// Interface that leads to IPv4: packets of the pool leave by it with its address, as with
    /// `xdptun nat`. Without it, another NAT has to translate the pool.
    #[arg(long, short, value_name = "NAME")]
    iface: Option<String>,

    /// Let clients reach IPv4 addresses that are not global (as 10.0.0.0/8) behind 64:ff9b::/96.
    #[arg(long)]
    allow_private: bool,

    /// Address of the pool that always belongs to the same client; may be repeated.
    #[arg(long = "static", value_name = "IPV4=IPV6", value_delimiter = ',')]
    fixed: Vec<Fixed>,

    /// How many clients of one network of 64 bits may have an address. Default: a quarter of the
    /// pool.
    #[arg(long, value_name = "N")]
    per_prefix: Option<PerPrefix>,

    /// The largest IPv6 packet that the way to the clients takes; IPv4 senders learn 20 less.
    #[arg(long, value_name = "BYTES", default_value_t)]
    mtu: Mtu,

    #[command(flatten)]
    options: Options,
}

const EXAMPLES: &str = "\
Examples:
  xdptun nat64 --inside fd00:6::/64 --iface eth0
  xdptun nat64 --inside fd00:6::/64 --prefix 64:ff9b::/96 --pool 100.64.0.0/16
  xdptun nat64 --inside fd00:6::/64 -i eth0 --static 100.64.0.9=fd00:6::9
  xdptun nat64 --inside fd00:6::/48 -i eth0 --allow-private --per-prefix 60000";

/// Runs the verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let advice = "one process of a network namespace runs NAT64, and one translates at an interface; to \
                  do more, write all of it into the file of `xdptun run`";
    arguments
        .options
        .run(arguments.configuration()?, false, advice)
}

impl Arguments {
    /// What they ask for.
    fn configuration(&self) -> Result<Config> {
        let nat64 = Nat64 {
            inside: self.inside.clone(),
            prefix: self.prefix,
            pool: self.pool,
            allow_private: self.allow_private,
            fixed: self.fixed.clone(),
            per_prefix: self.per_prefix,
            mtu: self.mtu,
            tc: self.options.tc(),
        };
        nat64.check()?;
        let mut interfaces = BTreeMap::new();
        if let Some(name) = &self.iface {
            let pool: Inside = self.pool.to_string().parse()?;
            let interface = InterfaceConfig {
                tc: self.options.tc(),
                nat: Some(Nat::new(vec![pool])),
                ..InterfaceConfig::new(Vec::new())
            };
            interfaces.insert(name.clone(), interface);
        }
        Ok(Config {
            nat64: Some(nat64),
            interfaces,
            ..self.options.configuration()
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    fn configured(words: &str) -> Result<Config> {
        let words = ["xdptun", "nat64"].into_iter().chain(words.split(' '));
        let matches = crate::cli::command().try_get_matches_from(words)?;
        let (_, matches) = matches.subcommand().unwrap();
        Arguments::from_arg_matches(matches)?.configuration()
    }

    #[test]
    fn a_network_is_all_it_takes() {
        let config = configured("--inside fd00:6::/64").unwrap();
        let file = "[nat64]\ninside = \"fd00:6::/64\"";
        assert_eq!(config, Config::parse(file).unwrap());
    }

    #[test]
    fn an_interface_translates_the_pool() {
        let config = configured("--inside fd00:6::/64 -i wan0 --pool 10.64.0.0/20").unwrap();
        let file = "[nat64]\ninside = \"fd00:6::/64\"\npool = \"10.64.0.0/20\"\n\
                    [interface.wan0.nat]\ninside = \"10.64.0.0/20\"";
        assert_eq!(config, Config::parse(file).unwrap());
    }

    #[test]
    fn options_are_keys_of_the_file() {
        let config = configured(
            "--inside fd00:6::/64,fd00:7::9 --prefix fd00:64::/96 --pool 10.64.0.0/24 \
             --allow-private --static 10.64.0.9=fd00:6::9,10.64.0.10=fd00:7::9 --per-prefix 20 \
             --mtu 1492 --tc clsact --udp-timeout 60 --tcp-timeout 600",
        );
        let file = r#"
            udp-timeout = 60
            tcp-timeout = 600
            [nat64]
            inside = ["fd00:6::/64", "fd00:7::9"]
            prefix = "fd00:64::/96"
            pool = "10.64.0.0/24"
            allow-private = true
            static = ["10.64.0.9=fd00:6::9", "10.64.0.10=fd00:7::9"]
            per-prefix = 20
            mtu = 1492
            tc = "clsact"
        "#;
        assert_eq!(config.unwrap(), Config::parse(file).unwrap());
    }

    #[test]
    fn mistakes_are_named() {
        let usual = "--inside fd00:6::/64";
        for (words, hint) in [
            ("--iface wan0", "--inside <ADDRESS[/PREFIX]>"),
            (
                "--inside 10.0.0.0/8",
                "is IPv4; write a network like fd00:6::/64",
            ),
            ("--inside nonsense", "is no network"),
            (
                "--inside fd00:6::1/64",
                "has bits beyond its prefix; write fd00:6::/64",
            ),
            ("--inside fe80::/64", "holds addresses that are no client's"),
            ("--inside 64:ff9b::/64", "overlaps the prefix 64:ff9b::/96"),
            (
                &format!("{usual} --inside fd00::/16"),
                "fd00:6::/64 lies within fd00::/16",
            ),
            (
                &format!("{usual} --prefix fd00:64::/90"),
                "cannot stand before IPv4 addresses",
            ),
            (
                &format!("{usual} --pool 10.0.0.0/8"),
                "a prefix of 16 to 30 bits",
            ),
            (&format!("{usual} --pool 10.0.0.1/24"), "has bits beyond"),
            (
                &format!("{usual} --pool fd00::/96"),
                "is no network of IPv4",
            ),
            (
                &format!("{usual} --static 100.64.0.9"),
                "is no static address",
            ),
            (
                &format!("{usual} --static 100.64.0.1=fd00:6::9"),
                "is none that a client of pool 100.64.0.0/16 can have",
            ),
            (
                &format!("{usual} --static 100.64.0.9=fd00:7::9"),
                "is in no inside network",
            ),
            (
                &format!("{usual} --static 100.64.0.9=fd00:6::9,100.64.0.9=fd00:6::8"),
                "100.64.0.9 is in two static entries",
            ),
            (&format!("{usual} --mtu 1279"), "give 1280 to 9216"),
            (&format!("{usual} --per-prefix 0"), "give 1 to 65536"),
        ] {
            let error = configured(words).expect_err(words).to_string();
            assert!(error.contains(hint), "{words}: {hint}: {error}");
        }
    }
}
