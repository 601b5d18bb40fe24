//! What one event knows of its device: the value that rules and builtins read and that only the
//! evaluator's commit step and the job change.

use super::fnv::BuildFnv;
use super::record::Record;
use super::{Action, Device, Properties, SeqNum, Uevent};
use bstr::{BStr, BString, ByteSlice};
use std::collections::HashSet;
use std::sync::Arc;

/// A set of byte strings in insertion order (symlinks, tags): mostly small, and written in that order. Copies share
/// their elements until one of them changes.
#[derive(Clone, Default)]
pub struct OrderedSet {
    /// None: empty.
    elements: Option<Arc<Elements>>,
}

#[derive(Clone, Default)]
struct Elements {
    order: Vec<BString>,
    /// The same, once there were more than [`FEW`].
    table: HashSet<BString, BuildFnv>,
}

/// Elements of a set that are looked through one by one.
const FEW: usize = 16;

impl Elements {
    fn contains(&self, element: &[u8]) -> bool {
        match self.table.is_empty() {
            true => self.order.iter().any(|one| one == element),
            false => self.table.contains(element.as_bstr()),
        }
    }

    fn push(&mut self, element: BString) {
        if !self.table.is_empty() {
            self.table.insert(element.clone());
        } else if self.order.len() == FEW {
            self.table = self.order.iter().chain([&element]).cloned().collect();
        }
        self.order.push(element);
    }
}

impl OrderedSet {
    /// Adds an element; false if it was there.
    pub fn insert(&mut self, element: impl Into<BString> + AsRef<[u8]>) -> bool {
        let is_new = !self.contains(element.as_ref());
        if is_new {
            Arc::make_mut(self.elements.get_or_insert_default()).push(element.into());
        }
        is_new
    }

    /// Removes an element; false if it was not there.
    pub fn remove(&mut self, element: &[u8]) -> bool {
        let was = self.contains(element);
        if let Some(elements) = self.elements.as_mut().filter(|_| was) {
            let elements = Arc::make_mut(elements);
            elements.table.remove(element.as_bstr());
            elements.order.retain(|one| one != element);
        }
        was
    }

    /// Whether the element is there.
    pub fn contains(&self, element: &[u8]) -> bool {
        self.elements.as_ref().is_some_and(|elements| elements.contains(element))
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.elements = None;
    }

    /// In insertion order.
    pub fn as_slice(&self) -> &[BString] {
        self.elements.as_ref().map_or(&[], |elements| &elements.order)
    }

    /// In insertion order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &BStr> {
        self.as_slice().iter().map(|e| e.as_bstr())
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }
}

impl PartialEq for OrderedSet {
    fn eq(&self, other: &OrderedSet) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for OrderedSet {}

impl std::fmt::Debug for OrderedSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.as_slice()).finish()
    }
}

impl<T: Into<BString> + AsRef<[u8]>> FromIterator<T> for OrderedSet {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> OrderedSet {
        let mut set = OrderedSet::default();
        for element in elements {
            set.insert(element);
        }
        set
    }
}

/// Symlinks of a device, relative to `/dev/` (`disk/by-id/x`).
pub type SymlinkSet = OrderedSet;

/// The two tag sets (rules.md 3.3, 8.2): `sticky` holds every tag ever given, `current` those that
/// this event gave. Rules match the current ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    pub sticky: OrderedSet,
    pub current: OrderedSet,
}

impl Tags {
    /// `TAG+=`.
    pub fn add(&mut self, tag: &[u8]) {
        self.sticky.insert(tag);
        self.current.insert(tag);
    }

    /// `TAG-=`: the sticky tag stays for ever.
    pub fn remove(&mut self, tag: &[u8]) {
        self.current.remove(tag);
    }

    /// Whether the text may be a tag: `[A-Za-z0-9_-]`, at least one.
    pub fn is_valid(tag: &[u8]) -> bool {
        !tag.is_empty() && tag.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
    }
}

/// `:a:b:`, or None for the empty set.
pub fn render_tags(tags: &OrderedSet) -> Option<BString> {
    if tags.is_empty() {
        return None;
    }
    let mut text = BString::from(":");
    for tag in tags.iter() {
        text.extend_from_slice(tag);
        text.push(b':');
    }
    Some(text)
}

/// See [`Event::title`].
#[derive(Clone, Copy)]
pub struct Title<'a>(&'a Event);

impl std::fmt::Display for Title<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Event { action, device, seqnum, .. } = self.0;
        write!(f, "{action} {} (SEQNUM={seqnum})", device.devpath)
    }
}

/// Properties that follow from other fields of an event.
const DERIVED: [&str; 4] = ["USEC_INITIALIZED", "DEVLINKS", "TAGS", "CURRENT_TAGS"];

/// Whether a property follows from other fields of an event.
pub fn is_derived(name: &[u8]) -> bool {
    DERIVED.iter().any(|derived| derived.as_bytes() == name)
}

