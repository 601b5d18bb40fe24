//! mudevd killed in front of every system call of an event that changes anything, and started again: what is there
//! then is the state before the event or that after it, and after one more event always the latter.
//!
//! Between two calls that change nothing there is nothing to see, so these are not tried one by one.

#[path = "support/cell.rs"]
mod cell;
#[path = "support/live.rs"]
mod live;
#[path = "support/loops.rs"]
mod loops;
#[path = "support/stepper.rs"]
mod stepper;
#[path = "support/store.rs"]
mod store;

use live::{LIMIT, Live, ip, write_uevent};
use loops::Loop;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;
use stepper::{Ended, Stepper};

/// A cell whose daemons can trigger no disks but those of [`our_disk`]. All cells see the same disks: a daemon killed
/// in the event of a disk of another test would trigger that disk at its next start, in the middle of a round there.
fn in_cell(test: impl FnOnce() + Send) {
    live::in_cell(|| {
        bind("/sys/devices/virtual/block", libc::MS_RDONLY);
        test();
    });
}

/// A disk that can be triggered from within the cell.
fn our_disk() -> Loop {
    let disk = Loop::add().expect("a loop device");
    let_trigger(&disk);
    disk
}

fn let_trigger(disk: &Loop) {
    bind(&format!("{}/uevent", disk.syspath()), 0);
}

/// Mounts a part of /sys once more, with other rights.
fn bind(path: &str, rights: libc::c_ulong) {
    cell::mount(path, path, "", libc::MS_BIND, "").expect("is bound");
    cell::mount("none", path, "", libc::MS_REMOUNT | libc::MS_BIND | rights, "").expect("gets its rights");
}

type State = BTreeMap<String, String>;

/// Ids of devices, and how they are called in every round.
type Ids = Vec<(String, &'static str)>;

/// What is there of devices of these ids, named alike in every round; and of folders and names that are nobody's.
fn state_of(ids: &[(String, &str)]) -> State {
    let mut state = State::new();
    for (path, what) in store::state_without_empty_tags() {
        let others = ["/run/udev/data/", "/run/udev/tags/", "/run/udev/watch/", "/dev/block/", "/dev/char/"];
        let is_ours = ids.iter().any(|(id, _)| path.ends_with(id.trim_start_matches('b')));
        let is_temporary = path.contains("/.#");
        if path == "/dev/block" || path == "/dev/char" {
            // Disks of other tests come and go.
            continue;
        }
        if others.iter().any(|folder| path.starts_with(folder)) && !is_ours && !is_temporary {
            continue;
        }
        let alike = |text: &str| {
            let mut text = text.to_owned();
            for (id, name) in ids {
                for before in ["/", ">"] {
                    let end = format!("{before}{id}");
                    if let Some(start) = text.strip_suffix(&end) {
                        text = format!("{start}{before}{name}");
                    }
                }
                if let Some(minor) = id.strip_prefix("b7:") {
                    text = text.replace(&format!("loop{minor}"), name).replace(&format!("7:{minor}"), name);
                }
            }
            text
        };
        state.insert(alike(&path), alike(&what));
    }
    state
}

/// One situation, again and again.
struct Case<'a> {
    rules: String,
    /// Prepares a round with a running daemon; returns the ids that count and how they are called.
    prepare: Box<dyn FnMut(&mut Live) -> Ids + 'a>,
    /// Causes the event.
    cause: Box<dyn FnMut() + 'a>,
    /// Whether an announcement is that of the event's end.
    is_end: Box<dyn FnMut(&cell::Message) -> bool + 'a>,
    /// Triggers the device after the restart, where it is still there.
    again: Option<Box<dyn FnMut() + 'a>>,
}

