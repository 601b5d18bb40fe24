//! One .link file as a value: what it wants of an interface, and which interfaces it is for.

use super::matching::Matching;
use crate::links::request::Settings;
use bstr::BString;
use std::path::PathBuf;

/// Longest alternative name.
pub const ALT_NAME_MAX: usize = 127;

/// A word of NamePolicy= or AlternativeNamesPolicy=.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamePolicy {
    /// Keep a name that the kernel says is predictable.
    Kernel,
    /// Keep a name that was given by someone.
    Keep,
    Database,
    Onboard,
    Slot,
    Path,
    Mac,
}

impl NamePolicy {
    pub(super) const WORDS: [(&'static str, NamePolicy); 7] = [
        ("kernel", NamePolicy::Kernel),
        ("keep", NamePolicy::Keep),
        ("database", NamePolicy::Database),
        ("onboard", NamePolicy::Onboard),
        ("slot", NamePolicy::Slot),
        ("path", NamePolicy::Path),
        ("mac", NamePolicy::Mac),
    ];

    /// The property that holds the name.
    pub fn property(self) -> Option<&'static str> {
        match self {
            NamePolicy::Kernel | NamePolicy::Keep => None,
            NamePolicy::Database => Some("ID_NET_NAME_FROM_DATABASE"),
            NamePolicy::Onboard => Some("ID_NET_NAME_ONBOARD"),
            NamePolicy::Slot => Some("ID_NET_NAME_SLOT"),
            NamePolicy::Path => Some("ID_NET_NAME_PATH"),
            NamePolicy::Mac => Some("ID_NET_NAME_MAC"),
        }
    }
}

/// MACAddressPolicy=.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MacPolicy {
    /// MACAddress= if it is given.
    #[default]
    None,
    /// The same address at every boot, made of the machine id and a name.
    Persistent,
    Random,
}

/// The `[Link]` section: what a file wants of an interface. None and empty mean: leave alone.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Alias, MTU and queues, but for the address.
    pub settings: Settings,
    pub mac_policy: MacPolicy,
    pub mac: Option<Vec<u8>>,
    pub name_policy: Vec<NamePolicy>,
    pub name: Option<String>,
    pub alt_names_policy: Vec<NamePolicy>,
    pub alt_names: Vec<String>,
    pub properties: Vec<(String, String)>,
    pub import_properties: Vec<String>,
    pub unset_properties: Vec<String>,
}

/// One file with its drop-ins.
#[derive(Clone, Debug)]
pub struct LinkFile {
    pub path: BString,
    pub drop_ins: Vec<BString>,
    pub matching: Matching,
    pub wanted: Wanted,
}

/// One file or drop-in as it was read, or why it could not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub path: PathBuf,
    pub content: Result<Vec<u8>, String>,
}
