//! Devices and their attributes in sysfs, below a movable root.
//!
//! What must stay true: a *devpath* is a path without the root in front, free of symlinks, as the
//! kernel writes it into uevents. Nothing here trusts the tree: a device may vanish between any two
//! calls, and then it is simply not there.
//!
//! Sources: rules.md 3.4 and 3.8, builtins.md 0.3, interop.md 1.10.

use super::{Roots, hardware};
use crate::model::device::last_component;
use crate::model::operation::AttrPlace;
use crate::model::uevent::{absolute_devname, valid_property};
use crate::model::{DevNum, Device, DeviceId, Errno, Properties};
use crate::rules::ask::{Attr, ParentDevice};
use bstr::{BStr, BString, ByteSlice};
use std::cell::{Cell, RefCell};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A text attribute fits into one page (Documentation/filesystems/sysfs.rst).
const PAGE: usize = 4096;
/// Longer attributes (binary ones: firmware, PCI resources) are of no use to rules and are refused.
const ATTRIBUTE_MAX: usize = 1 << 18;

/// The device tree. Cheap to clone; holds no open file.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
    /// `root` with its own symlinks resolved: what resolved paths begin with.
    real_root: PathBuf,
    /// For who must not wait: what is known of attributes that ask the hardware.
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

    /// The same tree for who must not wait: [`Sysfs::knowing`] reads no attributes that ask the hardware.
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

    /// What is known of an attribute for who must not wait; None if it can be read.
    fn known_of_hardware(&self, devpath: &[u8], name: &[u8]) -> Option<Result<BString, Errno>> {
        let hardware = self.hardware.as_ref().filter(|hardware| hardware.borrow().is_asked)?;
        // What is read most, by builtins: interfaces, and `uevent`, which but for batteries is in memory.
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
    /// for any other symlink, EISDIR, EPERM for what the owner may not read, EFBIG beyond 256 KiB.
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

    /// Devpath of what `name` in the device's directory leads to: a symlink's target or the directory
    /// itself; with an empty `name`, of `devpath`, which may itself contain symlinks then. None if
    /// nothing is there or if it lies outside the root.
    pub fn real_path(&self, devpath: &[u8], name: &[u8]) -> Option<BString> {
        let path = if name.is_empty() { self.path(devpath) } else { self.path_of(devpath, name) };
        let real = BString::from(std::fs::canonicalize(path).ok()?.into_os_string().into_vec());
        self.below_root(&real)
    }

    /// What stands behind the root in a resolved path; None for the root itself and what is outside.
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

    /// The same; what `known` says of a devpath need not be looked up.
    pub fn parents_knowing(
        &self,
        devpath: &[u8],
        known: impl Fn(&BStr) -> Option<ParentDevice>,
    ) -> Vec<ParentDevice> {
        ancestors(devpath).filter_map(|at| known(at.as_bstr()).or_else(|| self.parent_at(at))).collect()
    }

    /// What is at this devpath, if that is a device.
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

    /// DEVTYPE of the `uevent` file.
    pub fn devtype(&self, devpath: &[u8]) -> Option<BString> {
        self.uevent_properties(devpath).get("DEVTYPE").map(BStr::to_owned)
    }

    /// What the `uevent` file says; empty without one. DEVNAME is absolute; what no record could
    /// hold is left out.
    pub fn uevent_properties(&self, devpath: &[u8]) -> Properties {
        let text = self.read_attr(devpath, b"uevent").unwrap_or_default();
        parse_uevent_file(&text)
    }

    /// The properties a client sees before any record is read: DEVPATH, the `uevent` file, SUBSYSTEM
    /// and DRIVER.
    pub fn properties(&self, devpath: &[u8]) -> Properties {
        self.properties_with(devpath, self.subsystem(devpath), || self.driver(devpath))
    }

    /// The same of a parent, of which the last two are known.
    pub fn properties_of_parent(&self, parent: &ParentDevice) -> Properties {
        let known = |text: &BString| Some(text.clone()).filter(|text| !text.is_empty());
        self.properties_with(&parent.devpath, known(&parent.subsystem), || known(&parent.driver))
    }

    fn properties_with(
        &self,
        devpath: &[u8],
        subsystem: Option<BString>,
        driver: impl FnOnce() -> Option<BString>,
    ) -> Properties {
        let mut properties = Properties::new();
        properties.set("DEVPATH", devpath);
        for property in self.uevent_properties(devpath).iter() {
            properties.set(property.name, property.value);
        }
        if let Some(subsystem) = subsystem {
            properties.set("SUBSYSTEM", subsystem);
        }
        if properties.get("DRIVER").is_none()
            && let Some(driver) = driver()
        {
            properties.set("DRIVER", driver);
        }
        properties
    }

    /// The device at a syspath (`/sys/...`, or below the root in use) or devpath; symlinks on the way
    /// are followed. None if there is no device.
    pub fn device(&self, path: &[u8]) -> Option<Device> {
        let path = self.strip_root(path);
        let devpath = self.real_path(path, b"").filter(|p| self.is_device(p))?;
        Some(self.device_at(devpath))
    }

    /// The device at a devpath that is known to be free of symlinks and to be a device.
    pub fn device_at(&self, devpath: BString) -> Device {
        let subsystem = self.subsystem(&devpath).unwrap_or_default();
        // What it is is not worth asking the hardware: such a device has neither node nor number.
        let properties = match hardware::asks(&subsystem, b"uevent") {
            true => Properties::new(),
            false => self.uevent_properties(&devpath),
        };
        let driver = self.driver(&devpath);
        let mut device = Device::new(devpath, subsystem, &properties);
        device.driver = driver.or(device.driver);
        device
    }

    /// A path below the root, whether it was given with the root (or `/sys`) in front or without.
    fn strip_root<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        let roots = [self.root.as_os_str().as_bytes(), b"/sys"];
        let rest = roots.into_iter().find_map(|root| path.strip_prefix(root).filter(|r| r.starts_with(b"/")));
        rest.unwrap_or(path)
    }

    /// Devpath of `[subsystem/sysname]` (rules.md 3.4): `/` in the sysname stands for `!`.
    pub fn device_of(&self, subsystem: &[u8], sysname: &[u8]) -> Option<BString> {
        let name: Vec<u8> = sysname.iter().map(|&b| if b == b'/' { b'!' } else { b }).collect();
        if !is_file_name(subsystem) || !is_file_name(&name) {
            return None;
        }
        let at = |parts: &[&[u8]]| self.resolve(&parts.concat()).filter(|p| self.is_device(p));
        let special = match subsystem {
            b"subsystem" => at(&[b"/bus/", &name]).or_else(|| at(&[b"/class/", &name])),
            b"module" => at(&[b"/module/", &name]),
            b"drivers" => match name.split_once_str(":") {
                Some((bus, _)) if !is_file_name(bus) => None,
                Some((bus, b"drivers")) => at(&[b"/bus/", bus, b"/drivers"]),
                Some((bus, driver)) if is_file_name(driver) => at(&[b"/bus/", bus, b"/drivers/", driver]),
                _ => None,
            },
            _ => None,
        };
        special
            .or_else(|| at(&[b"/bus/", subsystem, b"/devices/", &name]))
            .or_else(|| at(&[b"/class/", subsystem, b"/", &name]))
            .or_else(|| at(&[b"/firmware/", subsystem, b"/", &name]))
    }

    /// Devpath of a device id (interop.md 1.10), None also if what is found there is another device.
    /// Network interfaces are found in `/class/net`, which is looked through.
    pub fn device_of_id(&self, id: &DeviceId) -> Option<BString> {
        let devpath = match id {
            DeviceId::Block(devnum) => self.resolve(format!("/dev/block/{devnum}").as_bytes()),
            DeviceId::Char(devnum) => self.resolve(format!("/dev/char/{devnum}").as_bytes()),
            DeviceId::Net(ifindex) => list(&self.path(b"/class/net"))
                .iter()
                .filter_map(|name| self.resolve(&[b"/class/net/", name.as_slice()].concat()))
                .find(|devpath| self.value(devpath, b"ifindex").is_some_and(|v| v == ifindex.0.to_string())),
            DeviceId::Named { subsystem, sysname } => self.device_of(subsystem, sysname),
        };
        let device = devpath.filter(|p| self.is_device(p)).map(|p| self.device_at(p))?;
        (device.id().as_ref() == Some(id)).then_some(device.devpath)
    }

    /// Devpath of the device whose node is at this path; symlinks to it are followed. None for what is
    /// no device node.
    pub fn device_of_node(&self, node: &Path) -> Option<BString> {
        let meta = std::fs::metadata(node).ok()?;
        let devnum = DevNum { major: libc::major(meta.rdev()), minor: libc::minor(meta.rdev()) };
        let kind = meta.file_type();
        match (kind.is_block_device(), kind.is_char_device()) {
            (true, _) => self.device_of_id(&DeviceId::Block(devnum)),
            (_, true) => self.device_of_id(&DeviceId::Char(devnum)),
            _ => None,
        }
    }

    /// Devpath behind a path whose last component may be a symlink: all lists of devices in sysfs are
    /// made of symlinks that lead straight to a device, so one readlink does where a general
    /// resolution asks for each component.
    pub fn resolve(&self, path: &[u8]) -> Option<BString> {
        match std::fs::read_link(self.path(path)) {
            Ok(target) => {
                let folded = fold_link(path, target.as_os_str().as_bytes());
                folded.or_else(|| self.real_path(path, b""))
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Some(path.into()),
            Err(_) => None,
        }
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

/// Puts the pieces behind a root.
fn join(root: &Path, pieces: &[&[u8]]) -> PathBuf {
    let root = root.as_os_str().as_bytes();
    let mut path = Vec::with_capacity(root.len() + pieces.iter().map(|p| p.len()).sum::<usize>() + 1);
    path.extend_from_slice(root);
    for piece in pieces {
        path.extend_from_slice(piece);
    }
    PathBuf::from(std::ffi::OsString::from_vec(path))
}

fn read_link(path: &Path) -> Option<BString> {
    std::fs::read_link(path).ok().map(|target| target.into_os_string().into_vec().into())
}

/// Names in a directory, those that begin with a dot left out.
pub(super) fn list(path: &Path) -> Vec<BString> {
    try_list(path).unwrap_or_default()
}

fn try_list(path: &Path) -> io::Result<Vec<BString>> {
    let names = std::fs::read_dir(path)?
        .filter_map(|entry| Some(BString::from(entry.ok()?.file_name().into_vec())))
        .filter(|name| !name.starts_with(b"."));
    Ok(names.collect())
}

/// Reads a regular file that is not a symlink and that its owner may read.
fn read_plain(path: &Path) -> Result<BString, Errno> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) => {
            return Err(match Errno::of(&error) {
                Errno(libc::ELOOP) => Errno(libc::EINVAL),
                Errno(libc::EACCES) => Errno(libc::EPERM),
                other => other,
            });
        }
    };
    let meta = file.metadata().map_err(|e| Errno::of(&e))?;
    if meta.is_dir() {
        return Err(Errno(libc::EISDIR));
    }
    if !meta.is_file() {
        return Err(Errno(libc::EINVAL));
    }
    if meta.mode() & libc::S_IRUSR == 0 {
        return Err(Errno(libc::EPERM));
    }
    read_to_end(&mut file)
}

