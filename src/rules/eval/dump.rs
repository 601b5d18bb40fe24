//! OPTIONS="dump" and "dump-json": the complete state of an event in the middle of its rules.

use crate::rules::outcome::{Outcome, RunItem, Watch};
use bstr::ByteSlice;
use serde_json::{Value, json};

/// One object, in one line.
pub(super) fn json(outcome: &Outcome) -> String {
    state(outcome).to_string()
}

/// One line per value.
pub(super) fn text(outcome: &Outcome) -> String {
    let mut lines = vec!["state of the event:".to_string()];
    if let Value::Object(fields) = state(outcome) {
        for (name, value) in fields {
            match value {
                Value::Null => {}
                Value::Array(items) => {
                    lines.extend(items.iter().map(|item| format!("  {name}: {}", plain(item))))
                }
                Value::Object(items) => {
                    lines.extend(items.iter().map(|(key, item)| format!("  {name}: {key}={}", plain(item))));
                }
                value => lines.push(format!("  {name}: {}", plain(&value))),
            }
        }
    }
    lines.join("\n")
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn state(outcome: &Outcome) -> Value {
    let lossy = |text: &[u8]| text.to_str_lossy().into_owned();
    let event = &outcome.event;
    let properties: serde_json::Map<String, Value> =
        event.full_properties().iter().map(|(name, value)| (lossy(name), lossy(value).into())).collect();
    let run: Vec<String> = outcome
        .run
        .iter()
        .map(|item| match item {
            RunItem::Program(command) => lossy(command),
            RunItem::Builtin(_, command) => format!("builtin {}", lossy(command)),
        })
        .collect();
    let labels: Vec<String> = outcome
        .seclabels
        .iter()
        .map(|(module, label)| format!("{}={}", lossy(module), lossy(label)))
        .collect();
    json!({
        "action": event.action.as_str(),
        "seqnum": event.seqnum.0,
        "devpath": lossy(&event.device.devpath),
        "subsystem": lossy(&event.device.subsystem),
        "properties": properties,
        "symlinks": event.symlinks.iter().map(|l| lossy(l)).collect::<Vec<_>>(),
        "link_priority": outcome.link_priority,
        "tags": event.tags.sticky.iter().map(|t| lossy(t)).collect::<Vec<_>>(),
        "current_tags": event.tags.current.iter().map(|t| lossy(t)).collect::<Vec<_>>(),
        "name": outcome.name.as_ref().map(|n| lossy(n)),
        "owner": outcome.owner,
        "group": outcome.group,
        "mode": outcome.mode.map(|m| format!("{m:04o}")),
        "seclabels": labels,
        "run": run,
        "watch": outcome.watch.map(|w| w == Watch::On),
        "db_persist": outcome.db_persist,
    })
}
