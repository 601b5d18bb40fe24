//! Programs on a file system that answers late, or never: nobody but their own event waits for them.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/fuse.rs"]
mod fuse;
#[path = "support/live.rs"]
mod live;

use fuse::{File, Fuse, Gate, Step};
use live::{Live, eventually, fresh_uuid, in_cell, ip, unrelated_events_go_through, write_uevent};
use std::path::Path;
use std::time::{Duration, Instant};

const TOOL: &str = "#!/bin/sh\necho told\n";

/// A program each of whose steps may wait at the gate.
fn tool(step: Step, gate: &Gate) -> Fuse {
    let tool = File::program("tool", TOOL).waits(step, gate.clone());
    Fuse::mount(Path::new("/run/slow"), vec![tool]).expect("mounts")
}

/// Processes that the daemon has, by the state that the kernel shows.
fn children(live: &Live, state: char) -> usize {
    let pid = live.pid();
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let has_state = |child: &&str| {
        let status = std::fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
        status.contains(&format!("State:\t{state}"))
    };
    list.split_whitespace().filter(has_state).count()
}

#[test]
fn a_program_that_is_looked_up_opened_or_read_late_delays_only_its_own_event() {
    in_cell(|| {
        let rules = "KERNEL==\"w0\", PROGRAM==\"/run/slow/tool\", ENV{TOOL}=\"%c\"\n\
            KERNEL==\"w2\", IMPORT{program}=\"/run/slow/tool\", RUN+=\"/run/slow/tool\"\n";
        let mut live = Live::start(rules);
        ip("link add w0 type veth peer name w1");
        ip("link add w2 type veth peer name w3");
        live.settled();
        for step in [Step::Lookup, Step::Open, Step::Read] {
            let gate = Gate::closed();
            let slow = tool(step, &gate);
            let uuid = fresh_uuid();
            write_uevent("/sys/class/net/w2", "change");
            write_uevent("/sys/class/net/w0", &format!("change {uuid}"));
            // The kernel may make one request of what both wait for.
            eventually("programs wait", || gate.waiting() > 0);
            unrelated_events_go_through(&mut live, &format!("programs wait for {step:?}"));
            assert!(gate.waiting() > 0, "{step:?}");
            gate.open();
            let change = live.announced_that("the event that waited", |m| m.get("SYNTH_UUID") == uuid);
            assert_eq!(change.get("TOOL"), "told", "{step:?}");
            live.settled();
            drop(slow);
        }
        live.stop();
    });
}

#[test]
fn a_program_that_never_gets_executed_meets_its_deadline_and_is_reaped_when_it_can_be() {
    in_cell(|| {
        let rules = "KERNEL==\"w0\", PROGRAM==\"/run/slow/tool\", ENV{TOOL}=\"%c\"\n\
            KERNEL==\"w2\", RUN+=\"/run/slow/tool\"\n";
        // No program is there that could heed the signal, or dump a core.
        let options = ["--event-timeout=1", "--timeout-signal=ABRT"];
        let mut live = Live::start_with(rules, |command| {
            command.args(options);
        });
        let never = Gate::closed();
        let slow = tool(Step::Open, &never);
        let start = Instant::now();
        ip("link add w0 type veth peer name w1");
        ip("link add w2 type veth peer name w3");
        let mut left =
            std::collections::HashSet::from(["/devices/virtual/net/w0", "/devices/virtual/net/w2"]);
        live.announced_that("both events, in vain", |m| {
            assert!(!m.properties.contains_key("TOOL"));
            left.remove(m.get("DEVPATH"));
            left.is_empty()
        });
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
        assert_eq!(children(&live, 'D'), 2, "they hang in the kernel");
        unrelated_events_go_through(&mut live, "two programs hang for ever");
        let uuid = fresh_uuid();
        write_uevent("/sys/class/net/w0", &format!("change {uuid}"));
        live.announced_that("one that is not tried again", |m| m.get("SYNTH_UUID") == uuid);
        assert_eq!(children(&live, 'D'), 2, "no third one hangs");
        assert!(live::log().contains("an earlier program hangs in the kernel"), "{}", live::log());
        drop(slow);
        eventually("they are reaped", || children(&live, 'D') + children(&live, 'Z') == 0);
        live.stop();
    });
}

