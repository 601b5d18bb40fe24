//! Device nodes: owner, mode and labels, static nodes, and the lock and the re-reading of disks around an event.
//!
//! What must stay true: a node is changed only while the descriptor in hand is that of the device
//! meant, by type and number, so that a node which was replaced meanwhile keeps what it has; and no
//! moment in between gives more access than both the old and the new state. Nothing here waits, except the functions
//! that open a disk, which are for helpers: [`reread_partitions`], [`set_read_only`], and, for some disks,
//! [`lock_disk`].
//!
//! Sources: rules.md 8.10, 11.1, 11.3, 12.3 and 12.5.

use super::database::{open_or_make, open_udev_dir, tag_entry};
use super::symlinks::{self, SymlinkError};
use super::{Roots, Sysfs, atomic};
use crate::model::effect::NodeChange;
use crate::model::{DevNum, DeviceId, Errno};
use crate::rules::program::StaticNode;
use crate::sys::fs::{self, Dir, Lock, Stat, stat_file, try_lock};
use crate::sys::{ioctl, node};
use bstr::{BStr, BString};
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Which static node has which tag (interop.md 1.8).
const STATIC_NODE_TAGS: &[u8] = b"static_node-tags";

/// Applies owner, mode and labels where they differ, and updates the node's times. A node that is not
/// there, or is another device's, is left alone: its own event is on the way.
pub fn apply_node(roots: &Roots, change: &NodeChange) -> Result<(), Errno> {
    let path = roots.locate(&change.devnode);
    let Some((file, stat)) = open_node_of(&path, change.block, change.devnum)? else { return Ok(()) };
    let wanted = Permissions { owner: change.owner, group: change.group, mode: change.mode };
    let differs = wanted.differ_from(&stat);
    if differs {
        wanted.apply(&file, &stat).map_err(|e| Errno::of(&e))?;
    }
    if differs || change.is_add {
        set_labels(&file, change.devnode.as_ref(), &change.seclabels);
    }
    if let Err(error) = node::touch(&descriptor_path(&file)) {
        log::debug!("cannot update the times of {}: {error}", path.display());
    }
    Ok(())
}

/// Opens a node without touching its driver; None if it is not there or no node.
fn open_node(path: &Path) -> Result<Option<(File, Stat)>, Errno> {
    let opened = File::options().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) => {
            return match Errno::of(&error) {
                Errno(libc::ENOENT | libc::ENOTDIR | libc::ELOOP) => Ok(None),
                other => Err(other),
            };
        }
    };
    let stat = stat_file(&file).map_err(|e| Errno::of(&e))?;
    Ok((stat.is_block_device() || stat.is_char_device()).then_some((file, stat)))
}

/// The same, of this device: None also if the node is another's by now.
fn open_node_of(path: &Path, block: bool, devnum: DevNum) -> Result<Option<(File, Stat)>, Errno> {
    let node = open_node(path)?;
    if node.as_ref().is_some_and(|(_, stat)| !is_device(stat, block, devnum)) {
        log::debug!("{} is not {devnum}, left alone", path.display());
        return Ok(None);
    }
    Ok(node)
}

/// Opens the node of a device without touching its driver, to watch it. ENODEV if it is not there, or is
/// another's by now, or if such a device has none.
pub fn open_watched(roots: &Roots, id: &DeviceId, devnode: &[u8]) -> Result<File, Errno> {
    let (block, devnum) = match id {
        DeviceId::Block(devnum) => (true, *devnum),
        DeviceId::Char(devnum) => (false, *devnum),
        DeviceId::Net(_) | DeviceId::Named { .. } => return Err(Errno(libc::ENODEV)),
    };
    let node = open_node_of(&roots.locate(devnode), block, devnum)?;
    node.map(|(file, _)| file).ok_or(Errno(libc::ENODEV))
}

/// A path that leads to the file of this descriptor, and to nothing else.
pub fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn is_device(stat: &Stat, block: bool, devnum: DevNum) -> bool {
    stat.is_block_device() == block && stat.rdev == (devnum.major, devnum.minor)
}

