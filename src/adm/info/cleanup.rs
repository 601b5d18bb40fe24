//! `info --cleanup-db` (interop.md 1.12): before a switch of the root this removes the records of devices, but for
//! those that a rule has marked to be kept (OPTIONS="db_persist").

use super::super::Stop;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Mode bit of a record that is kept.
const STICKY: u32 = 0o1000;

/// Cleans `/run/udev`. All is tried; the first error is returned.
pub(super) fn run(udev: &Path) -> Result<(), Stop> {
    let mut kept = HashSet::new();
    let mut result = clean_data(&udev.join("data"), &mut kept);
    for index in ["links", "tags"] {
        let cleaned = clean_index(&udev.join(index), &kept);
        result = result.and(cleaned);
    }
    let cleaned = missing_is_fine(fs::remove_dir_all(udev.join("static_node-tags")));
    result.and(cleaned).map_err(|e| Stop::Failed(format!("cannot clean {}: {e}", udev.display())))
}

fn missing_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Entries of a directory; none if it is not there.
fn entries(dir: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(dir) {
        Ok(entries) => entries.collect(),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// Removes the records without the sticky bit; notes the names of the others.
fn clean_data(dir: &Path, kept: &mut HashSet<OsString>) -> io::Result<()> {
    let mut result = Ok(());
    for entry in entries(dir)? {
        let is_kept = entry.metadata().is_ok_and(|m| m.permissions().mode() & STICKY != 0);
        if is_kept {
            kept.insert(entry.file_name());
        } else {
            result = result.and(remove(&entry.path()));
        }
    }
    result
}

/// Removes a record or an entry. A directory that is not empty is neither and stays, as with udev.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                log::warn!("{} is a directory that is not empty: it stays", path.display());
                Ok(())
            }
            removed => missing_is_fine(removed),
        },
        removed => missing_is_fine(removed),
    }
}

/// Removes entries of devices that have no record left, and directories that are empty then.
fn clean_index(dir: &Path, kept: &HashSet<OsString>) -> io::Result<()> {
    let mut result = Ok(());
    for folder in entries(dir)? {
        let mut is_empty = true;
        for entry in entries(&folder.path())? {
            if kept.contains(&entry.file_name()) {
                is_empty = false;
            } else {
                result = result.and(remove(&entry.path()));
            }
        }
        if is_empty {
            // A file that is not ours to judge may be in the way.
            let _ = fs::remove_dir(folder.path());
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tree::Tree;

    #[test]
    fn only_what_belongs_to_kept_records_stays() {
        let tree = Tree::new();
        tree.file("udev/data/b8:0", "G:seat\nV:1\n").mode("udev/data/b8:0", 0o1644);
        tree.file("udev/data/c1:3", "").file("udev/tags/seat/b8:0", "").file("udev/tags/seat/c1:3", "");
        tree.file("udev/tags/uaccess/c1:3", "").link("udev/links/disk\\x2fx/b8:0", "0:/dev/sda");
        tree.link("udev/links/y/c1:3", "0:/dev/null").file("udev/links/y/.lock", "");
        tree.link("udev/static_node-tags/uaccess/snd\\x2fseq", "/dev/snd/seq").link("udev/watch/1", "b8:0");
        run(&tree.path("udev")).unwrap();
        for there in ["data/b8:0", "tags/seat/b8:0", "watch/1", "links/disk\\x2fx/b8:0"] {
            assert!(tree.path("udev").join(there).symlink_metadata().is_ok(), "{there}");
        }
        for gone in ["data/c1:3", "tags/seat/c1:3", "tags/uaccess", "links/y", "static_node-tags"] {
            assert!(tree.path("udev").join(gone).symlink_metadata().is_err(), "{gone}");
        }
    }

    #[test]
    fn a_directory_in_place_of_a_record_stops_nothing() {
        let tree = Tree::new();
        tree.dir("udev/data/n1").file("udev/data/n2/x", "").file("udev/data/n3", "").dir("udev/tags/t/n1");
        assert_eq!(run(&tree.path("udev")), Ok(()));
        for gone in ["data/n1", "data/n3", "tags/t"] {
            assert!(!tree.path("udev").join(gone).exists(), "{gone}");
        }
        assert!(tree.path("udev/data/n2/x").exists());
    }

    #[test]
    fn where_no_daemon_ever_ran_there_is_nothing_to_do() {
        assert_eq!(run(&Tree::new().path("udev")), Ok(()));
    }
}
