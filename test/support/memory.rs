//! The pure evaluator as a judge of the corpus: the facts come from memory.

use super::{Case, Expect, FakeDevice, Step};
use bstr::{BString, ByteSlice};
use mudev::model::command::split_command;
use mudev::model::need::Exit;
use mudev::model::{Action, Properties, ResolveNames};
use mudev::rules::Ask;
use mudev::rules::ask::Answer;
use mudev::rules::compile::{CompileOptions, SourceFile, compile};
use mudev::rules::eval::{EvalConfig, Evaluation, Halt};
use mudev::rules::memory_world::{MemoryDevice, MemoryWorld, OnlyRoot, event};
use mudev::rules::outcome::{Outcome, RunItem};
use mudev::rules::skip::{EventKind, Specialised};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::Arc;

/// Where the folder of a case would be.
const FOLDER: &str = "/case";

/// What the evaluator alone gets wrong of a step: properties, symlinks, tags and programs.
pub fn failures(case: &Case, step: &Step) -> Vec<String> {
    let device = case.devices.iter().find(|d| d.sysname() == step.sysname).expect("a device of the case");
    let files: Vec<SourceFile> = sorted_rules(case)
        .map(|(name, text)| SourceFile {
            path: format!("{name}.rules").into(),
            content: text.replace("@T@", FOLDER).into_bytes(),
        })
        .collect();
    let options = CompileOptions { resolve_names: ResolveNames::Early, accounts: &OnlyRoot };
    let rules = Arc::new(compile(&files, &options).rules);
    let action = Action::parse(step.action.as_bytes()).expect("an action");
    let properties = uevent_properties(device);
    let properties: Vec<(&str, &str)> = properties.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let event = event(action, &device.devpath, &device.subsystem, &properties);
    let program = Arc::new(Specialised::new(rules, EventKind::of(&event)));
    let config = EvalConfig { strict_names: true, ..EvalConfig::default() };
    let mut outcome = Outcome::new(event);
    let mut evaluation = Evaluation::start(program, config);
    let mut world = world(case);
    while let Halt::Ask(ask) = evaluation.run(&mut outcome) {
        let answer = match &ask {
            Ask::Run { command } => Answer::Exit(run(case, command)),
            ask => world.answer(&outcome.event, ask),
        };
        evaluation.answer(answer);
    }
    step.expect.iter().filter_map(|expect| wrong(expect, &outcome)).collect()
}

fn sorted_rules(case: &Case) -> impl Iterator<Item = &(String, String)> {
    let mut rules: Vec<_> = case.rules.iter().collect();
    rules.sort();
    rules.into_iter()
}

fn uevent_properties(device: &FakeDevice) -> Vec<(String, String)> {
    let lines = device.uevent_lines();
    let pairs = lines.lines().filter_map(|l| l.split_once('='));
    pairs
        .map(|(key, value)| match key {
            "DEVNAME" => (key.to_owned(), format!("/dev/{value}")),
            _ => (key.to_owned(), value.to_owned()),
        })
        .collect()
}

fn world(case: &Case) -> MemoryWorld {
    let mut world = MemoryWorld { command_line: "quiet\n".into(), ..MemoryWorld::default() };
    for device in &case.devices {
        let mut memory = MemoryDevice::new(&device.devpath, &device.subsystem, &[]);
        memory.driver = device.driver.clone().unwrap_or_default().into();
        memory.attrs = device.attributes.iter().map(|(n, v)| (n.as_str().into(), v.clone().into())).collect();
        memory.properties = uevent_properties(device).into_iter().collect::<Properties>();
        world.devices.push(memory);
    }
    for program in ["say", "log"] {
        world.file(&format!("{FOLDER}/{program}"), 0o755, "");
    }
    for (name, mode, text) in &case.files {
        world.file(&format!("{FOLDER}/{name}"), *mode, text.clone());
    }
    world
}

/// Runs a program: `say` as the corpus defines it, a script of the case by its text, others as they are.
fn run(case: &Case, command: &BString) -> Exit {
    let words: Vec<String> = split_command(command).iter().map(|w| w.to_str_lossy().into_owned()).collect();
    let failed = Exit { success: false, output: BString::default(), truncated: false };
    let Some((program, arguments)) = words.split_first() else { return failed };
    let own = program.strip_prefix(FOLDER).map(|name| name.trim_start_matches('/'));
    let output = match own {
        Some("say") => {
            let output = arguments.first().cloned().unwrap_or_default().into();
            return Exit { success: true, output, truncated: false };
        }
        Some(name) => match case.files.iter().find(|(file, ..)| file == name) {
            Some((.., text)) => Command::new("/bin/sh").arg("-c").arg(OsStr::from_bytes(text)).output(),
            None => return failed,
        },
        None => Command::new(program).args(arguments).output(),
    };
    output.map_or(failed, |o| Exit { success: o.status.success(), output: o.stdout.into(), truncated: false })
}

fn wrong(expect: &Expect, outcome: &Outcome) -> Option<String> {
    let sorted = |mut list: Vec<String>| {
        list.sort();
        list.join(" ")
    };
    let event = &outcome.event;
    let (what, expected, found) = match expect {
        Expect::Property(name, value) => {
            let found = event.properties.stored().find(|p| p.name == name.as_str());
            let found = found.map_or("(none)".to_owned(), |p| p.value.to_str_lossy().into_owned());
            (name.clone(), value.clone().unwrap_or("(none)".to_owned()), found)
        }
        Expect::Links(links) => {
            let found = event.symlinks.iter().map(|l| l.to_str_lossy().into_owned()).collect();
            ("links".to_owned(), sorted(links.clone()), sorted(found))
        }
        Expect::Tags(tags) => {
            let found = event.tags.current.iter().map(|t| t.to_string()).collect();
            ("tags".to_owned(), sorted(tags.clone()), sorted(found))
        }
        Expect::Run(list) => {
            let programs = outcome.run.iter().filter_map(|item| match item {
                RunItem::Program(command) => command.strip_prefix(format!("{FOLDER}/").as_bytes()),
                RunItem::Builtin(..) => None,
            });
            let found: Vec<String> = programs.map(|p| p.to_str_lossy().into_owned()).collect();
            ("run".to_owned(), list.join("; "), found.join("; "))
        }
        _ => return None,
    };
    (expected != found).then(|| format!("{what}: expected {expected:?}, found {found:?}"))
}
