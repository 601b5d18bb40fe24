//! Builtins: one file each. A builtin reads devices through world and the link table and returns
//! properties as data. A call that needs something that may block gives that [`Need`] in place of its result,
//! and is tried again with one [`Fact`] more, like an operation of the rules.
//!
//! What must stay true: a call reads as little as it can ([`net_setup_link`] on a veth reads two
//! attributes, [`net_id`] none), and nothing here changes the system: changes are needs too.

mod call;
pub mod host;
mod ini;
mod link_facts;
pub mod link_files;
#[cfg(test)]
mod machine;
pub mod naming_scheme;
mod net_driver;
pub mod net_id;
mod net_setup_link;
mod path_id;
pub mod value;

use crate::links::{Lookup, Mark, Table};
use crate::model::command::kernel_value;
use crate::model::need::{Fact, Need};
use crate::model::operation::{Operation, OperationReply};
use crate::rules::ask::{BuiltinName, BuiltinResult};
use crate::world::Roots;
use crate::world::sysfs::Sysfs;
use bstr::{BStr, BString};
pub use call::Call;
use call::success;
use host::Host;
use link_facts::LinkFacts;
use naming_scheme::NamingScheme;
use std::borrow::Cow;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A try of one builtin.
type BuiltinFn = fn(&Builtins, &Call, &Sysfs, &Table) -> Result<BuiltinResult, Need>;

/// All builtins with what they have loaded. Immutable but for the drivers learned.
pub struct Builtins {
    host: Host,
    scheme: NamingScheme,
    link_files: link_files::LinkFiles,
    drivers: net_driver::Drivers,
    /// Target of /proc/device-tree.
    device_tree: Option<BString>,
}

impl Builtins {
    /// Loads what the builtins need: naming scheme and .link files. `command_line` is the text of
    /// /proc/cmdline, `naming_scheme` is NET_NAMING_SCHEME of the environment. The texts are for the log.
    pub fn load(roots: &Roots, command_line: &[u8], naming_scheme: Option<&[u8]>) -> (Builtins, Vec<String>) {
        let from_kernel = kernel_value(command_line, b"net.naming_scheme", false).flatten();
        let (scheme, warning) =
            NamingScheme::select(from_kernel.as_ref().map(|v| v.as_ref()), naming_scheme.map(BStr::new));
        let host = Host::new(roots.clone(), command_line.into());
        let (link_files, messages) = link_files::LinkFiles::load(&host);
        let device_tree = std::fs::read_link(roots.proc.join("device-tree")).ok();
        let device_tree = device_tree.map(|target| target.into_os_string().into_vec().into());
        let builtins = Builtins { host, scheme, link_files, drivers: Default::default(), device_tree };
        (builtins, warning.into_iter().chain(messages).collect())
    }

    /// The .link files that were read: where they are looked for, and their state then
    /// ([`link_files::state_of`]).
    pub fn link_files(&self) -> ([PathBuf; 4], &str) {
        (link_files::folders(&self.host.roots), self.link_files.state())
    }

    /// Takes .link files that were read again; the drivers learned are kept, and so is the naming scheme, which
    /// is chosen once. Returns texts for the log.
    pub fn reload(&mut self, texts: &link_files::Texts) -> Vec<String> {
        self.host.told = texts.told.clone();
        let (link_files, messages) = link_files::LinkFiles::parse(texts, &self.host);
        self.link_files = link_files;
        messages
    }

    /// The naming scheme in use.
    pub fn naming_scheme(&self) -> NamingScheme {
        self.scheme
    }

    /// The function that runs a builtin; None for one that is not written. This match is the list of the written
    /// ones.
    fn written(builtin: BuiltinName) -> Option<BuiltinFn> {
        Some(match builtin {
            BuiltinName::NetDriver => Builtins::net_driver,
            BuiltinName::NetId => Builtins::net_id,
            BuiltinName::NetSetupLink => Builtins::net_setup_link,
            BuiltinName::PathId => |_, call, sysfs, _| Ok(path_id::run(sysfs, call.event)),
            _ => return None,
        })
    }

    /// Whether this builtin can be called. The others are known names that fail.
    pub fn is_written(builtin: BuiltinName) -> bool {
        Builtins::written(builtin).is_some()
    }

    /// One text for each builtin among `used` that is not written yet, for the log at load.
    pub fn unwritten_used(used: impl IntoIterator<Item = BuiltinName>) -> Vec<String> {
        let mut names: Vec<BuiltinName> = used.into_iter().filter(|b| !Builtins::is_written(*b)).collect();
        names.sort();
        names.dedup();
        names
            .into_iter()
            .map(|name| {
                format!(
                    "The builtin {} is not written yet; rules that import from it do not match",
                    name.as_str()
                )
            })
            .collect()
    }

