//! Disks on the real kernel: symlinks and who owns them, the lock of a whole disk, the watch, removal. Cases
//! O13 and O14 of the open bug cases are here.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/live.rs"]
mod live;
#[path = "support/loops.rs"]
mod loops;

use live::{Live, eventually, fresh_uuid, in_cell, record, write_uevent};
use loops::Loop;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Triggers `change` and waits until it was handled.
fn change(live: &mut Live, disk: &Loop) -> cell::Message {
    let uuid = fresh_uuid();
    write_uevent(&disk.syspath(), &format!("change {uuid}"));
    live.announced_that("change of the disk", |m| m.get("SYNTH_UUID") == uuid)
}

#[test]
fn o13_remove_leaves_nothing_behind() {
    in_cell(|| {
        let rules = "SUBSYSTEM==\"block\", KERNEL==\"loop????*\", SYMLINK+=\"keep/%k\", TAG+=\"x\", OPTIONS+=\"watch\", ENV{P}=\"1\"\n";
        let mut live = Live::start(rules);
        let disk = Loop::add().expect("adds a loop device");
        live.announced("add", &disk.devpath());
        change(&mut live, &disk);
        let (id, link) = (disk.id(), format!("/dev/keep/{}", disk.name()));
        assert!(record(&id).contains("E:P=1"), "{}", record(&id));
        assert!(Path::new(&link).exists());
        assert!(Path::new(&format!("/run/udev/tags/x/{id}")).exists());
        disk.remove().expect("removes the loop device");
        let message = live.announced("remove", &disk.devpath());
        assert_eq!(message.get("P"), "1");
        assert_eq!(message.get("TAGS"), ":x:");
        assert_eq!(message.get("DEVLINKS"), link);
        nothing_is_left(&id, &disk.name());
        live.stop();
    });
}

#[test]
fn o13_removed_while_its_change_is_still_queued() {
    in_cell(|| {
        let rules = "SUBSYSTEM==\"block\", KERNEL==\"loop????*\", SYMLINK+=\"keep/%k\", TAG+=\"x\", OPTIONS+=\"watch\", ENV{P}=\"1\"\n\
            ACTION==\"change\", KERNEL==\"loop????*\", PROGRAM==\"/bin/sleep 0.3\"\n";
        let mut live = Live::start(rules);
        let disk = Loop::add().expect("adds a loop device");
        live.announced("add", &disk.devpath());
        let id = disk.id();
        let uuids = [fresh_uuid(), fresh_uuid()];
        for uuid in &uuids {
            write_uevent(&disk.syspath(), &format!("change {uuid}"));
        }
        disk.remove().expect("removes the loop device");
        live.announced("remove", &disk.devpath());
        nothing_is_left(&id, &disk.name());
        live.stop();
    });
}

fn nothing_is_left(id: &str, name: &str) {
    assert_eq!(record(id), "");
    assert!(!Path::new(&format!("/run/udev/tags/x/{id}")).exists(), "a tag is left");
    assert!(std::fs::symlink_metadata(format!("/dev/keep/{name}")).is_err(), "the symlink is left");
    let owners = Path::new("/run/udev/links").join(format!("keep\\x2f{name}")).join(id);
    assert!(std::fs::symlink_metadata(&owners).is_err(), "{} is left", owners.display());
    assert!(std::fs::symlink_metadata(format!("/run/udev/watch/{id}")).is_err(), "a watch is left");
}

#[test]
fn o14_equal_priority_the_latest_event_owns_the_symlink() {
    in_cell(|| {
        let (x, y) = (Loop::add().expect("a loop device"), Loop::add().expect("a loop device"));
        let rules = format!("KERNEL==\"{}|{}\", SYMLINK+=\"shared\"\n", x.name(), y.name());
        let mut live = Live::start(&rules);
        let owner = || std::fs::canonicalize("/dev/shared").expect("the symlink is there");
        for disk in [&x, &y, &x] {
            change(&mut live, disk);
            assert_eq!(owner(), disk.node());
        }
        x.remove().expect("removes");
        live.announced("remove", &x.devpath());
        assert_eq!(owner(), y.node());
        live.stop();
    });
}

#[test]
fn a_locked_disk_waits_and_others_do_not() {
    in_cell(|| {
        let (held, free) = (Loop::add().expect("a loop device"), Loop::add().expect("a loop device"));
        let mut live = Live::start("KERNEL==\"loop????*\", ENV{DONE}=\"1\"\n");
        let node = std::fs::File::open(held.node()).expect("opens the disk");
        assert_eq!(unsafe { libc::flock(node.as_raw_fd(), libc::LOCK_EX) }, 0);
        let uuid = fresh_uuid();
        write_uevent(&held.syspath(), &format!("change {uuid}"));
        change(&mut live, &free);
        assert!(!record(&held.id()).contains("E:DONE=1"), "the locked disk was handled");
        drop(node);
        live.announced_that("the event of the disk that was locked", |m| m.get("SYNTH_UUID") == uuid);
        assert!(record(&held.id()).contains("E:DONE=1"));
        live.stop();
    });
}

