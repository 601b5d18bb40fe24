//! Bad input from every side: uevents, records, control clients, programs, rule files, file systems. Each time the
//! daemon says so, handles the other events, and keeps neither descriptors nor children.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/live.rs"]
mod live;

use live::{Live, eventually, fresh_uuid, in_cell, ip, record, write_uevent};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

/// Adds an interface, waits until it is announced with the property that the rules set, removes it.
fn still_works(live: &mut Live) {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("ok{number}");
    ip(&format!("link add {name} type veth peer name p{name}"));
    let add = live.announced("add", &format!("/devices/virtual/net/{name}"));
    assert_eq!(add.get("FINE"), "1");
    ip(&format!("link del {name}"));
    live.announced("remove", &format!("/devices/virtual/net/{name}"));
    assert!(live.alive(), "{}", live::log());
    let log = live::log();
    assert!(!log.contains("panicked"), "{log}");
}

const FINE: &str = "ENV{FINE}=\"1\"\n";

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

fn children(pid: u32) -> Vec<String> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace()
        .filter_map(|child| {
            let line = std::fs::read(format!("/proc/{child}/cmdline")).ok()?;
            Some(String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned())
        })
        .filter(|line| !line.is_empty() && !line.contains("mudev-helper"))
        .collect()
}

/// Sends a datagram to a group of the uevent protocol, as user space may with CAP_NET_ADMIN.
fn forge(group: u32, datagram: &[u8]) {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    let fd = cell::check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_KOBJECT_UEVENT) });
    let socket = unsafe { OwnedFd::from_raw_fd(fd.expect("a socket")) };
    let mut to: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    to.nl_family = libc::AF_NETLINK as u16;
    to.nl_groups = group;
    let length = size_of_val(&to) as libc::socklen_t;
    let address = (&raw const to).cast();
    unsafe { libc::sendto(socket.as_raw_fd(), datagram.as_ptr().cast(), datagram.len(), 0, address, length) };
}

#[test]
fn an_event_whose_helper_cannot_be_started_goes_on() {
    in_cell(|| {
        let mut live = Live::start("KERNEL==\"h0\", ACTION==\"change\", ATTR{ifalias}=\"x\"\n");
        ip("link add h0 type veth peer name h1");
        let _ = live.settled();
        live::limit_descriptors(live.pid(), Some(1));
        let uuid = fresh_uuid();
        write_uevent("/sys/class/net/h0", &format!("change {uuid}"));
        live.announced_that("the event without a helper", |m| m.get("SYNTH_UUID") == uuid);
        assert!(live::log().contains("Cannot start a helper"), "{}", live::log());
        live::limit_descriptors(live.pid(), None);
        live.stop();
    });
}

#[test]
fn rules_stay_while_there_is_no_descriptor_to_read_files_with() {
    in_cell(|| {
        let mut live = Live::start(FINE);
        live::limit_descriptors(live.pid(), Some(0));
        unsafe { libc::kill(live.pid() as i32, libc::SIGHUP) };
        eventually("the rules are looked for", || live::log().contains("Too many open files"));
        live::limit_descriptors(live.pid(), None);
        still_works(&mut live);
        live.stop();
    });
}

#[test]
fn a_helper_that_has_ended_is_reaped_though_nothing_happens() {
    in_cell(|| {
        let mut live = Live::start("SUBSYSTEM==\"net\", ACTION==\"add\", ATTR{ifalias}=\"x\"\n");
        ip("link add h0 type veth peer name h1");
        let _ = live.settled();
        // There was a helper: nobody else writes this. It may have ended by now.
        assert_eq!(std::fs::read_to_string("/sys/class/net/h0/ifalias").expect("an attribute").trim(), "x");
        // Nothing but the end of its idle time wakes the daemon up. What has ended and was not reaped is listed too.
        let list = format!("/proc/{0}/task/{0}/children", live.pid());
        let is_zombie = |pid: &str| {
            std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
        };
        // The one that sends requests for links stays.
        eventually("no helper but one and no zombie is left", || {
            let processes = std::fs::read_to_string(&list).expect("a list");
            processes.split_whitespace().count() <= 1 && !processes.split_whitespace().any(is_zombie)
        });
        live.stop();
    });
}

