//! .link files: how network interfaces are to be set up (builtins.md 2.1 to 2.3).
//!
//! All files are read once, when rules are loaded. What must stay true: one list over four folders,
//! sorted by base name, where the higher folder hides the lower; a bad value costs its key only; and
//! nothing that is written in a file is ignored without a word.
//!
//! * here: which files there are, and their state on disk;
//! * `file`: one of them as a value; `parser`, `values`, `later`: what a text says;
//!   [`matching`]: which interfaces it is for.

mod file;
mod later;
pub mod matching;
mod parser;
mod values;

use super::host::{Host, Told};
use crate::world::Roots;
use crate::world::config::parse_bool;
use crate::world::files;
pub use file::{ALT_NAME_MAX, LinkFile, MacPolicy, NamePolicy, Part};
use matching::Subject;
use std::collections::BTreeMap;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A .link file beyond this is none.
const FILE_MAX: u64 = 1 << 20;

/// All files in order, and what they were read from.
#[derive(Debug)]
pub struct LinkFiles {
    files: Vec<LinkFile>,
    state: String,
    /// net.ifnames of the kernel command line.
    pub names_enabled: bool,
    pub machine_id: Option<[u8; 16]>,
    /// A file has PermanentMACAddress=, and the kernel does not tell permanent addresses in its messages.
    pub asks_permanent_address: bool,
}

/// What differs when a file has changed.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    inode: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

/// What [`LinkFiles::parse`] takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    /// In order, each file with its drop-ins behind it.
    pub files: Vec<Vec<Part>>,
    /// As [`state_of`] tells it.
    pub state: String,
    pub told: Told,
}

impl Texts {
    /// Reads all files; may wait.
    pub fn read(roots: &Roots) -> Texts {
        let folders = folders(roots);
        // First, so that a change while we read is seen as one.
        let state = state_of(&folders);
        let part = |path: PathBuf| Part { content: read_text(&path), path };
        let with_drop_ins = |path: PathBuf| {
            let mut name = path.file_name()?.to_owned();
            name.push(".d");
            let drop_in_folders: Vec<PathBuf> = folders.iter().map(|folder| folder.join(&name)).collect();
            let drop_ins = visible(&drop_in_folders, ".conf");
            Some([path].into_iter().chain(drop_ins).map(part).collect())
        };
        let files = visible(&folders, ".link").into_iter().filter_map(with_drop_ins).collect();
        Texts { files, state, told: Told::read(roots) }
    }
}

impl LinkFiles {
    /// Reads and parses all files. May wait.
    pub fn load(host: &Host) -> (LinkFiles, Vec<String>) {
        LinkFiles::parse(&Texts::read(&host.roots), host)
    }

    /// Parses the texts for this host. The messages are for the log.
    pub fn parse(texts: &Texts, host: &Host) -> (LinkFiles, Vec<String>) {
        let mut log = Vec::new();
        let files: Vec<LinkFile> =
            texts.files.iter().filter_map(|parts| parser::parse_file(parts, host, &mut log)).collect();
        let option = crate::model::command::kernel_value(&host.command_line, b"net.ifnames", false);
        let names_enabled = match option {
            Some(Some(value)) => parse_bool(&value).unwrap_or(true),
            Some(None) | None => true,
        };
        let asks_permanent_address =
            files.iter().any(|file| file.matching.wants_permanent_address()) && !host.kernel_is("5.6");
        let (state, machine_id) = (texts.state.clone(), host.told.machine_id);
        (LinkFiles { files, state, names_enabled, machine_id, asks_permanent_address }, log)
    }

    /// The state that they were read in, as [`state_of`] tells it.
    pub fn state(&self) -> &str {
        &self.state
    }

    /// The first file for this link.
    pub fn find(&self, subject: &Subject) -> Option<&LinkFile> {
        self.files.iter().find(|file| file.matching.matches(subject))
    }

    /// All files in order.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &LinkFile> {
        self.files.iter()
    }
}

/// A text that is the same for the same files and drop-ins in the same state only. May wait.
pub fn state_of(folders: &[PathBuf]) -> String {
    format!("{:?}", stamps(folders))
}

/// High priority first.
pub fn folders(roots: &Roots) -> [PathBuf; 4] {
    [&roots.etc, &roots.run, &roots.local_lib, &roots.lib].map(|root| root.join("systemd/network"))
}

/// Names of entries in a folder with this ending; nothing if it is not there.
fn entries(folder: &Path, suffix: &str) -> Vec<std::ffi::OsString> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .filter(|name| name.as_bytes().ends_with(suffix.as_bytes()))
        .collect()
}

/// The files of this ending that are not hidden by one of the same name in a higher folder, sorted by
/// name. An empty file and a symlink to /dev/null hide and are themselves left out.
fn visible(folders: &[PathBuf], suffix: &str) -> Vec<PathBuf> {
    let mut by_name = BTreeMap::new();
    for folder in folders {
        for name in entries(folder, suffix) {
            by_name.entry(name.into_vec()).or_insert_with_key(|name| {
                let path = folder.join(std::ffi::OsStr::from_bytes(name));
                match std::fs::metadata(&path) {
                    Ok(meta) if meta.file_type().is_char_device() || meta.len() == 0 => None,
                    _ => Some(path),
                }
            });
        }
    }
    by_name.into_values().flatten().collect()
}

/// The present state of all that [`Texts::read`] reads.
fn stamps(folders: &[PathBuf]) -> Vec<Stamp> {
    let mut stamps = Vec::new();
    let mut stamp = |path: PathBuf| {
        if let Ok(meta) = std::fs::metadata(&path) {
            let inode = (meta.dev(), meta.ino());
            stamps.push(Stamp { path, inode, size: meta.len(), changed: (meta.mtime(), meta.mtime_nsec()) });
        }
    };
    for folder in folders {
        for name in entries(folder, ".link") {
            stamp(folder.join(name));
        }
        for name in entries(folder, ".link.d") {
            let drop_ins = folder.join(name);
            for name in entries(&drop_ins, ".conf") {
                stamp(drop_ins.join(name));
            }
        }
    }
    stamps.sort_by(|a, b| a.path.cmp(&b.path));
    stamps
}
fn read_text(path: &Path) -> Result<Vec<u8>, String> {
    let meta = std::fs::metadata(path).map_err(|e| format!("cannot be read: {e}"))?;
    if !meta.is_file() || meta.len() > FILE_MAX {
        return Err("no regular file of at most 1 MiB, ignored".into());
    }
    files::read_bounded(path, FILE_MAX).map(Vec::from).map_err(|e| format!("cannot be read: {e}"))
}

#[cfg(test)]
mod tests;
