//! What failed for want of room, memory or descriptors, or because a file system was not writable: it is
//! remembered by device and done again when there is room.
//!
//! * An event that failed is triggered again: its programs have not run, and its listeners have heard that it failed.
//! * So is an event that did not fail, but had to do without an attribute or a program for want of descriptors.
//! * What did not fail an event is only done again: records, claims, symlinks, watches, what removed devices left.
//!
//! Must stay true: nothing stays wrong until somebody triggers; one look for room, with growing pauses, is all
//! that a full file system costs; what has begun anew is not begun twice. Records, claims and watches know by
//! themselves what of theirs is not on disk; here is the rest.

use crate::model::effect::Effect;
use crate::model::need::{PartsDone, Rest};
use crate::model::{Action, DeviceId, Errno, Event, Now, Trigger};
use bstr::BString;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// Devices that are remembered; when there are more, all devices are looked at.
const MAX_DEVICES: usize = 4096;
/// Devices of which events ended half-way; beyond that no device is known not to be one.
const MAX_HALF_WAY: usize = 65_536;

/// The first look for room comes after this long, the next after twice as long, and so on.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug)]
pub struct Unfinished {
    /// Whose event failed: how to trigger it again.
    pub(super) events: BTreeMap<DeviceId, (Trigger, BString)>,
    /// More failed than are remembered.
    too_many: bool,
    /// Of these something is left although they were removed.
    pub(super) gone: BTreeMap<DeviceId, Left>,
    /// Whose last event failed after it had begun to write: what it wrote, no record tells.
    half_way: HashSet<DeviceId>,
    too_many_half_way: bool,
    /// Static nodes could not be set up.
    pub static_nodes: bool,
    /// What is being done again.
    pub(super) finishing: Option<Finishing>,
    due: Option<Now>,
    pause: Duration,
}

/// When that goes which is left of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// If the device is gone.
    IfGone,
    /// Whether it is there or not: its last event was a `remove`, which anybody may trigger.
    Anyway,
}

/// A device that is gone, or counts as such, while what it has left is removed in portions.
#[derive(Debug)]
pub struct Removal {
    pub id: DeviceId,
    pub left: Left,
    pub(super) rest: Rest,
    pub(super) progress: PartsDone,
}

/// What is still to be done again, one thing after the other: there may be thousands, and the loop goes on meanwhile.
#[derive(Debug)]
pub(super) enum Finishing {
    Records(Vec<DeviceId>),
    Links(Vec<BString>),
    /// Nodes to be watched.
    Watches(Vec<DeviceId>),
    /// What removed devices have left. Those that were not looked at yet stay remembered.
    Gone(Vec<DeviceId>),
    /// The same of one of them, and the others.
    Removal(Box<Removal>, Vec<DeviceId>),
    /// Failed events, and which of them are to be triggered.
    Events {
        ids: Vec<DeviceId>,
        wanted: Vec<(Trigger, BString)>,
    },
}

impl Default for Unfinished {
    fn default() -> Unfinished {
        Unfinished {
            events: BTreeMap::new(),
            too_many: false,
            gone: BTreeMap::new(),
            half_way: HashSet::new(),
            too_many_half_way: false,
            static_nodes: false,
            finishing: None,
            due: None,
            pause: FIRST_PAUSE,
        }
    }
}

/// Whether the same may succeed later. Without its folder (ENOENT) nothing can be written either until that can be
/// made anew. An ill disk is no want of room.
fn may_succeed_later(effect: &Effect, errno: Errno) -> bool {
    match effect {
        Effect::LockDisk { .. } => errno.is_lack(),
        _ => errno.is_shortage() || errno == Errno(libc::ENOENT),
    }
}

