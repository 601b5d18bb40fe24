//! Symlinks in `/dev` and the claims on them in `/run/udev/links` (interop.md 1.6, rules.md 11.2).
//!
//! * [`ClaimsDir::open`], then [`ClaimsDir::load`] once: the table of an earlier run, from disk.
//! * [`ClaimsDir::apply`] drops and makes the claims of one event; `/dev/<link>` follows.
//! * [`ClaimsDir::set_number_link`], [`ClaimsDir::remove_number_link`]: `/dev/block/8:0`.
//! * [`ClaimsDir::differences`]: what a crash has left, compared with the record of a device.
//! * [`ClaimsDir::take_unfinished`], [`ClaimsDir::finish`]: what failed for want of room is done again.
//!
//! Who owns a symlink is decided in `model::claims`; this file makes the disk agree. What must stay
//! true: a symlink is relative; [`symlinks`] says how it is written. A symlink in `/dev` has a claim on disk for
//! as long as it is there: the claim is noted first and dropped last, so that what a crash leaves can be found.
//! Whoever removes claims from the disk finds them there again after the next event of the device. An error
//! concerns one symlink; the others are done.

use super::Sysfs;
use super::atomic;
use super::database::{Records, file_name, missing_is_fine, open_or_make};
use super::symlinks::{self, SymlinkError, split_last};
use crate::model::claims::{Claims, Decision, EntryChange, Symlink};
use crate::model::hash::{escape_link, unescape_link};
use crate::model::record::Record;
use crate::model::{DevNum, DeviceId, Errno, LinkSet};
use crate::sys::fs::Dir;
use bstr::{BStr, BString, ByteSlice};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

const DIR_MODE: u32 = 0o755;

/// Symlinks that are remembered to be done again; when there are more, all are.
const MAX_UNFINISHED: usize = 4096;

/// Why one symlink is not as it should be.
#[derive(Debug)]
pub struct LinkError {
    /// Relative to `/dev/`.
    pub link: BString,
    pub kind: LinkErrorKind,
}

/// See [`LinkError`].
#[derive(Debug)]
pub enum LinkErrorKind {
    /// The name is empty, or has an empty component, `.`, `..`, a NUL or a newline.
    BadName,
    /// The node is not below `/dev/`.
    BadNode(BString),
    /// Something that is no symlink is there.
    Occupied,
    /// The symlink in `/dev` could not be read, made or removed.
    Dev(io::Error),
    /// The same for its claim directory.
    Claim(io::Error),
}

impl LinkError {
    /// Whether `/run/udev/links` is not there, or was removed.
    pub fn is_of_missing_folder(&self) -> bool {
        matches!(&self.kind, LinkErrorKind::Claim(error) if error.kind() == io::ErrorKind::NotFound)
    }

    /// Whether the same may succeed later; the link is then remembered for [`ClaimsDir::finish`].
    pub fn is_shortage(&self) -> bool {
        self.kind.is_shortage()
    }

    /// The error number that an event which fails by this reports.
    pub fn errno(&self) -> Errno {
        match &self.kind {
            LinkErrorKind::BadName | LinkErrorKind::BadNode(_) => Errno(libc::EINVAL),
            LinkErrorKind::Occupied => Errno(libc::EEXIST),
            LinkErrorKind::Dev(error) | LinkErrorKind::Claim(error) => Errno::of(error),
        }
    }
}

impl LinkErrorKind {
    fn is_shortage(&self) -> bool {
        match self {
            LinkErrorKind::Dev(error) | LinkErrorKind::Claim(error) => Errno::of(error).is_shortage(),
            LinkErrorKind::BadName | LinkErrorKind::BadNode(_) | LinkErrorKind::Occupied => false,
        }
    }
}

impl std::fmt::Display for LinkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let link = &self.link;
        match &self.kind {
            LinkErrorKind::BadName => write!(f, "cannot link {link:?}: not a name below /dev"),
            LinkErrorKind::BadNode(node) => write!(f, "cannot link /dev/{link} to {node:?}: not below /dev"),
            LinkErrorKind::Occupied => {
                write!(f, "cannot link /dev/{link}: something that is no symlink is there")
            }
            LinkErrorKind::Dev(error) => write!(f, "cannot change /dev/{link}: {error}"),
            LinkErrorKind::Claim(error) => write!(f, "cannot note the claim on /dev/{link}: {error}"),
        }
    }
}

