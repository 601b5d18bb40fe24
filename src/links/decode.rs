//! One message to values: RTM_NEWLINK and RTM_DELLINK to a [`Link`], NLMSG_ERROR and NLMSG_DONE to a
//! [`Reply`].
//!
//! Links are decoded here rather than by netlink-packet-route, which builds an owned value for each of
//! the sixty attributes of a message, most of which nobody here wants (ARCHITECTURE.md has the
//! figures). An attribute of an unexpected size is passed over; only lengths that do not fit the
//! message are errors. Columns and their sources: builtins.md 3.1.

use super::link::{Link, Name, Rare, Short};
use super::wire::*;
use crate::model::Errno;
use bstr::{BString, ByteSlice};
use netlink_packet_core::{DoneBuffer, ErrorBuffer, NlasIterator};
use std::num::NonZeroI32;

/// What an RTM_NEWLINK or RTM_DELLINK says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkMessage<'a> {
    pub link: Link,
    /// The message describes the whole link. Wireless events are sent as RTM_NEWLINK with little more
    /// than the name: only ifindex, type, flags and name of `link` count then.
    pub complete: bool,
    /// IFLA_STATS64 as sent: native u64 in the order of [`STATISTICS`].
    pub statistics: Option<&'a [u8]>,
}

/// The files below statistics/, in the order of `struct rtnl_link_stats64`.
pub const STATISTICS: [&str; 24] = [
    "rx_packets",
    "tx_packets",
    "rx_bytes",
    "tx_bytes",
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
    "multicast",
    "collisions",
    "rx_length_errors",
    "rx_over_errors",
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_fifo_errors",
    "rx_missed_errors",
    "tx_aborted_errors",
    "tx_carrier_errors",
    "tx_fifo_errors",
    "tx_heartbeat_errors",
    "tx_window_errors",
    "rx_compressed",
    "tx_compressed",
    "rx_nohandler",
];

/// Decodes the payload of an RTM_NEWLINK or RTM_DELLINK. None if the message is not about a link: another family (a
/// bridge port tells of its bridge side as AF_BRIDGE, with an RTM_DELLINK on release), no index.
pub fn link(payload: &[u8]) -> Result<Option<LinkMessage<'_>>, Malformed> {
    let (Some(&family), Some(hardware), Some(ifindex), Some(flags)) =
        (payload.first(), read_u16(payload, 2), read_u32(payload, 4), read_u32(payload, 8))
    else {
        return Err(Malformed);
    };
    let attributes_at = payload.get(IFINFO..).ok_or(Malformed)?;
    if i32::from(family) != libc::AF_UNSPEC || ifindex == 0 || ifindex > i32::MAX as u32 {
        return Ok(None);
    }
    let mut link = Link { ifindex, flags, kind_of_hardware: hardware, iflink: ifindex, ..Link::default() };
    let mut complete = false;
    let mut statistics = None;
    for attribute in attributes(attributes_at) {
        let (kind, value) = attribute?;
        match kind {
            IFLA_IFNAME => link.name = Name::new(text(value)).unwrap_or_default(),
            IFLA_ADDRESS => link.address = Short::new(value).unwrap_or_default(),
            IFLA_BROADCAST => link.broadcast = Short::new(value).unwrap_or_default(),
            IFLA_MTU => {
                complete = true;
                set(&mut link.mtu, value)
            }
            IFLA_LINK => set(&mut link.iflink, value),
            IFLA_LINK_NETNSID => link.link_netnsid = number(value).map(|n| n as i32),
            IFLA_MASTER => set(&mut link.master, value),
            IFLA_TXQLEN => set(&mut link.tx_queue_len, value),
            IFLA_OPERSTATE => set_byte(&mut link.operstate, value),
            IFLA_LINKMODE => set_byte(&mut link.link_mode, value),
            IFLA_CARRIER => link.carrier = value.first().map(|&b| b != 0),
            IFLA_PROTO_DOWN => link.proto_down = value.first().map(|&b| b != 0),
            IFLA_GROUP => link.group = number(value),
            IFLA_PROMISCUITY => set(&mut link.promiscuity, value),
            IFLA_ALLMULTI => set(&mut link.allmulti, value),
            IFLA_CARRIER_CHANGES => link.carrier_changes = number(value),
            IFLA_CARRIER_UP_COUNT => link.carrier_up_count = number(value),
            IFLA_CARRIER_DOWN_COUNT => link.carrier_down_count = number(value),
            IFLA_NUM_TX_QUEUES => set(&mut link.num_tx_queues, value),
            IFLA_NUM_RX_QUEUES => set(&mut link.num_rx_queues, value),
            IFLA_STATS64 => statistics = Some(value),
            IFLA_LINKINFO => {
                for attribute in attributes(value) {
                    match attribute? {
                        (IFLA_INFO_KIND, value) => link.kind = Short::new(text(value)).unwrap_or_default(),
                        (IFLA_INFO_SLAVE_KIND, value) => {
                            link.port_kind = Short::new(text(value)).unwrap_or_default()
                        }
                        _ => {}
                    }
                }
            }
            IFLA_IFALIAS => rare(&mut link).alias = text(value).into(),
            IFLA_PROP_LIST => {
                for attribute in attributes(value) {
                    if let (IFLA_ALT_IFNAME, value) = attribute? {
                        rare(&mut link).alt_names.push(text(value).into());
                    }
                }
            }
            IFLA_PERM_ADDRESS => {
                if let Some(address) = Short::new(value) {
                    rare(&mut link).perm_address = address;
                }
            }
            IFLA_PHYS_PORT_ID => rare(&mut link).phys_port_id = Short::new(value),
            IFLA_PHYS_SWITCH_ID => rare(&mut link).phys_switch_id = Short::new(value),
            IFLA_PHYS_PORT_NAME => rare(&mut link).phys_port_name = Some(text(value).into()),
            IFLA_PARENT_DEV_NAME => rare(&mut link).parent_name = text(value).into(),
            IFLA_PARENT_DEV_BUS_NAME => rare(&mut link).parent_bus = text(value).into(),
            _ => {}
        }
    }
    Ok(Some(LinkMessage { link, complete, statistics }))
}

