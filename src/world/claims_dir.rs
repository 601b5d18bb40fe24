//! Symlinks in `/dev` and the claims on them in `/run/udev/links` (interop.md 1.6, rules.md 11.2).
//!
//! * [`ClaimsDir::open`], then [`ClaimsDir::load`] once: the table of an earlier run, from disk.
//! * [`ClaimsDir::apply`] drops and makes the claims of one event; `/dev/<symlink>` follows.
//! * [`ClaimsDir::set_number_symlink`], [`ClaimsDir::remove_number_symlink`]: `/dev/block/8:0`.
//! * [`ClaimsDir::differences`]: how claims that a crash has left differ from the record of a device.
//! * [`ClaimsDir::take_unfinished`], [`ClaimsDir::finish`]: changes that failed for want of room are made again.
//!
//! Who owns a symlink is decided in `model::claims`; this file makes the disk agree. What must stay
//! true: a symlink is relative; [`symlinks`] says how it is written. A symlink in `/dev` has a claim on disk for
//! as long as it is there: the claim is noted first and dropped last, so that the next start can find a symlink that
//! a crash has left. Claims that another process removes from the disk are back there after the next event of the
//! device. An error concerns one symlink; the others are done.

mod error;
mod load;
mod names;

use super::atomic;
use super::database::{file_name, missing_is_fine, open_or_make};
use super::places::Held;
use super::symlinks::{self, split_last};
use crate::model::claims::{Claims, Decision, EntryChange, Symlink};
use crate::model::hash::{escape_symlink, unescape_symlink};
use crate::model::record::Record;
use crate::model::{DevNum, DeviceId, SymlinkSet};
use crate::sys::fs::Dir;
use bstr::{BStr, BString, ByteSlice};
pub use error::{ClaimError, ClaimErrorKind};
use names::{node_name, node_of_target, number_symlink, plain_name, relative_target};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

const DIR_MODE: u32 = 0o755;

/// Symlinks that are remembered to be done again; when there are more, all are.
const MAX_UNFINISHED: usize = 4096;

/// `/dev`, `/run/udev/links` and the table of claims.
#[derive(Debug)]
pub struct ClaimsDir {
    dev: Dir,
    folder: Dir,
    umask_spares_modes: bool,
    claims: Claims,
    /// Where disk and table differ because something failed that may succeed later.
    unfinished: BTreeSet<BString>,
    /// More differ than are remembered.
    too_many_unfinished: bool,
}

impl ClaimsDir {
    /// Opens both folders; `dev` is `/dev`, `udev` is `/run/udev`. The table is empty.
    pub fn open(dev: &Path, udev: &Dir) -> io::Result<ClaimsDir> {
        let folder = open_or_make(udev, b"links")?;
        Ok(ClaimsDir {
            umask_spares_modes: atomic::umask_spares_modes(&folder),
            dev: Dir::open(dev)?,
            folder,
            claims: Claims::new(),
            unfinished: BTreeSet::new(),
            too_many_unfinished: false,
        })
    }

    /// Writes claims to this `/run/udev` from now on. The table stays; each claim is on disk again after the
    /// next event of its device.
    pub fn reopen(&mut self, udev: &Dir) -> io::Result<()> {
        self.folder = open_or_make(udev, b"links")?;
        self.umask_spares_modes = atomic::umask_spares_modes(&self.folder);
        Ok(())
    }

