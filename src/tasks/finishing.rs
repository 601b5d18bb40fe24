//! Does again what failed for want of room, one thing after the other, now that there is room.
//!
//! Must stay true: what has begun anew is not begun twice; a device that has come back keeps what is its own.

use super::gone::{Presence, Removed};
use super::stores::Stores;
use super::unfinished::{Finishing, Left};
use crate::engine::Engine;
use crate::links::Table;
use crate::model::{DeviceId, Trigger};
use bstr::BString;
use std::io;

impl Stores {
    /// Whether something waits for room.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished.has_devices()
            || self.unfinished.is_finishing()
            || self.database.is_unfinished()
            || self.claims.is_unfinished()
            || self.watches.is_unfinished()
    }

    /// Begins to do again what failed.
    pub fn begin_finishing(&mut self) {
        let waiting = &self.unfinished.events;
        // The other records are written anew by their events.
        let records = self.database.unfinished().filter(|id| !waiting.contains_key(id)).cloned().collect();
        self.unfinished.finishing = Some(Finishing::Records(records));
    }

    /// Does one thing more. Then, when all was done, the events to trigger again, by devpath; their devices stay
    /// remembered until an event of theirs begins.
    pub fn go_on_finishing(&mut self, links: &mut Table, engine: &Engine) -> Option<Vec<(Trigger, BString)>> {
        let next = match self.unfinished.finishing.take()? {
            Finishing::Records(mut ids) => match ids.pop() {
                Some(id) => match self.database.finish(&id) {
                    Ok(()) => Finishing::Records(ids),
                    Err(error) => {
                        log::debug!("There is no room yet for all records: {error}");
                        Finishing::Links(self.claims.take_unfinished())
                    }
                },
                None => Finishing::Links(self.claims.take_unfinished()),
            },
            Finishing::Links(mut names) => match names.pop() {
                Some(link) => {
                    if let Some(error) = self.claims.finish(&link) {
                        log::debug!("{error}");
                    }
                    Finishing::Links(names)
                }
                None => Finishing::Watches(self.watches.unwatched().cloned().collect()),
            },
            Finishing::Watches(mut ids) => match ids.pop() {
                Some(id) => {
                    self.watches.finish(&id);
                    Finishing::Watches(ids)
                }
                None => {
                    self.watches.finish_notes();
                    Finishing::Gone(self.unfinished.gone.keys().cloned().collect())
                }
            },
            Finishing::Gone(mut ids) => match ids.pop() {
                Some(id) => self.finish_removed(links, engine, id, ids),
                None => {
                    let ids = self.unfinished.events.keys().cloned().collect();
                    Finishing::Events { ids, wanted: Vec::new() }
                }
            },
            Finishing::Removal(mut removal, ids) => match self.go_on_removing(links, engine, &mut removal) {
                Removed::Partly => Finishing::Removal(removal, ids),
                ended => {
                    if ended == Removed::IsBusy {
                        self.unfinished.is_left(&removal.id, removal.left);
                    }
                    Finishing::Gone(ids)
                }
            },
            Finishing::Events { mut ids, mut wanted } => match ids.pop() {
                Some(id) => {
                    wanted.extend(self.failed_event(id));
                    Finishing::Events { ids, wanted }
                }
                None => return Some(wanted),
            },
        };
        self.unfinished.finishing = Some(next);
        None
    }

    /// What is left of a removed device goes, if it still is gone, or whatever it is.
    fn finish_removed(
        &mut self,
        links: &Table,
        engine: &Engine,
        id: DeviceId,
        others: Vec<DeviceId>,
    ) -> Finishing {
        let goes = match (self.unfinished.gone.get(&id), self.presence(links, &id)) {
            (None, _) => return Finishing::Gone(others),
            // It stays remembered.
            _ if engine.has_event_of(&id) => return Finishing::Gone(others),
            (Some(Left::IfGone), Presence::Unknown) => return Finishing::Gone(others),
            (Some(Left::IfGone), Presence::There) => None,
            (Some(left), _) => Some(*left),
        };
        self.unfinished.gone.remove(&id);
        match goes {
            Some(left) => Finishing::Removal(Box::new(self.begin_removing(&id, left)), others),
            None => Finishing::Gone(others),
        }
    }

    /// How to trigger a device whose event failed.
    fn failed_event(&mut self, id: DeviceId) -> Option<(Trigger, BString)> {
        let (action, devpath) = self.unfinished.events.get(&id)?;
        if self.answers.attributes.sysfs.exists(devpath, b"uevent") {
            return Some((*action, devpath.clone()));
        }
        self.unfinished.events.remove(&id);
        self.unfinished.is_left(&id, Left::IfGone);
        None
    }

    /// Whether there is room now. That a folder is gone may have been hidden by what failed before.
    pub fn look_for_room(&mut self) -> bool {
        match self.database.try_room().and_then(|()| self.claims.try_room()) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => _ = self.mend_folders(),
            Err(error) => log::debug!("There is no room yet for what could not be written: {error}"),
        }
        false
    }
}

#[cfg(test)]
mod tests;
