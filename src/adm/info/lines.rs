//! The lines of one record (interop.md 5.2.1), and the same as JSON (5.2.2).

use crate::world::described::Described;
use bstr::{BStr, BString, ByteSlice};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// The lines without their ends, in the order of the table.
pub(super) fn of(described: &Described) -> Vec<BString> {
    let device = &described.device;
    let mut lines = Lines(Vec::new());
    lines.add(b'P', &device.devpath);
    lines.add(b'M', &device.sysname);
    lines.add_some(b'R', device.sysnum());
    lines.add_some(b'J', &device.id().map(|id| id.render()).unwrap_or_default());
    lines.add_some(b'U', &device.subsystem);
    lines.add_some(b'B', driver_subsystem(described).unwrap_or_default());
    lines.add_some(b'T', device.devtype.as_ref().map_or(&[], |t| t.as_slice()));
    if let Some(number) = device.devnum {
        lines.add(b'D', format!("{} {number}", if device.is_block() { 'b' } else { 'c' }).as_bytes());
    }
    if let Some(ifindex) = device.ifindex {
        lines.add(b'I', ifindex.0.to_string().as_bytes());
    }
    if let Some(node) = described.node() {
        lines.add(b'N', node);
        lines.add(b'L', described.record.as_ref().map_or(0, |r| r.priority).to_string().as_bytes());
        described.links().for_each(|link| lines.add(b'S', link));
    }
    lines.add_some(b'Q', described.properties.get("DISKSEQ").unwrap_or_default());
    lines.add_some(b'V', device.driver.as_ref().map_or(&[], |t| t.as_slice()));
    for property in described.properties.iter() {
        lines.add(b'E', &[property.name.as_bytes(), b"=", property.value].concat());
    }
    lines.0
}

struct Lines(Vec<BString>);

impl Lines {
    fn add(&mut self, key: u8, value: &[u8]) {
        self.0.push([&[key, b':', b' '], value].concat().into());
    }

    fn add_some(&mut self, key: u8, value: &[u8]) {
        if !value.is_empty() {
            self.add(key, value);
        }
    }
}

/// The bus of a driver: `pci` of `/bus/pci/drivers/virtio-pci`.
fn driver_subsystem(described: &Described) -> Option<&BStr> {
    if described.device.subsystem != "drivers" {
        return None;
    }
    let (bus, _) = described.device.devpath.strip_prefix(b"/bus/")?.split_once_str("/drivers")?;
    Some(bus.as_bstr())
}

/// One object: SYSNAME, SYSNUM, DEVICE_ID, then the properties; bytes that are no UTF-8 are replaced.
pub(super) struct AsJson<'a>(pub &'a Described);

impl Serialize for AsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let device = &self.0.device;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("SYSNAME", &device.sysname.to_str_lossy())?;
        if !device.sysnum().is_empty() {
            map.serialize_entry("SYSNUM", &device.sysnum().to_str_lossy())?;
        }
        if let Some(id) = device.id() {
            map.serialize_entry("DEVICE_ID", &id.render().to_str_lossy())?;
        }
        for property in self.0.properties.iter() {
            map.serialize_entry(&property.name.to_str_lossy(), &property.value.to_str_lossy())?;
        }
        map.end()
    }
}