#[test]
fn closing_a_watched_disk_after_writing_makes_a_change() {
    in_cell(|| {
        let disk = Loop::add().expect("a loop device");
        disk.attach(1 << 20).expect("attaches an image");
        let mut live = Live::start(&format!("KERNEL==\"{}\", OPTIONS+=\"watch\"\n", disk.name()));
        change(&mut live, &disk);
        drop(std::fs::OpenOptions::new().write(true).open(disk.node()).expect("opens for writing"));
        let message = live.announced("change", &disk.devpath());
        assert_ne!(message.get("SYNTH_UUID").len(), 36, "an event of our own has no UUID of ours");
        live.stop();
    });
}

#[test]
fn the_queue_is_busy_until_a_node_that_was_written_to_was_triggered() {
    in_cell(|| {
        let mut live = Live::start("KERNEL==\"full\", OPTIONS+=\"watch\"\n");
        let write = || drop(std::fs::OpenOptions::new().write(true).open("/dev/full").expect("opens"));
        let devpath = "/devices/virtual/mem/full";
        let uuid = fresh_uuid();
        write_uevent(&format!("/sys{devpath}"), &format!("change {uuid}"));
        live.announced_that("the change", |m| m.get("SYNTH_UUID") == uuid);
        write();
        live.announced("change", devpath);
        let busy = || Path::new("/run/udev/queue").exists();
        eventually("an empty queue", || !busy());
        let helpers = live::helpers(live.pid());
        helpers.iter().for_each(|&pid| assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0));
        write();
        eventually("a busy queue, for the event has yet to come", busy);
        helpers.iter().for_each(|&pid| assert_eq!(unsafe { libc::kill(pid, libc::SIGCONT) }, 0));
        live.announced("change", devpath);
        eventually("an empty queue", || !busy());
        live.stop();
    });
}

#[test]
fn owner_mode_and_number_links_of_a_node() {
    in_cell(|| {
        use std::os::unix::fs::MetadataExt;
        let disk = Loop::add().expect("a loop device");
        let mut live =
            Live::start(&format!("KERNEL==\"{}\", OWNER=\"1\", GROUP=\"6\", MODE=\"0604\"\n", disk.name()));
        change(&mut live, &disk);
        let meta = std::fs::metadata(disk.node()).expect("the node");
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (1, 6, 0o604));
        let by_number = format!("/dev/block/{}", &disk.id()[1..]);
        eventually("the symlink by number", || {
            std::fs::canonicalize(&by_number).is_ok_and(|to| to == disk.node())
        });
        live.stop();
    });
}

/// Row 66 of the situations: the two symlinks of a watch come and go together.
#[test]
fn a_watch_that_is_taken_back_leaves_neither_of_its_symlinks() {
    in_cell(|| {
        let disk = Loop::add().expect("a loop device");
        let rules = format!(
            "KERNEL!=\"{}\", GOTO=\"end\"\nENV{{SYNTH_ARG_W}}==\"1\", OPTIONS:=\"watch\"\n\
             ENV{{SYNTH_ARG_W}}==\"0\", OPTIONS:=\"nowatch\"\nLABEL=\"end\"\n",
            disk.name()
        );
        let mut live = Live::start(&rules);
        let mut change_with = |argument: &str| {
            let uuid = fresh_uuid();
            write_uevent(&disk.syspath(), &format!("change {uuid} W={argument}"));
            live.announced_that("change of the disk", |m| m.get("SYNTH_UUID") == uuid);
            let watch = std::fs::read_link(format!("/run/udev/watch/{}", disk.id())).ok();
            let back = watch.as_ref().map(|number| {
                std::fs::read_link(Path::new("/run/udev/watch").join(number)).expect("the symlink back")
            });
            let entries = std::fs::read_dir("/run/udev/watch").map_or(0, Iterator::count);
            (watch.is_some(), back.is_none_or(|id| id == Path::new(&disk.id())), entries)
        };
        assert_eq!(change_with("1"), (true, true, 2));
        assert_eq!(change_with("1"), (true, true, 2));
        assert_eq!(change_with("0"), (false, true, 0));
        assert_eq!(change_with("1"), (true, true, 2));
        live.stop();
    });
}

/// Row 62: bursts of events of seven disks that claim one link.
#[test]
fn the_highest_priority_owns_the_symlink_whatever_comes_in_which_order() {
    in_cell(|| {
        let disks: Vec<Loop> = (0..7).map(|_| Loop::add().expect("a loop device")).collect();
        let best = &disks[3];
        let rules = format!(
            "KERNEL==\"loop????*\", SYMLINK+=\"partition own/%k\"\nKERNEL==\"{}\", OPTIONS+=\"link_priority=10\"\n",
            best.name()
        );
        let mut live = Live::start(&rules);
        change(&mut live, best);
        for round in 0..100 {
            for n in 0..disks.len() {
                write_uevent(&disks[(n * 3 + round) % disks.len()].syspath(), "change");
            }
            if round % 10 == 9 {
                // Events of one device keep their order, so this one is the last of all.
                disks.iter().for_each(|disk| drop(change(&mut live, disk)));
                assert_eq!(std::fs::canonicalize("/dev/partition").expect("is there"), best.node());
            }
        }
        for disk in &disks {
            let own = format!("/dev/own/{}", disk.name());
            assert_eq!(std::fs::canonicalize(&own).expect("is there"), disk.node());
        }
        live.stop();
    });
}
