//! Files that can be had without waiting: those in memory, and those on local disks as far as the kernel has them in
//! its caches. All others may wait for a server or a disk, and are for helpers.
//!
//! Must stay true: no call in here waits for a disk, a server or a driver. In doubt the answer is None, which
//! means "a helper must see", never "not there".
//!
//! Which file system a file is on is not asked of that file system, since it may be a dead one: the kernel says which
//! mount a file was found on, and its list of mounts says the rest. Where only the text of a path tells which mount
//! it lies on, the kernel is told not to leave that mount.
//!
//! Known gaps: an overlay counts as a local disk, whatever lies below it; and a program that has asked to be
//! asked for each open (fanotify) can make any open wait.

use super::Roots;
use crate::model::Errno;
use crate::sys::at_once::{self, Known, Lookup};
use bstr::{BStr, BString, ByteSlice};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What looking something up on a file system may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Nothing: it is all in memory.
    Memory,
    /// Nothing, but the content of files is made by the kernel when it is read.
    Made,
    /// A disk; what the kernel has cached of it can be had at once.
    Disk,
    /// A server, also for opening what is cached; or nobody knows.
    Other,
}

impl Kind {
    fn of(file_system: &[u8]) -> Kind {
        match file_system {
            b"tmpfs" | b"ramfs" | b"rootfs" | b"devtmpfs" => Kind::Memory,
            b"sysfs" | b"proc" | b"cgroup" | b"cgroup2" | b"devpts" => Kind::Made,
            b"ext2" | b"ext3" | b"ext4" | b"xfs" | b"btrfs" | b"f2fs" | b"bcachefs" | b"vfat" => Kind::Disk,
            b"squashfs" | b"erofs" | b"iso9660" | b"overlay" => Kind::Disk,
            _ => Kind::Other,
        }
    }
}

/// A line of `mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    id: u64,
    point: BString,
    kind: Kind,
}

/// See the module.
#[derive(Debug)]
pub(super) struct AtOnce {
    list: PathBuf,
    /// The list, open; None until it could be opened.
    file: Option<File>,
    mounts: Vec<Mount>,
    kinds: HashMap<u64, Kind>,
    /// Mounts whose file system cannot read without waiting.
    no_reads: HashSet<u64>,
}

/// The file that was found, and how to find it again.
struct Found {
    known: Known,
    kind: Kind,
    /// The mount's root and the path below it; None for a path that is cached.
    inside: Option<(OwnedFd, BString)>,
}

/// Why nothing was found.
enum Miss {
    /// Only a caller that may wait can tell.
    Waits,
    Error(Errno),
}

impl From<io::Error> for Miss {
    fn from(error: io::Error) -> Miss {
        match Errno::of(&error) {
            // A sandbox that does not know the call may refuse it with EPERM.
            Errno(libc::EAGAIN | libc::ENOSYS | libc::EINVAL | libc::E2BIG | libc::EXDEV | libc::EPERM) => {
                Miss::Waits
            }
            errno => Miss::Error(errno),
        }
    }
}

impl AtOnce {
    /// Knows the mounts that `proc` lists.
    pub(super) fn new(roots: &Roots) -> AtOnce {
        AtOnce {
            // A thread of tests may have mounts of its own.
            list: roots.proc.join("thread-self/mountinfo"),
            file: None,
            mounts: Vec::new(),
            kinds: HashMap::new(),
            no_reads: HashSet::new(),
        }
    }

    /// Mode bits (`st_mode`) of the file at an absolute path, symlinks followed.
    pub(super) fn mode(&mut self, path: &Path) -> Option<Result<u32, Errno>> {
        match self.find(path.as_os_str().as_bytes()) {
            Ok(found) => Some(Ok(found.known.mode)),
            Err(Miss::Error(errno)) => Some(Err(errno)),
            Err(Miss::Waits) => None,
        }
    }

