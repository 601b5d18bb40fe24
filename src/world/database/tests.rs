//! Records and the tag index on the disk of a temporary tree.

use super::*;
use crate::world::tree::Tree;
use std::os::unix::fs::MetadataExt;

fn id(text: &str) -> DeviceId {
    DeviceId::parse(text.as_bytes()).expect("an id")
}

fn record(value: &str) -> Record {
    Record { properties: [("A", value)].into_iter().collect(), ..Record::default() }
}

fn open(tree: &Tree) -> Database {
    tree.dir("run");
    Database::open(&open_udev_dir(&tree.roots().run).expect("/run/udev")).expect("a database")
}

/// Permission bits of something below /run/udev.
fn mode(tree: &Tree, path: &str) -> Option<u32> {
    let stat = std::fs::symlink_metadata(tree.path("run/udev").join(path)).ok()?;
    Some(stat.mode() & 0o7777)
}

#[test]
fn records_come_and_go_with_their_modes() {
    let tree = Tree::new();
    let mut db = open(&tree);
    assert_eq!(mode(&tree, "data"), Some(0o755));
    let n1 = id("n1");
    assert_eq!(db.read_record(&n1).unwrap(), None);
    use Sticky::{No, Yes};
    for (value, sticky, expected) in [("1", No, 0o644), ("2", Yes, 0o1644), ("3", No, 0o644)] {
        db.write_record(&n1, &record(value), sticky, true).unwrap();
        assert_eq!(mode(&tree, "data/n1"), Some(expected));
        assert_eq!(db.read_record(&n1).unwrap(), Some(record(value)));
    }
    assert_eq!(tree.read("run/udev/data/n1"), b"E:A=3\nV:1\n");
    assert_eq!(std::fs::read_dir(tree.path("run/udev/data")).unwrap().count(), 1);
    db.remove_record(&n1).unwrap();
    db.remove_record(&n1).unwrap();
    assert_eq!((db.read_record(&n1).unwrap(), mode(&tree, "data/n1")), (None, None));
}

#[test]
fn a_record_that_is_rewritten_stays_as_sticky_as_it_was() {
    let tree = Tree::new();
    tree.file("run/udev/data/b8:0", "E:A=1\n").mode("run/udev/data/b8:0", 0o1644);
    tree.file("run/udev/data/b8:1", "E:A=1\n").mode("run/udev/data/b8:1", 0o644);
    let mut db = open(&tree);
    let old = [("b8:0", 0o1644), ("b8:1", 0o644), ("n7", 0o644)];
    for (name, expected) in old {
        for value in ["2", "3"] {
            db.write_record(&id(name), &record(value), Sticky::AsBefore, true).unwrap();
            assert_eq!(mode(&tree, &format!("data/{name}")), Some(expected), "{name}");
        }
    }
    db.write_record(&id("b8:0"), &record("4"), Sticky::No, true).unwrap();
    db.write_record(&id("b8:0"), &record("5"), Sticky::AsBefore, true).unwrap();
    assert_eq!(mode(&tree, "data/b8:0"), Some(0o644), "the last one counts");
    db.write_record(&id("n7"), &record("4"), Sticky::Yes, true).unwrap();
    db.remove_record(&id("n7")).unwrap();
    db.write_record(&id("n7"), &record("5"), Sticky::AsBefore, true).unwrap();
    assert_eq!(mode(&tree, "data/n7"), Some(0o644), "what was removed does not count");
}

#[test]
fn a_record_without_content_is_an_empty_file_or_none() {
    let tree = Tree::new();
    let mut db = open(&tree);
    let (node, other) = (id("c1:3"), id("+usb:1-1"));
    db.write_record(&node, &Record::default(), Sticky::No, true).unwrap();
    assert_eq!(tree.read("run/udev/data/c1:3"), b"");
    assert_eq!(db.read_record(&node).unwrap(), Some(Record::default()));
    db.write_record(&node, &record("1"), Sticky::No, true).unwrap();
    db.write_record(&node, &Record::default(), Sticky::Yes, true).unwrap();
    assert_eq!((tree.read("run/udev/data/c1:3"), mode(&tree, "data/c1:3")), (vec![], Some(0o1644)));
    db.write_record(&other, &record("1"), Sticky::No, false).unwrap();
    db.write_record(&other, &Record::default(), Sticky::No, false).unwrap();
    assert_eq!(mode(&tree, "data/+usb:1-1"), None);
}

