//! The bytes of requests to rtnetlink. The sequence number comes from [`super::Table::next_seq`]; the
//! request helper forwards them to the kernel, because rtnetlink works on a request inside the sender's
//! system call, under the RTNL lock.
//!
//! netlink-packet-route writes them. It keeps texts as UTF-8, while the kernel takes any bytes: what is none goes as
//! an attribute of bytes.

use super::wire;
use crate::model::IfIndex;
use bstr::BString;
use netlink_packet_core::{
    DefaultNla, Emitable, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage, Prop};

/// All links. VF data is never asked for: it costs milliseconds per VF in drivers.
pub fn dump_links(seq: u32) -> Vec<u8> {
    link_request(wire::RTM_GETLINK, NLM_F_DUMP, IfIndex(0), seq, vec![without_more_statistics()])
}

/// One link; its single RTM_NEWLINK is the whole reply.
pub fn get_link(ifindex: IfIndex, seq: u32) -> Vec<u8> {
    link_request(wire::RTM_GETLINK, 0, ifindex, seq, vec![without_more_statistics()])
}

/// Leaves the statistics of IPv6 out, 368 of 1500 bytes. Those of the link itself (IFLA_STATS64) come all the same,
/// measured on kernel 6.18.
fn without_more_statistics() -> LinkAttribute {
    LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])
}

/// Puts the sequence number into a finished request: the code that makes a request need not be the code that counts
/// them.
pub fn set_seq(request: &mut [u8], seq: u32) {
    // nlmsghdr: length, type and flags come first (linux/netlink.h).
    if let Some(field) = request.get_mut(8..12) {
        field.copy_from_slice(&seq.to_ne_bytes());
    }
}

/// Gives the link another name (1 to 15 bytes; the kernel refuses others). Kernels before 6.2 want it to
/// be down.
pub fn set_name(ifindex: IfIndex, name: &[u8], seq: u32) -> Vec<u8> {
    setting(wire::RTM_SETLINK, 0, ifindex, seq, vec![link_name(name)])
}

/// Adds alternative names. The kernel refuses all of them when one exists already (EEXIST).
pub fn add_alt_names(ifindex: IfIndex, names: &[BString], seq: u32) -> Vec<u8> {
    let flags = NLM_F_CREATE | NLM_F_EXCL | NLM_F_APPEND;
    setting(wire::RTM_NEWLINKPROP, flags, ifindex, seq, vec![alt_names(names)])
}

/// Removes alternative names.
pub fn remove_alt_names(ifindex: IfIndex, names: &[BString], seq: u32) -> Vec<u8> {
    setting(wire::RTM_DELLINKPROP, 0, ifindex, seq, vec![alt_names(names)])
}

/// What net_setup_link sets in one request; None leaves a setting alone.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Settings {
    pub alias: Option<BString>,
    pub address: Option<Vec<u8>>,
    pub mtu: Option<u32>,
    pub tx_queues: Option<u32>,
    pub rx_queues: Option<u32>,
    pub tx_queue_len: Option<u32>,
    pub gso_max_size: Option<u32>,
    pub gso_max_segments: Option<u32>,
}

impl Settings {
    /// Nothing is to be set.
    pub fn is_empty(&self) -> bool {
        *self == Settings::default()
    }
}

/// All `settings` in one RTM_SETLINK. The kernel stops at the first one it refuses, in an order of its
/// own.
pub fn set_link(ifindex: IfIndex, settings: &Settings, seq: u32) -> Vec<u8> {
    let address = settings.address.as_ref().map(|address| LinkAttribute::Address(bounded(address).to_vec()));
    // Without its NUL: the kernel counts the bytes and takes them all.
    let alias = settings.alias.as_ref().map(|alias| bytes(wire::IFLA_IFALIAS, bounded(alias).to_vec()));
    let attributes = [
        address,
        alias,
        settings.mtu.map(LinkAttribute::Mtu),
        settings.tx_queue_len.map(LinkAttribute::TxQueueLen),
        settings.tx_queues.map(LinkAttribute::NumTxQueues),
        settings.rx_queues.map(LinkAttribute::NumRxQueues),
        settings.gso_max_size.map(LinkAttribute::GsoMaxSize),
        settings.gso_max_segments.map(LinkAttribute::GsoMaxSegs),
    ];
    setting(wire::RTM_SETLINK, 0, ifindex, seq, attributes.into_iter().flatten().collect())
}