/// Reads to the end or to the limit. A text attribute comes whole in one read: what is shorter than
/// a page and ends a line needs no second one to learn that nothing follows.
fn read_to_end(file: &mut File) -> Result<BString, Errno> {
    let mut page = [0; PAGE];
    let mut value = Vec::new();
    loop {
        match file.read(&mut page) {
            Ok(0) => break,
            Ok(n) => {
                if value.len() + n > ATTRIBUTE_MAX {
                    return Err(Errno(libc::EFBIG));
                }
                value.extend_from_slice(&page[..n]);
                if n < PAGE && page[n - 1] == b'\n' && value.len() == n {
                    break;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Errno::of(&error)),
        }
    }
    Ok(value.into())
}

/// The directory a path lies in; None for a child of the root.
fn dirname(path: &[u8]) -> Option<&[u8]> {
    path.rfind_byte(b'/').filter(|&i| i > 0).map(|i| &path[..i])
}

/// The directories above that may be devices, nearest first.
fn ancestors(devpath: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(dirname(devpath), |at| dirname(at)).filter(|at| !is_glue(at))
}

fn below_devices(devpath: &[u8]) -> bool {
    devpath == b"/devices" || devpath.starts_with(b"/devices/")
}

/// Directories that are known by their shape to be no devices, so that the kernel need not be asked:
/// `/devices` itself, `/devices/virtual`, the class directories below it that devices are created in
/// most (others may be the root device of a bus, `/devices/virtual/workqueue` is one), and the
/// `queues` of an interface.
fn is_glue(devpath: &[u8]) -> bool {
    match devpath.strip_prefix(b"/devices") {
        Some(b"" | b"/virtual") => true,
        Some(b"/virtual/net" | b"/virtual/block" | b"/virtual/bdi" | b"/virtual/tty" | b"/virtual/mem") => {
            true
        }
        Some(b"/virtual/misc" | b"/virtual/vc" | b"/virtual/input") => true,
        Some(rest) => {
            let mut names = rest.rsplit(|&b| b == b'/');
            names.next() == Some(b"queues") && names.nth(1) == Some(b"net")
        }
        None => false,
    }
}

/// Subsystem of what has no `subsystem` symlink.
fn implied_subsystem(devpath: &[u8]) -> Option<&'static str> {
    if devpath.starts_with(b"/module/") {
        Some("module")
    } else if devpath.contains_str("/drivers/") || devpath.ends_with(b"/drivers") {
        Some("drivers")
    } else if devpath.starts_with(b"/class/") || devpath.starts_with(b"/bus/") {
        Some("subsystem")
    } else {
        None
    }
}

