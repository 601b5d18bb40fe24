//! Files that answer late: the file server of the tests itself, and what mudevd does while it waits for one.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/fuse.rs"]
mod fuse;
#[path = "support/live.rs"]
mod live;

use fuse::{File, Fuse, Gate, Step};
use live::{Live, eventually, fresh_uuid, write_uevent};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn in_cell(test: impl FnOnce() + Send) {
    if Fuse::is_there() {
        live::in_cell(test);
    }
}

#[test]
fn the_file_server_of_the_tests_serves_files_and_programs_late_or_at_a_gate() {
    in_cell(|| {
        let gate = Gate::closed();
        let long: Vec<u8> = (0..100_000u32).flat_map(|n| n.to_le_bytes()).collect();
        let files = vec![
            File::text("at once", "x\n"),
            File::text("long", long.clone()),
            File::text("late", "y\n").takes(Step::Read, Duration::from_millis(300)),
            File::program("tool", "#!/bin/sh\necho told\n").waits(Step::Open, gate.clone()),
        ];
        let slow = Fuse::mount(Path::new("/run/slow"), files).expect("mounts");
        assert_eq!(std::fs::read("/run/slow/at once").unwrap(), b"x\n");
        assert_eq!(std::fs::read(slow.file("long")).unwrap(), long);
        assert!(!slow.file("none").exists());
        let mut names: Vec<_> =
            std::fs::read_dir("/run/slow").unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["at once", "late", "long", "tool"]);
        let start = Instant::now();
        assert_eq!(std::fs::read(slow.file("late")).unwrap(), b"y\n");
        assert!(start.elapsed() >= Duration::from_millis(300));
        // Two that wait and one that does not.
        std::thread::scope(|scope| {
            let output = scope.spawn(|| Command::new("/run/slow/tool").output().expect("runs"));
            eventually("the program is opened", || gate.waiting() == 1);
            assert_eq!(std::fs::read("/run/slow/at once").unwrap(), b"x\n", "others are served");
            assert!(!output.is_finished());
            gate.open();
            assert_eq!(output.join().unwrap().stdout, b"told\n");
            assert_eq!(gate.waiting(), 0);
        });
    });
}

#[test]
fn who_waits_for_a_file_server_that_never_answers_is_freed_when_it_ends() {
    in_cell(|| {
        let never = Gate::closed();
        let files = vec![File::text("stuck", "x").waits(Step::Lookup, never.clone())];
        let slow = Fuse::mount(Path::new("/run/slow"), files).expect("mounts");
        let mut reader = Command::new("cat").arg("/run/slow/stuck").spawn().expect("starts");
        eventually("the reader waits", || never.waiting() == 1);
        reader.kill().expect("sends a signal");
        let status = format!("/proc/{}/status", reader.id());
        eventually("it waits though it was killed", || {
            std::fs::read_to_string(&status).is_ok_and(|status| status.contains("State:\tD"))
        });
        drop(slow);
        reader.wait().expect("ends");
    });
}

/// A device that rules of the tests are for, and one that is none of their business.
const ASKS: &str = "/devices/virtual/mem/zero";
const OTHER: &str = "/devices/virtual/mem/null";

fn change(devpath: &str) -> String {
    let uuid = fresh_uuid();
    write_uevent(&format!("/sys{devpath}"), &format!("change {uuid}"));
    uuid
}

/// While what `ASKS` needs is held at the gate, events of another device are announced; then its own is, and
/// comes back.
fn others_do_not_wait(live: &mut Live, gate: &Gate) -> cell::Message {
    gate.close();
    let asks = change(ASKS);
    eventually("somebody waits for the file", || gate.waiting() > 0);
    for _ in 0..20 {
        let other = change(OTHER);
        live.announced_that("an event of another device", |message| {
            assert_ne!(message.get("SYNTH_UUID"), asks, "nothing has waited");
            message.get("SYNTH_UUID") == other
        });
    }
    assert!(gate.waiting() > 0);
    gate.open();
    live.announced_that("the event that waited", |message| message.get("SYNTH_UUID") == asks)
}

