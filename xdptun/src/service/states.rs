//! What becomes of each interface. All that is told of it comes from here: the
//! status line of a service manager, the answer to a reload, `xdptun status`, and
//! how the service ends.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::notify;
use crate::ports::{PortRange, carries};

/// What has become of an interface.
#[derive(Debug)]
pub enum State {
    /// There is none of that name; it is waited for.
    Waiting,
    /// Datagrams of these ports are carried on it.
    Carrying(Vec<PortRange>),
    /// It cannot go on, for this reason. What was attached may still be.
    GivenUp(String),
}

impl State {
    /// In words, for who reads them.
    fn text(&self, name: &str) -> String {
        match self {
            Self::Waiting => format!("{name}: waiting for the interface"),
            Self::Carrying(ports) => carries(name, ports),
            Self::GivenUp(why) => format!("{name}: given up: {why}"),
        }
    }

    fn report(&self, name: &str) -> Report {
        let (state, reason) = match self {
            Self::Waiting => (Stage::Waiting, None),
            Self::Carrying(_) => (Stage::Carrying, None),
            Self::GivenUp(why) => (Stage::GivenUp, Some(why.clone())),
        };
        Report {
            name: name.to_owned(),
            state,
            reason,
        }
    }
}

/// An interface as the service tells others of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Its name in the file.
    pub name: String,
    /// What has become of it.
    pub state: Stage,
    /// Why it was given up, if it was.
    pub reason: Option<String>,
}

/// What has become of an interface, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It is not there, and waited for.
    Waiting,
    /// It carries datagrams.
    Carrying,
    /// It cannot be carried, and was given up.
    GivenUp,
}

/// The interfaces of a service, by name.
#[derive(Debug, Default)]
pub struct States {
    interfaces: RefCell<BTreeMap<String, State>>,
    /// What a service manager heard last.
    told: RefCell<String>,
}

impl States {
    /// Notes what has become of an interface.
    pub fn set(&self, name: &str, state: State) {
        self.interfaces.borrow_mut().insert(name.to_owned(), state);
        self.tell();
    }

    /// Notes that an interface is not wanted any more.
    pub fn forget(&self, name: &str) {
        self.interfaces.borrow_mut().remove(name);
        self.tell();
    }

    /// The names of all that are wanted.
    pub fn names(&self) -> Vec<String> {
        self.interfaces.borrow().keys().cloned().collect()
    }

    /// Whether an interface is waited for.
    pub fn is_waiting(&self, name: &str) -> bool {
        matches!(self.interfaces.borrow().get(name), Some(State::Waiting))
    }

    /// Each of them.
    pub fn report(&self) -> Vec<Report> {
        let interfaces = self.interfaces.borrow();
        let reports = interfaces.iter().map(|(name, state)| state.report(name));
        reports.collect()
    }

    /// The names of those that were given up, and why.
    pub fn given_up(&self) -> Vec<(String, String)> {
        let interfaces = self.interfaces.borrow();
        let given_up = interfaces.iter().filter_map(|(name, state)| match state {
            State::GivenUp(why) => Some((name.clone(), why.clone())),
            State::Waiting | State::Carrying(_) => None,
        });
        given_up.collect()
    }

    /// Tells a service manager, if there is anything new.
    fn tell(&self) {
        let interfaces = self.interfaces.borrow();
        let texts = interfaces.iter().map(|(name, state)| state.text(name));
        let text = match texts.collect::<Vec<_>>().join("; ") {
            nothing if nothing.is_empty() => "nothing is carried".to_owned(),
            // A line break would end it.
            text => text.replace('\n', " "),
        };
        if *self.told.borrow() != text {
            notify::status(&text);
            self.told.replace(text);
        }
    }
}
