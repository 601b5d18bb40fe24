//! Answers to the questions of rules that are about files, and the writes that rules order.
//!
//! What must stay true: rules may read anything, but write only below sysfs and `/proc/sys`; opening a file never
//! waits for a process at its other end; nothing is read without a limit. Methods that may wait for a file system are
//! functions without [`Files`] and are for helpers; [`Files`] says which file it is.
//!
//! Sources: rules.md 3.5, 3.6, 4 and 8.5.

use super::Roots;
use super::at_once::{self, AtOnce};
use super::constants::Constants;
use super::sysfs::Sysfs;
use crate::model::Errno;
use crate::rules::program::split_named;
use bstr::{BString, ByteSlice};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Largest file that IMPORT{file} takes.
pub const IMPORT_MAX: usize = 4 << 20;
/// Largest kernel parameter and command line.
const PARAMETER_MAX: u64 = 1 << 20;

/// Largest file of rules or settings: a longer one is not read.
const AT_HAND_MAX: usize = 16 << 20;
/// Folders of files, and folders of drop-ins in them.
const FOLDERS_DEEP: u8 = 2;

/// The files that rules ask for.
#[derive(Debug)]
pub struct Files {
    roots: Roots,
    at_once: AtOnce,
}

/// The facts about a file that can be had without waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<T> {
    Here(T),
    /// A helper, which may wait, must look at this path.
    At(PathBuf),
}

impl Files {
    /// Files below these roots.
    pub fn new(roots: &Roots) -> Files {
        Files { roots: roots.clone(), at_once: AtOnce::new(roots) }
    }

    /// Mode bits (`st_mode`) of the file that TEST names: an absolute path, `[subsystem/sysname]path`, or a path
    /// relative to the device. One `*/` is expanded. None if it does not exist; an error only if the directory before
    /// a star cannot be read although it is there. [`mode`] is for helpers, which may wait; [`tested`] makes the
    /// answer of its result.
    pub fn mode(&mut self, sysfs: &Sysfs, devpath: &[u8], path: &[u8]) -> Found<Result<Option<u32>, Errno>> {
        let Some((place, in_sysfs)) = place_of(&self.roots, sysfs, devpath, path) else {
            return Found::Here(Ok(None));
        };
        let result = match () {
            () if in_sysfs => mode(&place),
            () if has_star(&place) => return Found::At(place),
            () => match self.at_once.mode(&place) {
                Some(Ok(mode)) => Ok(Some(mode)),
                Some(Err(Errno(libc::ENOENT))) => Ok(None),
                Some(Err(errno)) => Err(errno),
                None => return Found::At(place),
            },
        };
        Found::Here(tested(&place, result))
    }

    /// A kernel parameter, its name in slash form below `/proc/sys`. None if there is no such
    /// parameter; EINVAL for a name that leads elsewhere.
    pub fn sysctl_read(&self, name: &[u8]) -> Found<Result<Option<BString>, Errno>> {
        let path = match self.sysctl_path(name) {
            Ok(path) => path,
            Err(errno) => return Found::Here(Err(errno)),
        };
        // The one place in there where a file system is mounted, often not before somebody looks.
        if path.starts_with(self.roots.proc.join("sys/fs/binfmt_misc")) {
            return Found::At(path);
        }
        Found::Here(match read_bounded(&path, PARAMETER_MAX) {
            Ok(value) => Ok(Some(value)),
            Err(Errno(libc::ENOENT)) => Ok(None),
            Err(error) => Err(error),
        })
    }

    /// Path of the kernel parameter that SYSCTL= names (slash form), for [`write_parameter`].
    pub fn sysctl_target(&self, name: &[u8]) -> Result<BString, Errno> {
        Ok(self.sysctl_path(name)?.into_os_string().into_vec().into())
    }

    fn sysctl_path(&self, name: &[u8]) -> Result<PathBuf, Errno> {
        let name = name.strip_prefix(b"/").unwrap_or(name);
        if name.split(|&b| b == b'/').any(|part| matches!(part, b"" | b"." | b"..")) {
            return Err(Errno(libc::EINVAL));
        }
        Ok(self.roots.proc.join("sys").join(std::ffi::OsStr::from_bytes(name)))
    }

    /// Whether a file, or a folder with all files of these endings in it and in its folders of these endings, can
    /// be had without waiting: their states only, or their contents too. A file that is not there can.
    pub fn is_at_hand(&mut self, place: &Path, endings: &[&str], with_contents: bool) -> bool {
        self.is_at_hand_to(place, endings, with_contents, FOLDERS_DEEP)
    }

