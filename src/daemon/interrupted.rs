//! What an earlier daemon has left that ended in the middle of an event, by a crash or by force: tags, claims and
//! symlinks that no record knows of, or a record that knows of more. The record is written last and is the truth.
//!
//! Looked at once, at the start, in slices ([`super::resync`]). Must stay true: as long as an event of a device waits
//! or runs, that event decides, and the device is looked at afterwards. A record that says that its event is under
//! way is of an event that nobody will end: that device is triggered, else whoever waits for it waits for ever.

use super::coldplug::Action;
use super::shell::Shell;
use super::task::World;
use crate::engine::Engine;
use crate::links::Table;
use crate::model::event::OrderedSet;
use crate::model::record::Record;
use crate::model::{DeviceId, Now};
use bstr::{BString, ByteSlice};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// When to look again for a device of which an event is under way.
const PAUSE: Duration = Duration::from_millis(100);

/// Properties of a record whose event is under way (interop.md 1.4).
const UNDER_WAY: [&str; 2] = ["ID_PROCESSING", "ID_RENAMING"];

/// The devices that are still to be looked at.
#[derive(Debug, Default)]
pub(super) struct Interrupted {
    ids: Vec<DeviceId>,
    /// An event of these is under way.
    busy: Vec<DeviceId>,
    claimed: HashMap<DeviceId, Vec<BString>>,
    indexed: HashMap<DeviceId, OrderedSet>,
    /// How to trigger what was interrupted.
    wanted: Vec<(Action, BString)>,
    /// Nothing is looked at before this time.
    pub until: Option<Now>,
    /// Then all devices are looked at: events were lost.
    pub is_scan_wanted: bool,
}

impl Shell {
    /// Looks at one device more; false when all were looked at.
    pub(super) fn look_at_interrupted(&mut self, interrupted: &mut Interrupted) -> bool {
        let goes_on =
            self.world.look_at_interrupted(&self.links.exchange.table, &self.engine, interrupted, self.now);
        if !goes_on {
            self.coldplug_more(interrupted);
        }
        goes_on
    }

    fn coldplug_more(&mut self, interrupted: &mut Interrupted) {
        let wanted = interrupted.take_wanted();
        if !wanted.is_empty() {
            log::info!("{} devices are triggered whose events were interrupted", wanted.len());
            let wanted = wanted.into_iter().map(|(action, devpath)| (action, self.syspath(&devpath)));
            let wanted: Vec<_> = wanted.collect();
            self.coldplug.add(wanted);
        }
    }
}

impl Interrupted {
    /// How to trigger what was interrupted, by devpath.
    pub(super) fn take_wanted(&mut self) -> Vec<(Action, BString)> {
        std::mem::take(&mut self.wanted)
    }
}

impl World {
    /// What there is to look at: all that is known of any device on disk.
    pub(super) fn list_interrupted(&self) -> Interrupted {
        if let Err(error) = self.claims.sweep_dev() {
            log::warn!("Cannot remove what is left of writing symlinks: {error}");
        }
        let claimed = self.claims.claims().by_device();
        let indexed = self.database.list_tags().unwrap_or_else(|error| {
            log::warn!("Cannot list the tag index: {error}");
            HashMap::new()
        });
        let numbers = self.claims.number_links();
        let known = self.database.known();
        let ids: HashSet<&DeviceId> =
            known.chain(claimed.keys()).chain(indexed.keys()).chain(&numbers).collect();
        Interrupted { ids: ids.into_iter().cloned().collect(), claimed, indexed, ..Interrupted::default() }
    }

    /// Looks at one device more; false when all were looked at.
    pub(super) fn look_at_interrupted(
        &mut self,
        links: &Table,
        engine: &Engine,
        interrupted: &mut Interrupted,
        now: Now,
    ) -> bool {
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
            Ok(record) => self.agree(links, &id, record, interrupted),
            Err(error) => log::warn!("Cannot read the record {id}: {error}"),
        }
        true
    }

    fn agree(&mut self, links: &Table, id: &DeviceId, record: Option<Record>, interrupted: &mut Interrupted) {
        // Somebody has removed all records: that says nothing of a device that is there.
        if record.is_none() && self.database.is_new() && !self.is_gone(links, id) {
            return;
        }
        let has_number = matches!(id, DeviceId::Block(_) | DeviceId::Char(_));
        if has_number && record.is_none() && self.is_gone(links, id) {
            self.remove_number_link(id);
        }
        let record = record.unwrap_or_default();
        let none = OrderedSet::default();
        let indexed = interrupted.indexed.get(id).unwrap_or(&none);
        if let Err(error) = self.database.agree_tags(id, &record, indexed) {
            log::warn!("Cannot bring the tag index in line with the record {id}: {error}");
        }
        let claimed = interrupted.claimed.get(id).map_or(&[][..], Vec::as_slice);
        let is_under_way = UNDER_WAY.iter().any(|name| record.properties.get(*name).is_some());
        if claimed.is_empty() && record.links.is_empty() && !is_under_way {
            return;
        }
        let sysfs = &self.answers.sysfs;
        let device = sysfs.device_of_id(id).and_then(|devpath| sysfs.device(&devpath));
        let devnode = device.as_ref().and_then(|device| device.devnode.as_ref());
        for error in self.claims.agree(id, &record, claimed, devnode.map(|node| node.as_bstr())) {
            log::warn!("{error}");
        }
        if let Some(device) = device.filter(|_| is_under_way) {
            // One that was never initialized is new.
            let action = if record.usec_initialized.is_some() { Action::Change } else { Action::Add };
            interrupted.wanted.push((action, device.devpath));
        }
    }
}
