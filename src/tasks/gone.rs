//! Whether a device is gone, and the removal of what a gone device has left.
//!
//! Must stay true: a device that is called gone is gone. It may come back while its remains are removed in portions, so
//! it is looked for again before each portion.

use super::portions::{Parts, PartsOwner};
use super::stores::Stores;
use super::unfinished::{Left, Removal};
use crate::engine::Engine;
use crate::links::{Lookup, Table};
use crate::model::need::{PartsDone, Rest};
use crate::model::{DevNum, DeviceId, Errno, SeqNum};
use bstr::{BString, ByteSlice};
use std::collections::HashSet;

/// What has become of a [`Removal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    Partly,
    Whole,
    /// An event of the device waits or runs, or nobody knows whether it has come back.
    IsBusy,
    /// The device has come back and its event was handled.
    IsThere,
}

/// What is known of whether a device is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is, or nobody will ever be able to tell.
    There,
    Gone,
    /// Messages of links were lost, or not read yet: who must know asks again.
    Unknown,
}

impl Stores {
    /// All devices of which there is something in `/run/udev` or `/dev`, as far as we know.
    pub fn all_known(&self) -> HashSet<DeviceId> {
        self.database.known_or_tagged().chain(self.claims.claims().devices()).cloned().collect()
    }

    /// Whether there is no such device any more. Where that is not known, there is.
    pub fn is_gone(&self, links: &Table, id: &DeviceId) -> bool {
        self.presence(links, id) == Presence::Gone
    }

    /// Whether a device is there. The one place where that is decided.
    pub fn presence(&self, links: &Table, id: &DeviceId) -> Presence {
        let sysfs = &self.answers.attributes.sysfs;
        let by_number = |folder: &[u8], number: &DevNum| {
            !sysfs.exists(folder, number.to_string().as_bytes()) && sysfs.exists(folder, b"")
        };
        let is_gone = match id {
            DeviceId::Block(number) => by_number(b"/dev/block", number),
            DeviceId::Char(number) => by_number(b"/dev/char", number),
            // The link table says whether a link is there, when it knows all of them.
            DeviceId::Net(_) if links.speaks_for_sysfs() && links.is_stale() => {
                return Presence::Unknown;
            }
            DeviceId::Net(ifindex) if links.speaks_for_sysfs() => {
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
            || folders.iter().any(|folder| self.answers.attributes.sysfs.exists(folder, subsystem))
    }

    /// Begins to remove record, tags, claims and watch of a device that is gone, and tells nobody: all that is known
    /// of it is what an earlier daemon has left behind. [`Stores::go_on_removing`] does it.
    pub fn begin_removing(&mut self, id: &DeviceId, left: Left) -> Removal {
        self.watches.drop_watch(id);
        let mut progress = PartsDone::default();
        let mut rest = Rest::default();
        match self.database.read_record(id) {
            Ok(record) => {
                let record = record.unwrap_or_default();
                // Others may have removed the record, which knew of these.
                let links = self.claims.symlinks_beside(id, &record.symlinks);
                let tags = self.database.tags_beside(id, &record.tags);
                rest.symlinks = record.symlinks.as_slice().iter().cloned().chain(links).collect();
                rest.tags = record.tags.as_slice().iter().cloned().chain(tags).collect();
            }
            Err(error) => progress.fail(&error),
        }
        Removal { id: id.clone(), left, rest, progress }
    }

    /// Removes a portion more. The device may have come back meanwhile: then its event decides, and removes what is
    /// left here.
    pub fn go_on_removing(&mut self, links: &mut Table, engine: &Engine, removal: &mut Removal) -> Removed {
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
        let owner = PartsOwner { id, devnode: b"", priority: 0, title: None };
        if !self.do_parts(owner, &[Parts::Release(&rest.symlinks), Parts::RemoveTags(&rest.tags)], progress) {
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
        self.remove_number_symlink(id, *left);
        Removed::Whole
    }

    /// Removes the symlink by number that a device has left.
    pub fn remove_number_symlink(&mut self, id: &DeviceId, left: Left) {
        let removed = match id {
            DeviceId::Block(number) => self.claims.remove_number_symlink(true, *number),
            DeviceId::Char(number) => self.claims.remove_number_symlink(false, *number),
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
