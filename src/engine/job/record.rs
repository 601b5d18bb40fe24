//! The records that an event writes: the old one while it is under way, then what the rules left.

use super::{Awaiting, EngineConfig, Job, JobStep, Phase};
use crate::model::effect::{Effect, Sticky};
use crate::model::event::OrderedSet;
use crate::model::record::Record;
use crate::model::{DeviceId, Now};
use crate::rules::outcome::Outcome;
use std::sync::Arc;

impl Job {
    /// With entries in the RUN list the record says ID_PROCESSING until they have run.
    pub(super) fn record_before_run(&mut self, now: Now, config: &EngineConfig) -> Option<JobStep> {
        let next = self.first_run(now, config);
        let properties = &mut self.outcome.event.properties;
        if next == Phase::Unlock {
            properties.remove("ID_PROCESSING");
        } else {
            properties.set_stored("ID_PROCESSING", "1");
        }
        self.write_own_record(next)
    }

    pub(super) fn final_record(&mut self) -> Option<JobStep> {
        self.phase = Phase::Unlock;
        if self.outcome.event.properties.remove("ID_PROCESSING") {
            return self.write_own_record(Phase::Unlock);
        }
        None
    }

    fn write_own_record(&mut self, next: Phase) -> Option<JobStep> {
        self.phase = next;
        let is_end = self.recorded;
        let event = self.event();
        let keep_empty = event.device.devnum.is_some() || event.device.ifindex.is_some();
        let nothing_to_say = !keep_empty && event.old.is_none() && !has_content(&self.outcome);
        if nothing_to_say && !is_end {
            return None;
        }
        let record = Arc::new(record_of(&self.outcome));
        let sticky = if self.outcome.db_persist { Sticky::Yes } else { Sticky::No };
        self.recorded = true;
        let id = self.device_id.clone()?;
        let effect = Effect::WriteRecord { id, record, sticky, keep_empty, is_end };
        // Once the programs have run, a record that does not say so yet fails the event no more.
        let awaiting = if is_end { Awaiting::Any } else { Awaiting::OwnRecord };
        self.perform(effect, awaiting, next)
    }
}

pub(super) fn with_property(old: &Record, name: &str) -> Record {
    let mut record = old.clone();
    record.properties.remove(name);
    record.properties.set(name, "1");
    record
}

/// The old record as an event under way changes it.
pub(super) fn rewrite_record(id: DeviceId, record: Record) -> Effect {
    Effect::WriteRecord {
        id,
        record: Arc::new(record),
        sticky: Sticky::AsBefore,
        keep_empty: true,
        is_end: false,
    }
}

/// Whether the record of what the rules left says anything; symlinks and priority belong to devices
/// that have one anyway.
fn has_content(outcome: &Outcome) -> bool {
    let event = &outcome.event;
    event.properties.stored().next().is_some() || !event.tags.sticky.is_empty()
}

/// The record of what the rules left (rules.md 11.5). Links and priority belong to devices with a
/// number.
fn record_of(outcome: &Outcome) -> Record {
    let event = &outcome.event;
    let node = event.device.devnum.is_some();
    Record {
        symlinks: if node { event.symlinks.clone() } else { OrderedSet::default() },
        priority: if node { outcome.link_priority } else { 0 },
        usec_initialized: event.usec_initialized,
        properties: event.properties.stored_only(),
        tags: event.tags.sticky.clone(),
        current_tags: event.tags.current.clone(),
    }
}
