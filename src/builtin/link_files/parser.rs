//! Parses one .link file with its drop-ins (builtins.md 2.1 and 2.3): each assignment of `[Link]` to its place in
//! [`Wanted`], those of `[Match]` to [`Matching`].
//!
//! What must stay true: a bad value costs its key only, and the log hears of every key that has no effect.

use super::file::{ALT_NAME_MAX, LinkFile, MacPolicy, NamePolicy, Part, Wanted};
use super::later::{LATER_LINK, LATER_SR_IOV};
use super::matching::{Matching, parse_address};
use super::values::{expand_specifiers, is_settable, parse_size};
use crate::builtin::host::Host;
use crate::builtin::ini::{self, Assignment, Complaint};
use crate::builtin::link_facts::NAME_MAX;
use crate::builtin::value::parse_number;
use crate::model::device::is_interface_name;
use bstr::BString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const QUEUES_MAX: u64 = 16384;

/// Makes sense of one file with its drop-ins. None: it is for no link of this machine.
pub(super) fn parse_file(parts: &[Part], host: &Host, log: &mut Vec<String>) -> Option<LinkFile> {
    let (Part { path, .. }, drop_ins) = parts.split_first()?;
    let mut parser = Parser::new(host);
    for Part { path: part, content } in parts {
        let unread = |text: &String| Complaint { line: 0, text: text.clone() };
        let complaints = content.as_ref().map_err(unread).and_then(|text| {
            let (assignments, mut complaints) = ini::parse(text)?;
            complaints.extend(assignments.iter().filter_map(|assignment| parser.assign(assignment)));
            Ok(complaints)
        });
        let say = |c: &Complaint| match c.line {
            0 => format!("{}: {}", part.display(), c.text),
            line => format!("{}:{line}: {}", part.display(), c.text),
        };
        match complaints {
            Ok(complaints) => log.extend(complaints.iter().map(say)),
            Err(fault) => {
                log.push(say(&fault));
                return None;
            }
        }
    }
    let Parser { matching, wanted, later, .. } = parser;
    if matching.is_empty() {
        log.push(format!("{}: no valid setting in [Match], the file is ignored", path.display()));
        return None;
    }
    if !matching.conditions_hold() {
        return None;
    }
    if wanted.mac.is_some() && wanted.mac_policy != MacPolicy::None {
        log.push(format!("{}: MACAddress= has no effect with this MACAddressPolicy=", path.display()));
    }
    if !later.is_empty() {
        let keys = later.join(", ");
        log.push(format!("{}: not carried out by this version, it comes later: {keys}", path.display()));
    }
    let bytes = |path: &Path| BString::from(path.as_os_str().as_bytes());
    let drop_ins = drop_ins.iter().map(|part| bytes(&part.path)).collect();
    Some(LinkFile { path: bytes(path), drop_ins, matching, wanted })
}
/// A file in the making.
pub(super) struct Parser<'a> {
    host: &'a Host,
    matching: Matching,
    wanted: Wanted,
    /// Keys that are known and not carried out yet.
    later: Vec<String>,
}

/// How an assignment went.
#[derive(Debug, PartialEq, Eq)]
enum Taken {
    Yes,
    /// Known, and not carried out yet.
    Later,
    UnknownKey,
    /// The value, or a part of it, does not count.
    Bad(String),
}

impl From<Result<(), String>> for Taken {
    fn from(result: Result<(), String>) -> Taken {
        match result {
            Ok(()) => Taken::Yes,
            Err(why) => Taken::Bad(why),
        }
    }
}

