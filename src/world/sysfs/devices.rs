//! Which device is meant: by a path, an id, a node, or `[subsystem/sysname]` (rules.md 3.4, interop.md 1.10).

use super::paths::{fold_symlink, is_file_name};
use super::read::list;
use super::{Sysfs, hardware};
use crate::model::{DevNum, Device, DeviceId, Properties};
use bstr::{BString, ByteSlice};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

impl Sysfs {
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
        // For such a device the file would ask the hardware, and it has neither node nor number to tell of.
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

    /// Devpath of the device whose node is at this path; symlinks to it are followed. None if the file is no device
    /// node.
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
                let folded = fold_symlink(path, target.as_os_str().as_bytes());
                folded.or_else(|| self.real_path(path, b""))
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Some(path.into()),
            Err(_) => None,
        }
    }
}
