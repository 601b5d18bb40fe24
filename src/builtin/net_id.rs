//! net_id: names of network interfaces from what the hardware says of itself (builtins.md 1.1).
//!
//! The first half reads, the second half ([`names`] and the functions below it) only composes, so
//! that every format can be tested on values. What must stay true: a later namer overwrites a
//! property of an earlier one, a name of 128 bytes or more is not set, and a device whose `iflink` is
//! not its own ifindex is left alone before anything else is read.
//!
//! Not here: the look-up of the vendor by `OUI:` and the naming filter's own entries in the hardware
//! database. They come with the hwdb builtin; the filter's properties are obeyed already.

use super::call::success;
use super::link_facts::LinkFacts;
use super::naming_scheme::{Flag, NamingScheme};
use super::value::{parse_decimal, parse_hex, parse_number};
use crate::links::attr::hex;
use crate::model::device::{last_component, sysnum};
use crate::model::record::Record;
use crate::model::{DeviceId, Event};
use crate::rules::ask::{BuiltinResult, ParentDevice};
use crate::world::Roots;
use crate::world::config::parse_bool;
use crate::world::database::Records;
use crate::world::sysfs::Sysfs;
use bstr::{BStr, BString, ByteSlice};
use std::cell::OnceCell;

/// Names must be shorter than this (ALTIFNAMSIZ, linux/if.h).
pub const ALT_NAME_MAX: usize = 128;

const ARPHRD_ETHER: u16 = 1;
const ARPHRD_INFINIBAND: u16 = 32;
const ARPHRD_SLIP: u16 = 256;
const ARPHRD_MCTP: u16 = 290;

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

/// Names the interface of the event. `link` is its row, or what sysfs says of it.
pub fn run(context: &Context, event: &Event, link: &LinkFacts) -> BuiltinResult {
    let failure = BuiltinResult::default();
    if event.device.subsystem != "net" {
        return failure;
    }
    let Some(ifindex) = event.device.ifindex else { return failure };
    let filter = |attribute: &str| allowed(|name| event.properties.get(name).map(BStr::to_owned), attribute);
    let Some(iflink) = link.iflink.filter(|_| filter("iflink")) else { return failure };
    if iflink != ifindex.0 {
        return success(vec![]);
    }
    let Some(ifi_type) = link.ifi_type.filter(|_| filter("type")) else { return success(vec![]) };
    let devtype = event.device.devtype.as_ref().map(|d| d.as_slice());
    let Some(prefix) = prefix(ifi_type, devtype, context.scheme) else { return success(vec![]) };
    let net = Net { context, event, link, prefix, ifi_type, records: OnceCell::new() };
    let mut properties = vec![("ID_NET_NAMING_SCHEME".into(), Some(context.scheme.name().into()))];
    let found = net.read();
    properties.extend(names(prefix, context.scheme, &found).into_iter().map(|(k, v)| (k.into(), Some(v))));
    success(properties)
}

/// Two letters by type of link; None: links of this type get no names.
fn prefix(ifi_type: u16, devtype: Option<&[u8]>, scheme: NamingScheme) -> Option<&'static str> {
    match ifi_type {
        ARPHRD_ETHER => Some(match devtype {
            Some(b"wlan") => "wl",
            Some(b"wwan") => "ww",
            _ => "en",
        }),
        ARPHRD_INFINIBAND => scheme.has(Flag::Infiniband).then_some("ib"),
        ARPHRD_SLIP => Some("sl"),
        ARPHRD_MCTP => scheme.has(Flag::Mctp).then_some("mc"),
        _ => None,
    }
}

/// The filter of 1.1.2: `property` gives those of the device that owns the attribute.
fn allowed(property: impl Fn(&[u8]) -> Option<BString>, attribute: &str) -> bool {
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

/// What was read, in the words of the namers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    /// The permanent address.
    mac: Option<[u8; 6]>,
    /// Index of the device tree's alias.
    devicetree: Option<u64>,
    /// Bus id of a CCW device.
    ccw: Option<BString>,
    /// Number of a VIO slot.
    vio: Option<u32>,
    /// Vendor, model and instance of an ACPI platform device.
    platform: Option<BString>,
    /// Number of a netdevsim device and name of its port.
    netdevsim: Option<BString>,
    /// Number of a Xen interface.
    xen: Option<u32>,
    pci: Option<PciFound>,
    usb: Option<BusFound>,
    bcma: Option<BusFound>,
}

/// A PCI device, or the physical function of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PciFound {
    /// None on a virtual function.
    label: Option<BString>,
    onboard: Option<u32>,
    /// None if the name cannot be given (unknown port).
    place: Option<PciPlace>,
    /// `v3`.
    suffix: BString,
}

