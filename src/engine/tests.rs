//! The engine driven by a world in memory: order of effects, failures, and a seeded simulation that
//! compares any completion order with one event at a time.

use super::*;
use crate::model::effect::{Done, Effect, Sticky};
use crate::model::event::OrderedSet;
use crate::model::need::Exit;
use crate::model::properties::Property;
use crate::model::record::Record;
use crate::model::{Action, DeviceId, Errno, announcement};
use crate::rules::ask::{Attr, BuiltinResult};
use crate::rules::compile::{CompileOptions, SourceFile, compile};
use crate::rules::memory_world::Nobody;
use crate::rules::outcome::RunItem;
use crate::rules::{Answer, Ask};
use std::collections::BTreeMap;

fn rules(text: &str) -> Arc<RuleSet> {
    let file = SourceFile { path: "test.rules".into(), content: text.as_bytes().to_vec() };
    let compiled = compile(&[file], &CompileOptions { resolve_names: Default::default(), accounts: &Nobody });
    assert!(compiled.diagnostics.is_empty(), "{:?}", compiled.diagnostics);
    Arc::new(compiled.rules)
}

fn uevent(seqnum: u64, action: &str, devpath: &str, extra: &[&str]) -> Uevent {
    let mut lines =
        vec![format!("ACTION={action}"), format!("DEVPATH={devpath}"), format!("SEQNUM={seqnum}")];
    lines.extend(extra.iter().map(|s| s.to_string()));
    if !extra.iter().any(|e| e.starts_with("SUBSYSTEM=")) {
        lines.push("SUBSYSTEM=test".into());
    }
    Uevent::from_lines(lines.iter().map(|l| l.as_bytes())).unwrap()
}

/// Answers and performs in memory; requests wait in `open` until the test completes them.
struct World {
    engine: Engine,
    now: Now,
    open: Vec<Asked>,
    records: BTreeMap<DeviceId, Record>,
    sticky: BTreeMap<DeviceId, bool>,
    announced: Vec<BTreeMap<String, String>>,
    performed: Vec<(JobId, String)>,
    logs: Vec<String>,
    busy: Vec<bool>,
    /// Replies to effects by name, once each; the default is that all goes well.
    replies: Vec<(&'static str, Done)>,
    programs: BTreeMap<&'static str, bool>,
    /// Requests are replied to at once as this decides; None: never.
    eager: Option<Random>,
}

/// A request that waits for its reply.
#[derive(Clone, Debug)]
enum Asked {
    Ask(JobId, Ask),
    Perform(JobId, Effect),
    Run(JobId, RunItem),
}

impl Asked {
    fn of(job: JobId, request: JobRequest<'_>) -> Asked {
        match request {
            JobRequest::Ask(ask) => Asked::Ask(job, ask.clone()),
            JobRequest::Perform(effect) => Asked::Perform(job, effect.clone()),
            JobRequest::Run(item) => Asked::Run(job, item.clone()),
        }
    }
}

impl World {
    fn new(text: &str) -> World {
        World {
            engine: Engine::new(EngineConfig { coalesce_above: 99, ..EngineConfig::default() }, rules(text)),
            now: Now::from_secs(100),
            open: Vec::new(),
            records: BTreeMap::new(),
            sticky: BTreeMap::new(),
            announced: Vec::new(),
            performed: Vec::new(),
            logs: Vec::new(),
            busy: Vec::new(),
            replies: Vec::new(),
            programs: BTreeMap::new(),
            eager: None,
        }
    }

    fn input(&mut self, input: Input) {
        self.handle(input);
        while self.engine.can_start() || self.engine.can_go_on() {
            if self.engine.can_start() {
                self.handle(Input::Start);
            }
            if self.engine.can_go_on() {
                self.handle(Input::GoOn);
            }
        }
    }