impl std::error::Error for LinkError {}

/// `/dev`, `/run/udev/links` and the table of claims.
#[derive(Debug)]
pub struct ClaimsDir {
    dev: Dir,
    links: Dir,
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
        let links = open_or_make(udev, b"links")?;
        Ok(ClaimsDir {
            umask_spares_modes: atomic::umask_spares_modes(&links),
            dev: Dir::open(dev)?,
            links,
            claims: Claims::new(),
            unfinished: BTreeSet::new(),
            too_many_unfinished: false,
        })
    }

    /// Writes claims to this `/run/udev` from now on. The table stays; each claim is on disk again after the
    /// next event of its device.
    pub fn reopen(&mut self, udev: &Dir) -> io::Result<()> {
        self.links = open_or_make(udev, b"links")?;
        self.umask_spares_modes = atomic::umask_spares_modes(&self.links);
        Ok(())
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
    ) -> Vec<LinkError> {
        let mut errors = Vec::new();
        for link in release {
            let released = self.release(link, id, devnode);
            errors.extend(self.note(link, released));
        }
        for link in claim {
            let claimed = self.claim(link, id, priority, devnode);
            errors.extend(self.note(link, claimed));
        }
        errors
    }

    /// Remembers what may succeed later.
    fn note(&mut self, link: &BString, result: Result<(), LinkErrorKind>) -> Option<LinkError> {
        let kind = result.err()?;
        if kind.is_shortage() {
            if self.unfinished.len() < MAX_UNFINISHED {
                self.unfinished.insert(link.clone());
            } else {
                self.too_many_unfinished = true;
            }
        }
        Some(LinkError { link: link.clone(), kind })
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
        let mut links = std::mem::take(&mut self.unfinished);
        if std::mem::take(&mut self.too_many_unfinished) {
            links.extend(self.claims.links().map(BStr::to_owned));
            let on_disk = self.links.names().unwrap_or_default();
            links.extend(on_disk.iter().filter_map(|dir| unescape_link(dir)));
        }
        links.into_iter().collect()
    }

    /// Does again what failed of one symlink; what fails once more is remembered further.
    pub fn finish(&mut self, link: &BString) -> Option<LinkError> {
        let finished = self.finish_link(link);
        self.note(link, finished)
    }

    /// Makes the disk agree with the table in all that concerns one symlink.
    fn finish_link(&mut self, link: &BString) -> Result<(), LinkErrorKind> {
        plain_name(link)?;
        let ids: Vec<DeviceId> = self.claims.ranked(link).map(|claim| claim.id.clone()).collect();
        for id in &ids {
            self.write_entry(link, id, true).map_err(LinkErrorKind::Claim)?;
        }
        self.point_to_owner(link, None)?;
        self.drop_strange_entries(link).map_err(LinkErrorKind::Claim)
    }

    /// Removes the entries of devices that have no claim.
    fn drop_strange_entries(&self, link: &[u8]) -> io::Result<()> {
        let dir = escape_link(link);
        let opened = match self.links.open_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        let is_claimed =
            |name: &[u8]| DeviceId::parse(name).is_some_and(|id| self.claims.get(link, &id).is_some());
        for name in opened.names()?.iter().filter(|name| !name.starts_with(b".") && !is_claimed(name)) {
            missing_is_fine(opened.unlink(name))?;
        }
        if self.claims.ranked(link).next().is_none() { self.remove_claim_dir(&dir) } else { Ok(()) }
    }

    /// The symlinks that a device claims beside these, as far as is known.
    pub fn links_beside(&self, id: &DeviceId, links: &LinkSet) -> Vec<BString> {
        let mut others = self.claims.links_of(id);
        others.retain(|link| !links.contains(link));
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
        let agrees = |link: &BString| {
            let is_claimed = self.claims.get(link, id).is_some_and(|claim| claim.priority == record.priority);
            is_claimed && self.dev.exists(link)
        };
        let claim = match devnode {
            Some(_) => record.links.as_slice().iter().filter(|link| !agrees(link)).cloned().collect(),
            None => Vec::new(),
        };
        (self.links_beside(id, &record.links), claim)
    }

    /// Removes what a crash has left of replacing symlinks in `/dev`, wherever somebody claims one.
    pub fn sweep_dev(&self) -> io::Result<()> {
        let numbers = [&b""[..], b"block", b"char"];
        let folders: BTreeSet<&[u8]> =
            self.claims.links().map(|link| split_last(link).0).chain(numbers).collect();
        let sweep = |folder| {
            let is_claimed = |name: &BString| {
                let link = [folder, name.as_slice()].join(&b'/');
                self.claims.ranked(link.strip_prefix(b"/").unwrap_or(&link)).next().is_some()
            };
            symlinks::sweep(&self.dev, folder, is_claimed)
        };
        folders.into_iter().try_for_each(sweep)
    }

    /// The devices that have a symlink in `/dev/block` or `/dev/char`.
    pub fn number_links(&self) -> Vec<DeviceId> {
        let list = |folder: &[u8], id: fn(DevNum) -> DeviceId| {
            let names = self.dev.open_dir(folder).and_then(|dir| dir.names()).unwrap_or_default();
            names.into_iter().filter_map(move |name| DevNum::parse(&name).map(id))
        };
        list(b"block", DeviceId::Block).chain(list(b"char", DeviceId::Char)).collect()
    }

    fn claim(
        &mut self,
        link: &[u8],
        id: &DeviceId,
        priority: i32,
        devnode: &[u8],
    ) -> Result<(), LinkErrorKind> {
        let (link, _) = (plain_name(link)?, node_name(devnode)?);
        let decision = self.claims.claim(link, id, priority, devnode);
        self.perform(link, id, decision)
    }

    fn release(&mut self, link: &[u8], id: &DeviceId, devnode: &[u8]) -> Result<(), LinkErrorKind> {
        let link = plain_name(link)?;
        let decision = self.claims.release(link, id);
        if decision == Decision::NOTHING {
            return self.release_unclaimed(link, id, devnode);
        }
        self.perform(link, id, decision)
    }

    /// The claim was lost, as when someone emptied `links`: if the symlink is this device's all the
    /// same, the next one gets it.
    fn release_unclaimed(&mut self, link: &[u8], id: &DeviceId, devnode: &[u8]) -> Result<(), LinkErrorKind> {
        let Ok(present) = symlinks::target(&self.dev, link) else { return Ok(()) };
        let is_its = match node_name(devnode) {
            Ok(node) => present == relative_target(link, node),
            Err(_) => self.is_left_by(id, link, &present),
        };
        if is_its { self.point_to_owner(link, Some(id)) } else { Ok(()) }
    }

    /// Whether a symlink may be left of a device that is gone, whose node nobody knows any more: it is as we write
    /// it, and leads to nothing, or to a node of the device's number that has stayed.
    fn is_left_by(&self, id: &DeviceId, link: &[u8], target: &[u8]) -> bool {
        let Some(node) = node_of_target(link, target) else { return false };
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
    fn perform(&mut self, link: &[u8], id: &DeviceId, decision: Decision) -> Result<(), LinkErrorKind> {
        let noted = match decision.entry {
            // One that should be there already is looked at all the same: somebody may have removed it.
            EntryChange::Keep => self.write_entry(link, id, false),
            EntryChange::Write => self.write_entry(link, id, true),
            EntryChange::Remove | EntryChange::RemoveLast => Ok(()),
        };
        let linked = match decision.symlink {
            Symlink::Nothing => Ok(()),
            Symlink::Remove => self.remove_symlink(link),
            // The same holds for the symlink.
            Symlink::Keep(_) | Symlink::Point(_) => self.point_to_owner(link, Some(id)),
        };
        let dropped = match decision.entry {
            EntryChange::Remove | EntryChange::RemoveLast
                if matches!(&linked, Err(LinkErrorKind::Dev(_))) =>
            {
                Ok(())
            }
            EntryChange::Remove => self.remove_entry(link, id, false),
            EntryChange::RemoveLast => self.remove_entry(link, id, true),
            EntryChange::Keep | EntryChange::Write => Ok(()),
        };
        linked.and(noted.and(dropped).map_err(LinkErrorKind::Claim))
    }

    /// Points the symlink to the best claim; that of the device being processed needs no node yet.
    fn point_to_owner(&mut self, link: &[u8], processed: Option<&DeviceId>) -> Result<(), LinkErrorKind> {
        match self.present_owner(link, processed) {
            Some(node) => self.point(link, node.as_bstr()),
            None => self.remove_symlink(link),
        }
    }

    /// Node, relative to `/dev`, of the best claim whose node is there. That of the device being
    /// processed is not asked for.
    fn present_owner(&mut self, link: &[u8], processed: Option<&DeviceId>) -> Option<BString> {
        let mut owner = self.claims.owner(link)?.clone();
        loop {
            let node = node_name(&owner.devnode).ok();
            if let Some(node) = node.filter(|node| processed == Some(&owner.id) || self.dev.exists(node)) {
                return Some(node.to_owned());
            }
            owner = self.claims.set_absent(link, &owner.id)?.clone();
        }
    }

    /// `links/<esc>/<id>` -> `<priority>:<devnode>`, as in the table. `is_new`: one that is there says something else.
    fn write_entry(&self, link: &[u8], id: &DeviceId, is_new: bool) -> io::Result<()> {
        let Some(claim) = self.claims.get(link, id) else { return Ok(()) };
        let target = [claim.priority.to_string().as_bytes(), b":", &claim.devnode].concat();
        let dir = escape_link(link);
        let entry = [&dir[..], b"/", &file_name(id)?].concat();
        let made = match self.links.symlink(&target, &entry) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                atomic::ensure_dir(&self.links, &dir, DIR_MODE, self.umask_spares_modes)?;
                self.links.symlink(&target, &entry)
            }
            result => result,
        };
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_new => {
                atomic::replace_symlink(&self.links, &target, &entry)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            result => result,
        }
    }

    fn remove_entry(&self, link: &[u8], id: &DeviceId, last: bool) -> io::Result<()> {
        let dir = escape_link(link);
        missing_is_fine(self.links.unlink(&[&dir[..], b"/", &file_name(id)?].concat()))?;
        if last { self.remove_claim_dir(&dir) } else { Ok(()) }
    }

    /// Removes a claim directory without claims. A lock file of another writer goes with it; anything
    /// else that is in it stays.
    fn remove_claim_dir(&self, dir: &[u8]) -> io::Result<()> {
        let mut removed = self.links.remove_dir(dir);
        if is_not_empty(&removed) {
            missing_is_fine(self.links.unlink(&[dir, b"/.lock"].concat()))?;
            removed = self.links.remove_dir(dir);
        }
        if is_not_empty(&removed) { Ok(()) } else { missing_is_fine(removed) }
    }

    /// Makes `/dev/<link>` point to the node, which is relative to `/dev`.
    fn point(&self, link: &[u8], node: &BStr) -> Result<(), LinkErrorKind> {
        let target = relative_target(link, node);
        symlinks::put(&self.dev, link, &target, self.umask_spares_modes).map_err(LinkErrorKind::from)
    }

    /// Removes `/dev/<link>` and the folders that are empty without it.
    fn remove_symlink(&self, link: &[u8]) -> Result<(), LinkErrorKind> {
        symlinks::remove(&self.dev, link).map_err(LinkErrorKind::from)
    }

    /// `/dev/block/M:m` or `/dev/char/M:m` -> node, on every event but remove (rules.md 11.3).
    pub fn set_number_link(&self, block: bool, number: DevNum, devnode: &[u8]) -> Result<(), LinkError> {
        let link = number_link(block, number);
        let result = node_name(devnode).and_then(|node| self.point(&link, node));
        result.map_err(|kind| LinkError { link, kind })
    }

    /// Removes it again.
    pub fn remove_number_link(&self, block: bool, number: DevNum) -> Result<(), LinkError> {
        let link = number_link(block, number);
        self.remove_symlink(&link).map_err(|kind| LinkError { link, kind })
    }

    /// Fills the table from the claims that an earlier run of any udev left. Entries of an older form
    /// are written anew, empty claim directories removed. Symlinks in `/dev` are left as they are: of
    /// equal claims the one that owns its symlink now keeps it.
    ///
    /// Returns what could not be read; such a claim comes back with the next event of its device.
    pub fn load(&mut self, records: &Records, sysfs: &Sysfs) -> io::Result<Vec<LinkError>> {
        let mut errors = Vec::new();
        let mut found = Vec::new();
        let names = self.links.names()?;
        if let Err(error) = atomic::sweep_names(&self.links, &names) {
            log::warn!("Cannot remove what is left of writing claims: {error}");
        }
        // A rule may have asked for a name that begins like those that are no folders.
        let is_file = |name: &BString| atomic::is_temporary(name) && self.links.open_dir(name).is_err();
        for dir in names.into_iter().filter(|name| !is_file(name)) {
            if let Err(error) = self.load_dir(&dir, records, sysfs, &mut found) {
                let link = unescape_link(&dir).unwrap_or(dir);
                errors.push(LinkError { link, kind: LinkErrorKind::Claim(error) });
            }
        }
        // What was claimed later ranks higher among equals.
        found.sort_by_key(|old| old.mtime_nsec);
        for old in &found {
            self.claims.claim(&old.link, &old.id, old.priority, &old.devnode);
        }
        for old in found.iter().filter(|old| !old.is_current_form) {
            if let Err(error) = self.write_entry(&old.link, &old.id, true) {
                errors.push(LinkError { link: old.link.clone(), kind: LinkErrorKind::Claim(error) });
            }
        }
        self.keep_owners(&found);
        Ok(errors)
    }

    /// Claims once more for each device that owns a symlink in `/dev` now: so it is the last of its
    /// equals.
    fn keep_owners(&mut self, found: &[OldClaim]) {
        let mut links: Vec<&BString> = found.iter().map(|old| &old.link).collect();
        links.sort();
        links.dedup();
        for link in links {
            if self.claims.ranked(link).nth(1).is_none() {
                continue;
            }
            let Ok(present) = symlinks::target(&self.dev, link) else { continue };
            let owns = |devnode: &[u8]| node_name(devnode).is_ok_and(|n| relative_target(link, n) == present);
            let owner = self.claims.ranked(link).find(|claim| owns(&claim.devnode)).cloned();
            if let Some(owner) = owner {
                self.claims.claim(link, &owner.id, owner.priority, &owner.devnode);
            }
        }
    }

    /// Reads one claim directory; if its name is of the old form, its entries are moved out of it.
    fn load_dir(
        &self,
        dir: &BString,
        records: &Records,
        sysfs: &Sysfs,
        found: &mut Vec<OldClaim>,
    ) -> io::Result<()> {
        let opened = self.links.open_dir(dir)?;
        let mut is_empty = true;
        let names = opened.names()?;
        atomic::sweep_names(&opened, &names)?;
        for name in names {
            if name.starts_with(b".") {
                continue;
            }
            let claim = DeviceId::parse(&name)
                .and_then(|id| read_claim(&opened, dir, &name, id, records, sysfs).transpose());
            match claim.transpose()? {
                Some(claim) => {
                    if escape_link(&claim.link) == *dir {
                        is_empty = false;
                    } else {
                        opened.unlink(&name)?;
                    }
                    found.push(claim);
                }
                // Nobody can say whose claim on what it was.
                None => missing_is_fine(opened.unlink(&name))?,
            }
        }
        if is_empty { self.remove_claim_dir(dir) } else { Ok(()) }
    }
}

