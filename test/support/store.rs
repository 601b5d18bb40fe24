//! What a daemon has written below /run/udev and /dev of a cell, in a form that can be compared.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Files that come and go with the daemon, or are those of the test.
const NOT_STATE: [&str; 5] = ["control", "mudev.status", "queue", "rules.d", "notify"];

/// Path -> what is there: the target of a symlink, mode and content of a file, mode of a folder. Left out are
/// nodes, numbers of watches, and when devices were first seen.
pub fn state() -> BTreeMap<String, String> {
    let mut state = BTreeMap::new();
    read(Path::new("/run/udev"), &mut state);
    read(Path::new("/dev"), &mut state);
    state
}

/// The same without folders of tags, which stay when their last entry goes.
pub fn state_without_empty_tags() -> BTreeMap<String, String> {
    let mut state = state();
    let is_empty_tag =
        |path: &str| path.strip_prefix("/run/udev/tags/").is_some_and(|tag| !tag.contains('/'));
    state.retain(|path, _| !is_empty_tag(path));
    state
}

fn read(folder: &Path, state: &mut BTreeMap<String, String>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = path.to_string_lossy().into_owned();
        if folder == Path::new("/run/udev") && NOT_STATE.iter().any(|not| path.ends_with(not)) {
            continue;
        }
        let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
        let kind = meta.file_type();
        let mode = meta.mode() & 0o7777;
        if kind.is_symlink() {
            let target = std::fs::read_link(&path).unwrap_or_default().display().to_string();
            // inotify counts on.
            let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
            match folder.ends_with("watch") {
                true if path.file_name().is_some_and(|n| is_number(&n.to_string_lossy())) => {
                    state.insert(format!("{}/*>{target}", folder.display()), "watched".into())
                }
                true => state.insert(name, "watched".into()),
                false => state.insert(name, format!("-> {target}")),
            };
        } else if kind.is_dir() {
            state.insert(name, format!("folder {mode:o}"));
            read(&path, state);
        } else if kind.is_file() {
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into_owned();
            let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("I:")).collect();
            state.insert(name, format!("file {mode:o} {}", lines.join(" / ")));
        }
    }
}

/// What two states differ in, for people: `-` only in the first, `+` only in the second.
pub fn difference(first: &BTreeMap<String, String>, second: &BTreeMap<String, String>) -> Vec<String> {
    let only = |sign, one: &BTreeMap<String, String>, other: &BTreeMap<String, String>| {
        let missing = one.iter().filter(|(path, what)| other.get(*path) != Some(what));
        missing.map(|(path, what)| format!("{sign} {path}: {what}")).collect::<Vec<_>>()
    };
    [only('-', first, second), only('+', second, first)].concat()
}
