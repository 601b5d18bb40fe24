//! Devices and their attributes in sysfs, below a movable root.
//!
//! What must stay true: a *devpath* is a path without the root in front, free of symlinks, as the
//! kernel writes it into uevents. Nothing here trusts the tree: a device may vanish between any two
//! calls, and then it is simply not there.
//!
//! Sources: rules.md 3.4 and 3.8, builtins.md 0.3, interop.md 1.10.

mod devices;
mod paths;
mod properties;
mod read;

use super::{Roots, hardware};
use crate::model::Errno;
use crate::model::device::last_component;
use crate::model::operation::AttrPlace;
use crate::rules::ask::{Attr, ParentDevice};
use bstr::{BStr, BString, ByteSlice};
use paths::{ancestors, below_devices, dirname, implied_subsystem, join};
pub(super) use read::list;
use read::{read_link, read_plain, try_list};
use std::cell::{Cell, RefCell};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The device tree. Cheap to clone; holds no open file.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
    /// `root` with its own symlinks resolved: what resolved paths begin with.
    real_root: PathBuf,
    /// For callers that must not wait: the known values of attributes that ask the hardware.
    hardware: Option<RefCell<Hardware>>,
    /// See [`Sysfs::take_lack`].
    lacked: Cell<bool>,
}

/// See [`Sysfs::knowing`].
#[derive(Clone, Debug, Default)]
struct Hardware {
    /// Something is read for which hardware may be asked.
    is_asked: bool,
    known: Vec<(AttrPlace, Result<BString, Errno>)>,
    /// Where something is neither known nor wanted: nobody could read the last one.
    gave_up: bool,
    wanted: Option<AttrPlace>,
}

impl Sysfs {
    /// The tree below `roots.sys`.
    pub fn new(roots: &Roots) -> Sysfs {
        Sysfs::below(roots.sys.clone())
    }

    /// The tree at a place of its own.
    pub fn below(root: PathBuf) -> Sysfs {
        let real_root = std::fs::canonicalize(&root).unwrap_or_else(|_| root.clone());
        Sysfs { root, real_root, hardware: None, lacked: Cell::new(false) }
    }

    /// The same tree for callers that must not wait: [`Sysfs::knowing`] reads no attributes that ask the hardware.
    pub fn without_hardware(self) -> Sysfs {
        Sysfs { hardware: Some(RefCell::default()), ..self }
    }

    /// Reads whatever `read` reads. Attributes that ask the hardware have the values of `known`; the first
    /// one that is not among them is the error, and what was read without it is void. If somebody `gave_up` on
    /// one, those are missing.
    pub fn knowing<T>(
        &self,
        known: Vec<(AttrPlace, Result<BString, Errno>)>,
        gave_up: bool,
        read: impl FnOnce(&Sysfs) -> T,
    ) -> Result<T, AttrPlace> {
        if let Some(hardware) = &self.hardware {
            hardware.replace(Hardware { is_asked: true, known, gave_up, wanted: None });
        }
        let value = read(self);
        let wanted = self.hardware.as_ref().and_then(|hardware| hardware.take().wanted);
        wanted.map_or(Ok(value), Err)
    }

    /// Whether reading an attribute of a device asks the hardware ([`hardware::asks`]). A name may lead to
    /// another device.
    pub fn asks_hardware(&self, devpath: &[u8], subsystem: &[u8], name: &[u8]) -> bool {
        let Some((folder, last)) = name.rsplit_once_str("/") else { return hardware::asks(subsystem, name) };
        if hardware::GROUPS.iter().any(|group| folder == group.as_bytes()) {
            return hardware::asks(subsystem, name);
        }
        match self.link_name(devpath, &[folder, b"/subsystem"].concat()) {
            Some(owner) => hardware::asks(&owner, last),
            None => hardware::asks(subsystem, name),
        }
    }

    /// The known value of an attribute that asks the hardware, for callers that must not wait; None if the attribute
    /// can be read.
    fn known_of_hardware(&self, devpath: &[u8], name: &[u8]) -> Option<Result<BString, Errno>> {
        let hardware = self.hardware.as_ref().filter(|hardware| hardware.borrow().is_asked)?;
        // Builtins read these most: attributes of interfaces, and `uevent`, which is in memory but for batteries.
        let is_interface = dirname(devpath).is_some_and(|folder| folder.ends_with(b"/net"));
        if is_interface || name == b"uevent" && !devpath.contains_str("/power_supply/") {
            return None;
        }
        let subsystem = self.subsystem(devpath).unwrap_or_default();
        if !self.asks_hardware(devpath, &subsystem, name) || !self.exists(devpath, name) {
            return None;
        }
        let mut hardware = hardware.borrow_mut();
        let place = AttrPlace { devpath: devpath.into(), name: name.into() };
        if let Some((_, value)) = hardware.known.iter().find(|(known, _)| *known == place) {
            return Some(value.clone());
        }
        if !hardware.gave_up {
            hardware.wanted.get_or_insert(place);
        }
        Some(Err(Errno(libc::EAGAIN)))
    }

