//! Watched nodes: a process that closes one after writing may have changed the device (rules.md 11.4). And the
//! folders of `/run/udev`, which others may remove or rename, and the entries of the tag index.
//!
//! Must stay true: the table here, inotify and the symlinks of /run/udev/watch say the same; a node
//! that was written to while its event runs is not watched, so that our own rules do not trigger us.

use super::places::{Held, Places};
use crate::model::{DeviceId, Errno};
use crate::sys::inotify::Inotify;
use crate::world::watch_dir::WatchDir;
use crate::world::{Roots, database, nodes};
use bstr::{BStr, BString};
use std::collections::{HashMap, VecDeque};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

/// Reads of the inotify descriptor in one go.
const MAX_READS: usize = 16;

/// Nodes that are remembered because they could not be watched; others are watched after their next event.
const MAX_UNWATCHED: usize = 4096;

/// A folder of `/run/udev`.
#[derive(Debug)]
enum Folder {
    /// It must stay where it is.
    Own,
    /// The folders of tags are in it.
    Tags,
    Tag(BString),
}

/// A change of a folder of `/run/udev`.
#[derive(Debug, PartialEq, Eq)]
pub enum FolderChange {
    /// One was renamed.
    Moved,
    /// The folder of a tag was removed or renamed.
    TagFolder(BString),
    /// An entry was removed, by us or by others.
    Tag { tag: BString, id: BString },
    /// Anything.
    Unknown,
    /// Others may be in their places.
    Mounts,
}

/// See the module.
pub struct Watches {
    roots: Roots,
    inotify: Inotify,
    /// Where the next daemon finds what is watched; None where that cannot be written.
    dir: Option<WatchDir>,
    /// The folder does not say what is watched, for want of room.
    is_unnoted: bool,
    /// It is not there.
    is_missing: bool,
    by_number: HashMap<i32, DeviceId>,
    by_id: HashMap<DeviceId, i32>,
    /// Nodes that could not be watched, for want of room.
    unwatched: HashMap<DeviceId, BString>,
    folders: HashMap<i32, Folder>,
    places: Places,
    folder_changes: Vec<FolderChange>,
    written: VecDeque<DeviceId>,
    ready: bool,
}

impl Watches {
    /// Watches nothing yet.
    pub fn new(roots: &Roots, dir: Option<WatchDir>) -> io::Result<Watches> {
        let inotify = Inotify::new()?;
        Ok(Watches {
            roots: roots.clone(),
            inotify,
            is_unnoted: dir.is_none(),
            dir,
            is_missing: false,
            by_number: HashMap::new(),
            by_id: HashMap::new(),
            unwatched: HashMap::new(),
            folders: HashMap::new(),
            places: Places::new(roots),
            folder_changes: Vec::new(),
            written: VecDeque::new(),
            ready: false,
        })
    }

    /// Readable when [`Watches::read`] has something, which is to be told by [`Watches::set_ready`].
    pub fn inotify(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// Has urgent data when [`Watches::doubt_folders`] is to be told; None where there is no /proc.
    pub fn mounts(&self) -> Option<BorrowedFd<'_>> {
        self.places.mounts()
    }

    /// Notes here from now on what is watched.
    pub fn set_dir(&mut self, dir: WatchDir) {
        self.dir = Some(dir);
        self.note_all();
    }

    fn note_all(&mut self) {
        let watched = self.by_id.iter().map(|(id, number)| (id, *number));
        let Some(rewritten) = self.dir.as_ref().map(|dir| dir.rewrite(watched)) else { return };
        self.is_unnoted = false;
        self.is_noted(rewritten);
    }

    /// Whether something could not be noted or watched, for want of room.
    pub fn is_unfinished(&self) -> bool {
        self.is_unnoted || !self.unwatched.is_empty()
    }

    /// The devices whose nodes could not be watched.
    pub fn unwatched(&self) -> impl Iterator<Item = &DeviceId> {
        self.unwatched.keys()
    }

    /// Watches the node of a device that could not be watched, if it still is to be.
    pub fn finish(&mut self, id: &DeviceId) {
        let Some(devnode) = self.unwatched.remove(id) else { return };
        if let Err(error) = self.add_watch(id, devnode.as_ref()) {
            log::debug!("Cannot watch {devnode} yet: {error}");
        }
    }

    /// Notes what is watched, where that failed for want of room.
    pub fn finish_notes(&mut self) {
        if self.is_unnoted {
            if self.dir.is_none() {
                self.dir =
                    database::open_udev_dir(&self.roots.run).and_then(|udev| WatchDir::open(&udev)).ok();
            }
            self.note_all();
        }
    }

    /// Whether the folder where watches are noted was found gone since this was last asked.
    pub fn take_missing(&mut self) -> bool {
        std::mem::take(&mut self.is_missing)
    }