    /// Content of a regular file; EISDIR for a directory, EFBIG beyond the limit.
    pub(super) fn read(&mut self, path: &Path, limit: usize) -> Option<Result<BString, Errno>> {
        match self.try_read(path.as_os_str().as_bytes(), limit) {
            Ok(content) => Some(Ok(content)),
            Err(Miss::Error(errno)) => Some(Err(errno)),
            Err(Miss::Waits) => None,
        }
    }

    fn try_read(&mut self, path: &[u8], limit: usize) -> Result<BString, Miss> {
        let found = self.find(path)?;
        match found.known.mode & libc::S_IFMT {
            libc::S_IFREG if found.kind == Kind::Made => return Err(Miss::Waits),
            libc::S_IFREG => {}
            libc::S_IFDIR => return Err(Miss::Error(Errno(libc::EISDIR))),
            _ => return Err(Miss::Waits),
        }
        if self.no_reads.contains(&found.known.mount) {
            return Err(Miss::Waits);
        }
        let file = found.open(path)?;
        // Somebody may have put another file there meanwhile.
        let known = at_once::known(&file)?;
        if known.mount != found.known.mount || known.mode & libc::S_IFMT != libc::S_IFREG {
            return Err(Miss::Waits);
        }
        if found.kind == Kind::Memory {
            return super::files::read_to_limit(file, limit as u64).map_err(Miss::Error);
        }
        let content = read_cached(&file, known.size, limit);
        if content.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EOPNOTSUPP)) {
            self.no_reads.insert(known.mount);
            return Err(Miss::Waits);
        }
        Ok(content?)
    }

    fn find(&mut self, path: &[u8]) -> Result<Found, Miss> {
        self.refresh();
        if let Some((mount, rest)) = self.mount_in_memory(path)
            && let Some(found) = find_on(mount, rest)?
        {
            return Ok(found);
        }
        let file = at_once::open(Lookup::Cached, path, libc::O_PATH)?;
        let known = at_once::known(&file)?;
        match self.kinds.get(&known.mount) {
            None | Some(Kind::Other) => Err(Miss::Waits),
            Some(&kind) => Ok(Found { known, kind, inside: None }),
        }
    }

    /// The mount that a path lies on by its text and that is all memory, and the path below it. Their
    /// caches are of no use: the kernel does not keep what is not there, or checks each name.
    fn mount_in_memory<'a, 'p>(&'a self, path: &'p [u8]) -> Option<(&'a Mount, &'p BStr)> {
        if !path.starts_with(b"/") || path.split(|&b| b == b'/').any(|name| name == b"..") {
            return None;
        }
        let below = |mount: &Mount| match mount.point.as_slice() {
            b"/" => Some(&path[1..]),
            point => path.strip_prefix(point).filter(|rest| rest.is_empty() || rest[0] == b'/'),
        };
        // Of those on one place the last is on top.
        let mounts = self.mounts.iter().filter_map(|mount| Some((mount, below(mount)?)));
        let (mount, rest) = mounts.max_by_key(|(mount, _)| mount.point.len())?;
        let rest = rest.trim_start_with(|c| c == '/').as_bstr();
        matches!(mount.kind, Kind::Memory | Kind::Made).then_some((mount, rest))
    }

    /// Reads the list of mounts if it has changed.
    fn refresh(&mut self) {
        if self.file.as_ref().is_some_and(|file| !at_once::has_changed(file)) {
            return;
        }
        let text = self.read_list().unwrap_or_default();
        self.mounts = parse(&text);
        self.kinds = self.mounts.iter().map(|mount| (mount.id, mount.kind)).collect();
        self.no_reads.clear();
    }

    fn read_list(&mut self) -> io::Result<Vec<u8>> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(File::open(&self.list)?),
        };
        let mut text = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut text)?;
        Ok(text)
    }
}

/// Whether a path leads to no other mount than that of the folder it begins in, which is in memory. Where the kernel
/// cannot say it, yes.
pub(super) fn stays_on_mount(folder: &Path, path: &[u8]) -> bool {
    let mut options = File::options();
    let Ok(folder) = options.read(true).custom_flags(libc::O_PATH).open(folder) else { return true };
    let opened = at_once::open(Lookup::OnMountOf(&folder.into()), path, libc::O_PATH);
    opened.err().and_then(|error| error.raw_os_error()) != Some(libc::EXDEV)
}

