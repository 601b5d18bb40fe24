//! A device as its uevent describes it (rules.md section 7).
//!
//! Identity and numbers come from the uevent alone, never from a path: by the time the event is
//! looked at, the path may belong to another device.

use super::properties::Property;
use super::{DeviceId, Properties};
use bstr::{BStr, BString, ByteSlice};

/// A device number. `major` is never 0: MAJOR=0 means that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DevNum {
    pub major: u32,
    pub minor: u32,
}

impl DevNum {
    /// Parses `major:minor`, decimal.
    pub fn parse(text: &[u8]) -> Option<DevNum> {
        let (major, minor) = text.split_once_str(":")?;
        Some(DevNum { major: parse_u32(major)?, minor: parse_u32(minor)? })
    }
}

impl std::fmt::Display for DevNum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// The index of a network interface, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IfIndex(pub u32);

/// Decimal digits only: no sign, no blanks.
pub(crate) fn parse_u32(text: &[u8]) -> Option<u32> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    text.to_str().ok()?.parse().ok()
}

/// Octal digits only.
fn parse_octal(text: &[u8]) -> Option<u32> {
    let digits = text.to_str().ok().filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
    u32::from_str_radix(digits, 8).ok()
}

/// What the uevent (or, for the tool, the `uevent` file) says of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Path without `/sys` in front.
    pub devpath: BString,
    /// Last component of devpath, `!` turned into `/`.
    pub sysname: BString,
    /// Empty only for devices looked up in sysfs that have none.
    pub subsystem: BString,
    pub devtype: Option<BString>,
    /// DRIVER of the message; the `driver` symlink is asked for when the message has none.
    pub driver: Option<BString>,
    pub devnum: Option<DevNum>,
    pub ifindex: Option<IfIndex>,
    /// Full path of the node, `/dev/...`.
    pub devnode: Option<BString>,
    /// What the kernel wants for the node: DEVUID, DEVGID, DEVMODE (rules.md 11.1).
    pub node_uid: Option<u32>,
    pub node_gid: Option<u32>,
    pub node_mode: Option<u32>,
}

impl Device {
    /// Takes the typed fields out of `properties`. `DEVNAME` must already be absolute
    /// ([`super::uevent`] sees to that).
    pub fn new(devpath: BString, subsystem: BString, properties: &Properties) -> Device {
        let mut device = Device {
            sysname: sysname(&devpath),
            devtype: None,
            driver: None,
            devnum: None,
            ifindex: None,
            devnode: None,
            node_uid: None,
            node_gid: None,
            node_mode: None,
            devpath,
            subsystem,
        };
        let (mut major, mut minor) = (None, None);
        let text = |value: &BStr| (!value.is_empty()).then(|| value.to_owned());
        // One pass: looking for each of them costs more.
        for Property { name, value, .. } in properties.iter() {
            match name.as_bytes() {
                b"MAJOR" => major = parse_u32(value).filter(|&major| major > 0),
                b"MINOR" => minor = parse_u32(value),
                b"IFINDEX" => device.ifindex = parse_u32(value).filter(|&i| i > 0).map(IfIndex),
                b"DEVNAME" => device.devnode = text(value),
                b"DEVTYPE" => device.devtype = text(value),
                b"DRIVER" => device.driver = text(value),
                b"DEVUID" => device.node_uid = parse_u32(value),
                b"DEVGID" => device.node_gid = parse_u32(value),
                b"DEVMODE" => device.node_mode = parse_octal(value),
                _ => {}
            }
        }
        device.devnum = major.map(|major| DevNum { major, minor: minor.unwrap_or(0) });
        device
    }

    /// Whether the device has a block node (otherwise a number means a character node).
    pub fn is_block(&self) -> bool {
        self.subsystem == "block"
    }

    /// Its name in `/run/udev`; None for a device without number, ifindex and subsystem, which is
    /// not stored anywhere.
    pub fn id(&self) -> Option<DeviceId> {
        if let Some(devnum) = self.devnum {
            return Some(if self.is_block() { DeviceId::Block(devnum) } else { DeviceId::Char(devnum) });
        }
        if let Some(ifindex) = self.ifindex {
            return Some(DeviceId::Net(ifindex));
        }
        let last = last_component(&self.devpath);
        if self.subsystem.is_empty() || last.is_empty() {
            return None;
        }
        let sysname = if self.subsystem == "drivers" { driver_name(&self.devpath)? } else { last.into() };
        Some(DeviceId::Named { subsystem: self.subsystem.clone(), sysname })
    }

