//! A machine for tests: devices in a temporary tree, and the builtins that are asked about them.

use super::naming_scheme::NamingScheme;
use super::{Builtins, Call};
use crate::links::Table;
use crate::model::device::last_component;
use crate::model::{Action, Event, Properties, SeqNum, Uevent};
use crate::rules::ask::{BuiltinName, BuiltinResult};
use crate::world::sysfs::Sysfs;
use crate::world::tree::Tree;
use bstr::{BStr, BString, ByteSlice};

pub(super) struct Machine {
    pub tree: Tree,
    /// NET_NAMING_SCHEME.
    pub scheme: &'static str,
    pub command_line: &'static str,
}

impl Machine {
    pub(super) fn new() -> Machine {
        Machine { tree: Tree::new(), scheme: "latest", command_line: "" }
    }

    /// Creates a device, below /devices, with attributes; it is found by its class too.
    pub(super) fn device(&self, devpath: &str, subsystem: &str, attributes: &[(&str, &str)]) -> &Machine {
        let is_typed = attributes.iter().any(|(name, _)| *name == "uevent");
        if !is_typed {
            self.tree.file(&format!("sys{devpath}/uevent"), "");
        }
        if !subsystem.is_empty() {
            self.tree.link(&format!("sys{devpath}/subsystem"), &format!("/nowhere/{subsystem}"));
            let name = last_component(devpath.as_bytes());
            self.tree.link(&format!("sys/class/{subsystem}/{name}"), &format!("../..{devpath}"));
        }
        for (name, value) in attributes {
            let value = value.to_string() + "\n";
            self.tree.file(&format!("sys{devpath}/{name}"), value);
        }
        self
    }

    /// Creates a PCI device; `config` is there, with its multifunction bit.
    pub(super) fn pci(&self, devpath: &str, multifunction: bool, attributes: &[(&str, &str)]) -> &Machine {
        self.device(devpath, "pci", attributes);
        let mut config = [1; 64];
        config[0x0e] = if multifunction { 0x80 } else { 0 };
        self.tree.file(&format!("sys{devpath}/config"), config);
        self
    }

    /// Creates an interface: ifindex 5, Ethernet, a permanent address, dev_port 0. Attributes may
    /// replace these or, with `-`, take them away.
    pub(super) fn net(&self, devpath: &str, attributes: &[(&str, &str)]) -> &Machine {
        self.device(
            devpath,
            "net",
            &[
                ("ifindex", "5"),
                ("iflink", "5"),
                ("type", "1"),
                ("address", "52:54:00:12:34:56"),
                ("addr_assign_type", "0"),
                ("name_assign_type", "1"),
                ("dev_port", "0"),
                ("flags", "0x1002"),
                ("mtu", "1500"),
                ("tx_queue_len", "1000"),
                ("ifalias", ""),
            ],
        );
        for (name, value) in attributes {
            let path = format!("sys{devpath}/{name}");
            match *value {
                "-" => std::fs::remove_file(self.tree.path(&path)).expect(name),
                value => _ = self.tree.file(&path, value.to_string() + "\n"),
            }
        }
        self
    }

    /// The event of a device.
    pub(super) fn event(
        &self,
        action: Action,
        devpath: &str,
        subsystem: &str,
        more: &[(&str, &str)],
    ) -> Event {
        let mut properties: Properties = more.iter().copied().collect();
        if subsystem == "net" {
            properties.set("IFINDEX", "5");
            properties.set("INTERFACE", last_component(devpath.as_bytes()));
        }
        Event::new(Uevent {
            action,
            seqnum: SeqNum(1),
            devpath: devpath.into(),
            subsystem: subsystem.into(),
            properties,
        })
    }

    pub(super) fn builtins(&self) -> (Builtins, Vec<String>) {
        assert!(NamingScheme::named(self.scheme.as_bytes()).is_some(), "{}", self.scheme);
        let scheme = Some(self.scheme.as_bytes());
        Builtins::load(&self.tree.roots(), self.command_line.as_bytes(), scheme)
    }

    /// Calls a builtin, which must be able to answer at once, and the same when helpers read what asks the hardware.
    #[track_caller]
    pub(super) fn call(&self, builtin: BuiltinName, event: &Event) -> BuiltinResult {
        let argv = [builtin.as_str().into()];
        let call = Call { builtin, argv: &argv, event, facts: &[], dry: false };
        let (builtins, _) = self.builtins();
        let sysfs = Sysfs::new(&self.tree.roots());
        let tried = builtins.run(&call, &sysfs, &Table::new());
        let on_the_loop = sysfs.clone().without_hardware();
        let mut known = Vec::new();
        let run = |sysfs: &Sysfs| builtins.run(&call, sysfs, &Table::new());
        while let Err(place) = on_the_loop.knowing(known.clone(), false, run) {
            assert!(known.iter().all(|(known, _)| *known != place), "{place:?} is asked for again");
            let value = sysfs.read_attr(&place.devpath, &place.name);
            known.push((place, value));
        }
        assert_eq!(on_the_loop.knowing(known, false, run).as_ref(), Ok(&tried));
        tried.unwrap_or_else(|need| panic!("{need:?}"))
    }
}

/// The value of a property in a result.
pub(super) fn property<'a>(result: &'a BuiltinResult, name: &str) -> Option<&'a BStr> {
    let found: Option<&(BString, Option<BString>)> = result.properties.iter().rev().find(|(n, _)| n == name);
    found.and_then(|(_, value)| value.as_ref()).map(|value| value.as_bstr())
}
