//! Making sysfs and `/run/udev` agree again, where events did not: after a loss of events all devices are
//! triggered, and devices that are gone are removed; at the start the latter is done for what vanished
//! while no daemon ran, after what an earlier daemon has left half done ([`super::interrupted`]).
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

use super::coldplug::Action;
use super::interrupted::Interrupted;
use super::portions::{Owner, Parts};
use super::shell::Shell;
use super::task::World;
use super::unfinished::Left;
use crate::engine::{Engine, Input};
use crate::links::{Lookup, Table};
use crate::model::need::{PartsDone, Rest};
use crate::model::{DevNum, DeviceId, Errno, Now, SeqNum};
use crate::sys::clock::monotonic;
use crate::world::enumerate::{self, Filter, Kind, Scan};
use bstr::{BString, ByteSlice};
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
    wanted: BTreeMap<InOrder, Action>,
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

/// A device that is gone, or counts as such, while what it has left is removed in portions.
#[derive(Debug)]
pub(super) struct Removal {
    pub id: DeviceId,
    pub left: Left,
    rest: Rest,
    progress: PartsDone,
}

/// What has become of a [`Removal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removed {
    Partly,
    Whole,
    /// An event of the device waits or runs, or nobody knows whether it has come back.
    IsBusy,
    /// The device has come back and its event was handled.
    IsThere,
}

/// What is known of whether a device is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It is, or nobody will ever be able to tell.
    There,
    Gone,
    /// Messages of links were lost, or not read yet: who must know asks again.
    Unknown,
}

impl Resync {
    /// Devices are being looked at that will be triggered.
    pub(super) fn is_scanning(&self) -> bool {
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
}

impl Shell {
    /// Looks at all devices, whatever was under way before; what was interrupted comes first.
    pub(super) fn start_scan(&mut self) {
        match &mut self.resync.stage {
            Stage::Interrupted(interrupted) => interrupted.is_scan_wanted = true,
            stage => *stage = Stage::Scan(Box::new(Scan::new(Kind::All))),
        }
    }

    /// Looks for what an earlier daemon has left half done, and for what devices have left behind that vanished
    /// before we came. Events of a file speak of devices that nobody has.
    pub(super) fn look_for_leftovers(&mut self) {
        if !self.intake.is_finite() {
            self.resync.stage = Stage::Interrupted(Box::new(self.world.list_interrupted()));
        }
    }

    /// Whether there is something to do at once.
    pub(super) fn resync_has_work(&self) -> bool {
        match &self.resync.stage {
            Stage::Idle | Stage::Wait { .. } => false,
            Stage::Scan(_) | Stage::Look(_) => true,
            Stage::Interrupted(interrupted) if interrupted.until.is_some() => false,
            Stage::Interrupted(_) => self.links.is_complete(),
            // Before that it is not known of links.
            Stage::Doubt { .. } | Stage::Remove { .. } => self.links.is_complete(),
        }
    }

    /// The next slice. `is_read`: all uevents that have come are in the queue.
    pub(super) fn go_on_with_resync(&mut self, is_read: bool) {
        if let Stage::Wait { until, gone } = &mut self.resync.stage
            && *until <= self.now
            && is_read
        {
            let number = self.engine.newest().unwrap_or(SeqNum(1));
            let gone = std::mem::take(gone);
            self.resync.stage = Stage::Remove { gone, busy: Vec::new(), number, removed: 0, current: None };
        }
        if let Stage::Interrupted(interrupted) = &mut self.resync.stage
            && interrupted.until.is_some_and(|until| until <= self.now)
        {
            interrupted.until = None;
        }
        if !self.resync_has_work() {
            return;
        }
        self.world.turn.begin(monotonic());
        while self.resync_has_work() && self.world.turn.has_time() {
            let stage = std::mem::take(&mut self.resync.stage);
            self.resync.stage = self.resync_step(stage);
        }
    }

