//! What a device is like before any record is read: its `uevent` file and its symlinks (interop.md 1.10).

use super::Sysfs;
use crate::model::Properties;
use crate::model::uevent::{absolute_devname, valid_property};
use crate::rules::ask::ParentDevice;
use bstr::{BStr, BString, ByteSlice};

impl Sysfs {
    /// DEVTYPE of the `uevent` file.
    pub fn devtype(&self, devpath: &[u8]) -> Option<BString> {
        self.uevent_properties(devpath).get("DEVTYPE").map(BStr::to_owned)
    }

    /// The properties in the `uevent` file; none without one. DEVNAME is made absolute; properties that no record
    /// could hold are left out.
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
