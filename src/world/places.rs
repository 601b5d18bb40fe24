//! Whether the folders of `/run/udev` are where they were opened. Something else may be mounted over them, or their
//! file system detached: nothing that is written then fails, and nobody finds it.
//!
//! The kernel tells of changes of its list of mounts (proc(5), `mountinfo`), each time once however many there
//! were. Only then it is looked, so an event costs nothing.
//!
//! Must stay true: `/run/udev` is what clients find by its path.

use crate::world::Roots;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Those that are held open, or watched.
const FOLDERS: [&str; 5] = ["udev", "udev/data", "udev/links", "udev/tags", "udev/watch"];

/// Which folder it is: device and inode; None if there is none.
type Identity = Option<(u64, u64)>;

/// See the module.
#[derive(Debug)]
pub struct Places {
    run: PathBuf,
    /// The list of mounts, open for the loop; None where there is no /proc.
    mounts: Option<File>,
    held: [Identity; FOLDERS.len()],
}

impl Places {
    /// Opens the list of mounts.
    pub fn new(roots: &Roots) -> Places {
        let mounts = File::open(roots.proc.join("thread-self/mountinfo"));
        let mounts = mounts.inspect_err(|error| log::debug!("Cannot watch the list of mounts: {error}")).ok();
        Places { run: roots.run.clone(), mounts, held: [None; FOLDERS.len()] }
    }

    /// The list of mounts: it has urgent data (POLLPRI) when they change.
    pub fn mounts(&self) -> Option<BorrowedFd<'_>> {
        self.mounts.as_ref().map(AsFd::as_fd)
    }

    /// The folders that are there now are those that are used.
    pub fn note(&mut self) {
        self.held = self.look();
    }

    /// Whether all of them are still found by their paths.
    pub fn are_held(&self) -> bool {
        self.held == self.look()
    }

    fn look(&self) -> [Identity; FOLDERS.len()] {
        FOLDERS.map(|folder| {
            let metadata = std::fs::symlink_metadata(self.run.join(folder)).ok()?;
            Some((metadata.dev(), metadata.ino()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tree::Tree;

    #[test]
    fn a_folder_that_is_another_one_now_is_noticed() {
        let tree = Tree::new();
        tree.dir("run/udev/data").dir("run/udev/tags");
        let mut places = Places::new(&tree.roots());
        assert!(!places.are_held());
        for change in ["run/udev/data", "run/udev/tags", "run/udev"] {
            places.note();
            assert!(places.are_held());
            std::fs::rename(tree.path(change), tree.path("run/away")).unwrap();
            assert!(!places.are_held(), "{change} is gone");
            tree.dir(change);
            assert!(!places.are_held(), "{change} is another one");
            std::fs::remove_dir_all(tree.path("run/away")).unwrap();
        }
        places.note();
        tree.dir("run/udev/data");
        assert!(!places.are_held(), "there is one now");
    }
}
