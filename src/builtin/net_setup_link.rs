//! net_setup_link: applies the first .link file that matches (builtins.md 1.3, 2.3 to 2.5).
//!
//! The wanted name and alternative names are returned; the rules decide whether they become NAME, and
//! the event renames at its end. Everything else goes in one request to the kernel, which is not sent if the kernel,
//! asked for a fresh row, shows that the interface has all of it already. What must stay true: a veth under the
//! default file costs two attributes (`addr_assign_type`, `name_assign_type`) and none where the file does not ask
//! for them.

use super::call::{Call, success};
use super::link_facts::{LinkFacts, NAME_MAX};
use super::link_files::matching::Subject;
use super::link_files::{ALT_NAME_MAX, LinkFile, LinkFiles, MacPolicy, NamePolicy};
use super::naming_scheme::{Flag, NamingScheme};
use super::value::parse_number;
use crate::links::request::{Settings, set_link};
use crate::model::device::is_interface_name;
use crate::model::need::{Fact, Need};
use crate::model::{Action, Event, Properties};
use crate::rules::ask::BuiltinResult;
use crate::world::sysfs::Sysfs;
use bstr::{BStr, BString, ByteSlice};
use siphasher::sip::SipHasher24;
use std::hash::{BuildHasher, Hasher};

const ARPHRD_ETHER: u16 = 1;
const ARPHRD_INFINIBAND: u16 = 32;

/// Values of `addr_assign_type` (linux/netdevice.h, NET_ADDR_*).
const ADDRESS_RANDOM: u64 = 1;
const ADDRESS_STOLEN: u64 = 2;
const ADDRESS_SET: u64 = 3;

/// Values of `name_assign_type` (linux/netdevice.h, NET_NAME_*).
const NAME_ENUMERATED: u64 = 1;
const NAME_PREDICTABLE: u64 = 2;
const NAME_USER: u64 = 3;
const NAME_RENAMED: u64 = 4;

/// Key of the hash that makes persistent addresses; changing it changes every address.
const ADDRESS_KEY: [u8; 16] =
    [0xd3, 0x1e, 0x48, 0xfa, 0x90, 0xfe, 0x4b, 0x4c, 0x9d, 0xaf, 0xd5, 0xd7, 0xa1, 0xb1, 0x2e, 0x8a];

/// What the builtin works with besides the call.
pub(super) struct Context<'a> {
    pub scheme: NamingScheme,
    pub sysfs: &'a Sysfs,
    pub link_files: &'a LinkFiles,
    /// What `Driver=` compares with.
    pub driver: Option<&'a [u8]>,
    /// Send nothing to the kernel.
    pub dry: bool,
}

/// Whether the action is one that files are applied on. On others nothing is asked of the link.
pub(super) fn applies_on(action: Action) -> bool {
    matches!(action, Action::Add | Action::Bind | Action::Move)
}

/// The result for the other actions: what the record says of the file and the driver, and the present name.
pub(super) fn carried_over(event: &Event, scheme: NamingScheme) -> BuiltinResult {
    let mut properties = Vec::new();
    for name in ["ID_NET_LINK_FILE", "ID_NET_LINK_FILE_DROPINS", "ID_NET_DRIVER"] {
        properties.extend(old_property(event, name).map(|value| (name.into(), Some(value))));
    }
    properties.push(("ID_NET_NAME".into(), Some(present_name(event, scheme).into())));
    success(properties)
}