    fn handle(&mut self, input: Input) {
        self.engine.handle(input, self.now);
        while let Some(output) = self.engine.poll(self.now) {
            match output {
                Output::Notice(Notice::Busy(busy)) => self.busy.push(busy),
                Output::Notice(Notice::Log { level, text }) => self.logs.push(format!("{level} {text}")),
                Output::Notice(Notice::LogLevel { .. }) => {}
                Output::Pause { .. } => {
                    if self.eager.as_mut().is_none_or(|random| random.below(2) == 0) {
                        self.engine.handle(Input::GoOn, self.now);
                    }
                }
                Output::Request { job, event, request } => {
                    assert!(event.seqnum.0 > 0);
                    let asked = Asked::of(job, request);
                    if self.eager.as_mut().is_some_and(|random| random.below(3) > 0) {
                        let (reply, job) = self.reply(asked);
                        self.engine.handle(Input::Reply { job, reply }, self.now);
                    } else {
                        self.open.push(asked);
                    }
                }
            }
        }
    }

    /// Completes the n-th open request.
    fn complete(&mut self, n: usize) {
        let asked = self.open.remove(n);
        let (reply, job) = self.reply(asked);
        self.input(Input::Reply { job, reply });
    }

    fn reply(&mut self, asked: Asked) -> (JobReply, JobId) {
        match asked {
            Asked::Ask(job, ask) => (JobReply::Answer(self.answer(&ask)), job),
            Asked::Run(job, item) => {
                self.performed.push((job, format!("Run {item:?}")));
                (JobReply::Ran, job)
            }
            Asked::Perform(job, effect) => (JobReply::Done(self.perform(job, effect)), job),
        }
    }

    fn answer(&self, ask: &Ask) -> Answer {
        match ask {
            Ask::Run { command } => {
                let success = self.programs.get(command.to_string().as_str()).copied().unwrap_or(true);
                Answer::Exit(Exit { success, output: command.clone(), truncated: false })
            }
            Ask::Parents => Answer::Parents(Arc::new([])),
            Ask::Attr { .. } => Answer::Attr(Attr::Missing),
            Ask::Mode { .. } => Answer::Mode(Err(Errno(libc::ENOTDIR))),
            Ask::Builtin { .. } => Answer::Builtin(BuiltinResult {
                success: true,
                alt_names: vec!["other".into()],
                ..BuiltinResult::default()
            }),
            Ask::WriteAttr { .. } | Ask::WriteSysctl { .. } => Answer::Written,
            Ask::User { .. } | Ask::Group { .. } => Answer::Id(None),
            Ask::ParentState(_) => Answer::Parent(Arc::default()),
            _ => Answer::Text(Ok(None)),
        }
    }

    fn perform(&mut self, job: JobId, effect: Effect) -> Done {
        let name = format!("{effect:?}").split([' ', '(']).next().unwrap().to_string();
        self.performed.push((job, format!("{effect:?}")));
        if let Some(at) = self.replies.iter().position(|(n, _)| *n == name) {
            return self.replies.remove(at).1;
        }
        match effect {
            Effect::ReadRecord { id } => return Done::Record(self.records.get(&id).cloned().map(Arc::new)),
            Effect::WriteRecord { id, record, sticky, .. } => {
                match sticky {
                    Sticky::AsBefore => {}
                    sticky => _ = self.sticky.insert(id.clone(), sticky == Sticky::Yes),
                }
                self.records.insert(id, (*record).clone());
            }
            Effect::RemoveRecord { id } => {
                self.records.remove(&id);
            }
            Effect::Announce { datagram } => {
                let message = announcement::parse(&datagram).unwrap().uevent;
                let pair = |p: Property| (p.name.to_string(), p.value.to_string());
                self.announced.push(message.properties.iter().map(pair).collect());
            }
            _ => {}
        }
        Done::Ok
    }

    /// Completes everything, first come first served.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            if self.open.is_empty() {
                return;
            }
            self.complete(0);
        }
        panic!("no end in sight: {} are open", self.open.len());
    }

    fn kinds(&self) -> Vec<&str> {
        self.performed.iter().map(|(_, e)| e.split([' ', '(']).next().unwrap()).collect()
    }

    fn record(&self, id: &str) -> Option<&Record> {
        self.records.get(&DeviceId::parse(id.as_bytes()).unwrap())
    }
}

fn properties(record: &Record) -> Vec<String> {
    record.properties.iter().map(|p| format!("{}={}", p.name, p.value)).collect()
}

const NET: &[&str] = &["SUBSYSTEM=net", "INTERFACE=e0", "IFINDEX=7"];
const DISK: &[&str] = &["SUBSYSTEM=block", "DEVTYPE=disk", "MAJOR=7", "MINOR=0", "DEVNAME=loop0"];