#[test]
fn the_daemon_ends_though_a_program_of_it_hangs_in_the_kernel() {
    in_cell(|| {
        let never = Gate::closed();
        let slow = tool(Step::Read, &never);
        let rules = "KERNEL==\"w0\", PROGRAM==\"/run/slow/tool\"\n";
        let options = ["--event-timeout=2"];
        let live = Live::start_with(rules, |command| {
            command.args(options);
        });
        ip("link add w0 type veth peer name w1");
        eventually("the program hangs", || never.waiting() == 1);
        live.stop();
        assert_eq!(never.waiting(), 1, "it still hangs");
        drop(slow);
    });
}

#[test]
fn what_cannot_be_executed_is_said_with_its_reason_and_fails_its_own_event_only() {
    in_cell(|| {
        std::fs::write("/run/text", "no program").expect("writes");
        let rules = "KERNEL==\"w0\", PROGRAM!=\"/run/text\", ENV{FIRST}=\"no\"\n\
            KERNEL==\"w0\", PROGRAM!=\"/run/none\", ENV{SECOND}=\"no\"\n\
            KERNEL==\"w0\", PROGRAM==\"/bin/echo yes\", ENV{THIRD}=\"%c\", RUN+=\"/run/none\"\n";
        let mut live = Live::start(rules);
        ip("link add w0 type veth peer name w1");
        let add = live.announced("add", "/devices/virtual/net/w0");
        assert_eq!((add.get("FIRST"), add.get("SECOND"), add.get("THIRD")), ("no", "no", "yes"));
        let log = live::log();
        for (command, reason) in
            [("/run/text", "Permission denied"), ("/run/none", "No such file or directory")]
        {
            let line = log.lines().find(|l| l.contains(&format!("'{command}'")) && l.contains(reason));
            assert!(
                line.is_some_and(
                    |l| l.contains("/devices/virtual/net/w0") && l.contains("cannot be executed")
                ),
                "{log}"
            );
        }
        live.stop();
    });
}

/// What a child of the daemon that executes nothing yet has open; such a one still has the daemon's command line.
fn open_files(live: &Live) -> Option<Vec<String>> {
    let pid = live.pid();
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let command = |pid: &str| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let child = list.split_whitespace().find(|child| command(child) == command(&pid.to_string()))?;
    let files = std::fs::read_dir(format!("/proc/{child}/fd")).ok()?.flatten();
    Some(files.filter_map(|file| Some(std::fs::read_link(file.path()).ok()?.display().to_string())).collect())
}

#[test]
fn a_program_that_is_not_executed_yet_keeps_nothing_of_the_daemon_open() {
    in_cell(|| {
        let mut live = Live::start("KERNEL==\"w0\", PROGRAM==\"/run/slow/tool\"\n");
        let never = Gate::closed();
        let slow = tool(Step::Open, &never);
        ip("link add w0 type veth peer name w1");
        eventually("the program waits", || never.waiting() > 0);
        let files = open_files(&live).expect("a child");
        // The daemon dies; its program cannot.
        live.child.kill().expect("kills");
        live.child.wait().expect("reaps");
        let mut status =
            std::process::Command::new(live::tool_path()).arg("status").spawn().expect("runs mudevadm");
        let start = Instant::now();
        let ended = loop {
            if status.try_wait().expect("its state").is_some() || start.elapsed() > Duration::from_secs(5) {
                break start.elapsed();
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        println!("{} descriptors, status ended after {ended:?}, waiting {}", files.len(), never.waiting());
        let _ = status.kill();
        drop(slow);
        assert!(ended < Duration::from_secs(5), "{ended:?}");
        assert_eq!(files.len(), 3, "{files:#?}");
    });
}
