//! Work of many parts for one device: thousands of symlinks or tags are made and removed in portions, between which
//! the loop goes on, as it does between portions of the rules.
//!
//! Must stay true: the order of the parts is that of the work done in one go, every part is tried, and the first error
//! is the one that counts, so where the turns end changes nothing; few parts cost no look at the clock; what is done
//! for a job goes on as long as the job waits for it, so no related event begins meanwhile. What is done for nobody's
//! job is looked at anew before each portion: by then an event of the device may have come.

use super::stores::Stores;
use super::turn::PORTION;
use crate::model::effect::{Effect, Sticky};
use crate::model::event::Title;
use crate::model::need::{Fact, Need, PartsDone, Rest};
use crate::model::{DeviceId, Event, SymlinkSet};
use crate::world::claims_dir::ClaimError;
use bstr::BString;
use std::io;
use std::sync::Arc;

/// Parts of one kind.
#[derive(Clone, Copy, Debug)]
pub enum Parts<'a> {
    Release(&'a [BString]),
    Claim(&'a [BString]),
    AddTags(&'a [BString]),
    RemoveTags(&'a [BString]),
}

impl<'a> Parts<'a> {
    fn names(self) -> &'a [BString] {
        match self {
            Parts::Release(names) | Parts::Claim(names) => names,
            Parts::AddTags(names) | Parts::RemoveTags(names) => names,
        }
    }
}

/// Whose parts they are.
#[derive(Clone, Copy)]
pub struct PartsOwner<'a> {
    pub id: &'a DeviceId,
    /// Absolute, or empty for a device that is gone.
    pub devnode: &'a [u8],
    pub priority: i32,
    /// For messages, if it is done for an event.
    pub title: Option<Title<'a>>,
}

impl<'a> PartsOwner<'a> {
    /// Of tags, which need no more.
    pub fn of(event: &'a Event, id: &'a DeviceId) -> PartsOwner<'a> {
        PartsOwner { id, devnode: b"", priority: 0, title: Some(event.title()) }
    }
}

impl Stores {
    /// Does these parts, in this order, until all are done or the turn is over; true if all are done.
    pub fn do_parts(&mut self, owner: PartsOwner, all: &[Parts], progress: &mut PartsDone) -> bool {
        let total: usize = all.iter().map(|parts| parts.names().len()).sum();
        let mut before = 0;
        for parts in all {
            let names = parts.names();
            while let Some(left) = names.get(progress.done - before..).filter(|left| !left.is_empty()) {
                let portion = &left[..left.len().min(self.turn.portion)];
                if let Err(error) = self.do_portion(owner, parts, portion) {
                    progress.fail(&error);
                }
                progress.done += portion.len();
                let goes_on = self.turn.goes_on(portion.len());
                if progress.done < total && !goes_on {
                    return false;
                }
            }
            before += names.len();
        }
        true
    }

    fn do_portion(&mut self, owner: PartsOwner, parts: &Parts, names: &[BString]) -> io::Result<()> {
        match parts {
            Parts::Release(_) => self.apply_claims(owner, names, &[]),
            Parts::Claim(_) => self.apply_claims(owner, &[], names),
            Parts::AddTags(_) => {
                let result = self.write_store(|stores| stores.database.add_tags(owner.id, names));
                self.watch_new_tags();
                return result;
            }
            Parts::RemoveTags(_) => return self.database.remove_tags(owner.id, names),
        }
        Ok(())
    }

    /// An error on one symlink does not keep the others.
    fn apply_claims(&mut self, owner: PartsOwner, release: &[BString], claim: &[BString]) {
        let PartsOwner { id, devnode, priority, title } = owner;
        let mut errors = self.claims.apply(id, devnode, priority, release, claim);
        if errors.iter().any(ClaimError::is_of_missing_folder) && self.mend_folders() {
            errors = self.claims.apply(id, devnode, priority, release, claim);
        }
        for error in errors {
            match &title {
                Some(title) => log::warn!("{title}: {error}"),
                None => log::warn!("{error}"),
            }
        }
    }