#[test]
fn a_new_device_is_recorded_before_it_is_announced() {
    let mut w = World::new("ENV{A}=\"1\", TAG+=\"t\", SYMLINK+=\"x\", RUN+=\"/bin/true\"");
    w.input(Input::Uevent(uevent(1, "add", "/devices/virtual/block/loop0", DISK)));
    w.settle();
    let expected = [
        "LockDisk",
        "ReadRecord",
        "DropWatch",
        "Node",
        "Symlinks",
        "NumberSymlink",
        "AddTags",
        "WriteRecord",
        "Run",
        "WriteRecord",
        "UnlockDisk",
        "Announce",
    ];
    assert_eq!(w.kinds(), expected);
    assert_eq!(properties(w.record("b7:0").unwrap()), ["A=1"]);
    assert!(w.performed[7].1.contains("ID_PROCESSING"), "until its RUN list has run");
    let message = &w.announced[0];
    assert_eq!((message["A"].as_str(), message["TAGS"].as_str()), ("1", ":t:"));
    assert_eq!(message["DEVLINKS"], "/dev/x");
    assert_eq!(message["USEC_INITIALIZED"], "100000000");
    assert!(!message.contains_key("ID_PROCESSING"));
    assert_eq!(w.busy, [true, false]);
    assert!(w.engine.is_idle());
}

#[test]
fn a_record_that_only_said_that_programs_run_does_not_stay() {
    let mut w = World::new("ACTION==\"add\", RUN+=\"/bin/true\"");
    w.input(Input::Uevent(uevent(1, "add", "/devices/x", &["SUBSYSTEM=acpi"])));
    w.settle();
    assert_eq!(w.kinds(), ["ReadRecord", "WriteRecord", "Run", "WriteRecord", "Announce"]);
    assert_eq!(properties(w.record("+acpi:x").unwrap()), [""; 0]);
    w.performed.clear();
    w.input(Input::Uevent(uevent(2, "change", "/devices/y", &["SUBSYSTEM=acpi"])));
    w.settle();
    assert_eq!(w.kinds(), ["ReadRecord", "Announce"], "a record with nothing to say is not written at all");
}

#[test]
fn what_a_rule_sets_in_one_event_is_gone_in_the_next_but_tags_and_age_stay() {
    let mut w = World::new(
        "ACTION==\"add\", ENV{A}=\"1\", TAG+=\"t\"\nACTION==\"change\", IMPORT{db}=\"A\", ENV{B}=\"$env{A}\"",
    );
    w.input(Input::Uevent(uevent(1, "add", "/devices/x", DISK)));
    w.settle();
    w.now += std::time::Duration::from_secs(5);
    w.input(Input::Uevent(uevent(2, "change", "/devices/x", DISK)));
    w.settle();
    let record = w.record("b7:0").unwrap();
    assert_eq!(properties(record), ["A=1", "B=1"]);
    assert_eq!(record.usec_initialized, Some(100_000_000));
    assert!(record.tags.contains(b"t") && !record.current_tags.contains(b"t"));
    let marked: Vec<&String> =
        w.performed.iter().map(|(_, e)| e).filter(|e| e.contains("ID_PROCESSING")).collect();
    assert_eq!(marked.len(), 1, "the old record says so while rules run: {marked:?}");
}

#[test]
fn remove_announces_what_the_record_held_and_leaves_nothing() {
    let mut w =
        World::new("SUBSYSTEM==\"block\", SYMLINK+=\"keep\", TAG+=\"x\", OPTIONS+=\"watch\", ENV{P}=\"1\"");
    w.input(Input::Uevent(uevent(1, "add", "/devices/x", DISK)));
    w.settle();
    assert!(w.kinds().contains(&"AddWatch"));
    w.performed.clear();
    w.input(Input::Uevent(uevent(2, "remove", "/devices/x", DISK)));
    w.settle();
    assert_eq!(
        w.kinds(),
        ["ReadRecord", "RemoveTags", "RemoveRecord", "DropWatch", "Symlinks", "NumberSymlink", "Announce"]
    );
    assert!(w.performed[4].1.contains("release: {\"keep\"}, claim: {}"), "{}", w.performed[4].1);
    let message = w.announced.last().unwrap();
    assert_eq!((message["P"].as_str(), message["TAGS"].as_str()), ("1", ":x:"));
    assert_eq!(message["DEVLINKS"], "/dev/keep");
    assert!(w.records.is_empty());
}

