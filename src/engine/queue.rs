//! Which event may run now (rules.md 12.1).
//!
//! An event is held back while an earlier one, waiting or running, touches the same device: same
//! id, same node, same devpath, one devpath above the other, or the same by a former name. One index
//! finds these without comparing every pair: a [`Place`] (id, node or devpath) knows the youngest event
//! that stands *on* it, which by itself waits for all older ones, and all events that stand *below* it.
//!
//! Keys are 64-bit hashes of kind and text. A collision makes one event wait for a stranger and does no other
//! harm: where more depends on it, the devices themselves are compared.
//!
//! Coalescing (ARCHITECTURE.md, "Loss, restart, hand-over") begins when more events wait than [`Queue::new`] is told; the
//! queue is then bounded by the number of devices, and no state is lost.

use crate::model::device::{last_component, parse_u32};
use crate::model::fnv::{BuildFnv, Fnv};
use crate::model::properties::Property;
use crate::model::{Action, Device, DeviceId, Now, Properties, SeqNum, Uevent};
use bstr::{BString, ByteSlice};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hasher;

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

/// So many of the last removals that were cancelled out are kept: an event that they have overtaken may come yet, and
/// must not be the last word. That takes microseconds.
const CANCELLED_KEPT: usize = 64;

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

/// One place of an event.
#[derive(Clone, Copy, Debug)]
struct Touch {
    place: u64,
    /// Its node in the list of those below the place; None if it stands on it.
    node: Option<u32>,
}

/// Something that events can stand on or below.
#[derive(Debug, Default)]
struct Place {
    /// The youngest event on it.
    last: Option<QueuedId>,
    /// The first node of those below it.
    below: Option<u32>,
}

/// A member of the list of one place.
#[derive(Debug)]
struct Node {
    entry: QueuedId,
    before: Option<u32>,
    after: Option<u32>,
}

/// Events that may start. Those of one subsystem start in the order of their numbers; subsystems take
/// turns, so that thousands of events of one do not hold up the single event of another.
#[derive(Debug, Default)]
struct Flows {
    by_flow: HashMap<u64, BTreeSet<(SeqNum, QueuedId)>, BuildFnv>,
    /// Flows that have events, in the order of their turns.
    turns: VecDeque<u64>,
}

impl Flows {
    fn insert(&mut self, flow: u64, seqnum: SeqNum, id: QueuedId) {
        let events = self.by_flow.entry(flow).or_default();
        if events.is_empty() {
            self.turns.push_back(flow);
        }
        events.insert((seqnum, id));
    }

    fn take(&mut self) -> Option<QueuedId> {
        let flow = self.turns.pop_front()?;
        let events = self.by_flow.get_mut(&flow)?;
        let (_, id) = events.pop_first()?;
        if !events.is_empty() {
            self.turns.push_back(flow);
        }
        Some(id)
    }

    fn remove(&mut self, flow: u64, place: (SeqNum, QueuedId)) -> bool {
        let Some(events) = self.by_flow.get_mut(&flow) else { return false };
        let was = events.remove(&place);
        if was && events.is_empty() {
            self.turns.retain(|turn| *turn != flow);
        }
        was
    }

    fn renumber(&mut self, flow: u64, place: (SeqNum, QueuedId), seqnum: SeqNum) {
        if self.remove(flow, place) {
            self.insert(flow, seqnum, place.1);
        }
    }

    fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

/// The places of a uevent: the first `on` of them it stands on, the others it stands below.
#[derive(Debug, Default)]
struct Keys {
    flow: u64,
    /// Kind and numbers of a device that is known by these, not by its name.
    number: Option<(u8, u32, u32)>,
    on: Vec<u64>,
    above: Vec<u64>,
}

impl Keys {
    /// The place of the device's id.
    fn id(&self) -> u64 {
        self.on[0]
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
    places: HashMap<u64, Place, BuildFnv>,
    nodes: Vec<Node>,
    free_nodes: Vec<u32>,
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
            places: HashMap::default(),
            nodes: Vec::new(),
            free_nodes: Vec::new(),
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

    /// The removal of this one's device that overtook it and was cancelled out.
    fn cancelled_after(&mut self, uevent: &Uevent) -> Option<Uevent> {
        let is_after = |c: &Uevent| c.seqnum > uevent.seqnum && id_of(c) == id_of(uevent);
        let at = self.cancelled.iter().position(is_after)?;
        self.cancelled.remove(at)
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

    /// The entry `id` has got an event of other places, which `found` are in the way of. It waits for those
    /// of them that are older than it; younger ones may wait for it, but for older ones too, that would have
    /// been found without them.
    fn hold_overtaken(&mut self, id: QueuedId, found: &[QueuedId]) {
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

    /// Puts an entry on and below its places; who is there already comes to `found`, each once.
    fn settle_down(&mut self, id: QueuedId, keys: &Keys) {
        let Queue { entries, places, nodes, free_nodes, found, insertions, .. } = self;
        let mut touches = std::mem::take(&mut entries[id.0 as usize].touches);
        let mut find = |by: QueuedId| {
            let entry = &mut entries[by.0 as usize];
            if std::mem::replace(&mut entry.found_by, *insertions) != *insertions {
                found.push(by);
            }
        };
        for &key in &keys.on {
            let place = places.entry(key).or_default();
            if let Some(by) = place.last.replace(id).filter(|by| *by != id) {
                find(by);
            }
            let mut next = place.below;
            while let Some(node) = next.and_then(|n| nodes.get(n as usize)) {
                find(node.entry);
                next = node.after;
            }
            touches.push(Touch { place: key, node: None });
        }
        for &key in &keys.above {
            let place = places.entry(key).or_default();
            if let Some(by) = place.last.filter(|by| *by != id) {
                find(by);
            }
            let node = Node { entry: id, before: None, after: place.below };
            let number = match free_nodes.pop() {
                Some(number) => {
                    nodes[number as usize] = node;
                    number
                }
                None => {
                    nodes.push(node);
                    (nodes.len() - 1) as u32
                }
            };
            if let Some(second) = place.below.replace(number) {
                nodes[second as usize].before = Some(number);
            }
            touches.push(Touch { place: key, node: Some(number) });
        }
        entries[id.0 as usize].touches = touches;
    }

    /// The youngest event of this one's device, if it still waits.
    fn waiting_before(&self, uevent: &Uevent, keys: &Keys) -> Option<QueuedId> {
        let last = self.places.get(&keys.id())?.last?;
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

    fn coalesce(&mut self, uevent: &Uevent, keys: &Keys) -> Option<Inserted> {
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

    /// New kernels may deliver out of order (interop.md 2.8): where waiting events of the device have higher numbers,
    /// each of them moves on by one place. An entry keeps what it stands on, so the last one, which gets the new
    /// entry, stands on the places of all. Returns that one, and the entries that got another event.
    fn put_in_order(&mut self, arrived: Arrived, keys: &mut Keys) -> (Arrived, Vec<QueuedId>) {
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
            if let Some(place) = self.places.get_mut(&touch.place).filter(|_| touch.node.is_none())
                && place.last == Some(id)
            {
                place.last = others.iter().filter(stands).max_by_key(|(_, born)| *born).map(|(by, _)| *by);
            }
        }
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
            self.leave(id, touch);
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

    /// Takes an entry from one of its places; an empty place goes.
    fn leave(&mut self, id: QueuedId, touch: Touch) {
        let Some(place) = self.places.get_mut(&touch.place) else { return };
        match touch.node {
            None if place.last == Some(id) => place.last = None,
            None => {}
            Some(number) => {
                let Node { before, after, .. } = self.nodes[number as usize];
                match before {
                    Some(before) => self.nodes[before as usize].after = after,
                    None => place.below = after,
                }
                if let Some(after) = after {
                    self.nodes[after as usize].before = before;
                }
                self.free_nodes.push(number);
            }
        }
        if place.last.is_none() && place.below.is_none() {
            self.places.remove(&touch.place);
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
        self.places.get(&key).is_some_and(|place| place.last.is_some())
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

/// Equal in everything but SEQNUM and SYNTH_UUID: processing both would do the same twice.
fn same_but_number(a: &Properties, b: &Properties) -> bool {
    let tells = |p: &Property| p.name != "SEQNUM" && p.name != "SYNTH_UUID";
    let known = |p: Property| b.get(p.name) == Some(p.value);
    a.iter().filter(tells).count() == b.iter().filter(tells).count() && a.iter().filter(tells).all(known)
}

fn id_of(uevent: &Uevent) -> Option<DeviceId> {
    Device::new(uevent.devpath.clone(), uevent.subsystem.clone(), &uevent.properties).id()
}

fn key(kind: u8, text: &[u8]) -> u64 {
    let mut hasher = Fnv::default();
    hasher.write(&[kind]);
    hasher.write(text);
    hasher.finish()
}

/// A key of numbers.
fn number_key(kind: u8, a: u32, b: u32) -> u64 {
    let mut hasher = Fnv::default();
    hasher.write_u8(kind);
    hasher.write_u64((u64::from(a) << 32) | u64::from(b));
    hasher.finish()
}

/// The key of a name. Of drivers the bus is left out.
fn key_of_id(id: &DeviceId) -> u64 {
    match id {
        DeviceId::Block(number) => number_key(b'b', number.major, number.minor),
        DeviceId::Char(number) => number_key(b'c', number.major, number.minor),
        DeviceId::Net(ifindex) => number_key(b'n', ifindex.0, 0),
        DeviceId::Named { subsystem, sysname } => {
            let bus = sysname.find_byte(b':').filter(|_| subsystem == "drivers");
            name_key(subsystem, &sysname[bus.map_or(0, |at| at + 1)..])
        }
    }
}

fn name_key(subsystem: &[u8], name: &[u8]) -> u64 {
    let mut hasher = Fnv::default();
    hasher.write(b"+");
    hasher.write(subsystem);
    hasher.write(&[0]);
    hasher.write(name);
    hasher.finish()
}

impl Keys {
    /// Those of this uevent, in place of what was there.
    fn take(&mut self, uevent: &Uevent) {
        self.flow = key(b'f', &uevent.subsystem);
        self.on.clear();
        self.above.clear();
        let (mut major, mut minor, mut ifindex) = (None, None, None);
        let (mut node, mut old_path) = (None, None);
        // One pass: looking for each of the five costs more.
        for Property { name, value, .. } in uevent.properties.iter() {
            let number = || parse_u32(value).filter(|n| *n > 0);
            match name.as_bytes() {
                b"MAJOR" => major = number(),
                b"MINOR" => minor = number(),
                b"IFINDEX" => ifindex = number(),
                b"DEVNAME" => node = Some(value),
                b"DEVPATH_OLD" => old_path = Some(value),
                _ => {}
            }
        }
        // What `Device::id` says, without making its text.
        self.number = match (major, ifindex) {
            (Some(major), _) => {
                let kind = if uevent.subsystem == "block" { b'b' } else { b'c' };
                Some((kind, major, minor.unwrap_or(0)))
            }
            (None, Some(ifindex)) => Some((b'n', ifindex, 0)),
            (None, None) => None,
        };
        self.on.push(match self.number {
            Some((kind, a, b)) => number_key(kind, a, b),
            // Drivers of one name on two buses share a key, which does no harm.
            None => name_key(&uevent.subsystem, last_component(&uevent.devpath)),
        });
        self.on.extend(node.map(|node| key(b'/', node)));
        path_keys(&uevent.devpath, self);
        if let Some(old) = old_path {
            path_keys(old, self);
        }
    }

    /// Those of another entry, too.
    fn add(&mut self, touches: &[Touch]) {
        for touch in touches {
            let places = if touch.node.is_none() { &mut self.on } else { &mut self.above };
            if !places.contains(&touch.place) {
                places.push(touch.place);
            }
        }
    }
}

/// One pass over the path gives the hash of each prefix that ends at a `/`.
fn path_keys(path: &[u8], keys: &mut Keys) {
    let shared = never_devices(path);
    let mut hasher = Fnv::default();
    hasher.write(b"p");
    for (at, byte) in path.iter().enumerate() {
        if *byte == b'/' && at > shared {
            keys.above.push(hasher.finish());
        }
        hasher.write(std::slice::from_ref(byte));
    }
    keys.on.push(hasher.finish());
}

/// Length of the front part in which no device can stand: `/devices`, `/devices/virtual` and
/// `/devices/virtual/<class>` are plain folders. Without this, half of a busy machine's events would
/// be listed below one path.
fn never_devices(path: &[u8]) -> usize {
    let Some(rest) = path.strip_prefix(b"/devices/") else { return 0 };
    let Some(rest) = rest.strip_prefix(b"virtual/") else { return "/devices".len() };
    let class = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
    "/devices/virtual/".len() + class
}

#[cfg(test)]
mod pairwise;

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn uevent(seqnum: u64, action: &str, devpath: &str, extra: &[(&str, &str)]) -> Uevent {
        let mut lines = vec![
            format!("ACTION={action}"),
            format!("DEVPATH={devpath}"),
            "SUBSYSTEM=test".to_string(),
            format!("SEQNUM={seqnum}"),
        ];
        lines.extend(extra.iter().map(|(k, v)| format!("{k}={v}")));
        Uevent::from_lines(lines.iter().map(|l| l.as_bytes())).unwrap()
    }

    pub(super) fn now() -> Now {
        Now::from_secs(1)
    }

    fn ready(queue: &mut Queue) -> Vec<u64> {
        std::iter::from_fn(|| queue.take_ready()).map(|r| r.uevent.seqnum.0).collect()
    }

    /// The relation of rules.md 12.1, each pair in both orders.
    #[test]
    fn related_devices_wait_and_unrelated_ones_do_not() {
        type Side = (&'static str, &'static [(&'static str, &'static str)]);
        let table: [(Side, Side, bool); 9] = [
            (("/devices/a/b", &[]), ("/devices/a/b/c", &[]), true),
            (("/devices/a/veth9", &[]), ("/devices/a/veth99", &[]), false),
            (("/devices/a/x", &[]), ("/devices/a/x", &[("IFINDEX", "7")]), true),
            (("/devices/virtual/net/a", &[]), ("/devices/virtual/net/b", &[]), false),
            (("/devices/virtual/net/a", &[]), ("/devices/virtual/net/a/queues/rx-0", &[]), true),
            (("/devices/p", &[("IFINDEX", "3")]), ("/devices/q", &[("IFINDEX", "3")]), true),
            (("/devices/p", &[("DEVNAME", "sda")]), ("/devices/q", &[("DEVNAME", "/dev/sda")]), true),
            (("/devices/p", &[("DEVPATH_OLD", "/devices/o")]), ("/devices/o", &[]), true),
            (
                ("/devices/p", &[("MAJOR", "8"), ("MINOR", "1")]),
                ("/devices/q", &[("MAJOR", "8"), ("MINOR", "2")]),
                false,
            ),
        ];
        for (a, b, related) in table {
            for (first, second) in [(a, b), (b, a)] {
                let mut queue = Queue::new(99);
                queue.insert(uevent(1, "add", first.0, first.1), now());
                queue.insert(uevent(2, "add", second.0, second.1), now());
                let started: Vec<Ready> = std::iter::from_fn(|| queue.take_ready()).collect();
                assert_eq!(started.len(), if related { 1 } else { 2 }, "{first:?} {second:?}");
                assert_eq!(started[0].uevent.seqnum.0, 1);
                queue.finish(started[0].id);
                assert_eq!(ready(&mut queue).len(), usize::from(related));
            }
        }
    }

    #[test]
    fn a_parent_waits_for_all_that_stands_below_it() {
        let mut queue = Queue::new(99);
        for n in 1..=3 {
            queue.insert(uevent(n, "add", &format!("/devices/d/p{n}"), &[]), now());
        }
        queue.insert(uevent(4, "change", "/devices/d", &[]), now());
        queue.insert(uevent(5, "change", "/devices/d/p1", &[]), now());
        let started: Vec<Ready> = std::iter::from_fn(|| queue.take_ready()).collect();
        assert_eq!(started.len(), 3);
        for r in &started {
            assert!(!queue.has_ready());
            queue.finish(r.id);
        }
        let parent = queue.take_ready().unwrap();
        assert_eq!(parent.uevent.seqnum.0, 4);
        assert!(queue.take_ready().is_none());
        queue.finish(parent.id);
        assert_eq!(ready(&mut queue), [5]);
    }

    #[test]
    fn ready_events_start_by_number_and_a_number_counts_once() {
        let mut queue = Queue::new(99);
        for n in [3, 1, 2, 1] {
            queue.insert(uevent(n, "add", &format!("/devices/x{n}"), &[]), now());
        }
        assert_eq!(ready(&mut queue), [1, 2, 3]);
        assert_eq!(queue.insert(uevent(2, "add", "/devices/y", &[]), now()), Inserted::Duplicate);
    }

    #[test]
    fn whether_a_device_has_an_event_is_known_by_its_id() {
        let block = [("SUBSYSTEM", "block"), ("MAJOR", "8"), ("MINOR", "0")];
        let char = [("SUBSYSTEM", "tty"), ("MAJOR", "4"), ("MINOR", "1")];
        let net = [("SUBSYSTEM", "net"), ("IFINDEX", "3")];
        for (id, devpath, extra) in [
            ("b8:0", "/devices/a/sda", &block[..]),
            ("c4:1", "/devices/a/tty1", &char),
            ("n3", "/devices/a/eth0", &net),
            ("+test:a!b", "/devices/a!b", &[]),
            ("+drivers:pci:ahci", "/bus/pci/drivers/ahci", &[("SUBSYSTEM", "drivers")]),
        ] {
            let id = DeviceId::parse(id.as_bytes()).unwrap();
            let mut queue = Queue::new(99);
            let event = uevent(1, "remove", devpath, extra);
            let device =
                crate::model::Device::new(event.devpath.clone(), event.subsystem.clone(), &event.properties);
            assert_eq!(device.id().as_ref(), Some(&id));
            assert!(!queue.may_have_event_of(&id));
            queue.insert(event, now());
            assert!(queue.may_have_event_of(&id) && queue.has_waiting_event_of(&id), "{id}");
            let running = queue.take_ready().unwrap();
            assert!(queue.may_have_event_of(&id) && !queue.has_waiting_event_of(&id), "{id} runs");
            queue.finish(running.id);
            assert!(!queue.may_have_event_of(&id));
        }
    }

    #[test]
    fn subsystems_take_turns() {
        let mut queue = Queue::new(99);
        for n in 1..=5 {
            queue.insert(uevent(n, "add", &format!("/devices/d{n}"), &[]), now());
        }
        let mut other = uevent(9, "change", "/devices/x", &[]);
        other.subsystem = "other".into();
        queue.insert(other, now());
        assert_eq!(ready(&mut queue), [1, 9, 2, 3, 4, 5]);
    }

    #[test]
    fn events_of_one_device_that_arrive_out_of_order_are_put_in_order() {
        let mut queue = Queue::new(99);
        queue.insert(uevent(9, "remove", "/devices/x", &[("IFINDEX", "4")]), now());
        queue.insert(uevent(8, "add", "/devices/x", &[("IFINDEX", "4")]), now());
        let first = queue.take_ready().unwrap();
        assert_eq!((first.uevent.seqnum.0, first.uevent.action), (8, Action::Add));
        queue.finish(first.id);
        assert_eq!(ready(&mut queue), [9]);
    }

    #[test]
    fn however_three_events_of_one_device_arrive_they_come_out_in_order() {
        let orders = [[8, 9, 10], [8, 10, 9], [9, 8, 10], [9, 10, 8], [10, 8, 9], [10, 9, 8]];
        for order in orders {
            let mut queue = Queue::new(99);
            for n in order {
                queue.insert(uevent(n, "change", "/devices/x", &[("IFINDEX", "4")]), now());
            }
            let mut numbers = Vec::new();
            while let Some(ready) = queue.take_ready() {
                assert!(queue.take_ready().is_none(), "{order:?}");
                numbers.push(ready.uevent.seqnum.0);
                queue.finish(ready.id);
            }
            assert_eq!(numbers, [8, 9, 10], "{order:?}");
        }
    }

    #[test]
    fn in_a_flood_what_was_overtaken_is_not_the_last_word() {
        type Event = (u64, &'static str);
        let cases: [(&[Event], &[Event]); 4] = [
            // A change that its device's removal overtook, while add and removal cancelled out.
            (&[(10, "add"), (12, "remove"), (11, "change")], &[(11, "change"), (12, "remove")]),
            // The removal of a device whose number the next one has got.
            (&[(11, "add"), (10, "remove")], &[(10, "remove"), (11, "add")]),
            (&[(11, "change"), (10, "change")], &[(10, "change"), (11, "change")]),
            (&[(10, "add"), (12, "remove"), (13, "change")], &[(13, "change")]),
        ];
        for (arrived, expected) in cases {
            let mut queue = Queue::new(0);
            queue.insert(uevent(1, "add", "/devices/other", &[]), now());
            for (number, action) in arrived {
                queue.insert(uevent(*number, action, "/devices/x", &[]), now());
            }
            let mut started = Vec::new();
            while let Some(ready) = queue.take_ready() {
                started.push((ready.uevent.seqnum.0, ready.uevent.action.as_str()));
                queue.finish(ready.id);
            }
            assert_eq!(started[1..], *expected, "{arrived:?}");
        }
    }

    #[test]
    fn a_flood_is_coalesced_and_every_uuid_is_kept() {
        let mut queue = Queue::new(99);
        for n in 1..=100 {
            queue.insert(uevent(n, "add", &format!("/devices/x{n}"), &[]), now());
        }
        let at = |n: u64| 10_000 + n;
        let change = |n, uuid: &str| uevent(at(n), "change", "/devices/z", &[("SYNTH_UUID", uuid)]);
        assert_eq!(queue.insert(change(1, "u1"), now()), Inserted::Queued);
        assert_eq!(queue.insert(change(2, "0"), now()), Inserted::Merged);
        assert_eq!(queue.insert(change(3, "u3"), now()), Inserted::Merged);
        let other = uevent(at(4), "change", "/devices/z", &[("EJECT", "1")]);
        assert_eq!(queue.insert(other, now()), Inserted::Queued, "it says something else");
        assert_eq!(queue.insert(uevent(at(5), "add", "/devices/y", &[]), now()), Inserted::Queued);
        assert_eq!(queue.insert(uevent(at(6), "remove", "/devices/y", &[]), now()), Inserted::Cancelled);
        let all: Vec<Ready> = std::iter::from_fn(|| queue.take_ready()).collect();
        let merged = all.iter().find(|r| r.uevent.devpath == "/devices/z").unwrap();
        assert_eq!(merged.uevent.seqnum.0, at(3));
        assert_eq!(merged.swallowed, [Swallowed { seqnum: SeqNum(at(1)), uuid: "u1".into() }]);
        assert!(!all.iter().any(|r| r.uevent.devpath == "/devices/y"));
        for r in all {
            queue.finish(r.id);
        }
        let last = queue.take_ready().unwrap();
        queue.finish(last.id);
        assert_eq!((queue.waiting(), queue.running()), (0, 0));
        assert!(queue.places.is_empty() && queue.seqnums.is_empty());
    }
}
