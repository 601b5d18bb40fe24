//! Nothing that waits may delay what does not depend on it: while a program, a RUN command, a helper, a locked
//! disk or a busy RTNL holds one event up, the events of another device go through at once.
//!
//! `make bench` measures the latency under load; here the bound is wide enough for a busy machine and a debug
//! build, and far below the delays, which take seconds.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/live.rs"]
mod live;
#[path = "support/loops.rs"]
mod loops;

use live::{Live, fresh_uuid, in_cell, ip, unrelated_events_go_through, write_uevent};
use mudev::daemon::sources::status::Status;
use mudev::sys::process::wait_readable;
use mudev::sys::unix;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn while_a_program_runs() {
    in_cell(|| {
        let mut live = Live::start("KERNEL==\"w0\", PROGRAM==\"/bin/sleep 3\", ENV{SLEPT}=\"1\"\n");
        ip("link add w0 type veth peer name w1");
        unrelated_events_go_through(&mut live, "PROGRAM sleeps");
        let add = live.announced("add", "/devices/virtual/net/w0");
        assert_eq!(add.get("SLEPT"), "1");
        live.stop();
    });
}

#[test]
fn while_an_import_and_a_run_command_run() {
    in_cell(|| {
        let rules = "KERNEL==\"w0\", IMPORT{program}=\"/bin/sh -c 'sleep 2; echo A=1'\"\n\
            KERNEL==\"w2\", RUN+=\"/bin/sleep 2\"\n";
        let mut live = Live::start(rules);
        ip("link add w0 type veth peer name w1");
        ip("link add w2 type veth peer name w3");
        unrelated_events_go_through(&mut live, "IMPORT and RUN sleep");
        // Both wait at the same time; the order of their ends is free.
        let mut left = std::collections::HashSet::from(["w0", "w2"]);
        live.announced_that("both events", |m| {
            if m.get("INTERFACE") == "w0" {
                assert_eq!(m.get("A"), "1");
            }
            left.remove(m.get("INTERFACE"));
            left.is_empty()
        });
        live.stop();
    });
}

/// A hundred thousand lines to import, and hundreds of comparisons that go back as far as they can: the rules of one
/// event compute for seconds, and pause in between.
#[test]
fn while_rules_compute() {
    in_cell(|| {
        let lines: String = (0..100_000).map(|n| format!("P{}={n}\n", n % 500)).collect();
        let long = format!("LONG={}\n", "a".repeat(16_000));
        std::fs::write("/run/many-lines", lines + &long).expect("writes the file");
        let compare =
            |n| format!("KERNEL==\"w0\", ENV{{LONG}}==\"*{}[ab]c{n}\", ENV{{HIT}}=\"1\"\n", "a".repeat(1000));
        let rules = "KERNEL==\"w0\", IMPORT{file}==\"/run/many-lines\", ENV{FIRST}=\"1\"\n".to_owned()
            + &(0..1000).map(compare).collect::<String>()
            + "KERNEL==\"w0\", ENV{LONG}=\"\", ENV{LAST}=\"$env{P499}\"\n";
        let mut live = Live::start(&rules);
        ip("link add w0 type veth peer name w1");
        live.announced("add", "/devices/virtual/net/w0");
        let uuid = fresh_uuid();
        write_uevent("/sys/class/net/w0", &format!("change {uuid}"));
        unrelated_events_go_through(&mut live, "rules compute");
        let late = live.announced_that("the event whose rules compute", |m| m.get("SYNTH_UUID") == uuid);
        assert_eq!((late.get("FIRST"), late.get("LAST"), late.get("HIT")), ("1", "99999", ""));
        live.stop();
    });
}

/// The answer of the daemon to a client of its status.
fn status() -> Status {
    let client = cell::connect(Path::new("/run/udev/mudev.status")).expect("the daemon listens");
    unix::send(client.as_fd(), b"status").expect("it is taken");
    let (mut json, mut buffer) = (Vec::new(), vec![0; 65536]);
    loop {
        assert!(wait_readable(client.as_fd(), live::LIMIT).expect("poll"), "no answer");
        match unix::receive(client.as_fd(), &mut buffer).expect("an answer").len {
            0 => return serde_json::from_slice(&json).expect("a status"),
            n => json.extend_from_slice(&buffer[..n]),
        }
    }
}

