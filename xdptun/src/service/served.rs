//! What the service needs to know of a function, beside what its group does.

use crate::error::Result;
use crate::gateway::Gateway;
use crate::group::{Attached, Carried, Function};
use crate::host::ports::carries;
use crate::tunnel::Tunnel;

/// A function that the service can run.
pub trait Served: Function {
    /// The interfaces to attach to now: those that the configuration names, and those that the
    /// plan needs besides.
    ///
    /// # Errors
    ///
    /// If the kernel or pins do not tell.
    fn interfaces(plan: &mut Self::Plan, names: &[String]) -> Result<Vec<String>>;

    /// What it does on an interface, in words; none if the configuration does not name that.
    ///
    /// # Errors
    ///
    /// If maps cannot be read.
    fn works_on(
        attached: &Attached<Self>,
        carried: &Carried,
        plan: &Self::Plan,
    ) -> Result<Option<String>>;
}

impl Served for Tunnel {
    fn interfaces(_: &mut Self::Plan, names: &[String]) -> Result<Vec<String>> {
        Ok(names.to_vec())
    }

    fn works_on(
        attached: &Attached<Self>,
        carried: &Carried,
        _: &Self::Plan,
    ) -> Result<Option<String>> {
        Ok(Some(carries(&carried.kept_as, &attached.maps.ports()?)))
    }
}

impl Served for Gateway {
    fn interfaces(plan: &mut Self::Plan, _: &[String]) -> Result<Vec<String>> {
        // Routes may have changed while the service waited.
        plan.refresh()?;
        plan.interfaces_to_attach()
    }

    fn works_on(
        _: &Attached<Self>,
        carried: &Carried,
        plan: &Self::Plan,
    ) -> Result<Option<String>> {
        Ok(plan.forwards_by(&carried.kept_as))
    }
}
