//! Which event may run now (rules.md 12.1).
//!
//! An event is held back while an earlier one, waiting or running, touches the same device: same
//! id, same node, same devpath, one devpath above the other, or the same by a former name. One index
//! finds these without comparing every pair: a place (id, node or devpath) knows the youngest event
//! that stands *on* it, which by itself waits for all older ones, and all events that stand *below* it.
//!
//! [`places`] is that index, [`keys`] says which places a uevent has, [`flows`] which of the events that may start comes
//! next, [`order`] puts events of one device in order, [`flood`] folds.
//!
//! Coalescing (ARCHITECTURE.md, "Loss, restart, hand-over") begins when more events wait than [`Queue::new`] is told; the
//! queue is then bounded by the number of devices, and no state is lost.

mod flood;
mod flows;
mod keys;
mod order;
#[cfg(test)]
mod pairwise;
mod places;
#[cfg(test)]
mod tests;

use crate::model::device::last_component;
use crate::model::fnv::BuildFnv;
use crate::model::{Device, DeviceId, Now, SeqNum, Uevent};
use bstr::BString;
use flows::Flows;
use keys::{Keys, Touch, key_of_id};
use places::Places;
use std::collections::{HashMap, VecDeque};

/// Names an entry for its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueuedId(u32);

/// A uevent that an entry has swallowed; its SYNTH_UUID must still be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swallowed {
    pub seqnum: SeqNum,
    pub uuid: BString,
}

/// An event that may start.
#[derive(Clone, Debug)]
pub struct Ready {
    pub id: QueuedId,
    pub uevent: Uevent,
    pub received: Now,
    pub swallowed: Vec<Swallowed>,
}

/// An event on its way into the queue, with what it has swallowed.
struct Arrived {
    uevent: Uevent,
    swallowed: Vec<Swallowed>,
}

/// What became of a new uevent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    Queued,
    /// The same `change` was waiting already.
    Merged,
    /// The `add` of the same device was still waiting: both are gone.
    Cancelled,
    /// An event with this SEQNUM is queued or running already.
    Duplicate,
}

/// A flood leaves no more free slots than this behind.
const SLOTS_KEPT: usize = 1024;

/// Its vectors keep their room when the event ends, for the next one in the same slot.
#[derive(Debug, Default)]
struct QueuedEvent {
    seqnum: SeqNum,
    /// None while it runs, and in a free slot.
    uevent: Option<Uevent>,
    is_used: bool,
    received: Now,
    swallowed: Vec<Swallowed>,
    /// Of the subsystem.
    flow: u64,
    /// See [`Keys::number`].
    number: Option<(u8, u32, u32)>,
    /// What it stands on and below.
    touches: Vec<Touch>,
    /// The insertion that made it; a slot is used again.
    born: u64,
    /// The last insertion that found this to be in its way.
    found_by: u64,
    /// How many of `waits_for` are not finished.
    blockers: u32,
    /// Entries in its way, with their `born`: those that have finished stay listed.
    waits_for: Vec<(QueuedId, u64)>,
    /// The other end of each `waits_for` of others.
    blocks: Vec<QueuedId>,
}

impl QueuedEvent {
    /// Whether an event of the device of `uevent`, which has these keys, waits in here. Drivers of one name are not
    /// told apart.
    fn waits_for_device(&self, uevent: &Uevent, keys: &Keys) -> bool {
        let same_name = |waiting: &Uevent| {
            waiting.subsystem == uevent.subsystem
                && last_component(&waiting.devpath) == last_component(&uevent.devpath)
        };
        self.number == keys.number
            && self.uevent.as_ref().is_some_and(|waiting| keys.number.is_some() || same_name(waiting))
    }
}

