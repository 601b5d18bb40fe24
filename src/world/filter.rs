//! Which devices are wanted: the conditions of `info`, `trigger` and coldplug (interop.md 5.3, 7.2).
//! Pure; the filter asks for the facts of a device through [`Facts`].

use crate::model::Properties;
use crate::model::device::sysname;
use crate::rules::glob::Glob;
use bstr::{BStr, BString};

/// Which devices are wanted. Entries of one list are alternatives, except those of `attrs`, which must
/// all hold; an empty list wants everything. Between lists all must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub subsystems: Vec<Glob>,
    pub not_subsystems: Vec<Glob>,
    pub attrs: Vec<AttrMatch>,
    /// None of these may hold.
    pub not_attrs: Vec<AttrMatch>,
    /// Patterns of name and value of a property.
    pub properties: Vec<(Glob, Glob)>,
    /// Names, not patterns: they are looked up in the tag index.
    pub tags: Vec<BString>,
    pub sysnames: Vec<Glob>,
    /// Devpaths: these devices and everything below them.
    pub parents: Vec<BString>,
    /// Whether there must be a record, or must be none.
    pub initialized: Option<bool>,
    /// The devices above the wanted ones too, whatever the filter says of them. As with 262 not of those that
    /// were found by a tag or below a parent, unless they are of [`Kind::Subsystems`](super::enumerate::Kind).
    pub include_parents: bool,
}

/// An attribute that a device must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttrMatch {
    pub name: BString,
    /// Patterns of its value, alternatives; without any, every value will do.
    pub values: Vec<Glob>,
}

impl AttrMatch {
    /// Adds a demand to a list that has one entry for each name. As with udevadm a name without a value
    /// makes void what was asked of the value before.
    pub fn add(list: &mut Vec<AttrMatch>, name: &[u8], value: Option<Glob>) {
        let known = list.iter_mut().find(|entry| entry.name == name);
        match (known, value) {
            (Some(entry), Some(value)) => entry.values.push(value),
            (Some(entry), None) => entry.values.clear(),
            (None, value) => list.push(AttrMatch { name: name.into(), values: Vec::from_iter(value) }),
        }
    }
}

/// What a filter may ask of a device; asked for only as far as needed.
pub trait Facts {
    fn devpath(&self) -> &BStr;
    /// Empty if it has none.
    fn subsystem(&self) -> &BStr;
    fn attr(&self, name: &BStr) -> Option<BString>;
    fn has_record(&self) -> bool;
    /// All that `info -q property` prints.
    fn properties(&self) -> &Properties;
}

fn any(patterns: &[Glob], text: &[u8]) -> bool {
    patterns.iter().any(|pattern| pattern.matches(text))
}

impl Filter {
    /// Whether devices of this subsystem may be wanted.
    pub fn wants_subsystem(&self, subsystem: &[u8]) -> bool {
        (self.subsystems.is_empty() || any(&self.subsystems, subsystem))
            && !any(&self.not_subsystems, subsystem)
    }

    /// Whether this device is wanted; tags apart, which the index answers. A folder without a subsystem
    /// (`/devices/pci0000:00`) is no device of the driver model: the kernel sends no uevent for it.
    pub fn matches(&self, device: &impl Facts) -> bool {
        let attr = |AttrMatch { name, values }: &AttrMatch| {
            let value = device.attr(name.as_ref());
            value.is_some_and(|value| values.is_empty() || any(values, &value))
        };
        !device.subsystem().is_empty()
            && self.wants_subsystem(device.subsystem())
            && (self.sysnames.is_empty() || any(&self.sysnames, &sysname(device.devpath())))
            && (self.parents.is_empty() || self.parents.iter().any(|p| is_at_or_below(device.devpath(), p)))
            && self.attrs.iter().all(attr)
            && !self.not_attrs.iter().any(attr)
            && self.initialized.is_none_or(|wanted| device.has_record() == wanted)
            && (self.properties.is_empty() || self.has_property(device.properties()))
    }

    fn has_property(&self, properties: &Properties) -> bool {
        let wanted = |name: &BStr, value: &BStr| {
            self.properties.iter().any(|(n, v)| n.matches(name) && v.matches(value))
        };
        properties.iter().any(|p| wanted(p.name, p.value))
    }
}

fn is_at_or_below(devpath: &[u8], parent: &[u8]) -> bool {
    devpath.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}