/// Whether a finished request sets what the kernel may not announce: the alias, of a link that is down.
pub fn sets_silently(request: &[u8]) -> bool {
    let frame = wire::frames(request).next().and_then(Result::ok);
    let attributes = frame.and_then(|frame| frame.payload.get(wire::IFINFO..)).unwrap_or_default();
    wire::attributes(attributes).flatten().any(|(kind, _)| kind == wire::IFLA_IFALIAS)
}

/// A request that changes something: it is acknowledged.
fn setting(kind: u16, flags: u16, ifindex: IfIndex, seq: u32, attributes: Vec<LinkAttribute>) -> Vec<u8> {
    link_request(kind, NLM_F_ACK | flags, ifindex, seq, attributes)
}

/// Asks the request helper, not the kernel, for the driver of a link ([`wire::ASK_DRIVER`]).
pub fn ask_driver(ifname: &[u8], seq: u32) -> Vec<u8> {
    wire::Builder::new(wire::ASK_DRIVER, NLM_F_REQUEST, seq).text(wire::IFLA_IFNAME, bounded(ifname)).finish()
}

/// A message about a link, of any type: the crate's own has a type of message for each, of which the two for
/// properties only serve a part.
struct LinkRequest {
    kind: u16,
    message: LinkMessage,
}

impl NetlinkSerializable for LinkRequest {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        self.message.buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        self.message.emit(buffer);
    }
}

fn link_request(
    kind: u16,
    flags: u16,
    ifindex: IfIndex,
    seq: u32,
    attributes: Vec<LinkAttribute>,
) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    header.sequence_number = seq;
    let mut message = LinkMessage::default();
    message.header.index = ifindex.0;
    message.attributes = attributes;
    let payload = NetlinkPayload::InnerMessage(LinkRequest { kind, message });
    let mut request = NetlinkMessage::new(header, payload);
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    bytes
}

fn link_name(name: &[u8]) -> LinkAttribute {
    let name = bounded(name);
    match std::str::from_utf8(name) {
        Ok(name) => LinkAttribute::IfName(name.to_owned()),
        Err(_) => bytes(wire::IFLA_IFNAME, terminated(name)),
    }
}

fn bytes(kind: u16, value: Vec<u8>) -> LinkAttribute {
    LinkAttribute::Other(DefaultNla::new(kind, value))
}

/// With the NUL that the kernel wants at the end of a text.
fn terminated(text: &[u8]) -> Vec<u8> {
    [text, b"\0"].concat()
}

/// Longer than anything the kernel takes: it refuses what is cut here.
fn bounded(text: &[u8]) -> &[u8] {
    &text[..text.len().min(1024)]
}

/// IFLA_PROP_LIST; names beyond what one attribute can hold are left out.
fn alt_names(names: &[BString]) -> LinkAttribute {
    let mut length = 0;
    let fits = |name: &&[u8]| {
        length += wire::align(4 + name.len() + 1);
        length <= 60_000
    };
    let names = names.iter().map(|name| bounded(name)).take_while(fits);
    LinkAttribute::PropList(names.map(alt_name).collect())
}

