//! All that is known of a device: its files in sysfs and its record. `info` prints it and the filters of `info` and
//! `trigger` match it.
//!
//! Must stay true: there is one list of properties. A property match sees the properties that `info -q property`
//! prints, in the same order (DEVPATH, the `uevent` file with the number behind the rest, SUBSYSTEM, the record,
//! DEVLINKS, TAGS, CURRENT_TAGS), whichever way the device was found: as 252 and 262 have it.

use super::Sysfs;
use super::database::Records;
use crate::model::event::{OrderedSet, render_tags};
use crate::model::record::Record;
use crate::model::{Device, Properties};
use bstr::{BStr, BString, ByteSlice};

/// A device with all that is known of it.
#[derive(Debug)]
pub struct Described {
    pub device: Device,
    /// None: not initialized.
    pub record: Option<Record>,
    /// In the order in which they are shown.
    pub properties: Properties,
}

impl Described {
    /// The device at this devpath; `records` are None where no daemon has ever run.
    pub fn new(sysfs: &Sysfs, records: Option<&Records>, devpath: &[u8]) -> Described {
        let uevent = sysfs.uevent_properties(devpath);
        let subsystem = sysfs.subsystem(devpath).unwrap_or_default();
        let mut device = Device::new(devpath.into(), subsystem, &uevent);
        device.driver = sysfs.driver(devpath).or(device.driver);
        let record = device.id().and_then(|id| records?.read(&id).ok()?);
        let mut properties = sysfs_properties(&device, &uevent);
        if let Some(record) = &record {
            add_record(&mut properties, record);
        }
        Described { device, record, properties }
    }

    /// Symlinks relative to `/dev`.
    pub fn links(&self) -> impl Iterator<Item = &BStr> {
        self.record.iter().flat_map(|r| r.symlinks.iter())
    }

    /// Node relative to `/dev`.
    pub fn node(&self) -> Option<&BStr> {
        let node = self.device.devnode.as_ref()?;
        Some(node.strip_prefix(b"/dev/").unwrap_or(node).as_bstr())
    }
}

/// The part that sysfs has. A folder without a subsystem is no device of the driver model, and has no DEVPATH either.
fn sysfs_properties(device: &Device, uevent: &Properties) -> Properties {
    let is_number = |name: &BStr| *name == "MAJOR" || *name == "MINOR";
    let mut properties = Properties::new();
    if !device.subsystem.is_empty() {
        properties.set("DEVPATH", device.devpath.clone());
    }
    for numbers in [false, true] {
        for property in uevent.iter().filter(|p| is_number(p.name) == numbers) {
            properties.set(property.name, property.value);
        }
    }
    if !device.subsystem.is_empty() {
        properties.set("SUBSYSTEM", device.subsystem.clone());
    }
    if let Some(driver) = &device.driver {
        properties.set("DRIVER", driver.clone());
    }
    properties
}

fn add_record(properties: &mut Properties, record: &Record) {
    if let Some(usec) = record.usec_initialized {
        properties.set("USEC_INITIALIZED", usec.to_string());
    }
    for property in record.properties.iter() {
        properties.set(property.name, property.value);
    }
    if !record.symlinks.is_empty() {
        let links: Vec<BString> =
            record.symlinks.iter().map(|l| [b"/dev/", l.as_bytes()].concat().into()).collect();
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
