//! What an earlier daemon has left that ended in the middle of an event, by a crash or by force: tags, claims and
//! symlinks that no record knows of, or a record that knows of more. The record is written last and is the truth.
//!
//! Looked at once, at the start, in slices. Must stay true: as long as an event of a device waits
//! or runs, that event decides, and the device is looked at afterwards. A record that says that its event is under
//! way is of an event that nobody will end: that device is triggered, else whoever waits for it waits for ever.

use super::portions::{Parts, PartsOwner};
use super::stores::Stores;
use super::unfinished::Left;
use crate::engine::Engine;
use crate::links::Table;
use crate::model::event::OrderedSet;
use crate::model::need::PartsDone;
use crate::model::record::Record;
use crate::model::{DeviceId, Now, Trigger};
use crate::world::database::Database;
use bstr::{BString, ByteSlice};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// When to look again for a device of which an event is under way.
const PAUSE: Duration = Duration::from_millis(100);

/// Properties of a record whose event is under way (interop.md 1.4).
const UNDER_WAY: [&str; 2] = ["ID_PROCESSING", "ID_RENAMING"];

/// The devices that are still to be looked at.
#[derive(Debug, Default)]
pub struct Interrupted {
    ids: Vec<DeviceId>,
    /// An event of these is under way.
    busy: Vec<DeviceId>,
    /// The device that is being brought in line.
    current: Option<Box<Agreement>>,
    indexed: HashMap<DeviceId, OrderedSet>,
    /// How to trigger what was interrupted.
    wanted: Vec<(Trigger, BString)>,
    /// Nothing is looked at before this time.
    pub until: Option<Now>,
    /// Then all devices are looked at: events were lost.
    pub is_scan_wanted: bool,
}

/// What brings one device in line with its record.
#[derive(Debug)]
struct Agreement {
    id: DeviceId,
    record: Record,
    devnode: BString,
    untag: Vec<BString>,
    tag: Vec<BString>,
    release: Vec<BString>,
    claim: Vec<BString>,
    progress: PartsDone,
    /// How to trigger it then.
    wanted: Option<(Trigger, BString)>,
}

impl Interrupted {
    /// How to trigger what was interrupted, by devpath.
    pub fn take_wanted(&mut self) -> Vec<(Trigger, BString)> {
        std::mem::take(&mut self.wanted)
    }
}

impl Stores {
    /// What there is to look at: all that is known of any device on disk.
    pub fn list_interrupted(&self) -> Interrupted {
        if let Err(error) = self.claims.sweep_dev() {
            log::warn!("Cannot remove what is left of writing symlinks: {error}");
        }
        let indexed = self.database.list_tags().unwrap_or_else(|error| {
            log::warn!("Cannot list the tag index: {error}");
            HashMap::new()
        });
        let numbers = self.claims.number_symlinks();
        let known = self.database.known();
        let ids: HashSet<&DeviceId> =
            known.chain(self.claims.claims().devices()).chain(indexed.keys()).chain(&numbers).collect();
        Interrupted { ids: ids.into_iter().cloned().collect(), indexed, ..Interrupted::default() }
    }

    /// Looks at one device more, or goes on with it; false when all were looked at.
    pub fn look_at_interrupted(
        &mut self,
        links: &Table,
        engine: &Engine,
        interrupted: &mut Interrupted,
        now: Now,
    ) -> bool {
        if let Some(agreement) = interrupted.current.take() {
            self.go_on_agreeing(engine, interrupted, agreement);
            return true;
        }
        let Some(id) = interrupted.ids.pop() else {
            if interrupted.busy.is_empty() {
                return false;
            }
            interrupted.ids = std::mem::take(&mut interrupted.busy);
            interrupted.until = Some(now + PAUSE);
            return true;
        };
        if engine.has_event_of(&id) {
            interrupted.busy.push(id);
            return true;
        }
        match self.database.read_record(&id) {
            Ok(record) => {
                interrupted.current = self.agreement(links, &id, record, &interrupted.indexed).map(Box::new);
            }
            Err(error) => log::warn!("Cannot read the record {id}: {error}"),
        }
        true
    }

    /// None where nothing can be told of the device.
    fn agreement(
        &mut self,
        links: &Table,
        id: &DeviceId,
        record: Option<Record>,
        indexed: &HashMap<DeviceId, OrderedSet>,
    ) -> Option<Agreement> {
        // Somebody has removed all records: that says nothing of a device that is there.
        if record.is_none() && self.database.is_new() && !self.is_gone(links, id) {
            return None;
        }
        let has_number = matches!(id, DeviceId::Block(_) | DeviceId::Char(_));
        if has_number && record.is_none() && self.is_gone(links, id) {
            self.remove_number_symlink(id, Left::IfGone);
        }
        let record = record.unwrap_or_default();
        let none = OrderedSet::default();
        let (untag, tag) = Database::differing_tags(&record, indexed.get(id).unwrap_or(&none));
        let is_under_way = UNDER_WAY.iter().any(|name| record.properties.get(*name).is_some());
        let has_symlinks = !record.symlinks.is_empty() || self.claims.claims().has_symlinks(id);
        let mut device = None;
        if has_symlinks || is_under_way {
            let sysfs = &self.answers.attributes.sysfs;
            device = sysfs.device_of_id(id).and_then(|devpath| sysfs.device(&devpath));
        }
        let devnode = device.as_ref().and_then(|device| device.devnode.as_ref());
        let (release, claim) = self.claims.differences(id, &record, devnode.map(|node| node.as_bstr()));
        Some(Agreement {
            id: id.clone(),
            devnode: devnode.cloned().unwrap_or_default(),
            untag,
            tag,
            release,
            claim,
            progress: PartsDone::default(),
            wanted: device.filter(|_| is_under_way).map(|device| {
                // One that was never initialized is new.
                let is_new = record.usec_initialized.is_none();
                (if is_new { Trigger::Add } else { Trigger::Change }, device.devpath)
            }),
            record,
        })
    }

    /// Does a portion more. An event may have come meanwhile: it decides, and then the device is looked at anew.
    fn go_on_agreeing(&mut self, engine: &Engine, interrupted: &mut Interrupted, mut it: Box<Agreement>) {
        if engine.has_event_of(&it.id) {
            return interrupted.busy.push(it.id);
        }
        if it.progress.has_begun() && !self.is_record(&it.id, &it.record) {
            return interrupted.ids.push(it.id);
        }
        let Agreement { id, devnode, record, untag, tag, release, claim, progress, .. } = &mut *it;
        let owner = PartsOwner { id, devnode, priority: record.priority, title: None };
        let all =
            [Parts::RemoveTags(untag), Parts::AddTags(tag), Parts::Release(release), Parts::Claim(claim)];
        if !self.do_parts(owner, &all, progress) {
            interrupted.current = Some(it);
            return;
        }
        if let Err(error) = progress.result() {
            log::warn!("Cannot bring the tag index in line with the record {id}: {error}");
        }
        interrupted.wanted.extend(it.wanted);
    }

    /// Whether the record of a device says the same as when it was looked at.
    fn is_record(&mut self, id: &DeviceId, before: &Record) -> bool {
        self.database.read_record(id).is_ok_and(|record| record.unwrap_or_default() == *before)
    }
}
