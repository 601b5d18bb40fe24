//! Composes names of interfaces from what was found, so that every format can be tested on values.

use super::found::{Found, PciAddress, PciPlace};
use crate::builtin::naming_scheme::{Flag, NamingScheme};
use crate::links::attr::hex;
use bstr::BString;

/// Names must be shorter than this (ALTIFNAMSIZ, linux/if.h).
const ALT_NAME_MAX: usize = 128;

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
pub(super) fn names(prefix: &str, scheme: NamingScheme, found: &Found) -> Vec<(&'static str, BString)> {
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