#[test]
fn records_of_an_earlier_run_are_known_and_others_are_not() {
    let tree = Tree::new();
    tree.file("run/udev/data/b8:0", "E:A=1\nV:1\n")
        .file("run/udev/data/.#b8:1", "")
        .file("run/udev/data/x", "");
    let mut db = open(&tree);
    assert_eq!(db.known().collect::<Vec<_>>(), [&id("b8:0")]);
    assert_eq!(db.read_record(&id("b8:0")).unwrap(), Some(record("1")));
    assert_eq!(Records::open(&tree.roots().run).unwrap().read(&id("b8:0")).unwrap(), Some(record("1")));
    assert!(tree.path("run/udev/data/b8:0").is_file() && !tree.path("run/udev/data/b8:1").exists());
}

#[test]
fn tags_are_indexed_once_and_their_directories_stay() {
    let tree = Tree::new();
    let mut db = open(&tree);
    let n1 = id("n1");
    let tags: OrderedSet = ["seat", "systemd"].into_iter().collect();
    db.add_tags(&n1, tags.as_slice()).unwrap();
    db.add_tags(&n1, tags.as_slice()).unwrap();
    assert_eq!((mode(&tree, "tags/seat"), mode(&tree, "tags/seat/n1")), (Some(0o755), Some(0o444)));
    assert_eq!(tree.read("run/udev/tags/systemd/n1"), b"");
    db.remove_tags(&n1, tags.as_slice()).unwrap();
    db.remove_tags(&n1, tags.as_slice()).unwrap();
    assert_eq!((mode(&tree, "tags/seat"), mode(&tree, "tags/seat/n1")), (Some(0o755), None));
    assert!(db.known.is_empty());
    open(&tree).add_tags(&n1, tags.as_slice()).unwrap();
    open(&tree).add_tags(&n1, tags.as_slice()).unwrap();
    assert!(mode(&tree, "tags/seat/n1").is_some());
}

