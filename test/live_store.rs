//! /run/udev of a running daemon when others remove what is in it, and when there is no room.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/live.rs"]
mod live;
#[path = "support/loops.rs"]
mod loops;
#[path = "support/store.rs"]
mod store;

use live::{Live, eventually, fresh_uuid, in_cell, ip, record, run, write_uevent};
use loops::Loop;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

fn settle() {
    let status = Command::new(live::daemon_path())
        .arg0("mudevadm")
        .args(["settle", "--timeout=20"])
        .status()
        .expect("the tool runs");
    assert!(status.success(), "{status}\n{}", live::log());
}

/// A `change` of a device, which must be announced without an error.
fn change(live: &mut Live, syspath: &str) {
    let uuid = fresh_uuid();
    write_uevent(syspath, &format!("change {uuid}"));
    let message = live.announced_that("change", |m| m.get("SYNTH_UUID") == uuid);
    assert_eq!(message.get("UDEV_WORKER_FAILED"), "", "{}", live::log());
}

/// What is there but for the disks of other tests.
fn state_of(disks: &[Loop]) -> BTreeMap<String, String> {
    let ours: Vec<String> = disks.iter().map(|disk| disk.id()[1..].to_owned()).collect();
    let mut state = store::state();
    state.retain(|path, _| !path.contains("7:") || ours.iter().any(|number| path.ends_with(number)));
    state
}

/// Leaves only network interfaces and these disks for enumeration: where all devices are triggered, other daemons
/// on this machine are not troubled.
fn hide_other_devices(disks: &[Loop]) {
    let script = "mkdir -p /run/net; mount --bind /sys/class/net /run/net; mount -t tmpfs none /sys/class; \
        mkdir /sys/class/net /sys/class/block; mount --bind /run/net /sys/class/net; mount -t tmpfs none /sys/bus";
    run("sh", &["-ec", script]);
    for disk in disks {
        let link = format!("/sys/class/block/{}", disk.name());
        std::os::unix::fs::symlink(format!("../..{}", disk.devpath()), link).expect("a symlink");
    }
}

/// Two disks claim the same symlinks with different priorities. Those of other tests do not.
fn rules_for([low, high]: &[Loop; 2]) -> String {
    let (low, high) = (low.name(), high.name());
    format!(
        "KERNEL!=\"{low}|{high}\", GOTO=\"end\"\nENV{{SEEN}}=\"1\", TAG+=\"all\", TAG+=\"disks\", \
         SYMLINK+=\"shared/one two\", OPTIONS+=\"watch\"\nKERNEL==\"{high}\", OPTIONS+=\"link_priority=7\"\n\
         LABEL=\"end\"\n"
    )
}

#[test]
fn what_others_removed_is_back_after_the_next_events() {
    in_cell(|| {
        let disks = [Loop::add().expect("a loop device"), Loop::add().expect("a loop device")];
        let mut live = Live::start(&rules_for(&disks));
        hide_other_devices(&disks);
        disks.iter().for_each(|disk| change(&mut live, &disk.syspath()));
        settle();
        let before = state_of(&disks);
        let differs = || store::difference(&before, &state_of(&disks));
        let entries = before.keys().filter(|path| path.starts_with("/run/udev/links/two/")).count();
        assert_eq!(entries, 2, "{before:?}");
        let tool = live::tool_path().display().to_string();
        for script in [
            &format!("{tool} info --cleanup-db"),
            "rm -r /run/udev/links/*",
            "rm -r /run/udev/links",
            "find /run/udev/links -type l -delete",
            "rm -r /run/udev/tags/*",
            "rm -r /run/udev/tags",
            "rm -r /run/udev/tags/all",
            "rm /run/udev/tags/all/*",
            "mv /run/udev/tags/all /run/udev/tags.old; rm -r /run/udev/tags.old",
            "mv /run/udev/tags /run/tags.old",
            "rm /run/udev/data/*",
            "rm -r /run/udev/data",
            "mv /run/udev/data /run/data.old",
            "rm -r /run/udev/watch",
            "rm -r /run/udev/links /run/udev/tags /run/udev/data",
            "rm -r /dev/shared",
        ] {
            run("sh", &["-c", script]);
            // The machine's own disks show nothing: their rules are not these.
            for disk in &disks {
                change(&mut live, &disk.syspath());
            }
            settle();
            eventually(&format!("all is back after {script}: {:?}", differs()), || differs().is_empty());
        }
        live.stop();
    });
}

