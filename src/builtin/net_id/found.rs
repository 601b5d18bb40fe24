//! What the hardware says of an interface, as values: `read` finds them, `names` composes names from them.

use crate::builtin::value::{parse_decimal, parse_hex};
use bstr::{BString, ByteSlice};

/// What was read: one field for each kind of name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The permanent address.
    pub(super) mac: Option<[u8; 6]>,
    /// Index of the device tree's alias.
    pub(super) devicetree: Option<u64>,
    /// Bus id of a CCW device.
    pub(super) ccw: Option<BString>,
    /// Number of a VIO slot.
    pub(super) vio: Option<u32>,
    /// Vendor, model and instance of an ACPI platform device.
    pub(super) platform: Option<BString>,
    /// Number of a netdevsim device and name of its port.
    pub(super) netdevsim: Option<BString>,
    /// Number of a Xen interface.
    pub(super) xen: Option<u32>,
    pub(super) pci: Option<PciFound>,
    pub(super) usb: Option<BusFound>,
    pub(super) bcma: Option<BusFound>,
}

/// A PCI device, or the physical function of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PciFound {
    /// None on a virtual function.
    pub(super) label: Option<BString>,
    pub(super) onboard: Option<u32>,
    /// None if the name cannot be given (unknown port).
    pub(super) place: Option<PciPlace>,
    /// `v3`.
    pub(super) suffix: BString,
}

/// Address and slot of a PCI device with the port of the interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PciPlace {
    pub(super) address: PciAddress,
    pub(super) multifunction: bool,
    pub(super) slot: Option<Slot>,
    pub(super) port: BString,
}

/// A hotplug slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) number: u32,
    /// From `function_id`: the domain is not part of the name.
    pub(super) without_domain: bool,
}

/// An interface on a bus below PCI, or without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BusFound {
    /// `u1u4i6`, `b1`.
    pub(super) specifier: BString,
    /// The PCI device above; None inside: its names cannot be given.
    pub(super) pci: Option<Option<PciPlace>>,
}

/// `DDDD:BB:SS.F`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PciAddress {
    pub(super) domain: u32,
    pub(super) bus: u32,
    pub(super) slot: u32,
    pub(super) function: u32,
}

impl PciAddress {
    /// The address in a sysname; domain, bus and slot are hexadecimal.
    pub(super) fn parse(sysname: &[u8]) -> Option<PciAddress> {
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