    /// Trailing digits of the sysname; empty if there are none or if the name is all digits.
    pub fn sysnum(&self) -> &BStr {
        sysnum(&self.sysname)
    }
}

/// Last component of a path.
pub fn last_component(path: &[u8]) -> &BStr {
    let start = path.rfind_byte(b'/').map_or(0, |i| i + 1);
    path[start..].as_bstr()
}

/// Whether a path is this folder or lies in it.
pub fn lies_in(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Last component of devpath with `!` turned into `/`.
pub fn sysname(devpath: &[u8]) -> BString {
    let mut name = last_component(devpath).to_owned();
    name.iter_mut().filter(|b| **b == b'!').for_each(|b| *b = b'/');
    name
}

/// Trailing digits of a sysname; empty if there are none or if the name is all digits.
pub fn sysnum(sysname: &[u8]) -> &BStr {
    let digits = sysname.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    if digits == sysname.len() { b"".as_bstr() } else { sysname[sysname.len() - digits..].as_bstr() }
}

/// Whether the kernel and udev take this as the name of a network interface (rules.md 9.4, builtins.md
/// 2.4): 1 to `max` bytes (15; alternative names 127), printable ASCII without `: / %`, not only
/// digits, not `.`, `..`, `all`, `default`.
pub fn is_interface_name(name: &[u8], max: usize) -> bool {
    (1..=max).contains(&name.len())
        && name.iter().all(|b| (33..=126).contains(b) && !matches!(b, b':' | b'/' | b'%'))
        && !name.iter().all(u8::is_ascii_digit)
        && !matches!(name, b"." | b".." | b"all" | b"default")
}

/// `<bus>:<name>` of `/bus/<bus>/drivers/<name>`.
fn driver_name(devpath: &[u8]) -> Option<BString> {
    let at = devpath.find("/drivers")?;
    let bus = last_component(&devpath[..at]);
    let name = devpath[at + "/drivers".len()..].strip_prefix(b"/").unwrap_or(b"drivers");
    let mut id = bus.to_owned();
    id.push(b':');
    id.extend_from_slice(name);
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(devpath: &str, subsystem: &str, properties: &[(&str, &str)]) -> Device {
        Device::new(devpath.into(), subsystem.into(), &properties.iter().copied().collect())
    }

    #[test]
    fn numbers_win_over_names() {
        let disk =
            device("/devices/a/sda", "block", &[("MAJOR", "8"), ("MINOR", "0"), ("DEVNAME", "/dev/sda")]);
        assert_eq!(disk.id().unwrap().render(), "b8:0");
        assert_eq!(
            device("/d/null", "mem", &[("MAJOR", "1"), ("MINOR", "3")]).id().unwrap().render(),
            "c1:3"
        );
        assert_eq!(device("/d/net/lo", "net", &[("IFINDEX", "1")]).id().unwrap().render(), "n1");
        assert_eq!(device("/module/x", "module", &[("MAJOR", "0")]).id().unwrap().render(), "+module:x");
        assert_eq!(
            device("/bus/pci/drivers/virtio-pci", "drivers", &[]).id().unwrap().render(),
            "+drivers:pci:virtio-pci"
        );
    }

    #[test]
    fn names_of_interfaces_are_checked_like_the_kernel_does() {
        for good in ["eth0", "exact15chars000", "a!b", "0x1", "..."] {
            assert!(is_interface_name(good.as_bytes(), 15), "{good}");
        }
        for bad in
            ["", "exactly16chars00", "123", ".", "..", "all", "default", "a b", "a:b", "a/b", "a%b", "\u{fc}"]
        {
            assert!(!is_interface_name(bad.as_bytes(), 15), "{bad}");
        }
    }

    #[test]
    fn an_exclamation_mark_is_a_slash_in_the_name_but_not_in_the_id() {
        let d = device("/devices/fake!blockdev0", "x", &[]);
        assert_eq!(d.sysname, "fake/blockdev0");
        assert_eq!(d.sysnum(), "0");
        assert_eq!(d.id().unwrap().render(), "+x:fake!blockdev0");
        assert_eq!(sysnum(b"123"), "");
    }
}