/// What a node shall have; None leaves it as it is.
#[derive(Clone, Copy, Debug)]
struct Permissions {
    owner: Option<u32>,
    group: Option<u32>,
    mode: Option<u32>,
}

impl Permissions {
    /// Setuid and sticky bits do not count.
    fn differ_from(&self, stat: &Stat) -> bool {
        self.owner.is_some_and(|owner| owner != stat.uid)
            || self.group.is_some_and(|group| group != stat.gid)
            || self.mode.is_some_and(|mode| (mode ^ stat.mode) & 0o777 != 0)
    }

    fn apply(&self, file: &File, stat: &Stat) -> io::Result<()> {
        for step in self.steps(stat) {
            match step {
                Step::Mode(mode) => {
                    std::fs::set_permissions(descriptor_path(file), std::fs::Permissions::from_mode(mode))?;
                }
                Step::Owner(owner, group) => node::change_owner(file.as_fd(), owner, group)?,
            }
        }
        Ok(())
    }

    /// The calls that lead from the present state to the wanted one.
    fn steps(&self, stat: &Stat) -> Vec<Step> {
        let old = stat.permissions();
        let new = self.mode.map_or(old, |mode| mode & 0o7777);
        let moves = self.owner.is_some_and(|o| o != stat.uid) || self.group.is_some_and(|g| g != stat.gid);
        if !moves {
            return if new == old { Vec::new() } else { vec![Step::Mode(new)] };
        }
        let narrow = old & new & 0o777;
        let mut steps = Vec::with_capacity(3);
        if narrow != old & 0o777 {
            steps.push(Step::Mode(narrow));
        }
        steps.push(Step::Owner(self.owner, self.group));
        // chown clears the setuid and setgid bits.
        if narrow != new || old & 0o7000 != 0 {
            steps.push(Step::Mode(new));
        }
        steps
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Mode(u32),
    Owner(Option<u32>, Option<u32>),
}

/// Sets the labels that rules ask for. Nodes without one keep the label that the kernel's policy gave
/// them when devtmpfs created them. Failures are logged: a label is not worth an event.
fn set_labels(file: &File, devnode: &BStr, labels: &[(BString, BString)]) {
    for (module, label) in labels {
        let result = match module.as_slice() {
            // The kernel's own tools store the NUL with it.
            b"selinux" => set_label(file, c"security.selinux", &[label.as_slice(), b"\0"].concat()),
            b"smack" => set_label(file, c"security.SMACK64", label),
            _ => {
                log::error!("{devnode}: no security module {module:?} known, label {label:?} not set");
                continue;
            }
        };
        if let Err(error) = result {
            log::error!("{devnode}: cannot set {module} label {label:?}: {error}");
        }
    }
}

fn set_label(file: &File, attribute: &CStr, value: &[u8]) -> io::Result<()> {
    node::set_attribute(&descriptor_path(file), attribute, value)
}

/// Applies a static node of the rules (rules.md 8.10): owner, mode and tags of a node that exists
/// although its device may not. A node that is not there is left alone, and so is a file that is no node.
pub fn apply_static_node(roots: &Roots, wanted: &StaticNode) -> Result<(), Errno> {
    if wanted.name.split(|&b| b == b'/').any(|part| matches!(part, b"" | b"." | b"..")) {
        return Err(Errno(libc::EINVAL));
    }
    let path = roots.dev.join(OsStr::from_bytes(&wanted.name));
    let Some((file, stat)) = open_node(&path)? else { return Ok(()) };
    let mode = wanted.mode.or_else(|| wanted.group.filter(|&group| group > 0).map(|_| 0o660));
    let permissions = Permissions { owner: wanted.owner, group: wanted.group, mode };
    if permissions.differ_from(&stat) {
        permissions.apply(&file, &stat).map_err(|e| Errno::of(&e))?;
    }
    tag_static_node(roots, wanted)
}

/// `static_node-tags/<tag>/<name>` -> `/dev/<name>`. A tag that is none would lead elsewhere: it is left out, and the
/// first error is returned.
fn tag_static_node(roots: &Roots, wanted: &StaticNode) -> Result<(), Errno> {
    if wanted.tags.is_empty() {
        return Ok(());
    }
    let folder = open_udev_dir(&roots.run).and_then(|udev| open_or_make(&udev, STATIC_NODE_TAGS));
    let folder = folder.map_err(|e| Errno::of(&e))?;
    let umask_spares_modes = atomic::umask_spares_modes(&folder);
    let target = [b"/dev/", wanted.name.as_slice()].concat();
    let mut result = Ok(());
    for tag in &wanted.tags {
        let tagged =
            tag_entry(tag, &escape_node_name(&wanted.name)).map_err(|e| Errno::of(&e)).and_then(|entry| {
                symlinks::put(&folder, &entry, &target, umask_spares_modes).map_err(|error| match error {
                    SymlinkError::Occupied => Errno(libc::EEXIST),
                    SymlinkError::Io(error) => Errno::of(&error),
                })
            });
        result = result.and(tagged);
    }
    result
}

/// Removes what a crash has left of tagging static nodes.
pub fn sweep_static_node_tags(roots: &Roots) -> io::Result<()> {
    let folder = match Dir::open(&roots.run.join("udev").join(OsStr::from_bytes(STATIC_NODE_TAGS))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        folder => folder?,
    };
    for tag in folder.names()? {
        symlinks::sweep(&folder, &tag, |_| false)?;
    }
    atomic::sweep(&folder)
}

/// `/`, `.`, `\` and what is not printable as `\xHH`, so that a path becomes the name of a file.
fn escape_node_name(name: &[u8]) -> BString {
    let mut escaped = BString::default();
    for &byte in name {
        if matches!(byte, b'/' | b'.' | b'\\') || !(byte == b' ' || byte.is_ascii_graphic()) {
            escaped.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
        } else {
            escaped.push(byte);
        }
    }
    escaped
}

/// A disk that is open and locked: until this is dropped, wherever it was passed to.
#[derive(Debug)]
pub struct HeldLock(OwnedFd);

impl HeldLock {
    /// An open file that came from another process.
    pub fn passed(file: OwnedFd) -> HeldLock {
        HeldLock(file)
    }

