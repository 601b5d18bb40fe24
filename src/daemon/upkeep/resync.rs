//! Making sysfs and `/run/udev` agree again, where events did not: after a loss of events all devices are
//! triggered, and devices that are gone are removed; at the start the latter is done for what vanished
//! while no daemon ran, after what an earlier daemon has left half done ([`crate::tasks::interrupted`]).
//!
//! All of it goes in slices, between which the loop does its other work: with thousands of devices it takes
//! a good part of a second.
//!
//! Must stay true: who is called gone is gone. The world moves on between slices, so what was not found is
//! looked for by its own name, and once more after a while; and as long as an event of it waits or runs, that
//! event decides, and it is looked for once more afterwards.
//!
//! A device of which this daemon has handled an event gets the `remove` that the kernel would have sent:
//! rules run, listeners are told. Of one that only an earlier daemon knew there is but the record, which
//! does not say what an announcement must (DEVPATH, SUBSYSTEM): what is left of it goes silently.

use super::super::sources::links::Links;
use super::super::work::Work;
use super::coldplug::Coldplug;
use crate::engine::Input;
use crate::model::{DeviceId, Now, SeqNum, Trigger};
use crate::sys::clock::monotonic;
use crate::tasks::gone::{Presence, Removed};
use crate::tasks::interrupted::Interrupted;
use crate::tasks::unfinished::Left;
use crate::tasks::unfinished::Removal;
use crate::world::enumerate::{self, Filter, Kind, Scan};
use bstr::BString;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// Between two looks for a device that is not there: longer than the kernel takes from the end of its folder
/// to its last event.
const SECOND_LOOK: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug, Default)]
pub struct Resync {
    stage: Stage,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Idle,
    /// What was interrupted by the end of an earlier daemon?
    Interrupted(Box<Interrupted>),
    /// Which devices are there?
    Scan(Box<Scan>),
    /// What is to be triggered, and who is not there?
    Look(Box<Look>),
    /// Are these gone?
    Doubt { ids: Vec<DeviceId>, gone: Vec<DeviceId> },
    /// These are not there; is an event of them on its way?
    Wait { until: Now, gone: Vec<DeviceId> },
    /// These go. Removals are numbered downwards from here.
    Remove {
        gone: Vec<DeviceId>,
        busy: Vec<DeviceId>,
        number: SeqNum,
        removed: usize,
        current: Option<Box<Removal>>,
    },
}

#[derive(Debug)]
struct Look {
    found: std::vec::IntoIter<BString>,
    /// Syspaths that are about to be triggered anyway.
    waiting: HashSet<BString>,
    present: HashSet<DeviceId>,
    wanted: BTreeMap<InOrder, Trigger>,
}

/// A devpath, in the order in which devices are triggered.
#[derive(Debug, PartialEq, Eq)]
struct InOrder(BString);

impl Ord for InOrder {
    fn cmp(&self, other: &InOrder) -> Ordering {
        enumerate::compare(&self.0, &other.0)
    }
}

