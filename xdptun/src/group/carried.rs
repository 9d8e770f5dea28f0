//! One interface of a group, and what is put on its hooks.

use std::path::Path;

use aya::programs::XdpMode;
use aya::util::KernelVersion;
use xdptun_common::attachment::{Attachment, FilterPlace, Filters, IngressMode};
use xdptun_common::member::Member;
use xdptun_common::wire::EthernetHeader;

use super::function::Function;
use super::loaded::Loaded;
use super::options::Options;
use super::pinned::{kept_as, name_bytes};
use crate::config::{GroChoice, IngressChoice, TcChoice};
use crate::datapath::clsact;
use crate::datapath::engine_maps::EngineMaps;
use crate::datapath::hook::{Held, Place, attach_tc, attach_xdp, load_ahead, xdp_mode};
use crate::datapath::order::others;
use crate::datapath::pins::{self, link_name};
use crate::datapath::programs::{Programs, TcProgram};
use crate::datapath::splitter::{self, Splitter};
use crate::error::{Kind, Result, bail};
use crate::host::clock::monotonic_ns;
use crate::host::interface::Interface;
use crate::host::preflight::kernel_version;

/// An interface of a group.
#[derive(Debug)]
pub struct Carried {
    /// The interface.
    pub interface: Interface,
    /// The name by which the configuration knows it, whatever it is called by now.
    pub kept_as: String,
    /// Whether it is there. One that is gone comes back under its name.
    pub is_there: bool,
    /// Which program restores inbound data.
    pub ingress: IngressMode,
    /// Whether restored datagrams that come in bursts are merged on their way up.
    pub gro: bool,
    /// Whether the tc programs are TCX links.
    pub tcx: bool,
    /// Why `auto` did not take XDP, if it did not.
    pub xdp_refusal: Option<String>,
    /// Its row of the counters.
    pub row: u32,
}

impl Carried {
    /// As `attachment` has it.
    pub fn of(interface: Interface, kept_as: String, attachment: &Attachment) -> Self {
        Self {
            interface,
            kept_as,
            is_there: true,
            ingress: IngressMode::from_raw(attachment.ingress).unwrap_or(IngressMode::Tc),
            gro: attachment.gro != 0,
            tcx: attachment.filters == Filters::Tcx as u32,
            xdp_refusal: None,
            row: attachment.row,
        }
    }

    /// One that was gone when this process took its group over.
    pub fn gone(ifindex: u32, attachment: &Attachment) -> Self {
        let name = kept_as(attachment);
        let interface = Interface::gone(ifindex, &name);
        Self {
            is_there: false,
            ..Self::of(interface, name, attachment)
        }
    }
}

/// The attachment of an interface before its first program is attached, with this row of the counters.
pub fn first_attachment<F: Function>(
    interface: &Interface,
    options: &Options<F::Settings>,
    row: u32,
) -> Result<Attachment> {
    let filters = filters(F::PROGRAMS, interface, options.tc)?;
    let ingress = match options.ingress {
        _ if F::PROGRAMS.xdp.is_none() => IngressMode::Tc,
        IngressChoice::Tc => IngressMode::Tc,
        IngressChoice::XdpGeneric => IngressMode::XdpGeneric,
        IngressChoice::Xdp => IngressMode::Xdp,
        IngressChoice::Auto if interface.spare_xdp().is_some() => IngressMode::Tc,
        IngressChoice::Auto => IngressMode::Xdp,
    };
    Ok(Attachment {
        ingress: ingress as u32,
        filters: filters as u32,
        row,
        order: F::PROGRAMS.order,
        name: name_bytes(&interface.name)?,
        since: monotonic_ns(),
        lost_in_queue: 0,
        gro: 0,
        places: [FilterPlace::default(); 4],
    })
}