#[test]
fn a_bad_tag_leads_nowhere_and_the_others_are_indexed() {
    let tree = Tree::new();
    let mut db = open(&tree);
    let tags: OrderedSet = ["..", "a/b", "good"].into_iter().collect();
    let error = db.add_tags(&id("n1"), tags.as_slice()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    assert!(mode(&tree, "tags/good/n1").is_some() && mode(&tree, "n1").is_none());
    assert!(db.remove_tags(&id("n1"), tags.as_slice()).is_err());
    assert!(mode(&tree, "tags/good/n1").is_none());
}

#[test]
fn a_device_is_remembered_as_long_as_it_has_a_record() {
    let tree = Tree::new();
    let mut db = open(&tree);
    let sda = id("b8:0");
    let lines = b"ACTION=add\0DEVPATH=/devices/x/sda\0SUBSYSTEM=block\0MAJOR=8\0MINOR=0\0DEVNAME=sda\0\
        DEVTYPE=disk\0SEQNUM=7\0MODEL=x\0";
    let event = Event::new(Uevent::from_lines(lines.split(|&b| b == 0)).unwrap());
    db.remember(&sda, &event, None);
    assert_eq!(db.removal(&sda, SeqNum(9)), None);
    db.write_record(&sda, &record("1"), Sticky::No, true).unwrap();
    assert_eq!(db.removal(&sda, SeqNum(9)), None, "no event of this daemon");
    db.remember(&sda, &event, None);
    let removal = db.removal(&sda, SeqNum(9)).unwrap();
    let device = crate::model::Device::new(removal.devpath, removal.subsystem, &removal.properties);
    assert_eq!((device.id(), device.devnode), (Some(sda.clone()), Some("/dev/sda".into())));
    assert_eq!((removal.seqnum, removal.action), (SeqNum(9), crate::model::Action::Remove));
    assert_eq!(
        (removal.properties.get("DEVTYPE"), removal.properties.get("MODEL")),
        (Some("disk".into()), None)
    );
    db.remove_record(&sda).unwrap();
    assert_eq!(db.removal(&sda, SeqNum(9)), None);
}

fn event(words: &str) -> Event {
    Event::new(Uevent::from_lines(words.split(' ').map(str::as_bytes)).unwrap())
}

/// IMPORT{parent}="*" brings all of them.
#[test]
fn who_a_device_is_does_not_come_from_what_its_rules_import() {
    let tree = Tree::new();
    for (name, kernel) in [
        (
            "b8:1",
            "DEVPATH=/devices/sda/sda1 SUBSYSTEM=block MAJOR=8 MINOR=1 DEVNAME=sda1 DEVTYPE=partition PARTN=1",
        ),
        ("n7", "DEVPATH=/devices/virtual/net/br0 SUBSYSTEM=net INTERFACE=br0 IFINDEX=7 DEVTYPE=bridge"),
    ] {
        let (mut db, id) = (open(&tree), id(name));
        let mut event = event(&format!("ACTION=add SEQNUM=1 {kernel}"));
        let before = event.properties.clone();
        for (name, value) in [
            ("DEVPATH", "/devices/sda"),
            ("SUBSYSTEM", "scsi"),
            ("MAJOR", "8"),
            ("MINOR", "0"),
            ("DEVNAME", "/dev/sda"),
            ("DEVTYPE", "disk"),
            ("DISKSEQ", "9"),
            ("IFINDEX", "3"),
            ("INTERFACE", "lo"),
        ] {
            event.properties.set_stored(name, value);
        }
        let record = Arc::new(record("1"));
        db.write_record(&id, &record, Sticky::No, true).unwrap();
        db.remember(&id, &event, Some(&record));
        let removal = db.removal(&id, SeqNum(9)).unwrap();
        for property in removal.properties.iter().filter(|p| p.name != "ACTION" && p.name != "SEQNUM") {
            assert_eq!(before.get(property.name), Some(property.value), "{name}: {}", property.name);
        }
        assert_eq!(removal.properties.iter().count(), before.iter().count(), "{name}");
        let devtype = db.recent(&id).unwrap().devtype.as_ref();
        assert_eq!(devtype.map(|devtype| devtype.as_bstr()), before.get("DEVTYPE"));
    }
}

#[test]
fn what_someone_else_cleaned_up_is_made_anew() {
    let tree = Tree::new();
    let mut db = open(&tree);
    let n1 = id("n1");
    let tags: OrderedSet = ["seat"].into_iter().collect();
    db.write_record(&n1, &record("1"), Sticky::No, true).unwrap();
    db.add_tags(&n1, tags.as_slice()).unwrap();
    std::fs::remove_file(tree.path("run/udev/data/n1")).unwrap();
    std::fs::remove_dir_all(tree.path("run/udev/tags/seat")).unwrap();
    assert_eq!(db.read_record(&n1).unwrap(), None);
    db.write_record(&n1, &Record::default(), Sticky::No, true).unwrap();
    db.add_tags(&n1, tags.as_slice()).unwrap();
    assert!(mode(&tree, "tags/seat/n1").is_some() && mode(&tree, "data/n1").is_some());
    std::fs::remove_file(tree.path("run/udev/data/n1")).unwrap();
    db.remove_record(&n1).unwrap();
}

#[test]
fn entries_of_tags_that_others_removed_are_back_after_the_next_event() {
    let tree = Tree::new();
    let mut db = open(&tree);
    let (n1, tags) = (id("n1"), OrderedSet::from_iter(["seat", "all"]));
    let is_there = |tag: &str| mode(&tree, &format!("tags/{tag}/n1")).is_some();
    db.add_tags(&n1, tags.as_slice()).unwrap();
    assert_eq!(db.take_new_tags(), ["seat", "all"]);
    db.trust_tag("all".into());
    assert!(db.take_new_tags().is_empty());
    for tag in ["seat", "all"] {
        std::fs::remove_dir_all(tree.path("run/udev/tags").join(tag)).unwrap();
    }
    db.add_tags(&n1, tags.as_slice()).unwrap();
    assert_eq!((is_there("seat"), is_there("all")), (true, false), "one was to be told");
    db.forget_tag(b"all", b"n1");
    db.forget_tag_folder("all".into());
    db.forget_tag(b"all", b"none");
    db.add_tags(&n1, tags.as_slice()).unwrap();
    assert!(is_there("all"));
    assert_eq!(db.take_new_tags(), ["all"]);
    db.trust_tag("all".into());
    std::fs::remove_dir_all(tree.path("run/udev/tags")).unwrap();
    assert!(db.add_tags(&n1, &["seat".into()]).is_err());
    db.reopen(&open_udev_dir(&tree.roots().run).unwrap()).unwrap();
    db.add_tags(&n1, tags.as_slice()).unwrap();
    assert!(is_there("seat") && is_there("all"));
}

#[test]
fn of_many_tags_only_some_are_to_be_watched_and_the_others_are_looked_at() {
    let tree = Tree::new();
    let mut db = open(&tree);
    let tags: OrderedSet = (0..MAX_WATCHED_TAGS + 10).map(|n| format!("t{n}")).collect();
    db.add_tags(&id("n1"), tags.as_slice()).unwrap();
    let new = db.take_new_tags();
    assert_eq!(new.len(), MAX_WATCHED_TAGS);
    new.into_iter().for_each(|tag| db.trust_tag(tag));
    let last = format!("tags/t{}/n1", MAX_WATCHED_TAGS + 9);
    std::fs::remove_file(tree.path("run/udev").join(&last)).unwrap();
    db.add_tags(&id("n1"), tags.as_slice()).unwrap();
    assert!(mode(&tree, &last).is_some() && db.take_new_tags().is_empty());
}

#[test]
fn the_index_is_brought_in_line_with_the_records() {
    let tree = Tree::new();
    for entry in ["a/n1", "b/n1", "b/n2", "b/none", "empty"] {
        tree.file(&format!("run/udev/tags/{entry}"), "");
    }
    tree.file("run/udev/data/n1", "G:a\nG:c\nV:1\n").file("run/udev/data/.#n1", "E:HALF=");
    let mut db = open(&tree);
    assert!(!db.is_new() && mode(&tree, "data/.#n1").is_none());
    let index = db.list_tags().unwrap();
    assert_eq!(index.len(), 2);
    for (name, left) in [("n1", vec!["a", "c"]), ("n2", vec![])] {
        let record = db.read_record(&id(name)).unwrap().unwrap_or_default();
        let (others, missing) = Database::differing_tags(&record, &index[&id(name)]);
        db.remove_tags(&id(name), &others).and(db.add_tags(&id(name), &missing)).unwrap();
        let has = |tag: &&str| mode(&tree, &format!("tags/{tag}/{name}")).is_some();
        assert_eq!(["a", "b", "c"].iter().filter(|tag| has(tag)).copied().collect::<Vec<_>>(), left);
    }
    assert!(open(&Tree::new()).is_new());
}

#[test]
fn what_is_left_of_an_event_that_ended_half_way_goes_with_the_device() {
    let tree = Tree::new();
    let mut db = open(&tree);
    db.add_tags(&id("n1"), &["a".into(), "b".into()]).unwrap();
    let beside = db.tags_beside(&id("n1"), &["a"].into_iter().collect());
    assert_eq!((beside.as_slice(), db.tag_count(&id("n1"))), (&["b".into()][..], 2));
    db.remove_tags(&id("n1"), &beside).unwrap();
    assert!(mode(&tree, "tags/a/n1").is_some() && mode(&tree, "tags/b/n1").is_none());
    db.remove_record(&id("n1")).unwrap();
    assert!(mode(&tree, "tags/a/n1").is_none() && db.known.is_empty());
    assert!(db.tags_beside(&id("n1"), &OrderedSet::default()).is_empty());
}

#[test]
fn a_write_that_fails_leaves_no_record() {
    let tree = Tree::new();
    let mut db = open(&tree);
    let long = DeviceId::Named { subsystem: "s".into(), sysname: "x".repeat(300).into() };
    let error = db.write_record(&long, &record("1"), Sticky::No, false).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENAMETOOLONG));
    assert!(!db.has_record(&long));
    assert_eq!(std::fs::read_dir(tree.path("run/udev/data")).unwrap().count(), 0);
    let elsewhere = DeviceId::Named { subsystem: "s/../..".into(), sysname: "x".into() };
    assert!(db.write_record(&elsewhere, &record("1"), Sticky::No, false).is_err());
    std::fs::remove_dir_all(tree.path("run/udev/data")).unwrap();
    assert!(db.write_record(&id("n1"), &record("1"), Sticky::No, true).is_err());
}

