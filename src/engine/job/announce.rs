//! The end of an event: the disk is given back, and listeners are told.

use super::{Awaiting, Job, JobStep, Phase};
use crate::model::effect::Effect;
use crate::model::{Errno, announcement};
use bstr::{BStr, BString, ByteSlice};

impl Job {
    pub(super) fn unlock(&mut self) -> Option<JobStep> {
        self.phase = Phase::Announce { copy: 0 };
        if !std::mem::take(&mut self.locked) {
            return None;
        }
        self.perform(Effect::UnlockDisk, Awaiting::Any, self.phase)
    }

    /// First the copies for swallowed SYNTH_UUIDs, then the event's own message.
    pub(super) fn announce(&mut self, copy: usize) -> Option<JobStep> {
        let swallowed = self.swallowed.get(copy);
        if swallowed.is_none() && self.log_level.is_some() {
            return Some(JobStep::Tell(self.tell(None, Vec::new())));
        }
        let event = self.event();
        let derived = event.derived_properties();
        let failure = self.failure.map(failure_properties).unwrap_or_default();
        let number = swallowed.map(|s| s.seqnum.to_string());
        let value = |name: &'_ BStr, value| match (name.as_bytes(), swallowed, &number) {
            (b"SEQNUM", _, Some(number)) => number.as_bytes().as_bstr(),
            (b"SYNTH_UUID", Some(swallowed), _) => swallowed.uuid.as_bstr(),
            _ => value,
        };
        let plain = event.plain_properties().filter(|(name, _)| *name != "ID_PROCESSING");
        let plain = plain.map(|(name, old)| (name, value(name, old)));
        let derived = derived.iter().map(|(name, value)| (BStr::new(name), value.as_bstr()));
        let failure = failure.iter().map(|(name, value)| (BStr::new(name), value.as_bstr()));
        let properties = plain.chain(derived).chain(failure);
        let datagram = announcement::build(properties, &event.tags.sticky).into();
        let next = if swallowed.is_some() { Phase::Announce { copy: copy + 1 } } else { Phase::Finished };
        self.perform(Effect::Announce { datagram }, Awaiting::Any, next)
    }
}

/// rules.md 9.6.
fn failure_properties(errno: Errno) -> Vec<(&'static str, BString)> {
    let name = errno.name().map(|name| ("UDEV_WORKER_ERRNO_NAME", name.into()));
    let number = errno.0.to_string().into();
    [("UDEV_WORKER_FAILED", "1".into()), ("UDEV_WORKER_ERRNO", number)].into_iter().chain(name).collect()
}
