//! What the text of a path below the root tells, without a look at the tree.

use bstr::{BString, ByteSlice};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Puts the pieces behind a root.
pub(super) fn join(root: &Path, pieces: &[&[u8]]) -> PathBuf {
    let root = root.as_os_str().as_bytes();
    let mut path = Vec::with_capacity(root.len() + pieces.iter().map(|p| p.len()).sum::<usize>() + 1);
    path.extend_from_slice(root);
    for piece in pieces {
        path.extend_from_slice(piece);
    }
    PathBuf::from(std::ffi::OsString::from_vec(path))
}

/// The directory a path lies in; None for a child of the root.
pub(super) fn dirname(path: &[u8]) -> Option<&[u8]> {
    path.rfind_byte(b'/').filter(|&i| i > 0).map(|i| &path[..i])
}

/// The directories above that may be devices, nearest first.
pub(super) fn ancestors(devpath: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(dirname(devpath), |at| dirname(at)).filter(|at| !is_glue(at))
}

pub(super) fn below_devices(devpath: &[u8]) -> bool {
    devpath == b"/devices" || devpath.starts_with(b"/devices/")
}

/// Directories that are known by their shape to be no devices, so that the kernel need not be asked:
/// `/devices` itself, `/devices/virtual`, the class directories below it that devices are created in
/// most (others may be the root device of a bus, `/devices/virtual/workqueue` is one), and the
/// `queues` of an interface.
pub(super) fn is_glue(devpath: &[u8]) -> bool {
    match devpath.strip_prefix(b"/devices") {
        Some(b"" | b"/virtual") => true,
        Some(b"/virtual/net" | b"/virtual/block" | b"/virtual/bdi" | b"/virtual/tty" | b"/virtual/mem") => {
            true
        }
        Some(b"/virtual/misc" | b"/virtual/vc" | b"/virtual/input") => true,
        Some(rest) => {
            let mut names = rest.rsplit(|&b| b == b'/');
            names.next() == Some(b"queues") && names.nth(1) == Some(b"net")
        }
        None => false,
    }
}

/// Subsystem of a directory without a `subsystem` symlink.
pub(super) fn implied_subsystem(devpath: &[u8]) -> Option<&'static str> {
    if devpath.starts_with(b"/module/") {
        Some("module")
    } else if devpath.contains_str("/drivers/") || devpath.ends_with(b"/drivers") {
        Some("drivers")
    } else if devpath.starts_with(b"/class/") || devpath.starts_with(b"/bus/") {
        Some("subsystem")
    } else {
        None
    }
}

/// One component of a path.
pub(super) fn is_file_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

/// The path a symlink at `path` (below the root) leads to, by its text alone. None for a target that
/// leaves the root.
pub(super) fn fold_symlink(path: &[u8], target: &[u8]) -> Option<BString> {
    if target.starts_with(b"/") {
        return None;
    }
    let mut folded = dirname(path).unwrap_or_default().to_owned();
    for name in target.split(|&b| b == b'/') {
        match name {
            b"" | b"." => {}
            b".." => folded.truncate(folded.rfind_byte(b'/')?),
            _ => {
                folded.push(b'/');
                folded.extend_from_slice(name);
            }
        }
    }
    (!folded.is_empty()).then(|| folded.into())
}
