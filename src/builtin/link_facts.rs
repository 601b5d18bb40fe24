//! What builtins need to know of an interface: from its row in the link table, or, where sysfs is not
//! the real one, from the files of that tree.
//!
//! From the table nothing is copied. The four attributes that are in no message are not here
//! (builtins.md 3.2): a builtin that needs one reads it.

use super::value::{parse_decimal, parse_number};
use crate::links::Link;
use crate::model::Event;
use crate::world::sysfs::Sysfs;
use std::borrow::Cow;

/// Longest name of an interface.
pub(super) const NAME_MAX: usize = 15;

/// See the module. None: not known, which for a number in sysfs means that the file is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkFacts<'a> {
    /// 0 is possible and differs from every ifindex.
    pub iflink: Option<u32>,
    /// ARPHRD_*.
    pub ifi_type: Option<u16>,
    pub flags: u32,
    /// Empty if there is none.
    pub address: Cow<'a, [u8]>,
    /// Empty if there is none.
    pub perm_address: Cow<'a, [u8]>,
    pub phys_port_name: Option<Cow<'a, [u8]>>,
    /// IFLA_INFO_KIND, empty if there is none. sysfs does not show it.
    pub kind: Cow<'a, [u8]>,
    pub mtu: Option<u32>,
    pub tx_queue_len: Option<u32>,
    pub tx_queues: Option<u32>,
    pub rx_queues: Option<u32>,
    pub alias: Cow<'a, [u8]>,
}

impl<'a> LinkFacts<'a> {
    /// Of a row.
    pub fn of_row(link: &'a Link) -> LinkFacts<'a> {
        LinkFacts {
            iflink: Some(link.iflink),
            ifi_type: Some(link.kind_of_hardware),
            flags: link.flags,
            address: Cow::Borrowed(&link.address),
            perm_address: Cow::Borrowed(link.perm_address()),
            phys_port_name: link
                .rare
                .as_ref()
                .and_then(|rare| rare.phys_port_name.as_ref())
                .map(|name| Cow::Borrowed(name.as_slice())),
            kind: Cow::Borrowed(&link.kind),
            mtu: Some(link.mtu),
            tx_queue_len: Some(link.tx_queue_len),
            tx_queues: Some(link.num_tx_queues),
            rx_queues: Some(link.num_rx_queues),
            alias: Cow::Borrowed(link.alias()),
        }
    }

    /// Of the files of the event's device.
    pub fn of_files(sysfs: &Sysfs, event: &Event) -> LinkFacts<'static> {
        let text = |name: &str| sysfs.value(&event.device.devpath, name.as_bytes());
        let number = |name: &str| parse_decimal(&text(name)?);
        LinkFacts {
            iflink: number("iflink"),
            ifi_type: number("type").and_then(|n| n.try_into().ok()),
            flags: text("flags").and_then(|t| parse_number(&t)).and_then(|n| n.try_into().ok()).unwrap_or(0),
            address: Cow::Owned(text("address").and_then(|t| parse_address(&t)).unwrap_or_default()),
            perm_address: Cow::default(),
            phys_port_name: text("phys_port_name").map(|t| Cow::Owned(t.into())),
            kind: Cow::default(),
            mtu: number("mtu"),
            tx_queue_len: number("tx_queue_len"),
            tx_queues: None,
            rx_queues: None,
            alias: Cow::Owned(text("ifalias").unwrap_or_default().into()),
        }
    }
}

/// Bytes of `52:54:00:12:34:56`.
fn parse_address(text: &[u8]) -> Option<Vec<u8>> {
    text.split(|&b| b == b':')
        .map(|byte| super::value::parse_hex(byte).and_then(|b| u8::try_from(b).ok()))
        .collect()
}
