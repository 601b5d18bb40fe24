//! The attribute walk (interop.md 5.2.3): every attribute of a device and of its parents, as the rules
//! language matches it.

use super::super::view::Devices;
use super::super::{Json, Out, Stop};
use crate::model::Errno;
use crate::model::device::{last_component, sysname};
use bstr::{BStr, BString, ByteSlice};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::os::unix::fs::PermissionsExt;

/// Files that are no attributes to match, whatever their content.
const SKIPPED: [&[u8]; 7] = [b"uevent", b"dev", b"modalias", b"resource", b"driver", b"subsystem", b"module"];

/// Reading this one makes a new device (zram-control), and a user who only looks wants none.
const ACTS_WHEN_READ: &[u8] = b"hot_add";

/// Directories of attributes within each other: power, queues/rx-0 and the like.
const DEPTH_MAX: usize = 8;

/// As many lines as udevadm prints there: scripts cut them off by number.
const INTRODUCTION: &str = "
What follows begins with the device that was asked for and goes up
the chain of its parents. Each attribute is printed as the key of a
udev rule that matches it.
A rule may combine the attributes of the device with those of one
single parent.
";

/// One device of the walk.
#[derive(Debug)]
struct Step {
    devpath: BString,
    subsystem: BString,
    driver: BString,
    /// Sorted by name.
    attrs: Vec<(BString, BString)>,
}

/// Prints the walk, or one JSON text sequence (RFC 7464) of it.
pub(super) fn print(devices: &Devices, devpath: &BStr, json: Option<Json>, out: Out) -> Result<(), Stop> {
    let step = |devpath: &BStr, subsystem: BString, driver: BString| Step {
        attrs: attributes(devices, devpath),
        devpath: devpath.to_owned(),
        subsystem,
        driver,
    };
    let sysfs = &devices.sysfs;
    let first = step(
        devpath,
        sysfs.subsystem(devpath).unwrap_or_default(),
        sysfs.driver(devpath).unwrap_or_default(),
    );
    let parents = sysfs.parents(devpath).into_iter();
    let steps =
        std::iter::once(first).chain(parents.map(|p| step(p.devpath.as_bstr(), p.subsystem, p.driver)));
    match json {
        Some(json) => steps.enumerate().try_for_each(|(index, step)| {
            out.write_all(b"\x1e")?;
            json.write(out, &AsJson { step: &step, is_parent: index > 0 })
        }),
        None => {
            writeln!(out, "{INTRODUCTION}")?;
            steps.enumerate().try_for_each(|(index, step)| print_step(&step, index > 0, out))
        }
    }
}

fn print_step(step: &Step, is_parent: bool, out: Out) -> Result<(), Stop> {
    let (parent, plural) = if is_parent { ("parent ", "S") } else { ("", "") };
    writeln!(out, "  looking at {parent}device '{}':", step.devpath)?;
    let name = sysname(&step.devpath);
    for (key, value) in [("KERNEL", &name), ("SUBSYSTEM", &step.subsystem), ("DRIVER", &step.driver)] {
        writeln!(out, "    {key}{plural}==\"{value}\"")?;
    }
    for (name, value) in &step.attrs {
        writeln!(out, "    ATTR{plural}{{{name}}}==\"{value}\"")?;
    }
    Ok(writeln!(out)?)
}

fn attributes(devices: &Devices, devpath: &BStr) -> Vec<(BString, BString)> {
    let mut attrs = Vec::new();
    collect(devices, devpath, b"", 0, &mut attrs);
    attrs.sort();
    attrs
}

/// Attributes in the device's directory and in directories below it that are no devices themselves.
fn collect(
    devices: &Devices,
    devpath: &BStr,
    below: &[u8],
    depth: usize,
    attrs: &mut Vec<(BString, BString)>,
) {
    for name in devices.sysfs.list(devpath, below) {
        let name = if below.is_empty() { name } else { [below, b"/", &name].concat().into() };
        let Ok(meta) = std::fs::symlink_metadata(devices.sysfs.path_of(devpath, &name)) else { continue };
        if meta.is_dir() {
            let is_device = devices.sysfs.exists(devpath, &[&name[..], b"/uevent"].concat());
            if !is_device && depth < DEPTH_MAX {
                collect(devices, devpath, &name, depth + 1, attrs);
            }
        } else if meta.is_file()
            && meta.permissions().mode() & 0o600 != 0
            && !SKIPPED.contains(&name.as_slice())
            && last_component(&name) != ACTS_WHEN_READ
        {
            attrs.extend(value(devices, devpath, name.as_bstr()).map(|value| (name, value)));
        }
    }
}

/// The value as it is shown; None if it is not worth showing.
fn value(devices: &Devices, devpath: &BStr, name: &BStr) -> Option<BString> {
    match devices.sysfs.read_attr(devpath, name) {
        Ok(value) if value.starts_with(b"/") => None,
        Ok(value) if value.iter().all(|b| (b' '..=b'~').contains(b)) => Some(value),
        Err(Errno(libc::EPERM)) => Some("(not readable)".into()),
        _ => None,
    }
}

/// One object: DEVPATH, the keys that match the device, and its attributes as an object; null for a key that the
/// device does not have. Bytes that are no UTF-8 are replaced.
struct AsJson<'a> {
    step: &'a Step,
    is_parent: bool,
}

impl Serialize for AsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let AsJson { step, is_parent } = self;
        let text = |bytes: &BString| bytes.to_str_lossy().into_owned();
        let some = |bytes: &BString| (!bytes.is_empty()).then(|| text(bytes));
        let key = |name: &'static str, of_parents: &'static str| if *is_parent { of_parents } else { name };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("DEVPATH", &text(&step.devpath))?;
        map.serialize_entry(key("KERNEL", "KERNELS"), &text(&sysname(&step.devpath)))?;
        map.serialize_entry(key("SUBSYSTEM", "SUBSYSTEMS"), &some(&step.subsystem))?;
        map.serialize_entry(key("DRIVER", "DRIVERS"), &some(&step.driver))?;
        let attrs = (!step.attrs.is_empty()).then_some(Attrs(&step.attrs));
        map.serialize_entry(key("ATTR", "ATTRS"), &attrs)?;
        map.end()
    }
}

/// Attributes as one object.
struct Attrs<'a>(&'a [(BString, BString)]);

impl Serialize for Attrs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name.to_str_lossy(), value.to_str_lossy())))
    }
}
