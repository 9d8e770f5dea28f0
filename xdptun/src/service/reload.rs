//! A reload: the service reads the file again and applies what changed, or nothing.

use tracing::{error, info};

use super::Service;
use super::start::{Prepared, keep};
use super::states::InterfaceState;
use crate::config::Config;
use crate::control::Answer;
use crate::error::{Context as _, Result};
use crate::tunnel::Reason;
use crate::tunnel::daemon::Order;
use crate::tunnel::detach;

impl Service {
    /// Reads the file again and applies what changed, or nothing.
    pub(super) async fn reload(&mut self) -> Answer {
        let mut done = Vec::new();
        let result = self.apply(&mut done).await;
        if let Err(error) = result {
            let text = match &done[..] {
                [] => format!("nothing was changed: {error:#}"),
                done => format!("only in part ({}): {error:#}", done.join("; ")),
            };
            error!("not reloaded: {text}");
            return Err(text);
        }
        if done.is_empty() {
            done.push("no interface changed".to_owned());
        }
        info!("reloaded: {}", done.join("; "));
        Ok(done)
    }

    /// Applies the file; adds a line to `done` for each change.
    async fn apply(&mut self, done: &mut Vec<String>) -> Result<()> {
        let file = self.mode.file.clone().context("there is no file")?;
        let config = Config::read(&file)?;
        // First all steps whose failure leaves no trace.
        let all = self.prepare_all(&config).await?;
        let (kept, new): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|prepared| self.links.contains_key(&prepared.name));
        for prepared in &kept {
            if self.changes(prepared) {
                let fits = prepared.plan.check(&prepared.name);
                fits.with_context(|| prepared.name.clone())?;
            }
        }
        let serves = self.metrics.as_ref().map(|metrics| metrics.address);
        let metrics = match config.metrics {
            wanted if wanted == serves => None,
            wanted => Some(self.serve_metrics(wanted)?),
        };
        let mut gone = self.states.names();
        gone.retain(|name| !config.interfaces.contains_key(name));

        // New ones first: if one cannot be attached, nothing has changed yet.
        let mut begun: Vec<String> = Vec::new();
        for prepared in new {
            let name = prepared.name.clone();
            if let Err(error) = self.start(prepared).await {
                for name in &begun {
                    self.stop(name).await?;
                }
                return Err(error);
            }
            begun.push(name);
        }
        done.extend(begun.iter().map(|name| match self.states.is_waiting(name) {
            true => format!("{name}: waited for, as there is no such interface"),
            false => format!("{name}: attached"),
        }));
        self.resolve_interval = config.resolve_interval.into();
        for prepared in kept {
            let name = prepared.name.clone();
            if self.change(prepared).await? {
                done.push(format!("{name}: changed"));
            }
        }
        for name in gone {
            self.stop(&name).await?;
            done.push(format!("{name}: detached"));
        }
        if let Some(metrics) = metrics {
            self.metrics = metrics;
        }
        let peers = config.interfaces.values();
        self.known
            .retain(peers.flat_map(|interface| interface.peers()));
        self.frontend.log(config.log_level)
    }

    /// Whether the prepared plan differs from the one that an interface has.
    fn changes(&self, prepared: &Prepared) -> bool {
        let link = self.links.get(&prepared.name);
        link.is_some_and(|link| link.plan != prepared.plan)
    }

    /// Gives an interface its new plan and names; returns whether the plan changed.
    async fn change(&mut self, prepared: Prepared) -> Result<bool> {
        let changes = self.changes(&prepared);
        let Prepared { name, plan, names } = prepared;
        let Some(link) = self.links.get_mut(&name) else {
            return Ok(false);
        };
        // No news of the old names may arrive after the new plan.
        link.names.end();
        if changes {
            let changed = link.handle.change(plan.clone()).await;
            changed.with_context(|| format!("{name}: cannot be changed"))?;
            link.plan = plan;
        } else if !names.is_empty() {
            let addresses = Reason::Addresses(names.addresses());
            link.handle.order(Order::Pause(addresses));
        }
        link.names = keep(names, self.resolve_interval, link.handle.clone());
        Ok(changes)
    }

    /// Ends an interface, or removes what is left of one that was given up.
    async fn stop(&mut self, name: &str) -> Result<()> {
        match self.links.get(name) {
            Some(link) => {
                // Any order after the stop would cut the clean end of its flows short.
                link.names.end();
                link.handle.order(Order::Stop);
                if let Err(error) = self.until_ended(name).await {
                    let why = InterfaceState::GivenUp(format!("{error:#}"));
                    self.states.set(name, why);
                    return Err(error);
                }
            }
            None => detach::remove_remains(name)?,
        }
        self.states.forget(name);
        Ok(())
    }
}
