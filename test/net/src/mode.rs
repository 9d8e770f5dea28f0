//! The ways to attach.

use std::panic::resume_unwind;
use std::thread;

use anyhow::Result;
use xdptun_lab::{Attached, Direct, Host};

use crate::PORT;

/// Hooks of one attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    /// Value of `--ingress`.
    pub ingress: &'static str,
    /// Value of `--tc`.
    pub tc: &'static str,
}

/// tc on both ways, as the program attaches it: through TCX links where the
/// kernel has them, otherwise through clsact filters.
pub const TC: Mode = mode("tc", "auto");
/// XDP in the driver.
pub const XDP: Mode = mode("xdp", "auto");
/// XDP in the stack.
pub const XDP_GENERIC: Mode = mode("xdp-generic", "auto");
/// tc on both ways, through clsact filters.
pub const TC_CLSACT: Mode = mode("tc", "clsact");
/// XDP in the driver, tc through clsact filters.
pub const XDP_CLSACT: Mode = mode("xdp", "clsact");

/// Every restorer, and every way to attach tc.
pub const ALL: [Mode; 5] = [TC, XDP, XDP_GENERIC, TC_CLSACT, XDP_CLSACT];

const fn mode(ingress: &'static str, tc: &'static str) -> Mode {
    Mode { ingress, tc }
}

impl Mode {
    /// Attaches to a host in this mode, with further arguments.
    pub fn attach(self, host: &Host, args: &[&str]) -> Result<Attached> {
        let mut all = vec!["--ingress", self.ingress, "--tc", self.tc];
        all.extend(args);
        Attached::start(&host.netns, Host::DEV, &all)
    }

    /// Attaches to both hosts with [`PORT`] as the owned port.
    pub fn attach_both(self, net: &Direct) -> Result<[Attached; 2]> {
        self.attach_to([&net.a, &net.b])
    }

    /// Attaches to several hosts at once, for the verifier takes its time.
    pub fn attach_to<const N: usize>(self, hosts: [&Host; N]) -> Result<[Attached; N]> {
        self.attach_with(hosts, &[])
    }

    /// The same with further arguments.
    pub fn attach_with<const N: usize>(
        self,
        hosts: [&Host; N],
        more: &[&str],
    ) -> Result<[Attached; N]> {
        let port = &PORT.to_string();
        let args = &[&["--port", port], more].concat();
        at_once(hosts, |host| self.attach(host, args))
    }

    /// Attaches to several interfaces of a host in one process, with further arguments.
    pub fn attach_group(self, host: &Host, devs: &[&str], args: &[&str]) -> Result<Attached> {
        let mode = ["--ingress", self.ingress, "--tc", self.tc];
        Attached::start_group(&host.netns, devs, &[&mode, args].concat())
    }

    /// The same on several hosts at once, with [`PORT`] as the owned port.
    pub fn attach_groups<const N: usize>(
        self,
        hosts: [&Host; N],
        devs: &[&str],
        more: &[&str],
    ) -> Result<[Attached; N]> {
        let port = &PORT.to_string();
        let args = &[&["--port", port], more].concat();
        at_once(hosts, |host| self.attach_group(host, devs, args))
    }
}

fn at_once<const N: usize>(
    hosts: [&Host; N],
    attach: impl Fn(&Host) -> Result<Attached> + Sync,
) -> Result<[Attached; N]> {
    let attached: Result<Vec<_>> = thread::scope(|scope| {
        let attach = &attach;
        let started = hosts.map(|host| scope.spawn(move || attach(host)));
        let started = started.into_iter();
        started
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    let attached: [Attached; N] = match attached?.try_into() {
        Ok(attached) => attached,
        Err(_) => unreachable!("one for each host"),
    };
    Ok(attached)
}