/// Address and slot of a PCI device with the port of the interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PciPlace {
    address: PciAddress,
    multifunction: bool,
    slot: Option<Slot>,
    port: BString,
}

/// A hotplug slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    number: u32,
    /// From `function_id`: the domain is not part of the name.
    without_domain: bool,
}

/// An interface on a bus below PCI, or without it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BusFound {
    /// `u1u4i6`, `b1`.
    specifier: BString,
    /// The PCI device above; None inside: its names cannot be given.
    pci: Option<Option<PciPlace>>,
}

/// `DDDD:BB:SS.F`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PciAddress {
    domain: u32,
    bus: u32,
    slot: u32,
    function: u32,
}

impl PciAddress {
    /// The address in a sysname; domain, bus and slot are hexadecimal.
    fn parse(sysname: &[u8]) -> Option<PciAddress> {
        let (domain, rest) = sysname.split_once_str(":")?;
        let (bus, rest) = rest.split_once_str(":")?;
        let (slot, function) = rest.split_once_str(".")?;
        Some(PciAddress {
            domain: parse_hex(domain)?,
            bus: parse_hex(bus)?,
            slot: parse_hex(slot)?,
            function: parse_decimal(function)?,
        })
    }
}

// ---------------------------------------------------------------------------------------------
// Reading
// ---------------------------------------------------------------------------------------------

/// One interface to be named.
struct Net<'a> {
    context: &'a Context<'a>,
    event: &'a Event,
    link: &'a LinkFacts<'a>,
    prefix: &'static str,
    ifi_type: u16,
    /// Opened for the first device above the interface.
    records: OnceCell<Option<Records>>,
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

    fn read(&self) -> Found {
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

    /// The names of the PCI device among these ancestors, with a specifier for what is below it.
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

// ---------------------------------------------------------------------------------------------
// Composing
// ---------------------------------------------------------------------------------------------

/// Properties in the making.
struct Names<'a> {
    prefix: &'a str,
    list: Vec<(&'static str, BString)>,
}

impl Names<'_> {
    /// Adds a name: the prefix and these parts. Too long ones are left out.
    fn add(&mut self, property: &'static str, parts: &[&[u8]]) {
        self.add_bare(property, [self.prefix.as_bytes(), &parts.concat()].concat().into());
    }

    fn add_bare(&mut self, property: &'static str, text: BString) {
        if text.len() < ALT_NAME_MAX {
            self.list.push((property, text));
        }
    }

    /// Path and slot name of a place on the PCI bus.
    fn add_pci(&mut self, place: &PciPlace, suffix: &[u8]) {
        let PciAddress { domain, bus, slot, function } = place.address;
        let domain = if domain > 0 { format!("P{domain}") } else { String::new() };
        let numbered = function > 0 || place.multifunction;
        let function = if numbered { format!("f{function}") } else { String::new() };
        let path = format!("{domain}p{bus}s{slot}{function}");
        self.add("ID_NET_NAME_PATH", &[path.as_bytes(), &place.port, suffix]);
        if let Some(hotplug) = place.slot {
            let domain = if hotplug.without_domain { "" } else { domain.as_str() };
            let slot = format!("{domain}s{}{function}", hotplug.number);
            self.add("ID_NET_NAME_SLOT", &[slot.as_bytes(), &place.port, suffix]);
        }
    }
}

/// All names in the order of the namers.
fn names(prefix: &str, scheme: NamingScheme, found: &Found) -> Vec<(&'static str, BString)> {
    let mut names = Names { prefix, list: Vec::new() };
    if let Some(m) = found.mac {
        names.add("ID_NET_NAME_MAC", &[b"x", &hex(&m, None)]);
    }
    if let Some(index) = found.devicetree {
        names.add("ID_NET_NAME_ONBOARD", &[format!("d{index}").as_bytes()]);
    }
    if let Some(id) = &found.ccw {
        names.add("ID_NET_NAME_PATH", &[b"c", id]);
    }
    if let Some(slot) = found.vio {
        names.add("ID_NET_NAME_SLOT", &[format!("v{slot}").as_bytes()]);
    }
    if let Some(id) = &found.platform {
        names.add("ID_NET_NAME_PATH", &[b"a", id]);
    }
    if let Some(id) = &found.netdevsim {
        names.add("ID_NET_NAME_PATH", &[b"i", id]);
    }
    if let Some(index) = found.xen {
        names.add("ID_NET_NAME_SLOT", &[format!("X{index}").as_bytes()]);
    }
    if let Some(pci) = &found.pci {
        if let Some(label) = &pci.label {
            let prefix = if scheme.has(Flag::LabelNoprefix) { "" } else { prefix };
            names.add_bare("ID_NET_LABEL_ONBOARD", [prefix.as_bytes(), label].concat().into());
        }
        if let Some(place) = &pci.place {
            if let Some(index) = pci.onboard {
                let index = format!("o{index}");
                names.add("ID_NET_NAME_ONBOARD", &[index.as_bytes(), &place.port, &pci.suffix]);
            }
            names.add_pci(place, &pci.suffix);
        }
    }
    for bus in [&found.usb, &found.bcma].into_iter().flatten() {
        match &bus.pci {
            Some(Some(place)) => names.add_pci(place, &bus.specifier),
            Some(None) => {}
            None if scheme.has(Flag::UsbHost) => names.add("ID_NET_NAME_PATH", &[&bus.specifier]),
            None => {}
        }
    }
    names.list
}

