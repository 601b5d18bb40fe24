//! `/run/udev/watch`: which node is watched under which inotify number (interop.md 1.7).
//!
//! Two symlinks per watch, `<id>` -> `<wd>` and `<wd>` -> `<id>`, so that the next daemon knows what to
//! watch. Only the files; inotify itself and the table in memory are the loop's. What must stay true:
//! both symlinks are there, or none.

use super::atomic;
use super::database::{file_name, missing_is_fine, open_or_make};
use super::places::Held;
use crate::model::DeviceId;
use crate::sys::fs::Dir;
use bstr::BString;
use std::io;

/// The folder.
#[derive(Debug)]
pub struct WatchDir {
    udev: Dir,
    watch: Dir,
}

impl WatchDir {
    /// Opens the folder, making it if need be; `udev` is `/run/udev`.
    pub fn open(udev: &Dir) -> io::Result<WatchDir> {
        Ok(WatchDir { watch: open_or_make(udev, b"watch")?, udev: udev.try_clone()? })
    }

    /// What is held open.
    pub fn folders(&self) -> [Held<'_>; 2] {
        [("udev", &self.udev), ("udev/watch", &self.watch)]
    }

    /// Notes that the node of `id` is watched as `wd`.
    pub fn add(&self, id: &DeviceId, wd: i32) -> io::Result<()> {
        let (id, number) = (file_name(id)?, watch_number(wd));
        self.put(&number, &id)?;
        let other = self.put(&id, &number);
        if other.is_err() {
            // The first error is the one to tell.
            let _ = self.watch.unlink(&number);
        }
        other
    }

    /// Most often there is nothing of this name yet.
    fn put(&self, target: &[u8], name: &[u8]) -> io::Result<()> {
        match self.watch.symlink(target, name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                atomic::replace_symlink(&self.watch, target, name)
            }
            result => result,
        }
    }

    /// Notes that the node of `id` is no longer watched as `wd`.
    pub fn remove(&self, id: &DeviceId, wd: i32) -> io::Result<()> {
        let by_id = missing_is_fine(self.watch.unlink(&file_name(id)?));
        missing_is_fine(self.watch.unlink(&watch_number(wd))).and(by_id)
    }

    /// Makes the folder say that these are watched, and nothing else.
    pub fn rewrite<'a>(&self, watched: impl Iterator<Item = (&'a DeviceId, i32)>) -> io::Result<()> {
        let mut names = std::collections::HashSet::new();
        for (id, wd) in watched {
            self.add(id, wd)?;
            names.extend([file_name(id)?, watch_number(wd)]);
        }
        for name in self.watch.names()?.iter().filter(|name| !names.contains(*name)) {
            missing_is_fine(self.watch.unlink(name))?;
        }
        Ok(())
    }

    /// The devices whose nodes an earlier daemon watched, in the order of its numbers; also those in `watch.old`,
    /// which our restart or that of another udev leaves when it is cut short. The files stay until
    /// [`WatchDir::rewrite`] and [`WatchDir::remove_old`]: this start may be cut short as well.
    pub fn read_old(&self) -> io::Result<Vec<DeviceId>> {
        let mut old = Vec::new();
        read_all(&self.watch, &mut old)?;
        if let Ok(older) = self.udev.open_dir(WATCH_OLD) {
            read_all(&older, &mut old)?;
        }
        old.sort_by_key(|(number, _)| *number);
        let mut ids: Vec<DeviceId> = Vec::with_capacity(old.len());
        let mut seen = std::collections::HashSet::new();
        ids.extend(old.into_iter().map(|(_, id)| id).filter(|id| seen.insert(id.clone())));
        Ok(ids)
    }

    /// Removes `watch.old`.
    pub fn remove_old(&self) -> io::Result<()> {
        let Ok(older) = self.udev.open_dir(WATCH_OLD) else { return Ok(()) };
        for name in older.names()? {
            missing_is_fine(older.unlink(&name))?;
        }
        self.udev.remove_dir(WATCH_OLD)
    }
}

/// Where other udevs put the folder while they start.
const WATCH_OLD: &[u8] = b"watch.old";