    /// Gives the lock up; the disk stays open.
    pub fn unlock(&self) {
        if let Err(error) = fs::unlock(&self.0) {
            log::debug!("cannot unlock a disk, it is closed in a moment: {error}");
        }
    }
}

impl From<HeldLock> for OwnedFd {
    fn from(lock: HeldLock) -> OwnedFd {
        lock.0
    }
}

/// How taking the lock of a disk went, with the lock.
#[derive(Debug)]
pub enum DiskLock {
    /// It is ours until this is dropped.
    Held(HeldLock),
    /// Someone else has it exclusively: try again later.
    Busy,
    /// The disk is gone or has no medium; the event goes on without.
    NotNeeded,
}

/// Tries to take the shared lock of a disk (rules.md 12.3); [`whole_disk`] says of which. An error fails the
/// event. Opening some disks waits for them.
pub fn lock_disk(path: &Path) -> Result<DiskLock, Errno> {
    let file = match open_disk(path) {
        Ok(file) => file,
        Err(Errno(libc::ENODEV | libc::ENXIO | libc::ENOENT)) => return Ok(DiskLock::NotNeeded),
        // Too many are held at this moment: there will be room.
        Err(Errno(libc::EMFILE | libc::ENFILE)) => return Ok(DiskLock::Busy),
        Err(error) => return Err(error),
    };
    match try_lock(&file, Lock::Shared) {
        Ok(true) => Ok(DiskLock::Held(HeldLock(file.into()))),
        Ok(false) => Ok(DiskLock::Busy),
        Err(error) => Err(Errno::of(&error)),
    }
}

/// Node of the disk that a block device is a partition of, or its own.
pub fn whole_disk(sysfs: &Sysfs, devpath: &[u8], devnode: &[u8]) -> BString {
    let parent = sysfs.exists(devpath, b"partition").then(|| sysfs.parent(devpath)).flatten();
    let disk = parent.and_then(|disk| sysfs.uevent_properties(&disk).get("DEVNAME").map(BStr::to_owned));
    disk.unwrap_or_else(|| devnode.into())
}

/// Opens a disk for an ioctl or a lock: without waiting for a medium, and no symlink.
fn open_disk(path: &Path) -> Result<File, Errno> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOCTTY;
    File::options().read(true).custom_flags(flags).open(path).map_err(|e| Errno::of(&e))
}