#[test]
fn whichever_call_fails_for_want_of_room_the_record_stands_in_the_end() {
    use crate::sys::faults::{self, Plan};
    let run = |errno: i32, at: u64| {
        let tree = Tree::new();
        let mut db = open(&tree);
        let n1 = id("n1");
        faults::set(Plan { fail_at: Some((at, errno)), ..Plan::default() });
        let results = [
            db.write_record(&n1, &record("first"), Sticky::No, true),
            db.write_record(&n1, &record("marked"), Sticky::AsBefore, true),
            db.write_record(&n1, &record("under way"), Sticky::Yes, true),
            db.end_record(&n1, &record("end"), Sticky::Yes, true),
        ];
        let calls = faults::calls();
        faults::set(Plan::default());
        // What came after a failure was written over it.
        assert_eq!(db.is_unfinished(), results[3].is_err());
        assert_eq!(db.read_record(&n1).unwrap(), Some(record("end")));
        db.finish(&n1).unwrap();
        assert!(!db.is_unfinished() && db.has_record(&n1));
        let names = db.records.data.names().unwrap();
        assert_eq!((names, mode(&tree, "data/n1")), (vec!["n1".into()], Some(0o1644)), "{at} {errno}");
        assert_eq!(tree.read("run/udev/data/n1"), b"E:A=end\nV:1\n");
        (calls, results.iter().filter(|result| result.is_err()).count())
    };
    let (calls, _) = run(0, u64::MAX);
    assert!(calls > 10, "{calls}");
    for errno in [libc::ENOSPC, libc::EMFILE, libc::EIO, libc::EROFS] {
        let errors: usize = (1..=calls).map(|at| run(errno, at).1).sum();
        assert!(errors > 3, "nothing failed with {errno}");
    }
}

