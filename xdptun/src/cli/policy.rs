//! `xdptun policy`: search the payload of packets by a rule until Ctrl-C.

use std::num::NonZeroU16;

use anyhow::Result;
use clap::Args;
use ipnet::IpNet;

use super::once::Options;
use crate::config::{
    Config, InterfaceConfig, Offset, Pattern, PolicyAction, PolicyDirection, PolicyProtocol,
    PolicyRule, RuleName, addresses_of, check_policies,
};

/// Look for patterns in the payload of packets until Ctrl-C or SIGTERM.
///
/// eBPF programs in the kernel search the payload of each TCP segment and UDP datagram for
/// literal bytes, and count, log, drop or reset what has them. They search single packets:
/// a match that is split over two segments or two fragments is missed. They cannot look
/// into encrypted traffic (TLS, QUIC, WireGuard, SSH). More than one rule is written into the
/// file of `xdptun run`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Interface whose packets are searched; may be repeated.
    #[arg(
        long,
        short,
        required = true,
        value_name = "NAME",
        value_delimiter = ','
    )]
    iface: Vec<String>,

    /// Which packets: those that come in by the interface, or leave by it.
    #[arg(long, value_enum)]
    direction: PolicyDirection,

    /// Transport protocol. Default: both.
    #[arg(long, value_enum)]
    protocol: Option<PolicyProtocol>,

    /// Network or address that packets come from. Default: any.
    #[arg(long, value_name = "ADDRESS[/PREFIX]", value_parser = addresses_of)]
    from: Option<IpNet>,

    /// Network or address that packets go to. Default: any.
    #[arg(long, value_name = "ADDRESS[/PREFIX]", value_parser = addresses_of)]
    to: Option<IpNet>,

    /// Port of either end. Default: any.
    #[arg(long, value_name = "PORT")]
    port: Option<NonZeroU16>,

    /// Pattern of 1 to 128 bytes, as text or as `hex:00ff`; may be repeated up to 64 times.
    #[arg(long, required = true, value_name = "TEXT|hex:BYTES")]
    contains: Vec<Pattern>,

    /// Let ASCII letters match in either case.
    #[arg(long)]
    ignore_case: bool,

    /// First and last byte of the payload between which a match lies, counted from 0, like
    /// 0-15 or 4-. Default: anywhere.
    #[arg(long, value_name = "FIRST-[LAST]")]
    offset: Option<Offset>,

    /// What becomes of a packet that matches.
    #[arg(long, value_enum)]
    action: PolicyAction,

    /// Let a packet pass that the rule would drop, and count it.
    #[arg(long)]
    dry_run: bool,

    /// Name of the rule in `xdptun status`, metrics and the log. Default: rule1.
    #[arg(long, value_name = "NAME")]
    name: Option<RuleName>,

    #[command(flatten)]
    options: Options,
}

const EXAMPLES: &str = "\
Examples:
  xdptun policy -i eth0 --direction in --contains EVIL --action drop
  xdptun policy -i eth0 --direction in --port 80 --contains ../ --action reset
  xdptun policy -i eth0 --direction out --contains TOP-SECRET --action log
  xdptun policy -i eth0 --direction in --contains hex:00ff --action count
  xdptun policy -i eth0 --direction in --contains A --contains B --action count";

/// Runs the verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let advice = "one process searches the packets of an interface; write all rules into the file of \
                  `xdptun run`";
    arguments
        .options
        .run(arguments.configuration()?, false, advice)
}

impl Arguments {
    /// What they ask for.
    fn configuration(&self) -> Result<Config> {
        let policy = vec![PolicyRule {
            name: self.name.clone(),
            direction: self.direction,
            protocol: self.protocol,
            from: self.from,
            to: self.to,
            port: self.port,
            contains: self.contains.clone(),
            ignore_case: self.ignore_case,
            offset: self.offset,
            action: self.action,
            dry_run: self.dry_run,
        }];
        check_policies(&policy)?;
        let interface = InterfaceConfig {
            tc: self.options.tc,
            policy,
            ..InterfaceConfig::new(Vec::new())
        };
        let interfaces = self.iface.iter();
        Ok(Config {
            interfaces: interfaces
                .map(|name| (name.clone(), interface.clone()))
                .collect(),
            ..self.options.configuration()
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    fn configured(words: &str) -> Result<Config> {
        let words = ["xdptun", "policy"].into_iter().chain(words.split(' '));
        let matches = crate::cli::command().try_get_matches_from(words)?;
        let (_, matches) = matches.subcommand().expect("a verb");
        Arguments::from_arg_matches(matches)?.configuration()
    }

    #[test]
    fn the_command_and_the_file_ask_for_the_same() {
        let file = r#"
            [[interface.eth0.policy]]
            name = "web"
            direction = "in"
            protocol = "tcp"
            from = "10.1.0.1"
            port = 80
            contains = ["STEPH", "hex:00ff"]
            ignore-case = true
            offset = "4-"
            action = "reset"
            dry-run = true
        "#;
        let words = "-i eth0 --direction in --protocol tcp --from 10.1.0.1 --port 80 \
                     --contains STEPH --contains hex:00ff --ignore-case --offset 4- \
                     --action reset --dry-run --name web";
        let words: Vec<&str> = words.split_whitespace().collect();
        assert_eq!(
            configured(&words.join(" ")).unwrap(),
            Config::parse(file).unwrap()
        );
    }

    #[test]
    fn rules_that_contradict_themselves_are_refused() {
        for (words, reason) in [
            (
                "-i e --direction in --contains x --action count --dry-run",
                "drops nothing",
            ),
            (
                "-i e --direction in --contains hex:0 --action drop",
                "pairs of hexadecimal",
            ),
            (
                "-i e --direction in --contains abc --offset 0-1 --action drop",
                "no room",
            ),
        ] {
            let error = configured(words).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