    fn is_at_hand_to(&mut self, place: &Path, endings: &[&str], with_contents: bool, depth: u8) -> bool {
        let mode = match self.at_once.mode(place) {
            Some(Ok(mode)) => mode & libc::S_IFMT,
            Some(Err(_)) => return true,
            None => return false,
        };
        match (mode, depth.checked_sub(1)) {
            (libc::S_IFREG, _) => !with_contents || self.at_once.read(place, AT_HAND_MAX).is_some(),
            (libc::S_IFDIR, Some(depth)) => {
                let Ok(entries) = std::fs::read_dir(place) else { return true };
                let is_wanted =
                    |name: &OsString| endings.iter().any(|e| name.as_bytes().ends_with(e.as_bytes()));
                let mut names = entries.flatten().map(|entry| entry.file_name()).filter(is_wanted);
                names.all(|name| self.is_at_hand_to(&place.join(name), endings, with_contents, depth))
            }
            _ => true,
        }
    }

    /// Content of a file for IMPORT{file}, as [`import`] gives it to helpers, which may wait.
    pub fn file(&mut self, path: &[u8]) -> Found<Result<Option<BString>, Errno>> {
        self.file_at(self.roots.locate(path))
    }

    /// The same, of a place in the file system.
    pub fn file_at(&mut self, place: PathBuf) -> Found<Result<Option<BString>, Errno>> {
        match self.at_once.read(&place, IMPORT_MAX) {
            Some(Ok(content)) => Found::Here(Ok(Some(content))),
            Some(Err(Errno(libc::ENOENT | libc::EISDIR | libc::EFBIG))) => Found::Here(Ok(None)),
            Some(Err(errno)) => Found::Here(Err(errno)),
            None => Found::At(place),
        }
    }

