//! `[Match]` of a .link file (builtins.md 2.2): which links the file is for.
//!
//! Conditions about the machine are decided when the file is loaded; a false one removes the file.
//! What must stay true: all keys must agree, and a value that is not known never satisfies a positive
//! pattern and never violates a negated one.

use crate::builtin::host::Host;
use crate::builtin::ini::split_quoted;
use crate::builtin::link_facts::{LinkFacts, NAME_MAX};
use crate::builtin::value::parse_hex;
use crate::model::Properties;
use crate::model::device::is_interface_name;
use crate::rules::glob::Glob;
use bstr::ByteSlice;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A link as `[Match]` sees it.
pub struct Subject<'a> {
    pub link: &'a LinkFacts<'a>,
    /// Its name at this moment.
    pub name: &'a [u8],
    pub devtype: Option<&'a [u8]>,
    /// As ethtool calls it: ID_NET_DRIVER.
    pub driver: Option<&'a [u8]>,
    /// What rules have set so far.
    pub properties: &'a Properties,
}

/// The `[Match]` section.
#[derive(Clone, Debug, Default)]
pub struct Matching {
    mac: Vec<Vec<u8>>,
    permanent_mac: Vec<Vec<u8>>,
    original_name: Globs,
    path: Globs,
    driver: Globs,
    link_type: Globs,
    kind: Globs,
    properties: Vec<PropertyGlob>,
    /// The verdict of the last assignment of each condition.
    conditions: Vec<(String, bool)>,
}

/// Patterns of one key, each with whether it is negated.
#[derive(Clone, Debug, Default)]
struct Globs(Vec<(bool, Glob, String)>);

#[derive(Clone, Debug)]
struct PropertyGlob {
    negated: bool,
    name: String,
    value: Glob,
}

impl Globs {
    /// Appends the words of an assignment; an empty one clears the list.
    fn assign(&mut self, value: &str, valid: impl Fn(&str) -> bool) -> Result<(), String> {
        if value.is_empty() {
            self.0.clear();
            return Ok(());
        }
        let (negated, rest) = match value.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, value),
        };
        let words = split_quoted(rest, false).ok_or("a quote is not closed")?;
        let (good, bad): (Vec<String>, Vec<String>) = words.into_iter().partition(|word| valid(word));
        self.0.extend(good.into_iter().map(|word| (negated, Glob::new(word.as_bytes(), false), word)));
        match bad.is_empty() {
            true => Ok(()),
            false => Err(format!("no interface names: {}", bad.join(" "))),
        }
    }

    fn matches(&self, value: Option<&[u8]>) -> bool {
        let is_positive = |(negated, _, _): &&(bool, Glob, String)| !negated;
        let hit = |(_, glob, _): &(bool, Glob, String)| value.is_some_and(|value| glob.matches(value));
        if self.0.iter().filter(|g| !is_positive(g)).any(hit) {
            return false;
        }
        let mut positive = self.0.iter().filter(is_positive).peekable();
        positive.peek().is_none() || positive.any(hit)
    }
}

impl Matching {
    /// Takes one assignment of the section. None: no such key; Err: the value is bad.
    pub fn assign(&mut self, key: &str, value: &str, host: &Host) -> Option<Result<(), String>> {
        let anything = |_: &str| true;
        Some(match key {
            "MACAddress" => assign_addresses(&mut self.mac, value),
            "PermanentMACAddress" => assign_addresses(&mut self.permanent_mac, value),
            "OriginalName" => {
                self.original_name.assign(value, |word| is_interface_name(word.as_bytes(), NAME_MAX))
            }
            "Path" => self.path.assign(value, anything),
            "Driver" => self.driver.assign(value, anything),
            "Type" => self.link_type.assign(value, anything),
            "Kind" => self.kind.assign(value, anything),
            "Property" => self.assign_properties(value),
            "Host" | "Virtualization" | "KernelCommandLine" | "KernelVersion" | "Credential"
            | "Architecture" | "Firmware" => {
                self.conditions.retain(|(name, _)| name != key);
                if !value.is_empty() {
                    let (negated, rest) = match value.strip_prefix('!') {
                        Some(rest) => (true, rest.trim_ascii_start()),
                        None => (false, value),
                    };
                    self.conditions.push((key.into(), host.condition(key, rest) != negated));
                }
                Ok(())
            }
            _ => return None,
        })
    }

