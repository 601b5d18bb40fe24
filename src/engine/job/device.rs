//! What a device gets in `/dev` and in the index of tags, once its rules are through.

use super::{Awaiting, EngineConfig, Job, JobStep, Phase};
use crate::model::effect::{Effect, NodeChange};
use crate::model::event::OrderedSet;
use crate::model::{Action, Now};
use crate::rules::outcome::{Outcome, Watch};

impl Job {
    pub(super) fn node(&mut self) -> Option<JobStep> {
        self.phase = Phase::Symlinks;
        let change = node_change(&self.outcome)?;
        self.perform(Effect::Node(change), Awaiting::Must, Phase::Symlinks)
    }

    /// A device without symlinks may have claims, too, of which no record knows.
    pub(super) fn symlinks(&mut self) -> Option<JobStep> {
        self.phase = Phase::NumberSymlink;
        let event = self.event();
        event.device.devnum?;
        let devnode = event.device.devnode.clone()?;
        let id = self.device_id.clone()?;
        let (release, claim) = match event.action {
            Action::Remove => (event.symlinks.clone(), OrderedSet::default()),
            _ => {
                let old = event.old.iter().flat_map(|record| record.symlinks.iter());
                (old.filter(|link| !event.symlinks.contains(link)).collect(), event.symlinks.clone())
            }
        };
        let priority = self.outcome.link_priority;
        let effect = Effect::Symlinks { id, devnode, priority, release, claim };
        self.perform(effect, Awaiting::Any, Phase::NumberSymlink)
    }

    pub(super) fn number_symlink(&mut self, now: Now, config: &EngineConfig) -> Option<JobStep> {
        let present = !self.is_removal();
        let device = &self.event().device;
        let link = device.devnode.clone().zip(device.devnum).map(|(devnode, devnum)| Effect::NumberSymlink {
            block: device.is_block(),
            devnum,
            devnode,
            present,
        });
        if present {
            let received = self.received.since_boot().as_micros() as u64;
            self.phase = Phase::Tags;
            self.outcome.event.usec_initialized.get_or_insert(received);
        } else {
            self.phase = self.first_run(now, config);
        }
        let awaiting = if present { Awaiting::Must } else { Awaiting::Any };
        self.perform(link?, awaiting, self.phase)
    }

    pub(super) fn tags(&mut self) -> Option<JobStep> {
        // The record comes last, so that it says of nothing that is not there: without programs the watch comes
        // before it, else it says until then that the event is under way.
        self.phase = if self.runs() { Phase::Record } else { Phase::Watch };
        let tags = self.event().tags.sticky.clone();
        if tags.is_empty() {
            return None;
        }
        let id = self.device_id.clone()?;
        self.perform(Effect::AddTags { id, tags }, Awaiting::Must, self.phase)
    }

    pub(super) fn watch(&mut self) -> Option<JobStep> {
        self.phase = if self.runs() { Phase::FinalRecord } else { Phase::Record };
        if self.outcome.watch != Some(Watch::On) {
            return None;
        }
        let devnode = self.event().device.devnode.clone()?;
        let id = self.device_id.clone()?;
        self.perform(Effect::AddWatch { id, devnode }, Awaiting::Any, self.phase)
    }
}

/// Owner, group and mode by rules.md 11.1: the rule's, else the kernel's hint. None without a node.
pub fn node_change(outcome: &Outcome) -> Option<NodeChange> {
    let event = &outcome.event;
    let (devnode, devnum) = (event.device.devnode.as_ref()?, event.device.devnum?);
    let owner = outcome.owner.or(event.device.node_uid);
    let group = outcome.group.or(event.device.node_gid);
    let by_group = || group.filter(|&g| g > 0).map(|_| 0o660);
    let mode = outcome.mode.or(event.device.node_mode).or_else(by_group);
    Some(NodeChange {
        devnode: devnode.clone(),
        block: event.device.is_block(),
        devnum,
        owner,
        group,
        mode: mode.map(|m| m & 0o7777),
        seclabels: outcome.seclabels.clone(),
        is_add: event.action == Action::Add,
    })
}