#[test]
fn what_is_no_file_is_no_record_and_gives_way_to_one() {
    let tree = Tree::new();
    tree.dir("run/udev/data/n1").file("run/udev/data/n2/x", "precious").link("run/udev/data/n3", "/dev/zero");
    let mut db = open(&tree);
    for name in ["n1", "n2", "n3"] {
        assert_eq!(db.read_record(&id(name)).unwrap(), None, "{name}");
        db.write_record(&id(name), &record("1"), Sticky::AsBefore, true).unwrap();
        db.write_record(&id(name), &record("2"), Sticky::No, true).unwrap();
        assert_eq!(db.read_record(&id(name)).unwrap(), Some(record("2")), "{name}");
    }
    assert_eq!(tree.read("run/udev/data/.dir-n2/x"), b"precious");
    assert_eq!(db.known().count(), 3);
    // A record that has no content is made in another way.
    tree.dir("run/udev/data/n4");
    db.write_record(&id("n4"), &Record::default(), Sticky::No, true).unwrap();
    assert_eq!(mode(&tree, "data/n4"), Some(0o644));
}

#[test]
fn what_others_do_to_a_record_counts_for_who_asks_for_that_of_a_parent() {
    let tree = Tree::new();
    let mut db = open(&tree);
    let n1 = id("n1");
    let event = event("ACTION=add DEVPATH=/devices/net/a SUBSYSTEM=net INTERFACE=a IFINDEX=1 SEQNUM=1");
    let write = |db: &mut Database, value: &str| {
        let record = Arc::new(record(value));
        db.write_record(&n1, &record, Sticky::No, true).unwrap();
        db.remember(&n1, &event, Some(&record));
    };
    let value = |db: &Database| Some(db.record_of(&id("n1"))?.properties.get("A")?.to_string());
    write(&mut db, "1");
    assert_eq!(value(&db).as_deref(), Some("1"));
    tree.file("run/udev/data/.#n1", "E:A=2\nV:1\n");
    std::fs::rename(tree.path("run/udev/data/.#n1"), tree.path("run/udev/data/n1")).unwrap();
    assert_eq!(value(&db).as_deref(), Some("2"), "written by others");
    std::fs::remove_file(tree.path("run/udev/data/n1")).unwrap();
    assert_eq!(value(&db), None, "removed by others");
    write(&mut db, "3");
    assert_eq!(value(&db).as_deref(), Some("3"));
}

#[test]
fn a_record_that_waits_for_room_counts_for_who_asks_for_that_of_a_parent() {
    let tree = Tree::new();
    let mut db = open(&tree);
    let unwritten = Unwritten { record: record("kept"), sticky: false, keep_empty: true };
    db.unwritten.insert(id("n1"), unwritten);
    assert_eq!(*db.record_of(&id("n1")).unwrap(), record("kept"));
}