/// Finds a path below a mount's root. None if it leads elsewhere, or another mount is in its place.
fn find_on(mount: &Mount, rest: &BStr) -> Result<Option<Found>, Miss> {
    let Ok(root) = at_once::open(Lookup::Cached, &mount.point, libc::O_PATH) else { return Ok(None) };
    let known = at_once::known(&root)?;
    if known.mount != mount.id {
        return Ok(None);
    }
    if rest.is_empty() {
        return Ok(Some(Found { known, kind: mount.kind, inside: Some((root, ".".into())) }));
    }
    match at_once::open(Lookup::OnMountOf(&root), rest, libc::O_PATH) {
        Ok(file) => {
            let known = at_once::known(&file)?;
            Ok(Some(Found { known, kind: mount.kind, inside: Some((root, rest.to_owned())) }))
        }
        // ELOOP also for a symlink of /proc that leads to an open file.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EXDEV | libc::ELOOP)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Found {
    /// Opens it for reading.
    fn open(&self, path: &[u8]) -> io::Result<File> {
        let (lookup, path) = match &self.inside {
            Some((root, rest)) => (Lookup::OnMountOf(root), rest.as_slice()),
            None => (Lookup::Cached, path),
        };
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
        // The time of the access would have to be written.
        match at_once::open(lookup, path, flags | libc::O_NOATIME) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => at_once::open(lookup, path, flags),
            other => other,
        }
        .map(File::from)
    }
}

