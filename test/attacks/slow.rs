//! What does not answer, or late: file systems, disks, the kernel's RTNL lock, programs that do not end. While it
//! lasts all others are served; afterwards nothing is left of it.

use crate::Attack;
use crate::fuse::{File, Fuse, Gate, Step};
use crate::ground::{Ground, children, write_uevent};
use crate::rtnl;
use crate::storms::{self, Batch};
use std::path::Path;
use std::time::Duration;

pub const ATTACKS: &[Attack] = &[
    Attack { name: "a file system that answers late", run: late },
    Attack { name: "a file system that does not answer", run: dead_files },
    Attack { name: "a disk that does not answer", run: dead_disk },
    Attack { name: "RTNL is held while interfaces get names", run: rtnl_held },
    Attack { name: "programs that ignore signals until they are killed", run: stubborn },
];

const PLACE: &str = "/run/slow";

/// Rules beside those of the ground, read by the daemon that runs.
struct Extra(std::path::PathBuf);

impl Extra {
    fn add(ground: &Ground, rules: &str) -> Extra {
        let path = ground.folder.join("60-extra.rules");
        std::fs::write(&path, rules).expect("writes rules");
        ground.signal(libc::SIGHUP);
        Extra(path)
    }

    /// Takes them away, and waits until the daemon does without.
    fn remove(self, ground: &mut Ground) {
        std::fs::remove_file(self.0).expect("ours");
        ground.signal(libc::SIGHUP);
        ground.settle();
    }
}

/// A daemon whose events have a second, while `rules` hold. What it did not get done in time is left to the next.
fn in_short_time(ground: &mut Ground, rules: &str, body: impl FnOnce(&mut Ground)) {
    ground.stop();
    ground.start_with(|command| {
        command.arg("--event-timeout=1");
    });
    let extra = Extra::add(ground, rules);
    body(ground);
    std::fs::remove_file(extra.0).expect("ours");
    ground.stop();
    ground.start();
}

/// Leave no trace unless an answer was wrong.
const LATE: &str = r#"
SUBSYSTEM!="net", GOTO="late_end"
KERNEL=="lo", GOTO="late_end"
IMPORT{file}="/run/slow/config"
ENV{LATE}!="1", ENV{A_WRONG}="file"
ENV{LATE}=""
TEST!="/run/slow/plain", ENV{A_WRONG}="test"
PROGRAM!="/run/slow/tool", ENV{A_WRONG}="program"
LABEL="late_end"
"#;

fn late(ground: &mut Ground) {
    let gate = Gate::closed();
    gate.open();
    let step = [Step::Lookup, Step::Open, Step::Read][ground.random.below(3)];
    let files = vec![
        File::text("config", "LATE=1\n").waits(step, gate.clone()),
        File::text("plain", "x").waits(Step::Lookup, gate.clone()),
        File::program("tool", "#!/bin/sh\n").waits(Step::Open, gate.clone()),
    ];
    let slow = Fuse::mount(Path::new(PLACE), files).expect("mounts");
    let extra = Extra::add(ground, LATE);
    let mut batch = storms::begin(ground, 60);
    while batch.is_at_work() {
        gate.close();
        storms::moment(ground, Duration::from_millis(60));
        gate.open();
        storms::moment(ground, Duration::from_millis(20));
    }
    gate.close();
    let name = made(ground);
    ground.eventually("somebody waits for the files", |_| {
        write_uevent(&name, "change");
        (gate.waiting() > 0).then_some(())
    });
    ground.others_are_served("files come late");
    if ground.chance(1, 3) {
        ground.kill();
        gate.open();
        ground.start();
    }
    gate.open();
    storms::end(ground, batch);
    ground.settle();
    extra.remove(ground);
    drop(slow);
}

/// The name of an interface that is there from now on.
fn made(ground: &mut Ground) -> String {
    let name = ground.name('a');
    Batch::start(&format!("link add {name} type bridge\n")).finish();
    name
}

fn dead_files(ground: &mut Ground) {
    let never = Gate::closed();
    let step = [Step::Lookup, Step::Open, Step::Read][ground.random.below(3)];
    let files = vec![File::text("dead", "X=1\n").waits(step, never.clone())];
    let slow = Fuse::mount(Path::new(PLACE), files).expect("mounts");
    let rules = "SUBSYSTEM==\"net\", KERNEL==\"a*[0-9]\", IMPORT{file}=\"/run/slow/dead\"\n";
    in_short_time(ground, rules, |ground| {
        let name = made(ground);
        ground.eventually("somebody waits for the file", |_| {
            write_uevent(&name, "change");
            (never.waiting() > 0).then_some(())
        });
        let batch = storms::begin(ground, 60);
        for _ in 0..ground.of(6).max(2) {
            ground.others_are_served("files do not come");
            storms::moment(ground, Duration::from_millis(400));
        }
        storms::end(ground, batch);
        comes_back_or_not(ground, &never);
    });
    drop(slow);
}