    fn resync_step(&mut self, stage: Stage) -> Stage {
        match stage {
            Stage::Idle | Stage::Wait { .. } => stage,
            Stage::Interrupted(mut interrupted) => match self.look_at_interrupted(&mut interrupted) {
                true => Stage::Interrupted(interrupted),
                false if interrupted.is_scan_wanted => Stage::Scan(Box::new(Scan::new(Kind::All))),
                false => {
                    let ids = self.world.all_known().into_iter().collect();
                    Stage::Doubt { ids, gone: Vec::new() }
                }
            },
            Stage::Scan(mut scan) => match scan.step(&self.sysfs, &Filter::default()) {
                true => Stage::Scan(scan),
                false => Stage::Look(Box::new(Look {
                    found: scan.into_devpaths().collect::<Vec<_>>().into_iter(),
                    waiting: self.coldplug.waiting().cloned().collect(),
                    present: HashSet::new(),
                    wanted: BTreeMap::new(),
                })),
            },
            Stage::Look(mut look) => match look.found.next() {
                Some(devpath) => {
                    self.look_at(&mut look, devpath);
                    Stage::Look(look)
                }
                None => self.trigger_all(*look),
            },
            Stage::Doubt { mut ids, mut gone } => match ids.pop() {
                Some(id) => {
                    if self.presence(&id) != Presence::There {
                        gone.push(id);
                    }
                    Stage::Doubt { ids, gone }
                }
                None if gone.is_empty() => Stage::Idle,
                None => Stage::Wait { until: self.now + SECOND_LOOK, gone },
            },
            Stage::Remove { mut gone, mut busy, mut number, mut removed, current } => {
                let links = &mut self.links.exchange.table;
                if let Some(mut removal) = current {
                    return match self.world.go_on_removing(links, &self.engine, &mut removal) {
                        Removed::Partly => {
                            Stage::Remove { gone, busy, number, removed, current: Some(removal) }
                        }
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
                        false => Stage::Wait { until: self.now + SECOND_LOOK, gone: busy },
                    };
                };
                let mut current = None;
                match self.presence(&id) {
                    _ if self.engine.has_event_of(&id) => busy.push(id),
                    Presence::Unknown => busy.push(id),
                    Presence::There => {}
                    Presence::Gone => {
                        current = self.remove_device(&id, &mut number).map(Box::new);
                        removed += 1;
                    }
                }
                Stage::Remove { gone, busy, number, removed, current }
            }
        }
    }

    /// Notes that a device is there, and how to trigger it: an `add` if it has no record, else a `change`.
    fn look_at(&self, look: &mut Look, devpath: BString) {
        let device = self.sysfs.device_at(devpath);
        let id = device.id();
        let is_known = id.as_ref().is_some_and(|id| self.world.database.has_record(id));
        // The kernel's own events of a bus say otherwise than sysfs does (interop.md 1.2).
        if device.devpath.starts_with(b"/bus/") {
            look.present.insert(DeviceId::Named { subsystem: "bus".into(), sysname: device.sysname.clone() });
        }
        look.present.extend(id);
        if !look.waiting.contains(&self.syspath(&device.devpath)) {
            let action = if is_known { Action::Change } else { Action::Add };
            look.wanted.insert(InOrder(device.devpath), action);
        }
    }

    fn trigger_all(&mut self, look: Look) -> Stage {
        log::warn!("Looked at all devices: {} are triggered", look.wanted.len());
        let wanted = look.wanted.into_iter().map(|(InOrder(devpath), action)| (action, devpath));
        let wanted: Vec<_> = wanted.map(|(action, devpath)| (action, self.syspath(&devpath))).collect();
        self.coldplug.add(wanted);
        let mut known = self.world.all_known();
        // An event that waits or runs may yet make a record of a device whose removal was lost.
        known.extend(self.engine.devices());
        let absent = known.into_iter().filter(|id| !look.present.contains(id));
        Stage::Doubt { ids: absent.collect(), gone: Vec::new() }
    }

    fn presence(&self, id: &DeviceId) -> Presence {
        self.world.presence(&self.links.exchange.table, id)
    }

    fn remove_device(&mut self, id: &DeviceId, number: &mut SeqNum) -> Option<Removal> {
        let removal = self.engine.free_below(*number).and_then(|free| {
            *number = free;
            self.world.database.removal(id, free)
        });
        match removal {
            Some(removal) => {
                self.inbox.push_back(Input::Uevent(removal));
                None
            }
            None => Some(self.world.begin_removing(id, Left::IfGone)),
        }
    }
}

impl World {
    /// All devices of which there is something in `/run/udev` or `/dev`, as far as we know.
    pub(super) fn all_known(&self) -> HashSet<DeviceId> {
        self.database.known_or_tagged().chain(self.claims.claims().devices()).cloned().collect()
    }

    /// Whether there is no such device any more. Where that is not known, there is.
    pub(super) fn is_gone(&self, links: &Table, id: &DeviceId) -> bool {
        self.presence(links, id) == Presence::Gone
    }

