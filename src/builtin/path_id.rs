//! path_id: the shortest path that says where a device is plugged in (builtins.md 1.4).
//!
//! The walk goes from the device to the root and puts a component in front for each bus it knows.
//! What must stay true: names of links in `/dev/disk/by-path` come from here, so a component once
//! given must never change.

use super::success;
use super::value::{parse_decimal, parse_hex};
use crate::model::Event;
use crate::model::device::{last_component, sysname, sysnum};
use crate::rules::ask::BuiltinResult;
use crate::world::sysfs::Sysfs;
use bstr::{BString, ByteSlice};

/// Finds the path of the event's device.
pub fn run(sysfs: &Sysfs, event: &Event) -> BuiltinResult {
    let mut walk = Walk {
        sysfs,
        event,
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

/// Where the walk goes on.
enum Next {
    /// From the parent of this device.
    Above(BString),
    /// It ends: what was collected is judged.
    End,
}

struct Walk<'a> {
    sysfs: &'a Sysfs,
    event: &'a Event,
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
    /// Walks up. None: the builtin fails whatever was collected.
    fn climb_to_the_root(&mut self) -> Option<()> {
        let mut at = Some(self.event.device.devpath.clone());
        while let Some(device) = at {
            let subsystem = match device == self.event.device.devpath {
                true => self.event.device.subsystem.clone(),
                false => self.sysfs.subsystem(&device).unwrap_or_default(),
            };
            at = match self.step(device, &subsystem)? {
                Next::Above(device) => self.sysfs.parent(&device),
                Next::End => None,
            };
        }
        Some(())
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

    /// The topmost of the consecutive ancestors in this subsystem, the device itself included.
    fn topmost(&self, mut device: BString, subsystem: &str) -> Next {
        while let Some(parent) = self.sysfs.parent(&device) {
            if self.sysfs.subsystem(&parent).is_none_or(|s| s != subsystem) {
                break;
            }
            device = parent;
        }
        Next::Above(device)
    }

    /// Looks at one device. None: the builtin fails.
    fn step(&mut self, device: BString, subsystem: &[u8]) -> Option<Next> {
        let name = sysname(&device);
        let named = |subsystem: &str| [subsystem.as_bytes(), b"-", name.as_slice()].concat();
        Some(match subsystem {
            b"scsi_tape" => {
                self.tape(&name);
                Next::Above(device)
            }
            b"scsi" => {
                self.has_transport = true;
                self.scsi(device).unwrap_or(Next::End)
            }
            b"cciss" => match cciss_disk(&name) {
                Some(disk) => {
                    self.has_transport = true;
                    self.add(format!("cciss-disk{disk}"));
                    self.topmost(device, "cciss")
                }
                None => Next::End,
            },
            b"usb" => {
                self.has_transport = true;
                self.usb(device)
            }
            b"bcma" => match name.strip_prefix(b"bcma").and_then(|rest| rest.split_once_str(":")) {
                Some((_, core)) if parse_decimal(core).is_some() => {
                    self.has_transport = true;
                    self.add([b"bcma-", core].concat());
                    Next::Above(device)
                }
                _ => Next::End,
            },
            b"serio" => {
                let number = sysnum(&name);
                if !number.is_empty() {
                    self.add([b"serio-", number.as_bytes()].concat());
                }
                self.topmost(device, "serio")
            }
            b"spi" => {
                let number = sysnum(&name);
                if !number.is_empty() {
                    self.add([b"cs-", number.as_bytes()].concat());
                }
                self.topmost(device, "spi")
            }
            b"pci" => self.bus(device, "pci", named("pci"), false),
            b"acpi" => self.bus(device, "acpi", named("acpi"), false),
            b"xen" => self.bus(device, "xen", named("xen"), false),
            b"platform" => self.bus(device, "platform", named("platform"), true),
            b"amba" => self.bus(device, "amba", named("amba"), true),
            b"scm" => self.bus(device, "scm", named("scm"), true),
            b"ccw" => self.bus(device, "ccw", named("ccw"), true),
            b"ccwgroup" => self.bus(device, "ccwgroup", named("ccwgroup"), true),
            b"iucv" => self.bus(device, "iucv", named("iucv"), true),
            b"virtio" => {
                self.has_transport = true;
                self.topmost(device, "virtio")
            }
            b"ap" => {
                let value = |attribute: &str| self.sysfs.value(&device, attribute.as_bytes());
                let component = match (value("type"), value("ap_functions")) {
                    (Some(kind), Some(functions)) => {
                        [b"ap-", kind.as_slice(), b"-", functions.as_slice()].concat()
                    }
                    _ => named("ap"),
                };
                self.has_transport = true;
                self.has_parent = true;
                self.add(component);
                self.topmost(device, "ap")
            }
            b"nvme" | b"nvme-subsystem" => self.nvme(device, subsystem == b"nvme-subsystem")?,
            _ => Next::Above(device),
        })
    }

    /// A bus that can be the root of a path.
    fn bus(&mut self, device: BString, subsystem: &str, component: Vec<u8>, transport: bool) -> Next {
        self.has_parent = true;
        self.has_transport |= transport;
        self.add_both(component);
        self.topmost(device, subsystem)
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

    fn usb(&mut self, device: BString) -> Next {
        let kind = self.sysfs.devtype(&device);
        let is_device = kind.is_some_and(|k| k == "usb_interface" || k == "usb_device");
        let name = sysname(&device);
        let Some((_, port)) = name.split_once_str("-").filter(|_| is_device) else {
            return Next::Above(device);
        };
        let mut hub = device;
        while !is_root_hub(&sysname(&hub)) {
            match self.sysfs.parent(&hub) {
                Some(parent) => hub = parent,
                None => return Next::End,
            }
        }
        let revision = match self.usb_revision(&hub) {
            Some(revision) => format!("usbv{revision}"),
            None => "usb".into(),
        };
        self.has_transport = true;
        self.add([revision.as_bytes(), b"-0:", port].concat());
        Next::Above(hub)
    }

    /// Revision of the bus by its root hub.
    fn usb_revision(&self, hub: &[u8]) -> Option<u32> {
        match parse_hex(&self.sysfs.value(hub, b"bDeviceProtocol")?)? {
            0 if self.sysfs.value(hub, b"speed").is_some_and(|s| s == "480") => Some(2),
            0 => Some(1),
            1 | 2 => Some(2),
            3 => Some(3),
            _ => None,
        }
    }

    fn nvme(&mut self, device: BString, is_multipath: bool) -> Option<Next> {
        if let Some(nsid) = self.sysfs.value(&self.event.device.devpath, b"nsid") {
            self.has_transport = true;
            self.has_parent = true;
            self.add_both([b"nvme-", nsid.as_slice()].concat());
        }
        if !is_multipath {
            return Some(self.topmost(device, "nvme"));
        }
        let rest = self.event.device.sysname.strip_prefix(b"nvme")?;
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let controller = [b"nvme", &rest[..digits]].concat();
        let real = self.sysfs.device_of(b"nvme", &controller).filter(|_| digits > 0)?;
        if real.starts_with(b"/devices/virtual/") {
            return None;
        }
        Some(self.topmost(real, "nvme"))
    }

    // -- SCSI (1.4.1). None ends the walk. -------------------------------------------------------

    fn scsi(&mut self, device: BString) -> Option<Next> {
        if self.sysfs.devtype(&device).is_none_or(|kind| kind != "scsi_device") {
            return Some(Next::Above(device));
        }
        if let Some(id) = self.sysfs.value(&device, b"ieee1394_id") {
            self.has_parent = true;
            self.add([b"ieee1394-0x", id.as_slice()].concat());
            return Some(self.topmost(device, "scsi"));
        }
        let lies_in = |part: &str| device.contains_str(part);
        let lun = scsi_lun(sysnum(&sysname(&device)));
        if lies_in("/rport-") {
            return self.fibre_channel(device, lun?);
        }
        if lies_in("/end_device-") {
            return self.sas(device, lun?);
        }
        if lies_in("/session") {
            return self.iscsi(device, lun?);
        }
        if lies_in("/ata") {
            return self.ata(device);
        }
        if lies_in("/vmbus_") {
            return self.hyper_v(device, 37, lun?);
        }
        if lies_in("/VMBUS") {
            return self.hyper_v(device, 38, lun?);
        }
        self.scsi_default(device)
    }

    /// The nearest ancestor with this DEVTYPE in subsystem scsi.
    fn scsi_ancestor(&self, device: &[u8], devtype: &str) -> Option<BString> {
        let mut at = self.sysfs.parent(device)?;
        while self.sysfs.subsystem(&at).is_none_or(|s| s != "scsi")
            || self.sysfs.devtype(&at).is_none_or(|t| t != devtype)
        {
            at = self.sysfs.parent(&at)?;
        }
        Some(at)
    }

    /// An attribute of the device of a class that has the name of another device.
    fn class_value(&self, class: &str, named_like: &[u8], attribute: &str) -> Option<BString> {
        let device = self.sysfs.device_of(class.as_bytes(), &sysname(named_like))?;
        self.sysfs.value(&device, attribute.as_bytes())
    }

    fn fibre_channel(&mut self, device: BString, lun: String) -> Option<Next> {
        let target = self.scsi_ancestor(&device, "scsi_target")?;
        let port = self.class_value("fc_transport", &target, "port_name")?;
        self.has_parent = true;
        self.add([b"fc-", port.as_slice(), b"-", lun.as_bytes()].concat());
        Some(Next::Above(device))
    }

    fn sas(&mut self, device: BString, lun: String) -> Option<Next> {
        let target = self.scsi_ancestor(&device, "scsi_target")?;
        let end_device = self.sysfs.parent(&target)?;
        let port = self.sysfs.parent(&end_device)?;
        let component = match self.class_value("sas_port", &port, "num_phys")?.as_slice() {
            b"1" => {
                let phy = self.class_value("sas_device", &end_device, "phy_identifier")?;
                let above = self.sysfs.parent(&port)?;
                match self.class_value("sas_device", &above, "sas_address") {
                    Some(expander) => format!("sas-exp{expander}-phy{phy}-{lun}"),
                    None => format!("sas-phy{phy}-{lun}"),
                }
            }
            _ => {
                let address = self.class_value("sas_device", &end_device, "sas_address")?;
                format!("sas-{address}-{lun}")
            }
        };
        self.has_parent = true;
        self.add(component);
        Some(Next::Above(device))
    }

    fn iscsi(&mut self, device: BString, lun: String) -> Option<Next> {
        let mut session = self.sysfs.parent(&device)?;
        while !last_component(&session).starts_with(b"session") {
            session = self.sysfs.parent(&session)?;
        }
        let target = self.class_value("iscsi_session", &session, "targetname")?;
        let name = sysname(&session);
        let connection = [b"connection", sysnum(&name).as_bytes(), b":0"].concat();
        let address = self.class_value("iscsi_connection", &connection, "persistent_address")?;
        let port = self.class_value("iscsi_connection", &connection, "persistent_port")?;
        self.has_parent = true;
        self.add(
            [b"ip-", address.as_slice(), b":", &port, b"-iscsi-", &target, b"-", lun.as_bytes()].concat(),
        );
        Some(Next::Above(device))
    }

    fn ata(&mut self, device: BString) -> Option<Next> {
        let [_, bus, target, _] = scsi_numbers(&sysname(&device))?;
        let host = self.scsi_ancestor(&device, "scsi_host")?;
        let port = self.sysfs.parent(&host)?;
        let number = self.class_value("ata_port", &port, "port_no")?;
        let place = match bus {
            0 => format!("ata-{number}.{target}"),
            bus => format!("ata-{number}.{bus}.0"),
        };
        self.has_ata = true;
        prepend(&mut self.compat, format!("ata-{number}").as_bytes());
        self.add(place);
        Some(Next::Above(device))
    }

    fn hyper_v(&mut self, device: BString, guid_len: usize, lun: String) -> Option<Next> {
        let host = self.scsi_ancestor(&device, "scsi_host")?;
        let guid = self.sysfs.value(&self.sysfs.parent(&host)?, b"device_id")?;
        if guid.len() < guid_len {
            return None;
        }
        let digits: Vec<u8> = guid.iter().copied().filter(|b| !matches!(b, b'{' | b'}' | b'-')).collect();
        self.has_parent = true;
        self.add([b"vmbus-", digits.as_slice(), b"-", lun.as_bytes()].concat());
        Some(Next::Above(device))
    }

    /// Hosts are numbered as they come; what lasts is the distance to the first one of the adapter.
    fn scsi_default(&mut self, device: BString) -> Option<Next> {
        let [host_number, bus, target, lun] = scsi_numbers(&sysname(&device))?;
        let host = self.scsi_ancestor(&device, "scsi_host")?;
        let folder = host.rfind_byte(b'/').map(|at| &host[..at])?;
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

/// `lun-1`, or the eight bytes of the address method for what is beyond 255.
fn scsi_lun(number: &[u8]) -> Option<String> {
    let lun: u64 = number.to_str().ok()?.parse().ok()?;
    Some(match lun {
        0..256 => format!("lun-{lun}"),
        _ => format!("lun-0x{:04x}{:04x}00000000", lun & 0xffff, (lun >> 16) & 0xffff),
    })
}

#[cfg(test)]
#[path = "path_id_tests.rs"]
mod tests;
