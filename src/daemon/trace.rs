//! Traces: every input of the engine, one JSON object a line, and running them again.
//!
//! `--record` ([`super::recorder`]) writes inputs only; what the engine makes of them is computed again by `replay`, which
//! touches nothing of the system. So a trace is a bug report, and with the expected outputs beside it
//! a test.
//!
//! Format: `{"us": <time in microseconds>, "<kind>": ...}`. Bytes that are UTF-8 are JSON strings, others
//! arrays of numbers. The first line has the settings, each `rules` line the text of all rule files.

use crate::engine::{Engine, EngineConfig, Input, JobId, JobReply, Output};
use crate::model::effect::Done;
use crate::model::event::{OrderedSet, Tags};
use crate::model::need::Exit;
use crate::model::record::Record;
use crate::model::{Errno, Now, Properties, ResolveNames, Uevent};
use crate::rules::Answer;
use crate::rules::ask::{Attr, BuiltinResult, ParentDevice, ParentState};
use crate::rules::compile::{self, Accounts, CompileOptions, SourceFile};
use crate::rules::program::RuleSet;
use bstr::{BStr, BString, ByteSlice};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The text of a rule file: path and content.
pub type RuleText = (BString, BString);

/// The line of the settings.
pub(super) fn render_config(config: &EngineConfig) -> Value {
    let micros = |d: Duration| d.as_micros() as u64;
    json!({"config": {
        "event_timeout": micros(config.event_timeout),
        "exec_delay": micros(config.exec_delay),
        "blockdev_read_only": config.blockdev_read_only,
        "coalesce_above": config.coalesce_above,
        "strict_names": config.strict_names,
        "in_initrd": config.in_initrd,
    }})
}

/// The line of the rules.
pub(super) fn render_rules(files: &[RuleText]) -> Value {
    let files: Vec<Value> = files.iter().map(|(path, text)| json!([bytes(path), bytes(text)])).collect();
    json!({"rules": files})
}

/// The line of an input; rules have one of their own.
pub(super) fn render_input(input: &Input, now: Now) -> Option<Value> {
    let mut line = render(input)?;
    line.insert("us".to_owned(), json!(now.since_boot().as_micros() as u64));
    Some(Value::Object(line))
}

/// Runs the inputs of a trace; returns what the engine wanted, one line each. `compile` makes rules of
/// their text. The error names the line.
pub fn replay(trace: &[u8], compile: &dyn Fn(&[RuleText]) -> Arc<RuleSet>) -> Result<Vec<String>, String> {
    let mut engine = None;
    let mut config = EngineConfig::default();
    let mut outputs = Vec::new();
    for (number, line) in trace.lines().enumerate().filter(|(_, line)| !line.trim_ascii().is_empty()) {
        let parsed = serde_json::from_slice::<Value>(line).ok().and_then(|value| parse_line(&value));
        let line = parsed.ok_or_else(|| format!("line {}: not a line of a trace", number + 1))?;
        let (input, now) = match line {
            Line::Config(settings) => {
                if let Some(engine) = &mut engine {
                    Engine::set_config(engine, settings.clone());
                }
                config = settings;
                continue;
            }
            Line::Rules(files) if engine.is_none() => {
                engine = Some(Engine::new(config.clone(), compile(&files)));
                continue;
            }
            Line::Rules(files) => (Input::Rules(compile(&files)), Now::ZERO),
            Line::Input(input, now) => (input, now),
        };
        let engine = engine.get_or_insert_with(|| Engine::new(config.clone(), Arc::default()));
        outputs.extend(outputs_after(engine, input, now));
    }
    Ok(outputs)
}

/// What the engine wants after this input. Rules go on without a pause.
fn outputs_after(engine: &mut Engine, input: Input, now: Now) -> Vec<String> {
    engine.handle(input, now);
    let mut outputs = Vec::new();
    while let Some(output) = engine.poll(now) {
        match output {
            Output::Pause { .. } => engine.handle(Input::GoOn, now),
            output => outputs.push(format!("{output:?}")),
        }
    }
    outputs
}

/// The rules of a trace, for [`replay`]. Names of users and groups are those of this machine.
pub fn compile(files: &[RuleText], accounts: &dyn Accounts) -> Arc<RuleSet> {
    let source = |(path, text): &RuleText| SourceFile { path: path.clone(), content: text.to_vec() };
    let files: Vec<SourceFile> = files.iter().map(source).collect();
    Arc::new(compile::compile(&files, &CompileOptions { resolve_names: ResolveNames::Early, accounts }).rules)
}