/// Matches the link and applies the file.
pub(super) fn run(context: &Context, call: &Call, link: &LinkFacts) -> Result<BuiltinResult, Need> {
    let event = call.event;
    let name = present_name(event, context.scheme);
    let subject = Subject {
        link,
        name,
        devtype: event.device.devtype.as_ref().map(|d| d.as_bytes()),
        driver: context.driver,
        properties: &event.properties,
    };
    let Some(file) = context.link_files.find(&subject) else { return Ok(success(vec![])) };
    let setup = Setup { context, event, link, file, name };
    let mut messages = Vec::new();
    if !context.dry {
        let sent = call.facts.iter().find_map(|fact| match fact {
            Fact::Rtnl(outcome) => Some(outcome),
            _ => None,
        });
        match sent {
            None => {
                let settings = setup.settings(&mut messages);
                if let Some(ifindex) = event.device.ifindex {
                    if setup.leaves_out(&settings) && !call.facts.contains(&Fact::Link) {
                        return Err(Need::FreshLink { ifindex, statistics: false });
                    }
                    if !settings.is_empty() {
                        return Err(Need::Rtnl(set_link(ifindex, &settings, 0)));
                    }
                }
            }
            Some(Ok(())) => {}
            Some(Err(errno)) => messages.push(format!("{name}: settings of {} refused: {errno}", file.path)),
        }
    }
    Ok(setup.result(messages))
}

/// The name that stays if nothing gives another one.
fn present_name(event: &Event, scheme: NamingScheme) -> &BStr {
    let property = || event.properties.get("INTERFACE").filter(|name| !name.is_empty());
    scheme.has(Flag::UseInterfaceProperty).then(property).flatten().unwrap_or(event.device.sysname.as_bstr())
}

/// A property of the record of the last event.
fn old_property(event: &Event, name: &str) -> Option<BString> {
    event.old.as_ref()?.properties.get(name).map(BStr::to_owned)
}

/// One file on one link.
struct Setup<'a> {
    context: &'a Context<'a>,
    event: &'a Event,
    link: &'a LinkFacts<'a>,
    file: &'a LinkFile,
    name: &'a BStr,
}

