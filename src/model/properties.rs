//! The properties of a device: an ordered map from name to value, both bytes.
//!
//! Insertion order is kept, because records and announcements are written in it. A device has some
//! thirty properties; names are found by comparing 32-bit hashes in one array, which beats a tree or
//! a table at this size, and compiled rules carry the hash of the names they ask for ([`Key`]). With more
//! than [`FEW`] properties, which only imports bring, a table by name is kept besides, and what is removed
//! only leaves a gap: no operation takes time by the number of properties.
//!
//! Each property says whether it is *stored* in the record (rules.md section 7: layers "all" and
//! "db"). Names that begin with a dot are never stored, whatever the caller says.

use super::fnv::short_hash;
use bstr::{BStr, BString, ByteSlice};
use std::collections::HashMap;

/// Properties up to which the array alone is enough. Comparing so many hashes costs as much as hashing a name
/// with a seed.
const FEW: usize = 64;

/// A property name with its hash, computed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    hash: u32,
    is_derived: bool,
    name: BString,
}

impl Key {
    /// The key of this name.
    pub fn new(name: impl Into<BString>) -> Key {
        let name = name.into();
        Key { hash: short_hash(&name), is_derived: super::event::is_derived(&name), name }
    }

    /// Whether the property is made from symlinks, tags or the time, and not kept as such.
    pub fn is_derived(&self) -> bool {
        self.is_derived
    }

    /// The name itself.
    pub fn name(&self) -> &BStr {
        self.name.as_bstr()
    }
}

/// One property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property<'a> {
    pub name: &'a BStr,
    pub value: &'a BStr,
    /// Written to the record as an `E:` line.
    pub stored: bool,
}

/// Where the bytes of a property lie.
#[derive(Clone, Copy)]
struct Placed {
    name: Span,
    value: Span,
    stored: bool,
    /// The property was removed, and only its place is left.
    is_gap: bool,
}

/// Where names stand among many. The hasher of the standard library has a seed: whoever writes an imported
/// file cannot choose names that collide.
#[derive(Clone, Default)]
struct Index {
    positions: HashMap<BString, u32>,
    gaps: usize,
}

#[derive(Clone, Copy)]
struct Span {
    at: u32,
    len: u32,
}

/// An insertion-ordered map of properties.
///
/// All names and values lie in one buffer, so that a map is made, copied and dropped with three
/// allocations, however many properties it has. A value that grows moves to the end; what it leaves
/// behind is cleared away when it is more than half of the buffer.
#[derive(Clone, Default)]
pub struct Properties {
    hashes: Vec<u32>,
    entries: Vec<Placed>,
    bytes: Vec<u8>,
    /// Bytes of the buffer that belong to no property any more.
    unused: usize,
    /// None as long as there are few properties.
    index: Option<Box<Index>>,
}

/// Unused bytes that are not worth clearing away.
const UNUSED_MIN: usize = 4096;

impl Properties {
    /// An empty map.
    pub fn new() -> Properties {
        Properties::default()
    }

    /// An empty map with room for so many properties with so many bytes in all.
    pub fn with_capacity(properties: usize, bytes: usize) -> Properties {
        Properties {
            hashes: Vec::with_capacity(properties),
            entries: Vec::with_capacity(properties),
            bytes: Vec::with_capacity(bytes),
            unused: 0,
            index: None,
        }
    }

    /// A copy of those that are stored, in order, for a record.
    pub fn stored_only(&self) -> Properties {
        let mut copy = Properties::with_capacity(self.len(), self.bytes.len());
        for (hash, entry) in self.hashes.iter().zip(&self.entries).filter(|(_, entry)| entry.stored) {
            let (name, value) = (copy.append(self.slice(entry.name)), copy.append(self.slice(entry.value)));
            copy.hashes.push(*hash);
            copy.entries.push(Placed { name, value, stored: false, is_gap: false });
        }
        copy.index_if_many();
        copy
    }