    /// Whether, since the last call, something was taken for missing that could not be looked at for want of
    /// descriptors or memory.
    pub fn take_lack(&self) -> bool {
        self.lacked.take()
    }

    fn note(&self, errno: Errno) {
        if errno.is_lack() {
            self.lacked.set(true);
        }
    }

    /// Where the tree lies.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where a devpath (or any path below the root that begins with `/`) lies in the file system.
    pub fn path(&self, devpath: &[u8]) -> PathBuf {
        join(&self.root, &[devpath])
    }

    /// Where an entry of a device lies in the file system.
    pub fn path_of(&self, devpath: &[u8], name: &[u8]) -> PathBuf {
        join(&self.root, &[devpath, b"/", name])
    }

    /// Whether there is anything of this name in the device's directory (symlinks are followed).
    pub fn exists(&self, devpath: &[u8], name: &[u8]) -> bool {
        std::fs::metadata(self.path_of(devpath, name)).is_ok()
    }

    /// The attribute as rules see it: trailing CR, LF and NUL are gone; everything that is not a
    /// readable value is missing.
    pub fn attr(&self, devpath: &[u8], name: &[u8]) -> Attr {
        match self.read_attr(devpath, name) {
            Ok(value) => Attr::Value(value),
            Err(_) => Attr::Missing,
        }
    }

    /// The attribute, None if it is missing: for builtins.
    pub fn value(&self, devpath: &[u8], name: &[u8]) -> Option<BString> {
        self.read_attr(devpath, name).ok()
    }

    /// Reads an attribute (builtins.md 0.3): whole content without trailing CR, LF and NUL. The
    /// symlinks `driver`, `subsystem` and `module` give the last component of their target. EINVAL
    /// for any other symlink, EISDIR for a folder, EPERM for a file that its owner may not read, EFBIG beyond 256
    /// KiB.
    pub fn read_attr(&self, devpath: &[u8], name: &[u8]) -> Result<BString, Errno> {
        if matches!(name, b"driver" | b"subsystem" | b"module")
            && let Some(target) = self.link_name(devpath, name)
        {
            return Ok(target);
        }
        if let Some(known) = self.known_of_hardware(devpath, name) {
            return known;
        }
        let path = self.path_of(devpath, name);
        // Inside sysfs any file may be opened without harm. A name with `..` may lead to a device
        // node, and opening some of those does something: look first.
        if name.contains_str("..") && !std::fs::symlink_metadata(&path).is_ok_and(|m| m.is_file()) {
            return Err(Errno(libc::EINVAL));
        }
        let mut value = read_plain(&path).inspect_err(|errno| self.note(*errno))?;
        let end = value.iter().rposition(|b| !matches!(b, b'\n' | b'\r' | 0)).map_or(0, |i| i + 1);
        value.truncate(end);
        Ok(value)
    }

    /// Whether an entry of a device (at a devpath free of symlinks) lies in sysfs for certain: a name with
    /// `..` may lead anywhere.
    pub fn is_inside(devpath: &[u8], name: &[u8]) -> bool {
        let mut names = name.split(|&b| b == b'/').filter(|part| !matches!(*part, b"" | b".")).peekable();
        let up = std::iter::from_fn(|| names.next_if_eq(&&b".."[..])).count();
        up < devpath.split(|&b| b == b'/').filter(|part| !part.is_empty()).count()
            && names.all(|part| part != b"..")
    }

    /// Target of a symlink in the device's directory, as it is written there.
    pub fn read_link(&self, devpath: &[u8], name: &[u8]) -> Option<BString> {
        read_link(&self.path_of(devpath, name))
    }

    /// Last component of the target of a symlink.
    pub fn link_name(&self, devpath: &[u8], name: &[u8]) -> Option<BString> {
        self.read_link(devpath, name).map(|t| last_component(&t).to_owned()).filter(|t| !t.is_empty())
    }

    /// Devpath of the directory that `name` in the device's directory is or leads to; with an empty `name`, that of
    /// `devpath`, which may itself contain symlinks then. None if nothing is there or if it lies outside the root.
    pub fn real_path(&self, devpath: &[u8], name: &[u8]) -> Option<BString> {
        let path = if name.is_empty() { self.path(devpath) } else { self.path_of(devpath, name) };
        let real = BString::from(std::fs::canonicalize(path).ok()?.into_os_string().into_vec());
        self.below_root(&real)
    }