impl Setup<'_> {
    /// A number that only sysfs shows; None also when the kernel does not know it.
    fn assign_type(&self, attribute: &str) -> Option<u64> {
        parse_number(&self.context.sysfs.value(&self.event.device.devpath, attribute.as_bytes())?)
    }

    /// The settings that differ from those of the interface.
    fn settings(&self, messages: &mut Vec<String>) -> Settings {
        let wanted = &self.file.wanted.settings;
        let link = self.link;
        let differs = |wanted: Option<u32>, present: Option<u32>| wanted.filter(|_| wanted != present);
        Settings {
            alias: wanted.alias.clone().filter(|alias| **alias != *link.alias),
            address: self.address(messages),
            mtu: differs(wanted.mtu, link.mtu).filter(|&mtu| mtu != 0),
            tx_queues: differs(wanted.tx_queues, link.tx_queues),
            rx_queues: differs(wanted.rx_queues, link.rx_queues),
            tx_queue_len: differs(wanted.tx_queue_len, link.tx_queue_len),
            gso_max_size: wanted.gso_max_size,
            gso_max_segments: wanted.gso_max_segments,
        }
    }

    /// Whether the request leaves something out because the interface has it already, by its row. The kernel changes
    /// the alias of an interface that is down without a message, and drivers change values without one. So the kernel
    /// is asked for a fresh row before the row counts.
    fn leaves_out(&self, settings: &Settings) -> bool {
        let wanted = &self.file.wanted;
        let fixed = wanted.mac.is_some() && wanted.mac_policy == MacPolicy::None;
        let wanted = &wanted.settings;
        (wanted.alias.is_some() && settings.alias.is_none())
            || (wanted.mtu.is_some_and(|mtu| mtu != 0) && settings.mtu.is_none())
            || (wanted.tx_queues.is_some() && settings.tx_queues.is_none())
            || (wanted.rx_queues.is_some() && settings.rx_queues.is_none())
            || (wanted.tx_queue_len.is_some() && settings.tx_queue_len.is_none())
            || (fixed && settings.address.is_none())
    }

    /// The address to set, if another one is wanted.
    fn address(&self, messages: &mut Vec<String>) -> Option<Vec<u8>> {
        let (wanted, present) = (&self.file.wanted, &*self.link.address);
        let ifi_type = self.link.ifi_type?;
        if present.is_empty() {
            return None;
        }
        let address = match wanted.mac_policy {
            MacPolicy::None => fixed_address(wanted.mac.as_ref()?, ifi_type, present.len())?,
            policy => {
                if !matches!(ifi_type, ARPHRD_ETHER | ARPHRD_INFINIBAND) {
                    return None;
                }
                let is_random = match self.assign_type("addr_assign_type")? {
                    ADDRESS_STOLEN | ADDRESS_SET => return None,
                    other => other == ADDRESS_RANDOM,
                };
                if is_random == (policy == MacPolicy::Random) {
                    return None;
                }
                let bits = match policy {
                    MacPolicy::Random => random_bits(),
                    _ => match self.persistent_bits() {
                        Ok(bits) => bits,
                        Err(why) => {
                            messages.push(format!("{}: no persistent address: {why}", self.name));
                            return None;
                        }
                    },
                };
                made_address(bits, ifi_type, present)?
            }
        };
        (address != present).then_some(address)
    }

    /// Hash of machine and name.
    fn persistent_bits(&self) -> Result<u64, &'static str> {
        let names = ["ID_NET_NAME_ONBOARD", "ID_NET_NAME_SLOT", "ID_NET_NAME_PATH", "ID_NET_NAME_MAC"];
        let name = names.iter().find_map(|property| self.event.properties.get(property));
        let name = match name {
            Some(name) => name,
            None if self.context.scheme.has(Flag::StableVirtualMacs) => self.event.device.sysname.as_bstr(),
            None => return Err("there is no name to make it from"),
        };
        let machine_id = self.context.link_files.machine_id.ok_or("there is no machine id")?;
        Ok(persistent_bits(&machine_id, name))
    }

    fn result(&self, mut messages: Vec<String>) -> BuiltinResult {
        let (file, wanted) = (self.file, &self.file.wanted);
        let mut changed = Properties::new();
        for name in &wanted.import_properties {
            if let Some(value) = old_property(self.event, name) {
                changed.set(name, value);
            }
        }
        for (name, value) in &wanted.properties {
            changed.set(name, value.as_str());
        }
        let mut properties: Vec<(BString, Option<BString>)> = changed
            .iter()
            .filter(|p| !wanted.unset_properties.iter().any(|name| p.name == *name))
            .map(|p| (p.name.to_owned(), Some(p.value.to_owned())))
            .collect();
        properties.extend(wanted.unset_properties.iter().map(|name| (name.as_str().into(), None)));
        properties.push(("ID_NET_LINK_FILE".into(), Some(file.path.clone())));
        if !file.drop_ins.is_empty() {
            properties.push(("ID_NET_LINK_FILE_DROPINS".into(), Some(join_paths(&file.drop_ins))));
        }
        let name = self.wanted_name(&mut messages);
        let alt_names = match self.event.action {
            Action::Add => self.alt_names(&name),
            _ => Vec::new(),
        };
        properties.push(("ID_NET_NAME".into(), Some(name)));
        BuiltinResult { success: true, properties, alt_names, messages }
    }

    /// The name by the policies, by Name=, or the present one.
    fn wanted_name(&self, messages: &mut Vec<String>) -> BString {
        let wanted = &self.file.wanted;
        if self.event.action != Action::Add {
            return self.name.into();
        }
        let policies: &[NamePolicy] =
            if self.context.link_files.names_enabled { &wanted.name_policy } else { &[] };
        let offered = wanted.name.is_some() || policies.iter().any(|p| self.named_by(*p, NAME_MAX).is_some());
        if !offered && !self.file.matching.names_links() {
            // Whatever kind of name it has, it keeps it: the file need not be read.
            return self.name.into();
        }
        let known = std::cell::OnceCell::new();
        let assign_type = || *known.get_or_init(|| self.assign_type("name_assign_type").unwrap_or(0));
        if self.file.matching.names_links() && assign_type() == NAME_ENUMERATED {
            messages.push(format!(
                "{}: {} matches by OriginalName= a name that the kernel numbers in the order of finding",
                self.name, self.file.path
            ));
        }
        let was_given = || matches!(assign_type(), NAME_USER | NAME_RENAMED);
        if !self.context.scheme.has(Flag::AllowRerenames) && was_given() {
            return self.name.into();
        }
        for policy in policies {
            match policy {
                NamePolicy::Kernel if assign_type() == NAME_PREDICTABLE => return self.name.into(),
                NamePolicy::Keep if was_given() => return self.name.into(),
                _ => {
                    if let Some(name) = self.named_by(*policy, NAME_MAX) {
                        return name.into();
                    }
                }
            }
        }
        wanted.name.as_ref().map_or_else(|| self.name.into(), |name| name.as_str().into())
    }

    /// The valid name that a property holds.
    fn named_by(&self, policy: NamePolicy, max: usize) -> Option<&BStr> {
        self.event.properties.get(policy.property()?).filter(|name| is_interface_name(name, max))
    }

    /// Sorted, each once, without the name itself.
    fn alt_names(&self, name: &BString) -> Vec<BString> {
        let wanted = &self.file.wanted;
        let listed = wanted.alt_names.iter().map(|alt| BString::from(alt.as_str()));
        let by_policy =
            wanted.alt_names_policy.iter().filter_map(|policy| self.named_by(*policy, ALT_NAME_MAX));
        let mut names: Vec<BString> = listed.chain(by_policy.map(BStr::to_owned)).collect();
        names.sort();
        names.dedup();
        names.retain(|alt| alt != name);
        names
    }
}