/// A claim as an earlier run left it.
struct OldClaim {
    link: BString,
    id: DeviceId,
    priority: i32,
    devnode: BString,
    mtime_nsec: i64,
    /// Directory and entry are what we write ourselves.
    is_current_form: bool,
}

/// Reads an entry of either form: a symlink to `<priority>:<devnode>`, or an empty file, for which the
/// record and sysfs know both. None if that cannot be found out, or makes no sense.
fn read_claim(
    opened: &Dir,
    dir: &BString,
    name: &[u8],
    id: DeviceId,
    records: &Records,
    sysfs: &Sysfs,
) -> io::Result<Option<OldClaim>> {
    let mtime_nsec = opened.stat(name)?.mtime_nsec;
    let target = opened.read_link(name).ok();
    let noted = target.as_ref().and_then(|target| {
        let (priority, devnode) = target.split_once_str(":")?;
        Some((priority.to_str().ok()?.parse::<i32>().ok()?, BString::from(devnode)))
    });
    let link = unescape_link(dir);
    let is_current_form = noted.is_some() && link.as_ref().is_none_or(|link| escape_link(link) == *dir);
    let record = if noted.is_some() && link.is_some() { None } else { records.read(&id)? };
    // A name that was cut is found among the symlinks of the device.
    let link = link.or_else(|| {
        let with_slash = |link: &BStr| escape_link(&[b"/", &**link].concat());
        let mut links = record.as_ref()?.links.iter();
        links.find(|link| escape_link(link) == *dir || with_slash(link) == *dir).map(BStr::to_owned)
    });
    let claim = noted.or_else(|| {
        let devpath = sysfs.device_of_id(&id)?;
        let devnode = sysfs.properties(&devpath).get("DEVNAME")?.to_owned();
        Some((record.as_ref()?.priority, devnode))
    });
    let (Some(link), Some((priority, devnode))) = (link, claim) else { return Ok(None) };
    if plain_name(&link).is_err() || node_name(&devnode).is_err() {
        return Ok(None);
    }
    Ok(Some(OldClaim { link, id, priority, devnode, mtime_nsec, is_current_form }))
}