#[test]
fn a_renamed_interface_goes_on_under_its_new_name() {
    let mut w = World::new("ACTION==\"add\", NAME=\"e9\", IMPORT{builtin}=\"net_setup_link\"");
    let mut add = uevent(1, "add", "/devices/virtual/net/e0", NET);
    add.properties.set("SYNTH_UUID", "u-1");
    w.input(Input::Uevent(add));
    w.settle();
    assert_eq!(w.kinds(), ["ReadRecord", "WriteRecord", "Rename", "AddAltNames", "WriteRecord", "Announce"]);
    assert!(w.performed[1].1.contains("ID_RENAMING"));
    let message = &w.announced[0];
    assert_eq!(message["DEVPATH"], "/devices/virtual/net/e9");
    assert_eq!((message["INTERFACE"].as_str(), message["INTERFACE_OLD"].as_str()), ("e9", "e0"));
    assert_eq!((message["ID_RENAMING"].as_str(), message["SYNTH_UUID"].as_str()), ("1", "u-1"));
    w.input(Input::Uevent(uevent(
        2,
        "move",
        "/devices/virtual/net/e9",
        &["SUBSYSTEM=net", "INTERFACE=e9", "IFINDEX=7"],
    )));
    w.settle();
    assert!(properties(w.record("n7").unwrap()).is_empty(), "the move event drops ID_RENAMING");
}

#[test]
fn o12_failed_rename_keeps_the_properties() {
    let mut w = World::new(
        "ENV{B}=\"1\"\nENV{D}=\"1\", NAME=\"taken0\"\nENV{A}=\"1\", TAG+=\"x\", RUN+=\"/bin/true\"",
    );
    w.replies.push(("Rename", Done::Failed(Errno(libc::EEXIST))));
    w.input(Input::Uevent(uevent(1, "add", "/devices/virtual/net/e0", NET)));
    w.settle();
    assert_eq!(properties(w.record("n7").unwrap()), ["B=1", "D=1", "A=1"]);
    assert!(w.kinds().contains(&"AddTags"), "the index agrees with the record");
    assert!(!w.kinds().contains(&"Run"));
    let message = &w.announced[0];
    assert_eq!(
        (message["DEVPATH"].as_str(), message["INTERFACE"].as_str()),
        ("/devices/virtual/net/e0", "e0")
    );
    assert!(!message.contains_key("ID_RENAMING") && !message.contains_key("INTERFACE_OLD"));
    assert_eq!(message["UDEV_WORKER_FAILED"], "1");
    assert_eq!(
        (message["UDEV_WORKER_ERRNO"].as_str(), message["UDEV_WORKER_ERRNO_NAME"].as_str()),
        ("17", "EEXIST")
    );
    assert_eq!(w.announced.len(), 1);
}

#[test]
fn an_interface_that_is_busy_or_gets_an_impossible_name_keeps_its_own() {
    for (name, replies) in [("e9", vec![("Rename", Done::Failed(Errno(libc::EBUSY)))]), ("all", vec![])] {
        let mut w = World::new(&format!("NAME=\"{name}\""));
        w.replies = replies;
        w.input(Input::Uevent(uevent(1, "add", "/devices/virtual/net/e0", NET)));
        w.settle();
        assert_eq!(w.announced[0]["INTERFACE"], "e0");
        assert!(!w.announced[0].contains_key("UDEV_WORKER_FAILED"));
        assert_eq!(w.logs.len(), 1, "{:?}", w.logs);
    }
}

#[test]
fn rules_that_fail_leave_the_old_record_and_are_announced_as_failed() {
    let mut w = World::new(
        "ENV{A}=\"$env{ACTION}\"\nACTION==\"change\", TEST==\"x/*/y\", ENV{Z}=\"1\"\nENV{C}=\"1\", RUN+=\"/bin/true\"",
    );
    w.input(Input::Uevent(uevent(1, "add", "/devices/x", DISK)));
    w.settle();
    w.performed.clear();
    w.input(Input::Uevent(uevent(2, "change", "/devices/x", DISK)));
    w.settle();
    assert!(!w.kinds().contains(&"Run"));
    assert_eq!(properties(w.record("b7:0").unwrap()), ["A=add", "C=1"]);
    let message = &w.announced[1];
    assert_eq!((message["UDEV_WORKER_ERRNO_NAME"].as_str(), message["A"].as_str()), ("ENOTDIR", "change"));
}

