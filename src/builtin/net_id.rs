//! net_id: names of network interfaces from what the hardware says of itself (builtins.md 1.1).
//!
//! `read` reads, `names` and `words` only compose; `found` is what the one passes to the others. What must stay true: a
//! later namer overwrites a property of an earlier one, a name of 128 bytes or more is not set, and a device whose
//! `iflink` is not its own ifindex is left alone before anything else is read.
//!
//! Not here: the look-up of the vendor by `OUI:` and the naming filter's own entries in the hardware
//! database. They come with the hwdb builtin; the filter's properties are obeyed already.

mod found;
mod names;
mod read;
mod words;

use super::call::success;
use super::link_facts::LinkFacts;
use super::naming_scheme::{Flag, NamingScheme};
use crate::model::Event;
use crate::rules::ask::BuiltinResult;
use bstr::BStr;
use names::names;
pub use read::Context;
use read::{ARPHRD_INFINIBAND, Net, allowed};
use std::cell::OnceCell;

const ARPHRD_ETHER: u16 = 1;
const ARPHRD_SLIP: u16 = 256;
const ARPHRD_MCTP: u16 = 290;

/// Names the interface of the event. `link` is its row, or what sysfs says of it.
pub fn run(context: &Context, event: &Event, link: &LinkFacts) -> BuiltinResult {
    let failure = BuiltinResult::default();
    if event.device.subsystem != "net" {
        return failure;
    }
    let Some(ifindex) = event.device.ifindex else { return failure };
    let filter = |attribute: &str| allowed(|name| event.properties.get(name).map(BStr::to_owned), attribute);
    let Some(iflink) = link.iflink.filter(|_| filter("iflink")) else { return failure };
    if iflink != ifindex.0 {
        return success(vec![]);
    }
    let Some(ifi_type) = link.ifi_type.filter(|_| filter("type")) else { return success(vec![]) };
    let devtype = event.device.devtype.as_ref().map(|d| d.as_slice());
    let Some(prefix) = prefix(ifi_type, devtype, context.scheme) else { return success(vec![]) };
    let net = Net { context, event, link, prefix, ifi_type, records: OnceCell::new() };
    let mut properties = vec![("ID_NET_NAMING_SCHEME".into(), Some(context.scheme.name().into()))];
    let found = net.read();
    properties.extend(names(prefix, context.scheme, &found).into_iter().map(|(k, v)| (k.into(), Some(v))));
    success(properties)
}

/// Two letters by type of link; None: links of this type get no names.
fn prefix(ifi_type: u16, devtype: Option<&[u8]>, scheme: NamingScheme) -> Option<&'static str> {
    match ifi_type {
        ARPHRD_ETHER => Some(match devtype {
            Some(b"wlan") => "wl",
            Some(b"wwan") => "ww",
            _ => "en",
        }),
        ARPHRD_INFINIBAND => scheme.has(Flag::Infiniband).then_some("ib"),
        ARPHRD_SLIP => Some("sl"),
        ARPHRD_MCTP => scheme.has(Flag::Mctp).then_some("mc"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
