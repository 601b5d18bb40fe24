//! The queue against one that compares every pair of events by the words of rules.md 12.1.

use super::flood::{CANCELLED_KEPT, same_but_number};
use super::tests::{now, uevent};
use super::*;
use crate::model::{Action, Device};

#[path = "../../../test/support/random.rs"]
mod random;
use random::Random;
use std::rc::Rc;

/// One place in the order of the queue. An event that overtook another has taken its place; both
/// events are then in the way of what comes after the second one.
#[derive(Debug)]
struct Slot {
    entry: Option<QueuedId>,
    uevent: Uevent,
    swallowed: Vec<SeqNum>,
    waits_as: Vec<Rc<Names>>,
    blocks_as: Vec<Rc<Names>>,
}

/// Events in the order of the queue, each looked at anew for every question.
#[derive(Debug, Default)]
struct Pairwise {
    slots: Vec<Slot>,
    cancelled: Vec<Uevent>,
}

/// What an event is related to others by.
#[derive(Debug)]
struct Names {
    id: Option<DeviceId>,
    node: Option<BString>,
    paths: Vec<BString>,
}

impl Names {
    fn of(uevent: &Uevent) -> Names {
        let value = |name: &str| uevent.properties.get(name).map(|v| v.to_owned());
        let paths = [Some(uevent.devpath.clone()), value("DEVPATH_OLD")];
        Names { id: id(uevent), node: value("DEVNAME"), paths: paths.into_iter().flatten().collect() }
    }
}

fn id(uevent: &Uevent) -> Option<DeviceId> {
    Device::new(uevent.devpath.clone(), uevent.subsystem.clone(), &uevent.properties).id()
}