    /// The part of a resolved path behind the root; None for the root itself and for paths outside.
    fn below_root(&self, real: &[u8]) -> Option<BString> {
        let rest = real.strip_prefix(self.real_root.as_os_str().as_bytes())?;
        (rest.len() > 1 && rest[0] == b'/').then(|| rest.into())
    }

    /// Whether a resolved path lies in the tree.
    pub fn contains(&self, real: &Path) -> bool {
        real.starts_with(&self.real_root)
    }

    /// Names in a directory of the device (the device's own if `subdir` is empty) in the order of the
    /// directory, without those that begin with a dot. Empty if it is not there.
    pub fn list(&self, devpath: &[u8], subdir: &[u8]) -> Vec<BString> {
        let names = try_list(&self.path_of(devpath, subdir));
        names.inspect_err(|error| self.note(Errno::of(error))).unwrap_or_default()
    }

    /// Whether this directory is a device: below `/devices` it must have a `uevent` file, elsewhere
    /// any directory is accepted.
    pub fn is_device(&self, devpath: &[u8]) -> bool {
        if below_devices(devpath) {
            self.exists(devpath, b"uevent")
        } else {
            devpath.len() > 1 && std::fs::metadata(self.path(devpath)).is_ok_and(|m| m.is_dir())
        }
    }

    /// Devpath of the nearest ancestor that is a device.
    pub fn parent(&self, devpath: &[u8]) -> Option<BString> {
        ancestors(devpath).find(|at| self.subsystem_of_device(at).is_some()).map(BString::from)
    }

    /// All ancestors that are devices, nearest first.
    pub fn parents(&self, devpath: &[u8]) -> Vec<ParentDevice> {
        self.parents_knowing(devpath, |_| None)
    }

    /// The same; a device for which `known` has an answer is not looked up.
    pub fn parents_knowing(
        &self,
        devpath: &[u8],
        known: impl Fn(&BStr) -> Option<ParentDevice>,
    ) -> Vec<ParentDevice> {
        ancestors(devpath).filter_map(|at| known(at.as_bstr()).or_else(|| self.parent_at(at))).collect()
    }

    /// The device at this devpath, if there is one.
    fn parent_at(&self, devpath: &[u8]) -> Option<ParentDevice> {
        let subsystem = self.subsystem_of_device(devpath)?;
        Some(ParentDevice {
            devpath: devpath.into(),
            sysname: crate::model::device::sysname(devpath),
            subsystem: subsystem
                .or_else(|| implied_subsystem(devpath).map(BString::from))
                .unwrap_or_default(),
            driver: self.driver(devpath).unwrap_or_default(),
        })
    }

    /// Whether a subsystem is a bus. Only devices of a bus have drivers.
    pub fn is_bus(&self, subsystem: &[u8]) -> bool {
        self.exists(b"/bus", subsystem)
    }

    /// Whether the device is there and this attribute is not.
    pub fn lacks(&self, devpath: &[u8], name: &[u8]) -> bool {
        std::fs::symlink_metadata(self.path_of(devpath, name))
            .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
            && self.path(devpath).is_dir()
    }

    /// The name in the `subsystem` symlink, which some devices lack; None if this is no device.
    ///
    /// That symlink is looked for first: only a device has one, and a walk needs it anyway.
    fn subsystem_of_device(&self, devpath: &[u8]) -> Option<Option<BString>> {
        let subsystem = self.link_name(devpath, b"subsystem");
        (subsystem.is_some() || self.is_device(devpath)).then_some(subsystem)
    }

    /// Subsystem of a device, computed for what has no `subsystem` symlink (interop.md 1.10).
    pub fn subsystem(&self, devpath: &[u8]) -> Option<BString> {
        self.link_name(devpath, b"subsystem").or_else(|| implied_subsystem(devpath).map(BString::from))
    }

    /// Name of the bound driver.
    pub fn driver(&self, devpath: &[u8]) -> Option<BString> {
        self.link_name(devpath, b"driver")
    }
}

/// The path of a device as people and programs know it, `/sys/...`, wherever the tree in use lies.
pub fn syspath(devpath: &[u8]) -> BString {
    [b"/sys", devpath].concat().into()
}

/// Whether a path is one that [`syspath`] makes.
pub fn is_syspath(path: &[u8]) -> bool {
    path.starts_with(b"/sys/")
}

#[cfg(test)]
mod tests;