/// BLKROSET 1 on the block device at this path; ENODEV if the node is another's by now. Waits for the disk:
/// only in a helper.
pub fn set_read_only(path: &Path, devnum: DevNum) -> Result<(), Errno> {
    // Look before opening: the open itself may do something to a device that is not the one meant.
    if open_node_of(path, true, devnum)?.is_none() {
        return Err(Errno(libc::ENODEV));
    }
    let file = open_disk(path)?;
    let stat = stat_file(&file).map_err(|e| Errno::of(&e))?;
    if !is_device(&stat, true, devnum) {
        return Err(Errno(libc::ENODEV));
    }
    ioctl::set_read_only(file.as_fd(), true).map_err(|e| Errno::of(&e))
}

/// Has the kernel read the partition table of the whole disk at this path again, under an exclusive lock so that no
/// partitioning tool is disturbed: EAGAIN if one has it. Waits for the disk: only in a helper.
pub fn reread_partitions(path: &Path) -> Result<(), Errno> {
    let file = open_disk(path)?;
    if !stat_file(&file).map_err(|e| Errno::of(&e))?.is_block_device() {
        return Err(Errno(libc::ENOTBLK));
    }
    match try_lock(&file, Lock::Exclusive) {
        Ok(true) => ioctl::reread_partitions(file.as_fd()).map_err(|e| Errno::of(&e)),
        Ok(false) => Err(Errno(libc::EAGAIN)),
        Err(error) => Err(Errno::of(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;
    use std::os::unix::fs::MetadataExt;

    /// A node of the zero device in a tree; None where nodes may not be made.
    fn zero(tree: &Tree) -> Option<()> {
        tree.dir("dev");
        let dir = Dir::open(&tree.path("dev")).unwrap();
        if let Err(error) = dir.make_node(b"zero", libc::S_IFCHR | 0o600, 1, 5) {
            eprintln!("skipped: no nodes can be made here: {error}");
            return None;
        }
        dir.chmod(b"zero", 0o600).unwrap();
        Some(())
    }

    fn change() -> NodeChange {
        NodeChange {
            devnode: "/dev/zero".into(),
            block: false,
            devnum: DevNum { major: 1, minor: 5 },
            owner: None,
            group: None,
            mode: None,
            seclabels: Vec::new(),
            is_add: true,
        }
    }

    fn state(tree: &Tree) -> (u32, u32, u32) {
        let meta = std::fs::metadata(tree.path("dev/zero")).unwrap();
        (meta.uid(), meta.gid(), meta.mode() & 0o7777)
    }

    #[test]
    fn owner_and_mode_are_applied_to_the_right_node_only() {
        let tree = Tree::new();
        let Some(()) = zero(&tree) else { return };
        let roots = tree.roots();
        let wanted = NodeChange { owner: Some(7), group: Some(8), mode: Some(0o4640), ..change() };
        for other in [
            NodeChange { devnum: DevNum { major: 1, minor: 3 }, ..wanted.clone() },
            NodeChange { block: true, ..wanted.clone() },
            NodeChange { devnode: "/dev/none".into(), ..wanted.clone() },
            NodeChange { devnode: "/dev/zero/x".into(), ..wanted.clone() },
        ] {
            assert_eq!(apply_node(&roots, &other), Ok(()));
            assert_eq!(state(&tree), (0, 0, 0o600), "{other:?}");
        }
        assert_eq!(apply_node(&roots, &wanted), Ok(()));
        assert_eq!(state(&tree), (7, 8, 0o4640));
        assert_eq!(apply_node(&roots, &NodeChange { group: Some(9), ..change() }), Ok(()));
        assert_eq!(state(&tree), (7, 9, 0o4640), "chown keeps the setuid bit");
    }

    #[test]
    fn a_symlink_in_place_of_a_node_is_not_followed() {
        let tree = Tree::new();
        let Some(()) = zero(&tree) else { return };
        tree.link("dev/alias", "zero");
        let wanted = NodeChange { devnode: "/dev/alias".into(), mode: Some(0o666), ..change() };
        assert_eq!(apply_node(&tree.roots(), &wanted), Ok(()));
        assert_eq!(state(&tree), (0, 0, 0o600));
    }

    #[test]
    fn the_times_are_updated_even_if_nothing_changes() {
        let tree = Tree::new();
        let Some(()) = zero(&tree) else { return };
        let node = File::options().read(true).open(tree.path("dev")).unwrap();
        drop(node);
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1000);
        let times = std::fs::FileTimes::new().set_modified(long_ago);
        File::open(tree.path("dev/zero")).unwrap().set_times(times).unwrap();
        assert_eq!(apply_node(&tree.roots(), &NodeChange { is_add: false, ..change() }), Ok(()));
        assert!(std::fs::metadata(tree.path("dev/zero")).unwrap().mtime() > 1000);
    }

    #[test]
    fn no_step_gives_more_than_both_states() {
        let stat = |mode: u32| Stat {
            mode: libc::S_IFCHR | mode,
            uid: 0,
            gid: 5,
            rdev: (1, 5),
            dev: (0, 1),
            inode: 1,
            size: 0,
            mtime_nsec: 0,
        };
        let wanted = |owner, group, mode| Permissions { owner, group, mode };
        use Step::{Mode, Owner};
        for (wanted, old, expected) in [
            (wanted(None, None, Some(0o660)), 0o600, vec![Mode(0o660)]),
            (wanted(Some(0), Some(5), Some(0o600)), 0o600, vec![]),
            (wanted(None, Some(6), Some(0o660)), 0o600, vec![Owner(None, Some(6)), Mode(0o660)]),
            (wanted(None, Some(6), Some(0o606)), 0o660, vec![Mode(0o600), Owner(None, Some(6)), Mode(0o606)]),
            (wanted(Some(1), None, None), 0o660, vec![Owner(Some(1), None)]),
            (wanted(Some(1), None, None), 0o4660, vec![Owner(Some(1), None), Mode(0o4660)]),
            (wanted(Some(1), None, Some(0o4600)), 0o600, vec![Owner(Some(1), None), Mode(0o4600)]),
        ] {
            assert_eq!(wanted.steps(&stat(old)), expected, "{wanted:?} from {old:o}");
        }
        assert!(!wanted(None, None, Some(0o4600)).differ_from(&stat(0o600)));
    }

    #[test]
    fn labels_of_no_known_module_do_not_fail_the_event() {
        let tree = Tree::new();
        let Some(()) = zero(&tree) else { return };
        let seclabels = vec![("smack".into(), "x".into()), ("apparmor".into(), "y".into())];
        assert_eq!(apply_node(&tree.roots(), &NodeChange { seclabels, ..change() }), Ok(()));
    }

    #[test]
    fn static_nodes_get_permissions_and_tags_if_they_are_nodes() {
        let tree = Tree::new();
        let Some(()) = zero(&tree) else { return };
        tree.dir("run").file("dev/plain", "").mode("dev/plain", 0o600);
        let wanted = |name: &str| StaticNode {
            name: name.into(),
            owner: None,
            group: Some(9),
            mode: None,
            tags: vec!["uaccess".into()],
        };
        for name in ["zero", "plain", "none", "zero"] {
            assert_eq!(apply_static_node(&tree.roots(), &wanted(name)), Ok(()), "{name}");
        }
        assert_eq!(apply_static_node(&tree.roots(), &wanted("../x")), Err(Errno(libc::EINVAL)));
        assert_eq!(state(&tree), (0, 9, 0o660));
        assert_eq!(std::fs::metadata(tree.path("dev/plain")).unwrap().mode() & 0o777, 0o600);
        let tags = tree.path("run/udev/static_node-tags/uaccess");
        let link = std::fs::read_link(tags.join("zero")).unwrap();
        assert_eq!((link.as_path(), std::fs::read_dir(tags).unwrap().count()), (Path::new("/dev/zero"), 1));
        assert_eq!(escape_node_name(b"snd/ti.mer\\\xff"), "snd\\x2fti\\x2emer\\x5c\\xff");
    }

    #[test]
    fn no_tag_of_a_static_node_leads_elsewhere_and_the_good_ones_are_written() {
        let tree = Tree::new();
        let Some(()) = zero(&tree) else { return };
        tree.dir("run/udev").dir("t");
        let tags = ["../../../t/escape", "..", "", ".", "a/b", "a:b", "/abs", "good"].map(BString::from);
        let wanted =
            StaticNode { name: "zero".into(), owner: None, group: None, mode: None, tags: tags.to_vec() };
        assert_eq!(apply_static_node(&tree.roots(), &wanted), Err(Errno(libc::EINVAL)));
        let names = |path: &str| Dir::open(&tree.path(path)).unwrap().names().unwrap();
        assert_eq!(names("run/udev/static_node-tags"), ["good"]);
        assert_eq!((names("run/udev"), names("t").len()), (vec!["static_node-tags".into()], 0));
        // What is no symlink of ours stays, and so does what a symlink leads to.
        tree.file("run/udev/static_node-tags/taken/zero", "")
            .link("run/udev/static_node-tags/out", "../../../t");
        let wanted = StaticNode { tags: vec!["taken".into(), "out".into(), "last".into()], ..wanted };
        assert_eq!(apply_static_node(&tree.roots(), &wanted), Err(Errno(libc::EEXIST)));
        assert!(tree.path("run/udev/static_node-tags/taken/zero").is_file() && names("t").is_empty());
        assert_eq!(names("run/udev/static_node-tags/last"), ["zero"]);
        tree.link("run/udev/static_node-tags/last/.#mudev-zero", "/dev/zero");
        sweep_static_node_tags(&tree.roots()).unwrap();
        assert_eq!(names("run/udev/static_node-tags/last"), ["zero"]);
    }

    #[test]
    fn a_partition_is_locked_by_its_disk() {
        let tree = Tree::new();
        let disk = "sys/devices/d/block/sda";
        tree.file("sys/devices/d/uevent", "")
            .file(&format!("{disk}/uevent"), "DEVNAME=sda\n")
            .file(&format!("{disk}/sda1/uevent"), "DEVNAME=sda1\n")
            .file(&format!("{disk}/sda1/partition"), "1\n")
            .file("dev/sda", "")
            .link("dev/link", "sda");
        let (roots, sysfs) = (tree.roots(), Sysfs::new(&tree.roots()));
        let lock = |name: &str| {
            let devpath = format!("/devices/d/block/{name}");
            let devnode = format!("/dev/{name}");
            lock_disk(&roots.locate(&whole_disk(&sysfs, devpath.as_bytes(), devnode.as_bytes())))
        };
        assert!(matches!(lock("sda/sda1"), Ok(DiskLock::Held(_))));
        let both = (lock("sda/sda1"), lock("sda"));
        assert!(matches!(both, (Ok(DiskLock::Held(_)), Ok(DiskLock::Held(_)))));
        drop(both);
        let other = File::open(tree.path("dev/sda")).unwrap();
        assert!(try_lock(&other, Lock::Exclusive).unwrap());
        assert!(matches!(lock("sda/sda1"), Ok(DiskLock::Busy)));
        drop(other);
        assert!(matches!(lock("sda"), Ok(DiskLock::Held(_))));
        assert!(matches!(lock("gone"), Ok(DiskLock::NotNeeded)));
        assert_eq!(lock("link").unwrap_err(), Errno(libc::ELOOP));
    }

    #[test]
    fn what_is_no_disk_is_neither_made_read_only_nor_read_again() {
        let tree = Tree::new();
        let Some(()) = zero(&tree) else { return };
        let devnum = DevNum { major: 1, minor: 5 };
        assert_eq!(set_read_only(&tree.path("dev/zero"), devnum), Err(Errno(libc::ENODEV)));
        assert_eq!(reread_partitions(&tree.path("dev/zero")), Err(Errno(libc::ENOTBLK)));
        assert_eq!(reread_partitions(&tree.path("dev/none")), Err(Errno(libc::ENOENT)));
    }
}
