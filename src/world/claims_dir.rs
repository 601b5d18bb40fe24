//! Symlinks in `/dev` and the claims on them in `/run/udev/links` (interop.md 1.6, rules.md 11.2).
//!
//! * [`ClaimsDir::open`], then [`ClaimsDir::load`] once: the table of an earlier run, from disk.
//! * [`ClaimsDir::apply`] drops and makes the claims of one event; `/dev/<link>` follows.
//! * [`ClaimsDir::set_number_link`], [`ClaimsDir::remove_number_link`]: `/dev/block/8:0`.
//! * [`ClaimsDir::agree`]: what a crash has left is brought in line with the record of a device.
//! * [`ClaimsDir::finish`]: what failed for want of room is done again.
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
use crate::model::claims::{Claims, Decision, Entry, Symlink};
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

    /// Whether the same may succeed later; the link is then remembered by [`ClaimsDir::finish`].
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

    /// Drops the claims of a device on `release`, then makes those on `claim`; `devnode` is absolute.
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

    /// Does again what failed for want of room; what fails once more is remembered further.
    pub fn finish(&mut self) -> Vec<LinkError> {
        let mut links = std::mem::take(&mut self.unfinished);
        if std::mem::take(&mut self.too_many_unfinished) {
            links.extend(self.claims.links().map(BStr::to_owned));
            let on_disk = self.links.names().unwrap_or_default();
            links.extend(on_disk.iter().filter_map(|dir| unescape_link(dir)));
        }
        let mut errors = Vec::new();
        for link in links {
            let finished = self.finish_link(&link);
            errors.extend(self.note(&link, finished));
        }
        errors
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

    /// Drops the claims of a device but those on `links`: after an event that ended half-way nobody else knows what
    /// it had claimed.
    pub fn keep_only(&mut self, id: &DeviceId, devnode: &[u8], links: &LinkSet) -> Vec<LinkError> {
        let mut release = self.claims.links_of(id);
        release.retain(|link| !links.contains(link));
        self.apply(id, devnode, 0, &release, &[])
    }

    /// Brings the claims of a device in line with its record, which is the truth: a crash may have come between
    /// them. `claimed` are its claims in the table; `devnode` is its node if it is there. Symlinks that
    /// lead elsewhere are left alone where table and record agree.
    pub fn agree(
        &mut self,
        id: &DeviceId,
        record: &Record,
        claimed: &[BString],
        devnode: Option<&BStr>,
    ) -> Vec<LinkError> {
        let release: Vec<_> = claimed.iter().filter(|link| !record.links.contains(link)).cloned().collect();
        let agrees = |link: &BStr| {
            let is_claimed = self.claims.get(link, id).is_some_and(|claim| claim.priority == record.priority);
            is_claimed && self.dev.exists(link)
        };
        let claim: Vec<_> = match devnode {
            Some(_) => record.links.iter().filter(|link| !agrees(link)).map(BStr::to_owned).collect(),
            None => Vec::new(),
        };
        self.apply(id, devnode.unwrap_or_default(), record.priority, &release, &claim)
    }

    /// Removes what a crash has left of replacing symlinks in `/dev`, wherever somebody claims one.
    pub fn sweep_dev(&self) -> io::Result<()> {
        let numbers = [&b""[..], b"block", b"char"];
        let folders: BTreeSet<&[u8]> =
            self.claims.links().map(|link| split_last(link).0).chain(numbers).collect();
        folders.into_iter().try_for_each(|folder| symlinks::sweep(&self.dev, folder))
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
        let Ok(node) = node_name(devnode) else { return Ok(()) };
        if !self.dev.read_link(link).is_ok_and(|present| present == relative_target(link, node)) {
            return Ok(());
        }
        self.point_to_owner(link, Some(id))
    }

    /// Makes the disk agree. A symlink is made even if the claim cannot be noted; a claim stays on disk until the
    /// symlink is as it must be.
    fn perform(&mut self, link: &[u8], id: &DeviceId, decision: Decision) -> Result<(), LinkErrorKind> {
        let noted = match decision.entry {
            // One that should be there already is looked at all the same: somebody may have removed it.
            Entry::Keep => self.write_entry(link, id, false),
            Entry::Write => self.write_entry(link, id, true),
            Entry::Remove | Entry::RemoveLast => Ok(()),
        };
        let linked = match decision.symlink {
            Symlink::Nothing => Ok(()),
            Symlink::Remove => self.remove_symlink(link),
            // The same holds for the symlink.
            Symlink::Keep(_) | Symlink::Point(_) => self.point_to_owner(link, Some(id)),
        };
        let dropped = match decision.entry {
            Entry::Remove | Entry::RemoveLast if matches!(&linked, Err(LinkErrorKind::Dev(_))) => Ok(()),
            Entry::Remove => self.remove_entry(link, id, false),
            Entry::RemoveLast => self.remove_entry(link, id, true),
            Entry::Keep | Entry::Write => Ok(()),
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
        for dir in names.into_iter().filter(|name| !atomic::is_temporary(name)) {
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
            let Ok(present) = self.dev.read_link(link) else { continue };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::database::open_udev_dir;
    use crate::world::tree::Tree;

    fn id(minor: u32) -> DeviceId {
        DeviceId::Block(DevNum { major: 8, minor })
    }

    fn node(minor: u32) -> String {
        format!("/dev/sd{minor}")
    }

    /// A tree with the nodes sd0 to sd5.
    fn tree() -> Tree {
        let tree = Tree::new();
        tree.dir("run/udev/data").dir("dev").dir("sys");
        for minor in 0..6 {
            tree.file(&node(minor)[1..], "");
        }
        tree
    }

    fn open(tree: &Tree) -> ClaimsDir {
        let roots = tree.roots();
        ClaimsDir::open(&roots.dev, &open_udev_dir(&roots.run).expect("/run/udev")).expect("folders")
    }

    fn load(tree: &Tree) -> ClaimsDir {
        let mut dir = open(tree);
        let records = Records::open(&tree.roots().run).expect("records");
        let errors = dir.load(&records, &Sysfs::new(&tree.roots())).expect("to list claims");
        assert!(errors.is_empty(), "{errors:?}");
        dir
    }

    fn claim(dir: &mut ClaimsDir, minor: u32, priority: i32, link: &str) -> Vec<String> {
        let errors = dir.apply(&id(minor), node(minor).as_bytes(), priority, &[], &[link.into()]);
        errors.iter().map(|error| error.to_string()).collect()
    }

    fn release(dir: &mut ClaimsDir, minor: u32, link: &str) -> Vec<String> {
        let errors = dir.apply(&id(minor), node(minor).as_bytes(), 0, &[link.into()], &[]);
        errors.iter().map(|error| error.to_string()).collect()
    }

    /// Where a symlink of the tree points to.
    fn target(tree: &Tree, path: &str) -> Option<String> {
        let target = std::fs::read_link(tree.path(path)).ok()?;
        Some(target.display().to_string())
    }

    const NONE: [String; 0] = [];

    #[test]
    fn a_claim_makes_symlink_and_entry_and_a_release_removes_them_with_their_folders() {
        let tree = tree();
        let mut dir = open(&tree);
        assert_eq!(claim(&mut dir, 1, 7, "disk/by-id/x"), NONE);
        assert_eq!(target(&tree, "dev/disk/by-id/x").as_deref(), Some("../../sd1"));
        let entry = "run/udev/links/disk\\x2fby-id\\x2fx/b8:1";
        assert_eq!(target(&tree, entry).as_deref(), Some("7:/dev/sd1"));
        assert_eq!(claim(&mut dir, 1, -3, "disk/by-id/x"), NONE);
        assert_eq!(target(&tree, entry).as_deref(), Some("-3:/dev/sd1"));
        tree.file("dev/disk/other", "");
        assert_eq!(release(&mut dir, 1, "disk/by-id/x"), NONE);
        assert!(!tree.path("dev/disk/by-id").exists() && tree.path("dev/disk").exists());
        assert_eq!(std::fs::read_dir(tree.path("run/udev/links")).unwrap().count(), 0);
        assert_eq!(release(&mut dir, 1, "disk/by-id/x"), NONE);
    }

    #[test]
    fn the_symlink_follows_the_best_claim_whose_node_is_there() {
        let tree = tree();
        let mut dir = open(&tree);
        let now = || target(&tree, "dev/l");
        for (minor, priority, owner) in [(0, 0, "sd0"), (1, 5, "sd1"), (2, 0, "sd1"), (3, 5, "sd3")] {
            assert_eq!(claim(&mut dir, minor, priority, "l"), NONE);
            assert_eq!(now().as_deref(), Some(owner));
        }
        std::fs::remove_file(tree.path("dev/sd1")).unwrap();
        assert_eq!(release(&mut dir, 3, "l"), NONE);
        assert_eq!(now().as_deref(), Some("sd2"));
        std::fs::remove_file(tree.path("dev/sd2")).unwrap();
        std::fs::remove_file(tree.path("dev/sd0")).unwrap();
        assert_eq!(release(&mut dir, 2, "l"), NONE);
        assert_eq!(now(), None);
        assert_eq!(dir.claims().ranked(b"l").count(), 2);
        tree.file("dev/sd0", "");
        assert_eq!(claim(&mut dir, 0, 0, "l"), NONE);
        assert_eq!(now().as_deref(), Some("sd0"));
    }

    #[test]
    fn a_symlink_that_somebody_removed_or_bent_is_mended_by_the_next_event() {
        let tree = tree();
        let mut dir = open(&tree);
        claim(&mut dir, 1, 0, "a/l");
        std::fs::remove_dir_all(tree.path("dev/a")).unwrap();
        assert_eq!(claim(&mut dir, 1, 0, "a/l"), NONE);
        assert_eq!(target(&tree, "dev/a/l").as_deref(), Some("../sd1"));
        std::fs::remove_file(tree.path("dev/a/l")).unwrap();
        tree.link("dev/a/l", "nowhere");
        assert_eq!(claim(&mut dir, 1, 0, "a/l"), NONE);
        assert_eq!(target(&tree, "dev/a/l").as_deref(), Some("../sd1"));
    }

    #[test]
    fn a_release_without_a_claim_gives_up_only_what_is_its_own() {
        let tree = tree();
        tree.link("dev/mine", "sd1").link("dev/theirs", "sd2").link("dev/shared", "sd1");
        let mut dir = open(&tree);
        claim(&mut dir, 2, 0, "theirs");
        let links = ["mine", "theirs", "shared", "nothing"].map(BString::from);
        claim(&mut dir, 3, 0, "shared");
        std::fs::remove_file(tree.path("dev/shared")).unwrap();
        tree.link("dev/shared", "sd1");
        assert!(dir.apply(&id(1), b"/dev/sd1", 0, &links, &[]).is_empty());
        assert_eq!(target(&tree, "dev/mine"), None);
        assert_eq!(target(&tree, "dev/theirs").as_deref(), Some("sd2"));
        assert_eq!(target(&tree, "dev/shared").as_deref(), Some("sd3"));
    }

    #[test]
    fn what_is_no_symlink_stays_and_the_other_links_are_made() {
        let tree = tree();
        tree.file("dev/file", "precious").dir("dev/folder/in");
        let mut dir = open(&tree);
        let links = ["file", "folder/in", "ok"].map(BString::from);
        let errors = dir.apply(&id(1), b"/dev/sd1", 0, &[], &links);
        let occupied = |error: &LinkError| matches!(error.kind, LinkErrorKind::Occupied);
        assert_eq!((errors.len(), errors.iter().all(occupied)), (2, true), "{errors:?}");
        assert_eq!(tree.read("dev/file"), b"precious");
        assert_eq!(target(&tree, "dev/ok").as_deref(), Some("sd1"));
        let errors = dir.apply(&id(1), b"/dev/sd1", 0, &links, &[]);
        assert_eq!((errors.len(), errors.iter().all(occupied)), (2, true), "{errors:?}");
        assert!(tree.path("dev/folder/in").is_dir() && target(&tree, "dev/ok").is_none());
    }

    #[test]
    fn nothing_is_written_outside_dev() {
        let tree = tree();
        tree.dir("outside").link("dev/way", "../outside");
        let mut dir = open(&tree);
        for link in ["../x", "/x", "a//b", "a/./b", "", "a/", "a\nb", "a\0b", "way/x"] {
            assert_eq!(claim(&mut dir, 1, 0, link).len(), 1, "{link:?}");
        }
        assert_eq!(std::fs::read_dir(tree.path("outside")).unwrap().count(), 0);
        for devnode in ["/etc/passwd", "/dev/../etc/passwd", "sda", "/dev/"] {
            let errors = dir.apply(&id(1), devnode.as_bytes(), 0, &[], &["l".into()]);
            assert!(matches!(errors[..], [LinkError { kind: LinkErrorKind::BadNode(_), .. }]), "{devnode}");
        }
        assert_eq!(target(&tree, "dev/l"), None);
    }

    #[test]
    fn targets_are_the_shortest_way() {
        for (link, node, target) in [
            ("l", "sda", "sda"),
            ("disk/by-id/x", "sda", "../../sda"),
            ("input/by-path/p", "input/event0", "../event0"),
            ("char/189:1", "bus/usb/001/002", "../bus/usb/001/002"),
            ("a/b", "a/c/d", "c/d"),
            ("a/x", "a", "../a"),
            ("ab/x", "a/x", "../a/x"),
        ] {
            assert_eq!(relative_target(link.as_bytes(), node.as_bytes()), target, "{link} {node}");
        }
    }

    #[test]
    fn number_links_come_and_go() {
        let tree = tree();
        let dir = open(&tree);
        let number = DevNum { major: 8, minor: 1 };
        for _ in 0..2 {
            dir.set_number_link(true, number, b"/dev/sd1").unwrap();
            assert_eq!(target(&tree, "dev/block/8:1").as_deref(), Some("../sd1"));
        }
        for _ in 0..2 {
            dir.remove_number_link(true, number).unwrap();
            assert_eq!(target(&tree, "dev/block/8:1"), None);
        }
    }

    #[test]
    fn a_restart_knows_all_claims_and_who_owned_the_symlink() {
        let tree = tree();
        let long = "x".repeat(250);
        {
            let mut dir = open(&tree);
            for minor in [0, 1, 2] {
                claim(&mut dir, minor, 0, "l");
            }
            claim(&mut dir, 3, -1, "l");
            claim(&mut dir, 4, 0, &long);
        }
        tree.file("run/udev/data/b8:4", format!("S:{long}\nV:1\n"));
        // The entries say that sd2 was last, the symlink says something else.
        std::fs::remove_file(tree.path("dev/l")).unwrap();
        tree.link("dev/l", "sd0");
        let mut dir = load(&tree);
        assert_eq!(dir.claims().owner(b"l").map(|claim| claim.id.clone()), Some(id(0)));
        assert_eq!(dir.claims().owner(long.as_bytes()).map(|claim| claim.id.clone()), Some(id(4)));
        assert_eq!((dir.claims().len(), dir.claims().ranked(b"l").count()), (2, 4));
        assert_eq!(release(&mut dir, 0, "l"), NONE);
        assert_eq!(target(&tree, "dev/l").as_deref(), Some("sd2"));
    }

    #[test]
    fn claims_of_older_writers_are_taken_over() {
        let tree = tree();
        let links = "run/udev/links";
        // eudev: a leading slash and an empty file; v249: no slash, an empty file.
        tree.file(&format!("{links}/\\x2fdisk\\x2fx/b8:1"), "").file(&format!("{links}/disk\\x2fx/b8:2"), "");
        tree.file("run/udev/data/b8:1", "S:disk/x\nL:4\nV:1\n").file("run/udev/data/b8:2", "S:disk/x\nV:1\n");
        tree.file(&format!("{links}/unknown/b8:3"), "").file(&format!("{links}/unknown/.lock"), "");
        tree.file(&format!("{links}/junk\\x41/b8:3"), "").dir(&format!("{links}/empty"));
        for minor in [1, 2] {
            let device = format!("sys/devices/virtual/block/sd{minor}");
            tree.file(&format!("{device}/uevent"), format!("MAJOR=8\nMINOR={minor}\nDEVNAME=sd{minor}\n"));
            tree.link(&format!("{device}/subsystem"), "../../../../class/block");
            tree.link(&format!("sys/dev/block/8:{minor}"), &format!("../../devices/virtual/block/sd{minor}"));
        }
        tree.dir("sys/class/block");
        let dir = load(&tree);
        let order: Vec<_> =
            dir.claims().ranked(b"disk/x").map(|claim| (claim.id.clone(), claim.priority)).collect();
        assert_eq!(order, [(id(1), 4), (id(2), 0)]);
        assert_eq!(target(&tree, &format!("{links}/disk\\x2fx/b8:1")).as_deref(), Some("4:/dev/sd1"));
        assert_eq!(target(&tree, &format!("{links}/disk\\x2fx/b8:2")).as_deref(), Some("0:/dev/sd2"));
        let left: Vec<_> =
            std::fs::read_dir(tree.path(links)).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["disk\\x2fx"]);
    }

    /// All entries of the claims on disk, `link/id>target`.
    fn entries(tree: &Tree) -> Vec<String> {
        let list = |path: &str| Dir::open(&tree.path(path)).unwrap().names().unwrap();
        let mut entries = Vec::new();
        for dir in list("run/udev/links") {
            for name in list(&format!("run/udev/links/{dir}")) {
                let entry = format!("run/udev/links/{dir}/{name}");
                entries.push(format!("{dir}/{name}>{}", target(tree, &entry).unwrap_or_default()));
            }
        }
        entries.sort();
        entries
    }

    #[test]
    fn claims_that_others_removed_are_back_after_the_next_event_of_each_device() {
        for removed in ["links", "links/l", "links/l/b8:1"] {
            let tree = tree();
            let mut dir = open(&tree);
            claim(&mut dir, 1, 0, "l");
            claim(&mut dir, 2, 5, "l");
            let before = entries(&tree);
            assert_eq!(before, ["l/b8:1>0:/dev/sd1", "l/b8:2>5:/dev/sd2"]);
            let path = tree.path("run/udev").join(removed);
            std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path)).unwrap();
            if removed == "links" {
                let errors = dir.apply(&id(1), b"/dev/sd1", 0, &[], &["l".into()]);
                assert!(errors.len() == 1 && errors[0].is_of_missing_folder(), "{errors:?}");
                dir.reopen(&open_udev_dir(&tree.roots().run).unwrap()).unwrap();
            }
            for (minor, priority) in [(1, 0), (2, 5)] {
                assert_eq!(claim(&mut dir, minor, priority, "l"), NONE, "{removed}");
            }
            assert_eq!(entries(&tree), before, "{removed}");
            assert_eq!(target(&tree, "dev/l").as_deref(), Some("sd2"));
        }
    }

    #[test]
    fn what_a_crash_left_is_swept_and_brought_in_line_with_the_records() {
        let tree = tree();
        let record = |links: &[&str], priority| Record {
            links: links.iter().copied().collect(),
            priority,
            ..Record::default()
        };
        {
            let mut dir = open(&tree);
            claim(&mut dir, 1, 0, "a/kept");
            // Its record was not written any more.
            claim(&mut dir, 1, 0, "a/new");
            claim(&mut dir, 2, 7, "a/kept");
            claim(&mut dir, 3, 0, "b/c/gone");
        }
        for left in ["dev/a/.#kept", "run/udev/links/a\\x2fkept/.#b8:1", "dev/.#x", "dev/block/.#8:1"] {
            tree.link(left, "half");
        }
        tree.file("run/udev/links/.#umask", "").dir("run/udev/links/empty");
        let mut dir = load(&tree);
        let claimed = dir.claims().by_device();
        dir.sweep_dev().unwrap();
        let node = |minor: u32| BString::from(super::tests::node(minor));
        let mut agree = |minor: u32, record: &Record, is_there: bool| {
            let node = node(minor);
            let devnode = is_there.then(|| node.as_bstr());
            let errors = dir.agree(&id(minor), record, &claimed[&id(minor)], devnode);
            assert!(errors.is_empty(), "{errors:?}");
        };
        agree(1, &record(&["a/kept", "a/lost"], 0), true);
        // The event that raised the priority did not come to its end.
        agree(2, &record(&["a/kept"], -1), true);
        agree(3, &Record::default(), false);
        assert_eq!(
            entries(&tree),
            ["a\\x2fkept/b8:1>0:/dev/sd1", "a\\x2fkept/b8:2>-1:/dev/sd2", "a\\x2flost/b8:1>0:/dev/sd1"]
        );
        assert_eq!(target(&tree, "dev/a/kept").as_deref(), Some("../sd1"));
        assert_eq!(target(&tree, "dev/a/lost").as_deref(), Some("../sd1"));
        assert!(!tree.path("dev/b").exists() && target(&tree, "dev/a/new").is_none());
        let mut left = Dir::open(&tree.path("dev/a")).unwrap().names().unwrap();
        left.sort();
        assert_eq!(left, ["kept", "lost"]);
        assert!(target(&tree, "dev/.#x").is_none() && target(&tree, "dev/block/.#8:1").is_none());
    }

    #[test]
    fn after_an_event_that_ended_half_way_nothing_of_it_is_kept() {
        let tree = tree();
        let mut dir = open(&tree);
        for link in ["a", "b/c"] {
            claim(&mut dir, 1, 0, link);
        }
        claim(&mut dir, 2, 0, "a");
        assert!(dir.keep_only(&id(1), b"/dev/sd1", &["a"].into_iter().collect()).is_empty());
        assert_eq!(entries(&tree), ["a/b8:1>0:/dev/sd1", "a/b8:2>0:/dev/sd2"]);
        assert!(dir.keep_only(&id(2), b"", &LinkSet::default()).is_empty());
        assert_eq!(target(&tree, "dev/a").as_deref(), Some("sd1"));
        assert!(!tree.path("dev/b").exists());
    }

    #[test]
    fn number_links_are_listed_and_other_names_are_not() {
        let tree = tree();
        tree.link("dev/block/8:1", "../sd1").link("dev/char/x", "../y").link("dev/char/1:3", "../null");
        let dir = open(&tree);
        assert_eq!(dir.number_links(), [id(1), DeviceId::Char(DevNum { major: 1, minor: 3 })]);
    }

    #[test]
    fn many_claims_of_one_symlink_end_with_the_last() {
        let tree = tree();
        let mut dir = open(&tree);
        for minor in 0..300 {
            let devnode = format!("/dev/n{minor}");
            assert!(dir.apply(&id(minor), devnode.as_bytes(), 0, &[], &["l".into()]).is_empty());
        }
        assert_eq!(target(&tree, "dev/l").as_deref(), Some("n299"));
        for minor in 0..300 {
            assert_eq!(release(&mut dir, minor, "l"), NONE);
        }
        assert!(target(&tree, "dev/l").is_none() && dir.claims().is_empty());
        assert_eq!(std::fs::read_dir(tree.path("run/udev/links")).unwrap().count(), 0);
    }
}
