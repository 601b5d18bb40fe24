//! `test` and `test-builtin`: what the rules, or one builtin, make of a device (interop.md 5.5).

mod json;

use super::trial::{Trial, event_of};
use super::view::Devices;
use super::{Json, Out, Outcome, Stop, action_value, ignore_word, json_value, other_option, text_value};
use crate::engine::job::node_change;
use crate::model::command_line::{LongNames, next_arg};
use crate::model::{Action, Event, ResolveNames};
use crate::rules::ask::BuiltinName;
use crate::rules::outcome::{Outcome as RulesOutcome, RunItem, Watch};
use crate::rules::{Answer, Ask};
use crate::world::Roots;
use crate::world::accounts::Accounts;
use bstr::BString;
use json::Tested;
use lexopt::{Arg, Parser};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::ExitCode;

/// What `test --help` says.
pub(super) const HELP: &str = "test [OPTIONS] DEVICE

Run the rules for a device and show what they decide. Nothing is changed: no node, symlink, record,
attribute or link; the RUN list is shown, not run. Programs of PROGRAM and IMPORT do run. DEVICE is a
path in /dev or /sys, with or without /sys in front, a device id or the name of a unit.

  -a --action=ACTION|help               What the event says (add)
  -N --resolve-names=early|late|never   When names of users and groups are looked up
  -D --extra-rules-dir=DIR              Rules of this folder too, before others (repeatable)
  -v --verbose                          Log what the rules do
     --json=pretty|short|off            JSON
  -h --help                             Show this help
  -V --version                          Show the version";

/// What `test-builtin --help` says.
pub(super) const BUILTIN_HELP: &str = "test-builtin [OPTIONS] COMMAND DEVICE

Run one builtin for a device and show the properties it sets. COMMAND is the name of a builtin, with
arguments in the same word if it takes any.

  -a --action=ACTION|help               What the event says (add)
  -h --help                             Show this help
  -V --version                          Show the version";

/// The long options of `test`.
const LONG: &[LongNames] = &[&["action", "resolve-names", "extra-rules-dir", "verbose", "json"]];
/// Those of `test-builtin`.
const BUILTIN_LONG: &[LongNames] = &[&["action"]];

#[derive(Debug)]
struct Options {
    action: Action,
    resolve_names: Option<ResolveNames>,
    extra: Vec<PathBuf>,
    verbose: bool,
    json: Option<Json>,
    words: Vec<OsString>,
}

/// None: only a list of possible values was wanted.
fn parse(parser: &mut Parser, is_builtin: bool, out: Out) -> Result<Option<Options>, Stop> {
    let mut options = Options {
        action: Action::Add,
        resolve_names: None,
        extra: Vec::new(),
        verbose: false,
        json: None,
        words: Vec::new(),
    };
    let known = if is_builtin { BUILTIN_LONG } else { LONG };
    while let Some(arg) = next_arg(parser, known)? {
        match arg {
            Arg::Short('a') | Arg::Long("action") => match action_value(parser, out)? {
                Some(action) => options.action = action,
                None => return Ok(None),
            },
            Arg::Value(word) => options.words.push(word),
            other if is_builtin => return Err(other_option(other)),
            Arg::Short('N') | Arg::Long("resolve-names") => {
                let word = text_value(parser)?;
                if word == "help" {
                    out.write_all(b"never\nlate\nearly\n")?;
                    return Ok(None);
                }
                let when = ResolveNames::parse(word.as_bytes());
                options.resolve_names = Some(
                    when.ok_or_else(|| Stop::Failed(format!("{word:?} is none of early, late, never")))?,
                );
            }
            Arg::Short('D') | Arg::Long("extra-rules-dir") => options.extra.push(parser.value()?.into()),
            Arg::Short('v') | Arg::Long("verbose") => options.verbose = true,
            Arg::Long("json") => match json_value(parser, out)? {
                Some(json) => options.json = json,
                None => return Ok(None),
            },
            other => return Err(other_option(other)),
        }
    }
    Ok(Some(options))
}