fn alt_name(name: &[u8]) -> Prop {
    match std::str::from_utf8(name) {
        Ok(name) => Prop::AltIfName(name.to_owned()),
        Err(_) => Prop::Other(DefaultNla::new(wire::IFLA_ALT_IFNAME, terminated(name))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::wire::{
        Frame, IFINFO, IFLA_ALT_IFNAME, IFLA_IFALIAS, IFLA_IFNAME, IFLA_MTU, IFLA_PROP_LIST, RTM_DELLINKPROP,
        RTM_GETLINK, RTM_NEWLINKPROP, RTM_SETLINK, attributes, frames, read_u32,
    };

    /// linux/if_link.h.
    const IFLA_EXT_MASK: u16 = 29;
    const IFLA_GSO_MAX_SEGS: u16 = 40;

    const SEVEN: IfIndex = IfIndex(7);

    #[track_caller]
    fn walk(message: &[u8]) -> (Frame<'_>, Vec<(u16, Vec<u8>)>) {
        let frame = frames(message).next().unwrap().unwrap();
        assert_eq!(
            read_u32(frame.payload, 4),
            Some(if frame.flags & NLM_F_DUMP == NLM_F_DUMP { 0 } else { 7 })
        );
        let list = attributes(&frame.payload[IFINFO..]).map(|a| a.unwrap()).map(|(k, v)| (k, v.to_vec()));
        (frame, list.collect())
    }

    #[test]
    fn a_dump_is_these_bytes() {
        let mut bytes = Vec::new();
        bytes.extend(40u32.to_ne_bytes());
        bytes.extend(18u16.to_ne_bytes());
        bytes.extend(0x301u16.to_ne_bytes());
        bytes.extend(9u32.to_ne_bytes());
        bytes.extend([0; 20]);
        bytes.extend(8u16.to_ne_bytes());
        bytes.extend(29u16.to_ne_bytes());
        bytes.extend(8u32.to_ne_bytes());
        assert_eq!(dump_links(9), bytes);
    }

    #[test]
    fn a_request_for_one_link_asks_for_neither_ack_nor_dump() {
        let message = get_link(SEVEN, 1);
        let (frame, list) = walk(&message);
        assert_eq!((frame.kind, frame.flags), (RTM_GETLINK, NLM_F_REQUEST));
        assert_eq!(list, [(IFLA_EXT_MASK, 8u32.to_ne_bytes().to_vec())]);
    }

    #[test]
    fn changes_are_acknowledged() {
        let name = set_name(SEVEN, b"lan0", 1);
        let (frame, list) = walk(&name);
        assert_eq!((frame.kind, frame.flags), (RTM_SETLINK, NLM_F_REQUEST | NLM_F_ACK));
        assert_eq!(list, [(IFLA_IFNAME, b"lan0\0".to_vec())]);

        let names = add_alt_names(SEVEN, &["a".into(), "second".into()], 1);
        let (frame, list) = walk(&names);
        assert_eq!((frame.kind, frame.flags), (RTM_NEWLINKPROP, 0xe05));
        assert_eq!(list[0].0, IFLA_PROP_LIST);
        let inner: Vec<_> = attributes(&list[0].1).collect();
        assert_eq!(inner, [Ok((IFLA_ALT_IFNAME, b"a\0".as_slice())), Ok((IFLA_ALT_IFNAME, b"second\0"))]);

        let message = remove_alt_names(SEVEN, &["a".into()], 1);
        assert_eq!(walk(&message).0.kind, RTM_DELLINKPROP);
    }

    #[test]
    fn settings_go_in_one_request_and_only_those_given() {
        let settings = Settings {
            alias: Some("x".into()),
            mtu: Some(1400),
            gso_max_segments: Some(3),
            ..Settings::default()
        };
        let message = set_link(SEVEN, &settings, 1);
        let (_, list) = walk(&message);
        assert_eq!(
            list,
            [
                (IFLA_IFALIAS, b"x".to_vec()),
                (IFLA_MTU, 1400u32.to_ne_bytes().to_vec()),
                (IFLA_GSO_MAX_SEGS, 3u32.to_ne_bytes().to_vec())
            ]
        );
        assert!(Settings::default().is_empty() && !settings.is_empty());
    }

    #[test]
    fn only_an_alias_is_set_silently() {
        let alias = Settings { alias: Some("x".into()), mtu: Some(1400), ..Settings::default() };
        let address = Settings { address: Some(vec![2; 6]), mtu: Some(1400), ..Settings::default() };
        assert!(sets_silently(&set_link(SEVEN, &alias, 1)));
        assert!(!sets_silently(&set_link(SEVEN, &address, 1)));
        assert!(!sets_silently(b"no message"));
    }

    #[test]
    fn absurd_texts_are_bounded() {
        let names = vec![BString::from(vec![b'a'; 70_000]); 200];
        assert!(add_alt_names(SEVEN, &names, 1).len() < 65_536);
        assert!(set_name(SEVEN, &names[0], 1).len() < 2_000);
    }
}
