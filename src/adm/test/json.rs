//! What `test --json` prints (interop.md 5.5): keys and their order are those of 262; a key without a value is left
//! out.

use super::{command_of, sorted};
use crate::engine::job::node_change;
use crate::rules::outcome::{Outcome, Watch};
use crate::world::accounts::Accounts;
use bstr::ByteSlice;
use serde::Serialize;

/// The whole.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tested {
    /// The devpath, without `/sys`.
    path: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    subsystem: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    devtype: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network_interface: Option<NetworkInterface>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<Node>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    current_tags: Vec<String>,
    properties: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    queued_commands: Vec<Command>,
}

#[derive(Serialize)]
struct NetworkInterface {
    index: u32,
    /// The name it gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    path: String,
    #[serde(rename = "type")]
    kind: &'static str,
    rdev: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<Owner>,
    /// Octal, four digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    security_labels: Vec<SecurityLabel>,
    /// None without symlinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    symlink_priority: Option<i32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    symlinks: Vec<String>,
    inotify_watch: bool,
}

#[derive(Serialize)]
struct Number {
    major: u32,
    minor: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group_name: Option<String>,
}

#[derive(Serialize)]
struct SecurityLabel {
    name: String,
    label: String,
}

#[derive(Serialize)]
struct Command {
    #[serde(rename = "type")]
    kind: &'static str,
    command: String,
}

impl Tested {
    /// What the rules have decided.
    pub(super) fn new(outcome: &Outcome, accounts: &Accounts) -> Tested {
        let event = &outcome.event;
        let device = &event.device;
        let mut tags: Vec<String> = event.tags.sticky.iter().map(text).collect();
        let mut current_tags: Vec<String> = event.tags.current.iter().map(text).collect();
        tags.sort();
        current_tags.sort();
        let command = |item| {
            let (kind, command) = command_of(item);
            Command { kind, command: text(command) }
        };
        Tested {
            path: text(&device.devpath),
            name: text(&device.sysname),
            number: device.sysnum().to_str().ok().and_then(|number| number.parse().ok()),
            id: device.id().map(|id| text(&id.render())),
            subsystem: text(&device.subsystem),
            devtype: device.devtype.as_ref().map(text),
            network_interface: device
                .ifindex
                .map(|ifindex| NetworkInterface { index: ifindex.0, name: outcome.name.as_ref().map(text) }),
            node: node(outcome, accounts),
            tags,
            current_tags,
            properties: sorted(event).iter().map(text).collect(),
            queued_commands: outcome.run.iter().map(command).collect(),
        }
    }
}

fn node(outcome: &Outcome, accounts: &Accounts) -> Option<Node> {
    let node = node_change(outcome)?;
    let mut symlinks: Vec<String> =
        outcome.event.symlinks.iter().map(|link| text(&[b"/dev/", link.as_bytes()].concat())).collect();
    symlinks.sort();
    let owner = Owner {
        uid: node.owner,
        user_name: node.owner.and_then(|uid| accounts.user_name(uid)).map(|name| text(&name)),
        gid: node.group,
        group_name: node.group.and_then(|gid| accounts.group_name(gid)).map(|name| text(&name)),
    };
    let label =
        |(name, label): &(_, _)| SecurityLabel { name: text::<bstr::BString>(name), label: text(label) };
    Some(Node {
        path: text(&node.devnode),
        kind: if node.block { "block" } else { "char" },
        rdev: Number { major: node.devnum.major, minor: node.devnum.minor },
        owner: (owner.uid.is_some() || owner.gid.is_some()).then_some(owner),
        mode: node.mode.map(|mode| format!("{mode:04o}")),
        security_labels: node.seclabels.iter().map(label).collect(),
        symlink_priority: (!symlinks.is_empty()).then_some(outcome.link_priority),
        symlinks,
        inotify_watch: outcome.watch == Some(Watch::On),
    })
}

/// Bytes that are no UTF-8 are replaced.
fn text<T: AsRef<[u8]> + ?Sized>(bytes: &T) -> String {
    bytes.as_ref().to_str_lossy().into_owned()
}