    /// Does these parts for a job, from where it has come on.
    pub fn do_parts_of_effect(
        &mut self,
        owner: PartsOwner,
        all: &[Parts],
        facts: &[Fact],
    ) -> Result<io::Result<()>, Need> {
        let mut progress = PartsDone::of(facts);
        match self.do_parts(owner, all, &mut progress) {
            true => Ok(progress.result()),
            false => Err(Need::Turn(progress)),
        }
    }

    /// Makes these claims for a job. `release` go before, and what else the device claims.
    pub fn do_symlinks(
        &mut self,
        owner: PartsOwner,
        release: &SymlinkSet,
        claim: &SymlinkSet,
        facts: &[Fact],
    ) -> Result<(), Need> {
        let mut progress = PartsDone::of(facts);
        if facts.is_empty() && self.claims.claims().has_symlinks(owner.id) {
            let mut symlinks = self.claims.symlinks_beside(owner.id, claim);
            symlinks.retain(|symlink| !release.contains(symlink));
            progress.rest = (!symlinks.is_empty()).then(|| Arc::new(Rest { symlinks, ..Rest::default() }));
        }
        let rest = progress.rest.clone().unwrap_or_default();
        let all = [
            Parts::Release(release.as_slice()),
            Parts::Release(&rest.symlinks),
            Parts::Claim(claim.as_slice()),
        ];
        match self.do_parts(owner, &all, &mut progress) {
            true => Ok(()),
            false => Err(Need::Turn(progress)),
        }
    }

    /// Whether a second try of this effect has only the rest to remove.
    pub fn is_at_rest(facts: &[Fact]) -> bool {
        matches!(facts, [Fact::Turn(PartsDone { rest: Some(_), .. })])
    }

    /// The record of an event was written, or is about to be removed. What an event that ended half-way has left
    /// beyond that is to go; and of a device that goes more tags than are removed in one portion.
    pub fn rest_of(&mut self, effect: &Effect) -> Option<Rest> {
        let (id, record) = match effect {
            Effect::WriteRecord { sticky: Sticky::AsBefore, .. } => return None,
            Effect::WriteRecord { id, record, .. } => (id, Some(record)),
            Effect::RemoveRecord { id } => (id, None),
            _ => return None,
        };
        let none = SymlinkSet::default();
        let (symlinks, tags) = record.map_or((&none, &none), |record| (&record.symlinks, &record.tags));
        if self.unfinished.ends_half_way(id) {
            let symlinks = self.claims.symlinks_beside(id, symlinks);
            return Some(Rest { symlinks, tags: self.database.tags_beside(id, tags) });
        }
        let has_many = record.is_none() && self.database.tag_count(id) > PORTION;
        has_many.then(|| Rest { symlinks: Vec::new(), tags: self.database.tags_beside(id, tags) })
    }

    /// Removes what is left of a device beside its record. `found`: at the first try, what that is.
    pub fn remove_rest(
        &mut self,
        event: &Event,
        id: &DeviceId,
        found: Option<Rest>,
        facts: &[Fact],
    ) -> Result<(), Need> {
        let mut progress = PartsDone::of(facts);
        if let Some(found) = found {
            progress = PartsDone { rest: Some(Arc::new(found)), ..PartsDone::default() };
        }
        let Some(rest) = progress.rest.clone() else { return Ok(()) };
        let devnode = event.device.devnode.as_ref().map_or(&b""[..], |node| node);
        let owner = PartsOwner { id, devnode, priority: 0, title: Some(event.title()) };
        let all = [Parts::Release(&rest.symlinks), Parts::RemoveTags(&rest.tags)];
        if !self.do_parts(owner, &all, &mut progress) {
            return Err(Need::Turn(progress));
        }
        if let Err(error) = progress.result() {
            log::warn!("{}: cannot clean the tag index: {error}", event.title());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
