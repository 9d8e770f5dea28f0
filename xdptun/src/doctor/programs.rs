//! BPF programs on the interface: xdptun's own, and others.

use std::error::Error;
use std::io::ErrorKind;

use aya::programs::links::LinkType;
use aya::programs::{ProgramError, SchedClassifier, TcAttachType, loaded_links, loaded_programs};
use futures_util::TryStreamExt as _;
use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage, LinkXdp, XdpAttached};

use super::filters::{self, Filter};
use super::{Finding, Subject, driver, found};
use crate::datapath::programs::{Programs, TcProgram};
use crate::error::{Context as _, Result, io_error};
use crate::gateway::Gateway;
use crate::group::Function as _;
use crate::host::interface::Interface;
use crate::host::netlink;
use crate::policy::Policy;

/// The prefix of the names of the tunnel's programs.
const TUNNEL_PREFIX: &str = "xdptun_";

/// The programs attached to an interface, as the kernel lists them.
pub struct Seen {
    pub xdp: Option<XdpProgram>,
    pub ingress: Hook,
    pub egress: Hook,
}

/// The program of the XDP hook.
pub struct XdpProgram {
    id: u32,
    name: String,
    generic: bool,
    /// Its link, if it has one.
    link: Option<u32>,
}

/// The programs of one direction of tc, in the order in which they run.
pub struct Hook {
    /// Names of programs with a TCX link.
    tcx: Vec<String>,
    /// The filters (of the clsact qdisc); they run after the programs of TCX.
    filters: Vec<Filter>,
}

/// Whether it is a program of the tunnel.
fn is_tunnel(name: &str) -> bool {
    name.starts_with(TUNNEL_PREFIX)
}

/// Whether it is a program of a function that stands behind the tunnel.
fn is_behind_tunnel(name: &str) -> bool {
    let all = [Policy::PROGRAMS, Gateway::PROGRAMS].into_iter();
    let mut all = all.flat_map(Programs::on_interface);
    all.any(|(_, program)| program == name)
}

impl Seen {
    /// Hooks where programs should be and are not.
    pub fn missing(&self, programs: &Programs) -> Vec<&'static str> {
        let missing = programs.on_interface().filter_map(|(which, program)| {
            let (hook, name) = match which {
                TcProgram::Egress => (&self.egress, "tc egress"),
                TcProgram::Ingress | TcProgram::Splitter | TcProgram::Joiner => {
                    (&self.ingress, "tc ingress")
                }
            };
            (!hook.has(program)).then_some(name)
        });
        missing.collect()
    }
}

impl XdpProgram {
    pub fn is_tunnel(&self) -> bool {
        is_tunnel(&self.name)
    }

    /// The command that takes it off.
    fn removal(&self, interface: &str) -> String {
        match self.link {
            Some(link) => format!("bpftool link detach id {link}"),
            None if self.generic => format!("ip link set dev {interface} xdpgeneric off"),
            None => format!("ip link set dev {interface} xdpdrv off"),
        }
    }
}

impl Hook {
    /// Programs with these names.
    #[cfg(test)]
    pub fn with(tcx: &[&str], filters: &[&str]) -> Self {
        let filter = |name: &&str| Filter {
            name: (*name).to_owned(),
            priority: 1,
            drops: false,
        };
        Self {
            tcx: tcx.iter().map(ToString::to_string).collect(),
            filters: filters.iter().map(filter).collect(),
        }
    }

    /// The names of all of them.
    fn names(&self) -> impl DoubleEndedIterator<Item = &str> {
        let filters = self.filters.iter().map(|filter| &filter.name);
        self.tcx.iter().chain(filters).map(String::as_str)
    }

    /// Whether the tunnel has a program there.
    pub fn has_tunnel(&self) -> bool {
        self.names().any(is_tunnel)
    }

    /// Whether a program of this name is there.
    pub fn has(&self, program: &str) -> bool {
        self.names().any(|name| name == program)
    }
}

impl Seen {
    /// Lists the programs of an interface.
    ///
    /// # Errors
    ///
    /// If the kernel does not list them, or this process lacks the right.
    pub fn at(interface: &Interface) -> Result<Self> {
        let index = interface.index.cast_signed();
        let (link, [ingress, egress]) = netlink::block_on(async |handle| {
            let link = handle.link().get().match_index(interface.index).execute();
            let link = Box::pin(link)
                .try_next()
                .await
                .context("cannot look it up")?;
            let filters = || handle.traffic_filter(index).get();
            let ingress = filters::read(filters().ingress().execute()).await;
            let egress = filters::read(filters().egress().execute()).await;
            Ok((link, [ingress, egress]))
        })?;
        let xdp = match link.as_ref().and_then(xdp) {
            Some((id, generic)) => Some(XdpProgram {
                id,
                name: program_name(id)?,
                generic,
                link: link_of(id)?,
            }),
            None => None,
        };
        Ok(Self {
            xdp,
            ingress: Hook {
                tcx: tcx(&interface.name, TcAttachType::Ingress)?,
                filters: ingress,
            },
            egress: Hook {
                tcx: tcx(&interface.name, TcAttachType::Egress)?,
                filters: egress,
            },
        })
    }
}