enum Line {
    Config(EngineConfig),
    Rules(Vec<RuleText>),
    Input(Input, Now),
}

fn bytes(bytes: &[u8]) -> Value {
    bytes.to_str().map_or_else(|_| json!(bytes), |text| json!(text))
}

fn list<'a, T: AsRef<[u8]> + ?Sized + 'a>(items: impl Iterator<Item = &'a T>) -> Value {
    items.map(|item| bytes(item.as_ref())).collect()
}

fn optional(text: Option<&[u8]>) -> Value {
    text.map_or(Value::Null, bytes)
}

fn render_properties(properties: &Properties) -> Value {
    properties.iter().map(|p| json!([bytes(p.name), bytes(p.value), p.stored])).collect()
}

fn render(input: &Input) -> Option<Map<String, Value>> {
    let value = match input {
        Input::Start => json!({"start": true}),
        Input::GoOn => json!({"go_on": true}),
        Input::Uevent(uevent) => json!({"uevent": render_properties(&uevent.properties)}),
        Input::Reply { job, reply: JobReply::Answer(answer) } => {
            json!({"job": job.0, "answer": render_answer(answer)})
        }
        Input::Reply { job, reply: JobReply::Done(done) } => json!({"job": job.0, "done": render_done(done)}),
        Input::Reply { job, reply: JobReply::Ran } => json!({"job": job.0, "ran": true}),
        Input::DiskMayBeFree { devpath } => json!({"disk_may_be_free": bytes(devpath.as_bstr())}),
        Input::StopQueue => json!({"stop_queue": true}),
        Input::StartQueue => json!({"start_queue": true}),
        Input::SetGlobal { name, value } => json!({"global": [bytes(name), bytes(value)]}),
        Input::Exit => json!({"exit": true}),
        Input::Tick => json!({"tick": true}),
        Input::Rules(_) => return None,
    };
    match value {
        Value::Object(line) => Some(line),
        _ => None,
    }
}

fn render_answer(answer: &Answer) -> Value {
    match answer {
        Answer::Parents(parents) => {
            let parent =
                |p: &ParentDevice| list([&p.devpath, &p.sysname, &p.subsystem, &p.driver].into_iter());
            json!({"parents": parents.iter().map(parent).collect::<Vec<_>>()})
        }
        Answer::Parent(state) => json!({
            "parent": render_properties(&state.properties),
            "sticky": list(state.tags.sticky.iter()),
            "current": list(state.tags.current.iter()),
        }),
        Answer::Attr(Attr::Value(value)) => json!({"attr": bytes(value)}),
        Answer::Attr(Attr::Missing) => json!({"attr": null}),
        Answer::Attr(Attr::NoDevice) => json!({"no_device": true}),
        Answer::Mode(Ok(mode)) => json!({"mode": mode}),
        Answer::Mode(Err(errno)) => json!({"mode": null, "errno": errno.0}),
        Answer::Text(Ok(text)) => json!({"text": optional(text.as_ref().map(|t| t.as_slice()))}),
        Answer::Text(Err(errno)) => json!({"text": null, "errno": errno.0}),
        Answer::Id(id) => json!({"id": id}),
        Answer::Written => json!({"written": true}),
        Answer::Exit(exit) => {
            json!({"exit": exit.success, "output": bytes(&exit.output), "truncated": exit.truncated})
        }
        Answer::Builtin(result) => json!({
            "builtin": result.success,
            "properties": result.properties.iter()
                .map(|(name, value)| json!([bytes(name), optional(value.as_ref().map(|v| v.as_slice()))]))
                .collect::<Vec<_>>(),
            "alt_names": list(result.alt_names.iter()),
            "messages": result.messages,
        }),
    }
}

fn render_done(done: &Done) -> Value {
    match done {
        Done::Ok => json!("ok"),
        Done::Busy => json!("busy"),
        Done::WasWatched => json!("was watched"),
        Done::Failed(errno) => json!({"errno": errno.0}),
        Done::Record(None) => json!({"record": null}),
        Done::Record(Some(record)) => json!({"record": {
            "links": list(record.symlinks.iter()),
            "priority": record.priority,
            "usec_initialized": record.usec_initialized,
            "properties": record.properties.iter().map(|p| json!([bytes(p.name), bytes(p.value)])).collect::<Vec<_>>(),
            "tags": list(record.tags.iter()),
            "current_tags": list(record.current_tags.iter()),
        }}),
    }
}

