//! What must hold when everything has become quiet: the slow reference, which looks at the devices that are there
//! and at nothing that happened.

use super::Sim;
use super::kernel::{Device, Kernel};
use super::shell::Announced;
use crate::model::hash::escape_symlink;
use crate::model::record::Record;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

/// Path and content of everything below `/run/udev` and of every symlink below `/dev`.
type State = BTreeMap<String, String>;

/// The first thing that is not as it must be.
pub(super) fn check(sim: &Sim) -> Result<(), String> {
    let daemon = sim.daemon.as_ref().ok_or("no daemon runs")?;
    if daemon.busy {
        return Err("settle would wait though it is idle".into());
    }
    check_links(&sim.kernel, &daemon.links.table)?;
    let last = last_of_each(&daemon.announced);
    check_disk(sim, &last)?;
    check_last(&sim.kernel, &last)?;
    for (announced, made_up) in &sim.history.lives {
        check_order(announced, made_up)?;
    }
    check_order(&daemon.announced, &daemon.made_up)?;
    check_all_announced(sim)
}

fn check_links(kernel: &Kernel, table: &crate::links::Table) -> Result<(), String> {
    let ours: BTreeMap<u32, (String, u32)> =
        table.iter().map(|link| (link.ifindex, (link.name.as_bstr().to_string(), link.mtu))).collect();
    let links = kernel.devices.values().filter(|device| device.subsystem == "net");
    let theirs: BTreeMap<u32, (String, u32)> =
        links.map(|device| (device.ifindex, (device.name().to_owned(), device.value))).collect();
    match ours == theirs {
        true => Ok(()),
        false => Err(format!("links differ\n   table  {ours:?}\n   kernel {theirs:?}")),
    }
}

fn last_of_each(announced: &[Announced]) -> BTreeMap<&str, &Announced> {
    announced.iter().map(|message| (message.id.as_str(), message)).collect()
}

/// Devices that are there were last announced as they are, those that are gone as gone.
fn check_last(kernel: &Kernel, last: &BTreeMap<&str, &Announced>) -> Result<(), String> {
    for (id, message) in last {
        let says = |name: &str| message.properties.get(name).map(String::as_str).unwrap_or_default();
        let was_removed = says("ACTION") == "remove";
        let Some(device) = kernel.devices.get(*id) else {
            // Of one whose event failed no record tells that it was there.
            match was_removed || says("UDEV_WORKER_FAILED") == "1" {
                true => continue,
                false => {
                    return Err(format!("a device that is gone was not announced so\n   {id}: {message:?}"));
                }
            }
        };
        let told = (says("DEVPATH"), says(attribute(device)));
        if was_removed || told != (device.devpath.as_str(), device.value.to_string().as_str()) {
            return Err(format!("a device was last announced as it is not\n   {device:?}: {message:?}"));
        }
    }
    match kernel.devices.keys().find(|id| !last.contains_key(id.as_str())) {
        Some(id) => Err(format!("a device was never announced\n   {id}")),
        None => Ok(()),
    }
}

/// Events of one device come out in the order of their numbers.
fn check_order(announced: &[Announced], made_up: &HashSet<u64>) -> Result<(), String> {
    let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
    for message in announced.iter().filter(|message| !made_up.contains(&message.seqnum)) {
        let before = newest.insert(&message.id, message.seqnum).unwrap_or(0);
        if before >= message.seqnum {
            let (id, number) = (&message.id, message.seqnum);
            return Err(format!("announced in the wrong order\n   {id}: {before}, then {number}"));
        }
    }
    Ok(())
}

/// Where nothing was lost, nobody died and nothing was folded, each event is announced once.
fn check_all_announced(sim: &Sim) -> Result<(), String> {
    let daemon = sim.daemon.as_ref().ok_or("no daemon runs")?;
    let is_lost = sim.kernel.sent.iter().any(|event| event.lost && event.seqnum > sim.history.first);
    // The number of a removal that we make up may be that of an event of old.
    if sim.history.is_troubled || is_lost || !daemon.made_up.is_empty() {
        return Ok(());
    }
    let sent: BTreeSet<u64> = sim.kernel.sent.iter().filter(|e| !e.lost).map(|e| e.seqnum).collect();
    let numbers = daemon.announced.iter().map(|message| message.seqnum);
    let announced: BTreeSet<u64> = numbers.filter(|n| !daemon.made_up.contains(n)).collect();
    match sent == announced {
        true => Ok(()),
        false => {
            let missing: Vec<&u64> = sent.symmetric_difference(&announced).collect();
            Err(format!("events and announcements differ\n   {missing:?}"))
        }
    }
}

fn attribute(device: &Device) -> &'static str {
    match device.subsystem {
        "net" => "MTU",
        "block" => "SIZE",
        _ => "VALUE",
    }
}

fn check_disk(sim: &Sim, last: &BTreeMap<&str, &Announced>) -> Result<(), String> {
    let ours = on_disk(sim);
    let right = expected(&sim.kernel, last);
    let keys: BTreeSet<&String> = ours.keys().chain(right.keys()).collect();
    let differ = |key: &&&String| {
        let (ours, right) = (ours.get(**key), right.get(**key));
        // Of equal claims any may own the symlink.
        let is_one_of = |right: &String| right.split('|').any(|one| ours.is_some_and(|ours| ours == one));
        !(ours == right || right.is_some_and(is_one_of))
    };
    let wrong: Vec<String> = (keys.iter().filter(differ))
        .map(|key| format!("   {key}\n      is    {:?}\n      right {:?}", ours.get(*key), right.get(*key)))
        .collect();
    match wrong.first() {
        None => Ok(()),
        Some(first) => {
            let kind = match (first.contains("is    None"), first.contains("right None")) {
                (true, _) => "missing",
                (_, true) => "left behind",
                _ => "wrong",
            };
            let folder = first.trim().split('/').next().unwrap_or_default();
            Err(format!("{kind} on disk: {folder}\n{}", wrong.join("\n")))
        }
    }
}