    /// The command line that options are taken from: the kernel's, or in a container the arguments of
    /// its first process, quoted where they contain blanks.
    pub fn command_line(&self, constants: &Constants) -> Result<Option<BString>, Errno> {
        let in_container = constants.in_container();
        let path = self.roots.proc.join(if in_container { "1/cmdline" } else { "cmdline" });
        match read_bounded(&path, PARAMETER_MAX) {
            Ok(text) if in_container => Ok(Some(quote_arguments(&text))),
            Ok(text) => Ok(Some(text)),
            Err(Errno(libc::ENOENT)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Where a path of TEST lies before stars are expanded, and whether that is in sysfs for certain; None for
/// a device that is not there.
fn place_of(roots: &Roots, sysfs: &Sysfs, devpath: &[u8], path: &[u8]) -> Option<(PathBuf, bool)> {
    if let Some((subsystem, sysname, rest)) = split_named(path) {
        let device = sysfs.device_of(subsystem, sysname)?;
        let place = match rest.is_empty() {
            true => sysfs.path(&device),
            false => sysfs.path_of(&device, rest),
        };
        return Some((place, Sysfs::is_inside(&device, rest)));
    }
    Some(match path.first() {
        Some(b'/') => (roots.locate(path), false),
        _ => (sysfs.path_of(devpath, path), Sysfs::is_inside(devpath, path)),
    })
}

/// Path of the attribute that ATTR= names, for [`write_attr`]: `[subsystem/sysname]attr`, or a name
/// below the device; one `*/` is expanded. The symlinks before the last component are followed,
/// and the result must lie in sysfs (EXDEV). ENODEV, ENOENT if there is no such.
pub fn write_attr_target(sysfs: &Sysfs, devpath: &[u8], target: &[u8]) -> Result<BString, Errno> {
    let (devpath, name) = match split_named(target) {
        Some((subsystem, sysname, rest)) => {
            (sysfs.device_of(subsystem, sysname).ok_or(Errno(libc::ENODEV))?, rest)
        }
        None => (devpath.into(), target.as_bstr()),
    };
    // Looking further may wait for whatever is mounted there.
    if !Sysfs::is_inside(&devpath, name) && !stays_in_sysfs(sysfs, &devpath, name) {
        return Err(Errno(libc::EXDEV));
    }
    let path = expand_star(sysfs.path_of(&devpath, name))?.ok_or(Errno(libc::ENOENT))?;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno(libc::EINVAL));
    };
    let folder = std::fs::canonicalize(folder).map_err(|e| Errno::of(&e))?;
    if !sysfs.contains(&folder) {
        return Err(Errno(libc::EXDEV));
    }
    Ok(folder.join(name).into_os_string().into_vec().into())
}

/// Whether the folder of an attribute lies on no other mount, as far as it is known before a star.
fn stays_in_sysfs(sysfs: &Sysfs, devpath: &[u8], name: &[u8]) -> bool {
    let path = [devpath, b"/", name].concat();
    let folder = path.find("/*/").or_else(|| path.rfind_byte(b'/')).map_or(&path[..], |at| &path[..at]);
    at_once::stays_on_mount(sysfs.root(), folder.trim_start_with(|c| c == '/'))
}

/// Mode bits of the file at a path, one `*/` expanded; None if there is nothing. May wait.
pub fn mode(path: &Path) -> Result<Option<u32>, Errno> {
    let Some(path) = expand_star(path.to_owned())? else { return Ok(None) };
    match std::fs::metadata(&path) {
        Ok(meta) => Ok(Some(meta.mode())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Errno::of(&error)),
    }
}

/// What TEST makes of a [`mode`]: an error is one only if a star could not be expanded.
pub fn tested(path: &Path, mode: Result<Option<u32>, Errno>) -> Result<Option<u32>, Errno> {
    match mode {
        Err(errno) if !has_star(path) => {
            log::warn!("cannot test {}: {errno}", path.display());
            Ok(None)
        }
        other => other,
    }
}

/// Content of a file for IMPORT{file}. None if it is not there, cannot be read (a directory) or is too
/// long; an error if it cannot be opened for another reason. May wait.
pub fn import(path: &Path) -> Result<Option<BString>, Errno> {
    let file = match open(path) {
        Ok(file) => file,
        Err(Errno(libc::ENOENT)) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(read_to_limit(file, IMPORT_MAX as u64).ok())
}

/// Writes an attribute at a path from [`write_attr_target`], in one write and without the
/// newlines that end the value. ELOOP for a symlink. A failed write is none if the attribute has the
/// value already. May wait for the driver.
pub fn write_attr(path: &Path, value: &[u8]) -> Result<(), Errno> {
    let value = value.trim_end_with(|c| c == '\n');
    write_once(path, value).or_else(|error| if has_content(path, value) { Ok(()) } else { Err(error) })
}

/// Writes a kernel parameter at a path from [`Files::sysctl_target`], a newline at its end. One that has
/// the value already is left alone.
pub fn write_parameter(path: &Path, value: &[u8]) -> Result<(), Errno> {
    if has_content(path, value) {
        return Ok(());
    }
    let mut text = value.to_owned();
    if !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    write_once(path, &text)
}

fn has_star(path: &Path) -> bool {
    path.as_os_str().as_bytes().contains_str("/*/")
}

/// Replaces the first component that is `*` by the first name in its directory for which the rest of
/// the path exists. A path without a star is left alone; None if nothing fits.
fn expand_star(path: PathBuf) -> Result<Option<PathBuf>, Errno> {
    let bytes = path.as_os_str().as_bytes();
    let Some(star) = bytes.find("/*/") else { return Ok(Some(path)) };
    let (folder, rest) = (&bytes[..star], &bytes[star + 2..]);
    let entries = match std::fs::read_dir(std::ffi::OsStr::from_bytes(folder)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Errno::of(&error)),
    };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    let visible = names.filter(|name| !name.as_bytes().starts_with(b"."));
    let mut paths =
        visible.map(|name| PathBuf::from(OsString::from_vec([folder, b"/", name.as_bytes(), rest].concat())));
    Ok(paths.find(|path| std::fs::metadata(path).is_ok()))
}

/// Opens for reading without waiting for a process at the other end.
fn open(path: &Path) -> Result<File, Errno> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|e| Errno::of(&e))
}

/// EFBIG beyond the limit.
pub(super) fn read_to_limit(file: File, limit: u64) -> Result<BString, Errno> {
    let mut content = Vec::new();
    file.take(limit + 1).read_to_end(&mut content).map_err(|e| Errno::of(&e))?;
    if content.len() as u64 > limit { Err(Errno(libc::EFBIG)) } else { Ok(content.into()) }
}

/// What a file has up to a limit.
pub(super) fn read_start(path: &Path, limit: u64) -> Result<BString, Errno> {
    let mut content = Vec::new();
    open(path)?.take(limit).read_to_end(&mut content).map_err(|e| Errno::of(&e))?;
    Ok(content.into())
}

/// Content of a file; EFBIG beyond the limit. A file that has become a FIFO or a device meanwhile is not waited for,
/// and is not read without end.
pub fn read_bounded(path: &Path, limit: u64) -> Result<BString, Errno> {
    read_to_limit(open(path)?, limit)
}

/// Whether a file has this content, newlines at the end not counted.
fn has_content(path: &Path, value: &[u8]) -> bool {
    let bare = |text: &[u8]| text.trim_end_with(|c| c == '\n').len();
    let Ok(content) = read_bounded(path, PARAMETER_MAX) else { return false };
    content[..bare(&content)] == value[..bare(value)]
}