/// One event: device, message, and all that rules and builtins have decided of it so far.
#[derive(Clone, Debug)]
pub struct Event {
    pub action: Action,
    pub seqnum: SeqNum,
    pub device: Device,
    /// Kernel properties of the message, then those set by rules and builtins. DEVLINKS, TAGS and
    /// CURRENT_TAGS are *not* in here: they are derived from `links` and `tags` when needed
    /// ([`Event::full_properties`]). On remove the stored properties of the record are in here.
    pub properties: Properties,
    pub tags: Tags,
    /// Collected so far; on remove those of the record.
    pub symlinks: SymlinkSet,
    /// When the device was first seen, CLOCK_MONOTONIC microseconds; None until known.
    pub usec_initialized: Option<u64>,
    /// The record of the last event, None if there was none. On remove it is merged into the fields
    /// above and IMPORT{db} is false.
    pub old: Option<Arc<Record>>,
}

impl Event {
    /// The event of a uevent, before its old record is known.
    pub fn new(uevent: Uevent) -> Event {
        let device = Device::new(uevent.devpath, uevent.subsystem, &uevent.properties);
        Event {
            action: uevent.action,
            seqnum: uevent.seqnum,
            device,
            properties: uevent.properties,
            tags: Tags::default(),
            symlinks: SymlinkSet::default(),
            usec_initialized: None,
            old: None,
        }
    }

    /// Which event it is, in front of each message about it: action, devpath and SEQNUM.
    pub fn title(&self) -> Title<'_> {
        Title(self)
    }

    /// Takes over what the record of the last event says (rules.md 9.1 steps 3 and 4, 9.2 step 1): rules see a
    /// device that goes with all that was known of it.
    pub fn know_old(&mut self, record: Arc<Record>) {
        self.usec_initialized = record.usec_initialized;
        self.tags.sticky = record.tags.clone();
        if self.action == Action::Remove {
            for property in record.properties.iter() {
                self.properties.set_stored(property.name, property.value);
            }
            self.tags.current = record.current_tags.clone();
            self.symlinks = record.symlinks.clone();
        }
        self.old = Some(record);
    }

    /// The value of a property as rules see it, the derived ones included.
    pub fn property(&self, name: &[u8]) -> Option<BString> {
        match name {
            b"DEVLINKS" => self.devlinks(),
            b"TAGS" => render_tags(&self.tags.sticky),
            b"CURRENT_TAGS" => render_tags(&self.tags.current),
            b"USEC_INITIALIZED" => self.usec_initialized.map(|u| u.to_string().into()),
            _ => self.properties.get(name).map(BStr::to_owned),
        }
    }

    /// DEVLINKS: full paths with one space between, None if there are no symlinks.
    pub fn devlinks(&self) -> Option<BString> {
        if self.symlinks.is_empty() {
            return None;
        }
        let paths: Vec<Vec<u8>> = self.symlinks.iter().map(|l| [b"/dev/", &**l].concat()).collect();
        Some(bstr::join(" ", paths).into())
    }

    /// Kernel and rule properties, without those that are derived.
    pub fn plain_properties(&self) -> impl Iterator<Item = (&BStr, &BStr)> + Clone {
        let is_derived = |name: &BStr| DERIVED.iter().any(|derived| name == derived);
        self.properties.iter().filter(move |p| !is_derived(p.name)).map(|p| (p.name, p.value))
    }

    /// The derived properties that there are.
    pub fn derived_properties(&self) -> Vec<(&'static str, BString)> {
        DERIVED.into_iter().filter_map(|name| Some((name, self.property(name.as_bytes())?))).collect()
    }

    /// All properties in the order of interop.md 2.3: kernel and rule properties, then the derived ones.
    /// Children get these as their environment, listeners as the body of a message; whoever passes them on adds
    /// UDEV_DATABASE_VERSION.
    pub fn full_properties(&self) -> Vec<(BString, BString)> {
        let plain = self.plain_properties().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let derived = self.derived_properties().into_iter().map(|(name, value)| (BString::from(name), value));
        plain.chain(derived).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Few or many, with copies that are not to change.
        #[test]
        fn a_set_is_as_a_list_without_doubles(steps in prop::collection::vec((any::<bool>(), 0u8..40), 0..120)) {
            let (mut set, mut list) = (OrderedSet::default(), Vec::new());
            for (inserts, number) in steps {
                let element = BString::from(number.to_string());
                let (copy, before) = (set.clone(), list.clone());
                let was = list.contains(&element);
                if inserts {
                    prop_assert_eq!(set.insert(element.clone()), !was);
                    if !was {
                        list.push(element.clone());
                    }
                } else {
                    prop_assert_eq!(set.remove(&element), was);
                    list.retain(|one| *one != element);
                }
                prop_assert_eq!(set.as_slice(), &list[..]);
                prop_assert_eq!((set.contains(&element), set.len()), (inserts, list.len()));
                prop_assert_eq!(copy.as_slice(), &before[..]);
                let agrees = (0..40u8).all(|n| {
                    let element = BString::from(n.to_string());
                    set.contains(&element) == list.contains(&element)
                });
                prop_assert!(agrees);
            }
            prop_assert_eq!(&set, &list.iter().cloned().collect::<OrderedSet>());
        }
    }
}
