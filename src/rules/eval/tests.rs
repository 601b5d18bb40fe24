//! The evaluator on a world in memory. Every evaluation of these tests is run in four ways that must
//! agree: plain, specialised, cloned at each question, and with a pause after each step.

mod open_cases;
mod pauses;
mod random;
mod situations;

use crate::model::{Action, Event, ResolveNames};
use crate::rules::ask::Ask;
use crate::rules::compile::{CompileOptions, SourceFile, compile};
use crate::rules::eval::{EvalConfig, Evaluation, Halt, LINE_COST, Note, TurnEnd};
use crate::rules::memory_world::{MemoryDevice, MemoryWorld, Nobody};
use crate::rules::outcome::{Outcome, RunItem};
use crate::rules::program::RuleSet;
use crate::rules::skip::{EventKind, Specialised};
use bstr::ByteSlice;
use std::sync::Arc;

/// All that an outcome says, as text.
fn summary(outcome: &Outcome) -> String {
    let event = &outcome.event;
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        event.properties,
        event.symlinks.iter().collect::<Vec<_>>(),
        event.tags.sticky.iter().collect::<Vec<_>>(),
        event.tags.current.iter().collect::<Vec<_>>(),
        outcome.name,
        outcome.owner,
        outcome.group,
        outcome.mode,
        outcome.seclabels,
        outcome.run,
        outcome.watch,
        outcome.db_persist,
        outcome.link_priority,
        outcome.log_level,
        outcome.alt_names,
        outcome.failure,
    )
}

/// An evaluation with its outcome.
struct Begun {
    evaluation: Evaluation,
    outcome: Outcome,
}

impl Begun {
    fn new(program: Arc<Specialised>, event: &Event, config: &EvalConfig) -> Begun {
        Begun { evaluation: Evaluation::start(program, config.clone()), outcome: Outcome::new(event.clone()) }
    }
}

/// Goes on to the end with the shortest turns: a pause after each step.
fn finish_in_steps(begun: Begun, world: &mut MemoryWorld) -> (Outcome, Vec<Note>) {
    let Begun { mut evaluation, mut outcome } = begun;
    loop {
        evaluation.shorten_turn(LINE_COST);
        match evaluation.go_on(&mut outcome) {
            TurnEnd::Pauses => {}
            TurnEnd::Done => break,
            TurnEnd::Asks => {
                let ask = evaluation.asked().expect("it asks").clone();
                let answer = world.answer(&outcome.event, &ask);
                evaluation.answer(answer);
            }
        }
    }
    let notes = evaluation.take_notes();
    (outcome, notes)
}

/// Goes on to the end. With `fork`, clones at each question; every clone must come to the same end
/// as the original.
fn finish(begun: Begun, world: &mut MemoryWorld, fork: bool) -> (Outcome, Vec<Note>) {
    let Begun { mut evaluation, mut outcome } = begun;
    let mut forks = Vec::new();
    while let Halt::Ask(ask) = evaluation.run(&mut outcome) {
        assert_eq!(evaluation.run(&mut outcome), Halt::Ask(ask.clone()), "the question stays open");
        if fork {
            let begun = Begun { evaluation: evaluation.clone(), outcome: outcome.clone() };
            let (forked, _) = finish(begun, &mut world.clone(), false);
            forks.push((ask.clone(), summary(&forked)));
        }
        let answer = world.answer(&outcome.event, &ask);
        evaluation.answer(answer);
    }
    assert_eq!(evaluation.run(&mut outcome), Halt::Done);
    let notes = evaluation.take_notes();
    let expected = summary(&outcome);
    for (ask, summary) in forks {
        assert_eq!(summary, expected, "cloned at {ask:?}");
    }
    (outcome, notes)
}

/// Evaluates in all three ways.
fn evaluate_all_ways(
    rules: Arc<RuleSet>,
    event: &Event,
    world: &mut MemoryWorld,
    config: &EvalConfig,
) -> (Outcome, Vec<Note>) {
    let kind = EventKind::of(event);
    let plain = Arc::new(Specialised::plain(rules.clone(), kind));
    let folded = Arc::new(Specialised::new(rules, kind));
    let (mut other, mut third) = (world.clone(), world.clone());
    let start = |program| Begun::new(program, event, config);
    let (expected, expected_notes) = finish(start(plain), &mut other, false);
    let (paused, paused_notes) = finish_in_steps(start(folded.clone()), &mut third);
    assert_eq!(summary(&paused), summary(&expected), "with pauses against plain");
    assert_eq!(paused_notes, expected_notes, "with pauses against plain");
    let (outcome, notes) = finish(start(folded), world, true);
    assert_eq!(summary(&outcome), summary(&expected), "specialised against plain");
    assert_eq!(notes, expected_notes, "specialised against plain");
    (outcome, notes)
}

/// What most tests want to look at.
struct Evaluated {
    outcome: Outcome,
    notes: Vec<Note>,
    asked: Vec<Ask>,
}

impl Evaluated {
    fn env(&self, name: &str) -> Option<String> {
        self.outcome.event.properties.get(name).map(|v| v.to_str_lossy().into_owned())
    }

    fn is_set(&self, name: &str) -> bool {
        self.env(name).is_some()
    }