fn parse_bytes(value: &Value) -> Option<BString> {
    match value {
        Value::String(text) => Some(text.as_str().into()),
        Value::Array(numbers) => {
            let byte = |n: &Value| u8::try_from(n.as_u64()?).ok();
            numbers.iter().map(byte).collect::<Option<Vec<u8>>>().map(BString::from)
        }
        _ => None,
    }
}

fn parse_list<T: FromIterator<BString>>(value: &Value) -> Option<T> {
    value.as_array()?.iter().map(parse_bytes).collect()
}

fn parse_pairs(value: &Value) -> Option<Vec<(BString, BString)>> {
    let pair = |pair: &Value| Some((parse_bytes(pair.get(0)?)?, parse_bytes(pair.get(1)?)?));
    value.as_array()?.iter().map(pair).collect()
}

fn parse_properties(value: &Value) -> Option<Properties> {
    let mut properties = Properties::new();
    for (pair, (name, value)) in value.as_array()?.iter().zip(parse_pairs(value)?) {
        match pair.get(2).and_then(Value::as_bool) {
            Some(true) => properties.set_stored(&name, value),
            _ => properties.set(&name, value),
        }
    }
    Some(properties)
}

fn parse_line(value: &Value) -> Option<Line> {
    if let Some(config) = value.get("config") {
        let micros = |name: &str| config.get(name).and_then(Value::as_u64).map(Duration::from_micros);
        let flag = |name: &str| config.get(name).and_then(Value::as_bool);
        let number = |name: &str| config.get(name).and_then(Value::as_u64);
        return Some(Line::Config(EngineConfig {
            event_timeout: micros("event_timeout")?,
            exec_delay: micros("exec_delay")?,
            blockdev_read_only: flag("blockdev_read_only")?,
            strict_names: flag("strict_names")?,
            in_initrd: flag("in_initrd")?,
            coalesce_above: number("coalesce_above")? as usize,
        }));
    }
    if let Some(files) = value.get("rules") {
        return parse_pairs(files).map(Line::Rules);
    }
    let now = Now::after_boot(Duration::from_micros(value.get("us")?.as_u64()?));
    parse_input(value).map(|input| Line::Input(input, now))
}

fn parse_input(value: &Value) -> Option<Input> {
    let job = || value.get("job").and_then(Value::as_u64).map(JobId);
    let has = |name: &str| value.get(name).is_some();
    Some(if let Some(properties) = value.get("uevent") {
        let lines: Vec<Vec<u8>> = parse_pairs(properties)?
            .iter()
            .map(|(name, value)| [name.as_slice(), b"=", value].concat())
            .collect();
        Input::Uevent(Uevent::from_lines(lines.iter().map(Vec::as_slice)).ok()?)
    } else if let Some(answer) = value.get("answer") {
        Input::Reply { job: job()?, reply: JobReply::Answer(parse_answer(answer)?) }
    } else if let Some(done) = value.get("done") {
        Input::Reply { job: job()?, reply: JobReply::Done(parse_done(done)?) }
    } else if has("start") {
        Input::Start
    } else if has("go_on") {
        Input::GoOn
    } else if has("ran") {
        Input::Reply { job: job()?, reply: JobReply::Ran }
    } else if let Some(devpath) = value.get("disk_may_be_free") {
        Input::DiskMayBeFree { devpath: parse_bytes(devpath)? }
    } else if has("stop_queue") {
        Input::StopQueue
    } else if has("start_queue") {
        Input::StartQueue
    } else if let Some(pair) = value.get("global") {
        Input::SetGlobal { name: parse_bytes(pair.get(0)?)?, value: parse_bytes(pair.get(1)?)? }
    } else if has("exit") {
        Input::Exit
    } else if has("tick") {
        Input::Tick
    } else {
        return None;
    })
}

fn parse_errno(value: &Value) -> Option<Errno> {
    value.get("errno").and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok()).map(Errno)
}

fn parse_u32(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|n| u32::try_from(n).ok())
}