/// Runs `test`.
pub(super) fn run(parser: &mut Parser, roots: &Roots, out: Out) -> Outcome {
    let Some(options) = parse(parser, false, out)? else { return Ok(ExitCode::SUCCESS) };
    let mut words = options.words.into_iter();
    let device = words.next().ok_or_else(|| Stop::failed("a device is required"))?;
    words.for_each(|word| ignore_word(&word));
    if options.verbose {
        log::set_max_level(log::LevelFilter::Debug);
    }
    let devices = Devices::new(roots);
    let found = devices.find_below_sys(&device.into_vec())?;
    let event = event_of(&devices, found.as_ref(), options.action);
    let outcome = Trial::new(&devices)?.run_rules(event, &options.extra, options.resolve_names)?;
    if let Some(errno) = outcome.failure {
        log::error!("The rules failed: {errno}");
    }
    match options.json {
        Some(json) => json.write(out, &Tested::new(&outcome, &Accounts::new(roots)))?,
        None => print(&outcome, out)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `test-builtin`.
pub(super) fn run_builtin(parser: &mut Parser, roots: &Roots, out: Out) -> Outcome {
    let Some(options) = parse(parser, true, out)? else { return Ok(ExitCode::SUCCESS) };
    let [command, device] = <[OsString; 2]>::try_from(options.words)
        .map_err(|_| Stop::failed("a command and a device are required"))?
        .map(|word| BString::from(word.into_vec()));
    let builtin = BuiltinName::of_command(&command)
        .ok_or_else(|| Stop::Failed(format!("there is no builtin {command:?}")))?;
    if !crate::builtin::Builtins::is_written(builtin) {
        return Err(Stop::Failed(format!("the builtin {} is not written yet", builtin.as_str())));
    }
    let devices = Devices::new(roots);
    let event = event_of(&devices, devices.find_below_sys(&device)?.as_ref(), options.action);
    let answer = Trial::new(&devices)?.answer(&event, &Ask::Builtin { builtin, command })?;
    let Answer::Builtin(result) = answer else { return Err(Stop::failed("the builtin gave no result")) };
    result.messages.iter().for_each(|message| log::warn!("{message}"));
    for (name, value) in &result.properties {
        if let Some(value) = value {
            writeln!(out, "{name}={value}")?;
        }
    }
    if result.success { Ok(ExitCode::SUCCESS) } else { Err(Stop::failed("the builtin failed")) }
}

/// `KEY=VALUE` of all properties, sorted.
fn sorted(event: &Event) -> Vec<BString> {
    let mut properties = event.full_properties();
    properties.sort();
    properties.iter().map(|(name, value)| [&name[..], b"=", value].concat().into()).collect()
}

fn command_of(item: &RunItem) -> (&'static str, &BString) {
    match item {
        RunItem::Program(command) => ("program", command),
        RunItem::Builtin(_, command) => ("builtin", command),
    }
}

/// What v255 prints goes to the output, the rest to the log.
fn print(outcome: &RulesOutcome, out: Out) -> Result<(), Stop> {
    for property in sorted(&outcome.event) {
        writeln!(out, "{property}")?;
    }
    for item in &outcome.run {
        writeln!(out, "run: '{}'", command_of(item).1)?;
    }
    let number = |number: Option<u32>| number.map_or("as it is".to_owned(), |n| n.to_string());
    if let Some(node) = node_change(outcome) {
        let mode = node.mode.map_or("as it is".to_owned(), |mode| format!("{mode:04o}"));
        let (owner, group) = (number(node.owner), number(node.group));
        let watch = if outcome.watch == Some(Watch::On) { ", watched" } else { "" };
        log::info!(
            "{}: owner {owner}, group {group}, mode {mode}, link priority {}{watch}",
            node.devnode,
            outcome.link_priority
        );
    }
    if let Some(name) = &outcome.name {
        log::info!("Name of the interface: {name}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tree::Tree;
    use serde_json::{Value, json};

    const RULES: &str = "KERNEL==\"null\", ENV{B}=\"x\", ENV{.H}=\"h\", SYMLINK+=\"foo bar\", TAG+=\"t1\", \
        MODE=\"0640\", GROUP=\"6\", OPTIONS+=\"link_priority=5\", OPTIONS+=\"watch\", \
        RUN+=\"/bin/true $name\", RUN{builtin}+=\"kmod load x\"\n\
        KERNEL==\"null\", PROGRAM=\"/bin/echo hi $env{B}\", ENV{RES}=\"%c\", ATTR{power/control}=\"on\"\n\
        ACTION==\"remove\", ENV{OLD}==\"1\", ENV{SEEN}=\"yes\"\n";

    fn machine() -> Tree {
        let tree = Tree::new();
        tree.file("sys/devices/virtual/mem/null/uevent", "MAJOR=1\nMINOR=3\nDEVNAME=null\n")
            .link("sys/devices/virtual/mem/null/subsystem", "../../../../class/mem")
            .file("sys/devices/virtual/mem/null/power/control", "auto\n")
            .link("sys/class/mem/null", "../../devices/virtual/mem/null")
            .file("run/udev/data/c1:3", "I:42\nE:OLD=1\nG:old\nQ:old\nV:1\n")
            .file("etc/udev/rules.d/50.rules", RULES)
            .file("etc/group", "root:x:0:\ndisk:x:6:\n");
        tree
    }

    fn test(tree: &Tree, words: &[&str]) -> (Outcome, String) {
        let mut out = Vec::new();
        let outcome = run(&mut Parser::from_args(words), &tree.roots(), &mut out);
        (outcome, String::from_utf8(out).expect("text"))
    }

    #[test]
    fn properties_come_sorted_and_then_the_run_list() {
        let tree = machine();
        let (outcome, text) = test(&tree, &["/class/mem/null"]);
        assert_eq!(outcome, Ok(ExitCode::SUCCESS));
        assert_eq!(
            text,
            ".H=h\nACTION=add\nB=x\nCURRENT_TAGS=:t1:\nDEVLINKS=/dev/foo /dev/bar\nDEVNAME=/dev/null\n\
             DEVPATH=/devices/virtual/mem/null\nMAJOR=1\nMINOR=3\nRES=hi x\nSUBSYSTEM=mem\nTAGS=:old:t1:\n\
             USEC_INITIALIZED=42\nrun: 'kmod load x'\nrun: '/bin/true null'\n"
        );
    }

    #[test]
    fn nothing_is_changed() {
        let tree = machine();
        let record = tree.read("run/udev/data/c1:3");
        assert_eq!(test(&tree, &["/sys/class/mem/null"]).0, Ok(ExitCode::SUCCESS));
        assert_eq!(tree.read("sys/devices/virtual/mem/null/power/control"), b"auto\n");
        assert_eq!(tree.read("run/udev/data/c1:3"), record);
        let names = |dir| std::fs::read_dir(tree.path(dir)).unwrap().count();
        assert_eq!((names("run/udev"), names("run/udev/data")), (1, 1));
        assert!(!tree.path("dev").exists());
    }

    #[test]
    fn a_removed_device_is_seen_with_its_record_and_extra_rules_hide_others() {
        let tree = machine();
        let (_, text) = test(&tree, &["-a", "remove", "/class/mem/null"]);
        assert!(text.contains("OLD=1\n") && text.contains("SEEN=yes\n"), "{text}");
        tree.file("extra/50.rules", "ENV{ONLY}=\"1\"\n").file("extra/60.rules", "ENV{MORE}=\"1\"\n");
        let extra = tree.path("extra").into_os_string().into_string().unwrap();
        let (_, text) = test(&tree, &["-D", &extra, "/class/mem/null"]);
        assert!(text.contains("ONLY=1\n") && text.contains("MORE=1\n") && !text.contains("B=x\n"), "{text}");
    }

    #[test]
    fn json_has_node_tags_and_commands() {
        let tree = machine();
        let (_, text) = test(&tree, &["--json=short", "/class/mem/null"]);
        assert_eq!(
            text,
            "{\"path\":\"/devices/virtual/mem/null\",\"name\":\"null\",\"id\":\"c1:3\",\"subsystem\":\"mem\",\
             \"node\":{\"path\":\"/dev/null\",\"type\":\"char\",\"rdev\":{\"major\":1,\"minor\":3},\
             \"owner\":{\"gid\":6,\"groupName\":\"disk\"},\"mode\":\"0640\",\"symlinkPriority\":5,\
             \"symlinks\":[\"/dev/bar\",\"/dev/foo\"],\"inotifyWatch\":true},\"tags\":[\"old\",\"t1\"],\
             \"currentTags\":[\"t1\"],\"properties\":[\".H=h\",\"ACTION=add\",\"B=x\",\"CURRENT_TAGS=:t1:\",\
             \"DEVLINKS=/dev/foo /dev/bar\",\"DEVNAME=/dev/null\",\"DEVPATH=/devices/virtual/mem/null\",\
             \"MAJOR=1\",\"MINOR=3\",\"RES=hi x\",\"SUBSYSTEM=mem\",\"TAGS=:old:t1:\",\"USEC_INITIALIZED=42\"],\
             \"queuedCommands\":[{\"type\":\"builtin\",\"command\":\"kmod load x\"},\
             {\"type\":\"program\",\"command\":\"/bin/true null\"}]}\n"
        );
        tree.file("etc/udev/rules.d/50.rules", "GROUP=\"6\"\n");
        let (_, text) = test(&tree, &["--json=short", "/class/mem/null"]);
        let hinted: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(hinted["node"]["mode"], "0660", "a group of its own may write");
        assert_eq!(hinted["node"]["symlinkPriority"], Value::Null, "there are no symlinks");
        assert_eq!((&hinted["tags"], &hinted["currentTags"]), (&json!(["old"]), &Value::Null));
        assert_eq!(hinted["queuedCommands"], Value::Null);
    }

    #[test]
    fn json_of_other_devices_has_what_they_have() {
        let tree = machine();
        tree.file("sys/devices/virtual/net/eth7/uevent", "INTERFACE=eth7\nIFINDEX=3\n")
            .link("sys/devices/virtual/net/eth7/subsystem", "../../../../class/net")
            .file("sys/devices/pnp0/uevent", "")
            .file("etc/udev/rules.d/50.rules", "SUBSYSTEM==\"net\", NAME=\"new\"\n");
        let json = |words: &[&str]| test(&tree, &[&["--json=short"], words].concat()).1;
        let (device, known) = (json(&["/devices/virtual/net/eth7"]), "\"USEC_INITIALIZED=");
        assert!(device.starts_with(
            "{\"path\":\"/devices/virtual/net/eth7\",\"name\":\"eth7\",\"number\":7,\"id\":\"n3\",\
             \"subsystem\":\"net\",\"networkInterface\":{\"index\":3,\"name\":\"new\"},\"properties\":["
        ));
        assert!(device.contains(known), "the daemon would note when it saw it first: {device}");
        assert!(!json(&["-a", "remove", "/devices/virtual/net/eth7"]).contains(known));
        assert_eq!(
            json(&["/devices/pnp0"]),
            "{\"path\":\"/devices/pnp0\",\"name\":\"pnp0\",\"number\":0,\
             \"properties\":[\"ACTION=add\",\"DEVPATH=/devices/pnp0\"]}\n"
        );
    }

    #[test]
    fn a_builtin_prints_what_it_finds() {
        let tree = Tree::new();
        tree.file("sys/devices/pci0000:00/0000:00:01.0/uevent", "")
            .link("sys/devices/pci0000:00/0000:00:01.0/subsystem", "../../../bus/pci");
        let call = |words: &[&str]| {
            let mut out = Vec::new();
            let outcome = run_builtin(&mut Parser::from_args(words), &tree.roots(), &mut out);
            (outcome, String::from_utf8(out).expect("text"))
        };
        let (outcome, text) = call(&["path_id", "/devices/pci0000:00/0000:00:01.0"]);
        assert_eq!(outcome, Ok(ExitCode::SUCCESS));
        assert_eq!(text, "ID_PATH=pci-0000:00:01.0\nID_PATH_TAG=pci-0000_00_01_0\n");
        for words in [
            &["frob", "/devices/pci0000:00/0000:00:01.0"][..],
            &["usb_id", "/devices/pci0000:00/0000:00:01.0"],
            &["net_id", "/devices/pci0000:00/0000:00:01.0"],
            &["path_id"],
            &["path_id", "/none"],
            &["-N", "early", "path_id", "/none"],
        ] {
            assert!(matches!(call(words).0, Err(Stop::Failed(_))), "{words:?}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let tree = machine();
        for words in [&[][..], &["/none"], &["-N", "x"], &["-a", "frob"], &["--frob"]] {
            assert!(matches!(test(&tree, words).0, Err(Stop::Failed(_))), "{words:?}");
        }
        let one = test(&tree, &["/class/mem/null"]);
        assert_eq!(test(&tree, &["/class/mem/null", "x"]), one, "a second device is passed over");
    }

    #[test]
    fn help_lists_the_values_of_an_option() {
        for (words, expected) in [
            (&["--json=help"][..], "pretty\nshort\noff\n"),
            (&["-N", "help", "/none"], "never\nlate\nearly\n"),
            (&["-a", "help"], "add\nremove\nchange\nmove\nonline\noffline\nbind\nunbind\n"),
        ] {
            assert_eq!(test(&machine(), words), (Ok(ExitCode::SUCCESS), expected.to_owned()), "{words:?}");
        }
    }
}
