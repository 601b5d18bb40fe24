//! What a daemon has made of the devices: everything it keeps in `/run/udev` and `/dev`, as texts that can be
//! compared with those of another daemon.
//!
//! Block devices are seen by all namespaces, so those of other tests, which come and go, are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs::Permissions;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// Disks and their numbers that the attacks have made, those that are gone too.
#[derive(Clone, Debug, Default)]
pub struct Disks {
    names: BTreeSet<String>,
    ids: BTreeSet<String>,
}

impl Disks {
    /// Notes a disk that is there.
    pub fn insert(&mut self, name: &str) {
        self.names.insert(name.to_owned());
        if let Ok(number) = std::fs::read_to_string(format!("/sys/class/block/{name}/dev")) {
            self.ids.insert(format!("b{}", number.trim()));
        }
    }

    /// Makes the nodes as the kernel would.
    pub fn forget_modes(&self) {
        for name in &self.names {
            let _ = std::fs::set_permissions(Path::new("/dev").join(name), Permissions::from_mode(0o600));
        }
    }

    /// Whether a record, a tag or the like of this id is not ours to judge.
    fn is_of_others(&self, id: &str) -> bool {
        let Some(number) = id.strip_prefix('b').filter(|_| !self.ids.contains(id)) else { return false };
        let Ok(target) = std::fs::read_link(format!("/sys/dev/block/{number}")) else { return true };
        self.is_disk_of_others(&last(&target))
    }

    /// The same of the name of a disk.
    fn is_disk_of_others(&self, name: &str) -> bool {
        let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_of_tests = kind == "zram" || kind.starts_with("loop") && name.len() > "loop7".len();
        is_of_tests && !self.names.contains(name)
    }
}

/// Path below the two folders, and what is there.
pub type State = BTreeMap<String, String>;

/// What a symlink points to that a disk of others owns at this moment: it says nothing of ours.
const OF_OTHERS: &str = "a disk of others";

/// Looks at everything once.
pub fn capture(disks: &Disks) -> State {
    let mut state = State::new();
    for folder in ["data", "tags", "links", "watch"] {
        walk(&Path::new("/run/udev").join(folder), &mut |path| note(&mut state, path, disks));
    }
    if Path::new("/run/udev/queue").exists() {
        state.insert("/run/udev/queue".into(), "there".into());
    }
    walk(Path::new("/dev"), &mut |path| note_in_dev(&mut state, path, disks));
    state
}

/// Calls with everything below the folder that is no folder.
fn walk(folder: &Path, found: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), found),
            _ => found(&entry.path()),
        }
    }
}

fn last(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn note(state: &mut State, path: &Path, disks: &Disks) {
    let target = std::fs::read_link(path).map(|target| target.to_string_lossy().into_owned());
    let mut key = path.to_string_lossy().into_owned();
    let mut content = match &target {
        Ok(target) => target.clone(),
        Err(_) => String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned(),
    };
    let mut id = last(path);
    if key.starts_with("/run/udev/watch/") {
        // Descriptors of inotify are given out anew: only who is watched counts, and how often.
        if id.parse::<u32>().is_ok() {
            key = format!("watched by number: {content}");
            id = content;
        }
        content = match state.get(&key) {
            Some(before) => format!("{before}, once more"),
            None => "once".to_owned(),
        };
    }
    if key.starts_with("/run/udev/links/") {
        // Older daemons make symlinks, newer ones files of the same text.
        content = target.unwrap_or(content);
    }
    if key.starts_with("/run/udev/data/") {
        let mut lines: Vec<&str> = content.lines().filter(|line| !line.starts_with("I:")).collect();
        lines.sort_unstable();
        content = lines.join("\n");
        let mode = std::fs::symlink_metadata(path).map_or(0, |meta| meta.mode());
        let _ = write!(content, "\n{:o}", mode & 0o7777);
    }
    if id.starts_with(".#") {
        key.push_str(" (left behind)");
        id = id[2..].to_owned();
    }
    if !disks.is_of_others(&id) {
        state.insert(key, content);
    }
}

/// Symlinks by what they point to; nodes of disks of ours by owner and mode.
fn note_in_dev(state: &mut State, path: &Path, disks: &Disks) {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return };
    let name = last(path);
    let key = path.to_string_lossy().into_owned();
    if meta.file_type().is_symlink() {
        let target = std::fs::read_link(path).map(|target| target.to_string_lossy().into_owned());
        let mut target = target.unwrap_or_default();
        if name == "any-disk" {
            // Among those of equal priority the first come stays the owner.
            target = match disks.is_disk_of_others(&last(Path::new(&target))) {
                true => OF_OTHERS.to_owned(),
                false => format!("a disk of {} number", if is_even(&target) { "even" } else { "odd" }),
            };
        }
        let is_of_others = match key.strip_prefix("/dev/").and_then(|path| path.strip_suffix(&name)) {
            Some("block/") => disks.is_of_others(&format!("b{name}")),
            Some("att/disk/") => disks.is_disk_of_others(&name),
            _ => false,
        };
        if !is_of_others {
            state.insert(key, target);
        }
    } else if meta.file_type().is_block_device() && disks.names.contains(&name) {
        state.insert(key, format!("{:o} {}:{}", meta.mode(), meta.uid(), meta.gid()));
    }
}

fn is_even(name: &str) -> bool {
    name.ends_with(['0', '2', '4', '6', '8'])
}

/// Up to `MOST` lines, one for each thing that is not the same.
pub fn differences(ours: &State, fresh: &State) -> Vec<String> {
    const MOST: usize = 40;
    let keys: BTreeSet<&String> = ours.keys().chain(fresh.keys()).collect();
    let is_of_others = |state: &State, key| state.get(key).is_some_and(|what| what == OF_OTHERS);
    let differ = keys.into_iter().filter(|key| {
        ours.get(*key) != fresh.get(*key) && !is_of_others(ours, *key) && !is_of_others(fresh, *key)
    });
    let line = |key: &String| format!("{key}\n   is    {:?}\n   fresh {:?}", ours.get(key), fresh.get(key));
    differ.map(line).take(MOST).collect()
}
