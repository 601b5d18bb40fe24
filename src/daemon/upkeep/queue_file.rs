//! `/run/udev/queue`: there while anything is queued or running, for `settle`.
//!
//! Must stay true: what could not be created or removed is tried again, since who looks believes it.

use crate::world::Roots;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

/// See the module.
#[derive(Debug)]
pub struct QueueFile {
    path: PathBuf,
    exists: bool,
    /// It could not be created or removed: said once.
    is_stuck: bool,
    /// Its folder was not there.
    has_failed: bool,
}

impl QueueFile {
    /// In `run/udev`; one that an earlier daemon left is removed.
    pub fn new(roots: &Roots) -> QueueFile {
        let path = roots.run.join("udev/queue");
        let _ = fs::remove_file(&path);
        QueueFile { path, exists: false, is_stuck: false, has_failed: false }
    }

    /// Creates or removes it.
    pub fn set(&mut self, busy: bool) {
        if busy == self.exists {
            return;
        }
        let done = if busy { File::create(&self.path).map(drop) } else { fs::remove_file(&self.path) };
        match done {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.has_failed |= busy,
            Err(error) => {
                if !std::mem::replace(&mut self.is_stuck, true) {
                    log::warn!("Cannot mark the queue as {}: {error}", if busy { "busy" } else { "idle" });
                }
                return;
            }
            Ok(()) => {}
        }
        (self.exists, self.is_stuck) = (busy, false);
    }

    /// Whether it could not be created or removed.
    pub(crate) fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// Whether its folder was not there since this was last asked.
    pub(crate) fn take_failure(&mut self) -> bool {
        std::mem::take(&mut self.has_failed)
    }

    /// Someone else has removed it.
    pub(crate) fn forget(&mut self) {
        self.exists = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tree::Tree;

    #[test]
    fn what_could_not_be_created_or_removed_is_tried_again() {
        let tree = Tree::new();
        tree.dir("run/udev/queue/in-the-way");
        let mut file = QueueFile::new(&tree.roots());
        file.set(true);
        let path = tree.path("run/udev/queue");
        fs::remove_dir_all(&path).unwrap();
        file.set(true);
        assert!(path.is_file() && !file.take_failure());

        fs::remove_file(&path).unwrap();
        tree.dir("run/udev/queue/in-the-way");
        file.set(false);
        fs::remove_dir_all(&path).unwrap();
        tree.file("run/udev/queue", "");
        file.set(false);
        assert!(!path.exists());

        fs::remove_dir(tree.path("run/udev")).unwrap();
        file.set(true);
        assert!(file.take_failure() && !file.take_failure(), "the folder has to be made anew");
    }
}
