//! Devices that do not answer any more: what works for them hangs in the kernel and cannot be killed. They cost a
//! bounded number of processes, fail clearly, and hold up nobody who lives.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/fuse.rs"]
mod fuse;
#[path = "support/live.rs"]
mod live;

use fuse::{File, Fuse, Gate, Step};
use live::{Live, eventually, fresh_uuid, helpers, in_cell, ip, run, tool_path, unrelated_events_go_through};
use std::path::Path;

const DEAD: usize = 12;
const ROUNDS: usize = 6;

/// A file for each dead device, whose content never comes.
fn dead_files(count: usize, never: &Gate) -> Vec<File> {
    (0..count).map(|n| File::text(&format!("d{n}"), "BACK=1\n").waits(Step::Read, never.clone())).collect()
}

/// Has interface d0, d1, ... changed; the announcement of each.
fn change_all(live: &mut Live, count: usize) -> Vec<cell::Message> {
    let uuids: Vec<String> = (0..count).map(|_| fresh_uuid()).collect();
    for (n, uuid) in uuids.iter().enumerate() {
        live::write_uevent(&format!("/sys/class/net/d{n}"), &format!("change {uuid}"));
    }
    let mut left: std::collections::HashSet<String> = uuids.into_iter().collect();
    let mut all = Vec::new();
    while !left.is_empty() {
        all.push(live.announced_that("all events", |m| left.remove(m.get("SYNTH_UUID"))));
    }
    all
}

#[test]
fn dead_devices_cost_one_helper_each_and_are_asked_again_when_it_has_come_back() {
    in_cell(|| {
        let never = Gate::closed();
        let mut files = dead_files(DEAD, &never);
        files.push(File::text("alive", "ALIVE=1\n"));
        let slow = Fuse::mount(Path::new("/run/slow"), files).expect("mounts");
        (0..DEAD).for_each(|n| ip(&format!("link add d{n} type veth peer name p{n}")));
        let rules = "ACTION==\"change\", KERNEL==\"d*\", IMPORT{file}=\"/run/slow/$kernel\"\n\
            ACTION==\"change\", KERNEL==\"lo\", IMPORT{file}=\"/run/slow/alive\"\n";
        let mut live = Live::start_with(rules, |command| {
            command.arg("--event-timeout=1");
        });
        let mut most = 0;
        for round in 0..ROUNDS {
            assert!(change_all(&mut live, DEAD).iter().all(|m| m.get("BACK").is_empty()));
            most = most.max(helpers(live.pid()).len());
            assert!(most <= DEAD + 8, "round {round}: {most} helpers");
            let uuid = fresh_uuid();
            live::write_uevent("/sys/class/net/lo", &format!("change {uuid}"));
            let alive = live.announced_that("one that lives", |m| m.get("SYNTH_UUID") == uuid);
            assert_eq!(alive.get("ALIVE"), "1", "round {round}: it gets its helper");
        }
        assert!(most >= DEAD, "nothing hung: {most}");
        unrelated_events_go_through(&mut live, "a dozen helpers hang");
        let status = run(tool_path().to_str().unwrap(), &["status"]);
        assert_eq!(status.matches("hangs in the kernel since").count(), DEAD, "{status}");
        assert!(status.contains(" s: read /run/slow/d7\n"), "{status}");
        let log = live::log();
        let said = |text: &str| log.lines().filter(|line| line.contains(text)).count();
        assert_eq!(said("hangs in the kernel (read /run/slow/d7)"), 1, "{log}");
        assert!(said("Device or resource busy") > 0, "{log}");
        never.open();
        eventually("all have ended", || helpers(live.pid()).len() <= 8);
        eventually("they are asked again", || {
            change_all(&mut live, DEAD).iter().all(|m| m.get("BACK") == "1")
        });
        live.stop();
        drop(slow);
    });
}

#[test]
fn the_daemon_ends_though_a_helper_of_it_hangs_in_the_kernel() {
    in_cell(|| {
        let never = Gate::closed();
        let file = File::text("w0", "X=1\n").waits(Step::Read, never.clone());
        let slow = Fuse::mount(Path::new("/run/slow"), vec![file]).expect("mounts");
        let rules = "KERNEL==\"w0\", IMPORT{file}=\"/run/slow/w0\"\n";
        let live = Live::start_with(rules, |command| {
            command.arg("--event-timeout=1");
        });
        ip("link add w0 type veth peer name w1");
        eventually("a helper hangs", || never.waiting() == 1);
        live.stop();
        assert_eq!(never.waiting(), 1, "it still hangs");
        drop(slow);
    });
}

#[test]
fn more_dead_devices_than_helpers_may_hang_leave_some_for_what_is_no_disk() {
    const MANY: usize = 30;
    in_cell(|| {
        let never = Gate::closed();
        let slow = Fuse::mount(Path::new("/run/slow"), dead_files(MANY, &never)).expect("mounts");
        (0..MANY).for_each(|n| ip(&format!("link add d{n} type veth peer name p{n}")));
        let rules = "ACTION==\"change\", KERNEL==\"d*\", IMPORT{file}=\"/run/slow/$kernel\"\n\
            ACTION==\"change\", KERNEL==\"lo\", ATTR{ifalias}=\"written\"\n";
        let mut live = Live::start_with(rules, |command| {
            command.arg("--event-timeout=1");
        });
        let is_full = || live::log().matches("As many helpers hang in the kernel as may").count();
        for _ in 0..20 {
            change_all(&mut live, MANY);
            assert!(helpers(live.pid()).len() <= 24 + 8, "{:?}", helpers(live.pid()));
            if is_full() > 0 {
                break;
            }
        }
        change_all(&mut live, MANY);
        assert_eq!(is_full(), 1, "{}", live::log());
        live::write_uevent("/sys/class/net/lo", "change");
        eventually("an attribute is written", || {
            std::fs::read_to_string("/sys/class/net/lo/ifalias").is_ok_and(|alias| alias == "written\n")
        });
        live.stop();
        drop(slow);
    });
}
