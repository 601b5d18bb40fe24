//! The bytes of requests to rtnetlink. The sequence number comes from [`super::Table::next_seq`]; the
//! request helper forwards them to the kernel, because rtnetlink works on a request inside the sender's
//! system call, under the RTNL lock.

use super::wire::*;
use crate::model::IfIndex;
use bstr::BString;

/// All links. VF data is never asked for: it costs milliseconds per VF in drivers.
pub fn dump_links(seq: u32) -> Vec<u8> {
    Builder::new(RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, seq)
        .ifinfo(0)
        .u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS)
        .finish()
}

/// One link; its single RTM_NEWLINK is the whole reply.
pub fn get_link(ifindex: IfIndex, seq: u32) -> Vec<u8> {
    Builder::new(RTM_GETLINK, NLM_F_REQUEST, seq)
        .ifinfo(ifindex.0)
        .u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS)
        .finish()
}

/// Puts the sequence number into a finished request: whoever makes a request need not be the one who
/// counts them.
pub fn set_seq(request: &mut [u8], seq: u32) {
    // nlmsghdr: length, type and flags come first (linux/netlink.h).
    if let Some(field) = request.get_mut(8..12) {
        field.copy_from_slice(&seq.to_ne_bytes());
    }
}

/// Gives the link another name (1 to 15 bytes; the kernel refuses others). Kernels before 6.2 want it to
/// be down.
pub fn set_name(ifindex: IfIndex, name: &[u8], seq: u32) -> Vec<u8> {
    setting(RTM_SETLINK, 0, ifindex, seq).text(IFLA_IFNAME, bounded(name)).finish()
}

/// Adds alternative names. The kernel refuses all of them when one exists already (EEXIST).
pub fn add_alt_names(ifindex: IfIndex, names: &[BString], seq: u32) -> Vec<u8> {
    let flags = NLM_F_CREATE | NLM_F_EXCL | NLM_F_APPEND;
    setting(RTM_NEWLINKPROP, flags, ifindex, seq)
        .attribute(IFLA_PROP_LIST | NLA_F_NESTED, &alt_names(names))
        .finish()
}

/// Removes alternative names.
pub fn remove_alt_names(ifindex: IfIndex, names: &[BString], seq: u32) -> Vec<u8> {
    setting(RTM_DELLINKPROP, 0, ifindex, seq)
        .attribute(IFLA_PROP_LIST | NLA_F_NESTED, &alt_names(names))
        .finish()
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
    let mut request = setting(RTM_SETLINK, 0, ifindex, seq);
    if let Some(address) = &settings.address {
        request = request.attribute(IFLA_ADDRESS, bounded(address));
    }
    if let Some(alias) = &settings.alias {
        // Without its NUL: the kernel counts the bytes and takes them all.
        request = request.attribute(IFLA_IFALIAS, bounded(alias));
    }
    let numbers = [
        (IFLA_MTU, settings.mtu),
        (IFLA_TXQLEN, settings.tx_queue_len),
        (IFLA_NUM_TX_QUEUES, settings.tx_queues),
        (IFLA_NUM_RX_QUEUES, settings.rx_queues),
        (IFLA_GSO_MAX_SIZE, settings.gso_max_size),
        (IFLA_GSO_MAX_SEGS, settings.gso_max_segments),
    ];
    for (kind, number) in numbers {
        if let Some(number) = number {
            request = request.u32(kind, number);
        }
    }
    request.finish()
}

/// A request that changes something: it is acknowledged.
fn setting(kind: u16, flags: u16, ifindex: IfIndex, seq: u32) -> Builder {
    Builder::new(kind, NLM_F_REQUEST | NLM_F_ACK | flags, seq).ifinfo(ifindex.0)
}

/// Asks the request helper, not the kernel, for the driver of a link ([`ASK_DRIVER`]).
pub fn ask_driver(ifname: &[u8], seq: u32) -> Vec<u8> {
    Builder::new(ASK_DRIVER, NLM_F_REQUEST, seq).text(IFLA_IFNAME, bounded(ifname)).finish()
}

/// Longer than anything the kernel takes: it refuses what is cut here.
fn bounded(text: &[u8]) -> &[u8] {
    &text[..text.len().min(1024)]
}

/// The attributes inside IFLA_PROP_LIST; names beyond what one attribute can hold are left out.
fn alt_names(names: &[BString]) -> Vec<u8> {
    let mut list = Vec::new();
    for name in names {
        let name = bounded(name);
        if list.len() + align(4 + name.len() + 1) > 60_000 {
            break;
        }
        list.extend_from_slice(&(name.len() as u16 + 5).to_ne_bytes());
        list.extend_from_slice(&IFLA_ALT_IFNAME.to_ne_bytes());
        list.extend_from_slice(name);
        list.push(0);
        list.resize(align(list.len()), 0);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn absurd_texts_are_bounded() {
        let names = vec![BString::from(vec![b'a'; 70_000]); 200];
        assert!(add_alt_names(SEVEN, &names, 1).len() < 65_536);
        assert!(set_name(SEVEN, &names[0], 1).len() < 2_000);
    }
}