fn on_disk(sim: &Sim) -> State {
    let mut state = State::new();
    for folder in ["data", "tags", "links"] {
        walk(&sim.tree.path("run/udev"), folder, &mut state);
    }
    let nodes = sim.kernel.devices.values().filter(|device| device.minor.is_some());
    let nodes: BTreeSet<String> = nodes.map(|device| format!("dev/{}", device.name())).collect();
    walk(&sim.tree.root, "dev", &mut state);
    state.retain(|key, _| !nodes.contains(key));
    state
}

fn walk(root: &Path, folder: &str, state: &mut State) {
    for entry in std::fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
        let path = entry.path();
        let key = format!("{folder}/{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type().expect("a type");
        let content = match kind.is_symlink() {
            _ if kind.is_dir() => {
                walk(root, &key, state);
                continue;
            }
            true => std::fs::read_link(&path).expect("a target").to_string_lossy().into_owned(),
            false => match std::fs::read(&path) {
                Ok(bytes) if folder == "data" => describe(&Record::parse(&bytes)),
                Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Err(error) => error.to_string(),
            },
        };
        state.insert(key, content);
    }
}

/// A record, but for the time at which it was begun.
fn describe(record: &Record) -> String {
    let properties: BTreeMap<String, String> = (record.properties.iter())
        .map(|p| (p.name.to_string(), String::from_utf8_lossy(p.value).into_owned()))
        .collect();
    let set = |names: &mut dyn Iterator<Item = String>| names.collect::<BTreeSet<String>>();
    let links = set(&mut record.symlinks.iter().map(|link| link.to_string()));
    let tags = set(&mut record.tags.iter().map(|tag| tag.to_string()));
    let current = set(&mut record.current_tags.iter().map(|tag| tag.to_string()));
    format!("{properties:?} {links:?} {} {tags:?} {current:?}", record.priority)
}

/// What the rules of the simulation make of one device.
struct Made {
    record: Record,
    tags: Vec<&'static str>,
    links: Vec<String>,
    priority: i32,
}

/// Whether the program had something to say is a matter of dice: the announcement tells.
fn made(device: &Device, last: &BTreeMap<&str, &Announced>) -> Made {
    let mut record = Record::default();
    record.properties.set(attribute(device), device.value.to_string());
    if device.subsystem == "net" {
        record.properties.set("ALIAS", device.alias.to_string());
    }
    let id = device.id();
    if let Some(said) = last.get(id.as_str()).and_then(|message| message.properties.get("R")) {
        record.properties.set("R", said.as_str());
    }
    let is_even = device.name().ends_with(['0', '2', '4', '6', '8']);
    let (tags, links, priority): (&[&'static str], Vec<String>, i32) = match device.subsystem {
        "net" => (&["net"], vec![], 0),
        "block" => {
            let name = device.name();
            let own = ["by", "also", "odd"].map(|folder| format!("{folder}/{name}"));
            let links = own.into_iter().chain(["shared/disk".to_owned(), "odd/disk".to_owned()]).collect();
            (&["disk", "many", "more", "most"], links, if is_even { 5 } else { 0 })
        }
        "misc" => (&["misc", "node"], vec!["shared/misc".to_owned()], 0),
        _ => (&["plain"], vec![], 0),
    };
    record.priority = priority;
    record.tags = tags.iter().copied().collect();
    record.current_tags = record.tags.clone();
    record.symlinks = links.iter().map(String::as_str).collect();
    Made { record, tags: tags.to_vec(), links, priority }
}

fn expected(kernel: &Kernel, last: &BTreeMap<&str, &Announced>) -> State {
    let mut state = State::new();
    let mut claims: BTreeMap<String, Vec<(i32, String)>> = BTreeMap::new();
    for device in kernel.devices.values() {
        let (id, name, made) = (device.id(), device.name(), made(device, last));
        state.insert(format!("data/{id}"), describe(&made.record));
        for tag in made.tags {
            state.insert(format!("tags/{tag}/{id}"), String::new());
        }
        for link in made.links {
            let escaped = escape_symlink(link.as_bytes());
            state.insert(format!("links/{escaped}/{id}"), format!("{}:/dev/{name}", made.priority));
            claims.entry(link).or_default().push((made.priority, format!("../{name}")));
        }
        if let Some(minor) = device.minor {
            let (kind, major) = if device.subsystem == "block" { ("block", 8) } else { ("char", 10) };
            state.insert(format!("dev/{kind}/{major}:{minor}"), format!("../{name}"));
        }
    }
    for (link, claims) in claims {
        let best = claims.iter().map(|(priority, _)| *priority).max();
        let owners = claims.into_iter().filter(|(priority, _)| Some(*priority) == best);
        let owners: Vec<String> = owners.map(|(_, target)| target).collect();
        state.insert(format!("dev/{link}"), owners.join("|"));
    }
    state
}