    /// Those of these properties that are set.
    fn set<'n>(&self, names: &[&'n str]) -> Vec<&'n str> {
        names.iter().copied().filter(|n| self.is_set(n)).collect()
    }

    fn links(&self) -> Vec<String> {
        self.outcome.event.symlinks.iter().map(|l| l.to_str_lossy().into_owned()).collect()
    }

    fn tags(&self) -> Vec<String> {
        self.outcome.event.tags.current.iter().map(|t| t.to_string()).collect()
    }

    fn run(&self) -> Vec<String> {
        let text = |item: &RunItem| match item {
            RunItem::Program(command) | RunItem::Builtin(_, command) => command.to_string(),
        };
        self.outcome.run.iter().map(text).collect()
    }

    fn times_asked(&self, wanted: impl Fn(&Ask) -> bool) -> usize {
        self.asked.iter().filter(|ask| wanted(ask)).count()
    }
}

/// Evaluates rules text.
fn run_with(rules: &str, event: &Event, world: &MemoryWorld, config: &EvalConfig) -> Evaluated {
    let mut world = world.clone();
    let (outcome, notes) = evaluate_all_ways(compiled(&[rules]), event, &mut world, config);
    Evaluated { outcome, notes, asked: world.asked }
}

fn run(rules: &str, event: &Event, world: &MemoryWorld) -> Evaluated {
    run_with(rules, event, world, &EvalConfig { strict_names: true, ..EvalConfig::default() })
}

/// Nobody has an account, so that names are asked for.
fn compiled(files: &[&str]) -> Arc<RuleSet> {
    let files: Vec<SourceFile> = (0..)
        .zip(files)
        .map(|(i, text)| SourceFile { path: format!("{i}.rules").into(), content: text.as_bytes().to_vec() })
        .collect();
    let options = CompileOptions { resolve_names: ResolveNames::Late, accounts: &Nobody };
    Arc::new(compile(&files, &options).rules)
}

/// A virtual device without parents.
fn null() -> Event {
    let properties = [("MAJOR", "1"), ("MINOR", "3"), ("DEVNAME", "/dev/null"), ("DEVMODE", "0666")];
    crate::rules::memory_world::event(Action::Add, "/devices/virtual/mem/null", "mem", &properties)
}

const HOST: &str = "/devices/pci0000:00/0000:00:1f.2";
const SCSI: &str = "/devices/pci0000:00/0000:00:1f.2/host0/target0:0:0/0:0:0:0";
const SDA: &str = "/devices/pci0000:00/0000:00:1f.2/host0/target0:0:0/0:0:0:0/block/sda";
const SDA1: &str = "/devices/pci0000:00/0000:00:1f.2/host0/target0:0:0/0:0:0:0/block/sda/sda1";

fn sda() -> Event {
    let properties = [("MAJOR", "8"), ("MINOR", "0"), ("DEVNAME", "/dev/sda"), ("DEVTYPE", "disk")];
    crate::rules::memory_world::event(Action::Add, SDA, "block", &properties)
}

fn sda1() -> Event {
    let properties = [("MAJOR", "8"), ("MINOR", "1"), ("DEVNAME", "/dev/sda1"), ("DEVTYPE", "partition")];
    crate::rules::memory_world::event(Action::Add, SDA1, "block", &properties)
}

fn veth() -> Event {
    let properties = [("INTERFACE", "veth0"), ("IFINDEX", "7")];
    crate::rules::memory_world::event(Action::Add, "/devices/virtual/net/veth0", "net", &properties)
}

/// A SCSI disk with a partition, its host, and a few virtual devices.
fn machine() -> MemoryWorld {
    let mut world = MemoryWorld::default();
    let mut host = MemoryDevice::new(HOST, "pci", &[("vendor", "0x8086\n")]);
    host.driver = "ahci".into();
    let mut scsi = MemoryDevice::new(
        SCSI,
        "scsi",
        &[
            ("vendor", "ATA     \n"),
            ("model", "ST910021AS      \n"),
            ("queue_depth", "1\n"),
            ("type", "0\n"),
            ("whitespace_test", "WHITE  SPACE   \n"),
        ],
    );
    scsi.driver = "sd".into();
    let mut disk = MemoryDevice::new(
        SDA,
        "block",
        &[("size", "1000\n"), ("queue/nr_requests", "128\n"), ("range", "16\n"), ("empty", "\n")],
    );
    disk.properties = [("DEVNAME", "/dev/sda"), ("DEVTYPE", "disk"), ("PARENT_A", "1"), ("OTHER", "2")]
        .into_iter()
        .collect();
    let part =
        MemoryDevice::new(SDA1, "block", &[("size", "10\n"), ("test:colon+plus", "?\n"), ("empty", "\n")]);
    let eth =
        MemoryDevice::new("/devices/pci0000:00/eth/net/eth0", "net", &[("address", "00:11:22:33:44:55\n")]);
    let dmi = MemoryDevice::new("/devices/virtual/dmi/id", "dmi", &[("product_name", "Virtual Thing\n")]);
    let null = MemoryDevice::new("/devices/virtual/mem/null", "mem", &[("dev", "1:3\n")]);
    let veth = MemoryDevice::new("/devices/virtual/net/veth0", "net", &[("address", "0a:00:00:00:00:01\n")]);
    world.devices = vec![host, scsi, disk, part, eth, dmi, null, veth];
    world.program("/bin/true", "");
    world
}
