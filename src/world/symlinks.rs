//! The one writer of symlinks below a folder: claims and number links in `/dev`, tags of static nodes in
//! `/run/udev/static_node-tags`.
//!
//! What must stay true: a symlink is there whole or not at all, and replaced at once; anything else than a symlink is
//! never replaced; no component of its name is followed when it is a symlink, so nothing is written outside the
//! folder. A crash can leave a temporary name ([`atomic`]) or an empty folder: [`sweep`] and [`remove`] take them
//! away.

use super::atomic;
use super::database::missing_is_fine;
use crate::sys::fs::Dir;
use bstr::{BString, ByteSlice};
use std::io;

const DIR_MODE: u32 = 0o755;

/// Why a symlink is not as it should be.
#[derive(Debug)]
pub enum SymlinkError {
    /// Something that is no symlink is there.
    Occupied,
    Io(io::Error),
}

impl From<io::Error> for SymlinkError {
    /// EINVAL of readlink says that it is no symlink.
    fn from(error: io::Error) -> SymlinkError {
        match error.raw_os_error() {
            Some(libc::EINVAL) => SymlinkError::Occupied,
            _ => SymlinkError::Io(error),
        }
    }
}

/// Where the symlink `root/path` leads.
pub fn target(root: &Dir, path: &[u8]) -> io::Result<BString> {
    let (folder, name) = split_last(path);
    open_folder(root, folder, None)?.as_ref().unwrap_or(root).read_link(name)
}

/// Makes `root/path` a symlink with this target, and the folders above it. `umask_spares_modes` as for [`atomic::ensure_dir`].
pub fn put(root: &Dir, path: &[u8], target: &[u8], umask_spares_modes: bool) -> Result<(), SymlinkError> {
    let (folder, name) = split_last(path);
    let opened = open_folder(root, folder, Some(umask_spares_modes)).map_err(SymlinkError::Io)?;
    let dir = opened.as_ref().unwrap_or(root);
    match dir.read_link(name) {
        Ok(present) if present == target => Ok(()),
        Ok(_) => atomic::replace_symlink(dir, target, name).map_err(SymlinkError::Io),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            dir.symlink(target, name).map_err(SymlinkError::Io)
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes the symlink `root/path`, if it is there, and the folders that are empty without it.
pub fn remove(root: &Dir, path: &[u8]) -> Result<(), SymlinkError> {
    let (folder, name) = split_last(path);
    match open_folder(root, folder, None) {
        // What a crash has left of the way there goes too.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(SymlinkError::Io(error)),
        Ok(opened) => {
            let dir = opened.as_ref().unwrap_or(root);
            match dir.read_link(name) {
                Ok(_) => missing_is_fine(dir.unlink(name)).map_err(SymlinkError::Io)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    remove_empty_folders(root, folder);
    Ok(())
}

/// Removes temporary names that a crash has left in this folder, but no symlink that a device has a claim on. A file
/// in place of the folder is not ours.
pub fn sweep(root: &Dir, folder: &[u8], is_wanted: impl Fn(&BString) -> bool) -> io::Result<()> {
    let opened = match open_folder(root, folder, None) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)) => {
            return Ok(());
        }
        result => result?,
    };
    let dir = opened.as_ref().unwrap_or(root);
    let names = dir.names()?;
    atomic::remove_all(
        dir,
        names.iter().filter(|name| atomic::is_temporary_symlink(name) && !is_wanted(name)),
    )
}

/// The folder of this name, made if wanted (then it is said what the umask does); None stands for `root` itself.
/// No component may be a symlink or lie on another file system, which might not answer.
fn open_folder(root: &Dir, folder: &[u8], make: Option<bool>) -> io::Result<Option<Dir>> {
    if folder.is_empty() {
        return Ok(None);
    }
    match open_below(root, folder) {
        Err(error) if make.is_some() && error.kind() == io::ErrorKind::NotFound => {}
        result => return result.map(Some),
    }
    let mut opened: Option<Dir> = None;
    for component in folder.split(|&b| b == b'/').filter(|component| !component.is_empty()) {
        let parent = opened.as_ref().unwrap_or(root);
        let next = match (open_below(parent, component), make) {
            (Err(error), Some(umask_spares_modes)) if error.kind() == io::ErrorKind::NotFound => {
                atomic::ensure_dir(parent, component, DIR_MODE, umask_spares_modes)?;
                open_below(parent, component)?
            }
            (result, _) => result?,
        };
        opened = Some(next);
    }
    Ok(opened)
}

/// As [`Dir::open_below`]; on kernels without it step by step, which may wait for another file system.
fn open_below(root: &Dir, folder: &[u8]) -> io::Result<Dir> {
    match root.open_below(folder) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {}
        result => return result,
    }
    let mut opened = root.try_clone()?;
    for component in folder.split(|&b| b == b'/').filter(|component| !component.is_empty()) {
        opened = opened.open_dir(component)?;
    }
    Ok(opened)
}

/// Removes folders from the last component upwards until one is in use.
fn remove_empty_folders(root: &Dir, mut folder: &[u8]) {
    while !folder.is_empty() {
        let (above, name) = split_last(folder);
        match open_folder(root, above, None) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return,
            Ok(opened) => {
                if missing_is_fine(opened.as_ref().unwrap_or(root).remove_dir(name)).is_err() {
                    return;
                }
            }
        }
        folder = above;
    }
}

