//! path_id: the shortest path that says where a device is plugged in (builtins.md 1.4).
//!
//! The walk goes from the device to the root and puts a component in front for each bus it knows.
//! What must stay true: names of symlinks in `/dev/disk/by-path` come from here, so a component once given must never
//! change.

use super::call::success;
use super::value::{parse_decimal, parse_hex};
use crate::model::Event;
use crate::model::device::{last_component, sysname, sysnum};
use crate::rules::ask::BuiltinResult;
use crate::world::sysfs::Sysfs;
use bstr::{BString, ByteSlice};

/// Finds the path of the event's device.
pub(super) fn run(sysfs: &Sysfs, event: &Event) -> BuiltinResult {
    let mut walk = Walk {
        sysfs,
        event,
        chain: Walk::chain(sysfs, event),
        path: BString::default(),
        compat: BString::default(),
        has_transport: false,
        has_parent: false,
        has_ata: false,
    };
    if walk.climb_to_the_root().is_none() {
        return BuiltinResult::default();
    }
    let is_block = event.device.subsystem == "block";
    if walk.path.is_empty() || !walk.has_parent || (is_block && !walk.has_transport) {
        return BuiltinResult::default();
    }
    let plain = without_usb_revision(&walk.path);
    let path = plain.clone().unwrap_or_else(|| walk.path.clone());
    let mut properties: Vec<(BString, Option<BString>)> = Vec::new();
    if plain.is_some() {
        properties.push(("ID_PATH_WITH_USB_REVISION".into(), Some(walk.path)));
    }
    let tag = path_tag(&path);
    properties.push(("ID_PATH".into(), Some(path)));
    properties.push(("ID_PATH_TAG".into(), Some(tag)));
    if walk.has_ata {
        properties.push(("ID_PATH_ATA_COMPAT".into(), Some(walk.compat)));
    }
    success(properties)
}

/// The path without `v<digit>` of the first `-usbv<digit>-`; None if it has none.
fn without_usb_revision(path: &[u8]) -> Option<BString> {
    let at = path.find_iter("-usbv").find(|&at| {
        let tail = &path[at + "-usbv".len()..];
        tail.first().is_some_and(u8::is_ascii_digit) && tail.get(1) == Some(&b'-')
    })?;
    let cut = at + "-usb".len();
    Some([&path[..cut], &path[cut + 2..]].concat().into())
}

/// The path as it may stand in a tag or a file name.
fn path_tag(path: &[u8]) -> BString {
    let mut tag = BString::default();
    for &byte in path {
        if byte.is_ascii_alphanumeric() || byte == b'-' {
            tag.push(byte);
        } else if tag.last().is_some_and(|&last| last != b'_') {
            tag.push(b'_');
        }
    }
    if tag.last() == Some(&b'_') {
        tag.pop();
    }
    tag
}

/// Where the walk goes on. Devices are told by their places in the chain.
enum Next {
    /// Above this device.
    Above(usize),
    /// The walk ends: the components so far decide.
    End,
}

struct Walk<'a> {
    sysfs: &'a Sysfs,
    event: &'a Event,
    /// The device of the event and what is above it, with their subsystems.
    chain: Vec<(BString, BString)>,
    path: BString,
    compat: BString,
    has_transport: bool,
    has_parent: bool,
    has_ata: bool,
}

/// Puts a component in front of a path.
fn prepend(path: &mut BString, component: &[u8]) {
    *path = match path.is_empty() {
        true => component.into(),
        false => [component, b"-", path].concat().into(),
    };
}

