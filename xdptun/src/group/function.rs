//! A function of xdptun, as the group of interfaces sees it that it works on.

use std::num::NonZeroU32;
use std::path::Path;

use aya::Ebpf;

use super::attached::Attached;
use super::counter::Counter;
use super::handle::Reason;
use super::orders::{End, Orders};
use crate::config::{IngressChoice, LogLevel, TcChoice};
use crate::datapath::map::Source;
use crate::datapath::programs::Programs;
use crate::error::Result;
use crate::host::interface::Interface;

/// What xdptun does with packets: programs with their maps, set up by a plan, and a daemon.
pub trait Function: Sized + 'static {
    /// Its programs, and where they stand on a hook.
    const PROGRAMS: &'static Programs;

    /// What the configuration asks for. Two are equal if they come from the same configuration.
    type Plan: Clone + PartialEq;
    /// What its programs and maps are set up with, beside what any function has.
    type Settings: Clone + PartialEq;
    /// The maps that outlive the process, beside
    /// [those of any function](crate::datapath::records::Records).
    type Maps;
    /// The maps of one set of programs that are not pinned.
    type Own;
    /// The receiver of its daemon's news.
    type Observer: ?Sized;

    /// What it counts on each interface, in the order of status output.
    fn counters() -> Vec<Counter>;

    /// What a plan sets up, as far as it is known.
    fn options(plan: &Self::Plan) -> Options<Self::Settings>;

    /// What is fixed while programs are attached, and should be otherwise.
    fn contradiction(settings: &Self::Settings, maps: &Self::Maps) -> Option<Contradiction>;

    /// Whether other settings need other programs. What else differs can change while programs
    /// run.
    fn takes_other_programs(settings: &Self::Settings, before: &Self::Settings) -> bool;

    /// Loads the object for the link layer of an interface, with maps that are pinned in a
    /// directory. The kernel loads a program only when it is first attached; so the object
    /// stays open.
    ///
    /// # Errors
    ///
    /// If the kernel refuses it.
    fn load(
        options: &Options<Self::Settings>,
        interface: &Interface,
        directory: &Path,
    ) -> Result<(Ebpf, Self::Own)>;

    /// The maps of a loaded object or of pins.
    ///
    /// # Errors
    ///
    /// If one is missing, or is not what its name says.
    fn maps(source: &mut Source<'_>) -> Result<Self::Maps>;

    /// Fills maps before anything is attached.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    fn set_up(maps: &mut Self::Maps, own: &Self::Own, settings: &Self::Settings) -> Result<()>;

    /// Removes from maps what only older programs asked for, all of which are replaced.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    fn tidy(maps: &mut Self::Maps, settings: &Self::Settings) -> Result<()>;

    /// Applies settings while programs run that fit them.
    ///
    /// # Errors
    ///
    /// If maps cannot be written.
    fn change(attached: &mut Attached<Self>, settings: &Self::Settings) -> Result<()>;

    /// Tells all programs of the interfaces that they run on, by index.
    ///
    /// # Errors
    ///
    /// If maps cannot be written.
    fn interfaces_changed(attached: &mut Attached<Self>, interfaces: &[u32]) -> Result<()>;

    /// Runs the daemon until an order ends it, an interface goes, or one of the `missing`
    /// comes. Calls `ready` after the last step of the start that can fail. Can be called
    /// again after a pause.
    ///
    /// # Errors
    ///
    /// If the daemon cannot do its work, or if `ready` fails.
    fn run(
        attached: &mut Attached<Self>,
        plan: &Self::Plan,
        missing: &[String],
        orders: &mut Orders<Reason<Self::Plan>>,
        observer: &Self::Observer,
        ready: impl FnOnce(&mut Attached<Self>) -> Result<()>,
    ) -> impl Future<Output = Result<End<Reason<Self::Plan>>>>;
}

/// An option that cannot become what is wanted while programs are attached.
pub struct Contradiction {
    /// Its name in a file.
    pub option: &'static str,
    /// The value that it should have.
    pub wanted: String,
    /// The value that it has.
    pub has: String,
}

/// How programs are attached and set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options<S> {
    /// Which program handles what comes in.
    pub ingress: IngressChoice,
    /// How the tc programs are attached.
    pub tc: TcChoice,
    /// Whether the programs log every packet.
    pub trace: Trace,
    /// What the programs copy for a capture, if there is one.
    pub record: Option<Recorded>,
    /// The function's own.
    pub settings: S,
}

/// Whether the programs log every packet, which is slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trace {
    /// They log none.
    #[default]
    Off,
    /// They log every one.
    On,
}

impl From<LogLevel> for Trace {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Trace => Self::On,
            LogLevel::Error | LogLevel::Warn | LogLevel::Info | LogLevel::Debug => Self::Off,
        }
    }
}

/// What the programs copy for a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The length of the link header of the interface, in bytes. The programs for other link
    /// layers copy nothing.
    pub link_len: u32,
    /// How many bytes of each packet.
    pub snap_len: NonZeroU32,
}

impl<S: Clone> Options<S> {
    /// How many bytes of each packet the programs for this link layer copy, if they copy any.
    pub fn record_at(&self, link_len: u32) -> Option<NonZeroU32> {
        let record = self.record.filter(|record| record.link_len == link_len);
        record.map(|record| record.snap_len)
    }

    /// Whether these options need other programs than `before`.
    pub fn take_other_programs<F: Function<Settings = S>>(&self, before: &Self) -> bool {
        (self.ingress, self.tc, self.trace, self.record)
            != (before.ingress, before.tc, before.trace, before.record)
            || F::takes_other_programs(&self.settings, &before.settings)
    }
}
