//! Finds and reads rules files: folders, precedence, masks (rules.md 1.1), and whether anything has
//! changed since (1.2).
//!
//! Must stay true: no file is opened that could block (a FIFO) or never ends (a device); every read has
//! a limit; a file that cannot be read costs itself only.

use super::Roots;
use crate::rules::compile::SourceFile;
use bstr::BString;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Largest rules file that is read, in bytes. The largest one known has 64 KiB.
const MAX_FILE: u64 = 16 << 20;

/// Most rules files that are looked at; those that sort last are left out.
const MAX_FILES: usize = 10_000;

/// Where rules files are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFiles {
    /// Highest precedence first.
    folders: Vec<PathBuf>,
}

/// A rules file that counts: no file of its name in a higher folder does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFile {
    pub path: PathBuf,
    /// It is empty or a device: it only hides those of its name in lower folders.
    pub is_mask: bool,
    state: State,
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    device: u64,
    inode: u64,
    /// Of the last modification.
    seconds: i64,
    nanoseconds: i64,
    size: u64,
    /// File type and permissions.
    mode: u32,
}

/// The rules files at one moment: bytes that are other ones when other files count, or one was written or replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot(pub BString);

impl Snapshot {
    fn of(files: &[RuleFile]) -> Snapshot {
        let mut text = BString::default();
        for file in files {
            let State { device, inode, seconds, nanoseconds, size, mode } = file.state;
            text.extend_from_slice(file.path.as_os_str().as_bytes());
            text.extend([0, u8::from(file.is_mask)]);
            for number in [device, inode, seconds as u64, nanoseconds as u64, size, u64::from(mode)] {
                text.extend_from_slice(&number.to_ne_bytes());
            }
        }
        Snapshot(text)
    }
}

/// The files that were read.
#[derive(Debug)]
pub struct Loaded {
    /// In the order of evaluation, masks left out.
    pub files: Vec<SourceFile>,
    /// Files that could not be read.
    pub failures: Vec<(PathBuf, io::Error)>,
    pub snapshot: Snapshot,
}

impl Loaded {
    /// There are rules files, but none could be read: what is in use should stay.
    pub fn is_failure(&self) -> bool {
        self.files.is_empty() && !self.failures.is_empty()
    }
}

impl RuleFiles {
    /// The usual folders below these roots, or `replacements` if there are any.
    pub fn new(roots: &Roots, replacements: &[PathBuf]) -> RuleFiles {
        if !replacements.is_empty() {
            return RuleFiles { folders: replacements.to_vec() };
        }
        let bases = [&roots.etc, &roots.run, &roots.local_lib, &roots.lib];
        RuleFiles { folders: bases.map(|base| base.join("udev/rules.d")).to_vec() }
    }

    /// Those in these folders, highest precedence first.
    pub fn in_folders(folders: Vec<PathBuf>) -> RuleFiles {
        RuleFiles { folders }
    }

    /// The folders, highest precedence first.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// The files that count, sorted by name, byte by byte. A folder that cannot be read is logged and
    /// passed over.
    pub fn find(&self) -> Vec<RuleFile> {
        let mut by_name = BTreeMap::new();
        for folder in &self.folders {
            match names(folder) {
                Ok(names) => {
                    for name in names {
                        add(&mut by_name, folder, name);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => log::debug!("cannot read folder {}: {error}", folder.display()),
            }
        }
        if by_name.len() > MAX_FILES {
            log::error!("there are more than {MAX_FILES} rules files; the last ones are not read");
        }
        by_name.into_values().take(MAX_FILES).collect()
    }

    /// Where a file of this name, with or without `.rules`, lies in the highest folder that has one.
    pub fn locate(&self, name: &OsStr) -> Option<PathBuf> {
        let mut full = name.to_owned();
        if !full.as_bytes().ends_with(b".rules") {
            full.push(".rules");
        }
        self.folders.iter().map(|folder| folder.join(&full)).find(|path| path.exists())
    }

    /// Reads all files that count.
    pub fn load(&self) -> Loaded {
        let found = self.find();
        let (mut files, mut failures) = (Vec::new(), Vec::new());
        for file in found.iter().filter(|f| !f.is_mask) {
            match read(&file.path) {
                Ok(source) => files.push(source),
                Err(error) => failures.push((file.path.clone(), error)),
            }
        }
        Loaded { files, failures, snapshot: Snapshot::of(&found) }
    }

    /// The files as they are now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.find())
    }
}

/// Names that end in `.rules` and do not begin with a dot.
fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    let is_rules = |name: &OsStr| name.as_bytes().ends_with(b".rules") && !name.as_bytes().starts_with(b".");
    let entries = std::fs::read_dir(folder)?;
    Ok(entries.flatten().map(|entry| entry.file_name()).filter(|name| is_rules(name)).collect())
}

