//! The device or file that an operation works on, so that none is asked twice while it does not answer.

use crate::model::operation::Operation;
use bstr::{BString, ByteSlice};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// For people: what is done to `object`.
    pub verb: &'static str,
    pub object: BString,
    /// The device (by node or syspath) or file over which another helper would hang too. Empty for operations on
    /// many.
    pub device: BString,
    pub is_for_disk: bool,
}

impl Subject {
    /// That of an operation.
    pub fn of(operation: &Operation) -> Subject {
        let (verb, object, device) = match operation {
            Operation::WriteAttr { path, .. } => ("write", path.clone(), folder(path)),
            Operation::WriteSysctl { path, .. } => ("write", path.clone(), path.clone()),
            Operation::ReadAttr { sys, place } => {
                let device: BString = [sys.as_slice(), &place.devpath].concat().into();
                ("read", [device.as_slice(), b"/", &place.name].concat().into(), device)
            }
            Operation::ReadFile { path } => ("read", path.clone(), path.clone()),
            Operation::TestFile { path } => ("look for", path.clone(), path.clone()),
            Operation::LookAtRules { .. } => ("look at", "the folders of rules".into(), "rules".into()),
            Operation::ReadRules { .. } => ("read", "the rules".into(), "rules".into()),
            Operation::PermanentAddress { ifname } => {
                ("ask for the address of", ifname.clone(), ifname.clone())
            }
            Operation::ReReadPartitions { devnode, .. } => {
                ("read the partitions of", devnode.clone(), devnode.clone())
            }
            Operation::Trigger { syspaths, .. } => match syspaths.as_slice() {
                [one] => ("trigger", one.clone(), one.clone()),
                many => ("trigger", format!("{} devices", many.len()).into(), BString::default()),
            },
            Operation::LockDisk { path } => ("open", path.clone(), path.clone()),
            Operation::CloseDisk { disk } => ("close", disk.clone(), disk.clone()),
            Operation::SetReadOnly { path, .. } => ("make read-only", path.clone(), path.clone()),
        };
        Subject { verb, object, device, is_for_disk: operation.is_for_disk() }
    }
}

fn folder(path: &BString) -> BString {
    path.rsplit_once_str("/").map_or(path.as_slice(), |(folder, _)| folder).into()
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::operation::AttrPlace;

    #[test]
    fn all_that_waits_for_one_device_has_one_name() {
        let read = Subject::of(&Operation::ReadAttr {
            sys: "/sys".into(),
            place: AttrPlace { devpath: "/devices/x".into(), name: "vpd".into() },
        });
        let write =
            Subject::of(&Operation::WriteAttr { path: "/sys/devices/x/state".into(), value: "1".into() });
        assert_eq!((read.to_string().as_str(), &read.device), ("read /sys/devices/x/vpd", &write.device));
        let lock = Subject::of(&Operation::LockDisk { path: "/dev/sda".into() });
        let table = Subject::of(&Operation::ReReadPartitions {
            devnode: "/dev/sda".into(),
            syspath: "/sys/block/sda".into(),
        });
        assert!(lock.device == table.device && lock.is_for_disk && !read.is_for_disk);
        let syspaths = vec!["/sys/a".into(), "/sys/b".into()];
        let many = Subject::of(&Operation::Trigger { text: "add".into(), syspaths });
        assert_eq!((many.to_string().as_str(), many.device.as_slice()), ("trigger 2 devices", &b""[..]));
    }
}