/// What holds the tc programs on an interface. Links go before filters, whatever the order of
/// functions is, so all functions use the same.
fn filters(programs: &Programs, interface: &Interface, choice: TcChoice) -> Result<Filters> {
    let others = others(programs, interface.index)?;
    let of_others = others
        .first()
        .and_then(|other| Filters::from_raw(other.attachment.filters));
    match (choice, of_others) {
        (TcChoice::Auto | TcChoice::Tcx, Some(Filters::Tcx)) => return Ok(Filters::Tcx),
        // Whichever function leaves last removes the qdisc.
        (
            TcChoice::Auto | TcChoice::Clsact,
            Some(clsact @ (Filters::Clsact | Filters::OwnClsact)),
        ) => {
            return Ok(clsact);
        }
        (TcChoice::Clsact | TcChoice::Tcx, Some(present)) => bail!(
            Conflict,
            "{}: another function of xdptun is attached with `tc` {}, and packets would meet the \
             two in the wrong order; give both the same `tc`",
            interface.name,
            present.name()
        ),
        (TcChoice::Tcx, None) => return Ok(Filters::Tcx),
        (TcChoice::Auto, None) if kernel_version()? >= KernelVersion::new(6, 6, 0) => {
            return Ok(Filters::Tcx);
        }
        (TcChoice::Auto | TcChoice::Clsact, None) => {}
    }
    Ok(match clsact::exists(interface.index)? {
        true => Filters::Clsact,
        false => Filters::OwnClsact,
    })
}

/// The programs of a group for one link layer, and the maps that tell where they are attached.
pub struct Hooks<'a, F: Function> {
    /// The directory of the group's pins.
    pub group: &'a Path,
    /// The programs.
    pub loaded: &'a mut Loaded<F>,
    /// These maps.
    pub engine: &'a mut EngineMaps,
    /// Whether restored datagrams may be merged on their way up.
    pub gro: GroChoice,
}

