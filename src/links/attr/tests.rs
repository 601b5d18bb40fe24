use super::*;
use crate::links::link::{Rare, Short};
use crate::links::table::Origin;
use crate::links::wire::*;

const SEVEN: IfIndex = IfIndex(7);

fn row() -> Link {
    Link {
        ifindex: 7,
        kind_of_hardware: 1,
        flags: 0x11043,
        address: Short::new(&[0, 0x1b, 0xac, 1, 2, 0xff]).unwrap(),
        broadcast: Short::new(&[0xff; 6]).unwrap(),
        mtu: 1500,
        iflink: 6,
        operstate: 6,
        carrier: Some(true),
        proto_down: Some(false),
        tx_queue_len: 1000,
        group: Some(3),
        carrier_changes: Some(2),
        ..Link::default()
    }
}

fn text(link: &Link, name: &str) -> LinkAttr {
    Column::of(name.as_bytes()).text(link)
}

#[track_caller]
fn check(link: &Link, cases: &[(&str, &str)]) {
    for (name, expected) in cases {
        assert_eq!(text(link, name), LinkAttr::Text((*expected).into()), "{name}");
    }
}

#[test]
fn texts_are_those_of_the_files() {
    let up = row();
    check(
        &up,
        &[
            ("ifindex", "7"),
            ("type", "1"),
            ("address", "00:1b:ac:01:02:ff"),
            ("addr_len", "6"),
            ("broadcast", "ff:ff:ff:ff:ff:ff"),
            ("mtu", "1500"),
            ("iflink", "6"),
            ("flags", "0x1003"),
            ("operstate", "up"),
            ("link_mode", "0"),
            ("carrier", "1"),
            ("dormant", "0"),
            ("testing", "0"),
            ("carrier_changes", "2"),
            ("tx_queue_len", "1000"),
            ("ifalias", ""),
            ("netdev_group", "3"),
            ("proto_down", "0"),
            ("subsystem", "net"),
        ],
    );
    check(&Link { promiscuity: 2, allmulti: 1, ..up.clone() }, &[("flags", "0x1303")]);
    check(
        &Link { flags: 0x31043, operstate: 5, ..up.clone() },
        &[("dormant", "1"), ("operstate", "dormant")],
    );
    check(&Link { operstate: 77, ..up }, &[("operstate", "unknown")]);
    check(&Link::default(), &[("address", ""), ("addr_len", "0"), ("broadcast", ""), ("flags", "0x0")]);
}

#[test]
fn rare_columns() {
    let rare = Rare {
        alias: "an alias".into(),
        phys_port_id: Short::new(&[0xca, 0xfe]),
        phys_switch_id: Short::new(&[1, 2]),
        phys_port_name: Some("p0".into()),
        ..Rare::default()
    };
    let link = Link { rare: Some(Box::new(rare)), ..row() };
    check(
        &link,
        &[
            ("ifalias", "an alias"),
            ("phys_port_id", "cafe"),
            ("phys_switch_id", "0102"),
            ("phys_port_name", "p0"),
        ],
    );
    for name in ["phys_port_id", "phys_switch_id", "phys_port_name"] {
        assert_eq!(text(&row(), name), LinkAttr::Missing, "{name}");
    }
}

#[test]
fn files_that_cannot_be_read_while_the_link_is_down_are_missing() {
    let down = Link { flags: 0x1002, ..row() };
    for name in ["carrier", "dormant", "testing", "speed", "duplex"] {
        assert_eq!(text(&down, name), LinkAttr::Missing, "{name}");
    }
    assert_eq!(text(&row(), "speed"), LinkAttr::Slow);
}

#[test]
fn columns_that_an_old_kernel_does_not_send_come_from_sysfs() {
    for name in ["carrier_up_count", "carrier_down_count"] {
        assert_eq!(text(&row(), name), LinkAttr::FromSysfs, "{name}");
    }
}

/// A notification of link 7 as the kernel would send it, up or down.
fn newlink(flags: u32, iflink: u32) -> Vec<u8> {
    let mut info = [0u8; IFINFO];
    info[4..8].copy_from_slice(&7u32.to_ne_bytes());
    info[8..12].copy_from_slice(&flags.to_ne_bytes());
    Builder::new(RTM_NEWLINK, 0, 0)
        .payload(&info)
        .text(IFLA_IFNAME, b"x0")
        .u32(IFLA_MTU, 1500)
        .u32(IFLA_LINK, iflink)
        .u32(IFLA_GROUP, 0)
        .u32(IFLA_CARRIER_CHANGES, 1)
        .attribute(IFLA_CARRIER, &[1])
        .attribute(IFLA_PROTO_DOWN, &[0])
        .finish()
}

