//! Reads files, folders and symlinks of sysfs: in as few system calls as it takes, and whole or not at all.

use crate::model::Errno;
use bstr::BString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// A text attribute fits into one page (Documentation/filesystems/sysfs.rst).
pub(super) const PAGE: usize = 4096;

/// Longer attributes (binary ones: firmware, PCI resources) are of no use to rules and are refused.
pub(super) const ATTRIBUTE_MAX: usize = 1 << 18;

pub(super) fn read_link(path: &Path) -> Option<BString> {
    std::fs::read_link(path).ok().map(|target| target.into_os_string().into_vec().into())
}

/// Names in a directory, those that begin with a dot left out.
pub(in crate::world) fn list(path: &Path) -> Vec<BString> {
    try_list(path).unwrap_or_default()
}

pub(super) fn try_list(path: &Path) -> io::Result<Vec<BString>> {
    let names = std::fs::read_dir(path)?
        .filter_map(|entry| Some(BString::from(entry.ok()?.file_name().into_vec())))
        .filter(|name| !name.starts_with(b"."));
    Ok(names.collect())
}

/// Reads a regular file that is not a symlink and that its owner may read.
pub(super) fn read_plain(path: &Path) -> Result<BString, Errno> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) => {
            return Err(match Errno::of(&error) {
                Errno(libc::ELOOP) => Errno(libc::EINVAL),
                Errno(libc::EACCES) => Errno(libc::EPERM),
                other => other,
            });
        }
    };
    let meta = file.metadata().map_err(|e| Errno::of(&e))?;
    if meta.is_dir() {
        return Err(Errno(libc::EISDIR));
    }
    if !meta.is_file() {
        return Err(Errno(libc::EINVAL));
    }
    if meta.mode() & libc::S_IRUSR == 0 {
        return Err(Errno(libc::EPERM));
    }
    read_to_end(&mut file)
}

/// Reads to the end or to the limit. A text attribute comes whole in one read: what is shorter than
/// a page and ends a line needs no second one to learn that nothing follows.
fn read_to_end(file: &mut File) -> Result<BString, Errno> {
    let mut page = [0; PAGE];
    let mut value = Vec::new();
    loop {
        match file.read(&mut page) {
            Ok(0) => break,
            Ok(n) => {
                if value.len() + n > ATTRIBUTE_MAX {
                    return Err(Errno(libc::EFBIG));
                }
                value.extend_from_slice(&page[..n]);
                if n < PAGE && page[n - 1] == b'\n' && value.len() == n {
                    break;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Errno::of(&error)),
        }
    }
    Ok(value.into())
}