#[test]
fn a_node_that_was_watched_is_watched_again_when_its_event_fails() {
    // Where it fails, and whether it was watched.
    for (effect, was_watched) in [("", true), ("", false), ("Node", true), ("WriteRecord", true)] {
        let mut w = World::new(
            "ENV{A}=\"1\"\nENV{FAIL}==\"1\", TEST==\"x/*/y\", ENV{Z}=\"1\"\nSYMLINK+=\"x\", MODE=\"0600\"",
        );
        let fail = if effect.is_empty() { "FAIL=1" } else { "FAIL=0" };
        w.input(Input::Uevent(uevent(1, "add", "/devices/x", &[DISK, &["FAIL=0"]].concat())));
        w.settle();
        w.performed.clear();
        if was_watched {
            w.replies.push(("DropWatch", Done::WasWatched));
        }
        w.input(Input::Uevent(uevent(2, "change", "/devices/x", &[DISK, &[fail]].concat())));
        while !w.kinds().contains(&"DropWatch") {
            w.complete(0);
        }
        if !effect.is_empty() {
            w.replies.push((effect, Done::Failed(Errno(libc::ENOSPC))));
        }
        w.settle();
        assert!(w.announced[1].contains_key("UDEV_WORKER_FAILED"), "{effect}");
        let kinds = w.kinds();
        let added = kinds.iter().position(|kind| *kind == "AddWatch");
        assert_eq!(added.is_some(), was_watched, "{effect}: {kinds:?}");
        let unlocked = kinds.iter().position(|kind| *kind == "UnlockDisk");
        assert!(added.is_none() || added < unlocked, "{effect}: {kinds:?}");
        assert!(!properties(w.record("b7:0").unwrap()).contains(&"ID_PROCESSING=1".to_owned()));
    }
}

#[test]
fn a_record_that_was_to_persist_persists_while_events_run_and_when_their_rules_fail() {
    let mut w = World::new(
        "ACTION==\"add\", OPTIONS=\"db_persist\"\nPROGRAM==\"/bin/true\", ENV{P}=\"1\"\nENV{FAIL}==\"1\", TEST==\"x/*/y\", ENV{Z}=\"1\"",
    );
    let disk = DeviceId::parse(b"b7:0").unwrap();
    w.input(Input::Uevent(uevent(1, "add", "/devices/x", DISK)));
    w.settle();
    assert_eq!(w.sticky.get(&disk), Some(&true));
    w.input(Input::Uevent(uevent(2, "change", "/devices/x", &[DISK, &["FAIL=1"]].concat())));
    while !w.open.iter().any(|output| matches!(output, Asked::Ask(_, Ask::Run { .. }))) {
        w.complete(0);
    }
    assert!(properties(w.record("b7:0").unwrap()).contains(&"ID_PROCESSING=1".to_owned()));
    assert_eq!(w.sticky.get(&disk), Some(&true), "while it is processed");
    w.settle();
    assert_eq!((w.announced.len(), w.sticky.get(&disk)), (2, Some(&true)), "the rules failed");
    w.input(Input::Uevent(uevent(3, "change", "/devices/x", DISK)));
    w.settle();
    assert_eq!(w.sticky.get(&disk), Some(&false), "each event says anew");
}

#[test]
fn a_full_disk_fails_the_event_and_no_other() {
    let mut w = World::new("ENV{A}=\"1\"");
    w.replies.push(("WriteRecord", Done::Failed(Errno(libc::ENOSPC))));
    for n in 1..=2 {
        w.input(Input::Uevent(uevent(
            n,
            "add",
            &format!("/devices/x{n}"),
            &["MAJOR=1", &format!("MINOR={n}")],
        )));
    }
    w.settle();
    let failed: Vec<bool> = w.announced.iter().map(|m| m.contains_key("UDEV_WORKER_FAILED")).collect();
    assert_eq!(failed, [true, false]);
    // Who could not write has said so; that is enough.
    let loud: Vec<_> = w.logs.iter().filter(|line| !line.starts_with("DEBUG ")).collect();
    assert!(loud.is_empty(), "{loud:?}");
}