impl<'a> Parser<'a> {
    pub(super) fn new(host: &'a Host) -> Parser<'a> {
        Parser { host, matching: Matching::default(), wanted: Wanted::default(), later: vec![] }
    }

    /// Takes one assignment; returns a complaint if something is wrong with it.
    pub(super) fn assign(&mut self, assignment: &Assignment) -> Option<Complaint> {
        let Assignment { line, section, key, value, .. } = assignment;
        let taken = match section.as_str() {
            "Match" => match self.matching.assign(key, value, self.host) {
                Some(result) => result.into(),
                None => Taken::UnknownKey,
            },
            "Link" => self.assign_link(key, value),
            "SR-IOV" if LATER_SR_IOV.contains(&key.as_str()) => Taken::Later,
            "SR-IOV" => Taken::UnknownKey,
            "EnergyEfficientEthernet" => Taken::Later,
            section if section.starts_with("X-") => Taken::Yes,
            _ => {
                return Some(Complaint {
                    line: *line,
                    text: format!("unknown section [{section}], ignored"),
                });
            }
        };
        let text = match taken {
            Taken::Yes => return None,
            Taken::Later => {
                let name = format!("{key}= in [{section}]");
                if !self.later.contains(&name) {
                    self.later.push(name);
                }
                return None;
            }
            Taken::UnknownKey => format!("unknown key {key}= in [{section}], ignored"),
            Taken::Bad(why) => format!("{key}={value}: {why}, ignored"),
        };
        Some(Complaint { line: *line, text })
    }

    fn assign_link(&mut self, key: &str, value: &str) -> Taken {
        let wanted = &mut self.wanted;
        let settings = &mut wanted.settings;
        let queues = |number: u64| (1..=QUEUES_MAX).contains(&number);
        let result = match key {
            "Description" => Ok(()),
            "Alias" => set(&mut settings.alias, value, "no ASCII text below 256 bytes", |text| {
                (text.is_ascii() && text.len() < 256).then(|| text.into())
            }),
            "MACAddressPolicy" => set_plain(
                &mut wanted.mac_policy,
                match value {
                    "" | "none" => Some(MacPolicy::None),
                    "persistent" => Some(MacPolicy::Persistent),
                    "random" => Some(MacPolicy::Random),
                    _ => None,
                },
                "no policy",
            ),
            "MACAddress" => set(&mut wanted.mac, value, "no hardware address", parse_address),
            "NamePolicy" => policies(&mut wanted.name_policy, value, &NamePolicy::WORDS),
            "Name" => set(&mut wanted.name, value, "no interface name", |name| {
                is_interface_name(name.as_bytes(), NAME_MAX).then(|| name.into())
            }),
            // An alternative name cannot be kept.
            "AlternativeNamesPolicy" => {
                policies(&mut wanted.alt_names_policy, value, &NamePolicy::WORDS[2..])
            }
            "AlternativeName" => alt_names(&mut wanted.alt_names, value),
            "TransmitQueues" => set_number(&mut settings.tx_queues, value, queues),
            "ReceiveQueues" => set_number(&mut settings.rx_queues, value, queues),
            "TransmitQueueLength" => {
                set_number(&mut settings.tx_queue_len, value, |n| n < u64::from(u32::MAX))
            }
            "MTUBytes" => set(&mut settings.mtu, value, "no size", parse_size),
            "GenericSegmentOffloadMaxBytes" => set(&mut settings.gso_max_size, value, "no size", parse_size),
            "GenericSegmentOffloadMaxSegments" => {
                set_number(&mut settings.gso_max_segments, value, |n| n <= u64::from(u32::MAX))
            }
            "Property" => self.assign_properties(value),
            "ImportProperty" => property_names(&mut wanted.import_properties, value),
            "UnsetProperty" => property_names(&mut wanted.unset_properties, value),
            "UDPSegmentationOffload" => Err("was taken out of the kernel".into()),
            key if LATER_LINK.contains(&key) => return Taken::Later,
            _ => return Taken::UnknownKey,
        };
        result.into()
    }

    /// `KEY=VALUE` words; bad ones are left out.
    fn assign_properties(&mut self, value: &str) -> Result<(), String> {
        if value.is_empty() {
            self.wanted.properties.clear();
            return Ok(());
        }
        let words = ini::split_quoted(value, true).ok_or("bad quoting")?;
        let mut bad = Vec::new();
        for word in words {
            let pair = word.split_once('=').filter(|(name, _)| is_settable(name));
            match pair.and_then(|(name, text)| Some((name.to_owned(), expand_specifiers(text, self.host)?))) {
                Some(pair) => self.wanted.properties.push(pair),
                None => bad.push(word),
            }
        }
        all_good(bad, "cannot be set")
    }
}

/// Ok if there are no bad words.
fn all_good(bad: Vec<String>, what: &str) -> Result<(), String> {
    match bad.is_empty() {
        true => Ok(()),
        false => Err(format!("{what}: {}", bad.join(" "))),
    }
}

/// Sets an optional value; the empty text unsets it.
fn set<T>(
    field: &mut Option<T>,
    value: &str,
    complaint: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<(), String> {
    match value {
        "" => *field = None,
        _ => *field = Some(parse(value).ok_or(complaint)?),
    }
    Ok(())
}

fn set_plain<T>(field: &mut T, value: Option<T>, complaint: &str) -> Result<(), String> {
    *field = value.ok_or(complaint)?;
    Ok(())
}

fn set_number(field: &mut Option<u32>, value: &str, fits: impl Fn(u64) -> bool) -> Result<(), String> {
    set(field, value, "no number in the range", |text| {
        parse_number(text.as_bytes()).filter(|&n| fits(n)).and_then(|n| n.try_into().ok())
    })
}

/// Replaces a list of policies; unknown words are skipped.
fn policies(
    list: &mut Vec<NamePolicy>,
    value: &str,
    words: &[(&'static str, NamePolicy)],
) -> Result<(), String> {
    list.clear();
    let mut bad = Vec::new();
    for word in value.split_ascii_whitespace() {
        match words.iter().find(|(name, _)| *name == word) {
            Some((_, policy)) if !list.contains(policy) => list.push(*policy),
            Some(_) => {}
            None => bad.push(word.to_owned()),
        }
    }
    all_good(bad, "no policies")
}

/// Appends alternative names.
fn alt_names(list: &mut Vec<String>, value: &str) -> Result<(), String> {
    if value.is_empty() {
        list.clear();
    }
    let (good, bad): (Vec<String>, Vec<String>) = value
        .split_ascii_whitespace()
        .map(str::to_owned)
        .partition(|word| is_interface_name(word.as_bytes(), ALT_NAME_MAX));
    list.extend(good);
    all_good(bad, "no alternative names")
}

/// Appends names of properties.
fn property_names(list: &mut Vec<String>, value: &str) -> Result<(), String> {
    if value.is_empty() {
        list.clear();
    }
    let (good, bad): (Vec<String>, Vec<String>) =
        value.split_ascii_whitespace().map(str::to_owned).partition(|word| is_settable(word));
    list.extend(good);
    all_good(bad, "no names of properties that can be changed")
}
