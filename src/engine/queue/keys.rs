//! The places of a uevent, as 64-bit hashes of kind and text.
//!
//! A collision makes one event wait for a stranger and does no other harm: where more depends on it, the devices
//! themselves are compared.

use crate::model::device::{last_component, parse_u32};
use crate::model::fnv::Fnv;
use crate::model::properties::Property;
use crate::model::{DeviceId, Uevent};
use bstr::ByteSlice;
use std::hash::Hasher;

/// One place of an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    pub(super) place: u64,
    /// Its node in the list of those below the place; None if it stands on it.
    pub(super) node: Option<u32>,
}

/// The places of a uevent: the first `on` of them it stands on, the others it stands below.
#[derive(Debug, Default)]
pub(super) struct Keys {
    pub(super) flow: u64,
    /// Kind and numbers of a device that is known by these, not by its name.
    pub(super) number: Option<(u8, u32, u32)>,
    pub(super) on: Vec<u64>,
    pub(super) above: Vec<u64>,
}

impl Keys {
    /// The place of the device's id.
    pub(super) fn id(&self) -> u64 {
        self.on[0]
    }
    /// Those of this uevent, in place of what was there.
    pub(super) fn take(&mut self, uevent: &Uevent) {
        self.flow = key(b'f', &uevent.subsystem);
        self.on.clear();
        self.above.clear();
        let (mut major, mut minor, mut ifindex) = (None, None, None);
        let (mut node, mut old_path) = (None, None);
        // One pass: looking for each of the five costs more.
        for Property { name, value, .. } in uevent.properties.iter() {
            let number = || parse_u32(value).filter(|n| *n > 0);
            match name.as_bytes() {
                b"MAJOR" => major = number(),
                b"MINOR" => minor = number(),
                b"IFINDEX" => ifindex = number(),
                b"DEVNAME" => node = Some(value),
                b"DEVPATH_OLD" => old_path = Some(value),
                _ => {}
            }
        }
        // What `Device::id` says, without making its text.
        self.number = match (major, ifindex) {
            (Some(major), _) => {
                let kind = if uevent.subsystem == "block" { b'b' } else { b'c' };
                Some((kind, major, minor.unwrap_or(0)))
            }
            (None, Some(ifindex)) => Some((b'n', ifindex, 0)),
            (None, None) => None,
        };
        self.on.push(match self.number {
            Some((kind, a, b)) => number_key(kind, a, b),
            // Drivers of one name on two buses share a key, which does no harm.
            None => name_key(&uevent.subsystem, last_component(&uevent.devpath)),
        });
        self.on.extend(node.map(|node| key(b'/', node)));
        path_keys(&uevent.devpath, self);
        if let Some(old) = old_path {
            path_keys(old, self);
        }
    }

    /// Those of another entry, too.
    pub(super) fn add(&mut self, touches: &[Touch]) {
        for touch in touches {
            let places = if touch.node.is_none() { &mut self.on } else { &mut self.above };
            if !places.contains(&touch.place) {
                places.push(touch.place);
            }
        }
    }
}

fn key(kind: u8, text: &[u8]) -> u64 {
    let mut hasher = Fnv::default();
    hasher.write(&[kind]);
    hasher.write(text);
    hasher.finish()
}

/// A key of numbers.
fn number_key(kind: u8, a: u32, b: u32) -> u64 {
    let mut hasher = Fnv::default();
    hasher.write_u8(kind);
    hasher.write_u64((u64::from(a) << 32) | u64::from(b));
    hasher.finish()
}

/// The key of a name. Of drivers the bus is left out.
pub(super) fn key_of_id(id: &DeviceId) -> u64 {
    match id {
        DeviceId::Block(number) => number_key(b'b', number.major, number.minor),
        DeviceId::Char(number) => number_key(b'c', number.major, number.minor),
        DeviceId::Net(ifindex) => number_key(b'n', ifindex.0, 0),
        DeviceId::Named { subsystem, sysname } => {
            let bus = sysname.find_byte(b':').filter(|_| subsystem == "drivers");
            name_key(subsystem, &sysname[bus.map_or(0, |at| at + 1)..])
        }
    }
}

fn name_key(subsystem: &[u8], name: &[u8]) -> u64 {
    let mut hasher = Fnv::default();
    hasher.write(b"+");
    hasher.write(subsystem);
    hasher.write(&[0]);
    hasher.write(name);
    hasher.finish()
}

/// One pass over the path gives the hash of each prefix that ends at a `/`.
fn path_keys(path: &[u8], keys: &mut Keys) {
    let shared = never_devices(path);
    let mut hasher = Fnv::default();
    hasher.write(b"p");
    for (at, byte) in path.iter().enumerate() {
        if *byte == b'/' && at > shared {
            keys.above.push(hasher.finish());
        }
        hasher.write(std::slice::from_ref(byte));
    }
    keys.on.push(hasher.finish());
}

/// Length of the front part in which no device can stand: `/devices`, `/devices/virtual` and
/// `/devices/virtual/<class>` are plain folders. Without this, half of a busy machine's events would
/// be listed below one path.
fn never_devices(path: &[u8]) -> usize {
    let Some(rest) = path.strip_prefix(b"/devices/") else { return 0 };
    let Some(rest) = rest.strip_prefix(b"virtual/") else { return "/devices".len() };
    let class = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
    "/devices/virtual/".len() + class
}
