//! What the kernel sends, read twice: by mudev's decoder and by that of netlink-packet-route. Both must find the same in
//! every column of the link table, in acknowledgements and in errors.

use bstr::BString;
use mudev::links::link::Rare;
use mudev::links::link::Short;
use mudev::links::wire::{self, Frame};
use mudev::links::{Link, Reply, decode};
use mudev::model::Errno;
use netlink_packet_core::{
    Emitable, NLM_F_DUMP_INTR, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload, Nla, Parseable,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage, LinkPhysId, Prop};

/// Compares all messages of a datagram; panics where the two readers differ. Returns how many links and ends of
/// replies were compared.
#[track_caller]
pub fn agree(datagram: &[u8]) -> (usize, usize) {
    let (mut links, mut replies) = (0, 0);
    let mut rest = datagram;
    for ours in wire::frames(datagram) {
        let ours = ours.expect("the kernel's own framing");
        let theirs = NetlinkBuffer::new_checked(rest).expect("the kernel's own framing");
        let header = (theirs.message_type(), theirs.flags(), theirs.sequence_number(), theirs.port_number());
        assert_eq!((ours.kind, ours.flags, ours.seq, ours.portid), header);
        let message =
            NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).expect("a message of the kernel");
        match message.payload {
            NetlinkPayload::InnerMessage(
                RouteNetlinkMessage::NewLink(message) | RouteNetlinkMessage::DelLink(message),
            ) => links += usize::from(agree_on_link(&ours, &message)),
            NetlinkPayload::Error(error) => {
                agree_on_end(&ours, error.raw_code());
                replies += 1;
            }
            NetlinkPayload::Done(done) => {
                agree_on_end(&ours, done.code);
                replies += 1;
            }
            other => panic!("an unexpected message: {other:?}"),
        }
        rest = rest.get(wire::align(theirs.length() as usize)..).unwrap_or_default();
    }
    (links, replies)
}

/// False for what is no link: a bridge's side of a port.
#[track_caller]
fn agree_on_link(frame: &Frame, theirs: &LinkMessage) -> bool {
    let Some(ours) = decode::link(frame.payload).expect("a link of the kernel") else {
        assert_ne!(u8::from(theirs.header.interface_family), 0, "{theirs:?}");
        return false;
    };
    assert_eq!(ours.link, columns(theirs), "{theirs:?}");
    let statistics = theirs.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Stats64(statistics) => Some(value_of(statistics)),
        _ => None,
    });
    // A later kernel has more of them.
    let compared = 8 * decode::STATISTICS.len();
    assert_eq!(ours.statistics.map(|s| &s[..compared]), statistics.as_deref().map(|s| &s[..compared]));
    let has_mtu = theirs.attributes.iter().any(|attribute| matches!(attribute, LinkAttribute::Mtu(_)));
    assert_eq!(ours.complete, has_mtu);
    true
}

#[track_caller]
fn agree_on_end(frame: &Frame, code: i32) {
    let reply: Reply = decode::reply(frame).unwrap().expect("an end");
    assert_eq!(reply.result, if code == 0 { Ok(()) } else { Err(Errno(-code)) });
    assert_eq!(reply.interrupted, frame.flags & NLM_F_DUMP_INTR != 0);
}

/// The row that a message means, from what the crate has read.
fn columns(message: &LinkMessage) -> Link {
    let header = &message.header;
    let mut link = Link {
        ifindex: header.index,
        flags: header.flags.bits(),
        kind_of_hardware: header.link_layer_type.into(),
        iflink: header.index,
        ..Link::default()
    };
    for attribute in &message.attributes {
        column(&mut link, attribute);
    }
    link
}

