//! The queue by examples.

use super::*;
use crate::model::Action;

pub(super) fn uevent(seqnum: u64, action: &str, devpath: &str, extra: &[(&str, &str)]) -> Uevent {
    let mut lines = vec![
        format!("ACTION={action}"),
        format!("DEVPATH={devpath}"),
        "SUBSYSTEM=test".to_string(),
        format!("SEQNUM={seqnum}"),
    ];
    lines.extend(extra.iter().map(|(k, v)| format!("{k}={v}")));
    Uevent::from_lines(lines.iter().map(|l| l.as_bytes())).unwrap()
}

pub(super) fn now() -> Now {
    Now::from_secs(1)
}

fn ready(queue: &mut Queue) -> Vec<u64> {
    std::iter::from_fn(|| queue.take_ready()).map(|r| r.uevent.seqnum.0).collect()
}

/// The relation of rules.md 12.1, each pair in both orders.
#[test]
fn related_devices_wait_and_unrelated_ones_do_not() {
    type Side = (&'static str, &'static [(&'static str, &'static str)]);
    let table: [(Side, Side, bool); 9] = [
        (("/devices/a/b", &[]), ("/devices/a/b/c", &[]), true),
        (("/devices/a/veth9", &[]), ("/devices/a/veth99", &[]), false),
        (("/devices/a/x", &[]), ("/devices/a/x", &[("IFINDEX", "7")]), true),
        (("/devices/virtual/net/a", &[]), ("/devices/virtual/net/b", &[]), false),
        (("/devices/virtual/net/a", &[]), ("/devices/virtual/net/a/queues/rx-0", &[]), true),
        (("/devices/p", &[("IFINDEX", "3")]), ("/devices/q", &[("IFINDEX", "3")]), true),
        (("/devices/p", &[("DEVNAME", "sda")]), ("/devices/q", &[("DEVNAME", "/dev/sda")]), true),
        (("/devices/p", &[("DEVPATH_OLD", "/devices/o")]), ("/devices/o", &[]), true),
        (
            ("/devices/p", &[("MAJOR", "8"), ("MINOR", "1")]),
            ("/devices/q", &[("MAJOR", "8"), ("MINOR", "2")]),
            false,
        ),
    ];
    for (a, b, related) in table {
        for (first, second) in [(a, b), (b, a)] {
            let mut queue = Queue::new(99);
            queue.insert(uevent(1, "add", first.0, first.1), now());
            queue.insert(uevent(2, "add", second.0, second.1), now());
            let started: Vec<Ready> = std::iter::from_fn(|| queue.take_ready()).collect();
            assert_eq!(started.len(), if related { 1 } else { 2 }, "{first:?} {second:?}");
            assert_eq!(started[0].uevent.seqnum.0, 1);
            queue.finish(started[0].id);
            assert_eq!(ready(&mut queue).len(), usize::from(related));
        }
    }
}

#[test]
fn a_parent_waits_for_all_that_stands_below_it() {
    let mut queue = Queue::new(99);
    for n in 1..=3 {
        queue.insert(uevent(n, "add", &format!("/devices/d/p{n}"), &[]), now());
    }
    queue.insert(uevent(4, "change", "/devices/d", &[]), now());
    queue.insert(uevent(5, "change", "/devices/d/p1", &[]), now());
    let started: Vec<Ready> = std::iter::from_fn(|| queue.take_ready()).collect();
    assert_eq!(started.len(), 3);
    for r in &started {
        assert!(!queue.has_ready());
        queue.finish(r.id);
    }
    let parent = queue.take_ready().unwrap();
    assert_eq!(parent.uevent.seqnum.0, 4);
    assert!(queue.take_ready().is_none());
    queue.finish(parent.id);
    assert_eq!(ready(&mut queue), [5]);
}

#[test]
fn ready_events_start_by_number_and_a_number_counts_once() {
    let mut queue = Queue::new(99);
    for n in [3, 1, 2, 1] {
        queue.insert(uevent(n, "add", &format!("/devices/x{n}"), &[]), now());
    }
    assert_eq!(ready(&mut queue), [1, 2, 3]);
    assert_eq!(queue.insert(uevent(2, "add", "/devices/y", &[]), now()), Inserted::Duplicate);
}

#[test]
fn whether_a_device_has_an_event_is_known_by_its_id() {
    let block = [("SUBSYSTEM", "block"), ("MAJOR", "8"), ("MINOR", "0")];
    let char = [("SUBSYSTEM", "tty"), ("MAJOR", "4"), ("MINOR", "1")];
    let net = [("SUBSYSTEM", "net"), ("IFINDEX", "3")];
    for (id, devpath, extra) in [
        ("b8:0", "/devices/a/sda", &block[..]),
        ("c4:1", "/devices/a/tty1", &char),
        ("n3", "/devices/a/eth0", &net),
        ("+test:a!b", "/devices/a!b", &[]),
        ("+drivers:pci:ahci", "/bus/pci/drivers/ahci", &[("SUBSYSTEM", "drivers")]),
    ] {
        let id = DeviceId::parse(id.as_bytes()).unwrap();
        let mut queue = Queue::new(99);
        let event = uevent(1, "remove", devpath, extra);
        let device =
            crate::model::Device::new(event.devpath.clone(), event.subsystem.clone(), &event.properties);
        assert_eq!(device.id().as_ref(), Some(&id));
        assert!(!queue.may_have_event_of(&id));
        queue.insert(event, now());
        assert!(queue.may_have_event_of(&id) && queue.has_waiting_event_of(&id), "{id}");
        let running = queue.take_ready().unwrap();
        assert!(queue.may_have_event_of(&id) && !queue.has_waiting_event_of(&id), "{id} runs");
        queue.finish(running.id);
        assert!(!queue.may_have_event_of(&id));
    }
}