fn read_cached(file: &File, size: u64, limit: usize) -> io::Result<BString> {
    let too_long = || io::Error::from_raw_os_error(libc::EFBIG);
    let expected = usize::try_from(size).ok().filter(|&size| size <= limit).ok_or_else(too_long)?;
    // One byte more shows the end.
    let mut content = Vec::with_capacity(expected + 1);
    loop {
        let offset = u32::try_from(content.len()).map_err(|_| too_long())?;
        match at_once::read(file, offset, &mut content) {
            Ok(0) => return Ok(content.into()),
            Ok(_) if content.len() > limit => return Err(too_long()),
            Ok(_) if content.len() == content.capacity() => content.reserve(content.len()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Lines of `mountinfo` (proc(5)): the id, the parent's, a device number, the root, the place, options, some
/// fields, `-`, the type of the file system. Other lines are passed over.
fn parse(text: &[u8]) -> Vec<Mount> {
    let line = |line: &[u8]| {
        let mut fields = line.split(|&b| b == b' ');
        let id = fields.next()?.to_str().ok()?.parse().ok()?;
        let point = unescape(fields.nth(3)?);
        let kind = Kind::of(fields.skip_while(|field| *field != b"-").nth(1)?);
        Some(Mount { id, point, kind })
    };
    text.lines().filter_map(line).collect()
}

/// Blanks, newlines and backslashes are written as `\` and three octal digits.
fn unescape(text: &[u8]) -> BString {
    let mut plain = BString::default();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| byte == b'\\').and_then(|digits| {
            digits.iter().try_fold(0u32, |n, d| matches!(d, b'0'..=b'7').then(|| n * 8 + u32::from(d - b'0')))
        });
        match octal.and_then(|n| u8::try_from(n).ok()) {
            Some(value) => {
                plain.push(value);
                rest = &after[3..];
            }
            None => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &[u8] = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
        27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        30 27 0:30 / /run rw shared:5 master:1 - tmpfs tmpfs rw\n\
        31 30 0:31 / /run/my\\040nfs rw - nfs4 server:/ rw\n\
        40 30 0:40 / /run/x rw - tmpfs a rw\n\
        41 40 0:41 / /run/x rw - fuse.sshfs b rw\n\
        junk\n\
        x 1 1:1 / /y rw - tmpfs x rw\n";

    fn with_list(list: &[u8]) -> AtOnce {
        let mut at_once = AtOnce::new(&Roots::default());
        at_once.mounts = parse(list);
        at_once
    }

    #[test]
    fn a_path_lies_on_the_longest_and_last_mount_above_it() {
        let at_once = with_list(LIST);
        let of = |path: &str| {
            at_once
                .mount_in_memory(path.as_bytes())
                .map(|(m, rest)| (m.id, rest.to_str().unwrap().to_owned()))
        };
        for (path, found) in [
            ("/run/udev/x", Some((30, "udev/x"))),
            ("/run", Some((30, ""))),
            ("/run//a", Some((30, "a"))),
            ("/runner", None),
            ("/run/my nfs/x", None),
            ("/run/my nfsx", Some((30, "my nfsx"))),
            ("/run/x/y", None),
            ("/proc/cmdline", Some((22, "cmdline"))),
            ("/etc/passwd", None),
            ("/run/../etc", None),
            ("run/udev", None),
            ("", None),
        ] {
            assert_eq!(of(path), found.map(|(id, rest): (u64, &str)| (id, rest.to_owned())), "{path}");
        }
        assert_eq!(with_list(b"1 1 0:1 / / rw - rootfs rootfs rw\n").mount_in_memory(b"/x").unwrap().1, "x");
    }

    #[test]
    fn places_are_written_with_octal_digits() {
        for (text, plain) in [
            (r"/a\040b\134\011", "/a b\\\t"),
            (r"/\04", r"/\04"),
            (r"\", r"\"),
            (r"\999", r"\999"),
            (r"\777", r"\777"),
        ] {
            assert_eq!(unescape(text.as_bytes()), plain);
        }
    }

    #[test]
    fn what_was_just_read_is_in_memory_and_what_is_not_there_is_known_soon() {
        let folder = std::env::temp_dir().join(format!("mudev-at-once-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("file");
        let long = vec![b'x'; 100_000];
        std::fs::write(&path, &long).unwrap();
        let mut at_once = AtOnce::new(&Roots::default());
        if at_once.mode(&path).is_none() {
            // An old kernel, or a file system that nobody knows.
            println!("skipped: nothing can be looked up at once in {}", folder.display());
            return;
        }
        assert_eq!(at_once.mode(&path).unwrap().map(|mode| mode & libc::S_IFMT), Ok(libc::S_IFREG));
        let content = at_once.read(&path, 100_000).expect("at once").expect("no error");
        assert!(content == long);
        assert_eq!(at_once.read(&path, 99_999), Some(Err(Errno(libc::EFBIG))));
        assert_eq!(at_once.read(&folder, 10), Some(Err(Errno(libc::EISDIR))));
        let none = folder.join("none");
        assert!(!none.exists());
        assert_eq!(at_once.mode(&none), Some(Err(Errno(libc::ENOENT))), "it was looked for before");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn names_of_sysfs_and_proc_are_known_and_their_content_is_for_helpers() {
        let mut at_once = AtOnce::new(&Roots::default());
        let Some(mode) = at_once.mode(Path::new("/sys/kernel/uevent_seqnum")) else {
            println!("skipped: nothing can be looked up at once in /sys");
            return;
        };
        assert_eq!(mode.map(|mode| mode & libc::S_IFMT), Ok(libc::S_IFREG));
        assert_eq!(at_once.mode(Path::new("/sys/none")), Some(Err(Errno(libc::ENOENT))));
        assert_eq!(at_once.read(Path::new("/proc/self/stat"), 4096), None);
        assert_eq!(at_once.read(Path::new("/dev/null"), 4096), None, "a device is no file");
    }

    #[test]
    fn without_a_list_of_mounts_all_is_for_helpers() {
        let mut at_once = AtOnce::new(&Roots { proc: "/nowhere".into(), ..Roots::default() });
        assert_eq!(at_once.mode(Path::new("/")), None);
    }
}