impl From<SymlinkError> for LinkErrorKind {
    fn from(error: SymlinkError) -> LinkErrorKind {
        match error {
            SymlinkError::Occupied => LinkErrorKind::Occupied,
            SymlinkError::Io(error) => LinkErrorKind::Dev(error),
        }
    }
}

fn is_not_empty(result: &io::Result<()>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::DirectoryNotEmpty)
}

fn number_link(block: bool, number: DevNum) -> BString {
    let folder = if block { "block" } else { "char" };
    format!("{folder}/{}:{}", number.major, number.minor).into()
}

/// A symlink name that stays below `/dev` and on one line.
fn plain_name(link: &[u8]) -> Result<&[u8], LinkErrorKind> {
    let plain = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
    if link.split(|&b| b == b'/').all(plain) && !link.contains(&0) && !link.contains(&b'\n') {
        Ok(link)
    } else {
        Err(LinkErrorKind::BadName)
    }
}

/// The part of a devnode behind `/dev/`.
fn node_name(devnode: &[u8]) -> Result<&BStr, LinkErrorKind> {
    let node = devnode.strip_prefix(b"/dev/").and_then(|node| plain_name(node).ok());
    node.map(BStr::new).ok_or_else(|| LinkErrorKind::BadNode(devnode.into()))
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&b| b == b'/').filter(|component| !component.is_empty())
}

/// What a symlink must contain to lead to the node; both are relative to `/dev`.
fn relative_target(link: &[u8], node: &[u8]) -> BString {
    let (folder, _) = split_last(link);
    let (mut up, mut down) = (components(folder).peekable(), node);
    while let (Some(component), Some((first, rest))) = (up.peek(), down.split_once_str("/")) {
        if *component != first {
            break;
        }
        up.next();
        down = rest;
    }
    let mut target = BString::from("../".repeat(up.count()));
    target.extend_from_slice(down);
    target
}

/// The node, relative to `/dev`, that a symlink leads to; None if the target is not as [`relative_target`] makes it.
fn node_of_target(link: &[u8], target: &[u8]) -> Option<BString> {
    let (mut folder, _) = split_last(link);
    let mut down = target;
    while let Some(rest) = down.strip_prefix(b"../") {
        if folder.is_empty() {
            return None;
        }
        (folder, down) = (split_last(folder).0, rest);
    }
    let separator: &[u8] = if folder.is_empty() { b"" } else { b"/" };
    let node = BString::from([folder, separator, down].concat());
    (plain_name(&node).is_ok() && relative_target(link, &node) == target).then_some(node)
}

#[cfg(test)]
mod tests;