/// Paths with `:` between. Bytes of a path that a reader would take for such a separator are written as `\xHH`.
fn join_paths(paths: &[BString]) -> BString {
    let mut text = BString::default();
    for path in paths {
        if !text.is_empty() {
            text.push(b':');
        }
        for &byte in path.iter() {
            match byte {
                b':' | b'\\' | 0..=31 | 127 => text.extend(format!("\\x{byte:02x}").into_bytes()),
                _ => text.push(byte),
            }
        }
    }
    text
}

/// SipHash-2-4 over machine id and name.
fn persistent_bits(machine_id: &[u8; 16], name: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&ADDRESS_KEY);
    hasher.write(machine_id);
    hasher.write(name);
    hasher.finish()
}

/// Bits that nobody can foresee: the keys of the standard library's hasher come from the kernel.
fn random_bits() -> u64 {
    std::collections::hash_map::RandomState::new().hash_one(())
}

/// An address made of 64 bits. None if it happens to be invalid.
fn made_address(bits: u64, ifi_type: u16, present: &[u8]) -> Option<Vec<u8>> {
    let bits = bits.to_le_bytes();
    match (ifi_type, present.len()) {
        (ARPHRD_ETHER, 6) => {
            let mut address = bits[..6].to_vec();
            address[0] = (address[0] & !0x01) | 0x02;
            is_ethernet(&address).then_some(address)
        }
        (ARPHRD_INFINIBAND, 20) if bits != [0; 8] => Some([&present[..12], &bits].concat()),
        _ => None,
    }
}

/// A given address as it can be set; None if it does not fit the link.
fn fixed_address(given: &[u8], ifi_type: u16, length: usize) -> Option<Vec<u8>> {
    let mut address = given.to_vec();
    let fits = match ifi_type {
        ARPHRD_ETHER => {
            let is_broadcast = given.iter().all(|&b| b == 0xff);
            if let Some(first) = address.first_mut() {
                *first &= !0x01;
            }
            length == 6 && !is_broadcast && is_ethernet(&address)
        }
        ARPHRD_INFINIBAND => {
            length == 20 && address.get(12..).is_some_and(|tail| tail.iter().any(|&b| b != 0))
        }
        _ => true,
    };
    (fits && address.len() == length).then_some(address)
}

/// Neither all zero nor broadcast.
fn is_ethernet(address: &[u8]) -> bool {
    address.iter().any(|&b| b != 0) && address.iter().any(|&b| b != 0xff)
}

#[cfg(test)]
mod tests;