/// Whether a client is told that `action` of a device is in this phase, and then another event goes through before the
/// event of the device ends. Should we have come too late for that, the same is tried again.
fn goes_through_in(live: &mut Live, phase: &str, action: &str, name: &str) {
    let device = format!("/devices/virtual/mem/{name}");
    let is_in_phase = || status().jobs.iter().any(|job| job.devpath == device && job.phase == phase);
    for _ in 0..100 {
        let (own, other) = (fresh_uuid(), fresh_uuid());
        write_uevent(&format!("/sys{device}"), &format!("{action} {own}"));
        let (mut is_met, mut has_ended) = (false, false);
        while !is_met && !has_ended {
            is_met = is_in_phase();
            while let Some(message) = live.udev.try_next() {
                has_ended |= message.get("SYNTH_UUID") == own;
            }
        }
        write_uevent("/sys/devices/virtual/mem/full", &format!("change {other}"));
        let mut first = String::new();
        live.announced_that("an event", |m| {
            first = m.get("SYNTH_UUID").to_owned();
            [&own, &other].contains(&&first)
        });
        if !has_ended {
            let second = if first == other { &own } else { &other };
            live.announced_that("the later event", |m| m.get("SYNTH_UUID") == *second);
        }
        if is_met && !has_ended && first == other {
            return;
        }
        if action == "remove" {
            write_uevent(&format!("/sys{device}"), &format!("add {}", fresh_uuid()));
        }
    }
    panic!("{action} of {name}: nobody was let in while it was in {phase:?}");
}

fn count(folder: &str) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

/// Thousands of symlinks and tags of one device are made and removed in portions. Events of /dev/null, of which other
/// tests make many at the same time, have none.
#[test]
fn while_one_event_has_thousands_of_effects() {
    const TAGS: usize = 20_000;
    const LINKS: usize = 5_000;
    in_cell(|| {
        let tags = (0..TAGS).map(|n| format!("KERNEL==\"random\", TAG+=\"t{n}\"\n"));
        let numbers: Vec<usize> = (0..LINKS).collect();
        let links = numbers.chunks(80).map(|some| {
            let names: Vec<String> = some.iter().map(|n| format!("many/{n}")).collect();
            format!("KERNEL==\"zero\", SYMLINK+=\"{}\"\n", names.join(" "))
        });
        let rules: String = tags.chain(links).collect();
        let mut live = Live::start(&rules);
        goes_through_in(&mut live, "tags", "add", "random");
        goes_through_in(&mut live, "symlinks", "add", "zero");
        let tagged =
            || (0..TAGS).filter(|n| Path::new(&format!("/run/udev/tags/t{n}/c1:8")).exists()).count();
        assert_eq!((tagged(), count("/dev/many"), count("/run/udev/links")), (TAGS, LINKS, LINKS));
        assert_eq!(live::record("c1:8").lines().filter(|line| line.starts_with("G:")).count(), TAGS);
        assert_eq!(live::record("c1:5").lines().filter(|line| line.starts_with("S:")).count(), LINKS);
        goes_through_in(&mut live, "remove record", "remove", "random");
        goes_through_in(&mut live, "symlinks", "remove", "zero");
        assert_eq!((tagged(), count("/dev/many"), count("/run/udev/links")), (0, 0, 0));
        println!("the longest turn took {} us", status().turns.longest_turn_usec);
        live.stop();
    });
}

#[test]
fn while_a_disk_is_locked() {
    in_cell(|| {
        let disk = loops::Loop::add().expect("a loop device");
        let mut live = Live::start("");
        let node = std::fs::File::open(disk.node()).expect("opens the disk");
        assert_eq!(unsafe { libc::flock(node.as_raw_fd(), libc::LOCK_EX) }, 0);
        let uuid = fresh_uuid();
        write_uevent(&disk.syspath(), &format!("change {uuid}"));
        unrelated_events_go_through(&mut live, "a disk is locked");
        drop(node);
        live.announced_that("the locked disk", |m| m.get("SYNTH_UUID") == uuid);
        live.stop();
    });
}

/// The helpers are stopped, as if they hung in a system call.
#[test]
fn while_helpers_hang() {
    in_cell(|| {
        let mut live = Live::start("KERNEL==\"w0\", ATTR{ifalias}=\"$env{SYNTH_ARG_TEXT}\"\n");
        ip("link add w0 type veth peer name w1");
        live.announced("add", "/devices/virtual/net/w0");
        let helpers = live::helpers(live.pid());
        assert!(!helpers.is_empty(), "no helper is there, who wrote?\n{}", live::log());
        helpers.iter().for_each(|&pid| assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0));
        let uuid = fresh_uuid();
        write_uevent("/sys/class/net/w0", &format!("change {uuid} TEXT=late"));
        unrelated_events_go_through(&mut live, "helpers hang");
        let alias = || std::fs::read_to_string("/sys/class/net/w0/ifalias").unwrap_or_default();
        assert_ne!(alias().trim(), "late", "nothing hung");
        helpers.iter().for_each(|&pid| assert_eq!(unsafe { libc::kill(pid, libc::SIGCONT) }, 0));
        live.announced_that("the event that waited", |m| m.get("SYNTH_UUID") == uuid);
        assert_eq!(alias().trim(), "late");
        live.stop();
    });
}

