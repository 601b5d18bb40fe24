//! The stores that tasks read and write. Most of them lie in `/run/udev`, and a folder of it that is gone is made anew.
//!
//! Must stay true: a write that finds its folder gone is done again in the new one and does not fail. The loop learns of
//! it once (`mended`).

use super::answers::Answers;
use super::disk_locks::DiskLocks;
use super::follow_ups::FollowUps;
use super::pending::Pending;
use super::turn::Turn;
use super::unfinished::Unfinished;
use crate::builtin::Builtins;
use crate::engine::JobId;
use crate::model::fnv::BuildFnv;
use crate::world::Roots;
use crate::world::claims_dir::ClaimsDir;
use crate::world::database::{self, Database};
use crate::world::watch_dir::WatchDir;
use crate::world::watches::{FolderChange, Watches};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

/// All that the requests of jobs are done with.
pub struct Stores {
    pub answers: Answers,
    pub database: Database,
    pub claims: ClaimsDir,
    pub watches: Watches,
    /// What was begun because nodes were written to: the queue counts as busy.
    pub follow_ups: FollowUps,
    /// Sends to listeners; None where nobody can listen, as when events come from a file.
    pub announcer: Option<OwnedFd>,
    /// Locks of disks held for jobs.
    pub locks: DiskLocks,
    /// Requests that wait, one for each job at most.
    pub pending: HashMap<JobId, Pending, BuildFnv>,
    /// What failed for want of room.
    pub unfinished: Unfinished,
    /// How long work goes on.
    pub turn: Turn,
    /// A folder in `/run/udev` was gone and was made anew, or could not be.
    pub mended: Option<io::Result<()>>,
}

impl Stores {
    /// The stores of a daemon at its start: opens `/run/udev` and takes over the claims there.
    pub fn open(
        roots: &Roots,
        builtins: Builtins,
        mut watches: Watches,
        announcer: Option<OwnedFd>,
    ) -> io::Result<Stores> {
        let udev = database::open_udev_dir(&roots.run)?;
        let database = Database::open(&udev)?;
        let answers = Answers::new(roots, builtins);
        let mut claims = ClaimsDir::open(&roots.dev, &udev)?;
        for error in claims.load(database.records(), &answers.attributes.sysfs)? {
            log::warn!("{error}");
        }
        watches.watch_folders();
        Ok(Stores {
            answers,
            database,
            claims,
            watches,
            follow_ups: FollowUps::default(),
            announcer,
            locks: DiskLocks::default(),
            pending: HashMap::default(),
            unfinished: Unfinished::default(),
            turn: Turn::default(),
            mended: None,
        })
    }

    /// Opens `/run/udev` again, making what is missing. Who claims which symlink is known further; of records and
    /// tags only what is there.
    fn reopen(&mut self) -> io::Result<()> {
        let roots = &self.answers.roots;
        let udev = database::open_udev_dir(&roots.run)?;
        self.database.reopen(&udev)?;
        self.claims.reopen(&udev)?;
        self.watches.set_dir(WatchDir::open(&udev)?);
        self.watches.watch_folders();
        Ok(())
    }

    /// Makes anew what was found gone. Whether that succeeded; the loop does the rest after its work.
    pub fn mend_folders(&mut self) -> bool {
        let mended = self.reopen();
        let is_mended = mended.is_ok();
        self.mended = Some(mended);
        is_mended
    }

    /// Writes something below `/run/udev`; once more if its folder was gone and could be made anew.
    pub fn write_store(&mut self, mut write: impl FnMut(&mut Stores) -> io::Result<()>) -> io::Result<()> {
        match write(self) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.mend_folders() => write(self),
            result => result,
        }
    }

    /// Takes in what was removed below `/run/udev`, by whomever.
    pub fn take_folder_changes(&mut self) {
        for change in self.watches.take_folder_changes() {
            match change {
                FolderChange::Moved => _ = self.mend_folders(),
                FolderChange::TagFolder(tag) => self.database.forget_tag_folder(tag.as_ref()),
                FolderChange::Tag { tag, id } => self.database.forget_tag(&tag, &id),
                FolderChange::Unknown => {
                    self.database.forget_tags();
                    self.mend_what_is_elsewhere();
                }
                FolderChange::Mounts => self.mend_what_is_elsewhere(),
            }
        }
    }

    fn mend_what_is_elsewhere(&mut self) {
        let held = self.database.folders().into_iter().chain([self.claims.folder()]);
        if !self.watches.are_folders_in_place(held) {
            self.mend_folders();
        }
    }

    /// Has the folders watched of tags that came up.
    pub fn watch_new_tags(&mut self) {
        for tag in self.database.take_new_tags() {
            if self.watches.watch_tag(&tag) {
                self.database.trust_tag(tag);
            }
        }
    }
}

#[cfg(test)]
impl Stores {
    /// Empty stores in a tree, or with what lies in it.
    pub fn in_tree(tree: &crate::world::tree::Tree) -> Stores {
        tree.dir("run").dir("dev").dir("sys");
        let roots = tree.roots();
        let watches = Watches::new(&roots, None).unwrap();
        let builtins = Builtins::load(&roots, b"", None).0;
        Stores::open(&roots, builtins, watches, None).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tree::Tree;

    #[test]
    fn a_folder_that_is_replaced_while_folders_are_opened_is_noticed() {
        let tree = Tree::new();
        let mut stores = Stores::in_tree(&tree);
        let data = tree.path("run/udev/data");
        std::fs::rename(&data, tree.path("run/away")).unwrap();
        tree.dir("run/udev/data");
        // The last step of opening, after the replacement.
        stores.watches.watch_folders();
        stores.watches.doubt_folders();
        stores.take_folder_changes();
        assert!(matches!(stores.mended.take(), Some(Ok(()))));
        stores.watches.doubt_folders();
        stores.take_folder_changes();
        assert!(stores.mended.is_none(), "what is in place stays");
    }
}