impl<F: Function> Hooks<'_, F> {
    /// Attaches to an interface that has nothing so far; `attachment` is its
    /// [first attachment](first_attachment). With `auto`, tc takes the place of XDP that the interface
    /// refuses.
    pub fn attach(
        &mut self,
        interface: Interface,
        choice: IngressChoice,
        attachment: Attachment,
    ) -> Result<Carried> {
        let splitter = match F::PROGRAMS.splitter {
            Some(_) => Some(splitter::create(interface.index)?),
            None => None,
        };
        let (attachment, refusal) = match self.put(&interface, splitter.as_ref(), attachment) {
            Ok(attachment) => (attachment, spared::<F>(&interface, choice)),
            Err(error) if choice == IngressChoice::Auto => {
                let refusal = match error.kind() {
                    Kind::XdpTaken => "another XDP program is attached",
                    Kind::XdpUnsupported => "the driver does not take the program",
                    _ => return Err(error),
                };
                let attachment = without_xdp(&attachment);
                let attachment = self.put(&interface, splitter.as_ref(), attachment)?;
                (attachment, Some(refusal))
            }
            Err(error) => return Err(error),
        };
        let kept_as = interface.name.clone();
        Ok(Carried {
            xdp_refusal: refusal.map(str::to_owned),
            ..Carried::of(interface, kept_as, &attachment)
        })
    }

    /// Puts the programs on all hooks of an interface whose splitter may be there, in the place
    /// of older ones.
    pub fn replace(&mut self, interface: &Interface, attachment: Attachment) -> Result<Attachment> {
        let splitter = match F::PROGRAMS.splitter {
            Some(_) => Some(splitter::ensure(interface.index)?),
            None => None,
        };
        self.put(interface, splitter.as_ref(), attachment)
    }

    /// Puts the programs on the hooks of an interface, or in the place of older ones, which
    /// `attachment` says more of; no packet passes without a program. Returns the attachment as it
    /// is then.
    fn put(
        &mut self,
        interface: &Interface,
        splitter: Option<&Splitter>,
        mut attachment: Attachment,
    ) -> Result<Attachment> {
        let mode = mode_of(&attachment).and_then(xdp_mode);
        attachment.gro = self.merges(interface, splitter, mode).into();
        load_ahead(&mut self.loaded.ebpf, F::PROGRAMS, mode);
        self.engine.set_attachment(interface.index, attachment)?;
        let directory = pins::member(self.group, interface.index);
        let xdp = F::PROGRAMS.xdp.as_ref();
        if xdp.is_none_or(|xdp| !directory.join(link_name(xdp.linear)).exists()) {
            self.admit(interface, splitter, &without_xdp(&attachment))?;
        }
        // XDP first, for it is what a driver may refuse.
        if let (Some(xdp), Some(mode)) = (xdp, mode) {
            attach_xdp(
                &mut self.loaded.ebpf,
                xdp,
                &directory,
                &interface.name,
                mode,
            )?;
        }
        self.admit(interface, splitter, &attachment)?;
        if let (Some(splitter), Some(programs)) = (splitter, F::PROGRAMS.splitter) {
            let [far, near] = programs.all();
            for (end, program) in [(&splitter.far, far), (&splitter.near, near)] {
                self.put_tc(interface, (&end.name, end.index), program, &mut attachment)?;
            }
        }
        let attachment = self.put_on_interface(interface, attachment)?;
        // What is sent to the joiner comes back to programs that are there.
        if let Some(joining) = splitter.filter(|_| attachment.gro != 0) {
            self.engine.admit(Member {
                far_end: joining.far.index,
                ..member(interface, splitter, &attachment)
            })?;
        }
        Ok(attachment)
    }

    /// Puts the tc programs on the interface that was made anew under the name of one that is
    /// gone, which `attachment` is of: nothing passes there without them. Returns
    /// its own attachment.
    pub fn put_tc_first(
        &mut self,
        interface: &Interface,
        attachment: Attachment,
    ) -> Result<Attachment> {
        let attachment = Attachment {
            gro: 0,
            places: [FilterPlace::default(); 4],
            ..attachment
        };
        self.engine.set_attachment(interface.index, attachment)?;
        self.admit(interface, None, &without_xdp(&attachment))?;
        self.put_on_interface(interface, attachment)
    }

    /// Puts the tc programs on the interface itself.
    fn put_on_interface(
        &mut self,
        interface: &Interface,
        mut attachment: Attachment,
    ) -> Result<Attachment> {
        let device = (interface.name.as_str(), interface.index);
        // Egress before ingress: what ingress hands to egress must find it there.
        for program in F::PROGRAMS.on_interface().rev() {
            self.put_tc(interface, device, program, &mut attachment)?;
        }
        self.engine.set_attachment(interface.index, attachment)?;
        Ok(attachment)
    }

    fn put_tc(
        &mut self,
        interface: &Interface,
        device: (&str, u32),
        (which, name): (TcProgram, &str),
        attachment: &mut Attachment,
    ) -> Result<()> {
        let place = Place {
            programs: F::PROGRAMS,
            directory: &pins::member(self.group, interface.index),
            device,
            which,
            name,
        };
        let held = match attachment.filters == Filters::Tcx as u32 {
            true => Held::Tcx,
            false => Held::Clsact(&mut attachment.places),
        };
        attach_tc(&mut self.loaded.ebpf, place, held)
    }

    /// Lets the splitter merge restored datagrams of the interface on their way up, if it can and
    /// may; returns whether it does. Not with XDP: behind that of a driver comes the interface's
    /// own GRO, and generic XDP does without any. Not without Ethernet, as the pair has it.
    fn merges(
        &self,
        interface: &Interface,
        splitter: Option<&Splitter>,
        xdp: Option<XdpMode>,
    ) -> bool {
        self.gro == GroChoice::Auto
            && xdp.is_none()
            && interface.link_len == EthernetHeader::LEN as u32
            && splitter.is_some_and(Splitter::merge)
    }

    /// Tells the programs of an interface, and of the ends of its splitter.
    fn admit(
        &mut self,
        interface: &Interface,
        splitter: Option<&Splitter>,
        attachment: &Attachment,
    ) -> Result<()> {
        let member = member(interface, splitter, attachment);
        for end in splitter
            .iter()
            .flat_map(|splitter| [&splitter.far, &splitter.near])
        {
            self.engine.admit(Member {
                met_at: end.index,
                ..member
            })?;
        }
        self.engine.admit(member)
    }
}

/// What the programs are told of an interface of which no datagram goes to the joiner yet.
fn member(interface: &Interface, splitter: Option<&Splitter>, attachment: &Attachment) -> Member {
    Member {
        met_at: interface.index,
        index: interface.index,
        mtu: interface.mtu,
        near_end: splitter.map_or(0, |splitter| splitter.near.index),
        far_end: 0,
        ingress: attachment.ingress,
        row: attachment.row,
    }
}

/// Why `auto` does not try XDP on an interface, if it does not.
fn spared<F: Function>(interface: &Interface, choice: IngressChoice) -> Option<&'static str> {
    match choice {
        IngressChoice::Auto if F::PROGRAMS.xdp.is_some() => interface.spare_xdp(),
        _ => None,
    }
}

fn mode_of(attachment: &Attachment) -> Option<IngressMode> {
    IngressMode::from_raw(attachment.ingress)
}

/// The attachment as long as XDP is not there: tc does all the work then.
fn without_xdp(attachment: &Attachment) -> Attachment {
    Attachment {
        ingress: IngressMode::Tc as u32,
        ..*attachment
    }
}