/// See the module.
#[derive(Debug)]
pub struct Queue {
    coalesce_above: usize,
    entries: Vec<QueuedEvent>,
    free: Vec<QueuedId>,
    seqnums: HashMap<SeqNum, QueuedId, BuildFnv>,
    ready: Flows,
    places: Places,
    running: usize,
    insertions: u64,
    /// Of the uevent that is being inserted; here to keep their room.
    keys: Keys,
    found: Vec<QueuedId>,
    /// The last removals that were cancelled out.
    cancelled: VecDeque<Uevent>,
    /// Bits of a key that count: with few of them most keys collide.
    #[cfg(test)]
    key_mask: u64,
}

impl Queue {
    /// An empty queue that merges equal events when more than `coalesce_above` wait.
    pub fn new(coalesce_above: usize) -> Queue {
        Queue {
            coalesce_above,
            entries: Vec::new(),
            free: Vec::new(),
            seqnums: HashMap::default(),
            ready: Flows::default(),
            places: Places::default(),
            running: 0,
            insertions: 0,
            keys: Keys::default(),
            found: Vec::new(),
            cancelled: VecDeque::new(),
            #[cfg(test)]
            key_mask: u64::MAX,
        }
    }

    /// Takes a uevent in.
    pub fn insert(&mut self, uevent: Uevent, now: Now) -> Inserted {
        if self.seqnums.contains_key(&uevent.seqnum) {
            return Inserted::Duplicate;
        }
        match self.cancelled_after(&uevent) {
            Some(removal) => {
                self.insert_new(uevent, now, false);
                self.insert_new(removal, now, false)
            }
            None => self.insert_new(uevent, now, true),
        }
    }

    fn insert_new(&mut self, uevent: Uevent, now: Now, may_fold: bool) -> Inserted {
        let mut keys = std::mem::take(&mut self.keys);
        keys.take(&uevent);
        #[cfg(test)]
        keys.on.iter_mut().chain(&mut keys.above).for_each(|key| *key &= self.key_mask);
        let folded = match may_fold && self.waiting() > self.coalesce_above {
            true => self.coalesce(&uevent, &keys),
            false => None,
        };
        let inserted = folded.unwrap_or_else(|| {
            self.insert_with(Arrived { uevent, swallowed: Vec::new() }, &mut keys, now);
            Inserted::Queued
        });
        self.keys = keys;
        inserted
    }

    fn insert_with(&mut self, arrived: Arrived, keys: &mut Keys, now: Now) {
        let (Arrived { uevent, swallowed }, overtaken) = self.put_in_order(arrived, keys);
        let id = self.free.pop().unwrap_or_else(|| {
            self.entries.push(QueuedEvent::default());
            QueuedId((self.entries.len() - 1) as u32)
        });
        self.insertions += 1;
        self.settle_down(id, keys);
        let entry = &mut self.entries[id.0 as usize];
        entry.born = self.insertions;
        entry.seqnum = uevent.seqnum;
        entry.is_used = true;
        entry.received = now;
        entry.swallowed = swallowed;
        entry.flow = keys.flow;
        entry.number = keys.number;
        entry.blockers = 0;
        self.seqnums.insert(uevent.seqnum, id);
        let mut found = std::mem::take(&mut self.found);
        for &by in &found {
            self.hold(by, id);
        }
        if found.is_empty() {
            self.ready.insert(keys.flow, uevent.seqnum, id);
        }
        self.entries[id.0 as usize].uevent = Some(uevent);
        for older in overtaken {
            self.hold_overtaken(older, &found);
        }
        found.clear();
        self.found = found;
    }

    /// From now on `id` waits for `by`.
    fn hold(&mut self, by: QueuedId, id: QueuedId) {
        let blocker = &mut self.entries[by.0 as usize];
        blocker.blocks.push(id);
        let born = blocker.born;
        let entry = &mut self.entries[id.0 as usize];
        entry.waits_for.push((by, born));
        entry.blockers += 1;
    }

