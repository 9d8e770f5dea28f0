//! A server that answers.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Result;
use xdptun_lab::{Family, Host};
use xdptun_test_net::{PORT, socket};

use super::gate::Gate;
use super::worker::{Worker, receive};
use crate::content::Way;
use crate::journal::Flaw;
use crate::ledger::Ledger;

/// The server's sockets.
#[derive(Debug)]
pub struct Server {
    _workers: Vec<Worker>,
}

impl Server {
    /// Answers every question that comes from `router` with a datagram of the
    /// same name and length.
    pub fn start(
        host: &Host,
        gate: &Arc<Gate>,
        router: impl Fn(Family) -> IpAddr,
        ledger: &Arc<Ledger>,
    ) -> Result<Self> {
        let serve = |family: Family| {
            let socket = socket::roomy(&host.netns, host.socket(family, PORT))?;
            socket::never_fragment(&socket, family)?;
            let (router, gate, ledger) = (router(family), Arc::clone(gate), Arc::clone(ledger));
            let journal = Arc::clone(&ledger.journal);
            Worker::start(&journal, move |stopped| {
                receive(&socket, stopped, |bytes, from| {
                    if from.ip() != router {
                        let text = format!("{} bytes at the server from {from}", bytes.len());
                        return ledger.journal.find(Flaw::Stranger, &text);
                    }
                    let Some(name) = ledger.read(Way::Question, bytes, from) else {
                        return;
                    };
                    let judged = ledger.hear(family, name);
                    if ledger.journal.check(Flaw::Duplicated, judged).is_none() {
                        return;
                    }
                    ledger.counts.heard.fetch_add(1, Ordering::Relaxed);
                    let answer = name.datagram(Way::Answer);
                    let _open = gate.pass();
                    let sent = socket.send_to(&answer, from);
                    ledger.add(&ledger.counts.answered, sent, &[name]);
                })
            })
        };
        let workers = Family::BOTH.map(serve);
        Ok(Self {
            _workers: workers.into_iter().collect::<Result<_>>()?,
        })
    }
}
