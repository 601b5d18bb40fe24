//! Folding in a flood: waiting events that make each other void.

use super::keys::Keys;
use super::{Inserted, Queue, QueuedId, Swallowed, id_of};
use crate::model::properties::Property;
use crate::model::{Action, Properties, Uevent};

/// So many of the last removals that were cancelled out are kept: an event that they have overtaken may come yet, and
/// must not be the last word. That takes microseconds.
pub(super) const CANCELLED_KEPT: usize = 64;

impl Queue {
    /// The removal of this one's device that overtook it and was cancelled out.
    pub(super) fn cancelled_after(&mut self, uevent: &Uevent) -> Option<Uevent> {
        let is_after = |c: &Uevent| c.seqnum > uevent.seqnum && id_of(c) == id_of(uevent);
        let at = self.cancelled.iter().position(is_after)?;
        self.cancelled.remove(at)
    }

    /// Folds a uevent into a waiting one, if both need not be handled.
    pub(super) fn coalesce(&mut self, uevent: &Uevent, keys: &Keys) -> Option<Inserted> {
        let id = self.waiting_before(uevent, keys)?;
        let entry = &mut self.entries[id.0 as usize];
        let waiting = entry.uevent.as_ref()?;
        // One that was overtaken is not the last word.
        if waiting.devpath != uevent.devpath || waiting.seqnum > uevent.seqnum {
            return None;
        }
        match (waiting.action, uevent.action) {
            (Action::Change, Action::Change) if same_but_number(&waiting.properties, &uevent.properties) => {
                let uuid = waiting.properties.get("SYNTH_UUID").filter(|u| *u != "0");
                if let Some(uuid) = uuid.map(|u| u.to_owned()) {
                    entry.swallowed.push(Swallowed { seqnum: waiting.seqnum, uuid });
                }
                let old = std::mem::replace(&mut entry.seqnum, uevent.seqnum);
                let flow = entry.flow;
                entry.uevent = Some(uevent.clone());
                self.seqnums.remove(&old);
                self.seqnums.insert(uevent.seqnum, id);
                self.ready.renumber(flow, (old, id), uevent.seqnum);
                Some(Inserted::Merged)
            }
            // A synthetic add may belong to a device that has a record: its remove must be seen.
            (Action::Add, Action::Remove)
                if waiting.properties.get("SYNTH_UUID").is_none()
                    && uevent.properties.get("SYNTH_UUID").is_none() =>
            {
                self.withdraw(id);
                self.cancelled.push_back(uevent.clone());
                if self.cancelled.len() > CANCELLED_KEPT {
                    self.cancelled.pop_front();
                }
                Some(Inserted::Cancelled)
            }
            _ => None,
        }
    }

    /// Takes a waiting entry out: who waited for it waits for what it waited for, and places that it
    /// was the youngest on belong to the next older one again.
    fn withdraw(&mut self, id: QueuedId) {
        let entry = &mut self.entries[id.0 as usize];
        let (flow, seqnum) = (entry.flow, entry.seqnum);
        let mut waits_for = std::mem::take(&mut entry.waits_for);
        let blocks = std::mem::take(&mut entry.blocks);
        waits_for.retain(|&(by, born)| {
            let by = &self.entries[by.0 as usize];
            by.is_used && by.born == born
        });
        for &(by, _) in &waits_for {
            let others = &mut self.entries[by.0 as usize].blocks;
            if let Some(at) = others.iter().rposition(|other| *other == id) {
                others.swap_remove(at);
            }
            blocks.iter().for_each(|blocked| self.hold(by, *blocked));
        }
        self.give_back(id, &waits_for);
        self.ready.remove(flow, (seqnum, id));
        let entry = &mut self.entries[id.0 as usize];
        (entry.waits_for, entry.blocks) = (waits_for, blocks);
        self.release(id);
    }

    /// Gives the places that an entry is the youngest on to the youngest of these others there.
    fn give_back(&mut self, id: QueuedId, others: &[(QueuedId, u64)]) {
        for touch in &self.entries[id.0 as usize].touches {
            let stands = |other: &&(QueuedId, u64)| {
                let touches = &self.entries[other.0.0 as usize].touches;
                touches.iter().any(|t| t.node.is_none() && t.place == touch.place)
            };
            if touch.node.is_none() {
                let youngest =
                    || others.iter().filter(stands).max_by_key(|(_, born)| *born).map(|(by, _)| *by);
                self.places.replace_last(touch.place, id, youngest);
            }
        }
    }
}

/// Equal in everything but SEQNUM and SYNTH_UUID: processing both would do the same twice.
pub(super) fn same_but_number(a: &Properties, b: &Properties) -> bool {
    let tells = |p: &Property| p.name != "SEQNUM" && p.name != "SYNTH_UUID";
    let known = |p: Property| b.get(p.name) == Some(p.value);
    a.iter().filter(tells).count() == b.iter().filter(tells).count() && a.iter().filter(tells).all(known)
}