/// The names of programs with a TCX link, in order.
fn tcx(interface: &str, direction: TcAttachType) -> Result<Vec<String>> {
    match SchedClassifier::query_tcx(interface, direction) {
        Ok((_, programs)) => Ok(programs
            .iter()
            .map(|program| name(program.name_as_str()))
            .collect()),
        // A kernel without TCX.
        Err(ProgramError::SyscallError(error))
            if error.io_error.raw_os_error() == Some(libc::EINVAL) =>
        {
            Ok(Vec::new())
        }
        Err(error) => Err(error).context("cannot list the tc programs"),
    }
}

fn name(name: Option<&str>) -> String {
    name.filter(|name| !name.is_empty())
        .unwrap_or("a program without a name")
        .to_owned()
}

/// The id of the program on the XDP hook of a link, and whether it is generic XDP.
fn xdp(link: &LinkMessage) -> Option<(u32, bool)> {
    let attributes = link
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::Xdp(attributes) => Some(attributes),
            _ => None,
        })?;
    let id = attributes.iter().find_map(|attribute| match attribute {
        LinkXdp::ProgId(id) | LinkXdp::DrvProgId(id) => Some(*id),
        _ => None,
    })?;
    let generic = attributes.contains(&LinkXdp::Attached(XdpAttached::SocketBuffer));
    Some((id, generic))
}

fn program_name(id: u32) -> Result<String> {
    for program in loaded_programs() {
        let program = match program {
            Err(error) if went_meanwhile(&error) => continue,
            program => program.context("cannot list the programs")?,
        };
        if program.id() == id {
            return Ok(name(program.name_as_str()));
        }
    }
    Ok(name(None))
}