impl Unfinished {
    /// An effect of an event has failed.
    pub fn on_failure(&mut self, event: &Event, effect: &Effect, errno: Errno) {
        let Some(id) = event.device.id() else { return };
        match effect {
            // Kept by the database.
            Effect::WriteRecord { is_end: true, .. } => return,
            Effect::LockDisk { .. } | Effect::ReadRecord { .. } => {}
            Effect::WriteRecord { .. }
            | Effect::AddTags { .. }
            | Effect::Node(_)
            | Effect::NumberSymlink { present: true, .. } => self.end_half_way(&id),
            Effect::RemoveRecord { .. }
            | Effect::RemoveTags { .. }
            | Effect::NumberSymlink { present: false, .. } => {}
            _ => return,
        }
        if may_succeed_later(effect, errno) {
            self.remember(id, event);
        }
    }

    /// For want of descriptors or memory the rules of an event were not told what is so: its outcome may be wrong.
    pub fn on_lack(&mut self, event: &Event) {
        if event.action != Action::Remove
            && let Some(id) = event.device.id()
        {
            self.remember(id, event);
        }
    }

    fn remember(&mut self, id: DeviceId, event: &Event) {
        if self.events.len() + self.gone.len() >= MAX_DEVICES {
            self.too_many = true;
        } else if event.action == Action::Remove {
            self.gone.insert(id, Left::Anyway);
        } else {
            let action = match event.action {
                Action::Add => Trigger::Add,
                _ => Trigger::Change,
            };
            self.events.insert(id, (action, event.device.devpath.clone()));
        }
    }

    /// An event, or the removal of what a device has left, ended half-way, or is half-way and may end so.
    pub fn end_half_way(&mut self, id: &DeviceId) {
        if self.half_way.len() < MAX_HALF_WAY {
            self.half_way.insert(id.clone());
        } else {
            self.too_many_half_way = true;
        }
    }

    /// An event of the device has begun: what it does needs not be begun again, and what it leaves is no longer what
    /// a `remove` before it has left.
    pub fn on_begin(&mut self, id: &DeviceId) {
        if !self.events.is_empty() {
            self.events.remove(id);
        }
        if !self.gone.is_empty()
            && let Some(left) = self.gone.get_mut(id)
        {
            *left = Left::IfGone;
        }
        if let Some(Finishing::Removal(removal, _)) = &mut self.finishing
            && removal.id == *id
        {
            removal.left = Left::IfGone;
        }
    }

    /// The record stands as its event wanted, or is gone. Whether an earlier event may have left more than that one
    /// knows.
    pub fn ends_half_way(&mut self, id: &DeviceId) -> bool {
        self.too_many_half_way || (!self.half_way.is_empty() && self.half_way.remove(id))
    }

    /// Something of a removed device could not be removed.
    pub fn is_left(&mut self, id: &DeviceId, left: Left) {
        self.gone.entry(id.clone()).or_insert(left);
    }

    /// Whether more failed than are remembered, since this was last asked: then all devices are to be looked at.
    pub fn take_too_many(&mut self) -> bool {
        std::mem::take(&mut self.too_many)
    }

    pub(super) fn has_devices(&self) -> bool {
        self.too_many || self.static_nodes || !self.events.is_empty() || !self.gone.is_empty()
    }

    /// Whether something is being done again.
    pub fn is_finishing(&self) -> bool {
        self.finishing.is_some()
    }

    /// Whether something is being done again, or waits for room since nobody has said when to look for it.
    pub fn has_work(&self, is_needed: bool) -> bool {
        self.is_finishing() || is_needed && self.due.is_none()
    }

    /// When to look for room.
    pub fn timeout(&self) -> Option<Now> {
        self.due
    }

    /// Whether it is time to look for room. `is_needed`: something waits for it. Pauses are short again once nothing
    /// has failed for as long as the last one: what was begun anew may fail in a moment.
    pub fn is_due(&mut self, is_needed: bool, now: Now) -> bool {
        if !is_needed {
            if self.due.is_some_and(|due| due <= now) {
                (self.due, self.pause) = (None, FIRST_PAUSE);
            }
            return false;
        }
        let due = *self.due.get_or_insert(now + self.pause);
        if due > now {
            return false;
        }
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.due = Some(now + self.pause);
        true
    }
}

#[cfg(test)]
mod tests;