fn column(link: &mut Link, attribute: &LinkAttribute) {
    let rare = |link: &mut Link, set: &dyn Fn(&mut Rare)| set(link.rare.get_or_insert_default());
    match attribute {
        LinkAttribute::IfName(name) => link.name = short(name.as_bytes()),
        LinkAttribute::Address(address) => link.address = short(address),
        LinkAttribute::Broadcast(address) => link.broadcast = short(address),
        LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
        LinkAttribute::Link(index) => link.iflink = *index,
        LinkAttribute::LinkNetNsId(id) => link.link_netnsid = Some(*id),
        LinkAttribute::Controller(index) => link.master = *index,
        LinkAttribute::TxQueueLen(length) => link.tx_queue_len = *length,
        LinkAttribute::OperState(state) => link.operstate = (*state).into(),
        LinkAttribute::Mode(mode) => link.link_mode = (*mode).into(),
        LinkAttribute::Carrier(carrier) => link.carrier = Some(*carrier != 0),
        LinkAttribute::ProtoDown(down) => link.proto_down = Some(*down != 0),
        LinkAttribute::Group(group) => link.group = Some(*group),
        LinkAttribute::Promiscuity(count) => link.promiscuity = *count,
        LinkAttribute::AllMulticast(count) => link.allmulti = *count,
        LinkAttribute::CarrierChanges(count) => link.carrier_changes = Some(*count),
        LinkAttribute::CarrierUpCount(count) => link.carrier_up_count = Some(*count),
        LinkAttribute::CarrierDownCount(count) => link.carrier_down_count = Some(*count),
        LinkAttribute::NumTxQueues(count) => link.num_tx_queues = *count,
        LinkAttribute::NumRxQueues(count) => link.num_rx_queues = *count,
        LinkAttribute::LinkInfo(infos) => infos.iter().for_each(|info| kind(link, info)),
        LinkAttribute::IfAlias(alias) => rare(link, &|rare| rare.alias = alias.as_str().into()),
        LinkAttribute::PropList(list) => rare(link, &|rare| rare.alt_names = alt_names(list)),
        LinkAttribute::PermAddress(address) => rare(link, &|rare| rare.perm_address = short(address)),
        LinkAttribute::PhysPortId(id) => rare(link, &|rare| rare.phys_port_id = Some(physical(id))),
        LinkAttribute::PhysSwitchId(id) => rare(link, &|rare| rare.phys_switch_id = Some(physical(id))),
        LinkAttribute::PhysPortName(name) => {
            rare(link, &|rare| rare.phys_port_name = Some(name.as_str().into()));
        }
        LinkAttribute::ParentDevName(name) => rare(link, &|rare| rare.parent_name = name.as_str().into()),
        LinkAttribute::ParentDevBusName(name) => rare(link, &|rare| rare.parent_bus = name.as_str().into()),
        _ => {}
    }
}

fn kind(link: &mut Link, info: &LinkInfo) {
    match info {
        LinkInfo::Kind(kind) => link.kind = short(&text_of::<InfoKind>(kind)),
        LinkInfo::PortKind(kind) => link.port_kind = short(&text_of(kind)),
        _ => {}
    }
}

fn alt_names(list: &[Prop]) -> Vec<BString> {
    let name = |prop: &Prop| match prop {
        Prop::AltIfName(name) => Some(BString::from(name.as_str())),
        _ => None,
    };
    list.iter().filter_map(name).collect()
}

fn physical<const N: usize>(id: &LinkPhysId) -> Short<N> {
    short(&id.id[..id.len])
}

fn short<const N: usize>(bytes: &[u8]) -> Short<N> {
    Short::new(bytes).expect("as long as the kernel makes it")
}

/// The bytes of a value as the crate would send it.
fn value_of(value: &impl Emitable) -> Vec<u8> {
    let mut bytes = vec![0; value.buffer_len()];
    value.emit(&mut bytes);
    bytes
}

/// The text of an attribute, without its NUL.
fn text_of<A: Nla>(attribute: &A) -> Vec<u8> {
    let mut bytes = vec![0; attribute.value_len()];
    attribute.emit_value(&mut bytes);
    bytes.retain(|&byte| byte != 0);
    bytes
}

/// A request about a link as the crate reads it; it must be all of the bytes. (Its own type of message for requests about
/// properties can be written, but not read.)
#[track_caller]
pub fn read_request(request: &[u8]) -> (NetlinkHeader, LinkMessage) {
    let buffer = NetlinkBuffer::new_checked(&request).expect("a message");
    assert_eq!(buffer.length() as usize, request.len());
    let message = LinkMessage::parse(buffer.payload()).expect("a request about a link");
    (NetlinkHeader::parse(&buffer).expect("a header"), message)
}