#[test]
fn a_locked_disk_is_tried_again_and_given_up_after_three_minutes() {
    let mut w = World::new("ENV{A}=\"1\"");
    w.replies = vec![("LockDisk", Done::Busy), ("LockDisk", Done::Busy)];
    w.input(Input::Uevent(uevent(1, "add", "/devices/x", DISK)));
    w.settle();
    assert_eq!(w.engine.poll_timeout(), Some(w.now + Duration::from_millis(200)));
    assert_eq!(w.engine.status()[0].phase, "lock");
    for (devpath, kinds) in [("/devices/xy", 1), ("/devices/x/x1", 2)] {
        w.input(Input::DiskMayBeFree { devpath: devpath.into() });
        w.settle();
        assert_eq!(w.kinds().len(), kinds, "{devpath}");
    }
    assert_eq!(w.kinds(), ["LockDisk", "LockDisk"]);
    w.now += Duration::from_millis(200);
    w.input(Input::Tick);
    w.settle();
    assert_eq!(w.announced.len(), 1);

    w.input(Input::Uevent(uevent(2, "change", "/devices/x", DISK)));
    w.replies = vec![("LockDisk", Done::Busy), ("LockDisk", Done::Busy)];
    w.settle();
    w.now += Duration::from_secs(181);
    w.input(Input::Tick);
    w.settle();
    assert_eq!(w.announced[1]["UDEV_WORKER_ERRNO_NAME"], "ETIMEDOUT");
    assert!(!w.announced[1].contains_key("A"), "rules never ran");
    let expected =
        "ERROR change /devices/x (SEQNUM=2): its disk is locked for more than 180 s; the event fails";
    assert_eq!(w.logs.last().unwrap(), expected);
}

#[test]
fn exit_finishes_what_has_begun_and_leaves_the_rest() {
    let mut w = World::new("PROGRAM==\"/bin/x\", ENV{A}=\"1\"");
    w.input(Input::Uevent(uevent(1, "add", "/devices/a", &[])));
    while !matches!(w.open.first(), Some(Asked::Ask(..))) {
        w.complete(0);
    }
    w.input(Input::Uevent(uevent(2, "change", "/devices/a", &[])));
    w.replies.push(("LockDisk", Done::Busy));
    w.input(Input::Uevent(uevent(3, "add", "/devices/x", DISK)));
    w.complete(1);
    assert!(!w.engine.has_exited());
    w.input(Input::Exit);
    w.settle();
    assert!(w.engine.has_exited());
    assert_eq!(w.announced.len(), 1);
    assert_eq!(w.announced[0]["SEQNUM"], "1");
}

#[test]
fn a_stopped_queue_takes_events_in_and_starts_none() {
    let mut w = World::new("ENV{A}=\"1\"");
    w.input(Input::StopQueue);
    w.input(Input::Uevent(uevent(1, "add", "/devices/a", &[])));
    assert!(w.open.is_empty());
    assert_eq!((w.busy.as_slice(), w.engine.queue_len()), ([true].as_slice(), (1, 0)));
    w.input(Input::StartQueue);
    w.settle();
    assert_eq!(w.busy, [true, false]);
}

#[test]
fn exec_delay_comes_before_programs_and_a_used_up_budget_ends_the_run_list() {
    let mut w = World::new("RUN+=\"/bin/a\", RUN+=\"/bin/b\"");
    w.engine.set_config(EngineConfig {
        exec_delay: Duration::from_secs(2),
        event_timeout: Duration::from_secs(5),
        ..EngineConfig::default()
    });
    w.input(Input::Uevent(uevent(1, "add", "/devices/a", &[])));
    w.settle();
    assert!(!w.kinds().contains(&"Run"));
    w.now += Duration::from_secs(2);
    w.input(Input::Tick);
    w.settle();
    assert_eq!(w.kinds().iter().filter(|k| **k == "Run").count(), 1);
    w.now += Duration::from_secs(4);
    w.input(Input::Tick);
    w.settle();
    assert_eq!(w.kinds().iter().filter(|k| **k == "Run").count(), 1);
    assert!(w.logs.iter().any(|l| l.contains("time is used up")), "{:?}", w.logs);
    assert_eq!(w.announced.len(), 1);
}