fn parse_answer(value: &Value) -> Option<Answer> {
    let get = |name: &str| value.get(name);
    let flag = |name: &str| value.get(name).and_then(Value::as_bool);
    Some(if let Some(parents) = get("parents") {
        let parent = |p: &Value| {
            let [devpath, sysname, subsystem, driver] = parse_list::<Vec<_>>(p)?.try_into().ok()?;
            Some(ParentDevice { devpath, sysname, subsystem, driver })
        };
        Answer::Parents(parents.as_array()?.iter().map(parent).collect::<Option<Vec<_>>>()?.into())
    } else if let Some(properties) = get("parent") {
        let tags: (OrderedSet, OrderedSet) = (parse_list(get("sticky")?)?, parse_list(get("current")?)?);
        let tags = Tags { sticky: tags.0, current: tags.1 };
        Answer::Parent(Arc::new(ParentState { properties: parse_properties(properties)?, tags }))
    } else if get("no_device").is_some() {
        Answer::Attr(Attr::NoDevice)
    } else if let Some(attr) = get("attr") {
        Answer::Attr(if attr.is_null() { Attr::Missing } else { Attr::Value(parse_bytes(attr)?) })
    } else if let Some(mode) = get("mode") {
        Answer::Mode(parse_errno(value).map_or(Ok(parse_u32(mode)), Err))
    } else if let Some(text) = get("text") {
        Answer::Text(parse_errno(value).map_or(Ok(parse_bytes(text)), Err))
    } else if let Some(id) = get("id") {
        Answer::Id(parse_u32(id))
    } else if get("written").is_some() {
        Answer::Written
    } else if let Some(success) = flag("exit") {
        Answer::Exit(Exit { success, output: parse_bytes(get("output")?)?, truncated: flag("truncated")? })
    } else if let Some(success) = flag("builtin") {
        let property = |pair: &Value| Some((parse_bytes(pair.get(0)?)?, parse_bytes(pair.get(1)?)));
        Answer::Builtin(BuiltinResult {
            success,
            properties: get("properties")?.as_array()?.iter().map(property).collect::<Option<_>>()?,
            alt_names: parse_list(get("alt_names")?)?,
            messages: parse_list::<Vec<BString>>(get("messages")?)?.iter().map(|m| m.to_string()).collect(),
        })
    } else {
        return None;
    })
}

fn parse_done(value: &Value) -> Option<Done> {
    match value.as_str() {
        Some("ok") => return Some(Done::Ok),
        Some("busy") => return Some(Done::Busy),
        Some("was watched") => return Some(Done::WasWatched),
        _ => {}
    }
    if let Some(errno) = parse_errno(value) {
        return Some(Done::Failed(errno));
    }
    let record = value.get("record")?;
    if record.is_null() {
        return Some(Done::Record(None));
    }
    Some(Done::Record(Some(Arc::new(Record {
        symlinks: parse_list(record.get("links")?)?,
        priority: i32::try_from(record.get("priority")?.as_i64()?).ok()?,
        usec_initialized: record.get("usec_initialized").and_then(Value::as_u64),
        properties: parse_pairs(record.get("properties")?)?.into_iter().collect(),
        tags: parse_list(record.get("tags")?)?,
        current_tags: parse_list(record.get("current_tags")?)?,
    }))))
}