    /// Watches the folders of `/run/udev` that are there now.
    pub fn watch_folders(&mut self) {
        for (number, _) in self.folders.drain() {
            // The kernel has dropped it already if the folder is gone.
            let _ = self.inotify.unwatch(number);
        }
        let kinds = [
            ("udev", Folder::Own),
            ("udev/data", Folder::Own),
            ("udev/links", Folder::Own),
            ("udev/watch", Folder::Own),
            ("udev/tags", Folder::Tags),
        ];
        for (path, folder) in kinds {
            self.watch_folder(path.as_bytes(), folder);
        }
    }

    /// Watches the folder of a tag: every entry that is removed is told of. False if it cannot be.
    pub fn watch_tag(&mut self, tag: &BString) -> bool {
        self.watch_folder(&[b"udev/tags/", tag.as_slice()].concat(), Folder::Tag(tag.clone()))
    }

    fn watch_folder(&mut self, path: &[u8], folder: Folder) -> bool {
        let mask = match folder {
            Folder::Own => libc::IN_MOVE_SELF,
            Folder::Tags | Folder::Tag(_) => libc::IN_MOVE_SELF | libc::IN_DELETE | libc::IN_MOVED_FROM,
        };
        let path = self.roots.run.join(OsStr::from_bytes(path));
        let Ok(text) = CString::new(path.as_os_str().as_bytes()) else { return false };
        match self.inotify.watch(&text, mask | libc::IN_ONLYDIR | libc::IN_DONT_FOLLOW) {
            Ok(number) => {
                self.folders.insert(number, folder);
                true
            }
            Err(error) => {
                log::debug!("Cannot watch {}: {error}", path.display());
                false
            }
        }
    }

    /// Mounts have changed.
    pub fn doubt_folders(&mut self) {
        self.folder_changes.push(FolderChange::Mounts);
    }