    /// Tries a call: returns its result, or the need that must be met before the next try.
    pub fn run(&self, call: &Call, sysfs: &Sysfs, links: &Table) -> Result<BuiltinResult, Need> {
        match Builtins::written(call.builtin) {
            Some(run) => run(self, call, sysfs, links),
            None => Ok(BuiltinResult::default()),
        }
    }

    fn net_id(&self, call: &Call, sysfs: &Sysfs, links: &Table) -> Result<BuiltinResult, Need> {
        self.with_link(call, sysfs, links, |facts| {
            let context = net_id::Context {
                scheme: self.scheme,
                sysfs,
                roots: &self.host.roots,
                device_tree: self.device_tree.as_ref(),
            };
            Ok(match facts {
                Some(link) => net_id::run(&context, call.event, &link),
                None => BuiltinResult::default(),
            })
        })
    }

    fn net_driver(&self, call: &Call, sysfs: &Sysfs, links: &Table) -> Result<BuiltinResult, Need> {
        net_driver::run(call, sysfs, links, &self.host.roots, &self.drivers)
    }

    fn net_setup_link(&self, call: &Call, sysfs: &Sysfs, links: &Table) -> Result<BuiltinResult, Need> {
        if call.argv.len() > 1 || call.event.device.ifindex.is_none() {
            return Ok(BuiltinResult::default());
        }
        if !net_setup_link::applies_on(call.event.action) {
            return Ok(net_setup_link::carried_over(call.event, self.scheme));
        }
        self.with_link(call, sysfs, links, |facts| {
            let Some(mut link) = facts else { return Ok(success(vec![])) };
            if link.flags & libc::IFF_LOOPBACK as u32 != 0 {
                return Ok(success(vec![]));
            }
            let mut found = self.driver_not_asked_for(call, sysfs, links)?.properties;
            if self.link_files.asks_permanent_address
                && self.host.roots.sys_is_real()
                && link.perm_address.is_empty()
                && !link.address.is_empty()
            {
                match permanent_address(call) {
                    Some(address) => link.perm_address = Cow::Borrowed(address),
                    None => {
                        let ifname = call.event.device.sysname.clone();
                        return Err(Need::Helper(Operation::PermanentAddress { ifname }));
                    }
                }
            }
            let driver = call.event.properties.get("ID_NET_DRIVER").map(|driver| &**driver);
            let driver = driver.or(found.first().and_then(|(_, driver)| driver.as_ref().map(|d| &***d)));
            let context = net_setup_link::Context {
                scheme: self.scheme,
                sysfs,
                link_files: &self.link_files,
                driver,
                dry: call.dry || !self.host.roots.sys_is_real(),
            };
            let mut result = net_setup_link::run(&context, call, &link)?;
            found.append(&mut result.properties);
            Ok(BuiltinResult { properties: found, ..result })
        })
    }

    /// ID_NET_DRIVER, if no rule has imported it. Older rules, from before net_driver existed, leave that to
    /// net_setup_link; .link files and other rules compare with it.
    fn driver_not_asked_for(&self, call: &Call, sysfs: &Sysfs, links: &Table) -> Result<BuiltinResult, Need> {
        match call.event.properties.get("ID_NET_DRIVER") {
            Some(_) => Ok(success(vec![])),
            None => self.net_driver(call, sysfs, links),
        }
    }

    /// Calls `then` with the facts of the event's interface; with None if the interface is gone, or if the device is
    /// none.
    fn with_link(
        &self,
        call: &Call,
        sysfs: &Sysfs,
        links: &Table,
        then: impl FnOnce(Option<LinkFacts>) -> Result<BuiltinResult, Need>,
    ) -> Result<BuiltinResult, Need> {
        let Some(ifindex) = call.event.device.ifindex else { return then(None) };
        if !self.host.roots.sys_is_real() {
            return then(Some(LinkFacts::of_files(sysfs, call.event)));
        }
        let asked = call.facts.contains(&Fact::Link);
        match links.lookup(ifindex) {
            // Messages were lost, so the row may be out of date.
            Lookup::Known(_) if !asked && !links.is_fresh(ifindex, Mark::ANY) => {
                Err(Need::FreshLink { ifindex, statistics: false })
            }
            Lookup::Known(link) => then(Some(LinkFacts::of_row(link))),
            // The builtin has asked for this row before, and the kernel did not tell it.
            Lookup::Unknown if !asked => Err(Need::Link(ifindex)),
            Lookup::Unknown | Lookup::Gone(_) => then(None),
        }
    }
}

/// The permanent address by the helper's answer: empty if the helper cannot tell it, None if it was not asked yet.
fn permanent_address<'a>(call: &Call<'a>) -> Option<&'a [u8]> {
    call.facts.iter().find_map(|fact| match fact {
        Fact::Helper(OperationReply::Address(Ok(address))) => Some(address.as_slice()),
        Fact::Helper(OperationReply::Address(Err(_))) => Some(&[]),
        // A helper hung or died over this or another question, so nothing more that could hang is asked of the
        // interface.
        Fact::Helper(reply) if reply.is_none() => Some(&[]),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