impl PartialOrd for InOrder {
    fn partial_cmp(&self, other: &InOrder) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Resync {
    /// Devices are being looked at that will be triggered.
    pub(crate) fn is_scanning(&self) -> bool {
        match &self.stage {
            Stage::Interrupted(interrupted) => interrupted.is_scan_wanted,
            stage => matches!(stage, Stage::Scan(_) | Stage::Look(_)),
        }
    }

    /// When there is something to do.
    pub fn timeout(&self) -> Option<Now> {
        match &self.stage {
            Stage::Wait { until, .. } => Some(*until),
            Stage::Interrupted(interrupted) => interrupted.until,
            _ => None,
        }
    }

    /// Looks at all devices, whatever was under way before; what was interrupted comes first.
    pub(crate) fn start_scan(&mut self) {
        match &mut self.stage {
            Stage::Interrupted(interrupted) => interrupted.is_scan_wanted = true,
            stage => *stage = Stage::Scan(Box::new(Scan::new(Kind::All))),
        }
    }

    /// Looks for what an earlier daemon has left half done, and for what devices have left behind that vanished
    /// before we came. Events of a file speak of devices that nobody has.
    pub(crate) fn look_for_leftovers(&mut self, work: &Work) {
        if !work.intake.is_finite() {
            self.stage = Stage::Interrupted(Box::new(work.stores.list_interrupted()));
        }
    }

    /// Whether there is something to do at once.
    pub(crate) fn has_work(&self, links: &Links) -> bool {
        match &self.stage {
            Stage::Idle | Stage::Wait { .. } => false,
            Stage::Scan(_) | Stage::Look(_) => true,
            Stage::Interrupted(interrupted) if interrupted.until.is_some() => false,
            Stage::Interrupted(_) => links.is_complete(),
            // Before that it is not known of links.
            Stage::Doubt { .. } | Stage::Remove { .. } => links.is_complete(),
        }
    }

    /// The next slice. `is_read`: all uevents that have come are in the queue.
    pub(crate) fn go_on(&mut self, work: &mut Work, coldplug: &mut Coldplug, is_read: bool) {
        if let Stage::Wait { until, gone } = &mut self.stage
            && *until <= work.now
            && is_read
        {
            let number = work.engine.newest().unwrap_or(SeqNum(1));
            let gone = std::mem::take(gone);
            self.stage = Stage::Remove { gone, busy: Vec::new(), number, removed: 0, current: None };
        }
        if let Stage::Interrupted(interrupted) = &mut self.stage
            && interrupted.until.is_some_and(|until| until <= work.now)
        {
            interrupted.until = None;
        }
        if !self.has_work(&work.links) {
            return;
        }
        work.stores.turn.begin(monotonic());
        while self.has_work(&work.links) && work.stores.turn.has_time() {
            let stage = std::mem::take(&mut self.stage);
            self.stage = step(work, coldplug, stage);
        }
    }
}

/// What comes next.
fn step(work: &mut Work, coldplug: &mut Coldplug, stage: Stage) -> Stage {
    match stage {
        Stage::Idle | Stage::Wait { .. } => stage,
        Stage::Interrupted(mut interrupted) => match look_at_interrupted(work, coldplug, &mut interrupted) {
            true => Stage::Interrupted(interrupted),
            false if interrupted.is_scan_wanted => Stage::Scan(Box::new(Scan::new(Kind::All))),
            false => {
                let ids = work.stores.all_known().into_iter().collect();
                Stage::Doubt { ids, gone: Vec::new() }
            }
        },
        Stage::Scan(mut scan) => match scan.step(&work.sysfs, &Filter::default()) {
            true => Stage::Scan(scan),
            false => Stage::Look(Box::new(Look {
                found: scan.into_devpaths().collect::<Vec<_>>().into_iter(),
                waiting: coldplug.waiting().cloned().collect(),
                present: HashSet::new(),
                wanted: BTreeMap::new(),
            })),
        },
        Stage::Look(mut look) => match look.found.next() {
            Some(devpath) => {
                look_at(work, &mut look, devpath);
                Stage::Look(look)
            }
            None => trigger_all(work, coldplug, *look),
        },
        Stage::Doubt { mut ids, mut gone } => match ids.pop() {
            Some(id) => {
                if presence(work, &id) != Presence::There {
                    gone.push(id);
                }
                Stage::Doubt { ids, gone }
            }
            None if gone.is_empty() => Stage::Idle,
            None => Stage::Wait { until: work.now + SECOND_LOOK, gone },
        },
        Stage::Remove { mut gone, mut busy, mut number, mut removed, current } => {
            let links = &mut work.links.exchange.table;
            if let Some(mut removal) = current {
                return match work.stores.go_on_removing(links, &work.engine, &mut removal) {
                    Removed::Partly => Stage::Remove { gone, busy, number, removed, current: Some(removal) },
                    ended => {
                        busy.extend((ended == Removed::IsBusy).then_some(removal.id));
                        Stage::Remove { gone, busy, number, removed, current: None }
                    }
                };
            }
            let Some(id) = gone.pop() else {
                if removed > 0 {
                    log::warn!("{removed} devices are gone without an event: they are removed");
                }
                // The last event of these may yet speak of what is gone.
                return match busy.is_empty() {
                    true => Stage::Idle,
                    false => Stage::Wait { until: work.now + SECOND_LOOK, gone: busy },
                };
            };
            let mut current = None;
            match presence(work, &id) {
                _ if work.engine.has_event_of(&id) => busy.push(id),
                Presence::Unknown => busy.push(id),
                Presence::There => {}
                Presence::Gone => {
                    current = remove_device(work, &id, &mut number).map(Box::new);
                    removed += 1;
                }
            }
            Stage::Remove { gone, busy, number, removed, current }
        }
    }
}

/// Looks at one device more; false when all were looked at.
fn look_at_interrupted(work: &mut Work, coldplug: &mut Coldplug, interrupted: &mut Interrupted) -> bool {
    let goes_on =
        work.stores.look_at_interrupted(&work.links.exchange.table, &work.engine, interrupted, work.now);
    if !goes_on {
        coldplug_more(work, coldplug, interrupted);
    }
    goes_on
}

fn coldplug_more(work: &Work, coldplug: &mut Coldplug, interrupted: &mut Interrupted) {
    let wanted = interrupted.take_wanted();
    if !wanted.is_empty() {
        log::info!("{} devices are triggered whose events were interrupted", wanted.len());
        coldplug.trigger(work, wanted);
    }
}

/// Notes that a device is there, and how to trigger it: an `add` if it has no record, else a `change`.
fn look_at(work: &Work, look: &mut Look, devpath: BString) {
    let device = work.sysfs.device_at(devpath);
    let id = device.id();
    let is_known = id.as_ref().is_some_and(|id| work.stores.database.has_record(id));
    // The kernel's own events of a bus say otherwise than sysfs does (interop.md 1.2).
    if device.devpath.starts_with(b"/bus/") {
        look.present.insert(DeviceId::Named { subsystem: "bus".into(), sysname: device.sysname.clone() });
    }
    look.present.extend(id);
    if !look.waiting.contains(&work.syspath(&device.devpath)) {
        let action = if is_known { Trigger::Change } else { Trigger::Add };
        look.wanted.insert(InOrder(device.devpath), action);
    }
}

fn trigger_all(work: &Work, coldplug: &mut Coldplug, look: Look) -> Stage {
    log::warn!("Looked at all devices: {} are triggered", look.wanted.len());
    coldplug.trigger(work, look.wanted.into_iter().map(|(InOrder(devpath), action)| (action, devpath)));
    let mut known = work.stores.all_known();
    // An event that waits or runs may yet make a record of a device whose removal was lost.
    known.extend(work.engine.devices());
    let absent = known.into_iter().filter(|id| !look.present.contains(id));
    Stage::Doubt { ids: absent.collect(), gone: Vec::new() }
}

fn presence(work: &Work, id: &DeviceId) -> Presence {
    work.stores.presence(&work.links.exchange.table, id)
}

fn remove_device(work: &mut Work, id: &DeviceId, number: &mut SeqNum) -> Option<Removal> {
    let removal = work.engine.free_below(*number).and_then(|free| {
        *number = free;
        work.stores.database.removal(id, free)
    });
    match removal {
        Some(removal) => {
            work.inbox.push_back(Input::Uevent(removal));
            None
        }
        None => Some(work.stores.begin_removing(id, Left::IfGone)),
    }
}
