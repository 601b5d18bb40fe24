//! Whether the folders of `/run/udev` are where they were opened. Something else may be mounted over them, or their
//! file system detached: nothing that is written then fails, and nobody finds it.
//!
//! The kernel tells of changes of its list of mounts (proc(5), `mountinfo`), each time once however many there
//! were. Only then it is looked, so an event costs nothing.
//!
//! Must stay true: `/run/udev` is what clients find by its path. What is compared with that is what is held open itself:
//! mounts may change between the opening and whatever is noted of it.

use crate::sys::fs::Dir;
use crate::world::Roots;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// A folder that is held open, with its path below `/run`.
pub type Held<'a> = (&'static str, &'a Dir);

/// See the module.
#[derive(Debug)]
pub struct Places {
    run: PathBuf,
    /// The list of mounts, open for the loop; None where there is no /proc.
    mounts: Option<File>,
}

impl Places {
    /// Opens the list of mounts.
    pub fn new(roots: &Roots) -> Places {
        let mounts = File::open(roots.proc.join("thread-self/mountinfo"));
        let mounts = mounts.inspect_err(|error| log::debug!("Cannot watch the list of mounts: {error}")).ok();
        Places { run: roots.run.clone(), mounts }
    }

    /// The list of mounts: it has urgent data (POLLPRI) when they change.
    pub fn mounts(&self) -> Option<BorrowedFd<'_>> {
        self.mounts.as_ref().map(AsFd::as_fd)
    }

    /// Whether this folder is what is found by its path.
    pub fn is_found(&self, (path, held): Held) -> bool {
        let Ok(found) = std::fs::symlink_metadata(self.run.join(path)) else { return false };
        let dev = (libc::major(found.dev()), libc::minor(found.dev()));
        held.stat(b".").is_ok_and(|held| (held.dev, held.inode) == (dev, found.ino()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tree::Tree;

    #[test]
    fn a_folder_that_is_another_one_now_is_noticed() {
        let tree = Tree::new();
        let places = Places::new(&tree.roots());
        for change in ["run/udev/data", "run/udev"] {
            tree.dir("run/udev/data");
            let data = Dir::open(&tree.path("run/udev/data")).unwrap();
            let is_found = || places.is_found(("udev/data", &data));
            assert!(is_found());
            std::fs::rename(tree.path(change), tree.path("run/away")).unwrap();
            assert!(!is_found(), "{change} is gone");
            tree.dir("run/udev/data");
            assert!(!is_found(), "{change} is another one");
            std::fs::remove_dir_all(tree.path("run/away")).unwrap();
            assert!(!is_found(), "the one that is held is nowhere");
        }
    }
}