    fn assign_properties(&mut self, value: &str) -> Result<(), String> {
        if value.is_empty() {
            self.properties.clear();
            return Ok(());
        }
        let (negated, rest) = match value.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, value),
        };
        let words = split_quoted(rest, true).ok_or("bad quoting")?;
        let mut added = Vec::new();
        for word in words {
            let (name, glob) = word.split_once('=').ok_or_else(|| format!("no '=' in {word}"))?;
            added.push(PropertyGlob { negated, name: name.into(), value: Glob::new(glob.as_bytes(), false) });
        }
        self.properties.extend(added);
        Ok(())
    }

    /// Whether no key has a value: such a file is for no link.
    pub fn is_empty(&self) -> bool {
        self.mac.is_empty()
            && self.permanent_mac.is_empty()
            && [&self.original_name, &self.path, &self.driver, &self.link_type, &self.kind]
                .iter()
                .all(|globs| globs.0.is_empty())
            && self.properties.is_empty()
            && self.conditions.is_empty()
    }

    /// Whether links are told apart by their permanent address.
    pub fn wants_permanent_address(&self) -> bool {
        !self.permanent_mac.is_empty()
    }

    /// Whether all conditions about the machine hold.
    pub fn conditions_hold(&self) -> bool {
        self.conditions.iter().all(|(_, verdict)| *verdict)
    }

    /// Whether it names links by something else than `*`.
    pub fn names_links(&self) -> bool {
        self.original_name.0.iter().any(|(negated, _, word)| !negated && word != "*")
    }

    /// Whether it is for this link; conditions were judged before.
    pub fn matches(&self, subject: &Subject) -> bool {
        let link = subject.link;
        let one_of = |list: &[Vec<u8>], address: &[u8]| {
            list.is_empty() || (!address.is_empty() && list.iter().any(|a| a == address))
        };
        let property = |name: &str| subject.properties.get(name).map(|value| value.as_bytes());
        let text = |text: &'static str| Some(text.as_bytes());
        let type_name = || match subject.devtype {
            Some(devtype) if !devtype.is_empty() => Some(devtype),
            _ => link.ifi_type.and_then(hardware_name).and_then(text),
        };
        one_of(&self.mac, &link.address)
            && one_of(&self.permanent_mac, &link.perm_address)
            && self.original_name.matches(Some(subject.name))
            && (self.path.0.is_empty() || self.path.matches(property("ID_PATH")))
            && (self.driver.0.is_empty() || self.driver.matches(subject.driver))
            && (self.link_type.0.is_empty() || self.link_type.matches(type_name()))
            && self.kind.matches(Some(&*link.kind).filter(|kind| !kind.is_empty()))
            && self.properties.iter().all(|wanted| match property(&wanted.name) {
                Some(value) => wanted.value.matches(value) != wanted.negated,
                None => wanted.negated,
            })
    }
}

/// Appends hardware addresses; an empty assignment clears the list, a bad word adds nothing.
fn assign_addresses(list: &mut Vec<Vec<u8>>, value: &str) -> Result<(), String> {
    if value.is_empty() {
        list.clear();
        return Ok(());
    }
    let mut bad = Vec::new();
    for word in value.split_ascii_whitespace() {
        match parse_address(word) {
            Some(address) => list.push(address),
            None => bad.push(word),
        }
    }
    match bad.is_empty() {
        true => Ok(()),
        false => Err(format!("no hardware addresses: {}", bad.join(" "))),
    }
}

/// A hardware address: bytes between `:` or `-`, groups of 16 bits between `.`, or an IP address; 4, 6,
/// 16 or 20 bytes in all.
pub fn parse_address(text: &str) -> Option<Vec<u8>> {
    let pieces = |separator: u8, digits: usize| -> Option<Vec<u32>> {
        text.as_bytes()
            .split(|&b| b == separator)
            .map(|piece| parse_hex(piece).filter(|_| piece.len() <= digits))
            .collect::<Option<Vec<u32>>>()
            .filter(|pieces| pieces.len() > 1)
    };
    let bytes = pieces(b':', 2).or_else(|| pieces(b'-', 2));
    let bytes = bytes.map(|bytes| bytes.into_iter().map(|b| b as u8).collect::<Vec<u8>>());
    let groups = || Some(pieces(b'.', 4)?.into_iter().flat_map(|g| (g as u16).to_be_bytes()).collect());
    let fits = |address: &Vec<u8>| matches!(address.len(), 4 | 6 | 16 | 20);
    bytes
        .filter(fits)
        .or_else(|| groups().filter(fits))
        .or_else(|| Some(text.parse::<Ipv4Addr>().ok()?.octets().to_vec()))
        .or_else(|| Some(text.parse::<Ipv6Addr>().ok()?.octets().to_vec()))
}

/// Lower-case name of an ARPHRD_* number (linux/if_arp.h).
fn hardware_name(number: u16) -> Option<&'static str> {
    let at = HARDWARE.binary_search_by_key(&number, |(n, _)| *n).ok()?;
    Some(HARDWARE[at].1)
}

const HARDWARE: [(u16, &str); 67] = [
    (0, "netrom"),
    (1, "ether"),
    (2, "eether"),
    (3, "ax25"),
    (4, "pronet"),
    (5, "chaos"),
    (6, "ieee802"),
    (7, "arcnet"),
    (8, "appletlk"),
    (15, "dlci"),
    (19, "atm"),
    (23, "metricom"),
    (24, "ieee1394"),
    (27, "eui64"),
    (32, "infiniband"),
    (256, "slip"),
    (257, "cslip"),
    (258, "slip6"),
    (259, "cslip6"),
    (260, "rsrvd"),
    (264, "adapt"),
    (270, "rose"),
    (271, "x25"),
    (272, "hwx25"),
    (280, "can"),
    (290, "mctp"),
    (512, "ppp"),
    (513, "cisco"),
    (516, "lapb"),
    (517, "ddcmp"),
    (518, "rawhdlc"),
    (519, "rawip"),
    (768, "tunnel"),
    (769, "tunnel6"),
    (770, "frad"),
    (771, "skip"),
    (772, "loopback"),
    (773, "localtlk"),
    (774, "fddi"),
    (775, "bif"),
    (776, "sit"),
    (777, "ipddp"),
    (778, "ipgre"),
    (779, "pimreg"),
    (780, "hippi"),
    (781, "ash"),
    (782, "econet"),
    (783, "irda"),
    (784, "fcpp"),
    (785, "fcal"),
    (786, "fcpl"),
    (787, "fcfabric"),
    (800, "ieee802_tr"),
    (801, "ieee80211"),
    (802, "ieee80211_prism"),
    (803, "ieee80211_radiotap"),
    (804, "ieee802154"),
    (805, "ieee802154_monitor"),
    (820, "phonet"),
    (821, "phonet_pipe"),
    (822, "caif"),
    (823, "ip6gre"),
    (824, "netlink"),
    (825, "6lowpan"),
    (826, "vsockmon"),
    (65534, "none"),
    (65535, "void"),
];

#[cfg(test)]
mod tests;