fn above_or_equal(a: &[u8], b: &[u8]) -> bool {
    b.strip_prefix(a).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

fn related(a: &Names, b: &Names) -> bool {
    let near = |p: &BString| b.paths.iter().any(|q| above_or_equal(p, q) || above_or_equal(q, p));
    a.id == b.id || (a.node.is_some() && a.node == b.node) || a.paths.iter().any(near)
}

impl Pairwise {
    fn waiting(&self) -> usize {
        self.slots.iter().filter(|slot| slot.entry.is_none()).count()
    }

    fn may_start(&self, at: usize) -> bool {
        let slot = &self.slots[at];
        let in_the_way =
            |older: &Slot| older.blocks_as.iter().any(|a| slot.waits_as.iter().any(|b| related(a, b)));
        slot.entry.is_none() && !self.slots[..at].iter().any(in_the_way)
    }

    fn insert(&mut self, uevent: Uevent, coalesce_above: usize) -> Inserted {
        if self.slots.iter().any(|slot| slot.uevent.seqnum == uevent.seqnum) {
            return Inserted::Duplicate;
        }
        let is_after = |c: &Uevent| c.seqnum > uevent.seqnum && id(c) == id(&uevent);
        if let Some(at) = self.cancelled.iter().position(is_after) {
            let removal = self.cancelled.remove(at);
            self.insert_new(uevent);
            self.insert_new(removal);
            return Inserted::Queued;
        }
        if self.waiting() > coalesce_above
            && let Some(at) = self.last_waiting(&uevent)
            && let Some(inserted) = self.fold(at, &uevent)
        {
            return inserted;
        }
        self.insert_new(uevent);
        Inserted::Queued
    }

    /// The youngest event of this one's device, if it waits.
    fn last_waiting(&self, uevent: &Uevent) -> Option<usize> {
        let last = self.slots.iter().rposition(|slot| slot.blocks_as[0].id == id(uevent));
        last.filter(|&at| self.slots[at].entry.is_none())
    }

    fn insert_new(&mut self, uevent: Uevent) {
        let names = Rc::new(Names::of(&uevent));
        let of_device = |slot: &&mut Slot| slot.blocks_as[0].id == names.id;
        let is_overtaken = |slot: &&mut Slot| slot.entry.is_none() && slot.uevent.seqnum > uevent.seqnum;
        let mut overtaken: Vec<&mut Slot> =
            self.slots.iter_mut().rev().filter(of_device).take_while(is_overtaken).collect();
        let mut blocks_as = vec![names.clone()];
        blocks_as.extend(overtaken.iter().flat_map(|slot| slot.blocks_as.clone()));
        let (mut moving, mut swallowed) = (uevent.clone(), Vec::new());
        for slot in overtaken.iter_mut().rev() {
            std::mem::swap(&mut slot.uevent, &mut moving);
            std::mem::swap(&mut slot.swallowed, &mut swallowed);
            slot.waits_as.push(Rc::new(Names::of(&slot.uevent)));
        }
        let waits_as = blocks_as.clone();
        self.slots.push(Slot { entry: None, uevent: moving, swallowed, waits_as, blocks_as });
    }

    fn fold(&mut self, at: usize, uevent: &Uevent) -> Option<Inserted> {
        let slot = &mut self.slots[at];
        let synthetic = |u: &Uevent| u.properties.get("SYNTH_UUID").is_some();
        match (slot.uevent.action, uevent.action) {
            _ if slot.uevent.devpath != uevent.devpath || slot.uevent.seqnum > uevent.seqnum => None,
            (Action::Change, Action::Change)
                if same_but_number(&slot.uevent.properties, &uevent.properties) =>
            {
                if synthetic(&slot.uevent) {
                    slot.swallowed.push(slot.uevent.seqnum);
                }
                slot.uevent = uevent.clone();
                Some(Inserted::Merged)
            }
            (Action::Add, Action::Remove) if !synthetic(&slot.uevent) && !synthetic(uevent) => {
                self.slots.remove(at);
                self.cancelled.push(uevent.clone());
                if self.cancelled.len() > CANCELLED_KEPT {
                    self.cancelled.remove(0);
                }
                Some(Inserted::Cancelled)
            }
            _ => None,
        }
    }
}

/// Few devices, near each other, so that most events have to do with others.
fn any_uevent(random: &mut Random, seqnum: u64) -> Uevent {
    let paths = [
        "/devices/a",
        "/devices/a/b",
        "/devices/a/b/c",
        "/devices/a/bc",
        "/devices/d",
        "/devices/d/c",
        "/devices/virtual/net/x",
        "/devices/virtual/net/x/queues/rx-0",
        "/devices/virtual/net/xy",
        "/bus/e",
    ];
    let path = paths[random.below(paths.len())];
    let mut extra = Vec::new();
    let number = random.below(4).to_string();
    match random.below(5) {
        0 => extra.push(("IFINDEX", number.as_str())),
        1 => extra.extend([("SUBSYSTEM", "block"), ("MAJOR", "8"), ("MINOR", number.as_str())]),
        _ => {}
    }
    if random.below(6) == 0 {
        extra.push(("DEVNAME", ["n0", "n1"][random.below(2)]));
    }
    let action = ["add", "add", "remove", "remove", "change", "move"][random.below(6)];
    if action == "move" {
        extra.push(("DEVPATH_OLD", paths[random.below(paths.len())]));
    }
    if random.below(4) == 0 {
        extra.push(("SYNTH_UUID", "u"));
    }
    uevent(seqnum, action, path, &extra)
}

/// A queue and its model, given the same.
struct Both {
    seed: u64,
    coalesce_above: usize,
    /// Nothing is folded or overtaken: who stands where such events were waits for all that those waited for.
    is_exact: bool,
    queue: Queue,
    model: Pairwise,
    running: Vec<QueuedId>,
}

impl Both {
    fn insert(&mut self, uevent: Uevent) {
        let text = format!("seed {}: {uevent:?}", self.seed);
        let expected = self.model.insert(uevent.clone(), self.coalesce_above);
        assert_eq!(self.queue.insert(uevent, now()), expected, "{text}");
    }

    /// False if none can start.
    fn start(&mut self) -> bool {
        let seed = self.seed;
        let Some(ready) = self.queue.take_ready() else {
            let starts: Vec<usize> =
                (0..self.model.slots.len()).filter(|&at| self.model.may_start(at)).collect();
            assert!(
                starts.is_empty() || !self.is_exact && !self.running.is_empty(),
                "seed {seed}: {starts:?} could"
            );
            return false;
        };
        let at = self.model.slots.iter().position(|slot| slot.uevent.seqnum == ready.uevent.seqnum);
        let at = at.expect("it was put in");
        assert!(self.model.may_start(at), "seed {seed}: event {}", ready.uevent.seqnum);
        let slot = &mut self.model.slots[at];
        assert_eq!(slot.uevent, ready.uevent, "seed {seed}");
        let swallowed: Vec<SeqNum> = ready.swallowed.iter().map(|s| s.seqnum).collect();
        assert_eq!(std::mem::take(&mut slot.swallowed), swallowed, "seed {seed}");
        slot.entry = Some(ready.id);
        self.running.push(ready.id);
        true
    }

    fn finish(&mut self, random: &mut Random) {
        let entry = self.running.swap_remove(random.below(self.running.len()));
        self.model.slots.retain(|slot| slot.entry != Some(entry));
        self.queue.finish(entry);
    }

    fn compare(&self) {
        let seed = self.seed;
        assert_eq!(self.queue.waiting(), self.model.waiting(), "seed {seed}");
        assert_eq!(self.queue.running(), self.running.len(), "seed {seed}");
        assert_eq!(
            self.queue.oldest(),
            self.model.slots.iter().map(|s| s.uevent.seqnum).min(),
            "seed {seed}"
        );
        for id in self.model.slots.iter().filter_map(|slot| slot.blocks_as[0].id.as_ref()) {
            assert!(self.queue.may_have_event_of(id), "seed {seed}: {id}");
        }
        if let Some(id) = self.model.slots.first().and_then(|slot| slot.blocks_as[0].id.as_ref()) {
            let waits = |slot: &Slot| slot.entry.is_none() && self::id(&slot.uevent).as_ref() == Some(id);
            let expected = self.model.slots.iter().any(waits);
            assert_eq!(self.queue.has_waiting_event_of(id), expected, "seed {seed}: {id}");
        }
    }
}

/// `unordered`: one in so many events has a number that comes too early; 0 is none.
fn run(seed: u64, coalesce_above: usize, unordered: usize) {
    run_with(seed, Queue::new(coalesce_above), unordered);
}

fn run_with(seed: u64, queue: Queue, unordered: usize) {
    let mut random = Random(seed);
    let coalesce_above = queue.coalesce_above;
    let is_exact = coalesce_above == usize::MAX && unordered == 0 && queue.key_mask == u64::MAX;
    let mut both =
        Both { seed, coalesce_above, is_exact, queue, model: Pairwise::default(), running: Vec::new() };
    let mut inserted = 0;
    let busy = 2 + random.below(6);
    while inserted < 60 || both.queue.has_ready() || !both.running.is_empty() {
        match random.below(busy) {
            0 => _ = both.start(),
            1 if !both.running.is_empty() => both.finish(&mut random),
            _ if inserted < 60 => {
                inserted += 1;
                let is_early = unordered > 0 && random.below(unordered) == 0;
                let early = if is_early { 3 * random.below(5) as u64 } else { 0 };
                let uevent = any_uevent(&mut random, 4 * (inserted + 5) - early);
                both.insert(uevent);
            }
            _ => while both.start() {},
        }
        both.compare();
    }
    assert!(both.model.slots.is_empty(), "seed {seed}");
    assert!(both.queue.places.are_empty() && both.queue.seqnums.is_empty(), "seed {seed}");
}

/// In the last one an event overtakes one that stands behind a younger one's blockers.
fn seeds() -> impl Iterator<Item = u64> {
    (1..=60).chain([1072])
}

#[test]
fn what_may_start_is_what_pairs_say() {
    seeds().for_each(|seed| run(seed, usize::MAX, 0));
}

#[test]
fn numbers_out_of_order_change_places() {
    seeds().for_each(|seed| run(seed, usize::MAX, 3));
}

#[test]
fn folded_events_hold_up_what_comes_after_them_no_less() {
    seeds().for_each(|seed| run(seed, 4, 0));
    seeds().for_each(|seed| run(seed, 0, 3));
}

#[test]
fn keys_that_collide_make_events_wait_and_do_no_other_harm() {
    for (seed, key_mask) in (1..=24).zip([0, 1, 3, 7].into_iter().cycle()) {
        for unordered in [0, 3] {
            let queue = Queue { key_mask, ..Queue::new(usize::MAX) };
            run_with(seed, queue, unordered);
        }
    }
}