/// Adds a file, unless a higher folder has one of its name. Only regular files and devices count,
/// symlinks followed: a dangling one, a folder or a FIFO hides nothing.
fn add(by_name: &mut BTreeMap<OsString, RuleFile>, folder: &Path, name: OsString) {
    if by_name.contains_key(&name) {
        return;
    }
    let path = folder.join(&name);
    let metadata = match std::fs::metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) => return log::debug!("{} is passed over: {error}", path.display()),
    };
    let kind = metadata.file_type();
    let is_device = kind.is_char_device() || kind.is_block_device();
    if !is_device && !kind.is_file() {
        return log::debug!("{} is passed over: it is no regular file", path.display());
    }
    by_name.insert(name, RuleFile { path, is_mask: is_mask(&metadata), state: State::of(&metadata) });
}

/// Whether a file only hides those of its name: it is empty, or a device.
pub fn is_mask(metadata: &Metadata) -> bool {
    let kind = metadata.file_type();
    kind.is_char_device() || kind.is_block_device() || kind.is_file() && metadata.len() == 0
}

impl State {
    fn of(metadata: &Metadata) -> State {
        State {
            device: metadata.dev(),
            inode: metadata.ino(),
            seconds: metadata.mtime(),
            nanoseconds: metadata.mtime_nsec(),
            size: metadata.len(),
            mode: metadata.mode(),
        }
    }
}

/// Reads one rules file. Errors: those of open(2) and read(2); InvalidInput if it is no regular file,
/// FileTooLarge above 16 MiB.
pub fn read(path: &Path) -> io::Result<SourceFile> {
    // A file that has become a FIFO meanwhile must not block; that is found out before a byte is read.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let content = read_regular(file)?;
    Ok(SourceFile { path: BString::from(path.as_os_str().to_owned().into_vec()), content })
}