#[test]
fn a_folder_that_was_renamed_away_is_noticed_without_a_failed_event() {
    in_cell(|| {
        let mut live = Live::start("ENV{FINE}=\"1\", TAG+=\"all\"\n");
        let disk = Loop::add().expect("a loop device");
        live.announced("add", &disk.devpath());
        hide_other_devices(std::slice::from_ref(&disk));
        settle();
        // What somebody else has put in its place is used.
        for script in
            ["mv /run/udev /run/away", "rm -r /run/away; mv /run/udev /run/away && mkdir -p /run/udev/data"]
        {
            run("sh", &["-c", script]);
            change(&mut live, &disk.syspath());
            assert!(record(&disk.id()).contains("E:FINE=1"), "{script}");
            let tag = format!("/run/udev/tags/all/{}", disk.id());
            assert!(Path::new(&tag).exists(), "{script}");
            eventually("the sockets are there", || Path::new("/run/udev/control").exists());
            settle();
            eventually("the queue is idle", || !Path::new("/run/udev/queue").exists());
            assert!(live.alive());
        }
        live.stop();
    });
}

/// Gives /run/udev a file system of its own.
fn small_run_folder() {
    cell::mount("none", "/run/udev", "tmpfs", 0, "size=1m,mode=755").expect("a small file system");
    std::fs::create_dir_all("/run/udev/rules.d").expect("a folder");
}

/// Fills the file system of a folder and returns what did it.
fn fill(folder: &str) -> String {
    let filler = format!("{folder}/filler");
    std::fs::write(&filler, vec![0; 16 << 20]).expect_err("it becomes full");
    filler
}

#[test]
fn what_a_full_run_had_no_room_for_is_done_when_there_is_room_without_a_trigger() {
    in_cell(|| {
        small_run_folder();
        let rules = "SUBSYSTEM==\"net\", ENV{FINE}=\"%k\", TAG+=\"all\", RUN+=\"/bin/sh -c 'echo $name >>/run/ran'\"\n\
            SUBSYSTEM==\"block\", ENV{FINE}=\"1\", TAG+=\"all\", SYMLINK+=\"by-test/$kernel\", OPTIONS+=\"watch\"\n";
        let mut live = Live::start(rules);
        ip("link add early0 type veth peer name early1");
        live.announced("add", "/devices/virtual/net/early1");
        settle();
        let filler = fill("/run/udev");
        for n in 0..20 {
            ip(&format!("link add a{n} type veth peer name b{n}"));
        }
        let disk = Loop::add().expect("a loop device");
        let failed = live.announced_that("the disk", |m| m.title() == format!("add {}", disk.devpath()));
        assert_eq!(failed.get("UDEV_WORKER_ERRNO_NAME"), "ENOSPC", "it was not full");
        write_uevent("/sys/class/net/early0", "change");
        // These are gone before there is room.
        for n in 10..20 {
            ip(&format!("link del a{n}"));
        }
        ip("link add late0 type veth peer name late1");
        ip("link del late0");
        live.settled();
        std::fs::remove_file(filler).expect("makes room");
        let names: Vec<String> = (0..10).flat_map(|n| [format!("a{n}"), format!("b{n}")]).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).chain(["early0", "early1"]).collect();
        for name in &names {
            let id = format!("n{}", live::ifindex(name));
            eventually(&format!("the record of {name}"), || {
                record(&id).contains(&format!("E:FINE={name}\n"))
            });
            eventually(&format!("the tag of {name}"), || {
                Path::new(&format!("/run/udev/tags/all/{id}")).exists()
            });
        }
        eventually("the disk's symlink", || Path::new(&format!("/dev/by-test/{}", disk.name())).exists());
        eventually("the disk's record", || record(&disk.id()).contains("E:FINE=1\n"));
        settle();
        let state = store::state();
        let is_lo = |path: &str| path.ends_with("/n1");
        let count =
            |folder: &str| state.keys().filter(|path| path.starts_with(folder) && !is_lo(path)).count();
        assert_eq!(count("/run/udev/data/n"), names.len(), "{state:?}");
        assert_eq!(count("/run/udev/tags/all/n"), names.len(), "{state:?}");
        assert!(!state.keys().any(|path| path.contains("/.#")), "{state:?}");
        // The programs of events that failed had not run.
        let ran = std::fs::read_to_string("/run/ran").expect("programs ran");
        for name in names.iter().filter(|name| !name.starts_with("early")) {
            assert_eq!(ran.lines().filter(|line| line == name).count(), 1, "{name} in\n{ran}");
        }
        live.stop();
    });
}

