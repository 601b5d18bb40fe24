//! Whether the folders of `/run/udev` are where they were opened. Something else may be mounted over them, or their
//! file system detached: nothing that is written then fails, and nobody finds it.
//!
//! The kernel tells of changes of its list of mounts (proc(5), `mountinfo`), each time once however many there
//! were. Only then it is looked, so an event costs nothing.
//!
//! Must stay true: `/run/udev` is what clients find by its path.

use super::source::{Source, Sources};
use crate::world::Roots;
use std::fs::File;
use std::os::fd::AsFd;
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
    /// The list of mounts, kept open for the loop; None where there is no /proc.
    _mounts: Option<File>,
    held: [Identity; FOLDERS.len()],
}

impl Places {
    /// Has the loop told when mounts change.
    pub fn new(roots: &Roots, sources: &Sources) -> Places {
        let mounts = File::open(roots.proc.join("thread-self/mountinfo")).and_then(|file| {
            sources.add_urgent(file.as_fd(), Source::Mounts)?;
            Ok(file)
        });
        let mounts = mounts.inspect_err(|error| log::debug!("Cannot watch the list of mounts: {error}")).ok();
        Places { run: roots.run.clone(), _mounts: mounts, held: [None; FOLDERS.len()] }
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
        let poll = mio::Poll::new().unwrap();
        let mut places = Places::new(&tree.roots(), &Sources::new(&poll).unwrap());
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
