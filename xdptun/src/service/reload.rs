//! A reload: the service reads the file again and applies what changed, or nothing.

use std::collections::{BTreeMap, BTreeSet};

use nix::net::if_::if_nametoindex;
use tracing::{error, info};

use super::Service;
use super::group::{form_groups, must_be_equal};
use super::prepared::Prepared;
use super::start::{keep, new_addresses};
use super::states::{InterfaceState, waited_for};
use crate::config::Config;
use crate::control::Answer;
use crate::error::{Context as _, Error, Result, bail};
use crate::gateway;
use crate::group::check::check;
use crate::group::{Order, detach};
use crate::nat64::DEVICE;
use crate::policy;
use crate::tunnel::Tunnel;

impl Service {
    /// Reads the file again and applies what changed, or nothing. Sessions of rules that are gone
    /// go on if it `drains`.
    pub(super) async fn reload(&mut self, drains: bool) -> Answer {
        let mut done = Vec::new();
        let result = self.apply(drains, &mut done).await;
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
    async fn apply(&mut self, drains: bool, done: &mut Vec<String>) -> Result<()> {
        let file = self.mode.file.clone().context("there is no file")?;
        let config = Config::read(&file)?;
        // First all steps whose failure leaves no trace.
        let all = self.prepare_all(&config).await?;
        let gateway = self.plan_gateway(&config)?;
        if let Some(plan) = &gateway {
            self.check_gateway(plan)?;
        }
        let policy = policy::Plan::of(&config)?;
        if let Some(plan) = &policy {
            Self::check_policy(plan)?;
        }
        let nat64 = self.plan_nat64(&config)?;
        if let Some(plan) = &nat64 {
            self.check_nat64(plan)?;
        }
        let (kept, new): (Vec<_>, Vec<_>) = all.into_iter().partition(|prepared| {
            let name = prepared.name();
            // One that was given up is tried again.
            self.id_of(&name).is_some() && !self.tunnel_states.is_given_up(&name)
        });
        let kept = self.regroup(kept)?;
        self.check_changes(&kept)?;
        let serves = self.metrics.as_ref().map(|metrics| metrics.address);
        let metrics = match config.metrics {
            wanted if wanted == serves => None,
            wanted => Some(self.serve_metrics(wanted)?),
        };
        let mut gone = self.tunnel_states.names();
        gone.retain(|name| !config.has_tunnel_on(name));

        let before = self.gateway_plan();
        let nat64_before = self.nat64_plan();
        self.begin_nat64(nat64.as_ref(), done).await?;
        let plans = (gateway.as_ref(), policy.as_ref());
        let begun = self.begin_all(plans, drains, new, &kept, done);
        if let Err(error) = begun.await {
            if nat64.is_none() || nat64 == nat64_before {
                return Err(error);
            }
            return Err(match self.undo_nat64(nat64_before).await {
                Ok(()) => {
                    done.retain(|line| !line.starts_with(DEVICE));
                    error
                }
                Err(also) => error.context(format!("and NAT64 cannot be put back: {also:#}")),
            });
        }
        self.resolve_interval = config.resolve_interval.into();
        for (id, prepared) in kept {
            let names = prepared.interfaces.clone();
            if self.change(id, prepared).await? {
                done.extend(names.iter().map(|name| format!("{name}: changed")));
            }
        }
        for name in gone {
            self.stop(&name).await?;
            done.push(format!("{name}: detached"));
        }
        self.end_gateway(before.as_ref(), gateway.as_ref(), drains, done)
            .await?;
        self.end_policy(policy.as_ref(), done).await?;
        self.end_nat64(nat64.as_ref(), done).await?;
        if let Some(metrics) = metrics {
            self.metrics = metrics;
        }
        let peers = config.interfaces.values();
        self.known
            .retain(peers.flat_map(|interface| interface.peers()));
        self.frontend.log(config.log_level)
    }

    /// Starts what is new of all functions, and changes the gateway and the policy: what can fail, and
    /// be undone.
    async fn begin_all(
        &mut self,
        (gateway, policy): (Option<&gateway::Plan>, Option<&policy::Plan>),
        drains: bool,
        new: Vec<Prepared>,
        kept: &BTreeMap<u32, Prepared>,
        done: &mut Vec<String>,
    ) -> Result<()> {
        let before = self.gateway_plan();
        let joined = self.begin_gateway(gateway, drains, done).await?;
        let Err(error) = self.begin_others(policy, new, kept, done).await else {
            return Ok(());
        };
        if gateway.is_none() {
            return Err(error);
        }
        let undone = self.undo_gateway(before, joined).await;
        after_undoing(error, undone, done)
    }

    /// The same without the gateway.
    async fn begin_others(
        &mut self,
        policy: Option<&policy::Plan>,
        new: Vec<Prepared>,
        kept: &BTreeMap<u32, Prepared>,
        done: &mut Vec<String>,
    ) -> Result<()> {
        let before = self.policy_plan();
        let joined = self.begin_policy(policy, done).await?;
        let Err(error) = self.begin(new, kept, done).await else {
            return Ok(());
        };
        if policy.is_none() {
            return Err(error);
        }
        let undone = self.undo_policy(before, joined).await;
        after_undoing(error, undone, done)
    }

    /// Checks that the interfaces whose plans change can have the new ones.
    fn check_changes(&self, kept: &BTreeMap<u32, Prepared>) -> Result<()> {
        let changed = kept.iter().filter(|(id, one)| self.changes(**id, one));
        for (_, prepared) in changed {
            for name in &prepared.interfaces {
                let fits = check::<Tunnel>(&prepared.plan.options(), name);
                fits.with_context(|| name.clone())?;
            }
        }
        Ok(())
    }

    /// Starts new interfaces, all or none; adds a line to `done` for each.
    async fn begin(
        &mut self,
        new: Vec<Prepared>,
        kept: &BTreeMap<u32, Prepared>,
        done: &mut Vec<String>,
    ) -> Result<()> {
        let mut begun: Vec<String> = Vec::new();
        for prepared in form_groups(new)? {
            let names = prepared.interfaces.clone();
            let started = match self.group_for(&prepared, kept)? {
                Some(id) => self.join(id, &names).await,
                None => {
                    self.part_with(&names).await?;
                    self.start(prepared).await
                }
            };
            if let Err(error) = started {
                for name in &begun {
                    self.stop(name).await?;
                }
                return Err(error);
            }
            begun.extend(names);
        }
        done.extend(
            begun
                .iter()
                .map(|name| match self.tunnel_states.is_waiting(name) {
                    true => waited_for(name),
                    false => format!("{name}: attached"),
                }),
        );
        Ok(())
    }

    /// The group that new interfaces join, if there is one with their plan. Those that were
    /// given up may be in it already; those that another process left in a group of their own
    /// stay there.
    fn group_for(
        &self,
        prepared: &Prepared,
        kept: &BTreeMap<u32, Prepared>,
    ) -> Result<Option<u32>> {
        let ids: BTreeSet<_> = prepared
            .interfaces
            .iter()
            .map(|one| self.id_of(one))
            .collect();
        let is_apart = ids == [None].into() && prepared.pins()?.is_some();
        let mut same = kept.iter().filter(|(id, one)| {
            one.plan == prepared.plan && ids.iter().flatten().all(|present| present == *id)
        });
        Ok(same.next().map(|(id, _)| *id).filter(|_| !is_apart))
    }

    /// Takes interfaces that were given up out of the groups that live on without them.
    async fn part_with(&mut self, names: &[String]) -> Result<()> {
        for name in names {
            if let Some(id) = self.id_of(name) {
                self.stop_in(id, name).await?;
            }
        }
        Ok(())
    }

    /// The number of the group that an interface is in.
    fn id_of(&self, interface: &str) -> Option<u32> {
        self.group_of(interface).map(|(id, _)| id)
    }

    /// Puts the new plans of interfaces together as their groups are.
    fn regroup(&self, kept: Vec<Prepared>) -> Result<BTreeMap<u32, Prepared>> {
        let mut groups: BTreeMap<u32, Prepared> = BTreeMap::new();
        for prepared in kept {
            let Some(id) = self.id_of(&prepared.name()) else {
                continue;
            };
            match groups.get_mut(&id) {
                None => drop(groups.insert(id, prepared)),
                Some(group) if group.plan == prepared.plan => group.add(prepared),
                Some(group) => return Err(must_be_equal(group, &prepared)),
            }
        }
        Ok(groups)
    }

    /// Adds interfaces to a group, all or none.
    async fn join(&mut self, id: u32, names: &[String]) -> Result<()> {
        let Some(group) = self.groups.get_mut(&id) else {
            bail!(Other, "{}: the group has ended", names.join(", "));
        };
        for (number, name) in names.iter().enumerate() {
            if let Err(error) = group.handle.join(name.clone()).await {
                for joined in &names[..number] {
                    group.handle.leave(joined.clone()).await?;
                }
                return Err(error.context(name.clone()));
            }
        }
        group.interfaces.retain(|one| !names.contains(one));
        group.interfaces.extend_from_slice(names);
        for name in names
            .iter()
            .filter(|name| if_nametoindex(name.as_str()).is_err())
        {
            self.tunnel_states.set(name, InterfaceState::Waiting);
        }
        Ok(())
    }

    /// Whether the prepared plan differs from the one that a group has.
    fn changes(&self, id: u32, prepared: &Prepared) -> bool {
        let group = self.groups.get(&id);
        group.is_some_and(|group| group.plan != prepared.plan)
    }

    /// Gives a group its new plan and names; returns whether the plan changed.
    async fn change(&mut self, id: u32, prepared: Prepared) -> Result<bool> {
        let changes = self.changes(id, &prepared);
        let name = prepared.name();
        let Prepared { plan, names, .. } = prepared;
        let Some(group) = self.groups.get_mut(&id) else {
            return Ok(false);
        };
        // No news of the old names may arrive after the new plan.
        group.names.end();
        if changes {
            let changed = group.handle.change(plan.clone()).await;
            changed.with_context(|| format!("{name}: cannot be changed"))?;
            group.plan = plan;
        } else if !names.is_empty() {
            group.handle.order(new_addresses(names.addresses()));
        }
        group.names = keep(names, self.resolve_interval, group.handle.clone());
        Ok(changes)
    }

    /// Ends an interface, or removes what is left of one that was given up.
    async fn stop(&mut self, name: &str) -> Result<()> {
        match self.id_of(name) {
            Some(id) => self.stop_in(id, name).await?,
            None => detach::remove_remains::<Tunnel>(name)?,
        }
        self.tunnel_states.forget(name);
        Ok(())
    }

    /// Ends an interface of a group, and with the last one the group.
    async fn stop_in(&mut self, id: u32, name: &str) -> Result<()> {
        let Some(group) = self.groups.get_mut(&id) else {
            return Ok(());
        };
        let ended = if group.interfaces.len() > 1 {
            let left = group.handle.leave(name.to_owned()).await;
            if left.is_ok() {
                group.interfaces.retain(|one| one != name);
            }
            left
        } else {
            // Any order after the stop would cut the clean end of its flows short.
            group.names.end();
            group.handle.order(Order::Stop);
            self.until_ended(id).await
        };
        if let Err(error) = ended {
            let why = InterfaceState::GivenUp(format!("{error:#}"));
            self.tunnel_states.set(name, why);
            return Err(error);
        }
        Ok(())
    }
}

/// The error of a reload of which everything was undone, so that nothing is `done`, or was not.
fn after_undoing(error: Error, undone: Result<()>, done: &mut Vec<String>) -> Result<()> {
    match undone {
        Ok(()) => {
            done.clear();
            Err(error)
        }
        Err(also) => Err(error.context(format!("and the rules cannot be put back: {also:#}"))),
    }
}