/// `a/b/c` -> (`a/b`, `c`).
pub(super) fn split_last(path: &[u8]) -> (&[u8], &[u8]) {
    match path.rfind_byte(b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tree::Tree;

    fn root(tree: &Tree) -> Dir {
        tree.dir("dev").dir("outside");
        Dir::open(&tree.path("dev")).expect("to open it")
    }

    fn target(tree: &Tree, path: &str) -> Option<String> {
        Some(std::fs::read_link(tree.path(path)).ok()?.display().to_string())
    }

    #[test]
    fn a_symlink_is_made_bent_and_removed_with_its_folders() {
        let tree = Tree::new();
        let root = root(&tree);
        for to in ["../x", "../x", "../y"] {
            put(&root, b"a/b/l", to.as_bytes(), true).unwrap();
            assert_eq!(target(&tree, "dev/a/b/l").as_deref(), Some(to));
        }
        for _ in 0..2 {
            remove(&root, b"a/b/l").unwrap();
            assert!(!tree.path("dev/a").exists());
        }
    }

    #[test]
    fn what_is_no_symlink_stays() {
        let tree = Tree::new();
        let root = root(&tree);
        tree.file("dev/file", "precious").dir("dev/folder/in");
        for name in [&b"file"[..], b"folder"] {
            assert!(matches!(put(&root, name, b"t", true), Err(SymlinkError::Occupied)));
            assert!(matches!(remove(&root, name), Err(SymlinkError::Occupied)));
        }
        assert!(put(&root, b"file/l", b"t", true).is_err() && remove(&root, b"file/l").is_err());
        assert_eq!(tree.read("dev/file"), b"precious");
        assert!(tree.path("dev/folder/in").exists());
    }

    #[test]
    fn no_symlink_leads_out() {
        let tree = Tree::new();
        let root = root(&tree);
        tree.link("dev/way", "../outside").link("outside/l", "t");
        for text in [&b"other"[..], b"t"] {
            assert!(put(&root, b"way/l", text, true).is_err() && remove(&root, b"way/l").is_err());
        }
        assert!(super::target(&root, b"way/l").is_err());
        assert_eq!(target(&tree, "outside/l").as_deref(), Some("t"));
    }

    #[test]
    fn what_a_crash_left_is_swept_and_is_no_obstacle() {
        let tree = Tree::new();
        let root = root(&tree);
        tree.link("dev/a/l", "old").link("dev/a/.#mudev-l", "half").link("dev/a/.#l", "asked for");
        tree.file("dev/a/.hidden", "").dir("dev/a/.#mudev-folder");
        put(&root, b"a/l", b"new", true).unwrap();
        assert_eq!(target(&tree, "dev/a/l").as_deref(), Some("new"));
        tree.link("dev/a/.#mudev-l", "half").link("dev/.#mudev-m", "half").link("dev/a/.#mudev-w", "wanted");
        tree.file("dev/plain", "");
        for folder in [&b"a"[..], b"", b"none", b"plain"] {
            sweep(&root, folder, |name| name == ".#mudev-w").unwrap();
        }
        let mut left = Dir::open(&tree.path("dev/a")).unwrap().names().unwrap();
        left.sort();
        assert_eq!(left, [".#l", ".#mudev-folder", ".#mudev-w", ".hidden", "l"]);
        assert!(!tree.path("dev/.#mudev-m").is_symlink());
        // The folder was made, the symlink not yet.
        tree.dir("dev/b/c");
        remove(&root, b"b/c/d/l").unwrap();
        assert!(!tree.path("dev/b").exists());
    }
}
