//! Reads what the hardware says of an interface (builtins.md 1.1.3 to 1.1.5). Each attribute is read only where the
//! naming filter of its device allows it.

use super::found::{BusFound, Found, PciAddress, PciFound, PciPlace, Slot};
use super::words::{
    alias_index, bcma_specifier, ccw_id, named_port, platform_id, usb_specifier, vio_slot, xen_index,
};
use crate::builtin::link_facts::LinkFacts;
use crate::builtin::naming_scheme::{Flag, NamingScheme};
use crate::builtin::value::{parse_decimal, parse_number};
use crate::model::device::{last_component, sysnum};
use crate::model::record::Record;
use crate::model::{DeviceId, Event};
use crate::rules::ask::ParentDevice;
use crate::world::Roots;
use crate::world::config::parse_bool;
use crate::world::database::Records;
use crate::world::sysfs::Sysfs;
use bstr::{BStr, BString, ByteSlice};
use std::cell::OnceCell;

pub(super) const ARPHRD_INFINIBAND: u16 = 32;

/// Where the device tree is when `/proc/device-tree` does not say.
const DEVICE_TREE: &[u8] = b"/firmware/devicetree/base";

const SLOTS: &[u8] = b"/bus/pci/slots";

/// What net_id reads from besides the event.
pub struct Context<'a> {
    pub scheme: NamingScheme,
    pub sysfs: &'a Sysfs,
    /// For the records of other devices.
    pub roots: &'a Roots,
    /// Target of `/proc/device-tree`, as it is written there.
    pub device_tree: Option<&'a BString>,
}

/// The filter of 1.1.2: `property` gives those of the device that owns the attribute.
pub(super) fn allowed(property: impl Fn(&[u8]) -> Option<BString>, attribute: &str) -> bool {
    let name = format!("ID_NET_NAME_ALLOW_{}", attribute.to_ascii_uppercase());
    match property(name.as_bytes()).or_else(|| property(b"ID_NET_NAME_ALLOW")) {
        None => true,
        Some(value) => parse_bool(&value).unwrap_or(false),
    }
}

/// The port specifier of 1.1.3.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Port {
    /// Text to append.
    Specifier(BString),
    /// `dev_port` cannot be read: names that have a specifier are not given.
    Unknown,
}

/// One interface to be named.
pub(super) struct Net<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) event: &'a Event,
    pub(super) link: &'a LinkFacts<'a>,
    pub(super) prefix: &'static str,
    pub(super) ifi_type: u16,
    /// Opened for the first device above the interface.
    pub(super) records: OnceCell<Option<Records>>,
}

/// A device above the interface, with the properties that may forbid its attributes.
struct Owner<'a> {
    sysfs: &'a Sysfs,
    devpath: BString,
    record: Option<Record>,
}

impl Owner<'_> {
    fn value(&self, attribute: &str) -> Option<BString> {
        let property = |wanted: &[u8]| self.record.as_ref()?.properties.get(wanted).map(BStr::to_owned);
        allowed(property, attribute).then(|| self.sysfs.value(&self.devpath, attribute.as_bytes())).flatten()
    }

    fn sysname(&self) -> &BStr {
        last_component(&self.devpath)
    }

    /// Byte 0x0e of the configuration header has bit 0x80. Trailing zero bytes are cut by the reader:
    /// a header that is too short then has that byte 0.
    fn is_multifunction(&self) -> bool {
        self.value("config").is_some_and(|config| config.get(0x0e).is_some_and(|b| b & 0x80 != 0))
    }

    /// Class 0604 and the like, by modalias.
    fn is_pci_bridge(&self) -> bool {
        self.value("modalias").is_some_and(|modalias| {
            modalias.starts_with(b"pci:")
                && modalias.rfind_byte(b's').is_some_and(|at| modalias[at + 1..].starts_with(b"c04"))
        })
    }
}

impl<'a> Net<'a> {
    fn scheme(&self, flag: Flag) -> bool {
        self.context.scheme.has(flag)
    }

    fn allows(&self, attribute: &str) -> bool {
        allowed(|name| self.event.properties.get(name).map(BStr::to_owned), attribute)
    }

    /// An attribute of the interface that is in no message.
    fn own_value(&self, attribute: &str) -> Option<BString> {
        let devpath = &self.event.device.devpath;
        self.allows(attribute).then(|| self.context.sysfs.value(devpath, attribute.as_bytes())).flatten()
    }