#[test]
fn what_failed_on_a_read_only_run_is_done_when_it_is_writable() {
    in_cell(|| {
        small_run_folder();
        let mut live = Live::start("SUBSYSTEM==\"net\", ENV{FINE}=\"1\", TAG+=\"all\"\n");
        ip("link add old0 type veth peer name old1");
        live.announced("add", "/devices/virtual/net/old1");
        settle();
        cell::mount("none", "/run/udev", "", libc::MS_REMOUNT | libc::MS_RDONLY, "").expect("read-only");
        ip("link add new0 type veth peer name new1");
        ip("link del old0");
        live.settled();
        cell::mount("none", "/run/udev", "", libc::MS_REMOUNT, "").expect("writable");
        for name in ["new0", "new1"] {
            let id = format!("n{}", live::ifindex(name));
            eventually(&format!("the record of {name}"), || record(&id).contains("E:FINE=1\n"));
        }
        let count = |folder: &str| {
            let names = std::fs::read_dir(folder).expect("a folder").flatten();
            let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
            names.filter(|name| name.starts_with('n') && name != "n1").count()
        };
        eventually("what is gone has left nothing", || {
            (count("/run/udev/data"), count("/run/udev/tags/all")) == (2, 2)
        });
        eventually("the queue is idle", || !Path::new("/run/udev/queue").exists());
        live.stop();
    });
}

#[test]
fn what_failed_without_descriptors_is_done_when_there_are_some() {
    in_cell(|| {
        let mut live = Live::start("SUBSYSTEM==\"net\", ENV{FINE}=\"1\", TAG+=\"all\"\n");
        ip("link add old0 type veth peer name old1");
        live.announced("add", "/devices/virtual/net/old1");
        settle();
        live::limit_descriptors(live.pid(), Some(0));
        ip("link add new0 type veth peer name new1");
        let failed = live.announced("add", "/devices/virtual/net/new1");
        assert_eq!(failed.get("UDEV_WORKER_ERRNO_NAME"), "EMFILE");
        live::limit_descriptors(live.pid(), None);
        for name in ["new0", "new1"] {
            let id = format!("n{}", live::ifindex(name));
            eventually(&format!("the record of {name}"), || record(&id).contains("E:FINE=1\n"));
            eventually(&format!("the tag of {name}"), || {
                Path::new(&format!("/run/udev/tags/all/{id}")).exists()
            });
        }
        live.stop();
    });
}

#[test]
fn an_event_that_had_to_do_without_its_program_for_want_of_descriptors_is_done_again() {
    in_cell(|| {
        let rules = "SUBSYSTEM==\"net\", PROGRAM==\"/bin/echo told\", ENV{OUT}=\"%c\"\n";
        let mut live = Live::start(rules);
        // A program takes at least four at once.
        live::limit_descriptors(live.pid(), Some(1));
        ip("link add new0 type veth peer name new1");
        let done = live.announced("add", "/devices/virtual/net/new1");
        assert_eq!((done.get("UDEV_WORKER_FAILED"), done.get("OUT")), ("", ""));
        live::limit_descriptors(live.pid(), None);
        for name in ["new0", "new1"] {
            let id = format!("n{}", live::ifindex(name));
            eventually(&format!("the program of {name}"), || record(&id).contains("E:OUT=told\n"));
        }
        live.stop();
    });
}

