//! Attributes that interfaces of a kind, and their queues, are known not to have.
//!
//! Rules of USB devices ask every device for `idVendor`. That a `veth` has none need not be looked up for
//! each: what files such a folder holds is a constant of the kind of link, because the kernel's drivers of
//! these kinds add none of their own later (net/core/net-sysfs.c has the files of all interfaces).
//!
//! Must stay true: only absence is remembered, and only after the folder itself was seen to be there; kinds
//! whose drivers make files after the interface is announced (`ipoib`) are not in the list.

use crate::links::Table;
use bstr::BString;
use std::collections::{HashMap, HashSet};

/// See the module; IFLA_INFO_KIND.
const KINDS: [&str; 20] = [
    "bareudp",
    "bond",
    "bridge",
    "dummy",
    "geneve",
    "gre",
    "gretap",
    "ifb",
    "ip6gre",
    "ip6tnl",
    "ipip",
    "ipvlan",
    "macvlan",
    "sit",
    "tun",
    "veth",
    "vlan",
    "vrf",
    "vxlan",
    "wireguard",
];

/// Names remembered of a family at most.
const MAX: usize = 1024;

/// Whose files are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Family {
    kind: &'static str,
    part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    Link,
    Rx,
    Tx,
}

impl Family {
    /// The family of a device of this subsystem.
    pub fn of(devpath: &[u8], subsystem: &[u8], links: &Table) -> Option<Family> {
        let mut names = devpath.rsplit(|&b| b == b'/');
        let part = match subsystem {
            b"net" => Part::Link,
            b"queues" => {
                let part = match names.next()?.split(|&b| b == b'-').next()? {
                    b"rx" => Part::Rx,
                    b"tx" => Part::Tx,
                    _ => return None,
                };
                names.next().filter(|folder| *folder == b"queues")?;
                part
            }
            _ => return None,
        };
        let link = links.by_name(names.next()?)?;
        let kind = KINDS.into_iter().find(|kind| *kind.as_bytes() == *link.kind)?;
        (names.next() == Some(b"net")).then_some(Family { kind, part })
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Absent(HashMap<Family, HashSet<BString>>);

impl Absent {
    /// Whether this attribute is known to be absent.
    pub fn contains(&self, family: Family, name: &BString) -> bool {
        self.0.get(&family).is_some_and(|names| names.contains(name))
    }

    /// Remembers that it is. A name with a slash leads to a folder that may come later, as `brport/` does.
    pub fn insert(&mut self, family: Family, name: &BString) {
        let names = self.0.entry(family).or_default();
        if names.len() < MAX && !name.contains(&b'/') {
            names.insert(name.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::{Origin, wire};

    fn table(links: &[(u32, &str, &str)]) -> Table {
        let mut table = Table::new();
        for (ifindex, name, kind) in links {
            let info = wire::Builder::new(0, 0, 0).attribute(wire::IFLA_INFO_KIND, kind.as_bytes()).finish();
            let message = wire::Builder::new(wire::RTM_NEWLINK, 0, 0)
                .ifinfo(*ifindex)
                .u32(wire::IFLA_MTU, 1500)
                .text(wire::IFLA_IFNAME, name.as_bytes())
                .attribute(wire::IFLA_LINKINFO, &info[wire::HEADER..])
                .finish();
            table.apply(&message, Origin::Notification, &mut Vec::new());
        }
        table
    }

    #[test]
    fn what_one_interface_lacks_those_of_its_kind_lack() {
        let links = table(&[(1, "a", "veth"), (2, "b", "veth"), (3, "ib0", "ipoib"), (4, "m", "macvlan")]);
        let of =
            |devpath: &str, subsystem: &str| Family::of(devpath.as_bytes(), subsystem.as_bytes(), &links);
        let a = of("/devices/virtual/net/a", "net").unwrap();
        assert_eq!(of("/devices/virtual/net/b", "net"), Some(a));
        for (devpath, subsystem) in [
            ("/devices/virtual/net/m", "net"),
            ("/devices/virtual/net/a/queues/rx-0", "queues"),
            ("/devices/virtual/net/a/queues/tx-0", "queues"),
        ] {
            assert_ne!(of(devpath, subsystem).expect(devpath), a);
        }
        assert_eq!(
            of("/devices/virtual/net/a/queues/rx-0", "queues"),
            of("/devices/virtual/net/b/queues/rx-7", "queues")
        );
        for (devpath, subsystem) in [
            ("/devices/virtual/net/ib0", "net"),
            ("/devices/virtual/net/unknown", "net"),
            ("/devices/virtual/block/a", "block"),
            ("/devices/virtual/x/a", "net"),
            ("/devices/virtual/net/a/other/rx-0", "queues"),
            ("/devices/virtual/net/a/queues/xx-0", "queues"),
            ("a", "net"),
            ("", "queues"),
        ] {
            assert_eq!(of(devpath, subsystem), None, "{devpath}");
        }
        let mut absent = Absent::default();
        absent.insert(a, &"idVendor".into());
        absent.insert(a, &"brport/state".into());
        assert!(absent.contains(a, &"idVendor".into()) && !absent.contains(a, &"idProduct".into()));
        assert!(!absent.contains(a, &"brport/state".into()), "the folder may come later");
        let queue = of("/devices/virtual/net/a/queues/rx-0", "queues").unwrap();
        assert!(!absent.contains(queue, &"idVendor".into()));
    }
}