#[test]
fn forged_uevents_are_ignored() {
    in_cell(|| {
        let mut live = Live::start(FINE);
        let body = "ACTION=add\0DEVPATH=/devices/virtual/net/forged\0SUBSYSTEM=net\0SEQNUM=99999999\0IFINDEX=4711\0INTERFACE=forged\0";
        let kernel = format!("add@/devices/virtual/net/forged\0{body}");
        let mut libudev = b"libudev\0\xfe\xed\xca\xfe".to_vec();
        for word in [40u32, 40, body.len() as u32, 0, 0, 0, 0] {
            libudev.extend_from_slice(&word.to_ne_bytes());
        }
        libudev.extend_from_slice(body.as_bytes());
        for _ in 0..50 {
            forge(1, kernel.as_bytes());
            forge(1, &libudev);
            forge(1, b"");
            forge(1, &[0xff; 20_000]);
            forge(1, &kernel.as_bytes()[..30]);
        }
        still_works(&mut live);
        assert_eq!(record("n4711"), "");
        live.stop();
        // A flood of them does not become one of the log.
        let log = live::log();
        let lines = log.lines().filter(|line| line.contains("Event refused")).count();
        assert!((1..=20).contains(&lines), "{log}");
        assert!(log.contains(" more lines about refused events left out"), "{log}");
    });
}

#[test]
fn control_clients_that_talk_nonsense_are_dropped() {
    in_cell(|| {
        let mut live = Live::start(FINE);
        still_works(&mut live);
        let before = descriptors(live.pid());
        let connect = || {
            let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
            let fd = cell::check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) }).expect("a socket");
            let socket = unsafe { OwnedFd::from_raw_fd(fd) };
            let mut to: libc::sockaddr_un = unsafe { std::mem::zeroed() };
            to.sun_family = libc::AF_UNIX as u16;
            for (slot, byte) in to.sun_path.iter_mut().zip(b"/run/udev/control") {
                *slot = *byte as libc::c_char;
            }
            let length = (2 + "/run/udev/control".len()) as libc::socklen_t;
            cell::check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const to).cast(), length) })
                .expect("connects");
            socket
        };
        let send = |socket: &OwnedFd, bytes: &[u8]| unsafe {
            libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL)
        };
        let mut valid = vec![0u8; 280];
        valid[..16].copy_from_slice(b"udev-252\0\0\0\0\0\0\0\0");
        for size in [1, 15, 16, 279, 281, 5000] {
            send(&connect(), &vec![0x5a; size]);
        }
        // The magic right, the type absurd.
        valid[16..20].copy_from_slice(&0xdead_beef_u32.to_be_bytes());
        valid[20..24].copy_from_slice(&0x7fff_ffff_u32.to_ne_bytes());
        send(&connect(), &valid);
        // Clients that say nothing, many at once.
        let silent: Vec<OwnedFd> = (0..50).map(|_| connect()).collect();
        still_works(&mut live);
        drop(silent);
        let pid = live.pid();
        eventually("the descriptors of the clients are closed", || descriptors(pid) <= before + 2);
        live.stop();
    });
}

