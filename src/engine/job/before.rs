//! Before the rules: the lock of the disk, the old record and watch. And what puts these back when the event fails.

use super::record::{rewrite_record, with_property};
use super::{Awaiting, EngineConfig, Job, JobStep, Notice, Phase};
use crate::model::device::last_component;
use crate::model::effect::{Done, Effect};
use crate::model::{Action, Errno, Now};
use std::time::Duration;

/// A locked disk is tried again after this long (rules.md 12.3).
const LOCK_RETRY: Duration = Duration::from_millis(200);
/// A disk that is locked for longer fails the event.
const LOCK_LIMIT: Duration = Duration::from_secs(180);

impl Job {
    pub(super) fn lock(&mut self) -> Option<JobStep> {
        let device = &self.event().device;
        let name = last_component(&device.devpath);
        let exempt = ["dm-", "md", "drbd"].iter().any(|p| name.starts_with(p.as_bytes()));
        match &device.devnode {
            Some(devnode) if device.is_block() && device.devnum.is_some() && !exempt => {
                let effect = Effect::LockDisk { device: device.devpath.clone(), devnode: devnode.clone() };
                // It may take a while: until then the job has not begun.
                self.perform(effect, Awaiting::Lock, Phase::Lock)
            }
            _ => {
                self.phase = Phase::ReadOnly;
                None
            }
        }
    }

    pub(super) fn locked(&mut self, done: Done, now: Now) -> Option<Notice> {
        match done {
            Done::Busy if now >= self.started + LOCK_LIMIT => {
                self.fail(Errno(libc::ETIMEDOUT));
                let text =
                    format!("its disk is locked for more than {} s; the event fails", LOCK_LIMIT.as_secs());
                Some(self.log(log::Level::Error, text))
            }
            Done::Busy => {
                self.phase = Phase::LockWait { until: now + LOCK_RETRY };
                None
            }
            Done::Failed(errno) => Some(self.fail(errno)),
            Done::Ok | Done::Record(_) | Done::WasWatched => {
                self.locked = true;
                self.phase = Phase::ReadOnly;
                None
            }
        }
    }

    /// The disk may be free now: a job that waits for its lock tries again at once.
    pub fn retry_lock(&mut self, now: Now) -> bool {
        match &mut self.phase {
            Phase::LockWait { until } => {
                *until = now;
                true
            }
            _ => false,
        }
    }

    pub(super) fn read_only(&mut self, config: &EngineConfig) -> Option<JobStep> {
        self.phase = Phase::ReadRecord;
        let event = self.event();
        let name = last_component(&event.device.devpath);
        let exempt = ["dm-", "md", "drbd", "loop", "nbd", "zram"];
        if !config.blockdev_read_only
            || event.action != Action::Add
            || !event.device.is_block()
            || exempt.iter().any(|p| name.starts_with(p.as_bytes()))
        {
            return None;
        }
        let (devnode, devnum) = (event.device.devnode.clone()?, event.device.devnum?);
        self.perform(Effect::SetReadOnly { devnode, devnum }, Awaiting::Any, Phase::ReadRecord)
    }

    pub(super) fn read_record(&mut self) -> Option<JobStep> {
        self.phase = if self.is_removal() { Phase::RemoveTags } else { Phase::MarkProcessing };
        let id = self.device_id.clone()?;
        self.perform(Effect::ReadRecord { id }, Awaiting::OldRecord, self.phase)
    }

    /// The record of a known device says that its event is under way.
    pub(super) fn mark_processing(&mut self) -> Option<JobStep> {
        self.phase = Phase::DropWatch;
        let old = self.event().old.clone()?;
        let id = self.device_id.clone()?;
        self.marked = true;
        let effect = rewrite_record(id, with_property(&old, "ID_PROCESSING"));
        self.perform(effect, Awaiting::Must, Phase::DropWatch)
    }

    pub(super) fn remove_tags(&mut self) -> Option<JobStep> {
        self.phase = Phase::RemoveRecord;
        let id = self.device_id.clone()?;
        let tags = self.event().tags.sticky.clone();
        if tags.is_empty() {
            return None;
        }
        self.perform(Effect::RemoveTags { id, tags }, Awaiting::Any, Phase::RemoveRecord)
    }

    pub(super) fn remove_record(&mut self) -> Option<JobStep> {
        self.phase = Phase::DropWatch;
        let id = self.device_id.clone()?;
        self.perform(Effect::RemoveRecord { id }, Awaiting::Any, Phase::DropWatch)
    }

    /// This comes after the record says that an event is under way: a daemon that starts after a crash then knows that
    /// the event must be done again, and the watch with it.
    pub(super) fn drop_watch(&mut self) -> Option<JobStep> {
        self.phase = Phase::Rules;
        self.event().device.devnode.as_ref()?;
        let id = self.device_id.clone()?;
        self.perform(Effect::DropWatch { id }, Awaiting::OldWatch, self.phase)
    }

    /// This comes before the record says that no event is under way, as the watch was dropped after the record said so.
    pub(super) fn restore_watch(&mut self) -> Option<JobStep> {
        self.phase = Phase::RestoreRecord;
        if !std::mem::take(&mut self.was_watched) {
            return None;
        }
        let (id, devnode) = (self.device_id.clone()?, self.event().device.devnode.clone()?);
        self.perform(Effect::AddWatch { id, devnode }, Awaiting::Any, self.phase)
    }

    pub(super) fn restore_record(&mut self) -> Option<JobStep> {
        self.phase = Phase::Unlock;
        if !std::mem::take(&mut self.marked) {
            return None;
        }
        let id = self.device_id.clone()?;
        let old = self.event().old.clone()?;
        self.perform(rewrite_record(id, (*old).clone()), Awaiting::Any, Phase::Unlock)
    }
}