/// Reads every entry. The ids come from the numbered ones, which all writers make, and from the others, since one
/// of our numbers may have taken the place of an old one; those are read as the last.
fn read_all(dir: &Dir, found: &mut Vec<(i32, DeviceId)>) -> io::Result<()> {
    for name in dir.names()? {
        let number = std::str::from_utf8(&name).ok().and_then(|name| name.parse().ok());
        match number {
            Some(number) => {
                let target = dir.read_link(&name).ok().and_then(|target| DeviceId::parse(&target));
                found.extend(target.map(|id| (number, id)));
            }
            None => found.extend(DeviceId::parse(&name).map(|id| (i32::MAX, id))),
        }
    }
    Ok(())
}

fn watch_number(wd: i32) -> BString {
    wd.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::database::open_udev_dir;
    use crate::world::tree::Tree;

    fn id(text: &str) -> DeviceId {
        DeviceId::parse(text.as_bytes()).expect("an id")
    }

    fn open(tree: &Tree) -> WatchDir {
        tree.dir("run");
        WatchDir::open(&open_udev_dir(&tree.roots().run).expect("/run/udev")).expect("the folder")
    }

    /// `name>target` of all symlinks.
    fn shape(tree: &Tree) -> Vec<String> {
        let entries = std::fs::read_dir(tree.path("run/udev/watch")).unwrap().map(|entry| {
            let path = entry.unwrap().path();
            let target = std::fs::read_link(&path).unwrap();
            format!("{}>{}", path.file_name().unwrap().display(), target.display())
        });
        let mut entries: Vec<_> = entries.collect();
        entries.sort();
        entries
    }

    #[test]
    fn both_symlinks_come_and_go_together() {
        let tree = Tree::new();
        let watch = open(&tree);
        watch.add(&id("b8:0"), 1).unwrap();
        watch.add(&id("b8:1"), 2).unwrap();
        assert_eq!(shape(&tree), ["1>b8:0", "2>b8:1", "b8:0>1", "b8:1>2"]);
        watch.remove(&id("b8:0"), 1).unwrap();
        watch.remove(&id("b8:0"), 1).unwrap();
        assert_eq!(shape(&tree), ["2>b8:1", "b8:1>2"]);
        watch.add(&id("b8:1"), 2).unwrap();
        assert_eq!(shape(&tree), ["2>b8:1", "b8:1>2"]);
    }

    #[test]
    fn the_whole_folder_can_be_written_anew() {
        let tree = Tree::new();
        let watch = open(&tree);
        tree.link("run/udev/watch/7", "b8:9")
            .link("run/udev/watch/.#b8:0", "7")
            .link("run/udev/watch/b8:0", "7");
        let watched = [(id("b8:0"), 1), (id("b8:1"), 2)];
        for _ in 0..2 {
            watch.rewrite(watched.iter().map(|(id, wd)| (id, *wd))).unwrap();
            assert_eq!(shape(&tree), ["1>b8:0", "2>b8:1", "b8:0>1", "b8:1>2"]);
        }
    }

    #[test]
    fn a_restart_takes_what_all_writers_left() {
        let tree = Tree::new();
        tree.link("run/udev/watch/10", "b8:1")
            .link("run/udev/watch/2", "b8:0")
            .link("run/udev/watch/b8:0", "2");
        tree.link("run/udev/watch/3", "nonsense").file("run/udev/watch/4", "");
        tree.link("run/udev/watch.old/1", "b8:16").link("run/udev/watch.old/5", "b8:0");
        let watch = open(&tree);
        // Number 2 is taken by another already; the symlink by id is left of b8:32.
        tree.link("run/udev/watch/b8:32", "2");
        for _ in 0..2 {
            assert_eq!(watch.read_old().unwrap(), [id("b8:16"), id("b8:0"), id("b8:1"), id("b8:32")]);
        }
        watch.rewrite(std::iter::empty()).unwrap();
        for _ in 0..2 {
            watch.remove_old().unwrap();
            assert!(shape(&tree).is_empty() && !tree.path("run/udev/watch.old").exists());
        }
        assert!(watch.read_old().unwrap().is_empty());
    }
}