    fn slice(&self, slot: Span) -> &BStr {
        let start = slot.at as usize;
        self.bytes[start..start + slot.len as usize].as_bstr()
    }

    fn at(&self, index: usize) -> Property<'_> {
        let entry = self.entries[index];
        Property { name: self.slice(entry.name), value: self.slice(entry.value), stored: entry.stored }
    }

    fn position(&self, hash: u32, name: &[u8]) -> Option<usize> {
        if let Some(index) = &self.index {
            return index.positions.get(name.as_bstr()).map(|&at| at as usize);
        }
        let mut from = 0;
        while let Some(at) = self.hashes[from..].iter().position(|&h| h == hash) {
            if self.slice(self.entries[from + at].name) == name {
                return Some(from + at);
            }
            from += at + 1;
        }
        None
    }

    /// The value of `name`, None if it is not set.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&BStr> {
        self.find(name).map(|property| property.value)
    }

    /// The whole property of that name.
    pub fn find(&self, name: impl AsRef<[u8]>) -> Option<Property<'_>> {
        let name = name.as_ref();
        self.position(short_hash(name), name).map(|i| self.at(i))
    }

    /// Like [`get`](Self::get), without hashing.
    pub fn get_key(&self, key: &Key) -> Option<&BStr> {
        self.position(key.hash, &key.name).map(|i| self.slice(self.entries[i].value))
    }

    /// Sets a property that goes to environment and announcement, not to the record. A property that
    /// was stored stays stored.
    pub fn set(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.put(name.as_ref(), value.as_ref(), false);
    }

    /// Sets a property that also goes to the record, unless its name begins with a dot.
    pub fn set_stored(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let name = name.as_ref();
        let stored = !name.starts_with(b".");
        self.put(name, value.as_ref(), stored);
    }

    /// Like [`set_stored`](Self::set_stored); `see` is shown what was there before.
    pub fn replace_stored(
        &mut self,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        see: impl FnOnce(Property<'_>),
    ) {
        let name = name.as_ref();
        let hash = short_hash(name);
        let at = self.position(hash, name);
        if let Some(i) = at {
            see(self.at(i));
        }
        self.put_at(at, hash, name, value.as_ref(), !name.starts_with(b"."));
    }

    fn put(&mut self, name: &[u8], value: &[u8], stored: bool) {
        let hash = short_hash(name);
        self.put_at(self.position(hash, name), hash, name, value, stored);
    }

    fn put_at(&mut self, at: Option<usize>, hash: u32, name: &[u8], value: &[u8], stored: bool) {
        match at {
            Some(i) => {
                let old = self.entries[i].value;
                self.entries[i].value = self.write_over(old, value);
                self.entries[i].stored |= stored;
                self.clear_away();
            }
            None => {
                let name = self.append(name);
                let value = self.append(value);
                self.hashes.push(hash);
                self.entries.push(Placed { name, value, stored, is_gap: false });
                self.index_last();
            }
        }
    }

    /// Puts the entry at the end, which is new, into the index.
    fn index_last(&mut self) {
        match &mut self.index {
            None if self.entries.len() <= FEW => {}
            None => self.index_if_many(),
            Some(_) => {
                let at = self.entries.len() - 1;
                let name = self.slice(self.entries[at].name).to_owned();
                if let Some(index) = &mut self.index {
                    index.positions.insert(name, at as u32);
                }
            }
        }
    }

    /// There is no index and no gap yet.
    fn index_if_many(&mut self) {
        if self.entries.len() > FEW {
            let names = self.entries.iter().map(|entry| self.slice(entry.name).to_owned());
            self.index = Some(Box::new(Index { positions: names.zip(0..).collect(), gaps: 0 }));
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Span {
        let slot = Span { at: self.bytes.len() as u32, len: bytes.len() as u32 };
        self.bytes.extend_from_slice(bytes);
        slot
    }

    fn write_over(&mut self, old: Span, value: &[u8]) -> Span {
        if value.len() > old.len as usize {
            self.unused += old.len as usize;
            return self.append(value);
        }
        let start = old.at as usize;
        self.bytes[start..start + value.len()].copy_from_slice(value);
        self.unused += old.len as usize - value.len();
        Span { at: old.at, len: value.len() as u32 }
    }

    fn clear_away(&mut self) {
        let gaps = self.index.as_ref().map_or(0, |index| index.gaps);
        if (self.unused > UNUSED_MIN && self.unused > self.bytes.len() / 2) || gaps > self.entries.len() / 2 {
            *self = self.iter().collect();
        }
    }

    /// Removes a property from all layers; returns whether it was there.
    pub fn remove(&mut self, name: impl AsRef<[u8]>) -> bool {
        let name = name.as_ref();
        match self.position(short_hash(name), name) {
            Some(i) => {
                let entry = self.entries[i];
                match &mut self.index {
                    None => {
                        self.hashes.remove(i);
                        self.entries.remove(i);
                    }
                    Some(index) => {
                        index.positions.remove(name.as_bstr());
                        index.gaps += 1;
                        self.entries[i] = Placed { stored: false, is_gap: true, ..entry };
                    }
                }
                self.unused += (entry.name.len + entry.value.len) as usize;
                self.clear_away();
                true
            }
            None => false,
        }
    }

    /// All properties in insertion order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Property<'_>> + Clone {
        Iter { properties: self, at: 0, left: self.len() }
    }

    /// Those that belong into the record.
    pub fn stored(&self) -> impl Iterator<Item = Property<'_>> {
        self.iter().filter(|p| p.stored)
    }

    /// Number of properties.
    pub fn len(&self) -> usize {
        self.entries.len() - self.index.as_ref().map_or(0, |index| index.gaps)
    }

    /// Whether there is none.
    #[allow(dead_code, reason = "belongs to `len`")]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// See [`Properties::iter`].
#[derive(Clone)]
struct Iter<'a> {
    properties: &'a Properties,
    at: usize,
    left: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Property<'a>;

    fn next(&mut self) -> Option<Property<'a>> {
        while let Some(entry) = self.properties.entries.get(self.at) {
            self.at += 1;
            if !entry.is_gap {
                self.left -= 1;
                return Some(self.properties.at(self.at - 1));
            }
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl PartialEq for Properties {
    fn eq(&self, other: &Properties) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Properties {}

impl std::fmt::Debug for Properties {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> FromIterator<Property<'a>> for Properties {
    fn from_iter<I: IntoIterator<Item = Property<'a>>>(properties: I) -> Properties {
        let mut all = Properties::new();
        for property in properties {
            all.put(property.name, property.value, property.stored);
        }
        all
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(N, V)> for Properties {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Properties {
        let mut all = Properties::new();
        for (name, value) in pairs {
            all.set(name, value);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_that_of_first_setting_and_the_last_value_wins() {
        let mut p = Properties::new();
        p.set_stored("B", "1");
        p.set_stored("A", "2");
        p.set_stored("B", "3");
        let all: Vec<_> = p.iter().map(|p| (p.name, p.value)).collect();
        assert_eq!(all, [("B".into(), "3".into()), (BStr::new("A"), BStr::new("2"))]);
        assert_eq!(p.get_key(&Key::new("A")).unwrap(), "2");
    }

    #[test]
    fn names_with_a_dot_in_front_are_never_stored() {
        let mut p = Properties::new();
        p.set_stored(".HIDDEN", "1");
        p.set_stored("SHOWN", "1");
        p.set("KERNEL", "1");
        assert_eq!(p.stored().map(|p| p.name).collect::<Vec<_>>(), ["SHOWN"]);
        assert!(p.remove("SHOWN") && !p.remove("SHOWN"));
        assert_eq!(p.len(), 2);
    }

    #[test]
    fn values_that_grow_and_shrink_stay_what_they_are() {
        let mut p = Properties::new();
        p.set("A", "1");
        p.set("B", "two");
        for n in 0..3000usize {
            p.set("A", "x".repeat(n % 300));
            p.set("B", (n * 7).to_string());
            assert_eq!(p.get("A").unwrap().len(), n % 300);
        }
        assert!(p.bytes.len() < 3 * UNUSED_MIN, "{} bytes are held", p.bytes.len());
        assert_eq!(p.get("B").unwrap(), "20993");
        let same: Properties = [("A", "x".repeat(299)), ("B", "20993".into())].into_iter().collect();
        assert_eq!(p, same);
    }

    /// Against a list that is searched from its beginning: few properties and many, set, replaced and removed.
    #[test]
    fn many_properties_behave_like_few() {
        let mut random = 1u64;
        let mut below = |limit: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % limit
        };
        for names in [3, FEW - 1, FEW, FEW + 1, 10 * FEW] {
            let mut p = Properties::new();
            let mut list: Vec<(String, String, bool)> = Vec::new();
            for round in 0..20 * names {
                let name = format!("N{}", below(names));
                let at = list.iter().position(|(known, ..)| *known == name);
                // At first most are set, then most are removed.
                match below(10) {
                    n if n < if round < 10 * names { 2 } else { 7 } => {
                        assert_eq!(p.remove(&name), at.is_some());
                        at.map(|at| list.remove(at));
                    }
                    n => {
                        let value = "v".repeat(below(90));
                        match n % 2 {
                            0 => p.set(&name, &value),
                            _ => p.set_stored(&name, &value),
                        }
                        match at {
                            Some(at) => list[at] = (name.clone(), value, list[at].2 || n % 2 == 1),
                            None => list.push((name.clone(), value, n % 2 == 1)),
                        }
                    }
                }
                let known =
                    list.iter().find(|(known, ..)| *known == name).map(|(_, value, _)| value.as_str());
                assert_eq!(p.get(&name).map(|v| v.to_str().unwrap()), known);
                assert_eq!(p.get_key(&Key::new(name)), known.map(BStr::new));
                assert_eq!(
                    (p.len(), p.iter().len(), p.is_empty()),
                    (list.len(), list.len(), list.is_empty())
                );
            }
            let all = |p: &Properties| {
                p.iter().map(|p| (p.name.to_string(), p.value.to_string(), p.stored)).collect::<Vec<_>>()
            };
            assert_eq!(all(&p), list);
            assert_eq!(all(&p.clone()), list);
            let stored = p.stored_only();
            assert_eq!(
                stored.iter().map(|p| p.name.to_string()).collect::<Vec<_>>(),
                list.iter().filter(|l| l.2).map(|l| l.0.clone()).collect::<Vec<_>>()
            );
            for (name, value, is_stored) in &list {
                assert_eq!(stored.get(name).map(|v| v.to_string()), is_stored.then(|| value.clone()));
            }
        }
    }

    /// A hundred thousand, each set, replaced by something longer, and removed: found by the table, and left as gaps.
    #[test]
    fn a_hundred_thousand_properties_are_set_replaced_and_removed_at_once() {
        let count = 100_000;
        let names: Vec<String> = (0..count).map(|n| format!("PROPERTY_{n}")).collect();
        let mut p = Properties::new();
        for value in ["1", "a longer one"] {
            names.iter().for_each(|name| p.set_stored(name, value));
        }
        assert_eq!((p.len(), p.get(&names[count / 2]).unwrap()), (count, "a longer one".into()));
        let in_table = |p: &Properties| p.index.as_ref().map(|index| (index.positions.len(), index.gaps));
        assert_eq!(in_table(&p), Some((count, 0)));
        assert!(names[..count / 4].iter().all(|name| p.remove(name)));
        assert_eq!(
            (in_table(&p), p.entries.len()),
            (Some((3 * count / 4, count / 4)), count),
            "nothing moved"
        );
        assert!(names[count / 4..].iter().all(|name| p.remove(name)) && p.is_empty());
        assert!(
            p.entries.len() <= FEW && in_table(&p).is_none_or(|(left, _)| left == 0),
            "and gaps were cleared away"
        );
    }
}