fn read_regular(file: File) -> io::Result<Vec<u8>> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut content = Vec::with_capacity(metadata.len().min(MAX_FILE) as usize + 1);
    file.take(MAX_FILE + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_FILE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A folder of its own, removed at the end.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let path = std::env::temp_dir().join(format!("mudev-rule-files-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            for folder in ["etc", "run", "local", "lib"] {
                fs::create_dir_all(path.join(folder).join("udev/rules.d")).unwrap();
            }
            Place(path)
        }

        fn at(&self, file: &str) -> PathBuf {
            let (root, name) = file.split_once('/').unwrap();
            self.0.join(root).join("udev/rules.d").join(name)
        }

        fn write(&self, file: &str, text: &str) {
            fs::write(self.at(file), text).unwrap();
        }

        fn files(&self) -> RuleFiles {
            let roots = Roots {
                etc: self.0.join("etc"),
                run: self.0.join("run"),
                local_lib: self.0.join("local"),
                lib: self.0.join("lib"),
                ..Roots::default()
            };
            RuleFiles::new(&roots, &[])
        }

        /// `root/name` of what is read, in order.
        fn read(&self) -> Vec<String> {
            let loaded = self.files().load();
            assert!(loaded.failures.is_empty(), "{:?}", loaded.failures);
            let short = |f: &SourceFile| f.path.to_string().replace(&format!("{}/", self.0.display()), "");
            loaded.files.iter().map(|f| short(f).replace("udev/rules.d/", "")).collect()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn make_fifo(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    fn the_highest_folder_wins_and_names_are_sorted_by_bytes() {
        let place = Place::new("order");
        for file in [
            "etc/71-x.rules",
            "run/71-x.rules",
            "run/71-X.rules",
            "local/9-.rules",
            "run/9-.rules",
            "lib/10-.rules",
            "lib/71-y.rules",
            "lib/71-x.rules",
            "local/71-y.rules",
            "lib/.hidden.rules",
            "lib/a.rules~",
            "lib/a.conf",
        ] {
            place.write(file, "#");
        }
        fs::create_dir(place.at("lib/sub")).unwrap();
        place.write("lib/sub/a.rules", "#");
        assert_eq!(
            place.read(),
            ["lib/10-.rules", "run/71-X.rules", "etc/71-x.rules", "local/71-y.rules", "run/9-.rules"]
        );
    }

    #[test]
    fn empty_files_and_devices_are_masks() {
        let place = Place::new("mask");
        for name in ["a", "b", "c", "d"] {
            place.write(&format!("lib/{name}.rules"), "#");
        }
        place.write("etc/a.rules", "");
        symlink("/dev/null", place.at("etc/b.rules")).unwrap();
        symlink("/dev/zero", place.at("etc/c.rules")).unwrap();
        symlink(place.at("etc/a.rules"), place.at("run/d.rules")).unwrap();
        assert_eq!(place.read(), [""; 0]);
    }

    #[test]
    fn what_is_neither_file_nor_device_hides_nothing() {
        let place = Place::new("odd");
        for name in ["dangling", "dir", "fifo", "loop", "link"] {
            place.write(&format!("lib/{name}.rules"), "#");
        }
        symlink("/nowhere", place.at("etc/dangling.rules")).unwrap();
        symlink("loop.rules", place.at("etc/loop.rules")).unwrap();
        fs::create_dir(place.at("etc/dir.rules")).unwrap();
        make_fifo(&place.at("etc/fifo.rules"));
        symlink(place.at("lib/dir.rules"), place.at("etc/link.rules")).unwrap();
        assert_eq!(
            place.read(),
            ["lib/dangling.rules", "lib/dir.rules", "lib/fifo.rules", "etc/link.rules", "lib/loop.rules"]
        );
    }

    #[test]
    fn a_fifo_is_refused_at_once() {
        let place = Place::new("fifo");
        make_fifo(&place.at("etc/x"));
        assert_eq!(read(&place.at("etc/x")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_file_without_end_is_refused() {
        let place = Place::new("large");
        File::create(place.at("etc/a.rules")).unwrap().set_len(MAX_FILE + 1).unwrap();
        let loaded = place.files().load();
        assert_eq!(loaded.failures[0].1.kind(), io::ErrorKind::FileTooLarge);
        assert!(loaded.is_failure());
    }

    #[test]
    fn changes_are_seen_and_nothing_else() {
        let place = Place::new("change");
        place.write("lib/a.rules", "#1");
        place.write("etc/b.rules", "#");
        let files = place.files();
        let mut before = files.load().snapshot;
        assert!(files.snapshot() == before);
        let mut sees = |what: &str, change: &dyn Fn()| {
            change();
            assert!(files.snapshot() != before, "{what}");
            before = files.snapshot();
        };
        sees("longer", &|| place.write("lib/a.rules", "#12"));
        sees("replaced", &|| {
            place.write("lib/new", "#12");
            fs::rename(place.at("lib/new"), place.at("lib/a.rules")).unwrap();
        });
        sees("shadowed", &|| place.write("run/a.rules", "#12"));
        sees("removed", &|| fs::remove_file(place.at("run/a.rules")).unwrap());
        place.write("lib/b.rules", "#hidden");
        place.write("lib/c.conf", "#other");
        assert!(files.snapshot() == before);
    }

    #[test]
    fn no_folder_at_all_is_no_failure() {
        let files = RuleFiles::new(&Roots::default(), &["/nowhere/rules.d".into()]);
        let loaded = files.load();
        assert!(loaded.files.is_empty() && !loaded.is_failure());
    }
}