/// Whether the error is that something of another process went while the kernel listed it.
fn went_meanwhile(error: &(dyn Error + 'static)) -> bool {
    io_error(error).is_some_and(|error| error.kind() == ErrorKind::NotFound)
}

/// The XDP link of a program, if it has exactly one.
fn link_of(program: u32) -> Result<Option<u32>> {
    let mut links = Vec::new();
    for link in loaded_links() {
        let link = match link {
            Err(error) if went_meanwhile(&error) => continue,
            link => link.context("cannot list the links of programs")?,
        };
        // Newer kernels have types of links that aya does not know.
        if link.program_id() == program && matches!(link.link_type(), Ok(LinkType::Xdp)) {
            links.push(link.id());
        }
    }
    Ok(match links[..] {
        [link] => Some(link),
        _ => None,
    })
}

pub fn check(subject: &Subject, seen: &Seen) -> Vec<Finding> {
    let (interface, xdp) = (&subject.interface, seen.xdp.as_ref());
    let judged = driver::takes_xdp(interface.index).map(|takes_xdp| {
        vec![judge_xdp(
            &interface.name,
            xdp,
            takes_xdp,
            interface.spare_xdp(),
        )]
    });
    let mut findings = found(XDP, judged);
    findings.push(judge_tc(&interface.name, seen));
    for (direction, hook) in [("ingress", &seen.ingress), ("egress", &seen.egress)] {
        let dropping = hook.filters.iter().filter(|filter| filter.drops);
        findings.extend(dropping.map(|filter| drops(&interface.name, direction, filter)));
    }
    findings
}

const XDP: &str = "xdp";
const TC: &str = "tc";

/// `takes_xdp`: whether the driver takes XDP, if that is known; `spared`: why `attach` does
/// not use it.
fn judge_xdp(
    interface: &str,
    program: Option<&XdpProgram>,
    takes_xdp: Option<bool>,
    spared: Option<&str>,
) -> Finding {
    if let Some(program) = program {
        if program.is_tunnel() {
            return Finding::ok(XDP, format!("{interface}: the XDP program is xdptun's"));
        }
        let what = format!(
            "{interface}: another XDP program is attached ({}, id {}): `attach` takes tc \
             instead; a packet that the other program does not pass never reaches tc",
            program.name, program.id
        );
        return Finding::warn(XDP, what).mend(program.removal(interface));
    }
    let what = match (takes_xdp, spared) {
        (Some(false), _) => "the driver has no XDP; `attach` takes tc".to_owned(),
        (_, Some(reason)) => format!("no XDP program; `attach` takes tc, because {reason}"),
        (Some(true), None) => "no XDP program; the driver has XDP".to_owned(),
        (None, None) => "no XDP program; `attach` tries whether the driver has XDP".to_owned(),
    };
    Finding::ok(XDP, format!("{interface}: {what}"))
}

fn judge_tc(interface: &str, seen: &Seen) -> Finding {
    let others: Vec<&str> = [&seen.ingress, &seen.egress]
        .into_iter()
        .flat_map(Hook::names)
        .filter(|name| !is_tunnel(name) && !is_behind_tunnel(name))
        .collect();
    if others.is_empty() {
        return Finding::ok(TC, format!("{interface}: no tc programs of others"));
    }
    let others = others.join(", ");
    let before = match first_is_tunnel(&seen.ingress) {
        false => Some("see TCP segments on the way in, before they are datagrams again"),
        true if !last_is_tunnel(&seen.egress) => Some("see TCP segments on the way out"),
        true => None,
    };
    match before {
        Some(before) => Finding::warn(
            TC,
            format!("{interface}: tc programs of others ({others}) {before}"),
        ),
        None => Finding::ok(
            TC,
            format!(
                "{interface}: tc programs of others ({others}) see datagrams, as sockets do; what a \
                 program drops is not known"
            ),
        ),
    }
}

/// A filter of others that drops what it matches. The doctor does not judge whether it matches packets
/// of the tunnel.
fn drops(interface: &str, direction: &str, filter: &Filter) -> Finding {
    let Filter { name, priority, .. } = filter;
    let what = format!(
        "{interface}: a {name} filter of priority {priority} on {direction} drops packets; whether \
         those of xdptun are among them is not known: `tc -s filter show dev {interface} {direction}` \
         counts what it matches"
    );
    Finding::warn(TC, what)
}

/// Whether no program runs before the one that restores. If it is not attached yet, it will
/// be the first.
fn first_is_tunnel(ingress: &Hook) -> bool {
    !ingress.has_tunnel() || ingress.names().next().is_some_and(is_tunnel)
}

/// Whether no program runs after the one that disguises. A filter runs after every TCX
/// program.
fn last_is_tunnel(egress: &Hook) -> bool {
    !egress.has_tunnel() || egress.names().next_back().is_some_and(is_tunnel)
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn tc(ingress: Hook, egress: Hook) -> Level {
        let seen = Seen {
            xdp: None,
            ingress,
            egress,
        };
        judge_tc("eth0", &seen).level
    }

    #[test]
    fn the_order_of_tc_programs_matters() {
        let none = || Hook::with(&[], &[]);
        assert_eq!(tc(none(), none()), Level::Ok);
        assert_eq!(tc(Hook::with(&["meter"], &[]), none()), Level::Ok);
        let ours = || Hook::with(&["xdptun_egress"], &[]);
        let first = Hook::with(&["xdptun_ingress", "meter"], &["matchall"]);
        assert_eq!(tc(first, ours()), Level::Ok);
        let second = Hook::with(&["meter", "xdptun_ingress"], &[]);
        assert_eq!(tc(second, ours()), Level::Warn);
        let filter_after = Hook::with(&["xdptun_egress"], &["matchall"]);
        assert_eq!(tc(none(), filter_after), Level::Warn);
    }

    /// They stand behind the tunnel.
    #[test]
    fn functions_of_xdptun_are_not_others() {
        let seen = Seen {
            xdp: None,
            ingress: Hook::with(
                &["xdptun_ingress", "policy_ingress", "gateway_ingress"],
                &[],
            ),
            egress: Hook::with(&["gateway_egress", "policy_egress", "xdptun_egress"], &[]),
        };
        let finding = judge_tc("eth0", &seen);
        assert_eq!(finding.what, "eth0: no tc programs of others");
    }

    #[test]
    fn what_is_on_the_xdp_hook_is_taken_off_as_it_was_put_there() {
        let mut program = XdpProgram {
            id: 7,
            name: "firewall".into(),
            generic: false,
            link: None,
        };
        let mend =
            |program: &XdpProgram| judge_xdp("eth0", Some(program), None, None).mend.unwrap();
        assert_eq!(mend(&program), "ip link set dev eth0 xdpdrv off");
        program.generic = true;
        assert_eq!(mend(&program), "ip link set dev eth0 xdpgeneric off");
        program.link = Some(3);
        assert_eq!(mend(&program), "bpftool link detach id 3");
        program.name = "xdptun_xdp".into();
        assert_eq!(
            judge_xdp("eth0", Some(&program), None, None).level,
            Level::Ok
        );
    }
}
