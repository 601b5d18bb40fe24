//! What is fuzzed: functions over bytes that panic when something is wrong. Used by ../fuzz.rs and by libfuzzer/.

use bstr::{BString, ByteSlice};
use mudev::links::{decode, wire};
use mudev::model::{Action, Event, Properties, ResolveNames, Uevent, announcement, control, record};
use mudev::rules::eval::{EvalConfig, Evaluation, TurnEnd};
use mudev::rules::memory_world::{self, MemoryDevice, MemoryWorld, OnlyRoot};
use mudev::rules::outcome::Outcome;
use mudev::rules::skip::{EventKind, Specialised};
use mudev::rules::{compile, glob, pattern, subst};
use std::sync::Arc;

/// Name, which is that of the folder of its corpus, and function.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: [Target; 10] = [
    ("rules", rules),
    ("eval", eval),
    ("pattern", pattern_),
    ("subst", subst_),
    ("uevent", uevent),
    ("record", record_),
    ("properties", properties),
    ("announcement", announcement_),
    ("control", control_),
    ("netlink", netlink),
];

fn compiled(bytes: &[u8]) -> compile::Compiled {
    let file = compile::SourceFile { path: "fuzz.rules".into(), content: bytes.to_vec() };
    let options = compile::CompileOptions { resolve_names: ResolveNames::Early, accounts: &OnlyRoot };
    compile::compile(&[file], &options)
}

/// Any bytes are rules or complaints.
fn rules(bytes: &[u8]) {
    let compiled = compiled(bytes);
    assert!(compiled.rules.lines.len() <= bytes.len());
    for diagnostic in &compiled.diagnostics {
        let _ = format!("{diagnostic:?}");
    }
}

/// Rules on a disk in a small world: specialised or not, with pauses or without, the outcome is the same, and there is one.
fn eval(bytes: &[u8]) {
    // Longer ones find nothing more and take long.
    if bytes.len() > 4096 {
        return;
    }
    let rules = Arc::new(compiled(bytes).rules);
    let event = disk();
    let plain = Specialised::plain(rules.clone(), EventKind::of(&event));
    let folded = Specialised::new(rules, EventKind::of(&event));
    assert_eq!(outcome(plain, event.clone()), outcome(folded, event));
}

const PARENT: &str = "/devices/pci0/host0/0:0:0:0";

fn disk() -> Event {
    let properties = [("MAJOR", "8"), ("MINOR", "0"), ("DEVNAME", "/dev/sda"), ("DEVTYPE", "disk")];
    memory_world::event(Action::Add, &format!("{PARENT}/block/sda"), "block", &properties)
}

fn outcome(program: Specialised, event: Event) -> String {
    let mut parent = MemoryDevice::new(PARENT, "scsi", &[("vendor", "ATA  \n"), ("model", "X Y\n")]);
    parent.driver = "sd".into();
    parent.properties = [("DEVNAME", "/dev/sg0"), ("A", "1"), ("B", "2")].into_iter().collect();
    let disk =
        MemoryDevice::new(&event.device.devpath.to_string(), "block", &[("size", "1000\n"), ("ro", "0\n")]);
    let mut world = MemoryWorld { devices: vec![parent, disk], ..MemoryWorld::default() };
    world.file("/f", 0o644, "A=1\nB='x y'\n#C=3\nD");
    world.program("p", "A=5\nE=6 7\n");
    let mut outcome = Outcome::new(event);
    let mut evaluation = Evaluation::start(Arc::new(program), EvalConfig::default());
    let mut questions = 0;
    loop {
        match evaluation.go_on(&mut outcome) {
            TurnEnd::Done => break,
            TurnEnd::Pauses => {}
            TurnEnd::Asks => {
                questions += 1;
                assert!(questions < 100_000, "it asks for ever: {:?}", evaluation.asked());
                let ask = evaluation.asked().expect("it asks").clone();
                let answer = world.answer(&outcome.event, &ask);
                evaluation.answer(answer);
            }
        }
    }
    let event = &outcome.event;
    let lists = [&event.symlinks, &event.tags.sticky, &event.tags.current]
        .map(|list| list.iter().map(BString::from).collect::<Vec<_>>());
    format!(
        "{:?} {lists:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        event.properties,
        outcome.name,
        outcome.owner,
        outcome.group,
        outcome.mode,
        outcome.run,
        outcome.watch,
        outcome.failure
    )
}

