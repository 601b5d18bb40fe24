//! Devices as the tool sees them: found by what the user wrote, described by sysfs and record.

use super::Stop;
use crate::model::event::{OrderedSet, render_tags};
use crate::model::record::Record;
use crate::model::{Device, DeviceId, Properties};
use crate::world::database::Records;
use crate::world::sysfs::is_syspath;
use crate::world::{Roots, Sysfs};
use bstr::{BStr, BString, ByteSlice};
use std::os::unix::ffi::OsStrExt;

/// Everything that devices are looked up in.
#[derive(Debug)]
pub struct Devices<'a> {
    pub roots: &'a Roots,
    pub sysfs: Sysfs,
    /// None while no daemon has ever run.
    records: Option<Records>,
}

/// Whether a device was reached by its number (its `uevent` file was read first) or by its path; it
/// decides the order of the properties that libudev's clients know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Number,
    Path,
}

/// A device that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub devpath: BString,
    pub way: Way,
}

/// A device with all that is known of it.
#[derive(Debug)]
pub struct View {
    pub device: Device,
    /// None: not initialized.
    pub record: Option<Record>,
    /// In the order in which they are shown.
    pub properties: Properties,
}

impl<'a> Devices<'a> {
    /// The devices below these roots.
    pub fn new(roots: &'a Roots) -> Devices<'a> {
        Devices { roots, sysfs: Sysfs::new(roots), records: Records::open(&roots.run).ok() }
    }

    /// The device of an argument: a path in `/dev` or `/sys`, a device id, the name of a unit
    /// (interop.md 5.1).
    pub fn find(&self, text: &[u8]) -> Result<Found, Stop> {
        let (found, is_form) = match text {
            [b'/', ..] => (self.find_path(text), true),
            _ if text.ends_with(b".device") => (self.find_path(&unit_path(text)), true),
            _ => {
                let id = DeviceId::parse(text);
                (id.as_ref().and_then(|id| self.find_id(id)), id.is_some())
            }
        };
        let text = text.as_bstr();
        match (found, is_form) {
            (Some(found), _) => Ok(found),
            (None, true) => Err(unknown(text)),
            (None, false) => Err(Stop::Failed(format!(
                "Bad argument \"{text}\", expected an absolute path in /dev/ or /sys/, a device id or a unit name"
            ))),
        }
    }

    /// Like [`find`](Self::find), and a devpath is taken too.
    pub fn find_with_devpath(&self, text: &[u8]) -> Result<Found, Stop> {
        let is_devpath = text.starts_with(b"/") && !text.starts_with(b"/dev/") && !is_syspath(text);
        if is_devpath { self.find_path_in_sys(text) } else { self.find(text) }
    }

    /// The device of a node by its name below `/dev` or its full path.
    pub fn find_node(&self, name: &[u8]) -> Result<Found, Stop> {
        let path = if name.starts_with(b"/") { name.into() } else { [b"/dev/", name].concat() };
        self.find_path(&path).ok_or_else(|| unknown(path.as_bstr()))
    }

    /// A path in `/dev` or `/sys`; others are no devices.
    fn find_path(&self, path: &[u8]) -> Option<Found> {
        if is_syspath(path) {
            return self.find_syspath(path);
        }
        let place = self.roots.locate(path);
        match path.starts_with(b"/dev/").then(|| self.sysfs.device_of_node(&place)).flatten() {
            Some(devpath) => Some(Found { devpath, way: Way::Number }),
            // Perhaps a symlink from elsewhere, or the real place of a movable root.
            None => std::fs::canonicalize(place)
                .ok()
                .filter(|real| self.sysfs.contains(real))
                .and_then(|real| self.find_syspath(real.as_os_str().as_bytes())),
        }
    }

    /// The device at a path with or without `/sys` in front.
    pub fn find_path_in_sys(&self, path: &[u8]) -> Result<Found, Stop> {
        self.find_syspath(path).ok_or_else(|| unknown(path.as_bstr()))
    }

    fn find_syspath(&self, path: &[u8]) -> Option<Found> {
        Some(Found { devpath: self.sysfs.device(path)?.devpath, way: Way::Path })
    }

    fn find_id(&self, id: &DeviceId) -> Option<Found> {
        let way = if matches!(id, DeviceId::Named { .. }) { Way::Path } else { Way::Number };
        Some(Found { devpath: self.sysfs.device_of_id(id)?, way })
    }

    /// Whether a device has a record: it is initialized.
    pub fn is_initialized(&self, devpath: &[u8]) -> bool {
        let subsystem = self.sysfs.subsystem(devpath).unwrap_or_default();
        let device = Device::new(devpath.into(), subsystem, &self.sysfs.uevent_properties(devpath));
        // The folder may be younger than we are.
        let read = |id| Records::open(&self.roots.run).ok()?.read(&id).ok()?;
        device.id().and_then(read).is_some()
    }

    /// The record of a device.
    pub fn record(&self, device: &Device) -> Option<Record> {
        self.records.as_ref()?.read(&device.id()?).ok()?
    }

    /// Describes a device.
    pub fn view(&self, found: &Found) -> View {
        let uevent = self.sysfs.uevent_properties(&found.devpath);
        let subsystem = self.sysfs.subsystem(&found.devpath).unwrap_or_default();
        let mut device = Device::new(found.devpath.clone(), subsystem, &uevent);
        device.driver = self.sysfs.driver(&found.devpath).or(device.driver);
        let record = self.record(&device);
        let mut properties = sysfs_properties(&device, &uevent, found.way);
        if let Some(record) = &record {
            add_record(&mut properties, record);
        }
        View { device, record, properties }
    }
}

impl View {
    /// Symlinks relative to `/dev`.
    pub fn links(&self) -> impl Iterator<Item = &BStr> {
        self.record.iter().flat_map(|r| r.links.iter())
    }