#[test]
fn subsystems_take_turns() {
    let mut queue = Queue::new(99);
    for n in 1..=5 {
        queue.insert(uevent(n, "add", &format!("/devices/d{n}"), &[]), now());
    }
    let mut other = uevent(9, "change", "/devices/x", &[]);
    other.subsystem = "other".into();
    queue.insert(other, now());
    assert_eq!(ready(&mut queue), [1, 9, 2, 3, 4, 5]);
}

#[test]
fn events_of_one_device_that_arrive_out_of_order_are_put_in_order() {
    let mut queue = Queue::new(99);
    queue.insert(uevent(9, "remove", "/devices/x", &[("IFINDEX", "4")]), now());
    queue.insert(uevent(8, "add", "/devices/x", &[("IFINDEX", "4")]), now());
    let first = queue.take_ready().unwrap();
    assert_eq!((first.uevent.seqnum.0, first.uevent.action), (8, Action::Add));
    queue.finish(first.id);
    assert_eq!(ready(&mut queue), [9]);
}

#[test]
fn however_three_events_of_one_device_arrive_they_come_out_in_order() {
    let orders = [[8, 9, 10], [8, 10, 9], [9, 8, 10], [9, 10, 8], [10, 8, 9], [10, 9, 8]];
    for order in orders {
        let mut queue = Queue::new(99);
        for n in order {
            queue.insert(uevent(n, "change", "/devices/x", &[("IFINDEX", "4")]), now());
        }
        let mut numbers = Vec::new();
        while let Some(ready) = queue.take_ready() {
            assert!(queue.take_ready().is_none(), "{order:?}");
            numbers.push(ready.uevent.seqnum.0);
            queue.finish(ready.id);
        }
        assert_eq!(numbers, [8, 9, 10], "{order:?}");
    }
}

#[test]
fn in_a_flood_what_was_overtaken_is_not_the_last_word() {
    type Event = (u64, &'static str);
    let cases: [(&[Event], &[Event]); 4] = [
        // A change that its device's removal overtook, while add and removal cancelled out.
        (&[(10, "add"), (12, "remove"), (11, "change")], &[(11, "change"), (12, "remove")]),
        // The removal of a device whose number the next one has got.
        (&[(11, "add"), (10, "remove")], &[(10, "remove"), (11, "add")]),
        (&[(11, "change"), (10, "change")], &[(10, "change"), (11, "change")]),
        (&[(10, "add"), (12, "remove"), (13, "change")], &[(13, "change")]),
    ];
    for (arrived, expected) in cases {
        let mut queue = Queue::new(0);
        queue.insert(uevent(1, "add", "/devices/other", &[]), now());
        for (number, action) in arrived {
            queue.insert(uevent(*number, action, "/devices/x", &[]), now());
        }
        let mut started = Vec::new();
        while let Some(ready) = queue.take_ready() {
            started.push((ready.uevent.seqnum.0, ready.uevent.action.as_str()));
            queue.finish(ready.id);
        }
        assert_eq!(started[1..], *expected, "{arrived:?}");
    }
}

#[test]
fn a_flood_is_coalesced_and_every_uuid_is_kept() {
    let mut queue = Queue::new(99);
    for n in 1..=100 {
        queue.insert(uevent(n, "add", &format!("/devices/x{n}"), &[]), now());
    }
    let at = |n: u64| 10_000 + n;
    let change = |n, uuid: &str| uevent(at(n), "change", "/devices/z", &[("SYNTH_UUID", uuid)]);
    assert_eq!(queue.insert(change(1, "u1"), now()), Inserted::Queued);
    assert_eq!(queue.insert(change(2, "0"), now()), Inserted::Merged);
    assert_eq!(queue.insert(change(3, "u3"), now()), Inserted::Merged);
    let other = uevent(at(4), "change", "/devices/z", &[("EJECT", "1")]);
    assert_eq!(queue.insert(other, now()), Inserted::Queued, "it says something else");
    assert_eq!(queue.insert(uevent(at(5), "add", "/devices/y", &[]), now()), Inserted::Queued);
    assert_eq!(queue.insert(uevent(at(6), "remove", "/devices/y", &[]), now()), Inserted::Cancelled);
    let all: Vec<Ready> = std::iter::from_fn(|| queue.take_ready()).collect();
    let merged = all.iter().find(|r| r.uevent.devpath == "/devices/z").unwrap();
    assert_eq!(merged.uevent.seqnum.0, at(3));
    assert_eq!(merged.swallowed, [Swallowed { seqnum: SeqNum(at(1)), uuid: "u1".into() }]);
    assert!(!all.iter().any(|r| r.uevent.devpath == "/devices/y"));
    for r in all {
        queue.finish(r.id);
    }
    let last = queue.take_ready().unwrap();
    queue.finish(last.id);
    assert_eq!((queue.waiting(), queue.running()), (0, 0));
    assert!(queue.places.are_empty() && queue.seqnums.is_empty());
}