#[test]
fn every_uuid_is_answered_even_when_its_event_was_swallowed() {
    let mut w = World::new("ENV{A}=\"1\"");
    w.input(Input::StopQueue);
    for n in 1..=100 {
        w.input(Input::Uevent(uevent(n, "change", &format!("/devices/f{n}"), &[])));
    }
    for n in 5001..=5003 {
        w.input(Input::Uevent(uevent(n, "change", "/devices/z", &[&format!("SYNTH_UUID=u{n}")])));
    }
    w.input(Input::StartQueue);
    w.settle();
    let answered: Vec<&str> =
        w.announced.iter().filter_map(|m| m.get("SYNTH_UUID")).map(String::as_str).collect();
    assert_eq!(answered, ["u5001", "u5002", "u5003"]);
    assert_eq!(w.engine.counters().merged, 2);
}

/// xorshift: the seed is printed when a run fails.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

const SIMULATED: &str = "PROGRAM==\"/p $kernel\", ENV{R}=\"$result\"\n\
    ACTION==\"add\", ENV{N}=\"$kernel\", TAG+=\"t\", SYMLINK+=\"l/$kernel\"\n\
    ACTION==\"change\", IMPORT{db}=\"N\", RUN+=\"/r $env{N}\"\n\
    SUBSYSTEM==\"net\", ACTION==\"add\", NAME=\"n$env{IFINDEX}\"\n";

/// A plausible stream: devices come, change and go; each device's own events are in order.
fn stream(random: &mut Random, length: usize) -> Vec<Uevent> {
    let mut alive = [false; 6];
    let mut events = Vec::new();
    for seqnum in 1..=length as u64 {
        let d = random.below(alive.len());
        let action = match (alive[d], random.below(3)) {
            (false, _) => "add",
            (true, 0) => "remove",
            (true, _) => "change",
        };
        alive[d] = action != "remove";
        let event = match d {
            0 | 1 => {
                let (index, name) = (format!("IFINDEX={}", d + 1), format!("/devices/virtual/net/e{d}"));
                uevent(seqnum, action, &name, &["SUBSYSTEM=net", &index, "INTERFACE=e"])
            }
            2 => uevent(seqnum, action, "/devices/bus/disk", &["MAJOR=8", "MINOR=0", "DEVNAME=disk"]),
            3 => uevent(seqnum, action, "/devices/bus/disk/part", &["MAJOR=8", "MINOR=1", "DEVNAME=part"]),
            _ => uevent(
                seqnum,
                action,
                &format!("/devices/other{d}"),
                &["MAJOR=9", &format!("MINOR={d}"), "DEVNAME=o"],
            ),
        };
        events.push(event);
    }
    events
}

/// What one device has seen: everything but the job number.
fn per_device(w: &World) -> BTreeMap<String, Vec<String>> {
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for message in &w.announced {
        let mut message = message.clone();
        message.remove("USEC_INITIALIZED");
        let device = format!("{:?}{:?}", message.get("MINOR"), message.get("IFINDEX"));
        seen.entry(device).or_default().push(format!("{message:?}"));
    }
    seen
}

#[test]
fn any_order_of_completion_gives_each_device_what_one_event_at_a_time_gives() {
    for seed in 1..=150u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let events = stream(&mut random, 40);
        let mut slow = World::new(SIMULATED);
        for event in &events {
            slow.input(Input::Uevent(event.clone()));
            slow.settle();
        }
        let mut fast = World::new(SIMULATED);
        fast.eager = (seed % 2 == 0).then_some(Random(seed));
        let mut waiting = events.into_iter();
        loop {
            let more = waiting.len() > 0;
            if more && random.below(2) == 0 {
                fast.input(Input::Uevent(waiting.next().unwrap()));
            } else if !fast.open.is_empty() {
                let n = random.below(fast.open.len());
                fast.complete(n);
            } else if !more {
                break;
            }
        }
        assert!(fast.engine.is_idle(), "seed {seed}");
        assert_eq!(per_device(&fast), per_device(&slow), "seed {seed}");
        let ages = |w: &World| w.records.keys().cloned().collect::<Vec<_>>();
        assert_eq!(ages(&fast), ages(&slow), "seed {seed}");
        let tags: OrderedSet = ["t"].into_iter().collect();
        assert!(fast.records.values().all(|r| r.tags == tags), "seed {seed}");
    }
}