/// Writes to an existing file that is no symlink, in one write as attributes need it.
fn write_once(path: &Path, value: &[u8]) -> Result<(), Errno> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut options = OpenOptions::new();
    let mut file = options.write(true).custom_flags(flags).open(path).map_err(|e| Errno::of(&e))?;
    match file.write(value) {
        Ok(written) if written == value.len() => Ok(()),
        Ok(_) => Err(Errno(libc::EIO)),
        Err(error) => Err(Errno::of(&error)),
    }
}

/// Arguments that each end in NUL, as one line.
fn quote_arguments(arguments: &[u8]) -> BString {
    let mut line = BString::default();
    for argument in arguments.trim_end_with(|c| c == '\0').split(|&b| b == 0) {
        if !line.is_empty() {
            line.push(b' ');
        }
        let blank = argument.iter().any(u8::is_ascii_whitespace);
        let quote: &[u8] = match blank {
            true if argument.contains(&b'"') => b"'",
            true => b"\"",
            false => b"",
        };
        line.extend_from_slice(quote);
        line.extend_from_slice(argument);
        line.extend_from_slice(quote);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    const DEVICE: &[u8] = b"/devices/d";

    fn place(path: &[u8]) -> &Path {
        Path::new(std::ffi::OsStr::from_bytes(path))
    }

    fn tree() -> Tree {
        let tree = Tree::new();
        tree.file("sys/devices/d/uevent", "")
            .file("sys/devices/d/size", "1")
            .file("sys/devices/d/a/one/there", "x")
            .dir("sys/devices/d/a/.hidden")
            .file("sys/devices/d/a/.hidden/secret", "x")
            .dir("sys/devices/d/a/two/*")
            .file("sys/devices/d/a/two/*/deep", "x")
            .dir("sys/class/net")
            .link("sys/class/net/lo", "../../devices/d")
            .link("sys/devices/d/subsystem", "../../class/net")
            .file("sys/class/net/x", "old")
            .link("sys/devices/d/out", "../../../secret")
            .link("sys/devices/d/outdir", "../../..")
            .link("sys/devices/d/looping", "looping")
            .link("sys/devices/d/inner", "uevent")
            .file("secret", "untouched")
            .file("etc/here", "x")
            .mode("etc/here", 0o640)
            .file("proc/sys/net/ipv4/conf/eth0.1/x", "1\n")
            .dir("proc/sys/kernel");
        tree
    }

    #[test]
    fn paths_of_a_test_are_absolute_named_or_relative_with_one_star() {
        let tree = tree();
        let (mut files, sysfs) = (Files::new(&tree.roots()), Sysfs::new(&tree.roots()));
        // The tree has no list of mounts, so all but sysfs must wait.
        let mut test = |path: &[u8]| match files.mode(&sysfs, DEVICE, path) {
            Found::Here(mode) => mode,
            Found::At(place) => tested(&place, mode(&place)),
        };
        for (path, there) in [
            ("size", true),
            ("none", false),
            ("", true),
            ("[net/lo]size", true),
            ("[net/lo]/size", true),
            ("[net/lo]", true),
            ("[net/none]size", false),
            ("[net]size", false),
            ("a/*/there", true),
            ("a/*/none", false),
            ("a/*/secret", false),
            ("a/*/*/deep", true),
            ("none/*/x", false),
            ("/etc/here", true),
            ("/sys/devices/d/size", true),
            ("/etc/none", false),
            ("looping", false),
            ("../../../secret", true),
            ("a\0b", false),
        ] {
            let mode = test(path.as_bytes());
            assert_eq!(mode.map(|m| m.is_some()), Ok(there), "{path}");
        }
        assert_eq!(test(b"/etc/here"), Ok(Some(libc::S_IFREG | 0o640)));
        assert_eq!(test(b"size/*/x"), Err(Errno(libc::ENOTDIR)));
    }

    #[test]
    fn parameters_are_read_and_written_below_proc_sys_only() {
        let tree = tree();
        let files = Files::new(&tree.roots());
        let read = |name: &[u8]| match files.sysctl_read(name) {
            Found::Here(value) => value,
            Found::At(path) => panic!("{path:?} is for helpers"),
        };
        assert_eq!(read(b"net/ipv4/conf/eth0.1/x"), Ok(Some("1\n".into())));
        assert_eq!(read(b"net/none"), Ok(None));
        assert!(read(b"kernel").is_err());
        let automount = files.sysctl_read(b"fs/binfmt_misc/status");
        assert_eq!(automount, Found::At(tree.path("proc/sys/fs/binfmt_misc/status")));
        for name in [&b"../../secret"[..], b"net/../net", b"./net", b"net//x", b""] {
            assert_eq!(read(name), Err(Errno(libc::EINVAL)), "{}", name.as_bstr());
            assert_eq!(files.sysctl_target(name), Err(Errno(libc::EINVAL)));
        }
        let write = |name: &[u8], value: &[u8]| write_parameter(place(&files.sysctl_target(name)?), value);
        assert_eq!(write(b"net/ipv4/conf/eth0.1/x", b"22"), Ok(()));
        assert_eq!(tree.read("proc/sys/net/ipv4/conf/eth0.1/x"), b"22\n");
        tree.mode("proc/sys/net/ipv4/conf/eth0.1/x", 0o444);
        assert_eq!(write(b"net/ipv4/conf/eth0.1/x", b"22\n"), Ok(()), "nothing to write");
        assert_eq!(write(b"kernel/none", b"2"), Err(Errno(libc::ENOENT)));
    }

    #[test]
    fn attributes_are_written_inside_sysfs_only() {
        let tree = tree();
        let sysfs = Sysfs::new(&tree.roots());
        let write = |target: &str| {
            let path = write_attr_target(&sysfs, DEVICE, target.as_bytes())?;
            write_attr(place(&path), b"new\n\n")
        };
        for target in ["size", "[net/lo]size", "a/*/there", "subsystem/x", "subsystem/../net/x"] {
            assert_eq!(write(target), Ok(()), "{target}");
        }
        for (target, error) in [
            ("out", libc::ELOOP),
            ("inner", libc::ELOOP),
            ("outdir/secret", libc::EXDEV),
            ("../../../secret", libc::EXDEV),
            ("none", libc::ENOENT),
            ("[net/none]size", libc::ENODEV),
            ("a/*/none", libc::ENOENT),
            ("", libc::EISDIR),
            ("a", libc::EISDIR),
            ("..", libc::EINVAL),
        ] {
            assert_eq!(write(target), Err(Errno(error)), "{target}");
        }
        assert_eq!(tree.read("secret"), b"untouched");
        assert_eq!(tree.read("sys/class/net/x"), b"new");
        assert_eq!(tree.read("sys/devices/d/size"), b"new");
    }

    #[test]
    fn a_write_that_fails_is_none_if_the_value_is_there() {
        let tree = tree();
        let sysfs = Sysfs::new(&tree.roots());
        tree.link("sys/devices/d/same", "size");
        let path = write_attr_target(&sysfs, DEVICE, b"same").unwrap();
        assert_eq!(write_attr(place(&path), b"1\n"), Ok(()));
        assert_eq!(write_attr(place(&path), b"2"), Err(Errno(libc::ELOOP)));
    }

    #[test]
    fn imported_files_are_bounded_and_never_waited_for() {
        let tree = tree();
        tree.file("etc/long", vec![b'x'; IMPORT_MAX + 1]);
        // With a list of mounts, and without.
        for roots in [Roots { proc: Roots::default().proc, ..tree.roots() }, tree.roots()] {
            let mut files = Files::new(&roots);
            let mut content = |path: &[u8]| match files.file(path) {
                Found::Here(content) => content,
                Found::At(place) => import(&place),
            };
            assert_eq!(content(b"/etc/here"), Ok(Some("x".into())));
            assert_eq!(content(b"/etc/none"), Ok(None));
            assert_eq!(content(b"/etc"), Ok(None));
            assert_eq!(content(b"/etc/long"), Ok(None));
            assert_eq!(content(b"/etc/here/x"), Err(Errno(libc::ENOTDIR)));
            assert_eq!(content(b"/sys/devices/d/looping"), Err(Errno(libc::ELOOP)));
        }
    }

    #[test]
    fn in_a_container_the_arguments_of_the_first_process_count() {
        assert_eq!(quote_arguments(b"init\0a=b c\0d=\"e f\"\0"), "init \"a=b c\" 'd=\"e f\"'");
        assert_eq!(quote_arguments(b""), "");
        let tree = tree();
        tree.file("proc/cmdline", "root=/dev/x\n").file("proc/1/cmdline", "init\0x=1\0");
        let files = Files::new(&tree.roots());
        let line = |roots: &Roots| files.command_line(&Constants::new(roots)).unwrap().unwrap();
        assert_eq!(line(&tree.roots()), "root=/dev/x\n");
        tree.file("run/.containerenv", "");
        assert_eq!(line(&tree.roots()), "init x=1");
    }
}