#[test]
fn a_file_that_is_imported_late_holds_up_its_own_event_only() {
    in_cell(|| {
        for step in [Step::Lookup, Step::Open, Step::Read] {
            let gate = Gate::closed();
            let long = format!("{}C=3\n", "# comment\n".repeat(10_000));
            let files = vec![
                File::text("config", "A=1\nB=2\n").waits(step, gate.clone()),
                File::text("long", long).remembered(),
            ];
            let _slow = Fuse::mount(Path::new("/run/slow"), files).expect("mounts");
            let rules = "KERNEL==\"zero\", IMPORT{file}=\"/run/slow/config\", \
                IMPORT{file}=\"/run/slow/long\", ENV{THERE}=\"yes\"\n";
            let mut live = Live::start(rules);
            let message = others_do_not_wait(&mut live, &gate);
            for (key, value) in [("A", "1"), ("B", "2"), ("C", "3"), ("THERE", "yes")] {
                assert_eq!(message.get(key), value, "{step:?}");
            }
            live.stop();
        }
    });
}

#[test]
fn a_file_that_is_tested_late_holds_up_its_own_event_only() {
    in_cell(|| {
        let gate = Gate::closed();
        let files = vec![
            File::program("tool", "x").waits(Step::Lookup, gate.clone()),
            File::text("plain", "x").waits(Step::Lookup, gate.clone()),
        ];
        let _slow = Fuse::mount(Path::new("/run/slow"), files).expect("mounts");
        // By a symlink in memory, with a star, and with a mode.
        std::os::unix::fs::symlink("/run/slow/plain", "/run/leads-there").unwrap();
        let rules = "KERNEL!=\"zero\", GOTO=\"end\"\n\
            TEST==\"/run/slow/tool\", ENV{TOOL}=\"1\"\n\
            TEST==\"/run/slow/none\", ENV{NONE}=\"1\"\n\
            TEST==\"/run/leads-there\", ENV{LINK}=\"1\"\n\
            TEST==\"/run/*/plain\", ENV{STAR}=\"1\"\n\
            TEST{0111}==\"/run/slow/tool\", ENV{RUNS}=\"1\"\n\
            TEST{0111}==\"/run/slow/plain\", ENV{PLAIN_RUNS}=\"1\"\n\
            LABEL=\"end\"\n";
        let mut live = Live::start(rules);
        let message = others_do_not_wait(&mut live, &gate);
        for (key, value) in
            [("TOOL", "1"), ("NONE", ""), ("LINK", "1"), ("STAR", "1"), ("RUNS", "1"), ("PLAIN_RUNS", "")]
        {
            assert_eq!(message.get(key), value, "{key}\n{}", live::log());
        }
        live.stop();
    });
}

#[test]
fn a_group_that_only_the_event_names_is_looked_up_without_waiting() {
    use std::os::unix::fs::MetadataExt;
    in_cell(|| {
        let gate = Gate::closed();
        let file = File::text("group", "root:x:0:\nslow:x:4242:\n").waits(Step::Open, gate.clone());
        let slow = Fuse::mount(Path::new("/run/slow"), vec![file]).expect("mounts");
        let from = slow.file("group");
        cell::mount(from.to_str().unwrap(), "/etc/group", "", libc::MS_BIND, "").expect("mounts");
        gate.open();
        let rules = "KERNEL==\"zero\", ENV{WHO}=\"slow\"\nKERNEL==\"zero\", GROUP=\"$env{WHO}\"\n";
        let mut live = Live::start(rules);
        others_do_not_wait(&mut live, &gate);
        assert_eq!(std::fs::metadata("/dev/zero").unwrap().gid(), 4242);
        live.stop();
    });
}

#[test]
fn an_attribute_whose_name_leads_out_of_sysfs_holds_up_its_own_event_only() {
    in_cell(|| {
        let gate = Gate::closed();
        let files = vec![File::text("value", "late\n").waits(Step::Open, gate.clone())];
        let _slow = Fuse::mount(Path::new("/run/slow"), files).expect("mounts");
        let rules = "KERNEL==\"zero\", ENV{VALUE}=\"$attr{../../../../../run/slow/value}\"\n";
        let mut live = Live::start(rules);
        assert_eq!(others_do_not_wait(&mut live, &gate).get("VALUE"), "late");
        live.stop();
    });
}

#[test]
fn an_attribute_is_not_written_where_its_name_leads_out_of_sysfs_to_a_slow_file_system() {
    in_cell(|| {
        let never = Gate::closed();
        let files = vec![File::text("value", "x").waits(Step::Lookup, never.clone())];
        let slow = Fuse::mount(Path::new("/run/slow"), files).expect("mounts");
        let rules = "KERNEL==\"zero\", ATTR{../../../../../run/slow/value/x}=\"1\", \
            ATTR{subsystem/../../../../run/*/value/x}=\"1\"\n";
        let mut live = Live::start(rules);
        let asks = change(ASKS);
        live.announced_that("the event", |message| message.get("SYNTH_UUID") == asks);
        assert_eq!(never.waiting(), 0, "nobody has looked");
        let log = live::log();
        assert_eq!(log.matches("is not written").count(), 2, "{log}");
        drop(slow);
        live.stop();
    });
}