/// Debian's daemon fails the event, and so did ours.
#[test]
fn a_directory_in_place_of_a_record_fails_no_event() {
    in_cell(|| {
        let mut live = Live::start("ENV{SEEN}=\"1\"\n");
        ip("link add d0 type veth peer name d1");
        settle();
        for (name, content) in [("d0", ""), ("d1", "/x")] {
            let id = format!("n{}", live::ifindex(name));
            let path = format!("/run/udev/data/{id}");
            std::fs::remove_file(&path).expect("a record");
            std::fs::create_dir_all(format!("{path}{content}")).expect("a directory");
            change(&mut live, &format!("/sys/class/net/{name}"));
            settle();
            assert!(record(&id).contains("E:SEEN=1"), "{}", live::log());
        }
        assert!(live::log().contains("A directory that is not empty was in place of the record"));
        live.stop();
    });
}

/// Nothing fails then: what the daemon holds open can still be written, and nobody finds it.
#[test]
fn what_is_mounted_over_the_folder_or_detached_is_noticed() {
    in_cell(|| {
        run(
            "sh",
            &["-ec", "mkdir -p /run/udev /run/rules; mount -t tmpfs none /run/udev; mkdir /run/udev/rules.d"],
        );
        std::fs::write("/run/rules/1.rules", "ENV{SEEN}=\"1\", TAG+=\"all\"\n").expect("rules");
        let mut live = Live::start_with("", |daemon| _ = daemon.arg("--rules-dir=/run/rules"));
        let disk = Loop::add().expect("a loop device");
        live.announced("add", &disk.devpath());
        hide_other_devices(std::slice::from_ref(&disk));
        settle();
        let tag = format!("/run/udev/tags/all/{}", disk.id());
        for script in [
            "umount -l /run/udev",
            "mount -t tmpfs none /run/udev",
            "umount -l /run/udev; rm /run/udev/data/*",
            "mount -t tmpfs none /run/udev/data",
            "mount -t tmpfs none /run/udev/tags",
            "mkdir /run/other; mount --bind /run/other /run/udev",
        ] {
            run("sh", &["-ec", script]);
            // No event but those that the daemon causes.
            eventually(&format!("all is back after {script}\n{}", live::log()), || {
                record(&disk.id()).contains("E:SEEN=1") && Path::new(&tag).exists()
            });
            settle();
            change(&mut live, &disk.syspath());
        }
        live.stop();
    });
}

/// Ticks of CPU that a process has used.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the daemon runs");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
    fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum()
}

#[test]
fn a_daemon_that_is_to_end_does_not_spin_for_what_has_no_room() {
    in_cell(|| {
        small_run_folder();
        // How often it has waited 20 ms, one byte each.
        let program = "until [ -e /run/go ]; do sleep 0.02; printf x >>/run/waited; done";
        let mut live = Live::start(&format!(
            "SUBSYSTEM==\"net\", KERNEL==\"slow0\", RUN+=\"/bin/sh -c '{program}'\"\n\
             SUBSYSTEM==\"net\", KERNEL==\"a*\", ENV{{FINE}}=\"1\"\n"
        ));
        let waited = || std::fs::metadata("/run/waited").map_or(0, |file| file.len());
        ip("link add slow0 type veth peer name slow1");
        eventually("the program waits", || waited() > 0);
        let filler = fill("/run/udev");
        ip("link add a0 type veth peer name a1");
        let failed = live.announced("add", "/devices/virtual/net/a0");
        assert_eq!(failed.get("UDEV_WORKER_ERRNO_NAME"), "ENOSPC", "it was not full");
        assert_eq!(unsafe { libc::kill(live.pid() as i32, libc::SIGTERM) }, 0);
        // By then the next look for room is due, had it not been told to end.
        let (before, began) = (ticks(live.pid()), waited());
        eventually("time goes on", || waited() >= began + 150);
        let used = ticks(live.pid()) - before;
        assert!(live.alive(), "it does not wait for the program");
        assert!(used < 50, "{used} ticks while it waited");
        std::fs::remove_file(filler).expect("makes room");
        std::fs::write("/run/go", "").expect("lets the program end");
        live.stop();
    });
}
