//! The state of each interface, for each function that works on it. The status line of the
//! service manager, the answer to a reload, `xdptun status` and the result of the service are
//! all made from it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::control::{Report, ReportedState};
use crate::group::Function;
use crate::process::notify;

/// The state of an interface.
#[derive(Debug)]
pub enum InterfaceState {
    /// There is no interface of that name; the service waits for it.
    Waiting,
    /// The function works on it, in these words.
    Carrying(String),
    /// It cannot go on, for this reason. Programs may still be attached.
    GivenUp(String),
}

impl InterfaceState {
    /// In words, for the service manager.
    fn text(&self, name: &str) -> String {
        match self {
            Self::Waiting => format!("{name}: waiting for the interface"),
            Self::Carrying(words) => words.clone(),
            Self::GivenUp(why) => format!("{name}: given up: {why}"),
        }
    }

    fn report(&self, name: &str, function: &str) -> Report {
        let (state, reason) = match self {
            Self::Waiting => (ReportedState::Waiting, None),
            Self::Carrying(_) => (ReportedState::Carrying, None),
            Self::GivenUp(why) => (ReportedState::GivenUp, Some(why.clone())),
        };
        Report {
            name: name.to_owned(),
            function: function.to_owned(),
            state,
            reason,
        }
    }
}

/// The interfaces of a service, by name and function.
#[derive(Debug, Default)]
pub struct States {
    interfaces: RefCell<BTreeMap<(String, &'static str), InterfaceState>>,
    /// The last status line.
    told: RefCell<String>,
}

impl States {
    /// The state of each interface.
    pub fn report(&self) -> Vec<Report> {
        let interfaces = self.interfaces.borrow();
        let reports = interfaces
            .iter()
            .map(|((name, function), state)| state.report(name, function));
        reports.collect()
    }

    /// The names of those that were given up, and why.
    pub fn given_up(&self) -> Vec<(String, String)> {
        let interfaces = self.interfaces.borrow();
        let given_up = interfaces
            .iter()
            .filter_map(|((name, _), state)| match state {
                InterfaceState::GivenUp(why) => Some((name.clone(), why.clone())),
                InterfaceState::Waiting | InterfaceState::Carrying(_) => None,
            });
        given_up.collect()
    }

    /// Sends the service manager a new status line, if it changed.
    fn tell(&self) {
        let interfaces = self.interfaces.borrow();
        let texts = interfaces.iter().map(|((name, _), state)| state.text(name));
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

/// The interfaces on which one function works, by name.
#[derive(Clone, Debug)]
pub struct InterfaceStates {
    all: Rc<States>,
    function: &'static str,
}

impl InterfaceStates {
    /// Those of a function, among all states of the service.
    pub fn of<F: Function>(all: &Rc<States>) -> Self {
        Self {
            all: Rc::clone(all),
            function: F::PROGRAMS.function,
        }
    }

    fn key(&self, name: &str) -> (String, &'static str) {
        (name.to_owned(), self.function)
    }

    /// Sets the state of an interface.
    pub fn set(&self, name: &str, state: InterfaceState) {
        let mut interfaces = self.all.interfaces.borrow_mut();
        interfaces.insert(self.key(name), state);
        drop(interfaces);
        self.all.tell();
    }

    /// Removes an interface that the configuration no longer has.
    pub fn forget(&self, name: &str) {
        self.all.interfaces.borrow_mut().remove(&self.key(name));
        self.all.tell();
    }

    /// The names of all interfaces.
    pub fn names(&self) -> Vec<String> {
        let interfaces = self.all.interfaces.borrow();
        let own = interfaces
            .keys()
            .filter(|(_, function)| *function == self.function);
        own.map(|(name, _)| name.clone()).collect()
    }

    /// Whether the service waits for an interface.
    pub fn is_waiting(&self, name: &str) -> bool {
        matches!(
            self.all.interfaces.borrow().get(&self.key(name)),
            Some(InterfaceState::Waiting)
        )
    }

    /// Whether the service gave an interface up.
    pub fn is_given_up(&self, name: &str) -> bool {
        matches!(
            self.all.interfaces.borrow().get(&self.key(name)),
            Some(InterfaceState::GivenUp(_))
        )
    }
}

/// The line of a reload for an interface that the service waits for.
pub fn waited_for(name: &str) -> String {
    format!("{name}: waited for, as there is no such interface")
}
