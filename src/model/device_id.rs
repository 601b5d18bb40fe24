//! The name of a device in `/run/udev` (interop.md 1.2): `b8:0`, `c1:3`, `n2`, `+usb:1-1:1.0`.

use super::{DevNum, IfIndex};
use bstr::{BString, ByteSlice};

/// Identity of a device: what its record, tag files and claims are named by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceId {
    /// A block device, `b<major>:<minor>`.
    Block(DevNum),
    /// A character device, `c<major>:<minor>`.
    Char(DevNum),
    /// A network interface, `n<ifindex>`.
    Net(IfIndex),
    /// Anything else, `+<subsystem>:<last component of devpath>`; drivers are
    /// `+drivers:<bus>:<name>`, with `<bus>:<name>` in `sysname`.
    Named { subsystem: BString, sysname: BString },
}

impl DeviceId {
    /// The file name of this id.
    pub fn render(&self) -> BString {
        match self {
            DeviceId::Block(n) => format!("b{}:{}", n.major, n.minor).into(),
            DeviceId::Char(n) => format!("c{}:{}", n.major, n.minor).into(),
            DeviceId::Net(i) => format!("n{}", i.0).into(),
            DeviceId::Named { subsystem, sysname } => {
                let mut id = BString::from("+");
                id.extend_from_slice(subsystem);
                id.push(b':');
                id.extend_from_slice(sysname);
                id
            }
        }
    }

    /// The id of this text; None if it has none of the four forms.
    pub fn parse(text: &[u8]) -> Option<DeviceId> {
        let (kind, rest) = text.split_first()?;
        match kind {
            b'b' => DevNum::parse(rest).map(DeviceId::Block),
            b'c' => DevNum::parse(rest).map(DeviceId::Char),
            b'n' => Some(DeviceId::Net(IfIndex(rest.to_str().ok()?.parse().ok().filter(|&i| i > 0)?))),
            b'+' => {
                let (subsystem, sysname) = rest.split_once_str(":")?;
                let plain = |part: &[u8]| !part.is_empty() && !part.contains(&b'/');
                (plain(subsystem) && plain(sysname))
                    .then(|| DeviceId::Named { subsystem: subsystem.into(), sysname: sysname.into() })
            }
            _ => None,
        }
    }
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.render(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_four_forms_go_both_ways() {
        for text in ["b8:0", "c1:3", "n1", "+usb:1-1:1.0", "+drivers:pci:virtio-pci", "+acpi:LNXSYSTM:00"] {
            assert_eq!(DeviceId::parse(text.as_bytes()).expect(text).render(), text);
        }
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in ["", "b", "b8", "b8:", "c-1:2", "n0", "nx", "+x", "+:y", "+x:", "+a/b:c", "+a:../b", "z1"]
        {
            assert_eq!(DeviceId::parse(text.as_bytes()), None, "{text}");
        }
    }
}