#[test]
fn symlinks_on_a_file_system_below_dev_are_refused_and_it_is_not_asked() {
    in_cell(|| {
        let never = Gate::closed();
        let files = ["zero", "l"].map(|name| File::text(name, "x").waits(Step::Lookup, never.clone()));
        let _slow = Fuse::mount(Path::new("/dev/slow"), files.into()).expect("mounts");
        std::os::unix::fs::symlink("slow", "/dev/way").expect("a symlink to it");
        let rules =
            "KERNEL==\"zero\", SYMLINK+=\"slow/zero slow/l/x way/zero way/l/x fine/zero\", ENV{END}=\"1\"\n";
        let mut live = Live::start(rules);
        let asks = change(ASKS);
        let message = live.announced_that("its event", |m| m.get("SYNTH_UUID") == asks);
        assert_eq!(message.get("END"), "1");
        assert_eq!(never.waiting(), 0, "nobody has looked");
        assert_eq!(
            std::fs::canonicalize("/dev/fine/zero").expect("the other symlink"),
            Path::new("/dev/zero")
        );
        live.stop();
    });
}

#[test]
fn a_file_that_never_comes_costs_its_own_event_only() {
    in_cell(|| {
        let never = Gate::closed();
        let files = vec![File::text("stuck", "A=1\n").waits(Step::Open, never.clone())];
        let slow = Fuse::mount(Path::new("/run/slow"), files).expect("mounts");
        let rules = "KERNEL==\"zero\", IMPORT{file}=\"/run/slow/stuck\"\n";
        let mut live = Live::start_with(rules, |command| {
            command.arg("--event-timeout=2");
        });
        let asks = change(ASKS);
        eventually("somebody waits for the file", || never.waiting() > 0);
        let other = change(OTHER);
        live.announced_that("an event of another device", |m| m.get("SYNTH_UUID") == other);
        let message = live.announced_that("the event that gave up", |m| m.get("SYNTH_UUID") == asks);
        assert_eq!(message.get("A"), "");
        drop(slow);
        live.stop();
    });
}

#[test]
fn what_is_in_the_page_cache_is_read_at_once_and_what_is_not_by_a_helper() {
    use std::os::fd::AsRawFd;
    in_cell(|| {
        let path = std::env::temp_dir().join(format!("mudev-cached-{}", std::process::id()));
        std::fs::write(&path, "A=1\n").unwrap();
        let rules = format!("KERNEL==\"zero\", IMPORT{{file}}=\"{}\"\n", path.display());
        let mut live = Live::start(&rules);
        let mut imported = || {
            let asks = change(ASKS);
            let message = live.announced_that("the event", |m| m.get("SYNTH_UUID") == asks);
            assert_eq!(message.get("A"), "1");
            let has_operations = |pid: &i32| {
                std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|l| l.ends_with(b"operations\0"))
            };
            live::helpers(live.pid()).iter().filter(|pid| has_operations(pid)).count()
        };
        match imported() {
            0 => {
                let file = std::fs::File::open(&path).unwrap();
                file.sync_all().unwrap();
                unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
                assert_eq!(imported(), 1, "no longer in the cache");
            }
            _ => println!("skipped: the file system of {} cannot say what is cached", path.display()),
        }
        live.stop();
        std::fs::remove_file(&path).unwrap();
    });
}

/// A class of the kernel, in this cell with one device `x` that has an attribute on a slow file system. False if
/// there is no such class.
fn slow_attribute(class: &str, name: &str, slow: &Path) -> bool {
    let class = format!("/sys/class/{class}");
    if !Path::new(&class).is_dir() {
        println!("skipped: this kernel has no {class}");
        return false;
    }
    cell::mount("none", &class, "tmpfs", 0, "").expect("mounts");
    let device = Path::new(&class).join("x");
    std::fs::create_dir(&device).unwrap();
    std::fs::write(device.join("uevent"), "").unwrap();
    std::os::unix::fs::symlink(&class, device.join("subsystem")).unwrap();
    std::fs::write(device.join(name), "").unwrap();
    let (from, onto) = (slow.to_str().unwrap(), device.join(name));
    cell::mount(from, onto.to_str().unwrap(), "", libc::MS_BIND, "").expect("mounts");
    true
}