#[test]
fn programs_that_misbehave_harm_their_own_event_only() {
    in_cell(|| {
        let rules = "\
            KERNEL==\"missing0\", PROGRAM!=\"/none/such\", ENV{R}=\"none\"\n\
            KERNEL==\"flood0\", PROGRAM==\"/bin/sh -c 'yes | head -c 10000000'\", ENV{R}=\"flooded\"\n\
            KERNEL==\"fork0\", PROGRAM==\"/bin/sh -c 'sleep 60 & echo forked'\", ENV{R}=\"%c\"\n\
            KERNEL==\"stubborn0\", PROGRAM!=\"/bin/sh -c 'trap : TERM INT; while :; do sleep 1; done'\", ENV{R}=\"killed\"\n\
            KERNEL==\"hang0\", IMPORT{program}!=\"/bin/sleep 1000\", ENV{R}=\"hung\"\n\
            KERNEL==\"run0\", RUN+=\"/bin/sleep 1000\", RUN+=\"/none/such\"\n\
            ENV{FINE}=\"1\"\n";
        let mut live = Live::start_with(rules, |c| {
            c.arg("--event-timeout=2");
        });
        still_works(&mut live);
        let before = descriptors(live.pid());
        let names = ["missing0", "flood0", "fork0", "stubborn0", "hang0", "run0"];
        // A listener of its own: the others look for what they wait for, and drop the rest.
        let mut watcher = cell::Monitor::join(cell::Group::Udev).expect("listens");
        for name in names {
            ip(&format!("link add {name} type veth peer name p{name}"));
        }
        still_works(&mut live);
        // What becomes of them: those that ended in time have their result, the others fail or go on without.
        let mut left: std::collections::HashSet<&str> = names.into();
        let mut results = std::collections::HashMap::new();
        let all = watcher.wait_for(live::LIMIT, |m| {
            if m.get("ACTION") == "add" && left.remove(m.get("INTERFACE")) {
                results.insert(m.get("INTERFACE").to_owned(), m.get("R").to_owned());
            }
            left.is_empty()
        });
        assert!(all.is_some(), "not all were announced, only {results:?}\n{}", live::log());
        assert_eq!(results["missing0"], "none");
        assert_eq!(results["fork0"], "forked");
        still_works(&mut live);
        let pid = live.pid();
        eventually("no program is left", || children(pid).is_empty());
        eventually("no descriptor is left", || descriptors(pid) <= before + 2);
        live.stop();
    });
}

#[test]
fn a_full_or_read_only_database_is_survived() {
    in_cell(|| {
        std::fs::create_dir_all("/run/udev/data").expect("makes the folder");
        cell::mount("none", "/run/udev/data", "tmpfs", 0, "size=64k").expect("a small file system");
        std::fs::write("/run/udev/data/filler", vec![0; 64 << 10]).expect("fills it");
        let mut live = Live::start(FINE);
        ip("link add full0 type veth peer name full1");
        let add = live.announced("add", "/devices/virtual/net/full0");
        assert!(!record(&format!("n{}", add.get("IFINDEX"))).contains("FINE"), "the folder was not full");
        let log = live::log();
        assert!(!log.trim().is_empty(), "nobody was told");
        std::fs::remove_file("/run/udev/data/filler").expect("room again");
        still_works(&mut live);
        cell::mount("none", "/run/udev/data", "", libc::MS_REMOUNT | libc::MS_RDONLY, "").expect("read-only");
        ip("link add ro0 type veth peer name ro1");
        live.announced("add", "/devices/virtual/net/ro0");
        cell::mount("none", "/run/udev/data", "", libc::MS_REMOUNT, "size=1m").expect("writable");
        let uuid = fresh_uuid();
        write_uevent("/sys/class/net/ro0", &format!("change {uuid}"));
        let change = live.announced_that("change", |m| m.get("SYNTH_UUID") == uuid);
        assert!(record(&format!("n{}", change.get("IFINDEX"))).contains("E:FINE=1"));
        still_works(&mut live);
        live.stop();
    });
}

#[test]
fn garbage_records_are_replaced() {
    in_cell(|| {
        let rules = "IMPORT{db}=\"X\"\nENV{FINE}=\"1\"\n";
        let mut live = Live::start(rules);
        ip("link add r0 type veth peer name r1");
        live.announced("add", "/devices/virtual/net/r0");
        let id = format!("n{}", live::ifindex("r0"));
        let garbage: [&[u8]; 5] = [
            b"",
            b"\0\0\0\xff\xfe",
            b"E:\nE:=\nE:X\nG:\nS:\nI:abc\nL:99999999999999\nV:x",
            &[b'A'; 100_000],
            b"E:X=1\nS:../../etc\nG:a/b\n",
        ];
        for bytes in garbage {
            std::fs::write(format!("/run/udev/data/{id}"), bytes).expect("writes garbage");
            let uuid = fresh_uuid();
            write_uevent("/sys/class/net/r0", &format!("change {uuid}"));
            live.announced_that("change", |m| m.get("SYNTH_UUID") == uuid);
            let text = record(&id);
            assert!(text.contains("E:FINE=1\n") && !text.contains("AAAA") && !text.contains("a/b"), "{text}");
        }
        still_works(&mut live);
        live.stop();
    });
}