    /// A PCI device with its properties.
    fn pci_owner(&self, devpath: BString) -> Owner<'a> {
        let id = DeviceId::Named { subsystem: "pci".into(), sysname: last_component(&devpath).into() };
        let records = self.records.get_or_init(|| Records::open(&self.context.roots.run).ok());
        let record = records.as_ref().and_then(|records| records.read(&id).ok()?);
        Owner { sysfs: self.context.sysfs, devpath, record }
    }

    /// The nearest ancestor on the PCI bus.
    fn pci_above(&self, devpath: &[u8]) -> Option<Owner<'a>> {
        let above = self.context.sysfs.parents(devpath).into_iter().find(|parent| parent.subsystem == "pci");
        above.map(|parent| self.pci_owner(parent.devpath))
    }

    pub(super) fn read(&self) -> Found {
        let devpath = &self.event.device.devpath;
        let mut found = Found { mac: self.read_mac(), ..Found::default() };
        let above = self.context.sysfs.parents(devpath);
        let Some(parent) = above.first() else { return found };
        found.devicetree = self.read_devicetree(&parent.devpath);
        let component = |root: &str| {
            let rest = devpath.strip_prefix(root.as_bytes())?;
            rest.split(|&b| b == b'/').next()
        };
        match parent.subsystem.as_slice() {
            b"vio" => found.vio = component("/devices/vio/").and_then(vio_slot),
            b"platform" => found.platform = component("/devices/platform/").and_then(platform_id),
            b"xen" if self.scheme(Flag::XenVif) => found.xen = component("/devices/").and_then(xen_index),
            _ => {}
        }
        if let Some(hardware) = above.iter().find(|parent| parent.subsystem != "virtio") {
            match hardware.subsystem.as_slice() {
                b"ccw" | b"ccwgroup" => found.ccw = ccw_id(last_component(&hardware.devpath)),
                b"pci" => found.pci = self.read_pci(hardware.devpath.clone()),
                _ => {}
            }
        }
        let in_subsystem = |wanted: &str| above.iter().position(|parent| parent.subsystem == wanted);
        if let Some(at) = in_subsystem("netdevsim").filter(|_| self.scheme(Flag::Netdevsim)) {
            let number = sysnum(last_component(&above[at].devpath));
            found.netdevsim = match self.phys_port_name() {
                Some(port) if !number.is_empty() => Some([number.as_bytes(), b"n", port].concat().into()),
                _ => None,
            };
        }
        found.usb = self.read_usb(&above);
        found.bcma = in_subsystem("bcma").and_then(|at| {
            let specifier = bcma_specifier(last_component(&above[at].devpath))?;
            Some(self.below_pci(&above[at..], specifier)).filter(|found| found.pci.is_some())
        });
        found
    }

    fn read_mac(&self) -> Option<[u8; 6]> {
        if self.ifi_type == ARPHRD_INFINIBAND || !self.allows("address") {
            return None;
        }
        let address = self.link.address.as_ref().try_into().ok()?;
        (parse_number(&self.own_value("addr_assign_type")?) == Some(0)).then_some(address)
    }

    fn phys_port_name(&self) -> Option<&[u8]> {
        let name = self.link.phys_port_name.as_ref().filter(|name| !name.is_empty())?;
        self.allows("phys_port_name").then_some(name.as_ref())
    }

    fn port(&self) -> Port {
        if let Some(name) = self.phys_port_name() {
            return Port::Specifier(named_port(name, self.scheme(Flag::SrIovR)));
        }
        match self.own_value("dev_port").as_deref().and_then(|v| parse_number(v)) {
            Some(0) => Port::Specifier(BString::default()),
            Some(port) => Port::Specifier(format!("d{port}").into()),
            None => Port::Unknown,
        }
    }

    fn read_pci(&self, devpath: BString) -> Option<PciFound> {
        let device = self.pci_owner(devpath);
        let function = if self.scheme(Flag::SrIovV) { self.physical_function(&device) } else { None };
        let is_virtual = function.is_some();
        let (device, suffix) = match function {
            Some((physical, number)) => (physical, format!("v{number}").into()),
            None => (device, BString::default()),
        };
        let label = if is_virtual { None } else { device.value("label") };
        Some(PciFound { label, onboard: self.onboard_index(&device), place: self.pci_place(&device), suffix })
    }

    /// The physical function of a virtual one, and the virtual one's number.
    fn physical_function(&self, device: &Owner) -> Option<(Owner<'a>, u32)> {
        let sysfs = self.context.sysfs;
        let physical = sysfs.real_path(&device.devpath, b"physfn")?;
        let number = sysfs.list(&physical, b"").into_iter().find_map(|name| {
            let number = parse_decimal(name.strip_prefix(b"virtfn")?)?;
            (sysfs.real_path(&physical, &name)? == device.devpath).then_some(number)
        })?;
        Some((self.pci_owner(physical), number))
    }

    /// `acpi_index`, or `index` where that is missing or no number.
    fn onboard_index(&self, device: &Owner) -> Option<u32> {
        let number = |attribute| device.value(attribute).as_deref().and_then(|v| parse_number(v));
        let index = number("acpi_index").or_else(|| number("index"))?;
        let limit = if self.scheme(Flag::Index16Bit) { 65535 } else { 16383 };
        let first = if self.scheme(Flag::ZeroAcpiIndex) { 0 } else { 1 };
        (first..=limit).contains(&index).then_some(index as u32)
    }

    fn pci_place(&self, device: &Owner<'a>) -> Option<PciPlace> {
        let mut address = PciAddress::parse(device.sysname())?;
        let Port::Specifier(port) = self.port() else { return None };
        if self.scheme(Flag::NparAri)
            && device.value("ari_enabled").and_then(|v| parse_bool(&v)) == Some(true)
        {
            address.function = address.function.saturating_add(address.slot.saturating_mul(8));
        }
        let multifunction = device.is_multifunction();
        let slot =
            self.firmware_slot(device, multifunction).or_else(|| self.hotplug_slot(device, multifunction));
        Some(PciPlace { address, multifunction, slot, port })
    }

    /// `firmware_node/sun` of the device or of the port above it.
    fn firmware_slot(&self, device: &Owner, multifunction: bool) -> Option<Slot> {
        if !self.scheme(Flag::FirmwareNodeSun) {
            return None;
        }
        let sun = |owner: &Owner| -> Option<u32> {
            let number = parse_number(&owner.value("firmware_node/sun")?)?;
            u32::try_from(number).ok().filter(|&n| n > 0)
        };
        let number = sun(device).or_else(|| {
            let port = self.pci_above(&device.devpath)?;
            let number = sun(&port)?;
            (multifunction || !port.is_pci_bridge()).then_some(number)
        })?;
        Some(Slot { number, without_domain: false })
    }

    /// The search through `/sys/bus/pci/slots`, from the device upwards.
    fn hotplug_slot(&self, device: &Owner<'a>, multifunction: bool) -> Option<Slot> {
        let sysfs = self.context.sysfs;
        let slots: Vec<(u32, BString)> = sysfs
            .list(SLOTS, b"")
            .into_iter()
            .filter_map(|name| {
                let number = parse_number(&name).and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0)?;
                let address = sysfs.value(&[SLOTS, b"/", name.as_slice()].concat(), b"address")?;
                (!address.is_empty()).then_some((number, address))
            })
            .collect();
        let mut at = self.pci_owner(device.devpath.clone());
        loop {
            if self.scheme(Flag::SlotFunctionId)
                && let Some(id) = at.value("function_id")
            {
                let number = parse_number(&id).and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0)?;
                let known = sysfs.exists(SLOTS, format!("{number:08x}").as_bytes());
                return known.then_some(Slot { number, without_domain: true });
            }
            if let Some((number, _)) = slots.iter().find(|(_, address)| at.sysname().starts_with(address)) {
                if self.scheme(Flag::BridgeNoSlot) && at.is_pci_bridge() {
                    let accepted = self.scheme(Flag::BridgeMultifunctionSlot) && multifunction;
                    return accepted.then_some(Slot { number: *number, without_domain: false });
                }
                return Some(Slot { number: *number, without_domain: false });
            }
            at = self.pci_above(&at.devpath)?;
        }
    }

    fn read_usb(&self, above: &[ParentDevice]) -> Option<BusFound> {
        let at = above.iter().position(|parent| {
            parent.subsystem == "usb"
                && self.context.sysfs.devtype(&parent.devpath).is_some_and(|t| t == "usb_interface")
        })?;
        let specifier = usb_specifier(last_component(&above[at].devpath))?;
        Some(self.below_pci(&above[at..], specifier))
    }

    /// The PCI device among these ancestors, and the specifier of the device of another bus below it.
    fn below_pci(&self, above: &[ParentDevice], specifier: BString) -> BusFound {
        let pci = above.iter().find(|parent| parent.subsystem == "pci");
        let pci = pci.map(|pci| self.pci_place(&self.pci_owner(pci.devpath.clone())));
        BusFound { specifier, pci }
    }

    fn read_devicetree(&self, parent: &[u8]) -> Option<u64> {
        let wireless = self.prefix == "wl" && self.scheme(Flag::DevicetreeAliasesWlan);
        if !self.scheme(Flag::DevicetreeAliases) || !(self.prefix == "en" || wireless) {
            return None;
        }
        let own = self.scheme(Flag::DevicetreePortAliases).then_some(self.event.device.devpath.as_slice());
        let kinds: &[&str] = if wireless { &["wifi", "ethernet"] } else { &["ethernet"] };
        own.into_iter().chain([parent]).find_map(|device| {
            let node = self.context.sysfs.real_path(device, b"of_node")?;
            let base = self.device_tree();
            let path = node.strip_prefix(base.as_slice()).filter(|p| p.starts_with(b"/"))?;
            let names = self.context.sysfs.list(&base, b"aliases");
            kinds.iter().find_map(|kind| {
                let alias = names.iter().find(|name| {
                    name.starts_with(kind.as_bytes())
                        && self
                            .context
                            .sysfs
                            .value(&base, &[b"aliases/", name.as_slice()].concat())
                            .is_some_and(|target| target == path)
                })?;
                alias_index(alias, kind, &names)
            })
        })
    }

    /// Devpath of the device tree's root, by the symlink in /proc.
    fn device_tree(&self) -> BString {
        let target = self.context.device_tree;
        target
            .and_then(|t| t.find("/firmware/").map(|at| BString::from(&t[at..])))
            .unwrap_or(DEVICE_TREE.into())
    }
}
