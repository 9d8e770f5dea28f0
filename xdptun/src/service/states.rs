//! The state of each interface. The status line of the service manager, the answer to a
//! reload, `xdptun status` and the result of the service are all made from it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::control::{Report, ReportedState};
use crate::host::ports::{PortRange, carries};
use crate::process::notify;

/// The state of an interface.
#[derive(Debug)]
pub enum InterfaceState {
    /// There is no interface of that name; the service waits for it.
    Waiting,
    /// It carries datagrams of these ports.
    Carrying(Vec<PortRange>),
    /// It cannot go on, for this reason. Programs may still be attached.
    GivenUp(String),
}

impl InterfaceState {
    /// In words, for the service manager.
    fn text(&self, name: &str) -> String {
        match self {
            Self::Waiting => format!("{name}: waiting for the interface"),
            Self::Carrying(ports) => carries(name, ports),
            Self::GivenUp(why) => format!("{name}: given up: {why}"),
        }
    }

    fn report(&self, name: &str) -> Report {
        let (state, reason) = match self {
            Self::Waiting => (ReportedState::Waiting, None),
            Self::Carrying(_) => (ReportedState::Carrying, None),
            Self::GivenUp(why) => (ReportedState::GivenUp, Some(why.clone())),
        };
        Report {
            name: name.to_owned(),
            state,
            reason,
        }
    }
}

/// The interfaces of a service, by name.
#[derive(Debug, Default)]
pub struct InterfaceStates {
    interfaces: RefCell<BTreeMap<String, InterfaceState>>,
    /// The last status line.
    told: RefCell<String>,
}

impl InterfaceStates {
    /// Sets the state of an interface.
    pub fn set(&self, name: &str, state: InterfaceState) {
        self.interfaces.borrow_mut().insert(name.to_owned(), state);
        self.tell();
    }

    /// Removes an interface that the configuration no longer has.
    pub fn forget(&self, name: &str) {
        self.interfaces.borrow_mut().remove(name);
        self.tell();
    }

    /// The names of all interfaces.
    pub fn names(&self) -> Vec<String> {
        self.interfaces.borrow().keys().cloned().collect()
    }

    /// Whether the service waits for an interface.
    pub fn is_waiting(&self, name: &str) -> bool {
        matches!(
            self.interfaces.borrow().get(name),
            Some(InterfaceState::Waiting)
        )
    }

    /// Whether the service gave an interface up.
    pub fn is_given_up(&self, name: &str) -> bool {
        matches!(
            self.interfaces.borrow().get(name),
            Some(InterfaceState::GivenUp(_))
        )
    }

    /// The state of each interface.
    pub fn report(&self) -> Vec<Report> {
        let interfaces = self.interfaces.borrow();
        let reports = interfaces.iter().map(|(name, state)| state.report(name));
        reports.collect()
    }

    /// The names of those that were given up, and why.
    pub fn given_up(&self) -> Vec<(String, String)> {
        let interfaces = self.interfaces.borrow();
        let given_up = interfaces.iter().filter_map(|(name, state)| match state {
            InterfaceState::GivenUp(why) => Some((name.clone(), why.clone())),
            InterfaceState::Waiting | InterfaceState::Carrying(_) => None,
        });
        given_up.collect()
    }

    /// Sends the service manager a new status line, if it changed.
    fn tell(&self) {
        let interfaces = self.interfaces.borrow();
        let texts = interfaces.iter().map(|(name, state)| state.text(name));
        let text = match texts.collect::<Vec<_>>().join("; ") {
            nothing if nothing.is_empty() => "nothing is carried".to_owned(),
            // A line break would end the status line.
            text => text.replace('\n', " "),
        };
        if *self.told.borrow() != text {
            notify::status(&text);
            self.told.replace(text);
        }
    }
}