/// The dead wake before the daemon is ended, or it ends beside them.
fn comes_back_or_not(ground: &mut Ground, never: &Gate) {
    if ground.chance(1, 2) {
        never.open();
        ground.eventually("nobody hangs any more", |ground| {
            let is_hung = |(_, state): &(i32, String)| state == "D";
            (never.waiting() == 0 && !children(ground.pid()).iter().any(is_hung)).then_some(())
        });
        ground.settle();
    }
}

fn dead_disk(ground: &mut Ground) {
    let Some(at) = ground.add_loop() else { return };
    let gate = Gate::closed();
    gate.open();
    let image = File::text("image", vec![0; 1 << 20]).waits(Step::Read, gate.clone());
    let slow = Fuse::mount(Path::new(PLACE), vec![image]).expect("mounts");
    // Past the cache, where who waits cannot be killed.
    let rules = "ACTION!=\"remove\", SUBSYSTEM==\"block\", KERNEL==\"loop[1-9]??*\", \
        PROGRAM==\"/bin/dd if=$devnode of=/dev/null bs=4096 count=1 iflag=direct\"\n";
    in_short_time(ground, rules, |ground| {
        let syspath = ground.loops[at].syspath();
        gate.close();
        let image = std::fs::OpenOptions::new().read(true).write(true).open(slow.file("image"));
        if let Err(error) = ground.loops[at].attach_file(&image.expect("an image")) {
            return println!("no disk on this file system: {error}");
        }
        ground.eventually("somebody reads from the disk", |_| {
            let _ = std::fs::write(format!("{syspath}/uevent"), "change");
            (gate.waiting() > 0).then_some(())
        });
        let batch = storms::begin(ground, 60);
        for _ in 0..ground.of(6).max(2) {
            ground.others_are_served("a disk does not answer");
            let _ = std::fs::write(format!("{syspath}/uevent"), "change");
            storms::moment(ground, Duration::from_millis(400));
        }
        storms::end(ground, batch);
        comes_back_or_not(ground, &gate);
    });
    gate.open();
    drop(ground.loops.remove(at));
    drop(slow);
}

fn rtnl_held(ground: &mut Ground) {
    let rules = "SUBSYSTEM==\"net\", ACTION==\"add\", KERNEL==\"a*[0-9]\", NAME=\"b$number\"\n";
    let extra = Extra::add(ground, rules);
    let batch = storms::begin(ground, 60);
    for _ in 0..ground.of(12).max(3) {
        let held = match rtnl::hold() {
            Ok(held) => held,
            Err(error) => {
                println!("RTNL cannot be held here: {error}");
                break;
            }
        };
        ground.others_are_served("RTNL is held");
        if ground.chance(1, 6) {
            // What its helper has given to the kernel is done after its end.
            ground.kill();
            drop(held);
            ground.start();
        }
        storms::moment(ground, Duration::from_millis(30));
    }
    storms::end(ground, batch);
    ground.settle();
    extra.remove(ground);
}

fn stubborn(ground: &mut Ground) {
    // A number of our own, to know the process by.
    let seconds = format!("1000{}", std::process::id());
    let program = format!("/bin/sh -c 'trap : TERM INT HUP; while :; do sleep {seconds}; done'");
    let rules = format!(
        "ACTION==\"remove\", GOTO=\"stubborn_end\"\n\
         SUBSYSTEM==\"net\", KERNEL==\"r*[0-9]\", RUN+=\"{program}\"\n\
         SUBSYSTEM==\"net\", KERNEL==\"p*[0-9]\", PROGRAM==\"{program}\"\n\
         LABEL=\"stubborn_end\"\n"
    );
    in_short_time(ground, &rules, |ground| {
        let batch = storms::begin(ground, 40);
        for _ in 0..ground.of(6).max(2) {
            ground.others_are_served("programs do not end");
            storms::moment(ground, Duration::from_millis(400));
        }
        storms::end(ground, batch);
        if ground.chance(1, 2) {
            ground.settle();
        }
    });
    ground.eventually("no program is left", |_| (!runs_sleep(&seconds)).then_some(()));
}

/// Whether a process of this command line is there.
fn runs_sleep(seconds: &str) -> bool {
    let line = format!("sleep\0{seconds}\0");
    let entries = std::fs::read_dir("/proc").expect("a list of processes").flatten();
    entries
        .map(|entry| std::fs::read(entry.path().join("cmdline")))
        .any(|found| found.is_ok_and(|found| found == line.as_bytes()))
}