    /// Whether a device is there. The one place where that is decided.
    pub(super) fn presence(&self, links: &Table, id: &DeviceId) -> Presence {
        let sysfs = &self.answers.sysfs;
        let by_number = |folder: &[u8], number: &DevNum| {
            !sysfs.exists(folder, number.to_string().as_bytes()) && sysfs.exists(folder, b"")
        };
        let is_gone = match id {
            DeviceId::Block(number) => by_number(b"/dev/block", number),
            DeviceId::Char(number) => by_number(b"/dev/char", number),
            // The link table says whether a link is there, when it knows all of them.
            DeviceId::Net(_) if self.answers.links_are_live() && links.is_stale() => {
                return Presence::Unknown;
            }
            DeviceId::Net(ifindex) if self.answers.links_are_live() => {
                !matches!(links.lookup(*ifindex), Lookup::Known(_))
            }
            DeviceId::Net(_) => sysfs.device_of_id(id).is_none(),
            DeviceId::Named { subsystem, .. } => {
                match self.database.removal(id, SeqNum(1)) {
                    Some(removal) => !sysfs.exists(&removal.devpath, b"uevent"),
                    // Only some of what has a name and no number is in any list.
                    None => self.is_listed(subsystem) && sysfs.device_of_id(id).is_none(),
                }
            }
        };
        if is_gone { Presence::Gone } else { Presence::There }
    }

    /// Whether devices of this subsystem are in a list, so that one that is in none is gone.
    fn is_listed(&self, subsystem: &BString) -> bool {
        let folders = [&b"/bus"[..], b"/class"];
        matches!(subsystem.as_bytes(), b"module" | b"drivers")
            || folders.iter().any(|folder| self.answers.sysfs.exists(folder, subsystem))
    }

    /// Begins to remove record, tags, claims and watch of a device that is gone, and tells nobody: all that is known
    /// of it is what an earlier daemon has left behind. [`World::go_on_removing`] does it.
    pub(super) fn begin_removing(&mut self, id: &DeviceId, left: Left) -> Removal {
        self.watches.drop_watch(id);
        let mut progress = PartsDone::default();
        let mut rest = Rest::default();
        match self.database.read_record(id) {
            Ok(record) => {
                let record = record.unwrap_or_default();
                // Others may have removed the record, which knew of these.
                let links = self.claims.links_beside(id, &record.links);
                let tags = self.database.tags_beside(id, &record.tags);
                rest.links = record.links.as_slice().iter().cloned().chain(links).collect();
                rest.tags = record.tags.as_slice().iter().cloned().chain(tags).collect();
            }
            Err(error) => progress.fail(&error),
        }
        Removal { id: id.clone(), left, rest, progress }
    }

    /// Removes a portion more. The device may have come back meanwhile: then its event decides, and removes what is
    /// left here.
    pub(super) fn go_on_removing(
        &mut self,
        links: &mut Table,
        engine: &Engine,
        removal: &mut Removal,
    ) -> Removed {
        let Removal { id, left, rest, progress } = removal;
        if progress.has_begun() {
            if engine.has_event_of(id) {
                return Removed::IsBusy;
            }
            match self.presence(links, id) {
                _ if *left == Left::Anyway => {}
                Presence::There => return Removed::IsThere,
                Presence::Unknown => return Removed::IsBusy,
                Presence::Gone => {}
            }
        }
        let owner = Owner { id, devnode: b"", priority: 0, title: None };
        if !self.do_parts(owner, &[Parts::Release(&rest.links), Parts::RemoveTags(&rest.tags)], progress) {
            self.unfinished.end_half_way(id);
            return Removed::Partly;
        }
        self.unfinished.ends_half_way(id);
        if let Err(error) = progress.result().and_then(|()| self.database.remove_record(id)) {
            log::warn!("Cannot drop what {id} has left behind: {error}");
            if Errno::of(&error).is_shortage() {
                self.unfinished.is_left(id, *left);
            }
        }
        if let DeviceId::Net(ifindex) = id {
            links.forget(*ifindex);
        }
        self.remove_number_link(id, *left);
        Removed::Whole
    }

    /// Removes the symlink by number that a device has left.
    pub(super) fn remove_number_link(&mut self, id: &DeviceId, left: Left) {
        let removed = match id {
            DeviceId::Block(number) => self.claims.remove_number_link(true, *number),
            DeviceId::Char(number) => self.claims.remove_number_link(false, *number),
            DeviceId::Net(_) | DeviceId::Named { .. } => Ok(()),
        };
        if let Err(error) = removed {
            log::warn!("{error}");
            if error.is_shortage() {
                self.unfinished.is_left(id, left);
            }
        }
    }
}
