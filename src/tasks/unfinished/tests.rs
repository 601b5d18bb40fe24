use super::*;
use crate::model::Uevent;
use crate::model::effect::Sticky;
use std::sync::Arc;

fn event(action: &str, minor: usize) -> Event {
    let text = format!(
        "ACTION={action}\0DEVPATH=/devices/d{minor}\0SUBSYSTEM=block\0MAJOR=8\0MINOR={minor}\0SEQNUM=1\0"
    );
    Event::new(Uevent::from_lines(text.as_bytes().split(|&b| b == 0)).expect("an event"))
}

fn write(event: &Event, is_end: bool) -> Effect {
    let (id, record) = (event.device.id().expect("an id"), Arc::default());
    Effect::WriteRecord { id, record, sticky: Sticky::No, keep_empty: true, is_end }
}

#[test]
fn only_what_may_succeed_later_and_failed_the_event_is_triggered_again() {
    for (action, is_end, errno, expected) in [
        ("add", false, libc::ENOSPC, Some(Trigger::Add)),
        ("change", false, libc::EMFILE, Some(Trigger::Change)),
        ("bind", false, libc::ENOENT, Some(Trigger::Change)),
        ("add", false, libc::EINVAL, None),
        ("add", true, libc::ENOSPC, None),
    ] {
        let mut unfinished = Unfinished::default();
        let event = event(action, 1);
        let id = event.device.id().unwrap();
        unfinished.on_failure(&event, &write(&event, is_end), Errno(errno));
        assert_eq!(unfinished.events.get(&id).map(|(action, _)| *action), expected, "{action} {errno}");
        unfinished.on_begin(&id);
        assert!(!unfinished.has_devices());
        assert_eq!((unfinished.ends_half_way(&id), unfinished.ends_half_way(&id)), (!is_end, false));
    }
}

#[test]
fn an_event_that_lacked_an_answer_is_triggered_again_unless_its_device_is_gone() {
    let mut unfinished = Unfinished::default();
    for (minor, action, expected) in
        [(1, "add", Some(Trigger::Add)), (2, "change", Some(Trigger::Change)), (3, "remove", None)]
    {
        let event = event(action, minor);
        unfinished.on_lack(&event);
        let id = event.device.id().unwrap();
        assert_eq!(unfinished.events.get(&id).map(|(action, _)| *action), expected);
    }
    assert!(unfinished.gone.is_empty());
}

#[test]
fn an_ill_disk_is_not_tried_again_and_again() {
    let event = event("change", 1);
    let lock = Effect::LockDisk { device: "/devices/d1".into(), devnode: "/dev/d1".into() };
    for (errno, expected) in [(libc::EIO, 0), (libc::EPERM, 0), (libc::ENOMEM, 1)] {
        let mut unfinished = Unfinished::default();
        unfinished.on_failure(&event, &lock, Errno(errno));
        assert_eq!((unfinished.events.len(), unfinished.half_way.len()), (expected, 0), "{errno}");
    }
}

#[test]
fn what_could_not_be_removed_is_removed_later() {
    let mut unfinished = Unfinished::default();
    let event = event("remove", 1);
    let id = event.device.id().unwrap();
    unfinished.on_failure(&event, &Effect::RemoveRecord { id: id.clone() }, Errno(libc::EROFS));
    assert!(unfinished.gone.contains_key(&id) && unfinished.events.is_empty() && unfinished.has_devices());
}

#[test]
fn at_the_limit_all_devices_are_looked_at() {
    let mut unfinished = Unfinished::default();
    for minor in 0..=MAX_DEVICES {
        assert!(!unfinished.too_many);
        let event = event("add", minor);
        unfinished.on_failure(&event, &write(&event, false), Errno(libc::ENOSPC));
    }
    assert!(unfinished.too_many && unfinished.events.len() == MAX_DEVICES);
}

#[test]
fn pauses_grow_until_all_is_done() {
    let mut unfinished = Unfinished::default();
    let mut now = Now::from_secs(100);
    assert!(!unfinished.is_due(false, now) && unfinished.timeout().is_none());
    let mut pauses = Vec::new();
    for _ in 0..10 {
        let begun = now;
        while !unfinished.is_due(true, now) {
            now = unfinished.timeout().unwrap();
        }
        pauses.push(now.since(begun).as_millis());
    }
    assert_eq!(pauses[..4], [200, 400, 800, 1600]);
    assert_eq!(pauses[9], LONGEST_PAUSE.as_millis());
    // It is begun anew and fails once more.
    assert!(!unfinished.is_due(false, now) && !unfinished.is_due(true, now));
    assert_eq!(unfinished.timeout(), Some(now + LONGEST_PAUSE));
    now += LONGEST_PAUSE;
    assert!(!unfinished.is_due(false, now) && unfinished.timeout().is_none());
    assert!(!unfinished.is_due(true, now));
    assert_eq!(unfinished.timeout(), Some(now + FIRST_PAUSE));
}

#[test]
fn what_has_no_time_yet_is_gone_on_with_at_once_and_then_by_the_clock() {
    let mut unfinished = Unfinished::default();
    let now = Now::from_secs(1);
    assert!(!unfinished.has_work(false) && unfinished.has_work(true));
    assert!(!unfinished.is_due(true, now));
    assert!(!unfinished.has_work(true), "its time is known");
    assert!(unfinished.is_due(true, now + FIRST_PAUSE) && !unfinished.has_work(true));
    unfinished.finishing = Some(Finishing::Links(Vec::new()));
    assert!(unfinished.has_work(true));
}
