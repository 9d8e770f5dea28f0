//! Whether the options of a group can take the place of those that are attached.

use clap::ValueEnum;
use xdptun_common::attachment::{Filters, IngressMode};

use super::function::Function;
use super::options::{Contradiction, Options};
use super::pinned::Pinned;
use crate::config::{IngressChoice, TcChoice};
use crate::error::{Result, bail};
use crate::host::interface::Interface;

impl<S: Clone> Options<S> {
    /// Checks that options change nothing that is fixed while programs are attached.
    ///
    /// # Errors
    ///
    /// Names the option and the way out.
    pub fn check<F: Function<Settings = S>>(&self, pinned: &Pinned<F>) -> Result<()> {
        let fixed = self.contradiction(pinned);
        let fixed = fixed.or_else(|| F::contradiction(&self.settings, &pinned.group.maps));
        let Some(Contradiction {
            option,
            wanted,
            has,
        }) = fixed
        else {
            return Ok(());
        };
        let (name, in_file) = (pinned.name(), pinned.kept_as());
        bail!(
            CannotChange,
            "what is attached has `{option}` {has}, which cannot become {wanted} while it is attached; \
             leave the option as it was, or detach first (`xdptun detach --iface {name}`; under \
             `xdptun run` take {in_file} out of the file, reload, and put it back)"
        )
    }

    fn contradiction<F: Function>(&self, pinned: &Pinned<F>) -> Option<Contradiction> {
        let (ingress, filters) = (pinned.ingress(), pinned.filters());
        let ingress_fits = match self.ingress {
            IngressChoice::Auto => true,
            IngressChoice::Tc => ingress == IngressMode::Tc,
            IngressChoice::Xdp => ingress == IngressMode::Xdp,
            IngressChoice::XdpGeneric => ingress == IngressMode::XdpGeneric,
        };
        let tc_fits = match self.tc {
            TcChoice::Auto => true,
            TcChoice::Tcx => filters == Filters::Tcx,
            TcChoice::Clsact => filters != Filters::Tcx,
        };
        if !ingress_fits {
            return Some(Contradiction {
                option: "ingress",
                wanted: name_of(self.ingress),
                has: ingress.name().to_owned(),
            });
        }
        (!tc_fits).then(|| Contradiction {
            option: "tc",
            wanted: name_of(self.tc),
            has: filters.name().to_owned(),
        })
    }
}

/// Checks that the present attachment of an interface, if there is one, can change to these
/// options.
///
/// # Errors
///
/// Names the option that cannot change ([kind](crate::error::Kind) `CannotChange`), and the
/// way out.
pub fn check<F: Function>(options: &Options<F::Settings>, name: &str) -> Result<()> {
    let pinned = match Interface::find(name) {
        Ok(interface) => Pinned::<F>::open(interface.index)?,
        // It is gone, or renamed.
        Err(_) => {
            let mut all = Pinned::<F>::all()?.into_iter();
            all.find(|pinned| pinned.kept_as() == name)
        }
    };
    pinned.map_or(Ok(()), |pinned| options.check(&pinned))
}

/// As it is written on the command line and in a file.
fn name_of(choice: impl ValueEnum) -> String {
    let value = choice.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}