#[test]
fn silent_columns_want_a_fresh_row() {
    let silent_always = ["iflink", "carrier_changes", "netdev_group", "proto_down", "phys_port_name"];
    let silent_when_down = ["ifalias", "link_mode", "flags"];
    let silent_when_up = ["carrier", "dormant"];
    let never = ["ifindex", "address", "mtu", "operstate", "tx_queue_len", "type", "broadcast", "addr_len"];
    for up in [false, true] {
        let mut table = Table::new();
        table.apply(&newlink(u32::from(up), 3), Origin::Notification, &mut Vec::new());
        table.caught_up();
        let mark = table.mark();
        let stale =
            |name: &str| attr(&table, SEVEN, name.as_bytes(), mark) == LinkAttr::NeedsRefresh(Refresh::Row);
        assert!(silent_always.iter().all(|name| stale(name)));
        assert!(silent_when_down.iter().all(|name| stale(name) != up));
        assert!(silent_when_up.iter().all(|name| stale(name) == up));
        assert_eq!(never.iter().find(|name| stale(name)), None);
        // A real `add` is older than any row.
        let any = |name: &str| attr(&table, SEVEN, name.as_bytes(), Mark::ANY);
        for name in silent_always.iter().chain(&silent_when_down).chain(&silent_when_up).chain(&never) {
            assert!(!matches!(any(name), LinkAttr::NeedsRefresh(_)), "{name}");
        }
        assert_eq!(
            attr(&table, SEVEN, b"statistics/rx_bytes", Mark::ANY),
            LinkAttr::NeedsRefresh(Refresh::Statistics)
        );
    }
}

#[test]
fn an_iflink_of_zero_is_believed_only_in_a_reply() {
    let mut table = Table::new();
    table.apply(&newlink(0, 0), Origin::Notification, &mut Vec::new());
    table.caught_up();
    assert_eq!(attr(&table, SEVEN, b"iflink", Mark::ANY), LinkAttr::NeedsRefresh(Refresh::Row));
    let (seq, _) = table.request(SEVEN, false);
    let mut reply = newlink(0, 0);
    reply[8..12].copy_from_slice(&seq.to_ne_bytes());
    table.apply(&reply, Origin::Reply, &mut Vec::new());
    assert_eq!(attr(&table, SEVEN, b"iflink", Mark::ANY), LinkAttr::Text("0".into()));
}

#[test]
fn gone_is_missing_and_never_seen_is_unknown() {
    let mut table = Table::new();
    assert_eq!(attr(&table, SEVEN, b"mtu", Mark::ANY), LinkAttr::Unknown);
    assert_eq!(exists(&table, SEVEN, b"mtu"), Exists::Unknown);
    table.apply(&newlink(0, 0), Origin::Notification, &mut Vec::new());
    table.caught_up();
    let (seq, _) = table.request(SEVEN, false);
    table.note_absent(SEVEN, seq);
    assert_eq!(attr(&table, SEVEN, b"mtu", Mark::ANY), LinkAttr::Missing);
    assert_eq!(exists(&table, SEVEN, b"mtu"), Exists::No);
}

#[test]
fn what_is_in_no_message_is_read_from_sysfs() {
    let table = Table::new();
    for name in [
        "addr_assign_type",
        "name_assign_type",
        "dev_id",
        "dev_port",
        "device/vendor",
        "queues/rx-0/rps_cpus",
    ] {
        assert_eq!(attr(&table, SEVEN, name.as_bytes(), Mark::ANY), LinkAttr::FromSysfs, "{name}");
        assert_eq!(exists(&table, SEVEN, name.as_bytes()), Exists::FromSysfs, "{name}");
    }
    for name in ["statistics/", "statistics/nothing", "statistics/rx_bytes/x", "./mtu", "mtu/", ""] {
        assert_eq!(attr(&table, SEVEN, name.as_bytes(), Mark::ANY), LinkAttr::FromSysfs, "{name}");
    }
}

#[test]
fn after_a_loss_every_column_is_asked_for() {
    let mut table = Table::new();
    table.apply(&newlink(0, 3), Origin::Notification, &mut Vec::new());
    table.caught_up();
    assert_eq!(attr(&table, SEVEN, b"mtu", Mark::ANY), LinkAttr::Text("1500".into()));
    table.lose();
    assert_eq!(attr(&table, SEVEN, b"mtu", Mark::ANY), LinkAttr::NeedsRefresh(Refresh::Row));
}