    /// Whether these folders, and those where watches are noted, are found by their paths.
    pub fn are_folders_in_place<'a>(&'a self, others: impl IntoIterator<Item = Held<'a>>) -> bool {
        let own = self.dir.iter().flat_map(WatchDir::folders);
        own.chain(others).all(|held| self.places.is_found(held))
    }

    /// The changes of folders since the last call.
    pub fn take_folder_changes(&mut self) -> Vec<FolderChange> {
        std::mem::take(&mut self.folder_changes)
    }

    fn on_folder(&mut self, number: i32, mask: u32, name: &BStr) {
        let is_gone = mask & (libc::IN_IGNORED | libc::IN_MOVE_SELF | libc::IN_UNMOUNT) != 0;
        let change = match self.folders.get(&number) {
            Some(_) if mask & libc::IN_UNMOUNT != 0 => Some(FolderChange::Unknown),
            Some(Folder::Own | Folder::Tags) if mask & libc::IN_MOVE_SELF != 0 => Some(FolderChange::Moved),
            Some(Folder::Tag(tag)) if is_gone => Some(FolderChange::TagFolder(tag.clone())),
            Some(Folder::Tags) if !name.is_empty() => Some(FolderChange::TagFolder(name.to_owned())),
            Some(Folder::Tag(tag)) if !name.is_empty() => {
                Some(FolderChange::Tag { tag: tag.clone(), id: name.to_owned() })
            }
            _ => None,
        };
        if is_gone {
            self.folders.remove(&number);
            let _ = self.inotify.unwatch(number);
        }
        self.folder_changes.extend(change);
    }

    /// What an earlier daemon watched.
    pub fn read_old(&self) -> Vec<DeviceId> {
        let Some(dir) = &self.dir else { return Vec::new() };
        dir.read_old().unwrap_or_else(|error| {
            log::warn!("Cannot learn which nodes were watched: {error}");
            Vec::new()
        })
    }

    /// The files of an earlier daemon go: by now all nodes that are to be watched are watched.
    pub fn end_restoring(&mut self) {
        self.note_all();
        if let Some(Err(error)) = self.dir.as_ref().map(WatchDir::remove_old) {
            log::warn!("Cannot remove the notes of an earlier daemon: {error}");
        }
    }

    /// Watches the node of a device. If the node of another device stands in its place by now, that is not watched
    /// (ENODEV). A node has one watch: another device of the same node takes it over. A watch that fails for want of
    /// room is remembered.
    pub fn add_watch(&mut self, id: &DeviceId, devnode: &BStr) -> io::Result<()> {
        self.drop_watch(id);
        let watched = self.try_watch(id, devnode);
        let is_later = watched.as_ref().is_err_and(|error| Errno::of(error).is_shortage());
        if is_later && self.unwatched.len() < MAX_UNWATCHED {
            self.unwatched.insert(id.clone(), devnode.to_owned());
        }
        watched
    }

    fn try_watch(&mut self, id: &DeviceId, devnode: &BStr) -> io::Result<()> {
        let errno = |errno: Errno| io::Error::from_raw_os_error(errno.0);
        let node = nodes::open_watched(&self.roots, id, devnode).map_err(errno)?;
        let path = CString::new(nodes::descriptor_path(&node).into_os_string().into_encoded_bytes())?;
        let number = self.inotify.watch(&path, libc::IN_CLOSE_WRITE)?;
        if let Some(other) = self.by_number.insert(number, id.clone()) {
            self.by_id.remove(&other);
            self.note(|dir| dir.remove(&other, number));
        }
        self.by_id.insert(id.clone(), number);
        self.note(|dir| dir.add(id, number));
        Ok(())
    }

    /// Watches it no longer. Whether it was watched, or was to be when there is room.
    pub fn drop_watch(&mut self, id: &DeviceId) -> bool {
        let was_to_be = !self.unwatched.is_empty() && self.unwatched.remove(id).is_some();
        let Some(number) = self.by_id.remove(id) else { return was_to_be };
        self.by_number.remove(&number);
        // The kernel has dropped it already if the node is gone.
        let _ = self.inotify.unwatch(number);
        self.note(|dir| dir.remove(id, number));
        true
    }

    fn note(&mut self, write: impl FnOnce(&WatchDir) -> io::Result<()>) {
        if let Some(noted) = self.dir.as_ref().map(write) {
            self.is_noted(noted);
        }
    }

    fn is_noted(&mut self, noted: io::Result<()>) {
        match noted {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.is_missing = true,
            Err(error) => {
                self.is_unnoted |= Errno::of(&error).is_shortage();
                log::warn!("Cannot note which nodes are watched: {error}");
            }
        }
    }

    /// Number of watched nodes.
    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    /// The descriptor has become readable.
    pub fn set_ready(&mut self) {
        self.ready = true;
    }

    /// Whether it was not read to its end.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Reads what there is.
    pub fn read(&mut self) {
        if !std::mem::take(&mut self.ready) {
            return;
        }
        let mut buffer = [0; 4096];
        for _ in 0..MAX_READS {
            let (mut ignored, mut folders) = (Vec::new(), Vec::new());
            match self.inotify.read(&mut buffer) {
                Ok(notifications) => {
                    for one in notifications {
                        if one.mask & libc::IN_Q_OVERFLOW != 0 {
                            log::warn!("Too many nodes were written to at once: all count as written to");
                            self.written = self.by_id.keys().cloned().collect();
                            self.folder_changes.push(FolderChange::Unknown);
                        } else if self.folders.contains_key(&one.wd) {
                            folders.push((one.wd, one.mask, one.name.to_owned()));
                        } else if one.mask & libc::IN_IGNORED != 0 {
                            ignored.push(one.wd);
                        } else if let Some(id) = self.by_number.get(&one.wd)
                            && !self.written.contains(id)
                        {
                            self.written.push_back(id.clone());
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return log::error!("Cannot read which nodes were written to: {error}"),
            }
            for (number, mask, name) in folders {
                self.on_folder(number, mask, name.as_ref());
            }
            // The node is gone, and with it the watch of this number.
            for number in ignored {
                if let Some(id) = self.by_number.remove(&number) {
                    self.by_id.remove(&id);
                    self.note(|dir| dir.remove(&id, number));
                }
            }
        }
        self.ready = true;
    }

    /// The next device whose node was closed after writing.
    pub fn poll_written(&mut self) -> Option<DeviceId> {
        self.written.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fs::Dir;
    use crate::world::tree::Tree;

    /// A folder `dev` with nodes `a` of 1:5 and `b` of 1:3, and what watches them; None where nodes may not be
    /// made.
    fn setting() -> Option<(Tree, Watches)> {
        let tree = Tree::new();
        tree.dir("dev").dir("run/udev");
        let dev = Dir::open(&tree.path("dev")).unwrap();
        for (name, minor) in [(b"a", 5), (b"b", 3)] {
            if let Err(error) = dev.make_node(name, libc::S_IFCHR | 0o600, 1, minor) {
                eprintln!("skipped: no nodes can be made here: {error}");
                return None;
            }
        }
        let udev = Dir::open(&tree.path("run/udev")).unwrap();
        let watches = Watches::new(&tree.roots(), Some(WatchDir::open(&udev).unwrap())).unwrap();
        Some((tree, watches))
    }

    fn read(watches: &mut Watches) -> Vec<DeviceId> {
        watches.set_ready();
        watches.read();
        std::iter::from_fn(|| watches.poll_written()).collect()
    }

    fn write(tree: &Tree, name: &str) {
        drop(std::fs::File::options().write(true).open(tree.path(name)).unwrap());
    }

    #[test]
    fn a_watched_node_tells_once_and_the_symlinks_follow() {
        let Some((tree, mut watches)) = setting() else { return };
        let [a, b] = ["c1:5", "c1:3"].map(|id| DeviceId::parse(id.as_bytes()).unwrap());
        watches.add_watch(&a, "/dev/a".into()).unwrap();
        let number = std::fs::read_link(tree.path("run/udev/watch/c1:5")).unwrap();
        assert_eq!(
            std::fs::read_link(tree.path("run/udev/watch").join(number)).unwrap().to_str(),
            Some("c1:5")
        );
        assert!(read(&mut watches).is_empty());
        ["dev/a", "dev/a", "dev/b"].iter().for_each(|name| write(&tree, name));
        assert_eq!(read(&mut watches), std::slice::from_ref(&a));

        std::fs::remove_file(tree.path("dev/a")).unwrap();
        assert!(read(&mut watches).is_empty() && watches.count() == 0);
        assert!(!tree.path("run/udev/watch/c1:5").exists());
        watches.add_watch(&b, "/dev/b".into()).unwrap();
        assert!(watches.drop_watch(&b) && !watches.drop_watch(&b), "it says whether there was one");
        write(&tree, "dev/b");
        assert!(read(&mut watches).is_empty());
    }

    #[test]
    fn what_becomes_of_the_folders_is_told() {
        let tree = Tree::new();
        for folder in ["data", "links", "tags/a", "tags/b", "tags/c"] {
            tree.dir(&format!("run/udev/{folder}"));
        }
        for entry in ["a/n1", "b/n1"] {
            tree.file(&format!("run/udev/tags/{entry}"), "");
        }
        let open = || WatchDir::open(&Dir::open(&tree.path("run/udev")).unwrap()).unwrap();
        let mut watches = Watches::new(&tree.roots(), Some(open())).unwrap();
        watches.watch_folders();
        let tags = ["a", "b", "c", "none"].map(BString::from);
        assert_eq!(tags.each_ref().map(|tag| watches.watch_tag(tag)), [true, true, true, false]);
        let mut changes = || {
            assert!(read(&mut watches).is_empty());
            watches.take_folder_changes()
        };
        let path = |path: &str| tree.path("run/udev").join(path);
        let entry = |tag: &str| FolderChange::Tag { tag: tag.into(), id: "n1".into() };
        let folder = |tag: &str| FolderChange::TagFolder(tag.into());
        tree.file("run/udev/queue", "").file("run/udev/data/n1", "");
        std::fs::remove_file(path("queue")).unwrap();
        assert_eq!(changes(), []);
        std::fs::remove_file(path("tags/a/n1")).unwrap();
        assert_eq!(changes(), [entry("a")]);
        std::fs::rename(path("tags/b/n1"), path("tags/b2")).unwrap();
        assert_eq!(changes(), [entry("b")]);
        std::fs::remove_dir(path("tags/a")).unwrap();
        assert!(changes().contains(&folder("a")));
        std::fs::rename(path("tags/c"), path("c")).unwrap();
        assert!(changes().contains(&folder("c")));
        std::fs::rename(path("data"), path("data.old")).unwrap();
        assert_eq!(changes(), [FolderChange::Moved]);
        std::fs::rename(path(""), tree.path("run/old")).unwrap();
        assert_eq!(changes(), [FolderChange::Moved]);
        tree.dir("run/udev/data");
        watches.set_dir(open());
        watches.watch_folders();
        std::fs::rename(path("data"), path("data.old")).unwrap();
        assert!(read(&mut watches).is_empty());
        assert_eq!(watches.take_folder_changes(), [FolderChange::Moved]);
    }

    #[test]
    fn only_the_node_of_the_device_itself_is_watched() {
        let Some((tree, mut watches)) = setting() else { return };
        tree.link("dev/symlink", "a").file("dev/file", "");
        for (id, devnode) in [
            ("c1:5", "/dev/b"),
            ("b1:5", "/dev/a"),
            ("c1:5", "/dev/symlink"),
            ("c1:5", "/dev/file"),
            ("c1:5", "/dev/none"),
            ("n1", "/dev/a"),
        ] {
            let id = DeviceId::parse(id.as_bytes()).unwrap();
            let error = watches.add_watch(&id, devnode.into()).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{id} {devnode}");
            assert!(watches.count() == 0);
        }
        ["dev/a", "dev/b"].iter().for_each(|name| write(&tree, name));
        assert!(read(&mut watches).is_empty());
        assert_eq!(std::fs::read_dir(tree.path("run/udev/watch")).unwrap().count(), 0);
    }
}