#[test]
fn an_attribute_that_asks_the_hardware_is_not_read_by_the_loop_even_once() {
    in_cell(|| {
        let gate = Gate::closed();
        let slow = Fuse::mount(
            Path::new("/run/slow"),
            vec![File::text("capacity", "42\n").waits(Step::Open, gate.clone())],
        )
        .expect("mounts");
        if !slow_attribute("power_supply", "capacity", &slow.file("capacity")) {
            return;
        }
        let rules = "KERNEL==\"zero\", ENV{CAPACITY}=\"$attr{[power_supply/x]capacity}\", \
            ENV{OTHER}=\"$attr{[power_supply/x]temp}\"\n";
        let mut live = Live::start(rules);
        let message = others_do_not_wait(&mut live, &gate);
        assert_eq!((message.get("CAPACITY"), message.get("OTHER")), ("42", ""));
        live.stop();
    });
}

#[test]
fn an_attribute_that_turns_out_to_wait_is_read_by_the_loop_only_once() {
    in_cell(|| {
        let gate = Gate::closed();
        let file = File::text("state", "on\n")
            .takes(Step::Read, Duration::from_millis(50))
            .waits(Step::Open, gate.clone());
        let slow = Fuse::mount(Path::new("/run/slow"), vec![file]).expect("mounts");
        // `mem` is a class everywhere, and in no list.
        slow_attribute("mem", "state", &slow.file("state"));
        let rules = "KERNEL==\"zero\", ENV{STATE}=\"$attr{[mem/x]state}\"\n";
        let mut live = Live::start(rules);
        gate.open();
        let first = change(ASKS);
        live.announced_that("the first event", |message| message.get("SYNTH_UUID") == first);
        for _ in 0..3 {
            assert_eq!(others_do_not_wait(&mut live, &gate).get("STATE"), "on");
        }
        live.stop();
    });
}

#[test]
fn rules_on_a_file_system_that_does_not_answer_hold_up_nothing_and_are_read_when_they_have_changed() {
    in_cell(|| {
        let place = Path::new("/run/slow");
        let gate = Gate::closed();
        gate.open();
        let rules = |value: &str| {
            let text = format!("KERNEL==\"zero\", ENV{{VALUE}}=\"{value}\"\n");
            vec![File::text("60-slow.rules", text).waits(Step::Lookup, gate.clone())]
        };
        let slow = Fuse::mount(place, rules("old")).expect("mounts");
        let mut live = Live::start_with("", |command| {
            command.arg("--rules-dir=/run/slow");
        });
        let value = |live: &mut Live| {
            let asks = change(ASKS);
            let message = live.announced_that("the event", |m| m.get("SYNTH_UUID") == asks);
            message.get("VALUE").to_owned()
        };
        assert_eq!(value(&mut live), "old");
        gate.close();
        // The next look is seconds away, and only an event makes one.
        eventually("somebody looks for changed rules", || {
            assert_eq!(value(&mut live), "old");
            gate.waiting() > 0
        });
        for _ in 0..20 {
            assert_eq!(value(&mut live), "old", "the old rules hold meanwhile");
        }
        assert!(gate.waiting() > 0);
        gate.open();
        drop(slow);
        // Of another size: the file system may get the device number of the one before, whose times it has too.
        let _slow = Fuse::mount(place, rules("newer")).expect("mounts");
        eventually("the new rules hold", || value(&mut live) == "newer");
        live.stop();
    });
}

/// Rules that a test changes in a folder in memory. They give a value to `ASKS`.
const FOLDER: &str = "/run/rules";

fn set_value(value: &str) {
    std::fs::create_dir_all(FOLDER).unwrap();
    // Written anew, never half.
    std::fs::write("/run/new", format!("KERNEL==\"zero\", ENV{{VALUE}}=\"{value}\"\n")).unwrap();
    std::fs::rename("/run/new", format!("{FOLDER}/50-fast.rules")).unwrap();
}

fn value(live: &mut Live) -> String {
    let asks = change(ASKS);
    live.announced_that("the event", |message| message.get("SYNTH_UUID") == asks).get("VALUE").to_owned()
}