    /// Node relative to `/dev`.
    pub fn node(&self) -> Option<&BStr> {
        let node = self.device.devnode.as_ref()?;
        Some(node.strip_prefix(b"/dev/").unwrap_or(node).as_bstr())
    }
}

fn unknown(text: &BStr) -> Stop {
    Stop::Failed(format!("Unknown device \"{text}\": No such device"))
}

/// The path that a unit name stands for (systemd-escape(1)): `-` is `/`, `\xNN` is a byte.
fn unit_path(unit: &[u8]) -> Vec<u8> {
    let mut rest = unit.strip_suffix(b".device").unwrap_or(unit);
    let mut path = vec![b'/'];
    while let Some((&byte, tail)) = rest.split_first() {
        let escaped =
            tail.strip_prefix(b"x").and_then(|t| t.get(..2)).and_then(|digits| digits.to_str().ok());
        match (byte, escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'\\', Some(decoded)) => {
                path.push(decoded);
                rest = &tail[3..];
                continue;
            }
            (b'-', _) => path.push(b'/'),
            _ => path.push(byte),
        }
        rest = tail;
    }
    path
}

/// What sysfs says, in the order of libudev: the number behind the rest of the `uevent` file, and
/// the subsystem first where the device was reached by its path.
fn sysfs_properties(device: &Device, uevent: &Properties, way: Way) -> Properties {
    let is_number = |name: &BStr| *name == "MAJOR" || *name == "MINOR";
    let mut properties = Properties::new();
    properties.set("DEVPATH", device.devpath.clone());
    let set_subsystem = |properties: &mut Properties| {
        if !device.subsystem.is_empty() {
            properties.set("SUBSYSTEM", device.subsystem.clone());
        }
    };
    if way == Way::Path {
        set_subsystem(&mut properties);
    }
    for numbers in [false, true] {
        for property in uevent.iter().filter(|p| is_number(p.name) == numbers) {
            properties.set(property.name, property.value);
        }
    }
    if let Some(driver) = &device.driver {
        properties.set("DRIVER", driver.clone());
    }
    set_subsystem(&mut properties);
    properties
}

fn add_record(properties: &mut Properties, record: &Record) {
    if let Some(usec) = record.usec_initialized {
        properties.set("USEC_INITIALIZED", usec.to_string());
    }
    for property in record.properties.iter() {
        properties.set(property.name, property.value);
    }
    if !record.links.is_empty() {
        let links: Vec<_> = record.links.iter().map(|l| [b"/dev/", l.as_bytes()].concat()).collect();
        properties.set("DEVLINKS", bstr::join(" ", links));
    }
    let mut set_tags = |name: &str, tags: &OrderedSet| {
        if let Some(text) = render_tags(tags) {
            properties.set(name, text);
        }
    };
    set_tags("TAGS", &record.tags);
    set_tags("CURRENT_TAGS", &record.current_tags);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_units_are_paths() {
        for (unit, path) in [
            ("dev-sda.device", "/dev/sda"),
            ("dev-disk-by\\x2did-x\\x2e.device", "/dev/disk/by-id/x."),
            ("sys-a\\xZZ-b.device", "/sys/a\\xZZ/b"),
            ("a\\x2.device", "/a\\x2"),
            ("a\\.device", "/a\\"),
            (".device", "/"),
        ] {
            assert_eq!(unit_path(unit.as_bytes()).as_bstr(), path, "{unit}");
        }
    }
}