    /// Puts an entry on and below its places; who is there already comes to `found`, each once.
    fn settle_down(&mut self, id: QueuedId, keys: &Keys) {
        let Queue { entries, places, found, insertions, .. } = self;
        let mut touches = std::mem::take(&mut entries[id.0 as usize].touches);
        places.settle(id, keys, &mut touches, |by| {
            let entry = &mut entries[by.0 as usize];
            if std::mem::replace(&mut entry.found_by, *insertions) != *insertions {
                found.push(by);
            }
        });
        entries[id.0 as usize].touches = touches;
    }

    /// An event that waits for no other; from now on it runs.
    pub fn take_ready(&mut self) -> Option<Ready> {
        let id = self.ready.take()?;
        let entry = &mut self.entries[id.0 as usize];
        let uevent = entry.uevent.take()?;
        self.running += 1;
        let swallowed = std::mem::take(&mut entry.swallowed);
        Some(Ready { id, uevent, received: entry.received, swallowed })
    }

    /// A running event has ended: those that waited for it alone become ready.
    pub fn finish(&mut self, id: QueuedId) {
        if self.entries.get(id.0 as usize).is_some_and(|entry| entry.is_used && entry.uevent.is_none()) {
            self.running -= 1;
            self.release(id);
        }
    }

    fn release(&mut self, id: QueuedId) {
        let entry = &mut self.entries[id.0 as usize];
        entry.is_used = false;
        entry.uevent = None;
        entry.swallowed = Vec::new();
        entry.waits_for.clear();
        self.seqnums.remove(&entry.seqnum);
        let mut touches = std::mem::take(&mut entry.touches);
        let mut blocks = std::mem::take(&mut entry.blocks);
        for touch in touches.drain(..) {
            self.places.leave(id, touch);
        }
        for blocked in blocks.drain(..) {
            let next = &mut self.entries[blocked.0 as usize];
            next.blockers -= 1;
            if next.blockers == 0 && next.uevent.is_some() {
                self.ready.insert(next.flow, next.seqnum, blocked);
            }
        }
        let entry = &mut self.entries[id.0 as usize];
        (entry.touches, entry.blocks) = (touches, blocks);
        self.free.push(id);
        if self.seqnums.is_empty() && self.entries.len() > SLOTS_KEPT {
            *self = Queue { insertions: self.insertions, ..Queue::new(self.coalesce_above) };
        }
    }

    /// The lowest SEQNUM among the events that wait or run; looks at all of them.
    pub fn oldest(&self) -> Option<SeqNum> {
        self.seqnums.keys().min().copied()
    }

    /// Whether an event of this SEQNUM waits or runs.
    pub fn contains(&self, seqnum: SeqNum) -> bool {
        self.seqnums.contains_key(&seqnum)
    }

    /// Whether an event of this device may wait or run. True for a stranger too whose key is the same.
    pub fn may_have_event_of(&self, id: &DeviceId) -> bool {
        let key = key_of_id(id);
        #[cfg(test)]
        let key = key & self.key_mask;
        self.places.last(key).is_some()
    }

    /// Whether an event of this device waits: certain, and so it looks at all that wait.
    pub fn has_waiting_event_of(&self, id: &DeviceId) -> bool {
        self.entries
            .iter()
            .filter_map(|entry| entry.uevent.as_ref())
            .any(|uevent| id_of(uevent).as_ref() == Some(id))
    }

    /// Devices of which events wait; looks at all of them.
    pub fn waiting_devices(&self) -> impl Iterator<Item = DeviceId> {
        let waiting = self.entries.iter().filter_map(|entry| entry.uevent.as_ref());
        waiting.filter_map(|u| Device::new(u.devpath.clone(), u.subsystem.clone(), &u.properties).id())
    }

    /// Number of events that have not started.
    pub fn waiting(&self) -> usize {
        self.seqnums.len() - self.running
    }

    /// Number of events that run.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Whether an event could start now.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }
}

fn id_of(uevent: &Uevent) -> Option<DeviceId> {
    Device::new(uevent.devpath.clone(), uevent.subsystem.clone(), &uevent.properties).id()
}
