use super::*;

// Captured on kernel 6.18 in a private namespace: `ip link add veth0 type veth peer name veth1` and
// what followed.
const FIRST_END: &[u8] = include_bytes!("../captures/veth-first-end.bin");
const SECOND_END: &[u8] = include_bytes!("../captures/veth-second-end.bin");
const BRIDGE_PORT: &[u8] = include_bytes!("../captures/bridge-port.bin");
const BRIDGE_FAMILY_DELLINK: &[u8] = include_bytes!("../captures/bridge-family-dellink.bin");
const DELLINK: &[u8] = include_bytes!("../captures/dellink.bin");
const DUMP: &[u8] = include_bytes!("../captures/dump.bin");
const DUMP_DONE: &[u8] = include_bytes!("../captures/dump-done.bin");
const ACK: &[u8] = include_bytes!("../captures/ack.bin");
const REFUSED: &[u8] = include_bytes!("../captures/refused.bin");
const ALL: [&[u8]; 9] =
    [FIRST_END, SECOND_END, BRIDGE_PORT, BRIDGE_FAMILY_DELLINK, DELLINK, DUMP, DUMP_DONE, ACK, REFUSED];

fn only(datagram: &[u8]) -> Frame<'_> {
    let frames: Vec<_> = frames(datagram).collect();
    assert_eq!(frames.len(), 1);
    frames[0].unwrap()
}

#[test]
fn the_two_ends_of_a_veth_pair() {
    let first = link(only(FIRST_END).payload).unwrap().unwrap();
    assert!(first.complete);
    assert_eq!((first.link.ifindex, first.link.name.as_bstr()), (2, "veth1".into()));
    // The other end did not exist yet.
    assert_eq!(first.link.iflink, 0);
    let second = link(only(SECOND_END).payload).unwrap().unwrap().link;
    assert_eq!((second.ifindex, second.name.as_bstr(), second.iflink), (3, "veth0".into(), 2));
    assert_eq!(second.kind.as_bstr(), "veth");
    assert_eq!((second.mtu, second.tx_queue_len, second.kind_of_hardware), (1500, 1000, 1));
    assert_eq!((second.address.len(), &*second.broadcast), (6, [0xff; 6].as_slice()));
    assert_eq!((second.operstate, second.carrier), (2, Some(false)));
    assert_eq!((second.group, second.proto_down, second.master), (Some(0), Some(false), 0));
    assert_eq!(second.rare, None);
    assert!(!second.is_up());
}

#[test]
fn a_bridge_port_with_alias_and_alternative_names() {
    let message = link(only(BRIDGE_PORT).payload).unwrap().unwrap();
    let port = &message.link;
    assert_eq!(
        (port.master, port.kind.as_bstr(), port.port_kind.as_bstr()),
        (4, "veth".into(), "bridge".into())
    );
    assert_eq!(port.alias(), b"the alias");
    assert_eq!(port.alt_names(), ["one", "twotwotwotwotwotwo"]);
    assert_eq!((port.promiscuity, port.allmulti), (1, 1));
    assert!(port.is_up());
    assert_eq!(message.statistics.map(|s| s.len() >= STATISTICS.len() * 8), Some(true));
}

#[test]
fn a_dump_has_all_links_and_an_end() {
    let names: Vec<_> = frames(DUMP)
        .map(|frame| link(frame.unwrap().payload).unwrap().unwrap())
        .map(|message| message.link.name.as_bstr().to_string())
        .collect();
    assert_eq!(names, ["lo", "br0"]);
    let done = reply(&only(DUMP_DONE)).unwrap().unwrap();
    assert_eq!((done.seq, done.result, done.interrupted), (77, Ok(()), false));
}

#[test]
fn deletions_of_another_family_are_no_deletions() {
    assert_eq!(only(BRIDGE_FAMILY_DELLINK).kind, RTM_DELLINK);
    assert_eq!(link(only(BRIDGE_FAMILY_DELLINK).payload), Ok(None));
    assert_eq!(only(DELLINK).kind, RTM_DELLINK);
    assert_eq!(link(only(DELLINK).payload).unwrap().unwrap().link.ifindex, 3);
}

#[test]
fn acknowledgements_and_refusals() {
    let ack = reply(&only(ACK)).unwrap().unwrap();
    assert_eq!((ack.seq, ack.result), (78, Ok(())));
    assert_eq!(ack.text, "bytes leftover after parsing attributes");
    let refused = reply(&only(REFUSED)).unwrap().unwrap();
    assert_eq!((refused.seq, refused.result), (79, Err(Errno(libc::ENODEV))));
    assert_eq!(refused.text, "");
    assert_eq!(reply(&only(FIRST_END)), Ok(None));
}

#[test]
fn a_wireless_event_is_not_complete() {
    let message =
        Builder::new(RTM_NEWLINK, 0, 0).ifinfo(5).text(IFLA_IFNAME, b"wlan0").attribute(11, &[0; 16]);
    let bytes = message.finish();
    let message = link(only(&bytes).payload).unwrap().unwrap();
    assert!(!message.complete);
    assert_eq!(message.link.name.as_bstr(), "wlan0");
}

#[test]
fn attributes_of_absurd_sizes_are_passed_over() {
    let mut message = Builder::new(RTM_NEWLINK, 0, 0).ifinfo(5).text(IFLA_IFNAME, &[b'x'; 40]);
    for kind in 0..80 {
        if kind != IFLA_IFNAME && kind != IFLA_LINKINFO && kind != IFLA_PROP_LIST {
            message = message.attribute(kind, &[1; 3]).attribute(kind, &[]);
        }
    }
    let bytes = message.finish();
    let link = link(only(&bytes).payload).unwrap().unwrap().link;
    assert_eq!((link.name.as_bstr(), link.mtu, link.iflink), ("".into(), 0, 5));
}

/// Everything that reads messages, on bytes that may be anything.
fn digest(bytes: &[u8]) -> usize {
    let mut understood = 0;
    for frame in frames(bytes).map_while(Result::ok) {
        understood += usize::from(matches!(link(frame.payload), Ok(Some(_))));
        understood += usize::from(matches!(reply(&frame), Ok(Some(_))));
    }
    understood
}

#[test]
fn messages_cut_at_every_byte_are_malformed_not_fatal() {
    for whole in ALL {
        let first = read_u32(whole, 0).unwrap() as usize;
        for cut in 0..whole.len() {
            digest(&whole[..cut]);
            if (1..first).contains(&cut) {
                assert_eq!(frames(&whole[..cut]).next(), Some(Err(Malformed)), "{cut}");
            }
            // The header says less than is there, too.
            let mut shorter = whole[..cut].to_vec();
            if cut >= HEADER {
                shorter[..4].copy_from_slice(&(cut as u32).to_ne_bytes());
                digest(&shorter);
            }
        }
    }
}

#[test]
fn every_byte_may_be_wrong() {
    for whole in ALL {
        for at in 0..whole.len() {
            for wrong in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.to_vec();
                bytes[at] = wrong;
                digest(&bytes);
            }
        }
    }
}