/// Compares what a replay gave with what was expected; the first difference, for people.
pub fn first_difference(expected: &[u8], outputs: &[String]) -> Option<String> {
    let expected: Vec<&BStr> = expected.lines().map(BStr::new).collect();
    let longest = expected.len().max(outputs.len());
    let show = |line: Option<String>| line.unwrap_or_else(|| "nothing more".to_owned());
    (0..longest).find_map(|n| {
        let (wanted, got) = (expected.get(n).map(|l| l.to_string()), outputs.get(n).cloned());
        (wanted != got)
            .then(|| format!("output {}:\n  expected {}\n  got      {}", n + 1, show(wanted), show(got)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs() -> Vec<Input> {
        let job = JobId(3);
        let answer = |answer| Input::Reply { job, reply: JobReply::Answer(answer) };
        let done = |done| Input::Reply { job, reply: JobReply::Done(done) };
        let lines = ["ACTION=add", "DEVPATH=/devices/x", "SUBSYSTEM=s", "SEQNUM=5", "A=b c"];
        let raw = BString::from(b"\xff\x00x".as_slice());
        let mut properties = Properties::new();
        properties.set("A", "1");
        properties.set_stored("B", "2");
        let tags =
            Tags { sticky: ["a".into(), raw.clone()].into_iter().collect(), current: OrderedSet::default() };
        let parent = ParentDevice {
            devpath: "/d".into(),
            sysname: "d".into(),
            subsystem: "".into(),
            driver: raw.clone(),
        };
        let record = Record {
            symlinks: [BString::from("disk/x")].into_iter().collect(),
            priority: -5,
            usec_initialized: Some(7),
            properties: [("K", raw.clone())].into_iter().collect(),
            tags: [BString::from("t")].into_iter().collect(),
            current_tags: OrderedSet::default(),
        };
        vec![
            Input::Uevent(Uevent::from_lines(lines.iter().map(|l| l.as_bytes())).unwrap()),
            answer(Answer::Parents(vec![parent].into())),
            answer(Answer::Parent(Arc::new(ParentState { properties, tags }))),
            answer(Answer::Attr(Attr::Value(raw.clone()))),
            answer(Answer::Attr(Attr::Missing)),
            answer(Answer::Attr(Attr::NoDevice)),
            answer(Answer::Mode(Ok(Some(0o100644)))),
            answer(Answer::Mode(Ok(None))),
            answer(Answer::Mode(Err(Errno(libc::EACCES)))),
            answer(Answer::Text(Ok(Some("t".into())))),
            answer(Answer::Text(Ok(None))),
            answer(Answer::Text(Err(Errno(libc::EIO)))),
            answer(Answer::Id(Some(6))),
            answer(Answer::Id(None)),
            answer(Answer::Written),
            answer(Answer::Exit(Exit { success: true, output: raw, truncated: false })),
            answer(Answer::Builtin(BuiltinResult {
                success: false,
                properties: vec![("A".into(), Some("1".into())), ("B".into(), None)],
                alt_names: vec!["alt".into()],
                messages: vec!["m".into()],
            })),
            done(Done::Ok),
            done(Done::Busy),
            done(Done::WasWatched),
            done(Done::Failed(Errno(libc::EROFS))),
            done(Done::Record(None)),
            done(Done::Record(Some(Arc::new(record)))),
            Input::Start,
            Input::GoOn,
            Input::Reply { job, reply: JobReply::Ran },
            Input::DiskMayBeFree { devpath: "/devices/x".into() },
            Input::StopQueue,
            Input::StartQueue,
            Input::SetGlobal { name: "A".into(), value: "".into() },
            Input::Exit,
            Input::Tick,
        ]
    }

    #[test]
    fn every_input_goes_both_ways() {
        for input in inputs() {
            let line = render(&input).expect("it is recorded");
            let text = Value::Object(line).to_string();
            let read = parse_input(&serde_json::from_str(&text).unwrap());
            assert_eq!(format!("{:?}", read.expect(&text)), format!("{input:?}"), "{text}");
        }
    }

    #[test]
    fn what_was_recorded_is_replayed_to_the_same_outputs() {
        let config = EngineConfig { event_timeout: Duration::from_secs(9), ..EngineConfig::default() };
        let mut lines = vec![render_config(&config), render_rules(&[("/r/1.rules".into(), "x".into())])];
        let mut engine = Engine::new(config, Arc::default());
        let mut expected = Vec::new();
        for (n, input) in [inputs().remove(0), Input::StopQueue, Input::Tick].into_iter().enumerate() {
            let now = Now::after_boot(Duration::from_micros(n as u64));
            lines.extend(render_input(&input, now));
            expected.extend(outputs_after(&mut engine, input, now));
        }
        let trace: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let seen = std::cell::RefCell::new(Vec::new());
        let outputs = replay(trace.as_bytes(), &|files| {
            seen.borrow_mut().extend(files.to_vec());
            Arc::default()
        });
        let outputs = outputs.unwrap();
        assert_eq!(outputs, expected);
        assert!(!outputs.is_empty());
        assert_eq!(seen.into_inner(), [(BString::from("/r/1.rules"), BString::from("x"))]);
        assert!(first_difference(outputs.join("\n").as_bytes(), &outputs).is_none());
        assert!(first_difference(b"", &outputs).unwrap().starts_with("output 1:"));
    }

    #[test]
    fn a_bad_line_is_named() {
        let error = replay(b"{\"us\":1,\"tick\":true}\n\n{\"frob\":1}\n", &|_| Arc::default()).unwrap_err();
        assert!(error.starts_with("line 3:"), "{error}");
        for line in
            ["x", "{}", "[]", "{\"us\":1,\"answer\":{\"attr\":1}}", "{\"us\":1,\"job\":1,\"done\":{}}"]
        {
            assert!(replay(line.as_bytes(), &|_| Arc::default()).is_err(), "{line}");
        }
    }
}