/// One component of a path.
fn is_file_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

/// The path a symlink at `path` (below the root) leads to, by its text alone. None for a target that
/// leaves the root.
fn fold_link(path: &[u8], target: &[u8]) -> Option<BString> {
    if target.starts_with(b"/") {
        return None;
    }
    let mut folded = dirname(path).unwrap_or_default().to_owned();
    for name in target.split(|&b| b == b'/') {
        match name {
            b"" | b"." => {}
            b".." => folded.truncate(folded.rfind_byte(b'/')?),
            _ => {
                folded.push(b'/');
                folded.extend_from_slice(name);
            }
        }
    }
    (!folded.is_empty()).then(|| folded.into())
}

/// `KEY=VALUE` lines of a `uevent` file.
fn parse_uevent_file(text: &[u8]) -> Properties {
    let mut properties = Properties::new();
    for line in text.lines() {
        let Some((name, value)) = line.split_once_str("=") else { continue };
        if value.is_empty() || !valid_property(name, value) {
            continue;
        }
        match name {
            b"DEVNAME" => {
                if let Ok(absolute) = absolute_devname(value) {
                    properties.set(name, absolute);
                }
            }
            _ => properties.set(name, value),
        }
    }
    properties
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;
    use crate::model::IfIndex;

    /// A disk behind a PCI host, a partition, an interface, a module, a driver.
    fn machine() -> Tree {
        let tree = Tree::new();
        let disk = "sys/devices/pci0000:00/0000:00:01.0/block/sda";
        tree.file("sys/devices/pci0000:00/uevent", "")
            .file("sys/devices/pci0000:00/0000:00:01.0/uevent", "DRIVER=ahci\nPCI_ID=8086:2922\n")
            .link("sys/devices/pci0000:00/0000:00:01.0/subsystem", "../../../bus/pci")
            .link("sys/devices/pci0000:00/0000:00:01.0/driver", "../../../bus/pci/drivers/ahci")
            .dir("sys/bus/pci/drivers/ahci")
            .link("sys/bus/pci/devices/0000:00:01.0", "../../../devices/pci0000:00/0000:00:01.0")
            .file(&format!("{disk}/uevent"), "MAJOR=8\nMINOR=0\nDEVNAME=sda\nDEVTYPE=disk\nBAD KEY=1\nE=\n")
            .link(&format!("{disk}/subsystem"), "../../../../../class/block")
            .file(&format!("{disk}/size"), "100\n")
            .file(&format!("{disk}/empty"), "")
            .file(&format!("{disk}/zeros"), "a\0b\n\0\r\n")
            .file(&format!("{disk}/secret"), "x")
            .mode(&format!("{disk}/secret"), 0o200)
            .dir(&format!("{disk}/queue"))
            .link(&format!("{disk}/device"), "../..")
            .link(&format!("{disk}/loop"), "loop")
            .file(&format!("{disk}/sda1/uevent"), "MAJOR=8\nMINOR=1\nDEVNAME=sda1\nDEVTYPE=partition\n")
            .link(&format!("{disk}/sda1/subsystem"), "../../../../../../class/block")
            .link("sys/class/block/sda", "../../devices/pci0000:00/0000:00:01.0/block/sda")
            .link("sys/dev/block/8:0", "../../devices/pci0000:00/0000:00:01.0/block/sda")
            .file("sys/devices/virtual/net/v0/uevent", "INTERFACE=v0\nIFINDEX=7\n")
            .file("sys/devices/virtual/net/v0/ifindex", "7\n")
            .link("sys/devices/virtual/net/v0/subsystem", "../../../../class/net")
            .link("sys/class/net/v0", "../../devices/virtual/net/v0")
            .dir("sys/devices/virtual/net/v0/queues/rx-0")
            .file("sys/module/loop/uevent", "")
            .file("sys/devices/odd!name/uevent", "")
            .link("sys/devices/odd!name/subsystem", "../../class/odd")
            .link("sys/class/odd/odd!name", "../../devices/odd!name")
            .file("secret/file", "outside");
        tree
    }

    const DISK: &[u8] = b"/devices/pci0000:00/0000:00:01.0/block/sda";

    #[test]
    fn attributes_are_regular_readable_files_and_three_symlinks() {
        let tree = machine();
        let sysfs = Sysfs::new(&tree.roots());
        let value = |text: &[u8]| Attr::Value(text.into());
        for (name, expected) in [
            (&b"size"[..], value(b"100")),
            (b"empty", value(b"")),
            (b"zeros", value(b"a\0b")),
            (b"subsystem", value(b"block")),
            (b"device/driver", Attr::Missing),
            (b"device/uevent", value(b"DRIVER=ahci\nPCI_ID=8086:2922")),
            (b"../../uevent", value(b"DRIVER=ahci\nPCI_ID=8086:2922")),
            (b"../../../../../../secret/file", value(b"outside")),
            (b"driver", Attr::Missing),
            (b"device", Attr::Missing),
            (b"loop", Attr::Missing),
            (b"queue", Attr::Missing),
            (b"secret", Attr::Missing),
            (b"", Attr::Missing),
            (b"none", Attr::Missing),
            (b"a\0b", Attr::Missing),
        ] {
            assert_eq!(sysfs.attr(DISK, name), expected, "{}", name.as_bstr());
        }
        let error = |name: &[u8]| sysfs.read_attr(DISK, name).unwrap_err();
        assert_eq!(error(b"queue"), Errno(libc::EISDIR));
        assert_eq!(error(b"device"), Errno(libc::EINVAL));
        assert_eq!(error(b"secret"), Errno(libc::EPERM));
        assert_eq!(error(b"none"), Errno(libc::ENOENT));
    }

    #[test]
    fn long_attributes_come_whole_and_too_long_ones_not_at_all() {
        let tree = Tree::new();
        let long = [b'x'; PAGE * 3 + 5];
        tree.file("sys/devices/d/long", long).file("sys/devices/d/huge", vec![b'x'; ATTRIBUTE_MAX + 1]);
        let page = [&[b'x'; PAGE - 1][..], b"\n", b"more\n"].concat();
        tree.file("sys/devices/d/page", &page);
        let sysfs = Sysfs::new(&tree.roots());
        assert_eq!(sysfs.value(b"/devices/d", b"long").unwrap().len(), long.len());
        assert_eq!(sysfs.value(b"/devices/d", b"page").unwrap().len(), page.len() - 1);
        assert_eq!(sysfs.read_attr(b"/devices/d", b"huge"), Err(Errno(libc::EFBIG)));
    }

    #[test]
    fn the_walk_skips_directories_that_are_no_devices() {
        let tree = machine();
        let sysfs = Sysfs::new(&tree.roots());
        let walk = |devpath: &[u8]| {
            let parents = sysfs.parents(devpath);
            let text = parents.iter().map(|p| format!("{} {} {}", p.devpath, p.subsystem, p.driver));
            text.collect::<Vec<_>>()
        };
        let expected = ["/devices/pci0000:00/0000:00:01.0 pci ahci", "/devices/pci0000:00  "];
        assert_eq!(walk(DISK), expected);
        assert_eq!(sysfs.parent(&[DISK, b"/sda1"].concat()).unwrap(), DISK);
        assert_eq!(walk(b"/devices/virtual/net/v0"), [""; 0]);
        assert_eq!(walk(b"/devices/virtual/net/v0/queues/rx-0"), ["/devices/virtual/net/v0 net "]);
        assert_eq!(walk(b"/module/loop"), ["/module  "]);
        assert_eq!(
            walk(b"/bus/pci/drivers/ahci"),
            ["/bus/pci/drivers drivers ", "/bus/pci subsystem ", "/bus  "]
        );
        assert_eq!(walk(b"/"), [""; 0]);
    }

    #[test]
    fn a_bus_may_have_its_root_device_below_virtual() {
        let tree = Tree::new();
        tree.file("sys/devices/virtual/workqueue/uevent", "")
            .file("sys/devices/virtual/workqueue/w/uevent", "");
        let sysfs = Sysfs::new(&tree.roots());
        let parent = sysfs.parent(b"/devices/virtual/workqueue/w");
        assert_eq!(parent.unwrap(), "/devices/virtual/workqueue");
    }

    #[test]
    fn devices_are_found_by_subsystem_and_name() {
        let tree = machine();
        let sysfs = Sysfs::new(&tree.roots());
        for (subsystem, name, devpath) in [
            ("block", "sda", "/devices/pci0000:00/0000:00:01.0/block/sda"),
            ("pci", "0000:00:01.0", "/devices/pci0000:00/0000:00:01.0"),
            ("subsystem", "pci", "/bus/pci"),
            ("subsystem", "net", "/class/net"),
            ("module", "loop", "/module/loop"),
            ("drivers", "pci:ahci", "/bus/pci/drivers/ahci"),
            ("drivers", "pci:drivers", "/bus/pci/drivers"),
            ("odd", "odd/name", "/devices/odd!name"),
            ("odd", "odd!name", "/devices/odd!name"),
        ] {
            let found = sysfs.device_of(subsystem.as_bytes(), name.as_bytes());
            assert_eq!(found.expect(name), devpath, "{subsystem}/{name}");
        }
        for (subsystem, name) in
            [("block", "sdb"), ("..", "x"), ("net", ".."), ("", "v0"), ("net", ""), ("drivers", "..:x")]
        {
            assert_eq!(sysfs.device_of(subsystem.as_bytes(), name.as_bytes()), None, "{subsystem}/{name}");
        }
    }

    #[test]
    fn an_id_leads_to_the_device_that_has_it_and_to_no_other() {
        let tree = machine();
        let sysfs = Sysfs::new(&tree.roots());
        for (id, devpath) in [
            ("b8:0", Some("/devices/pci0000:00/0000:00:01.0/block/sda")),
            ("c8:0", None),
            ("b8:1", None),
            ("n7", Some("/devices/virtual/net/v0")),
            ("n8", None),
            ("+pci:0000:00:01.0", Some("/devices/pci0000:00/0000:00:01.0")),
            ("+drivers:pci:ahci", Some("/bus/pci/drivers/ahci")),
            ("+module:loop", Some("/module/loop")),
            ("+block:sda", None),
        ] {
            let found = sysfs.device_of_id(&DeviceId::parse(id.as_bytes()).unwrap());
            assert_eq!(found, devpath.map(BString::from), "{id}");
        }
    }

    #[test]
    fn a_device_is_described_by_its_uevent_file_and_symlinks() {
        let tree = machine();
        let sysfs = Sysfs::new(&tree.roots());
        let syspath = tree.path("sys/class/block/sda");
        let disk = sysfs.device(syspath.as_os_str().as_bytes()).unwrap();
        assert_eq!(disk, sysfs.device(b"/sys/class/block/sda").unwrap());
        assert_eq!((&disk.devpath[..], &disk.subsystem[..]), (DISK, &b"block"[..]));
        assert_eq!(disk.devnode.as_ref().unwrap(), "/dev/sda");
        assert_eq!(sysfs.uevent_properties(DISK).len(), 4);
        assert_eq!(sysfs.devtype(DISK).unwrap(), "disk");
        assert_eq!(sysfs.properties(b"/devices/virtual/net/v0").get("SUBSYSTEM").unwrap(), "net");
        assert_eq!(sysfs.device(b"/class/net/v0").unwrap().ifindex, Some(IfIndex(7)));
        for nothing in [&b"/sys"[..], b"/", b"", b"/devices", b"/devices/virtual", b"/none", b"/../secret"] {
            assert_eq!(sysfs.device(nothing), None, "{}", nothing.as_bstr());
        }
    }

    #[test]
    fn a_node_leads_to_its_device() {
        let sysfs = Sysfs::new(&Roots::default());
        assert_eq!(sysfs.device_of_node(Path::new("/dev/null")).unwrap(), "/devices/virtual/mem/null");
        assert_eq!(sysfs.device_of_node(Path::new("/dev")), None);
        assert_eq!(sysfs.device_of_node(Path::new("/dev/none-such")), None);
    }

    #[test]
    fn who_must_not_wait_reads_hardware_only_when_somebody_has_read_it() {
        let tree = Tree::new();
        let nic = "sys/devices/pci0000:00/0000:00:03.0";
        tree.file(&format!("{nic}/uevent"), "")
            .link(&format!("{nic}/subsystem"), "../../../bus/pci")
            .file(&format!("{nic}/config"), "secret")
            .file(&format!("{nic}/vendor"), "0x1af4\n")
            .file(&format!("{nic}/hwmon/hwmon0/temp1_input"), "42\n")
            .link(&format!("{nic}/hwmon/hwmon0/subsystem"), "../../../../../class/hwmon")
            .file(&format!("{nic}/power/control"), "auto\n")
            .file(
                "sys/devices/b/power_supply/BAT0/uevent",
                "DEVTYPE=power_supply\nPOWER_SUPPLY_STATUS=Full\n",
            )
            .link("sys/devices/b/power_supply/BAT0/subsystem", "../../../../class/power_supply");
        let waits = Sysfs::new(&tree.roots());
        let sysfs = Sysfs::new(&tree.roots()).without_hardware();
        let nic = b"/devices/pci0000:00/0000:00:03.0";
        let place = |name: &str| AttrPlace { devpath: nic.into(), name: name.into() };
        for (name, hardware) in [
            ("config", true),
            ("hwmon/hwmon0/temp1_input", true),
            ("vendor", false),
            ("power/control", false),
            ("label", false),
        ] {
            let read =
                |known, gave_up| sysfs.knowing(known, gave_up, |sysfs| sysfs.value(nic, name.as_bytes()));
            let value = waits.value(nic, name.as_bytes());
            match hardware {
                true => assert_eq!(read(vec![], false), Err(place(name))),
                false => assert_eq!(read(vec![], false), Ok(value), "{name}"),
            }
            let known = || vec![(place(name), Ok("x".into())), (place("y"), Ok("y".into()))];
            if hardware {
                assert_eq!(read(known(), false), Ok(Some("x".into())), "{name}");
                assert_eq!(read(vec![(place(name), Err(Errno(libc::EIO)))], false), Ok(None));
                assert_eq!(read(vec![], true), Ok(None), "nobody could read it");
            }
        }
        let battery = b"/devices/b/power_supply/BAT0";
        let wanted = sysfs.knowing(vec![], false, |sysfs| sysfs.properties(battery));
        assert_eq!(wanted, Err(AttrPlace { devpath: battery.into(), name: "uevent".into() }));
        assert_eq!(waits.properties(battery).get("POWER_SUPPLY_STATUS").unwrap(), "Full");
        assert_eq!(sysfs.device(battery).unwrap().id(), waits.device(battery).unwrap().id());
    }

    #[test]
    fn a_name_with_dots_lies_in_sysfs_as_long_as_it_only_goes_up_to_a_device() {
        for (name, inside) in [
            ("size", true),
            ("", true),
            ("a/b", true),
            ("a..b", true),
            ("../idVendor", true),
            ("./../x/y", true),
            ("../..", true),
            ("../../../x", false),
            ("../../../../etc/passwd", false),
            ("device/../x", false),
            ("../x/..", false),
        ] {
            assert_eq!(Sysfs::is_inside(b"/devices/a/b", name.as_bytes()), inside, "{name}");
        }
    }

    #[test]
    fn symlinks_are_folded_by_their_text() {
        let fold = |path: &str, target: &str| fold_link(path.as_bytes(), target.as_bytes());
        assert_eq!(fold("/class/net/lo", "../../devices/virtual/net/lo").unwrap(), "/devices/virtual/net/lo");
        assert_eq!(fold("/a", "b/./c").unwrap(), "/b/c");
        assert_eq!(fold("/a", "../b"), None);
        assert_eq!(fold("/a/b", ".."), None);
        assert_eq!(fold("/a/b", "/c"), None);
    }

    #[test]
    fn only_want_of_descriptors_or_memory_is_noted_and_told_once() {
        let tree = Tree::new();
        let sysfs = Sysfs::new(&tree.roots());
        assert_eq!(sysfs.attr(b"/devices/none", b"size"), Attr::Missing);
        assert!(!sysfs.take_lack(), "what is not there is no want");
        for (errno, lacked) in
            [(libc::EMFILE, true), (libc::ENFILE, true), (libc::ENOMEM, true), (libc::EIO, false)]
        {
            sysfs.note(Errno(errno));
            assert_eq!((sysfs.take_lack(), sysfs.take_lack()), (lacked, false));
        }
    }

    #[test]
    fn all_lists_of_the_running_kernel_lead_to_devices() {
        let sysfs = Sysfs::new(&Roots::default());
        for class in sysfs.list(b"/class", b"") {
            let class_path = [b"/class/", class.as_slice()].concat();
            for name in sysfs.list(&class_path, b"") {
                let path = [&class_path[..], b"/", &name].concat();
                let Some(devpath) = sysfs.resolve(&path) else { continue };
                assert_eq!(sysfs.real_path(&path, b""), Some(devpath.clone()), "{}", path.as_bstr());
            }
        }
    }
}
