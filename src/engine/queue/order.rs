//! Events of one device that arrive out of order.

use super::keys::Keys;
use super::{Arrived, Queue, QueuedEvent, QueuedId};
use crate::model::Uevent;
use std::collections::HashSet;

impl Queue {
    /// The youngest event of this one's device, if it still waits.
    pub(super) fn waiting_before(&self, uevent: &Uevent, keys: &Keys) -> Option<QueuedId> {
        let last = self.places.last(keys.id())?;
        let entry = &self.entries[last.0 as usize];
        match entry.waits_for_device(uevent, keys) {
            true => Some(last),
            // A stranger with the same key may hide it.
            false if entry.uevent.is_some() => self.youngest_waiting(uevent, keys),
            false => None,
        }
    }

    /// The youngest waiting event of this one's device; looks at all that wait.
    fn youngest_waiting(&self, uevent: &Uevent, keys: &Keys) -> Option<QueuedId> {
        let all = (0..).map(QueuedId).zip(&self.entries);
        let same = all.filter(|(_, entry)| entry.waits_for_device(uevent, keys));
        same.max_by_key(|(_, entry)| entry.born).map(|(id, _)| id)
    }

    /// New kernels may deliver out of order (interop.md 2.8): where waiting events of the device have higher numbers,
    /// each of them moves on by one place. An entry keeps what it stands on, so the last one, which gets the new
    /// entry, stands on the places of all. Returns that one, and the entries that got another event.
    pub(super) fn put_in_order(&mut self, arrived: Arrived, keys: &mut Keys) -> (Arrived, Vec<QueuedId>) {
        let Some(last) = self.waiting_before(&arrived.uevent, keys) else { return (arrived, Vec::new()) };
        if self.entries[last.0 as usize].seqnum < arrived.uevent.seqnum {
            return (arrived, Vec::new());
        }
        let mut overtaken = self.overtaken(last, &arrived.uevent, keys);
        let mut moving = arrived;
        for &id in overtaken.iter().rev() {
            let entry = &mut self.entries[id.0 as usize];
            let Some(uevent) = entry.uevent.as_mut() else { unreachable!("it waits") };
            std::mem::swap(uevent, &mut moving.uevent);
            std::mem::swap(&mut entry.swallowed, &mut moving.swallowed);
            keys.add(&entry.touches);
            let seqnum = uevent.seqnum;
            let (old, flow) = (std::mem::replace(&mut entry.seqnum, seqnum), entry.flow);
            self.seqnums.remove(&old);
            self.seqnums.insert(seqnum, id);
            self.ready.renumber(flow, (old, id), seqnum);
        }
        overtaken.reverse();
        (moving, overtaken)
    }

    /// The waiting events of this one's device that have higher numbers, from the last one, which is among them.
    /// Each stands behind the one before it.
    fn overtaken(&self, last: QueuedId, uevent: &Uevent, keys: &Keys) -> Vec<QueuedId> {
        let mut overtaken = vec![last];
        let is_next = |(by, born): &&(QueuedId, u64)| {
            let entry = &self.entries[by.0 as usize];
            let is_alive = entry.is_used && entry.born == *born;
            is_alive && entry.seqnum > uevent.seqnum && entry.waits_for_device(uevent, keys)
        };
        while let Some(id) = overtaken.last() {
            let before = self.entries[id.0 as usize].waits_for.iter().filter(is_next);
            match before.max_by_key(|(_, born)| *born) {
                Some((by, _)) => overtaken.push(*by),
                None => break,
            }
        }
        overtaken
    }

    /// The entry `id` has got an event of other places, which `found` are in the way of. It waits for those
    /// of them that are older than it; younger ones may wait for it, but for older ones too, that would have
    /// been found without them.
    pub(super) fn hold_overtaken(&mut self, id: QueuedId, found: &[QueuedId]) {
        let QueuedEvent { born, flow, seqnum, .. } = self.entries[id.0 as usize];
        let mut seen: HashSet<QueuedId> = found.iter().copied().collect();
        let mut found = found.to_vec();
        while let Some(by) = found.pop() {
            if self.entries[by.0 as usize].born < born {
                self.hold(by, id);
                self.ready.remove(flow, (seqnum, id));
            } else if by != id {
                let waits_for = self.entries[by.0 as usize].waits_for.iter();
                let still = waits_for.filter(|(by, born)| {
                    let entry = &self.entries[by.0 as usize];
                    entry.is_used && entry.born == *born
                });
                found.extend(still.map(|(by, _)| *by).filter(|by| seen.insert(*by)));
            }
        }
    }
}
