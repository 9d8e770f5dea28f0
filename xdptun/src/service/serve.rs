//! What the service does between its start and its end: commands, reloads, and
//! interfaces that end by themselves.

use std::num::NonZeroU32;

use tokio::signal::unix::Signal;
use tracing::error;

use super::Service;
use super::ending::Ending;
use super::states::InterfaceState;
use crate::control::{Asker, Command, Control};
use crate::error::Result;
use crate::observe::capture::serve::serve;

impl Service {
    /// Serves commands and reloads. Returns when no interface is left.
    pub(super) async fn serve(
        &mut self,
        mut control: Option<Control>,
        mut hang_up: Option<Signal>,
    ) -> Result<Ending> {
        loop {
            let asked = async {
                match &mut control {
                    Some(control) => control.next().await,
                    None => std::future::pending().await,
                }
            };
            let hung_up = async {
                match &mut hang_up {
                    Some(signal) => signal.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = hung_up => {
                    let _told = self.reload().await;
                }
                (command, asker) = asked => self.obey(command, asker).await,
                Some(_) = self.captures.join_next() => {}
                Some(ended) = self.tasks.join_next() => {
                    self.note_end(ended?);
                    if self.links.is_empty() {
                        return Ok(Ending::Stop);
                    }
                }
            }
        }
    }

    /// Does what a client asks for.
    async fn obey(&mut self, command: Command, asker: Asker) {
        match command {
            Command::Reload => {
                let _told = asker.answer(&self.reload().await).await;
            }
            Command::Capture {
                interface,
                snap_len,
                version,
            } => self.capture(&interface, snap_len, version, asker).await,
        }
    }

    /// Has the packets of an interface recorded for a client.
    async fn capture(
        &mut self,
        interface: &str,
        snap_len: NonZeroU32,
        version: String,
        asker: Asker,
    ) {
        match self.links.get(interface) {
            Some(link) => {
                let serve = serve(link.handle.clone(), snap_len, version, asker);
                self.captures.spawn_local(serve);
            }
            None => {
                let why = "the running xdptun does not keep it any more".to_owned();
                let _told = asker.answer(&Err(why)).await;
            }
        }
    }

    /// Notes that an interface has ended by itself. The others go on.
    pub(super) fn note_end(&mut self, (name, result): (String, Result<()>)) {
        self.links.remove(&name);
        match result {
            Ok(()) => self.states.forget(&name),
            Err(why) => {
                let why = format!("{why:#}");
                // Without a file it is the only one, and `end` returns its error.
                if self.mode.file.is_some() {
                    error!("{name}: given up: {why}");
                }
                self.states.set(&name, InterfaceState::GivenUp(why));
            }
        }
    }

    /// Waits until an interface has ended; returns its result.
    pub(super) async fn until_ended(&mut self, name: &str) -> Result<()> {
        while let Some(ended) = self.tasks.join_next().await {
            let ended = ended?;
            if ended.0 == name {
                self.links.remove(name);
                return ended.1;
            }
            self.note_end(ended);
        }
        Ok(())
    }
}