    /// What is held open in `/run`.
    pub fn folder(&self) -> Held<'_> {
        ("udev/links", &self.folder)
    }

    /// The table.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Drops the claims of a device on `release`, then makes those on `claim`; `devnode` is absolute, or empty for a
    /// device that is gone.
    /// Returns what did not succeed.
    pub fn apply(
        &mut self,
        id: &DeviceId,
        devnode: &[u8],
        priority: i32,
        release: &[BString],
        claim: &[BString],
    ) -> Vec<ClaimError> {
        let mut errors = Vec::new();
        for symlink in release {
            let released = self.release(symlink, id, devnode);
            errors.extend(self.note(symlink, released));
        }
        for symlink in claim {
            let claimed = self.claim(symlink, id, priority, devnode);
            errors.extend(self.note(symlink, claimed));
        }
        errors
    }

    /// Remembers what may succeed later.
    fn note(&mut self, symlink: &BString, result: Result<(), ClaimErrorKind>) -> Option<ClaimError> {
        let kind = result.err()?;
        if kind.is_shortage() {
            if self.unfinished.len() < MAX_UNFINISHED {
                self.unfinished.insert(symlink.clone());
            } else {
                self.too_many_unfinished = true;
            }
        }
        Some(ClaimError { symlink: symlink.clone(), kind })
    }

    /// Whether disk and table differ because something failed that may succeed later.
    pub fn is_unfinished(&self) -> bool {
        self.too_many_unfinished || !self.unfinished.is_empty()
    }

    /// Whether there is room in `/dev`: a symlink is made and removed again.
    pub fn try_room(&self) -> io::Result<()> {
        let name = b".#room";
        match self.dev.symlink(b"room", name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        self.dev.unlink(name)
    }

    /// The symlinks of which something failed for want of room; [`ClaimsDir::finish`] is called for each.
    pub fn take_unfinished(&mut self) -> Vec<BString> {
        let mut symlinks = std::mem::take(&mut self.unfinished);
        if std::mem::take(&mut self.too_many_unfinished) {
            symlinks.extend(self.claims.symlinks().map(BStr::to_owned));
            let on_disk = self.folder.names().unwrap_or_default();
            symlinks.extend(on_disk.iter().filter_map(|dir| unescape_symlink(dir)));
        }
        symlinks.into_iter().collect()
    }

    /// Makes the changes of one symlink that failed; if they fail once more, they stay remembered.
    pub fn finish(&mut self, symlink: &BString) -> Option<ClaimError> {
        let finished = self.finish_symlink(symlink);
        self.note(symlink, finished)
    }

    /// Makes the disk agree with the table in all that concerns one symlink.
    fn finish_symlink(&mut self, symlink: &BString) -> Result<(), ClaimErrorKind> {
        plain_name(symlink)?;
        let ids: Vec<DeviceId> = self.claims.ranked(symlink).map(|claim| claim.id.clone()).collect();
        for id in &ids {
            self.write_entry(symlink, id, true).map_err(ClaimErrorKind::Claim)?;
        }
        self.point_to_owner(symlink, None)?;
        self.drop_strange_entries(symlink).map_err(ClaimErrorKind::Claim)
    }

    /// Removes the entries of devices that have no claim.
    fn drop_strange_entries(&self, symlink: &[u8]) -> io::Result<()> {
        let dir = escape_symlink(symlink);
        let opened = match self.folder.open_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        let is_claimed =
            |name: &[u8]| DeviceId::parse(name).is_some_and(|id| self.claims.get(symlink, &id).is_some());
        for name in opened.names()?.iter().filter(|name| !name.starts_with(b".") && !is_claimed(name)) {
            missing_is_fine(opened.unlink(name))?;
        }
        if self.claims.ranked(symlink).next().is_none() { self.remove_claim_dir(&dir) } else { Ok(()) }
    }

    /// The symlinks that a device claims beside these, as far as is known.
    pub fn symlinks_beside(&self, id: &DeviceId, symlinks: &SymlinkSet) -> Vec<BString> {
        let mut others = self.claims.symlinks_of(id);
        others.retain(|symlink| !symlinks.contains(symlink));
        others
    }

    /// What brings the claims of a device in line with its record, which is the truth: the symlinks to release and
    /// those to claim. A crash may have come between the two. `devnode` is its node if it is there. Symlinks that
    /// lead elsewhere are left alone where table and record agree.
    pub fn differences(
        &self,
        id: &DeviceId,
        record: &Record,
        devnode: Option<&BStr>,
    ) -> (Vec<BString>, Vec<BString>) {
        let agrees = |symlink: &BString| {
            let is_claimed =
                self.claims.get(symlink, id).is_some_and(|claim| claim.priority == record.priority);
            is_claimed && self.dev.exists(symlink)
        };
        let claim = match devnode {
            Some(_) => {
                record.symlinks.as_slice().iter().filter(|symlink| !agrees(symlink)).cloned().collect()
            }
            None => Vec::new(),
        };
        (self.symlinks_beside(id, &record.symlinks), claim)
    }

    /// Removes what a crash has left of replacing symlinks in `/dev`, wherever somebody claims one.
    pub fn sweep_dev(&self) -> io::Result<()> {
        let numbers = [&b""[..], b"block", b"char"];
        let folders: BTreeSet<&[u8]> =
            self.claims.symlinks().map(|symlink| split_last(symlink).0).chain(numbers).collect();
        let sweep = |folder| {
            let is_claimed = |name: &BString| {
                let symlink = [folder, name.as_slice()].join(&b'/');
                self.claims.ranked(symlink.strip_prefix(b"/").unwrap_or(&symlink)).next().is_some()
            };
            symlinks::sweep(&self.dev, folder, is_claimed)
        };
        folders.into_iter().try_for_each(sweep)
    }

    /// The devices that have a symlink in `/dev/block` or `/dev/char`.
    pub fn number_symlinks(&self) -> Vec<DeviceId> {
        let list = |folder: &[u8], id: fn(DevNum) -> DeviceId| {
            let names = self.dev.open_dir(folder).and_then(|dir| dir.names()).unwrap_or_default();
            names.into_iter().filter_map(move |name| DevNum::parse(&name).map(id))
        };
        list(b"block", DeviceId::Block).chain(list(b"char", DeviceId::Char)).collect()
    }

    fn claim(
        &mut self,
        symlink: &[u8],
        id: &DeviceId,
        priority: i32,
        devnode: &[u8],
    ) -> Result<(), ClaimErrorKind> {
        let (symlink, _) = (plain_name(symlink)?, node_name(devnode)?);
        let decision = self.claims.claim(symlink, id, priority, devnode);
        self.perform(symlink, id, decision)
    }

    fn release(&mut self, symlink: &[u8], id: &DeviceId, devnode: &[u8]) -> Result<(), ClaimErrorKind> {
        let symlink = plain_name(symlink)?;
        let decision = self.claims.release(symlink, id);
        if decision == Decision::NOTHING {
            return self.release_unclaimed(symlink, id, devnode);
        }
        self.perform(symlink, id, decision)
    }

    /// The claim was lost, as when someone emptied `links`: if the symlink is this device's all the
    /// same, the next one gets it.
    fn release_unclaimed(
        &mut self,
        symlink: &[u8],
        id: &DeviceId,
        devnode: &[u8],
    ) -> Result<(), ClaimErrorKind> {
        let Ok(present) = symlinks::target(&self.dev, symlink) else { return Ok(()) };
        let is_its = match node_name(devnode) {
            Ok(node) => present == relative_target(symlink, node),
            Err(_) => self.is_left_by(id, symlink, &present),
        };
        if is_its { self.point_to_owner(symlink, Some(id)) } else { Ok(()) }
    }

    /// Whether a symlink may be left of a device that is gone and whose node is not known any more: it is written as
    /// we write symlinks, and leads to nothing, or to a node that has stayed and has the device's number.
    fn is_left_by(&self, id: &DeviceId, symlink: &[u8], target: &[u8]) -> bool {
        let Some(node) = node_of_target(symlink, target) else { return false };
        let has_number = |rdev, number: &DevNum| rdev == (number.major, number.minor);
        match (self.dev.stat(&node), id) {
            (Err(error), _) => error.kind() == io::ErrorKind::NotFound,
            (Ok(stat), DeviceId::Block(number)) => stat.is_block_device() && has_number(stat.rdev, number),
            (Ok(stat), DeviceId::Char(number)) => stat.is_char_device() && has_number(stat.rdev, number),
            (Ok(_), DeviceId::Net(_) | DeviceId::Named { .. }) => false,
        }
    }

    /// Makes the disk agree. A symlink is made even if the claim cannot be noted; a claim stays on disk until the
    /// symlink is as it must be.
    fn perform(&mut self, symlink: &[u8], id: &DeviceId, decision: Decision) -> Result<(), ClaimErrorKind> {
        let noted = match decision.entry {
            // One that should be there already is looked at all the same: somebody may have removed it.
            EntryChange::Keep => self.write_entry(symlink, id, false),
            EntryChange::Write => self.write_entry(symlink, id, true),
            EntryChange::Remove | EntryChange::RemoveLast => Ok(()),
        };
        let linked = match decision.symlink {
            Symlink::Nothing => Ok(()),
            Symlink::Remove => self.remove_symlink(symlink),
            // The same holds for the symlink.
            Symlink::Keep(_) | Symlink::Point(_) => self.point_to_owner(symlink, Some(id)),
        };
        let dropped = match decision.entry {
            EntryChange::Remove | EntryChange::RemoveLast
                if matches!(&linked, Err(ClaimErrorKind::Dev(_))) =>
            {
                Ok(())
            }
            EntryChange::Remove => self.remove_entry(symlink, id, false),
            EntryChange::RemoveLast => self.remove_entry(symlink, id, true),
            EntryChange::Keep | EntryChange::Write => Ok(()),
        };
        linked.and(noted.and(dropped).map_err(ClaimErrorKind::Claim))
    }

    /// Points the symlink to the best claim; that of the device being processed needs no node yet.
    fn point_to_owner(&mut self, symlink: &[u8], processed: Option<&DeviceId>) -> Result<(), ClaimErrorKind> {
        match self.present_owner(symlink, processed) {
            Some(node) => self.point(symlink, node.as_bstr()),
            None => self.remove_symlink(symlink),
        }
    }

    /// Node, relative to `/dev`, of the best claim whose node is there. The node of the device being processed counts
    /// as there.
    fn present_owner(&mut self, symlink: &[u8], processed: Option<&DeviceId>) -> Option<BString> {
        let mut owner = self.claims.owner(symlink)?.clone();
        loop {
            let node = node_name(&owner.devnode).ok();
            if let Some(node) = node.filter(|node| processed == Some(&owner.id) || self.dev.exists(node)) {
                return Some(node.to_owned());
            }
            owner = self.claims.set_absent(symlink, &owner.id)?.clone();
        }
    }

    /// `links/<esc>/<id>` -> `<priority>:<devnode>`, as in the table. `is_new`: one that is there says something else.
    fn write_entry(&self, symlink: &[u8], id: &DeviceId, is_new: bool) -> io::Result<()> {
        let Some(claim) = self.claims.get(symlink, id) else { return Ok(()) };
        let target = [claim.priority.to_string().as_bytes(), b":", &claim.devnode].concat();
        let dir = escape_symlink(symlink);
        let entry = [&dir[..], b"/", &file_name(id)?].concat();
        let made = match self.folder.symlink(&target, &entry) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                atomic::ensure_dir(&self.folder, &dir, DIR_MODE, self.umask_spares_modes)?;
                self.folder.symlink(&target, &entry)
            }
            result => result,
        };
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_new => {
                atomic::replace_symlink(&self.folder, &target, &entry)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            result => result,
        }
    }

    fn remove_entry(&self, symlink: &[u8], id: &DeviceId, last: bool) -> io::Result<()> {
        let dir = escape_symlink(symlink);
        missing_is_fine(self.folder.unlink(&[&dir[..], b"/", &file_name(id)?].concat()))?;
        if last { self.remove_claim_dir(&dir) } else { Ok(()) }
    }

    /// Removes a claim directory without claims. A lock file of another writer goes with it; anything
    /// else that is in it stays.
    fn remove_claim_dir(&self, dir: &[u8]) -> io::Result<()> {
        let mut removed = self.folder.remove_dir(dir);
        if is_not_empty(&removed) {
            missing_is_fine(self.folder.unlink(&[dir, b"/.lock"].concat()))?;
            removed = self.folder.remove_dir(dir);
        }
        if is_not_empty(&removed) { Ok(()) } else { missing_is_fine(removed) }
    }

    /// Makes `/dev/<symlink>` point to the node, which is relative to `/dev`.
    fn point(&self, symlink: &[u8], node: &BStr) -> Result<(), ClaimErrorKind> {
        let target = relative_target(symlink, node);
        symlinks::put(&self.dev, symlink, &target, self.umask_spares_modes).map_err(ClaimErrorKind::from)
    }

    /// Removes `/dev/<symlink>` and the folders that are empty without it.
    fn remove_symlink(&self, symlink: &[u8]) -> Result<(), ClaimErrorKind> {
        symlinks::remove(&self.dev, symlink).map_err(ClaimErrorKind::from)
    }

    /// `/dev/block/M:m` or `/dev/char/M:m` -> node, on every event but remove (rules.md 11.3).
    pub fn set_number_symlink(&self, block: bool, number: DevNum, devnode: &[u8]) -> Result<(), ClaimError> {
        let symlink = number_symlink(block, number);
        let result = node_name(devnode).and_then(|node| self.point(&symlink, node));
        result.map_err(|kind| ClaimError { symlink, kind })
    }

    /// Removes it again.
    pub fn remove_number_symlink(&self, block: bool, number: DevNum) -> Result<(), ClaimError> {
        let symlink = number_symlink(block, number);
        self.remove_symlink(&symlink).map_err(|kind| ClaimError { symlink, kind })
    }
}

fn is_not_empty(result: &io::Result<()>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::DirectoryNotEmpty)
}

#[cfg(test)]
mod tests;