/// The end of the reply to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Sequence number of the request.
    pub seq: u32,
    pub result: Result<(), Errno>,
    /// What the kernel says beyond the error number (extended acknowledgement); empty mostly.
    pub text: BString,
    /// The dump was not of one moment (NLM_F_DUMP_INTR): ask again.
    pub interrupted: bool,
}

/// The end of a reply that an NLMSG_ERROR or NLMSG_DONE brings; None for any other message.
pub fn reply(frame: &Frame<'_>) -> Result<Option<Reply>, Malformed> {
    let error = match frame.kind {
        NLMSG_ERROR => ErrorBuffer::new_checked(frame.payload).map_err(|_| Malformed)?.code(),
        // An old kernel's DONE may be empty.
        NLMSG_DONE => {
            DoneBuffer::new_checked(frame.payload).map_or(None, |done| NonZeroI32::new(done.code()))
        }
        _ => return Ok(None),
    };
    let result = match error {
        None => Ok(()),
        // A negative errno; anything else is a kernel that makes no sense.
        Some(error) => Err(Errno(error.get().checked_neg().filter(|&e| e > 0).unwrap_or(libc::EIO))),
    };
    Ok(Some(Reply {
        seq: frame.seq,
        result,
        text: extended_text(frame).unwrap_or_default(),
        interrupted: frame.flags & NLM_F_DUMP_INTR != 0,
    }))
}

/// NLMSGERR_ATTR_MSG. It follows the quoted request in an error, the number in a DONE.
fn extended_text(frame: &Frame<'_>) -> Option<BString> {
    if frame.flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let at = match frame.kind {
        NLMSG_ERROR if frame.flags & NLM_F_CAPPED == 0 => 4 + align(read_u32(frame.payload, 4)? as usize),
        NLMSG_ERROR => 4 + HEADER,
        _ => 4,
    };
    let attributes = NlasIterator::new(frame.payload.get(at..)?);
    let message = attributes.flatten().find(|attribute| attribute.kind() == NLMSGERR_ATTR_MSG)?;
    Some(text(message.value()).into())
}

fn rare(link: &mut Link) -> &mut Rare {
    link.rare.get_or_insert_default()
}

/// Up to the NUL, if there is one.
fn text(value: &[u8]) -> &[u8] {
    value.find_byte(0).map_or(value, |end| &value[..end])
}

fn number(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

fn set(column: &mut u32, value: &[u8]) {
    *column = number(value).unwrap_or(*column);
}

fn set_byte(column: &mut u8, value: &[u8]) {
    *column = value.first().copied().unwrap_or(*column);
}

#[cfg(test)]
mod tests;