/// Patterns against the C library's fnmatch(3), the reference of the language. Without `*`, `?` and `[` in any of
/// its alternatives a value is compared byte for byte, backslashes too, as 252 does.
fn pattern_(bytes: &[u8]) {
    let (pattern_text, subject) = bytes.split_once_str(b"\0").unwrap_or((bytes, b""));
    // Longer ones make fnmatch itself slow; a NUL or a `|` means something else to one of the two.
    if bytes.len() > 48 || subject.contains(&0) {
        return;
    }
    let ours = pattern::Pattern::compile(pattern_text, false).matches(subject);
    let mut alternatives = pattern_text.split(|&b| b == b'|');
    if !glob::is_glob(pattern_text) {
        assert_eq!(ours, alternatives.any(|alternative| alternative == subject));
        return;
    }
    let subject = std::ffi::CString::new(subject).expect("no NUL");
    let theirs = alternatives.any(|alternative| {
        let alternative = std::ffi::CString::new(alternative).expect("no NUL");
        unsafe { libc::fnmatch(alternative.as_ptr(), subject.as_ptr(), 0) == 0 }
    });
    assert!(ours == theirs, "ours {ours}, fnmatch {theirs}");
}

fn subst_(bytes: &[u8]) {
    let (template, _) = subst::Template::parse(bytes);
    if bytes.find_byteset(b"$%").is_none() {
        assert_eq!(template.as_literal(), Some(bytes.as_bstr()));
    }
}

fn uevent(bytes: &[u8]) {
    if let Ok(uevent) = Uevent::parse_kernel(bytes) {
        assert!(uevent.seqnum.0 > 0 && uevent.devpath.starts_with(b"/"));
        assert!(!uevent.devpath.contains_str("/../"));
    }
}

/// What was written is read, and nothing is written of a record that says nothing.
fn record_(bytes: &[u8]) {
    let first = record::Record::parse(bytes);
    let again = record::Record::parse(&first.render());
    assert_eq!(first.render().as_bstr(), again.render().as_bstr());
    assert_eq!(first.is_empty(), first.render().is_empty());
    assert_eq!(first.is_empty(), again.is_empty());
}

/// Three bytes are a name, a length and what to do; a list that is searched from its beginning does the same.
fn properties(bytes: &[u8]) {
    let mut all = Properties::new();
    let mut list: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for step in bytes.chunks_exact(3) {
        let (name, value) = (step[..1].to_vec(), vec![step[2]; usize::from(step[1])]);
        let at = list.iter().position(|(known, _)| *known == name);
        if step[2] % 3 == 0 {
            assert_eq!(all.remove(&name), at.is_some());
            at.map(|at| list.remove(at));
        } else {
            all.set(&name, &value);
            match at {
                Some(at) => list[at].1 = value,
                None => list.push((name.clone(), value)),
            }
        }
        assert_eq!(all.len(), list.len());
    }
    assert!(all.iter().map(|p| (p.name.to_vec(), p.value.to_vec())).eq(list.iter().cloned()));
    assert!(list.iter().all(|(name, value)| all.get(name).is_some_and(|v| v == value.as_slice())));
    assert_eq!(all, all.clone());
}

fn announcement_(bytes: &[u8]) {
    drop(announcement::parse(bytes));
}

fn control_(bytes: &[u8]) {
    let _ = control::Datagram::parse(bytes);
    let mut connection = control::Connection::new();
    let _ = connection.on_datagram(bytes, Some(0));
    let _ = connection.on_datagram(bytes, None);
}

fn netlink(bytes: &[u8]) {
    for frame in wire::frames(bytes).flatten() {
        let _ = decode::link(frame.payload);
        let _ = decode::reply(&frame);
    }
    let _ = decode::link(bytes);
}
