//! Answers asks and applies effects under movable roots. Nothing outside this module and main knows
//! an absolute path.

pub mod accounts;
mod at_once;
pub mod atomic;
pub mod cgroup;
pub mod claims_dir;
pub mod config;
pub mod constants;
pub mod database;
pub mod described;
pub mod enumerate;
pub mod files;
pub mod filter;
mod hardware;
pub mod logger;
pub mod nodes;
pub mod patience;
pub mod places;
pub mod quota;
mod recent;
pub mod rule_files;
pub mod symlinks;
pub mod sysfs;
#[cfg(test)]
pub mod tree;
pub mod watch_dir;
pub mod watches;

pub use sysfs::Sysfs;

use bstr::ByteSlice;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Our own executable, whatever became of its file.
pub const OWN_EXECUTABLE: &std::ffi::CStr = c"/proc/self/exe";

/// Opens [`OWN_EXECUTABLE`] to be executed, or, without a /proc, the file that has the path that we were executed
/// by: at the start, when that is still the same.
pub fn open_own_executable() -> io::Result<File> {
    let open = |path: &Path| File::options().read(true).custom_flags(libc::O_PATH).open(path);
    open(Path::new(OsStr::from_bytes(OWN_EXECUTABLE.to_bytes())))
        .or_else(|error| crate::sys::process::executed_path().map_or(Err(error), |path| open(&path)))
}

/// Where the system stands; tests and people may move each of them (`--sys-dir` and so on).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    pub sys: PathBuf,
    pub dev: PathBuf,
    /// `/run`; ours is `run/udev` below it.
    pub run: PathBuf,
    pub proc: PathBuf,
    pub etc: PathBuf,
    /// `/usr/lib`, for vendor files; not movable by option, but by tests.
    pub lib: PathBuf,
    pub local_lib: PathBuf,
}

impl Default for Roots {
    fn default() -> Roots {
        Roots {
            sys: "/sys".into(),
            dev: "/dev".into(),
            run: "/run".into(),
            proc: "/proc".into(),
            etc: "/etc".into(),
            lib: "/usr/lib".into(),
            local_lib: "/usr/local/lib".into(),
        }
    }
}

impl Roots {
    /// Where an absolute path of a rule lies: what begins with the usual name of a root lies below that
    /// root, everything else is taken as it is.
    pub fn locate(&self, path: &[u8]) -> PathBuf {
        let roots = [
            (&b"/sys"[..], &self.sys),
            (b"/dev", &self.dev),
            (b"/run", &self.run),
            (b"/proc", &self.proc),
            (b"/etc", &self.etc),
            (b"/usr/lib", &self.lib),
            (b"/usr/local/lib", &self.local_lib),
        ];
        for (usual, root) in roots {
            let Some(rest) = path.strip_prefix(usual) else { continue };
            match rest.strip_prefix(b"/") {
                Some(below) => return root.join(OsStr::from_bytes(below.trim_start_with(|c| c == '/'))),
                None if rest.is_empty() => return root.clone(),
                None => {}
            }
        }
        PathBuf::from(OsStr::from_bytes(path))
    }

    /// Whether we live in a chroot: the root of the first process is another than ours (interop.md 5.1).
    /// Without the right to look there, no.
    pub fn in_chroot(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        let place = |path: &std::path::Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino()));
        match (place(&self.proc.join("1/root")), place(std::path::Path::new("/"))) {
            (Ok(theirs), Ok(ours)) => theirs != ours,
            _ => false,
        }
    }

    /// Whether sysfs is the real one, so that link attributes may come from the link table.
    pub fn sys_is_real(&self) -> bool {
        self.sys == std::path::Path::new("/sys")
    }
}

/// The parts of the system that are missing, and the consequences: one line each, said at the start.
pub fn missing_parts(roots: &Roots) -> Vec<String> {
    let lacks = |root: &Path, part: &str| !root.join(part).exists();
    let mut lines = Vec::new();
    let mut say = |root: &Path, what: &str| lines.push(format!("{} {what}", root.display()));
    if lacks(&roots.proc, "self") {
        say(&roots.proc, "is not mounted: no settings of the kernel command line, no kernel parameters");
    }
    if lacks(&roots.sys, "devices") {
        say(
            &roots.sys,
            "is not mounted: devices have no attributes and no parents, and none can be triggered",
        );
    }
    match crate::sys::fs::is_writable(&roots.dev) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            say(&roots.dev, "is not there: nothing is done to nodes, and no symlinks are made");
        }
        Err(error) => {
            say(
                &roots.dev,
                &format!("cannot be written to, so nodes and symlinks stay as they are: {error}"),
            );
        }
    }
    lines
}

/// The folder for temporary files, or for those that survive a boot: the usual one, unless TMPDIR, TEMP or
/// TMP of the environment, in this order, is the absolute path of a folder (file-hierarchy(7)).
pub fn temporary_folder(survives: bool, variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let usual = if survives { "/var/tmp" } else { "/tmp" };
    let named = ["TMPDIR", "TEMP", "TMP"].into_iter().filter_map(variable).map(PathBuf::from);
    named.filter(|path| path.is_absolute()).find(|path| path.is_dir()).unwrap_or_else(|| usual.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_moves_the_folder_for_temporary_files() {
        let tree = tree::Tree::new();
        tree.dir("one").dir("two").file("file", "");
        let place = |name: &str| tree.path(name).to_str().unwrap().to_owned();
        for (variables, short, long) in [
            (vec![], "/tmp".into(), "/var/tmp".into()),
            (vec![("TMP", place("one"))], place("one"), place("one")),
            (vec![("TMP", place("one")), ("TMPDIR", place("two"))], place("two"), place("two")),
            (vec![("TEMP", place("one")), ("TMPDIR", place("none"))], place("one"), place("one")),
            (vec![("TEMP", ".".into()), ("TMPDIR", place("file"))], "/tmp".into(), "/var/tmp".into()),
        ] {
            let variable =
                |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into());
            assert_eq!(temporary_folder(false, variable), PathBuf::from(short), "{variables:?}");
            assert_eq!(temporary_folder(true, variable), PathBuf::from(long), "{variables:?}");
        }
    }

    #[test]
    fn absolute_paths_move_with_their_root() {
        let roots = Roots { sys: "/t/sys".into(), lib: "/t/lib".into(), ..Roots::default() };
        for (path, place) in [
            ("/sys/class/net", "/t/sys/class/net"),
            ("/sys", "/t/sys"),
            ("/sys//x", "/t/sys/x"),
            ("/system", "/system"),
            ("/usr/lib/x", "/t/lib/x"),
            ("/usr/local/lib/x", "/usr/local/lib/x"),
            ("/opt/x", "/opt/x"),
        ] {
            assert_eq!(roots.locate(path.as_bytes()), PathBuf::from(place));
        }
    }
}