/// `r3` for the representor `pf0vf3`, else `n` and the name.
fn named_port(name: &[u8], representors: bool) -> BString {
    let representor = || {
        let rest = name.strip_prefix(b"pf")?;
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let rest = rest[digits..].strip_prefix(b"vf").filter(|_| digits > 0)?;
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let number: u32 = parse_decimal(&rest[..digits])?;
        Some(format!("r{number}"))
    };
    match representor().filter(|_| representors) {
        Some(specifier) => specifier.into(),
        None => [b"n", name].concat().into(),
    }
}

/// `u1u4c2i6` of `2-1.4:2.6`.
fn usb_specifier(sysname: &[u8]) -> Option<BString> {
    let (_, rest) = sysname.split_once_str("-")?;
    let (ports, rest) = rest.split_once_str(":")?;
    let (configuration, interface) = rest.split_once_str(".")?;
    let mut specifier = BString::from("u");
    specifier.extend(ports.replace(".", "u"));
    if configuration != b"1" {
        specifier.push(b'c');
        specifier.extend_from_slice(configuration);
    }
    if interface != b"0" {
        specifier.push(b'i');
        specifier.extend_from_slice(interface);
    }
    Some(specifier)
}

/// `b1` of `bcma0:1`, nothing for core 0.
fn bcma_specifier(sysname: &[u8]) -> Option<BString> {
    let (number, core) = sysname.strip_prefix(b"bcma")?.split_once_str(":")?;
    parse_decimal(number)?;
    Some(match parse_decimal(core)? {
        0 => BString::default(),
        core => format!("b{core}").into(),
    })
}

/// The bus id of a CCW device without leading zeros and dots.
fn ccw_id(bus_id: &[u8]) -> Option<BString> {
    if !matches!(bus_id.len(), 8 | 9) {
        return None;
    }
    let start = bus_id.iter().position(|b| !matches!(b, b'0' | b'.')).unwrap_or(bus_id.len() - 1);
    Some(bus_id[start..].into())
}

/// The last four of exactly eight hexadecimal digits.
fn vio_slot(component: &[u8]) -> Option<u32> {
    parse_hex(component).filter(|_| component.len() == 8).map(|id| id & 0xffff)
}

/// `hisic2i0` of `HISI00C2:00`: vendor of three letters, or four letters or digits; model; instance.
fn platform_id(component: &[u8]) -> Option<BString> {
    let (vendor_len, letters_only) = match component.len() {
        10 => (3, true),
        11 => (4, false),
        _ => return None,
    };
    let (vendor, rest) = component.split_at(vendor_len);
    let (model, instance) = rest.split_once_str(":")?;
    let fits = |b: &u8| b.is_ascii_uppercase() || (!letters_only && b.is_ascii_digit());
    if model.len() != 4 || instance.len() != 2 || !vendor.iter().all(fits) {
        return None;
    }
    let vendor = vendor.to_ascii_lowercase();
    Some([vendor, format!("{:x}i{}", parse_hex(model)?, parse_hex(instance)?).into_bytes()].concat().into())
}

/// The number of `vif-<n>`, without sign and leading zero.
fn xen_index(component: &[u8]) -> Option<u32> {
    let digits = component.strip_prefix(b"vif-")?;
    parse_decimal(digits).filter(|_| digits.len() == 1 || digits[0] != b'0')
}

/// The index of an alias; `kind` without number and `kind0` contradict each other.
fn alias_index(alias: &[u8], kind: &str, names: &[BString]) -> Option<u64> {
    let text = alias.strip_prefix(kind.as_bytes())?;
    let index = if text.is_empty() { 0 } else { parse_number(text)? };
    let rival = if text.is_empty() { format!("{kind}0") } else { kind.into() };
    if index == 0 && names.iter().any(|name| *name == rival) {
        return None;
    }
    Some(index)
}

#[cfg(test)]
mod tests;
