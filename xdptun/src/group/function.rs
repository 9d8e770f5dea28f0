//! A function of xdptun, as the group of interfaces sees it that it works on.

use std::path::Path;

use aya::Ebpf;

use super::attached::Attached;
use super::counter::Counter;
use super::handle::Reason;
use super::options::{Contradiction, Options};
use super::orders::{End, Orders};
use crate::datapath::map::Source;
use crate::datapath::programs::Programs;
use crate::error::Result;
use crate::host::interface::Interface;

/// What xdptun does with packets: programs with their maps, set up by a plan, and a daemon.
pub trait Function: Sized + 'static {
    /// Its programs, and where they stand on a hook.
    const PROGRAMS: &'static Programs;

    /// What packets are behind its programs, in a word for captures.
    const BEHIND: &'static str;

    /// What the configuration asks for. Two are equal if they come from the same configuration.
    type Plan: Clone + PartialEq;
    /// What its programs and maps are set up with, beside what any function has.
    type Settings: Clone + PartialEq;
    /// The maps that outlive the process, beside
    /// [those of any function](crate::datapath::engine_maps::EngineMaps).
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

    /// Makes the [device](Programs::device) of the function, or gives the one that is there what it is to
    /// have; returns whether it was made.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, or a foreign device has its name.
    fn make_device(_: &Self::Plan) -> Result<bool> {
        Ok(false)
    }

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

    /// Clears what maps hold of the interface with this row, which has left; another one may get
    /// the row.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    fn clear_row(_: &mut Self::Maps, _: u32) -> Result<()> {
        Ok(())
    }

    /// The name of what its programs note as deciding about a packet, by number; none if the maps do
    /// not tell.
    fn detail(_: &Self::Maps, _: u8) -> Option<String> {
        None
    }

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
