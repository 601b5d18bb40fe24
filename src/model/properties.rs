//! The properties of a device: an ordered map from name to value, both bytes.
//!
//! Insertion order is kept, because records and announcements are written in it. A device has some
//! thirty properties; names are found by comparing 32-bit hashes in one array, which beats a tree or
//! a table at this size, and compiled rules carry the hash of the names they ask for ([`Key`]).
//!
//! Each property says whether it is *stored* in the record (rules.md section 7: layers "all" and
//! "db"). Names that begin with a dot are never stored, whatever the caller says.

use bstr::{BStr, BString, ByteSlice};

/// A property name with its hash, computed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    hash: u32,
    name: BString,
}

impl Key {
    /// The key of this name.
    pub fn new(name: impl Into<BString>) -> Key {
        let name = name.into();
        Key { hash: hash(&name), name }
    }

    /// The name itself.
    pub fn name(&self) -> &BStr {
        self.name.as_bstr()
    }
}

/// FNV-1a: names are short, and rules decide which names exist, so an attacker gains nothing from
/// collisions but a slower comparison.
fn hash(name: &[u8]) -> u32 {
    name.iter().fold(0x811c_9dc5, |h, &b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

/// One property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    pub name: BString,
    pub value: BString,
    /// Written to the record as an `E:` line.
    pub stored: bool,
}

/// An insertion-ordered map of properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    hashes: Vec<u32>,
    entries: Vec<Property>,
}

impl Properties {
    /// An empty map.
    pub fn new() -> Properties {
        Properties::default()
    }

    fn position(&self, hash: u32, name: &[u8]) -> Option<usize> {
        let mut from = 0;
        while let Some(at) = self.hashes[from..].iter().position(|&h| h == hash) {
            if self.entries[from + at].name == name {
                return Some(from + at);
            }
            from += at + 1;
        }
        None
    }

    /// The value of `name`, None if it is not set.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&BStr> {
        let name = name.as_ref();
        self.position(hash(name), name).map(|i| self.entries[i].value.as_bstr())
    }

    /// The whole property of this name.
    pub fn find(&self, name: impl AsRef<[u8]>) -> Option<&Property> {
        let name = name.as_ref();
        self.position(hash(name), name).map(|i| &self.entries[i])
    }

    /// Like [`get`](Self::get), without hashing.
    pub fn get_key(&self, key: &Key) -> Option<&BStr> {
        self.position(key.hash, &key.name).map(|i| self.entries[i].value.as_bstr())
    }

    /// Sets a property that goes to environment and announcement, not to the record. A property that
    /// was stored stays stored.
    pub fn set(&mut self, name: impl AsRef<[u8]>, value: impl Into<BString>) {
        self.put(name.as_ref(), value.into(), false);
    }

    /// Sets a property that also goes to the record, unless its name begins with a dot.
    pub fn set_stored(&mut self, name: impl AsRef<[u8]>, value: impl Into<BString>) {
        let name = name.as_ref();
        let stored = !name.starts_with(b".");
        self.put(name, value.into(), stored);
    }

    fn put(&mut self, name: &[u8], value: BString, stored: bool) {
        let hash = hash(name);
        match self.position(hash, name) {
            Some(i) => {
                self.entries[i].value = value;
                self.entries[i].stored |= stored;
            }
            None => {
                self.hashes.push(hash);
                self.entries.push(Property { name: name.into(), value, stored });
            }
        }
    }

    /// Removes a property from all layers; returns whether it was there.
    pub fn remove(&mut self, name: impl AsRef<[u8]>) -> bool {
        let name = name.as_ref();
        match self.position(hash(name), name) {
            Some(i) => {
                self.hashes.remove(i);
                self.entries.remove(i);
                true
            }
            None => false,
        }
    }

    /// All properties in insertion order.
    pub fn iter(&self) -> impl Iterator<Item = &Property> {
        self.entries.iter()
    }

    /// Those that belong into the record.
    pub fn stored(&self) -> impl Iterator<Item = &Property> {
        self.entries.iter().filter(|p| p.stored)
    }

    /// Number of properties.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<N: AsRef<[u8]>, V: Into<BString>> FromIterator<(N, V)> for Properties {
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
        let all: Vec<_> = p.iter().map(|p| (p.name.clone(), p.value.clone())).collect();
        assert_eq!(all, [("B".into(), "3".into()), (BString::from("A"), BString::from("2"))]);
        assert_eq!(p.get_key(&Key::new("A")).unwrap(), "2");
    }

    #[test]
    fn names_with_a_dot_in_front_are_never_stored() {
        let mut p = Properties::new();
        p.set_stored(".HIDDEN", "1");
        p.set_stored("SHOWN", "1");
        p.set("KERNEL", "1");
        assert_eq!(p.stored().map(|p| p.name.clone()).collect::<Vec<_>>(), ["SHOWN"]);
        assert!(p.remove("SHOWN") && !p.remove("SHOWN"));
        assert_eq!(p.len(), 2);
    }
}