/// Waits until the state is one of these; `what` for people.
fn becomes(ids: &[(String, &str)], wanted: &[&State], what: &str) {
    let end = Instant::now() + LIMIT;
    loop {
        let state = state_of(ids);
        let is_busy = Path::new("/run/udev/queue").exists();
        if wanted.contains(&&state) && !is_busy {
            return;
        }
        if Instant::now() > end {
            let differences: Vec<_> = wanted.iter().map(|wanted| store::difference(wanted, &state)).collect();
            panic!("{what}: {differences:#?}\n--- log\n{}", live::log());
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

fn idle() {
    live::eventually("the queue is idle", || !Path::new("/run/udev/queue").exists());
}

fn kill_everywhere(mut case: Case) {
    let mut live = Live::start(&case.rules);
    // The undisturbed run.
    let ids = (case.prepare)(&mut live);
    idle();
    let before = state_of(&ids);
    (case.cause)();
    live.announced_that("the end", &mut case.is_end);
    idle();
    let after = state_of(&ids);
    assert_ne!(before, after);
    let mut calls = Vec::new();
    for n in 0.. {
        let ids = (case.prepare)(&mut live);
        idle();
        becomes(&ids, &[&before], &format!("round {n}, before"));
        while live.udev.try_next().is_some() {}
        let stepper = Stepper::attach(live.pid()).expect("attaches");
        (case.cause)();
        let mut has_ended = false;
        let ended = stepper.kill_at(n, || {
            while let Some(message) = live.udev.try_next() {
                has_ended |= (case.is_end)(&message);
            }
            has_ended && !Path::new("/run/udev/queue").exists()
        });
        match ended.expect("is traced") {
            Ended::Over => break,
            Ended::Killed(call) => calls.push(call),
        }
        drop(live);
        live = Live::start(&case.rules);
        let what = format!("killed in front of call {n} ({})", calls[n]);
        match &mut case.again {
            Some(again) => {
                becomes(&ids, &[&before, &after], &what);
                again();
                becomes(&ids, &[&after], &format!("{what}, and triggered"));
            }
            None => becomes(&ids, &[&after], &what),
        }
    }
    eprintln!("killed in front of each of {} calls: {}", calls.len(), calls.join(" "));
    assert!(calls.len() > 5, "{calls:?}");
    live.stop();
}

/// Everything that an event can leave of a disk. Whether /run/flag is there decides what the rules want.
fn disk_rules(names: &str, run: &str) -> String {
    format!(
        "SUBSYSTEM!=\"block\", GOTO=\"end\"\nKERNEL!=\"{names}\", GOTO=\"end\"\n\
         TAG+=\"all\", SYMLINK+=\"shared/by/one\", OPTIONS+=\"watch\"{run}\n\
         TEST!=\"/run/flag\", ENV{{VALUE}}=\"old\", SYMLINK+=\"old/deep/link\"\n\
         TEST==\"/run/flag\", ENV{{VALUE}}=\"new\", SYMLINK+=\"new/deep/link\", TAG+=\"new\", \
         OPTIONS+=\"link_priority=5\", OPTIONS+=\"db_persist\"\nLABEL=\"end\"\n"
    )
}

fn triggered(live: &mut Live, action: &str, disk: &Loop) {
    write_uevent(&disk.syspath(), action);
    live.announced(action, &disk.devpath());
}

/// With a program the record is written twice, and the watch comes between.
const RUN: &str = ", RUN+=\"/bin/true\"";

#[test]
fn killed_in_a_change() {
    change_with(RUN);
}

#[test]
fn killed_in_a_change_without_programs() {
    change_with("");
}

fn change_with(run: &str) {
    in_cell(|| {
        let disks = [our_disk(), our_disk()];
        let [disk, rival] = &disks;
        let ids = || vec![(disk.id(), "DISK"), (rival.id(), "RIVAL")];
        kill_everywhere(Case {
            rules: disk_rules(&format!("{}|{}", disk.name(), rival.name()), run),
            prepare: Box::new(move |live| {
                let _ = std::fs::remove_file("/run/flag");
                // Tags are for ever: the record goes first.
                triggered(live, "remove", disk);
                triggered(live, "add", disk);
                triggered(live, "change", rival);
                ids()
            }),
            cause: Box::new(move || {
                std::fs::write("/run/flag", "").expect("a flag");
                write_uevent(&disk.syspath(), "change");
            }),
            is_end: Box::new(|m| m.title() == format!("change {}", disk.devpath())),
            again: Some(Box::new(|| write_uevent(&disk.syspath(), "change"))),
        });
    });
}

#[test]
fn killed_in_the_first_event_of_a_disk() {
    first_event_with(RUN);
}

#[test]
fn killed_in_the_first_event_of_a_disk_without_programs() {
    first_event_with("");
}

fn first_event_with(run: &str) {
    in_cell(|| {
        let disk = our_disk();
        let disk = &disk;
        kill_everywhere(Case {
            rules: disk_rules(&disk.name(), run),
            prepare: Box::new(move |live| {
                triggered(live, "remove", disk);
                // It stays by itself where only the event was killed, and is right.
                let number = format!("/dev/block/{}", disk.id().trim_start_matches('b'));
                std::fs::create_dir_all("/dev/block").expect("a folder");
                let _ = std::os::unix::fs::symlink(format!("../{}", disk.name()), number);
                vec![(disk.id(), "DISK")]
            }),
            cause: Box::new(move || write_uevent(&disk.syspath(), "add")),
            is_end: Box::new(|m| m.title() == format!("add {}", disk.devpath())),
            again: Some(Box::new(|| write_uevent(&disk.syspath(), "add"))),
        });
    });
}

#[test]
fn killed_in_the_removal_of_a_disk() {
    in_cell(|| {
        std::fs::write("/run/flag", "").expect("a flag");
        let rival = our_disk();
        // Each round has a disk of its own, of the same name.
        let disk = our_disk();
        let (disk, rival) = (&disk, &rival);
        let id = disk.id();
        kill_everywhere(Case {
            rules: disk_rules(&format!("{}|{}", disk.name(), rival.name()), RUN),
            prepare: Box::new(move |live| {
                disk.add_again().expect("adds it again");
                let_trigger(disk);
                triggered(live, "change", rival);
                triggered(live, "change", disk);
                vec![(id.clone(), "DISK"), (rival.id(), "RIVAL")]
            }),
            cause: Box::new(move || disk.remove().expect("is removed")),
            is_end: Box::new(|m| m.title() == format!("remove {}", disk.devpath())),
            again: None,
        });
    });
}

/// A bridge is an interface without a peer.
const NET_RULES: &str = "SUBSYSTEM==\"net\", KERNEL==\"kill*|done*\", TAG+=\"all\", ENV{VALUE}=\"1\", RUN+=\"/bin/true\"\n\
    SUBSYSTEM==\"net\", ACTION==\"add\", KERNEL==\"kill0\", NAME=\"done0\"\n";

fn bridge() -> Option<String> {
    ["kill0", "done0"]
        .into_iter()
        .find(|name| Path::new("/sys/class/net").join(name).exists())
        .map(str::to_owned)
}

#[test]
fn killed_in_a_rename() {
    in_cell(|| {
        let ids = std::cell::RefCell::new(Vec::new());
        let ids = &ids;
        kill_everywhere(Case {
            rules: NET_RULES.into(),
            prepare: Box::new(move |live| {
                if let Some(name) = bridge() {
                    ip(&format!("link del {name}"));
                    live.announced_that("the removal", |m| {
                        m.title().starts_with("remove /devices/virtual/net/")
                    });
                }
                // The kernel numbers interfaces one after the other.
                ip("link add probe0 type bridge");
                let next = live::ifindex("probe0") + 1;
                ip("link del probe0");
                live.announced("remove", "/devices/virtual/net/probe0");
                *ids.borrow_mut() = vec![(format!("n{next}"), "LINK")];
                ids.borrow().clone()
            }),
            cause: Box::new(|| ip("link add kill0 type bridge")),
            is_end: Box::new(|m| m.title() == "move /devices/virtual/net/done0"),
            again: Some(Box::new(|| {
                let name = bridge().expect("it is there");
                write_uevent(&format!("/sys/class/net/{name}"), "add");
            })),
        });
    });
}

#[test]
fn killed_in_the_removal_of_an_interface() {
    in_cell(|| {
        kill_everywhere(Case {
            rules: NET_RULES.into(),
            prepare: Box::new(move |live| {
                ip("link add kill1 type bridge");
                live.announced("add", "/devices/virtual/net/kill1");
                vec![(format!("n{}", live::ifindex("kill1")), "LINK")]
            }),
            cause: Box::new(|| ip("link del kill1")),
            is_end: Box::new(|m| m.title() == "remove /devices/virtual/net/kill1"),
            again: None,
        });
    });
}

/// What a daemon that was killed has left, put aside.
const LEFT: &str = "for f in data tags links watch; do rm -rf /run/left/$f; mkdir -p /run/left; \
    cp -a /run/udev/$f /run/left/; done; rm -rf /run/left/dev; mkdir /run/left/dev; \
    for f in shared old new; do [ ! -e /dev/$f ] || cp -a /dev/$f /run/left/dev/; done";
const LEAVE: &str = "for f in data tags links watch; do rm -rf /run/udev/$f; cp -a /run/left/$f /run/udev/; done; \
    for f in shared old new; do rm -rf /dev/$f; [ ! -e /run/left/dev/$f ] || cp -a /run/left/dev/$f /dev/; done";

#[test]
fn killed_while_it_mends_what_a_killed_one_left() {
    in_cell(|| {
        let disks = [our_disk(), our_disk()];
        let [disk, rival] = &disks;
        let ids = [(disk.id(), "DISK"), (rival.id(), "RIVAL")];
        let rules = disk_rules(&format!("{}|{}", disk.name(), rival.name()), RUN);
        let mut live = Live::start(&rules);
        let prepare = |live: &mut Live| {
            let _ = std::fs::remove_file("/run/flag");
            triggered(live, "remove", disk);
            triggered(live, "add", disk);
            triggered(live, "change", rival);
            idle();
            std::fs::write("/run/flag", "").expect("a flag");
        };
        prepare(&mut live);
        triggered(&mut live, "change", disk);
        idle();
        let after = state_of(&ids);
        prepare(&mut live);
        // In the middle of it: some symlinks are new, the record is the old one.
        let stepper = Stepper::attach(live.pid()).expect("attaches");
        write_uevent(&disk.syspath(), "change");
        let ended = stepper.kill_at(14, || false).expect("is traced");
        assert!(matches!(ended, Ended::Killed(_)));
        drop(live);
        live::run("sh", &["-c", LEFT]);
        let mut killed = 0;
        for n in 0.. {
            live::run("sh", &["-c", LEAVE]);
            let log = std::fs::File::create("/run/log").expect("a log");
            let mut daemon = std::process::Command::new(live::daemon_path());
            let mut daemon = daemon.stderr(log).spawn().expect("starts");
            let stepper = Stepper::attach(daemon.id()).expect("attaches");
            let is_over = || state_of(&ids) == after && !Path::new("/run/udev/queue").exists();
            let ended = stepper.kill_at(n, is_over).expect("is traced");
            let _ = daemon.kill();
            let _ = daemon.wait();
            let Ended::Killed(call) = ended else { break };
            killed += 1;
            let live = Live::start(&rules);
            becomes(&ids, &[&after], &format!("killed in front of call {n} ({call})"));
            live.stop();
        }
        eprintln!("killed in front of each of {killed} calls");
        assert!(killed > 20);
    });
}