/// RTNL is one lock for all namespaces: threads in a namespace of their own keep it busy, while interfaces
/// of ours come and go, are renamed, written to (through a helper) and asked for attributes that take it.
#[test]
fn while_rtnl_is_busy_and_links_are_unknown() {
    in_cell(|| {
        let rules = "SUBSYSTEM!=\"net\", GOTO=\"end\"\n\
            ACTION==\"add\", ATTR{ifalias}=\"by rule\"\n\
            ENV{SPEED}=\"$attr{speed}\", ENV{DUPLEX}=\"$attr{duplex}\", ENV{IFLINK}=\"$attr{iflink}\"\n\
            IMPORT{builtin}=\"net_driver\"\n\
            ACTION==\"add\", KERNEL==\"old*\", NAME=\"new%n\"\n\
            LABEL=\"end\"\n";
        let mut live = Live::start(rules);
        let busy = AtomicBool::new(true);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let busy = &busy;
                scope.spawn(move || keep_rtnl_busy(busy, thread));
            }
            let links = scope.spawn(|| {
                for n in 0..10 {
                    ip(&format!("link add old{n} type veth peer name peer{n}"));
                    ip(&format!("link add gone{n} type veth peer name gonep{n}"));
                    ip(&format!("link del gone{n}"));
                }
            });
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                unrelated_events_go_through(&mut live, "RTNL is busy");
            }));
            busy.store(false, Ordering::Release);
            links.join().expect("the links are made");
            if let Err(panic) = outcome {
                std::panic::resume_unwind(panic);
            }
        });
        live::eventually("all renames are done", || {
            (0..10).all(|n| std::path::Path::new(&format!("/sys/class/net/new{n}")).exists())
        });
        live.settled();
        for n in 0..10 {
            let alias = std::fs::read_to_string(format!("/sys/class/net/new{n}/ifalias")).unwrap_or_default();
            assert_eq!(alias.trim(), "by rule");
        }
        live.stop();
    });
}

/// How often the loop has gone round, how many rules are in force, and how often a helper was asked for something.
fn turns_rules_and_requests() -> (u64, u64, u64) {
    let text = live::run(live::tool_path().to_str().unwrap(), &["status", "--json=short"]);
    let status: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    (
        number(&status["turns"]["turns"]),
        number(&status["rule_lines"]),
        number(&status["turns"]["helper_requests"]),
    )
}

#[test]
fn while_many_rules_are_compiled() {
    in_cell(|| {
        std::fs::create_dir("/run/rules").expect("a folder");
        let live = Live::start_with("", |daemon| _ = daemon.arg("--rules-dir=/run/rules"));
        let line =
            |n| format!("SUBSYSTEM==\"usb\", ATTR{{id}}==\"{n:x}[0-9]*\", ENV{{A{n}}}=\"$kernel-%n\"\n");
        let text: String = (0..30).map(line).collect();
        (0..600).for_each(|n| std::fs::write(format!("/run/rules/{n}.rules"), &text).expect("a file"));
        let before = turns_rules_and_requests();
        live::run(live::tool_path().to_str().unwrap(), &["control", "--reload"]);
        let after = turns_rules_and_requests();
        assert_eq!((before.1, after.1), (0, 18_000), "who asked for it waited for its end");
        assert!(after.0 - before.0 >= 20, "{before:?} {after:?}");
        // So many are read by a helper.
        std::fs::write("/run/rules/more.rules", line(1)).expect("a file");
        live::run(live::tool_path().to_str().unwrap(), &["control", "--reload"]);
        let last = turns_rules_and_requests();
        assert!(last.1 == after.1 + 1 && last.2 > after.2, "{after:?} {last:?}");
        live.stop();
    });
}

fn keep_rtnl_busy(busy: &AtomicBool, thread: usize) {
    cell::check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).expect("a network namespace");
    while busy.load(Ordering::Acquire) {
        let script: String = (0..20)
            .map(|n| {
                format!("link add x{thread}{n} type veth peer name y{thread}{n}\nlink del x{thread}{n}\n")
            })
            .collect();
        let mut child = std::process::Command::new("ip")
            .args(["-batch", "-"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("starts ip");
        std::io::Write::write_all(child.stdin.as_mut().expect("piped"), script.as_bytes()).expect("ip reads");
        let _ = child.wait();
    }
}
