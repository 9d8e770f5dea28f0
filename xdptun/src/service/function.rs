//! What the service needs to know of a function, beside what its group does.

use crate::error::Result;
use crate::gateway::Gateway;
use crate::group::{Attached, Carried, Function};
use crate::host::ports::carries;
use crate::nat64::{self, Nat64};
use crate::policy::Policy;
use crate::tunnel::Tunnel;

/// A function that the service can run.
pub trait ServiceFunction: Function {
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
    fn describe(
        attached: &Attached<Self>,
        carried: &Carried,
        plan: &Self::Plan,
    ) -> Result<Option<String>>;
}

impl ServiceFunction for Tunnel {
    fn interfaces(_: &mut Self::Plan, names: &[String]) -> Result<Vec<String>> {
        Ok(names.to_vec())
    }

    fn describe(
        attached: &Attached<Self>,
        carried: &Carried,
        _: &Self::Plan,
    ) -> Result<Option<String>> {
        Ok(Some(carries(&carried.kept_as, &attached.maps.ports()?)))
    }
}

impl ServiceFunction for Nat64 {
    fn interfaces(_: &mut Self::Plan, names: &[String]) -> Result<Vec<String>> {
        Ok(names.to_vec())
    }

    fn describe(
        _: &Attached<Self>,
        carried: &Carried,
        plan: &nat64::Plan,
    ) -> Result<Option<String>> {
        Ok(Some(format!("{} {}", carried.kept_as, plan.does())))
    }
}

impl ServiceFunction for Gateway {
    fn interfaces(plan: &mut Self::Plan, names: &[String]) -> Result<Vec<String>> {
        // Routes may have changed while the service waited.
        plan.refresh()?;
        let mut all = plan.interfaces_to_attach()?;
        // One of a plan that is still to come, for example.
        all.extend(
            names
                .iter()
                .filter(|name| !all.contains(name))
                .cloned()
                .collect::<Vec<_>>(),
        );
        Ok(all)
    }

    fn describe(
        _: &Attached<Self>,
        carried: &Carried,
        plan: &Self::Plan,
    ) -> Result<Option<String>> {
        let name = &carried.kept_as;
        let words = plan.does_on(name);
        Ok(words.map(|words| format!("{name} {words}")))
    }
}

impl ServiceFunction for Policy {
    fn interfaces(_: &mut Self::Plan, names: &[String]) -> Result<Vec<String>> {
        Ok(names.to_vec())
    }

    fn describe(
        _: &Attached<Self>,
        carried: &Carried,
        plan: &Self::Plan,
    ) -> Result<Option<String>> {
        let name = &carried.kept_as;
        let words = plan.does_on(name);
        Ok(words.map(|words| format!("{name} {words}")))
    }
}
