//! Changes of a group's plan, and the options that its programs have.

use super::attached::Attached;
use super::function::Function;
use super::options::{Options, Recorded};
use super::run::Group;
use crate::error::Result;

impl<F: Function> Group<F> {
    /// Applies a plan, with new programs in the place of the old ones if necessary; returns
    /// whether it was. On failure everything is as it was.
    pub(super) fn change(&mut self, plan: F::Plan) -> Result<bool> {
        let (before, after) = (self.options(), self.recorded(F::options(&plan)));
        let other_programs = take_other_programs::<F>(&after, &before);
        let changed = if other_programs {
            self.replace(&after)
        } else if after != before {
            F::change(&mut self.attached, &after.settings)
        } else {
            Ok(())
        };
        if let Err(error) = changed {
            // Some of the programs may be new, and have maps of their own.
            let undone = match other_programs {
                true => self.replace(&before),
                false => F::change(&mut self.attached, &before.settings),
            };
            return Err(match undone {
                Ok(()) => error,
                Err(also) => error.context(format!("and cannot be undone: {also:#}")),
            });
        }
        self.plan = plan;
        Ok(other_programs)
    }

    fn replace(&mut self, options: &Options<F::Settings>) -> Result<()> {
        let group = self.attached.group.clone();
        self.attached = Attached::adopt(&group, options)?;
        if let (Some(recording), Some(recorder)) = (&self.recording, self.attached.take_recorder())
        {
            recording.feed(recorder);
        }
        Ok(())
    }

    /// The options that its programs should have.
    pub(super) fn options(&self) -> Options<F::Settings> {
        self.recorded(F::options(&self.plan))
    }

    /// The same options, with recording if a client captures.
    fn recorded(&self, options: Options<F::Settings>) -> Options<F::Settings> {
        let record = self.recording.as_ref().and_then(|recording| {
            let mut present = self.attached.present();
            let interface = present.find(|one| one.kept_as == recording.interface)?;
            Some(Recorded {
                link_len: interface.interface.link_len,
                snap_len: recording.snap_len,
            })
        });
        Options { record, ..options }
    }

    /// Loads the programs anew. Flows go on: the new programs use the same table.
    pub(super) fn renew(&mut self) -> Result<()> {
        self.replace(&self.options())?;
        self.attached.adopted = false;
        Ok(())
    }
}

/// Whether options need other programs than those before.
fn take_other_programs<F: Function>(
    after: &Options<F::Settings>,
    before: &Options<F::Settings>,
) -> bool {
    let common = |options: &Options<F::Settings>| {
        let hooks = (options.ingress, options.gro, options.tc);
        (hooks, options.trace, options.record)
    };
    common(after) != common(before) || F::takes_other_programs(&after.settings, &before.settings)
}