impl Walk<'_> {
    /// The device of the event and all above it.
    fn chain(sysfs: &Sysfs, event: &Event) -> Vec<(BString, BString)> {
        let own = (event.device.devpath.clone(), event.device.subsystem.clone());
        let parents = sysfs.parents(&event.device.devpath).into_iter();
        [own].into_iter().chain(parents.map(|parent| (parent.devpath, parent.subsystem))).collect()
    }

    /// Walks up. None: the builtin fails whatever was collected.
    fn climb_to_the_root(&mut self) -> Option<()> {
        let mut at = 0;
        while at < self.chain.len() {
            at = match self.step(at)? {
                Next::Above(below) => below + 1,
                Next::End => break,
            };
        }
        Some(())
    }

    /// Devpath of a device in the chain.
    fn devpath(&self, at: usize) -> &BString {
        &self.chain[at].0
    }

    /// An attribute of a device in the chain.
    fn value(&self, at: usize, attribute: &str) -> Option<BString> {
        self.sysfs.value(self.devpath(at), attribute.as_bytes())
    }

    fn devtype(&self, at: usize) -> Option<BString> {
        self.sysfs.devtype(self.devpath(at))
    }

    /// Adds a component to the path alone.
    fn add(&mut self, component: impl AsRef<[u8]>) {
        prepend(&mut self.path, component.as_ref());
    }

    /// Adds a component to both paths.
    fn add_both(&mut self, component: impl AsRef<[u8]>) {
        prepend(&mut self.path, component.as_ref());
        prepend(&mut self.compat, component.as_ref());
    }

    /// The topmost of the consecutive devices in this subsystem, from this one upwards.
    fn topmost(&self, at: usize, subsystem: &str) -> Next {
        let same = self.chain[at + 1..].iter().take_while(|(_, other)| other == subsystem).count();
        Next::Above(at + same)
    }

    /// Looks at one device. None: the builtin fails.
    fn step(&mut self, at: usize) -> Option<Next> {
        let name = sysname(self.devpath(at));
        let subsystem = self.chain[at].1.clone();
        let named = |subsystem: &str| [subsystem.as_bytes(), b"-", name.as_slice()].concat();
        Some(match subsystem.as_slice() {
            b"scsi_tape" => {
                self.tape(&name);
                Next::Above(at)
            }
            b"scsi" => {
                self.has_transport = true;
                self.scsi(at).unwrap_or(Next::End)
            }
            b"cciss" => match cciss_disk(&name) {
                Some(disk) => {
                    self.has_transport = true;
                    self.add(format!("cciss-disk{disk}"));
                    self.topmost(at, "cciss")
                }
                None => Next::End,
            },
            b"usb" => {
                self.has_transport = true;
                self.usb(at)
            }
            b"bcma" => match name.strip_prefix(b"bcma").and_then(|rest| rest.split_once_str(":")) {
                Some((_, core)) if parse_decimal(core).is_some() => {
                    self.has_transport = true;
                    self.add([b"bcma-", core].concat());
                    Next::Above(at)
                }
                _ => Next::End,
            },
            b"serio" => {
                let number = sysnum(&name);
                if !number.is_empty() {
                    self.add([b"serio-", number.as_bytes()].concat());
                }
                self.topmost(at, "serio")
            }
            b"spi" => {
                let number = sysnum(&name);
                if !number.is_empty() {
                    self.add([b"cs-", number.as_bytes()].concat());
                }
                self.topmost(at, "spi")
            }
            b"pci" => self.bus(at, "pci", named("pci"), false),
            b"acpi" => self.bus(at, "acpi", named("acpi"), false),
            b"xen" => self.bus(at, "xen", named("xen"), false),
            b"platform" => self.bus(at, "platform", named("platform"), true),
            b"amba" => self.bus(at, "amba", named("amba"), true),
            b"scm" => self.bus(at, "scm", named("scm"), true),
            b"ccw" => self.bus(at, "ccw", named("ccw"), true),
            b"ccwgroup" => self.bus(at, "ccwgroup", named("ccwgroup"), true),
            b"iucv" => self.bus(at, "iucv", named("iucv"), true),
            b"virtio" => {
                self.has_transport = true;
                self.topmost(at, "virtio")
            }
            b"ap" => {
                let component = match (self.value(at, "type"), self.value(at, "ap_functions")) {
                    (Some(kind), Some(functions)) => {
                        [b"ap-", kind.as_slice(), b"-", functions.as_slice()].concat()
                    }
                    _ => named("ap"),
                };
                self.has_transport = true;
                self.has_parent = true;
                self.add(component);
                self.topmost(at, "ap")
            }
            b"nvme" | b"nvme-subsystem" => self.nvme(at, subsystem == "nvme-subsystem")?,
            _ => Next::Above(at),
        })
    }

    /// A bus that can be the root of a path.
    fn bus(&mut self, at: usize, subsystem: &str, component: Vec<u8>, transport: bool) -> Next {
        self.has_parent = true;
        self.has_transport |= transport;
        self.add_both(component);
        self.topmost(at, subsystem)
    }

    /// `nst0l` and the like: the letter tells the mode, none is mode 0.
    fn tape(&mut self, name: &[u8]) {
        let (kind, rest) = match (name.strip_prefix(b"nst"), name.strip_prefix(b"st")) {
            (Some(rest), _) => ("nst", rest),
            (None, Some(rest)) => ("st", rest),
            _ => return,
        };
        if !self.path.is_empty() {
            return;
        }
        if let Some(mode @ (b'l' | b'm' | b'a')) = rest.first() {
            self.path = format!("{kind}{}", char::from(*mode)).into();
        }
    }

    fn usb(&mut self, at: usize) -> Next {
        let kind = self.devtype(at);
        let is_device = kind.is_some_and(|k| k == "usb_interface" || k == "usb_device");
        let name = sysname(self.devpath(at));
        let Some((_, port)) = name.split_once_str("-").filter(|_| is_device) else {
            return Next::Above(at);
        };
        let above = self.chain[at..].iter().position(|(devpath, _)| is_root_hub(&sysname(devpath)));
        let Some(hub) = above.map(|steps| at + steps) else { return Next::End };
        let revision = match self.usb_revision(hub) {
            Some(revision) => format!("usbv{revision}"),
            None => "usb".into(),
        };
        self.has_transport = true;
        self.add([revision.as_bytes(), b"-0:", port].concat());
        Next::Above(hub)
    }

    /// Revision of the bus by its root hub.
    fn usb_revision(&self, hub: usize) -> Option<u32> {
        match parse_hex(&self.value(hub, "bDeviceProtocol")?)? {
            0 if self.value(hub, "speed").is_some_and(|s| s == "480") => Some(2),
            0 => Some(1),
            1 | 2 => Some(2),
            3 => Some(3),
            _ => None,
        }
    }

    fn nvme(&mut self, at: usize, is_multipath: bool) -> Option<Next> {
        if let Some(nsid) = self.value(0, "nsid") {
            self.has_transport = true;
            self.has_parent = true;
            self.add_both([b"nvme-", nsid.as_slice()].concat());
        }
        if !is_multipath {
            return Some(self.topmost(at, "nvme"));
        }
        let rest = self.event.device.sysname.strip_prefix(b"nvme")?;
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let controller = [b"nvme", &rest[..digits]].concat();
        let real = self.sysfs.device_of(b"nvme", &controller).filter(|_| digits > 0)?;
        if real.starts_with(b"/devices/virtual/") {
            return None;
        }
        // The walk goes on there, as if the controller were above the subsystem.
        let parents = self.sysfs.parents(&real).into_iter().map(|parent| (parent.devpath, parent.subsystem));
        self.chain.truncate(at + 1);
        self.chain.push((real, "nvme".into()));
        self.chain.extend(parents);
        Some(self.topmost(at + 1, "nvme"))
    }

    // -- SCSI (1.4.1). None ends the walk. -------------------------------------------------------

    fn scsi(&mut self, at: usize) -> Option<Next> {
        if self.devtype(at).is_none_or(|kind| kind != "scsi_device") {
            return Some(Next::Above(at));
        }
        if let Some(id) = self.value(at, "ieee1394_id") {
            self.has_parent = true;
            self.add([b"ieee1394-0x", id.as_slice()].concat());
            return Some(self.topmost(at, "scsi"));
        }
        let devpath = self.devpath(at).clone();
        let lies_in = |part: &str| devpath.contains_str(part);
        let lun = scsi_lun(sysnum(&sysname(&devpath)));
        if lies_in("/rport-") {
            return self.fibre_channel(at, lun?);
        }
        if lies_in("/end_device-") {
            return self.sas(at, lun?);
        }
        if lies_in("/session") {
            return self.iscsi(at, lun?);
        }
        if lies_in("/ata") {
            return self.ata(at);
        }
        if lies_in("/vmbus_") {
            return self.hyper_v(at, 37, lun?);
        }
        if lies_in("/VMBUS") {
            return self.hyper_v(at, 38, lun?);
        }
        self.scsi_default(at)
    }

    /// The nearest device above with this DEVTYPE in subsystem scsi.
    fn scsi_above(&self, at: usize, devtype: &str) -> Option<usize> {
        let is_wanted = |&at: &usize| {
            self.chain[at].1 == "scsi" && self.devtype(at).is_some_and(|found| found == devtype)
        };
        (at + 1..self.chain.len()).find(is_wanted)
    }

    /// The devpath so many steps above.
    fn above(&self, at: usize, steps: usize) -> Option<&BString> {
        self.chain.get(at + steps).map(|(devpath, _)| devpath)
    }

    /// An attribute of the device of a class that has the name of another device.
    fn class_value(&self, class: &str, named_like: &[u8], attribute: &str) -> Option<BString> {
        let device = self.sysfs.device_of(class.as_bytes(), &sysname(named_like))?;
        self.sysfs.value(&device, attribute.as_bytes())
    }

    fn fibre_channel(&mut self, at: usize, lun: String) -> Option<Next> {
        let target = self.scsi_above(at, "scsi_target")?;
        let port = self.class_value("fc_transport", self.devpath(target), "port_name")?;
        self.has_parent = true;
        self.add([b"fc-", port.as_slice(), b"-", lun.as_bytes()].concat());
        Some(Next::Above(at))
    }

    fn sas(&mut self, at: usize, lun: String) -> Option<Next> {
        let target = self.scsi_above(at, "scsi_target")?;
        let (end_device, port) = (self.above(target, 1)?, self.above(target, 2)?);
        let component = match self.class_value("sas_port", port, "num_phys")?.as_slice() {
            b"1" => {
                let phy = self.class_value("sas_device", end_device, "phy_identifier")?;
                match self.class_value("sas_device", self.above(target, 3)?, "sas_address") {
                    Some(expander) => format!("sas-exp{expander}-phy{phy}-{lun}"),
                    None => format!("sas-phy{phy}-{lun}"),
                }
            }
            _ => {
                let address = self.class_value("sas_device", end_device, "sas_address")?;
                format!("sas-{address}-{lun}")
            }
        };
        self.has_parent = true;
        self.add(component);
        Some(Next::Above(at))
    }

    fn iscsi(&mut self, at: usize, lun: String) -> Option<Next> {
        let mut above = self.chain[at + 1..].iter().map(|(devpath, _)| devpath);
        let session = above.find(|devpath| last_component(devpath).starts_with(b"session"))?;
        let target = self.class_value("iscsi_session", session, "targetname")?;
        let name = sysname(session);
        let connection = [b"connection", sysnum(&name).as_bytes(), b":0"].concat();
        let address = self.class_value("iscsi_connection", &connection, "persistent_address")?;
        let port = self.class_value("iscsi_connection", &connection, "persistent_port")?;
        self.has_parent = true;
        self.add(
            [b"ip-", address.as_slice(), b":", &port, b"-iscsi-", &target, b"-", lun.as_bytes()].concat(),
        );
        Some(Next::Above(at))
    }

    fn ata(&mut self, at: usize) -> Option<Next> {
        let [_, bus, target, _] = scsi_numbers(&sysname(self.devpath(at)))?;
        let host = self.scsi_above(at, "scsi_host")?;
        let number = self.class_value("ata_port", self.above(host, 1)?, "port_no")?;
        let place = match bus {
            0 => format!("ata-{number}.{target}"),
            bus => format!("ata-{number}.{bus}.0"),
        };
        self.has_ata = true;
        prepend(&mut self.compat, format!("ata-{number}").as_bytes());
        self.add(place);
        Some(Next::Above(at))
    }

    fn hyper_v(&mut self, at: usize, guid_len: usize, lun: String) -> Option<Next> {
        let host = self.scsi_above(at, "scsi_host")?;
        let guid = self.sysfs.value(self.above(host, 1)?, b"device_id")?;
        if guid.len() < guid_len {
            return None;
        }
        let digits: Vec<u8> = guid.iter().copied().filter(|b| !matches!(b, b'{' | b'}' | b'-')).collect();
        self.has_parent = true;
        self.add([b"vmbus-", digits.as_slice(), b"-", lun.as_bytes()].concat());
        Some(Next::Above(at))
    }

    /// Hosts are numbered as they come. Only the distance to the first host of the adapter stays the same.
    fn scsi_default(&mut self, at: usize) -> Option<Next> {
        let [host_number, bus, target, lun] = scsi_numbers(&sysname(self.devpath(at)))?;
        let host = self.scsi_above(at, "scsi_host")?;
        let folder = self.devpath(host).rsplit_once_str("/")?.0;
        let first = self
            .sysfs
            .list(folder, b"")
            .iter()
            .filter_map(|name| parse_decimal(name.strip_prefix(b"host")?))
            .min()?;
        let place = host_number.checked_sub(first)?;
        self.add(format!("scsi-{place}:{bus}:{target}:{lun}"));
        Some(Next::Above(host))
    }
}

/// `usb1`.
fn is_root_hub(sysname: &[u8]) -> bool {
    sysname.strip_prefix(b"usb").is_some_and(|number| parse_decimal(number).is_some())
}

/// The disk in `c0d1`, partition and all.
fn cciss_disk(sysname: &[u8]) -> Option<u32> {
    let (controller, rest) = sysname.strip_prefix(b"c")?.split_once_str("d")?;
    parse_decimal(controller)?;
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    parse_decimal(&rest[..digits])
}

/// Host, bus, target and LUN of `8:0:3:2`.
fn scsi_numbers(sysname: &[u8]) -> Option<[u32; 4]> {
    let numbers: Option<Vec<u32>> = sysname.split(|&b| b == b':').map(parse_decimal).collect();
    numbers?.try_into().ok()
}

/// `lun-1`, or the eight bytes of the address method for a number beyond 255.
fn scsi_lun(number: &[u8]) -> Option<String> {
    let lun: u64 = number.to_str().ok()?.parse().ok()?;
    Some(match lun {
        0..256 => format!("lun-{lun}"),
        _ => format!("lun-0x{:04x}{:04x}00000000", lun & 0xffff, (lun >> 16) & 0xffff),
    })
}

#[cfg(test)]
mod tests;
