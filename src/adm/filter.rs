//! The options that choose devices, shared by `info` and `trigger` (interop.md 5.2, 5.3).

use super::view::Devices;
use super::{Stop, bytes_value};
use crate::model::command_line::LongNames;
use crate::rules::glob::Glob;
use crate::world::enumerate::{Enumerator, Filter, Found, Kind};
use crate::world::filter::AttrMatch;
use bstr::{BString, ByteSlice};
use lexopt::Parser;

/// What the options do, for the help of both subcommands.
macro_rules! filter_help {
    () => {
        "  -s --subsystem-match=SUBSYSTEM    Devices of this subsystem (patterns, repeatable)
  -S --subsystem-nomatch=SUBSYSTEM  No devices of this subsystem
  -a --attr-match=FILE[=VALUE]      Devices with this attribute
  -A --attr-nomatch=FILE[=VALUE]    No devices with this attribute
  -p --property-match=KEY=VALUE     Devices with this property
  -g --tag-match=TAG                Devices with this tag
  -y --sysname-match=NAME           Devices of this name in /sys
     --name-match=NAME              The device of this node, and those below it
  -b --parent-match=DEVICE          This device and those below it
     --initialized-match            Devices that have a record
     --initialized-nomatch          Devices that have none"
    };
}
pub(super) use filter_help;

/// Their long names.
pub(super) const LONG: LongNames = &[
    "subsystem-match",
    "subsystem-nomatch",
    "attr-match",
    "attr-nomatch",
    "property-match",
    "tag-match",
    "sysname-match",
    "name-match",
    "parent-match",
    "initialized-match",
    "initialized-nomatch",
];

/// One of the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    Subsystem,
    NotSubsystem,
    Attr,
    NotAttr,
    Property,
    Tag,
    Sysname,
    Name,
    Parent,
    Initialized,
    NotInitialized,
}

impl Match {
    /// The option of this long name.
    pub(super) fn from_long(name: &str) -> Option<Match> {
        Some(match name {
            "subsystem-match" => Match::Subsystem,
            "subsystem-nomatch" => Match::NotSubsystem,
            "attr-match" => Match::Attr,
            "attr-nomatch" => Match::NotAttr,
            "property-match" => Match::Property,
            "tag-match" => Match::Tag,
            "sysname-match" => Match::Sysname,
            "name-match" => Match::Name,
            "parent-match" => Match::Parent,
            "initialized-match" => Match::Initialized,
            "initialized-nomatch" => Match::NotInitialized,
            _ => return None,
        })
    }

    /// The option of this letter, in `trigger` only.
    pub(super) fn from_short(letter: char) -> Option<Match> {
        Some(match letter {
            's' => Match::Subsystem,
            'S' => Match::NotSubsystem,
            'a' => Match::Attr,
            'A' => Match::NotAttr,
            'p' => Match::Property,
            'g' => Match::Tag,
            'y' => Match::Sysname,
            'b' => Match::Parent,
            _ => return None,
        })
    }

    /// Reads the option's value, if it has one, into the filter.
    pub(super) fn read(
        self,
        parser: &mut Parser,
        filter: &mut Filter,
        devices: &Devices,
    ) -> Result<(), Stop> {
        match self {
            Match::Subsystem => filter.subsystems.push(glob(&bytes_value(parser)?)),
            Match::NotSubsystem => filter.not_subsystems.push(glob(&bytes_value(parser)?)),
            Match::Attr => add_attribute(&mut filter.attrs, &bytes_value(parser)?),
            Match::NotAttr => add_attribute(&mut filter.not_attrs, &bytes_value(parser)?),
            Match::Property => filter.properties.push(property(&bytes_value(parser)?)?),
            Match::Tag => filter.tags.push(tag(bytes_value(parser)?)?),
            Match::Sysname => filter.sysnames.push(glob(&bytes_value(parser)?)),
            Match::Name => filter.parents.push(devices.find_below_dev(&bytes_value(parser)?)?),
            Match::Parent => filter.parents.push(devices.find_below_sys(&bytes_value(parser)?)?),
            Match::Initialized => filter.initialized = Some(true),
            Match::NotInitialized => filter.initialized = Some(false),
        }
        Ok(())
    }
}

/// The devices that the filter wants, in order.
pub(super) fn enumerate(
    devices: &Devices,
    kind: Kind,
    filter: &Filter,
    prioritized: &[BString],
) -> Vec<Found> {
    Enumerator::new(&devices.sysfs, &devices.roots.run).enumerate(kind, filter, prioritized)
}

fn glob(pattern: &[u8]) -> Glob {
    Glob::new(pattern, false)
}

/// `FILE` or `FILE=VALUE`.
fn add_attribute(list: &mut Vec<AttrMatch>, text: &[u8]) {
    match text.split_once_str("=") {
        Some((name, value)) => AttrMatch::add(list, name, Some(glob(value))),
        None => AttrMatch::add(list, text, None),
    }
}

/// `KEY=VALUE`; the value may contain a `=`.
fn property(text: &[u8]) -> Result<(Glob, Glob), Stop> {
    match text.split_once_str("=") {
        Some((name, value)) => Ok((glob(name), glob(value))),
        None => Err(Stop::Failed(format!("{:?} is no KEY=VALUE", text.as_bstr()))),
    }
}

/// A tag is the name of a folder.
fn tag(tag: BString) -> Result<BString, Stop> {
    match tag.as_slice() {
        b"" | b"." | b".." => Err(Stop::Failed(format!("{tag:?} is no tag"))),
        _ => Ok(tag),
    }
}