/// A file on a slow file system, found by a symlink in memory, that answers at first.
fn slow_link(link: &str, text: &str, step: Step, gate: &Gate) -> Fuse {
    gate.open();
    let files = vec![File::text("file", text).waits(step, gate.clone())];
    let slow = Fuse::mount(Path::new("/run/slow"), files).expect("mounts");
    std::fs::create_dir_all(Path::new(link).parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/run/slow/file", link).unwrap();
    slow
}

fn start_with_folder() -> Live {
    Live::start_with("", |command| {
        command.arg(format!("--rules-dir={FOLDER}")).arg("--etc-dir=/run/etc");
    })
}

fn control_reload() -> Command {
    let mut command = Command::new(live::tool_path());
    command.args(["control", "--reload"]);
    command
}

fn hang_up(live: &Live) {
    assert_eq!(unsafe { libc::kill(live.pid() as i32, libc::SIGHUP) }, 0);
}

#[test]
fn a_reload_for_which_a_file_does_not_come_holds_up_nothing_and_is_done_when_it_does() {
    in_cell(|| {
        for (link, text) in [
            ("/run/rules/60-slow.rules", "KERNEL==\"zero\", ENV{SLOW}=\"1\"\n"),
            ("/run/systemd/network/60-slow.link", "[Match]\nOriginalName=none\n[Link]\nMTUBytes=1500\n"),
            ("/run/udev/udev.conf.d/slow.conf", "exec_delay=0\n"),
            ("/run/etc/os-release", "ID=slow\n"),
        ] {
            for step in [Step::Lookup, Step::Open, Step::Read] {
                let gate = Gate::closed();
                set_value("old");
                let slow = slow_link(link, text, step, &gate);
                let mut live = start_with_folder();
                assert_eq!(value(&mut live), "old");
                gate.close();
                set_value("new");
                hang_up(&live);
                eventually("somebody waits for the file", || gate.waiting() > 0);
                let reload = control_reload().spawn().expect("starts");
                for _ in 0..5 {
                    assert_eq!(value(&mut live), "old", "{link} {step:?}: the old rules hold meanwhile");
                }
                live::run(live::tool_path().to_str().unwrap(), &["status"]);
                assert!(gate.waiting() > 0);
                gate.open();
                let output = reload.wait_with_output().expect("ends");
                assert!(output.status.success());
                assert_eq!(value(&mut live), "new", "{link} {step:?}\n{}", live::log());
                live.stop();
                drop(slow);
                std::fs::remove_file(link).unwrap();
            }
        }
    });
}

#[test]
fn an_event_after_a_reload_is_judged_by_the_new_rules_though_a_file_comes_late() {
    in_cell(|| {
        set_value("0");
        let late = File::text("file", "# late\n").takes(Step::Read, Duration::from_millis(200));
        let _slow = Fuse::mount(Path::new("/run/slow"), vec![late]).expect("mounts");
        std::os::unix::fs::symlink("/run/slow/file", format!("{FOLDER}/60-slow.rules")).unwrap();
        let mut live = start_with_folder();
        for n in 1..4 {
            set_value(&n.to_string());
            match n {
                // By who waits for it, and by who does not.
                1 => assert!(control_reload().status().expect("runs").success()),
                2 => assert!(control_reload().arg("--timeout=0").status().expect("runs").success()),
                _ => hang_up(&live),
            }
            assert_eq!(value(&mut live), n.to_string(), "{}", live::log());
        }
        live.stop();
    });
}

#[test]
fn a_reload_for_which_a_file_never_comes_leaves_the_old_rules_and_says_so() {
    in_cell(|| {
        let gate = Gate::closed();
        set_value("old");
        let _slow = slow_link("/run/rules/60-slow.rules", "# slow\n", Step::Open, &gate);
        let mut live = start_with_folder();
        gate.close();
        set_value("new");
        let start = Instant::now();
        let output = control_reload().output().expect("runs");
        let took = start.elapsed();
        assert!(output.status.success() && took > Duration::from_secs(9), "{took:?}");
        let line = "Cannot read the rules, the old ones stay in force: no answer in 10 s";
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains(line), "{told}");
        assert!(live::log().contains(line), "{}", live::log());
        assert_eq!(value(&mut live), "old");
        gate.open();
        eventually("a later reload finds them", || {
            assert!(control_reload().status().expect("runs").success());
            value(&mut live) == "new"
        });
        live.stop();
    });
}

#[test]
fn a_daemon_ends_though_a_file_that_it_was_to_read_again_never_comes() {
    in_cell(|| {
        let gate = Gate::closed();
        set_value("old");
        let slow = slow_link("/run/rules/60-slow.rules", "# slow\n", Step::Lookup, &gate);
        let live = start_with_folder();
        gate.close();
        hang_up(&live);
        eventually("somebody waits for the file", || gate.waiting() > 0);
        let start = Instant::now();
        live.stop();
        assert!(start.elapsed() < Duration::from_secs(5), "it has not waited for the file");
        drop(slow);
    });
}
