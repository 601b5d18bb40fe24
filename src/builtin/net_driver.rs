//! net_driver: the driver of an interface, as ethtool says it (builtins.md 1.2).
//!
//! The call takes the lock that all configuration of links takes, and it enters the driver. So a
//! helper makes it, and the answer is kept: it is a constant of the kind of link (`veth`) or of the
//! driver bound to the parent device, one question for each is enough for the life of the daemon.

use super::call::{Call, success};
use crate::links::{Lookup, Table};
use crate::model::need::{Fact, Need};
use crate::model::{Errno, Event};
use crate::rules::ask::BuiltinResult;
use crate::world::Roots;
use crate::world::sysfs::Sysfs;
use bstr::BString;
use std::cell::RefCell;
use std::collections::HashMap;

/// Answers kept at most; beyond, one question per event.
const DRIVERS_MAX: usize = 4096;

/// Interfaces of the same origin have the same driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Origin {
    /// IFLA_INFO_KIND.
    Kind(BString),
    /// Driver of the parent device.
    Parent(BString),
}

impl Origin {
    fn name(&self) -> BString {
        let (what, name) = match self {
            Origin::Kind(name) => ("kind ", name),
            Origin::Parent(name) => ("driver ", name),
        };
        [what.as_bytes(), name].concat().into()
    }
}

/// The answers so far.
#[derive(Debug, Default)]
pub(super) struct Drivers(RefCell<HashMap<Origin, BString>>);

/// Asks for the driver of the event's interface.
pub(super) fn run(
    call: &Call,
    sysfs: &Sysfs,
    links: &Table,
    roots: &Roots,
    drivers: &Drivers,
) -> Result<BuiltinResult, Need> {
    let event = call.event;
    if event.device.subsystem != "net" {
        return Ok(BuiltinResult::default());
    }
    if !roots.sys_is_real() {
        // The kernel knows nothing of this tree. Mostly it would name the bound driver.
        return Ok(result(parent_driver(sysfs, event)));
    }
    let Some(ifindex) = event.device.ifindex else { return Ok(BuiltinResult::default()) };
    let kind = match links.lookup(ifindex) {
        Lookup::Known(link) => BString::from(&*link.kind),
        Lookup::Unknown if !call.facts.contains(&Fact::Link) => return Err(Need::Link(ifindex)),
        Lookup::Unknown | Lookup::Gone(_) => return Ok(success(vec![])),
    };
    let origin = match kind.is_empty() {
        false => Some(Origin::Kind(kind)),
        true => parent_driver(sysfs, event).map(Origin::Parent),
    };
    if let Some(driver) = origin.as_ref().and_then(|origin| drivers.0.borrow().get(origin).cloned()) {
        return Ok(result(Some(driver)));
    }
    let answer = call.facts.iter().find_map(|fact| match fact {
        Fact::Driver(answer) => Some(answer.clone()),
        // A question over which a helper hung may hang again.
        Fact::Helper(reply) if reply.is_none() => Some(Err(Errno(libc::ETIMEDOUT))),
        _ => None,
    });
    match answer {
        None => Err(Need::Driver {
            ifname: event.device.sysname.clone(),
            constant_of: origin.as_ref().map(Origin::name),
        }),
        Some(answer) => Ok(learn(&answer, origin, drivers)),
    }
}

/// Keeps an answer. That there is none may be true of this moment only: it is not kept.
fn learn(answer: &Result<BString, Errno>, origin: Option<Origin>, drivers: &Drivers) -> BuiltinResult {
    match answer {
        Ok(driver) if driver.is_empty() => BuiltinResult::default(),
        Ok(driver) => {
            let mut known = drivers.0.borrow_mut();
            if let Some(origin) = origin.filter(|_| known.len() < DRIVERS_MAX) {
                known.insert(origin, driver.clone());
            }
            result(Some(driver.clone()))
        }
        Err(Errno(libc::EOPNOTSUPP | libc::ENODEV)) => result(None),
        Err(_) => BuiltinResult::default(),
    }
}

fn result(driver: Option<BString>) -> BuiltinResult {
    success(driver.map(|driver| ("ID_NET_DRIVER".into(), Some(driver))).into_iter().collect())
}

fn parent_driver(sysfs: &Sysfs, event: &Event) -> Option<BString> {
    sysfs.driver(&sysfs.parent(&event.device.devpath)?)
}