#[test]
fn rule_files_of_every_bad_kind_do_not_stop_the_good_ones() {
    in_cell(|| {
        let folder = Path::new("/run/udev/rules.d");
        let bytes: Vec<u8> = (0..40_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        std::fs::write(folder.join("01-binary.rules"), bytes).expect("writes");
        std::fs::write(folder.join("02-long.rules"), "KERNEL==\"".to_owned() + &"x".repeat(20_000) + "\"\n")
            .expect("writes");
        let endless = "ENV{A}=\"1\", \\\n".repeat(5000);
        std::fs::write(folder.join("03-endless.rules"), endless).expect("writes");
        std::os::unix::fs::symlink("/dev/zero", folder.join("04-zero.rules")).expect("links");
        std::os::unix::fs::symlink("05-loop.rules", folder.join("05-loop.rules")).expect("links");
        std::fs::create_dir(folder.join("06-folder.rules")).expect("makes");
        std::fs::write(folder.join("07-wrong.rules"), "KERNEL=\"x\"\nFOO==\"1\"\nGOTO=\"nowhere\"\nRUN{x}+=\"y\"\nENV{A=\"1\"\nATTR==\"\"\nIMPORT{builtin}=\"none\"\n\"\"\"\n").expect("writes");
        std::fs::write(folder.join("08-names.rules"), b"SYMLINK+=\"../../etc/passwd a\xffb \xc3\xa4\", TAG+=\"../x\", ENV{..}=\"1\", NAME=\"../../x\"\n").expect("writes");
        let mut live = Live::start(FINE);
        still_works(&mut live);
        live.stop();
    });
}

#[test]
fn ten_thousand_tags() {
    in_cell(|| {
        let mut rules: String =
            (0..10_000).map(|n| format!("KERNEL==\"null\", TAG+=\"many{n}\"\n")).collect();
        rules +=
            "KERNEL==\"null\", TAGS==\"many0\", TAGS==\"many4711\", TAGS==\"many9999\", ENV{ALL}=\"1\"\n";
        rules += FINE;
        let mut live = Live::start(&rules);
        let uuid = fresh_uuid();
        write_uevent("/sys/devices/virtual/mem/null", &format!("change {uuid}"));
        // The announcement is too large for every receiver; the record tells.
        eventually("the record", || record("c1:3").contains("E:ALL=1"));
        assert_eq!(record("c1:3").lines().filter(|l| l.starts_with("G:")).count(), 10_000);
        assert!(Path::new("/run/udev/tags/many9999/c1:3").exists());
        still_works(&mut live);
        live.stop();
    });
}

/// With the buffer that a socket has by itself the kernel refuses 212 KiB.
#[test]
fn a_long_event_is_announced_and_one_that_is_too_long_ends_all_the_same() {
    in_cell(|| {
        let rules = "KERNEL==\"full\", IMPORT{file}=\"/run/import\"\n".to_owned() + FINE;
        let mut live = Live::start(&rules);
        let mut change = |lines: usize| {
            let text: String = (0..lines).map(|n| format!("P{n}={}\n", "x".repeat(1000))).collect();
            std::fs::write("/run/import", text).expect("writes what is imported");
            let uuid = fresh_uuid();
            write_uevent("/sys/devices/virtual/mem/full", &format!("change {uuid}"));
            live::run(live::tool_path().to_str().expect("a path"), &["settle", "--timeout=15"]);
            let mut found = None;
            while let Some(message) = live.udev.try_next() {
                found = found.or(Some(message).filter(|message| message.get("SYNTH_UUID") == uuid));
            }
            (found.map(|message| message.get(&format!("P{}", lines - 1)).len()), record("c1:7").len())
        };
        assert_eq!(change(400).0, Some(1000));
        let (announced, recorded) = change(3000);
        assert_eq!((announced, recorded > 3_000_000), (None, true));
        assert!(live::log().contains("more than one message may have"), "{}", live::log());
        still_works(&mut live);
        live.stop();
    });
}