#[test]
fn actions_that_are_not_remove_take_one_path() {
    for action in Action::ALL.into_iter().filter(|a| *a != Action::Remove) {
        let mut w = World::new("ENV{A}=\"1\"");
        w.input(Input::Uevent(uevent(1, action.as_str(), "/devices/x", DISK)));
        w.settle();
        assert_eq!(properties(w.record("b7:0").unwrap()), ["A=1"], "{action}");
    }
}

/// Has no time ever, and replies to all but programs; the devpaths of announced events.
struct Hurried(Vec<String>);

fn handle(engine: &mut Engine, input: Input, hurried: &mut Hurried) {
    let now = Now::from_secs(1);
    engine.handle(input, now);
    while let Some(output) = engine.poll(now) {
        let (job, event, request) = match output {
            Output::Request { job, event, request } => (job, event, request),
            Output::Pause { .. } | Output::Notice(Notice::Busy(_)) => continue,
            other => panic!("{other:?}"),
        };
        let reply = match request {
            JobRequest::Ask(_) => JobReply::Answer(Answer::Attr(Attr::Missing)),
            JobRequest::Perform(Effect::ReadRecord { .. }) => JobReply::Done(Done::Record(None)),
            JobRequest::Perform(effect) => {
                if matches!(effect, Effect::Announce { .. }) {
                    hurried.0.push(event.device.devpath.to_string());
                }
                JobReply::Done(Done::Ok)
            }
            JobRequest::Run(item) => panic!("{item:?}"),
        };
        engine.handle(Input::Reply { job, reply }, now);
    }
}

/// Many turns of one event: others are through before it, those of its device wait, and it ends all the same.
#[test]
fn rules_that_take_long_pause_and_hold_up_only_their_own_device() {
    let slow: String =
        (0..400).map(|n| format!("KERNEL==\"slow\", ATTR{{a{n}}}==\"x\", TAG+=\"t\"\n")).collect();
    let mut engine = Engine::new(EngineConfig::default(), rules(&slow));
    let mut hurried = Hurried(Vec::new());
    for (n, name) in ["slow", "slow", "quick"].into_iter().enumerate() {
        handle(
            &mut engine,
            Input::Uevent(uevent(n as u64 + 1, "change", &format!("/devices/{name}"), &[])),
            &mut hurried,
        );
    }
    while engine.can_start() {
        handle(&mut engine, Input::Start, &mut hurried);
    }
    assert_eq!(hurried.0, ["/devices/quick"]);
    assert!(engine.can_go_on() && engine.queue_len() == (1, 1));
    let mut turns = 0;
    while engine.can_go_on() || engine.can_start() {
        assert!(!engine.can_start() || turns > 0);
        let input = if engine.can_start() { Input::Start } else { Input::GoOn };
        handle(&mut engine, input, &mut hurried);
        turns += 1;
    }
    assert_eq!(hurried.0, ["/devices/quick", "/devices/slow", "/devices/slow"]);
    assert!(turns > 10 && engine.is_idle(), "{turns}");
}

/// An exit waits for a job that has paused, which goes on and ends.
#[test]
fn a_job_that_has_paused_is_finished_before_the_exit() {
    let slow: String = (0..400).map(|n| format!("ATTR{{a{n}}}==\"x\", TAG+=\"t\"\n")).collect();
    let mut engine = Engine::new(EngineConfig::default(), rules(&slow));
    let mut hurried = Hurried(Vec::new());
    handle(&mut engine, Input::Uevent(uevent(1, "change", "/devices/slow", &[])), &mut hurried);
    handle(&mut engine, Input::Start, &mut hurried);
    handle(&mut engine, Input::Exit, &mut hurried);
    assert!(engine.can_go_on() && !engine.has_exited());
    while engine.can_go_on() {
        handle(&mut engine, Input::GoOn, &mut hurried);
    }
    assert!(engine.has_exited() && hurried.0.len() == 1);
}
