//! Reads the claims that an earlier run of any udev left in `/run/udev/links` (interop.md 1.6).

use super::super::database::{Records, missing_is_fine};
use super::super::{Sysfs, atomic, symlinks};
use super::ClaimsDir;
use super::error::{ClaimError, ClaimErrorKind};
use super::names::{node_name, plain_name, relative_target};
use crate::model::DeviceId;
use crate::model::hash::{escape_symlink, unescape_symlink};
use crate::sys::fs::Dir;
use bstr::{BStr, BString, ByteSlice};
use std::io;

impl ClaimsDir {
    /// Fills the table from the claims that an earlier run of any udev left. Entries of an older form
    /// are written anew, empty claim directories removed. Symlinks in `/dev` are left as they are: of
    /// equal claims the one that owns its symlink now keeps it.
    ///
    /// Returns what could not be read; such a claim comes back with the next event of its device.
    pub fn load(&mut self, records: &Records, sysfs: &Sysfs) -> io::Result<Vec<ClaimError>> {
        let mut errors = Vec::new();
        let mut found = Vec::new();
        let names = self.folder.names()?;
        if let Err(error) = atomic::sweep_names(&self.folder, &names) {
            log::warn!("Cannot remove what is left of writing claims: {error}");
        }
        // A rule may have asked for a name that begins like those that are no folders.
        let is_file = |name: &BString| atomic::is_temporary(name) && self.folder.open_dir(name).is_err();
        for dir in names.into_iter().filter(|name| !is_file(name)) {
            if let Err(error) = self.load_dir(&dir, records, sysfs, &mut found) {
                let symlink = unescape_symlink(&dir).unwrap_or(dir);
                errors.push(ClaimError { symlink, kind: ClaimErrorKind::Claim(error) });
            }
        }
        // Among equal claims a later one ranks higher.
        found.sort_by_key(|old| old.mtime_nsec);
        for old in &found {
            self.claims.claim(&old.symlink, &old.id, old.priority, &old.devnode);
        }
        for old in found.iter().filter(|old| !old.is_current_form) {
            if let Err(error) = self.write_entry(&old.symlink, &old.id, true) {
                errors.push(ClaimError { symlink: old.symlink.clone(), kind: ClaimErrorKind::Claim(error) });
            }
        }
        self.keep_owners(&found);
        Ok(errors)
    }

    /// Claims once more for each device that owns a symlink in `/dev` now: so it is the last of its
    /// equals.
    fn keep_owners(&mut self, found: &[OldClaim]) {
        let mut symlinks: Vec<&BString> = found.iter().map(|old| &old.symlink).collect();
        symlinks.sort();
        symlinks.dedup();
        for symlink in symlinks {
            if self.claims.ranked(symlink).nth(1).is_none() {
                continue;
            }
            let Ok(present) = symlinks::target(&self.dev, symlink) else { continue };
            let owns =
                |devnode: &[u8]| node_name(devnode).is_ok_and(|n| relative_target(symlink, n) == present);
            let owner = self.claims.ranked(symlink).find(|claim| owns(&claim.devnode)).cloned();
            if let Some(owner) = owner {
                self.claims.claim(symlink, &owner.id, owner.priority, &owner.devnode);
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
        let opened = self.folder.open_dir(dir)?;
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
                    if escape_symlink(&claim.symlink) == *dir {
                        is_empty = false;
                    } else {
                        opened.unlink(&name)?;
                    }
                    found.push(claim);
                }
                // Neither the device nor the symlink of such a claim can be told.
                None => missing_is_fine(opened.unlink(&name))?,
            }
        }
        if is_empty { self.remove_claim_dir(dir) } else { Ok(()) }
    }
}

/// A claim as an earlier run left it.
struct OldClaim {
    symlink: BString,
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
    let symlink = unescape_symlink(dir);
    let is_current_form =
        noted.is_some() && symlink.as_ref().is_none_or(|symlink| escape_symlink(symlink) == *dir);
    let record = if noted.is_some() && symlink.is_some() { None } else { records.read(&id)? };
    // A name that was cut is found among the symlinks of the device.
    let symlink = symlink.or_else(|| {
        let with_slash = |symlink: &BStr| escape_symlink(&[b"/", &**symlink].concat());
        let mut symlinks = record.as_ref()?.symlinks.iter();
        symlinks
            .find(|symlink| escape_symlink(symlink) == *dir || with_slash(symlink) == *dir)
            .map(BStr::to_owned)
    });
    let claim = noted.or_else(|| {
        let devpath = sysfs.device_of_id(&id)?;
        let devnode = sysfs.properties(&devpath).get("DEVNAME")?.to_owned();
        Some((record.as_ref()?.priority, devnode))
    });
    let (Some(symlink), Some((priority, devnode))) = (symlink, claim) else { return Ok(None) };
    if plain_name(&symlink).is_err() || node_name(&devnode).is_err() {
        return Ok(None);
    }
    Ok(Some(OldClaim { symlink, id, priority, devnode, mtime_nsec, is_current_form }))
}
