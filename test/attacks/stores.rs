//! Stores that fail: `/run` read-only, or emptied by others, all while devices come and go.

use crate::Attack;
use crate::cell;
use crate::ground::Ground;
use crate::others;
use crate::storms;
use std::path::Path;

pub const ATTACKS: &[Attack] = &[
    Attack { name: "folders below /run/udev are emptied", run: emptied },
    Attack { name: "folders below /run/udev are removed", run: removed },
    Attack { name: "/run/udev is renamed away", run: renamed },
    Attack { name: "/run is read-only", run: read_only },
];

const FOLDERS: [&str; 4] = ["/run/udev/data", "/run/udev/tags", "/run/udev/links", "/run/udev/tags/net"];

/// As one that cleans up does: the daemon is told nothing, and then all devices are triggered.
fn emptied(ground: &mut Ground) {
    (storms::ATTACKS[0].run)(ground);
    let folder = FOLDERS[ground.random.below(FOLDERS.len())];
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
    }
    trigger_all();
}

fn removed(ground: &mut Ground) {
    (storms::ATTACKS[0].run)(ground);
    let folder = FOLDERS[ground.random.below(FOLDERS.len())];
    let _ = std::fs::remove_dir_all(folder);
    trigger_all();
}

fn renamed(ground: &mut Ground) {
    let away = Path::new("/run/away");
    let _ = std::fs::remove_dir_all(away);
    let _ = std::fs::rename("/run/udev", away);
    (storms::ATTACKS[0].run)(ground);
    trigger_all();
}

fn read_only(ground: &mut Ground) {
    let remount = |flags| cell::mount("none", "/run", "", libc::MS_REMOUNT | libc::MS_BIND | flags, "");
    // Not while somebody writes.
    ground.eventually("/run becomes read-only", |_| remount(libc::MS_RDONLY).ok());
    (storms::ATTACKS[0].run)(ground);
    ground.others_are_served("/run is read-only");
    remount(0).expect("makes it writable");
    others::wait_for_records(ground);
}

/// What `trigger` does.
pub fn trigger_all() {
    let mut folders = vec![std::path::PathBuf::from("/sys/devices")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            } else if entry.file_name() == "uevent" {
                let _ = std::fs::write(entry.path(), "change");
            }
        }
    }
}
