//! Replacing a file or a symlink at once: readers see the old one or the new one, never a part.
//!
//! The new one is made beside the old one under a name with `.#` in front, which readers of
//! `/run/udev` skip, and renamed over it. One process with one thread writes, so the name need not be
//! random; a leftover of a crash is removed when the same name is written, or by [`sweep`] at the start. Symlinks have
//! more in front, since rules may ask for others in `/dev` that begin with `.#`. Nothing is synced: `/run` and `/dev` do not outlive the kernel.

use crate::sys::fs::{self, Dir};
use std::io;

/// Writes a whole file with exactly this mode.
///
/// `umask_spares_mode`: the caller knows that the umask takes nothing from `mode`, which saves a
/// call. On an error the old file stays and nothing is left behind.
pub fn write_file(
    dir: &Dir,
    name: &[u8],
    content: &[u8],
    mode: u32,
    umask_spares_mode: bool,
) -> io::Result<()> {
    let temporary = temporary_name(TEMPORARY, name);
    let file = again_without_leftover(dir, &temporary, || dir.create_file(&temporary, mode))?;
    let write = || {
        if !umask_spares_mode {
            fs::chmod_file(&file, mode)?;
        }
        let mut rest = content;
        while !rest.is_empty() {
            match fs::write_once(&file, rest)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => rest = rest.get(written..).unwrap_or_default(),
            }
        }
        dir.rename(&temporary, name)
    };
    remove_after_error(dir, &temporary, write())
}

/// Makes `name` a symlink with this target, whatever it was before, unless it is a directory.
pub fn replace_symlink(dir: &Dir, target: &[u8], name: &[u8]) -> io::Result<()> {
    let temporary = temporary_name(TEMPORARY_SYMLINK, name);
    again_without_leftover(dir, &temporary, || dir.symlink(target, &temporary))?;
    remove_after_error(dir, &temporary, dir.rename(&temporary, name))
}

fn again_without_leftover<T>(dir: &Dir, temporary: &[u8], make: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match make() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            dir.unlink(temporary)?;
            make()
        }
        result => result,
    }
}

fn remove_after_error(dir: &Dir, temporary: &[u8], result: io::Result<()>) -> io::Result<()> {
    if result.is_err() {
        // The first error is the one to tell.
        let _ = dir.unlink(temporary);
    }
    result
}

/// In front of names that are there for a moment only.
const TEMPORARY: &[u8] = b".#";

/// The same for symlinks. A rule that asks for both `x` and `.#mudev-x` has asked for it.
const TEMPORARY_SYMLINK: &[u8] = b".#mudev-";

/// `a/b` -> `a/.#b`, no longer than a file name may be.
fn temporary_name(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    let room = 255 - prefix.len();
    let start = name.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    let (folder, last) = name.split_at(start);
    [folder, prefix, &last[..last.len().min(room)]].concat()
}

/// Whether a name in a folder of ours is one that only a crash leaves.
pub fn is_temporary(name: &[u8]) -> bool {
    name.starts_with(TEMPORARY)
}

/// The same in a folder of others, where a name may begin with `.#` that was asked for.
pub fn is_temporary_symlink(name: &[u8]) -> bool {
    name.starts_with(TEMPORARY_SYMLINK)
}

/// Removes what a crash has left in this directory of ours. All is tried; the first error is returned.
pub fn sweep(dir: &Dir) -> io::Result<()> {
    sweep_names(dir, &dir.names()?)
}

/// The same, where the names are known already.
pub fn sweep_names(dir: &Dir, names: &[bstr::BString]) -> io::Result<()> {
    remove_all(dir, names.iter().filter(|name| is_temporary(name)))
}

/// Removes these, but no directory. All is tried; the first error is returned.
pub fn remove_all<'a>(dir: &Dir, names: impl Iterator<Item = &'a bstr::BString>) -> io::Result<()> {
    let mut result = Ok(());
    for name in names {
        let removed = match dir.unlink(name) {
            // No directory is ours.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EISDIR | libc::EPERM)) => {
                Ok(())
            }
            removed => removed,
        };
        result = result.and(removed);
    }
    result
}

/// Makes a directory with exactly this mode unless it is there.
pub fn ensure_dir(dir: &Dir, name: &[u8], mode: u32, umask_spares_mode: bool) -> io::Result<()> {
    match dir.create_dir(name, mode) {
        Ok(()) if umask_spares_mode => Ok(()),
        Ok(()) => dir.chmod(name, mode),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether files made in this directory get the modes that we use (none with more than 0755) whatever
/// the umask. A directory that cannot be written says yes: the writes will tell.
pub fn umask_spares_modes(dir: &Dir) -> bool {
    const WIDEST: u32 = 0o755;
    let name = b".#umask";
    let mode = again_without_leftover(dir, name, || dir.create_file(name, WIDEST)).and_then(|file| {
        // A short want of room must not leave the file lying until the next start.
        dir.unlink(name).or_else(|_| dir.unlink(name))?;
        fs::stat_file(&file)
    });
    mode.map_or(true, |stat| stat.permissions() == WIDEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tree::Tree;

    fn dir(tree: &Tree) -> Dir {
        Dir::open(&tree.root).expect("to open it")
    }

    #[test]
    fn a_leftover_of_a_crash_is_no_obstacle() {
        let tree = Tree::new();
        let dir = dir(&tree);
        dir.create_file(b".#f", 0o600).unwrap();
        dir.symlink(b"x", b".#mudev-l").unwrap();
        dir.symlink(b"x", b".#l").unwrap();
        write_file(&dir, b"f", b"new", 0o1644, false).unwrap();
        replace_symlink(&dir, b"t", b"l").unwrap();
        assert_eq!(dir.read_file(b"f", 9).unwrap(), b"new");
        assert_eq!(dir.stat(b"f").unwrap().permissions(), 0o1644);
        assert_eq!(dir.read_link(b"l").unwrap(), "t");
        // What begins like a file that is being written may be a symlink that was asked for.
        assert_eq!((dir.read_link(b".#l").unwrap(), dir.names().unwrap().len()), ("x".into(), 3));
    }

    #[test]
    fn what_failed_leaves_the_old_one_and_nothing_else() {
        let tree = Tree::new();
        let dir = dir(&tree);
        dir.create_dir(b"d", 0o755).unwrap();
        assert!(write_file(&dir, b"d", b"new", 0o644, true).is_err());
        assert!(replace_symlink(&dir, b"t", b"d").is_err());
        assert_eq!(dir.names().unwrap(), ["d"]);
    }

    #[test]
    fn temporary_names_are_hidden_and_fit() {
        assert_eq!(temporary_name(TEMPORARY, b"c1:3"), b".#c1:3");
        assert_eq!(temporary_name(TEMPORARY_SYMLINK, b"a/b/c"), b"a/b/.#mudev-c");
        assert_eq!(temporary_name(TEMPORARY_SYMLINK, &[b'x'; 255]).len(), 255);
        assert!(is_temporary(TEMPORARY_SYMLINK));
    }

    #[test]
    fn directories_are_made_once() {
        let tree = Tree::new();
        let dir = dir(&tree);
        for _ in 0..2 {
            ensure_dir(&dir, b"d", 0o755, umask_spares_modes(&dir)).unwrap();
        }
        assert_eq!(dir.stat(b"d").unwrap().permissions(), 0o755);
        assert_eq!(dir.names().unwrap(), ["d"]);
    }
}
