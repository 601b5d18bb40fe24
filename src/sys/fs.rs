//! Files: *at() calls relative to an open directory, flock.
//!
//! [`Dir`] is a directory that stays the same whatever happens to its path. Every call that takes a
//! name looks it up in that directory; it may contain slashes, and the last component is never
//! followed when it is a symlink, except where the name of the function says so. Everything is
//! opened close-on-exec. Names with a NUL are refused with EINVAL. Interrupted calls are repeated.
//!
//! * look-up: [`Dir::open`], [`Dir::open_dir`], [`Dir::stat`], [`Dir::read_link`],
//!   [`Dir::names`], [`Dir::exists`]
//! * files: [`Dir::open_file`], [`Dir::create_file`], [`Dir::read_file`]
//! * changes: [`Dir::create_dir`], [`Dir::rename`], [`Dir::unlink`], [`Dir::remove_dir`],
//!   [`Dir::symlink`], [`Dir::chmod`]
//! * open files: [`chmod_file`], [`stat_file`], [`read_more`], [`content_of`], [`file_in_memory`], [`write_once`], [`try_lock`], [`unlock`]

use bstr::BString;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// An open directory.
#[derive(Debug)]
pub struct Dir(OwnedFd);

/// What `fstatat(2)` says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Type and permissions, `st_mode`.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Major and minor number of a device node.
    pub rdev: (u32, u32),
    /// Major and minor number of the file system.
    pub dev: (u32, u32),
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Last change of the content, nanoseconds since 1970.
    pub mtime_nsec: i64,
}

impl Stat {
    /// The permission bits, `07777`.
    pub fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// Whether the type is this one, such as `libc::S_IFLNK`.
    fn is(&self, kind: u32) -> bool {
        self.mode & libc::S_IFMT == kind
    }

    #[cfg(test)]
    fn is_symlink(&self) -> bool {
        self.is(libc::S_IFLNK)
    }

    pub fn is_block_device(&self) -> bool {
        self.is(libc::S_IFBLK)
    }

    pub fn is_char_device(&self) -> bool {
        self.is(libc::S_IFCHR)
    }

    fn of(raw: &libc::stat) -> Stat {
        Stat {
            mode: raw.st_mode,
            uid: raw.st_uid,
            gid: raw.st_gid,
            rdev: (libc::major(raw.st_rdev), libc::minor(raw.st_rdev)),
            dev: (libc::major(raw.st_dev), libc::minor(raw.st_dev)),
            inode: raw.st_ino,
            size: u64::try_from(raw.st_size).unwrap_or(0),
            // The fields are narrower on some 32-bit targets.
            #[allow(clippy::unnecessary_cast)]
            mtime_nsec: (raw.st_mtime as i64).saturating_mul(1_000_000_000) + raw.st_mtime_nsec as i64,
        }
    }
}

impl Dir {
    /// Opens a directory by path; symlinks are followed.
    pub fn open(path: &Path) -> io::Result<Dir> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        openat(libc::AT_FDCWD, path.as_os_str().as_bytes(), flags, 0).map(Dir)
    }

    /// Opens a directory in this one. ELOOP or ENOTDIR if it is a symlink.
    pub fn open_dir(&self, name: &[u8]) -> io::Result<Dir> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        openat(self.raw(), name, flags, 0).map(Dir)
    }

    /// Opens a directory some way below this one. No component may be a symlink (ELOOP, ENOTDIR) or lie on another file
    /// system (EXDEV), which might not answer. ENOSYS before Linux 5.6, EPERM where a sandbox does not know the call.
    pub fn open_below(&self, path: &[u8]) -> io::Result<Dir> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        // SAFETY: open_how is plain data, for which zero is valid.
        let mut how: libc::open_how = unsafe { std::mem::zeroed() };
        how.flags = flags as u64;
        how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_XDEV;
        with_name(path, |path| {
            let (how, size) = (&raw const how, size_of_val(&how));
            // SAFETY: the kernel reads the path and as many bytes of `how` as it has.
            let fd = repeat(Op::Open, || unsafe {
                libc::syscall(libc::SYS_openat2, self.raw(), path.as_ptr(), how, size) as isize
            })?;
            // SAFETY: the kernel just gave it to us; nobody else has it.
            Ok(Dir(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
        })
    }

    /// A second handle of the same directory.
    pub fn try_clone(&self) -> io::Result<Dir> {
        self.0.try_clone().map(Dir)
    }

    /// `openat(2)` with these flags (such as `libc::O_RDONLY | libc::O_NONBLOCK`), not creating.
    fn open_file(&self, name: &[u8], flags: i32) -> io::Result<File> {
        let flags = flags | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        openat(self.raw(), name, flags, 0).map(File::from)
    }

    /// Creates a file for writing; EEXIST if there is anything of this name. `mode` may have the
    /// sticky bit; the umask applies.
    pub fn create_file(&self, name: &[u8], mode: u32) -> io::Result<File> {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        openat(self.raw(), name, flags, mode).map(File::from)
    }

    /// The whole of a regular file. EFBIG if it is longer than `limit` bytes.
    ///
    /// Costs open, one read and close for a file shorter than a page: a short read of a regular file
    /// is its end. Never waits, whatever the name turns out to be.
    pub fn read_file(&self, name: &[u8], limit: usize) -> io::Result<Vec<u8>> {
        let file = self.open_file(name, libc::O_RDONLY | libc::O_NONBLOCK)?;
        let mut content = Vec::with_capacity(4096);
        loop {
            let room = content.capacity() - content.len();
            let got = read_more(&file, &mut content)?;
            if content.len() > limit {
                return Err(io::Error::from_raw_os_error(libc::EFBIG));
            }
            if got < room {
                return Ok(content);
            }
            content.reserve(content.len());
        }
    }

    /// `mkdirat(2)`; the umask applies.
    pub fn create_dir(&self, name: &[u8], mode: u32) -> io::Result<()> {
        // SAFETY: the pointer is valid during the call.
        with_name(name, |name| check(Op::Add, || unsafe { libc::mkdirat(self.raw(), name.as_ptr(), mode) }))
    }

    /// Renames inside this directory, replacing what is there.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        with_name(from, |from| {
            with_name(to, |to| {
                // SAFETY: both pointers are valid during the call.
                check(Op::Add, || unsafe {
                    libc::renameat(self.raw(), from.as_ptr(), self.raw(), to.as_ptr())
                })
            })
        })
    }

    /// Removes a name that is no directory.
    pub fn unlink(&self, name: &[u8]) -> io::Result<()> {
        self.unlinkat(name, 0)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, name: &[u8]) -> io::Result<()> {
        self.unlinkat(name, libc::AT_REMOVEDIR)
    }

    fn unlinkat(&self, name: &[u8], flags: i32) -> io::Result<()> {
        // SAFETY: the pointer is valid during the call.
        with_name(name, |name| {
            check(Op::Remove, || unsafe { libc::unlinkat(self.raw(), name.as_ptr(), flags) })
        })
    }

    /// Makes the symlink `name` with this target; EEXIST if there is anything.
    pub fn symlink(&self, target: &[u8], name: &[u8]) -> io::Result<()> {
        with_name(target, |target| {
            with_name(name, |name| {
                // SAFETY: both pointers are valid during the call.
                check(Op::Add, || unsafe { libc::symlinkat(target.as_ptr(), self.raw(), name.as_ptr()) })
            })
        })
    }

    /// The target of a symlink; EINVAL if it is none. A target of 4096 bytes or more is ENAMETOOLONG.
    pub fn read_link(&self, name: &[u8]) -> io::Result<BString> {
        let mut buffer = [MaybeUninit::<u8>::uninit(); libc::PATH_MAX as usize];
        let len = with_name(name, |name| {
            repeat(Op::Look, || {
                // SAFETY: the kernel writes at most the given number of bytes to the buffer.
                unsafe {
                    libc::readlinkat(self.raw(), name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len())
                }
            })
        })?;
        if len >= buffer.len() {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        // SAFETY: the kernel wrote the first `len` bytes.
        let target = unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), len) };
        Ok(target.into())
    }

    /// Facts about the name itself.
    pub fn stat(&self, name: &[u8]) -> io::Result<Stat> {
        self.fstatat(name, libc::AT_SYMLINK_NOFOLLOW)
    }

    fn fstatat(&self, name: &[u8], flags: i32) -> io::Result<Stat> {
        let mut raw = MaybeUninit::<libc::stat>::uninit();
        with_name(name, |name| {
            // SAFETY: the pointers are valid during the call.
            check(Op::Look, || unsafe { libc::fstatat(self.raw(), name.as_ptr(), raw.as_mut_ptr(), flags) })
        })?;
        // SAFETY: the call succeeded, so the kernel filled it in.
        Ok(Stat::of(unsafe { raw.assume_init_ref() }))
    }

    /// Whether there is anything of this name, a dangling symlink included.
    pub fn exists(&self, name: &[u8]) -> bool {
        self.stat(name).is_ok()
    }

    /// Makes a device node; `kind_and_mode` such as `libc::S_IFCHR | 0o600`. The umask applies.
    #[cfg(test)]
    pub fn make_node(&self, name: &[u8], kind_and_mode: u32, major: u32, minor: u32) -> io::Result<()> {
        let number = libc::makedev(major, minor);
        with_name(name, |name| {
            // SAFETY: the pointer is valid during the call.
            check(Op::Add, || unsafe { libc::mknodat(self.raw(), name.as_ptr(), kind_and_mode, number) })
        })
    }

    /// Sets the permission bits; a symlink is followed, since it has none of its own.
    pub fn chmod(&self, name: &[u8], mode: u32) -> io::Result<()> {
        // SAFETY: the pointer is valid during the call.
        with_name(name, |name| {
            check(Op::Change, || unsafe { libc::fchmodat(self.raw(), name.as_ptr(), mode, 0) })
        })
    }

    /// All names but `.` and `..`, in the order of the directory.
    pub fn names(&self) -> io::Result<Vec<BString>> {
        // A descriptor of its own, since the position belongs to the open file.
        let fd = openat(self.raw(), b".", libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0)?;
        let mut names = Vec::new();
        let mut buffer = vec![0u8; 32 * 1024];
        loop {
            let filled = repeat(Op::Read, || {
                // SAFETY: the kernel writes at most the given number of bytes to the buffer.
                let filled = unsafe {
                    libc::syscall(libc::SYS_getdents64, fd.as_raw_fd(), buffer.as_mut_ptr(), buffer.len())
                };
                filled as isize
            })?;
            match filled {
                0 => return Ok(names),
                filled => push_names(&mut names, &buffer[..filled.min(buffer.len())]),
            }
        }
    }

    fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Reads `struct linux_dirent64` entries: inode and offset of 8 bytes, record length of 2, type of 1,
/// name up to a NUL.
fn push_names(names: &mut Vec<BString>, mut entries: &[u8]) {
    while let Some((&[low, high], rest)) = entries.get(16..).and_then(|rest| rest.split_first_chunk()) {
        let len = usize::from(u16::from_ne_bytes([low, high]));
        if let Some(Ok(name)) = rest.get(1..).map(CStr::from_bytes_until_nul) {
            let name = name.to_bytes();
            if name != b"." && name != b".." {
                names.push(name.into());
            }
        }
        match entries.get(len.max(19)..) {
            Some(rest) => entries = rest,
            None => return,
        }
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Dir {
    fn as_raw_fd(&self) -> RawFd {
        self.raw()
    }
}

impl From<OwnedFd> for Dir {
    fn from(fd: OwnedFd) -> Dir {
        Dir(fd)
    }
}

/// Whether files can be made in a folder, and if not, why not.
pub fn is_writable(folder: &Path) -> io::Result<()> {
    with_name(folder.as_os_str().as_bytes(), |path| {
        // SAFETY: the pointer is valid during the call.
        check(Op::Look, || unsafe {
            libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS)
        })
    })
    .map(drop)
}

/// `fstat(2)`.
pub fn stat_file(file: &impl AsFd) -> io::Result<Stat> {
    let mut raw = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the pointer is valid during the call.
    check(Op::Look, || unsafe { libc::fstat(file.as_fd().as_raw_fd(), raw.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so the kernel filled it in.
    Ok(Stat::of(unsafe { raw.assume_init_ref() }))
}

/// `fchmod(2)`.
pub fn chmod_file(file: &impl AsFd, mode: u32) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(Op::Change, || unsafe { libc::fchmod(file.as_fd().as_raw_fd(), mode) })
}

/// One `read(2)` into the room that the buffer has; returns how many bytes were added.
fn read_more(file: &impl AsFd, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let room = buffer.spare_capacity_mut();
    // SAFETY: the kernel writes at most the given number of bytes to the spare room.
    let got = repeat(Op::Read, || unsafe {
        libc::read(file.as_fd().as_raw_fd(), room.as_mut_ptr().cast(), room.len())
    })?;
    // SAFETY: the kernel wrote the first `got` bytes of the spare room.
    unsafe { buffer.set_len(buffer.len() + got) };
    Ok(got)
}

/// A new file in memory with this content; ENOSYS where the kernel has none.
pub fn file_in_memory(content: &[u8]) -> io::Result<File> {
    // SAFETY: a constant name; the new descriptor is ours alone.
    let mut file = unsafe {
        match libc::memfd_create(c"content".as_ptr(), libc::MFD_CLOEXEC) {
            fd if fd < 0 => return Err(io::Error::last_os_error()),
            fd => File::from_raw_fd(fd),
        }
    };
    file.write_all(content)?;
    Ok(file)
}

/// All of a file of known size, wherever it was last read or written. EFBIG if it is longer than `limit`
/// bytes.
pub fn content_of(file: &File, limit: usize) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    let size = usize::try_from(size).ok().filter(|&size| size <= limit);
    let mut content = vec![0; size.ok_or(io::Error::from_raw_os_error(libc::EFBIG))?];
    file.read_exact_at(&mut content, 0)?;
    Ok(content)
}

/// One `write(2)`; returns how many bytes were taken.
pub fn write_once(file: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the kernel reads at most the given number of bytes.
    repeat(Op::Write, || unsafe { libc::write(file.as_fd().as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) })
}

/// Kind of a [`try_lock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    Shared,
    Exclusive,
}

/// `flock(2)` without waiting: false if someone else holds it. The lock ends when the last handle of
/// the open file is closed.
pub fn try_lock(file: &impl AsFd, lock: Lock) -> io::Result<bool> {
    let operation = match lock {
        Lock::Shared => libc::LOCK_SH,
        Lock::Exclusive => libc::LOCK_EX,
    };
    // SAFETY: no memory is passed.
    match check(Op::Look, || unsafe { libc::flock(file.as_fd().as_raw_fd(), operation | libc::LOCK_NB) }) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives up the lock of an open file, even if other processes have the same open file.
pub fn unlock(file: &impl AsFd) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(Op::Look, || unsafe { libc::flock(file.as_fd().as_raw_fd(), libc::LOCK_UN) })
}

fn openat(dir: RawFd, name: &[u8], flags: i32, mode: u32) -> io::Result<OwnedFd> {
    let op = if flags & libc::O_CREAT != 0 { Op::Create } else { Op::Open };
    with_name(name, |name| {
        // SAFETY: the pointer is valid during the call.
        let fd = repeat(op, || unsafe { libc::openat(dir, name.as_ptr(), flags, mode) as isize })?;
        // SAFETY: the kernel just gave it to us; nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    })
}

/// Calls with the name and a NUL behind it, from the stack when it is short.
pub(super) fn with_name<T>(name: &[u8], call: impl FnOnce(&CStr) -> io::Result<T>) -> io::Result<T> {
    const SHORT: usize = 384;
    if name.len() < SHORT {
        let mut buffer = [0u8; SHORT];
        buffer[..name.len()].copy_from_slice(name);
        return match CStr::from_bytes_with_nul(&buffer[..=name.len()]) {
            Ok(name) => call(name),
            Err(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
    }
    call(&CString::new(name).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?)
}

/// What a call does, as far as it decides which faults it may meet (`faults.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Open,
    /// A file is made and opened.
    Create,
    /// A name is made.
    Add,
    Remove,
    Write,
    /// A mode is changed.
    Change,
    Read,
    Look,
}

/// Outside of tests calls meet no other faults than the kernel's.
#[cfg(not(test))]
#[inline(always)]
fn fault(_: Op) -> Option<i32> {
    None
}

#[cfg(test)]
use super::faults::meet as fault;

/// [`repeat`] for a call that has nothing to tell.
fn check(op: Op, mut call: impl FnMut() -> i32) -> io::Result<()> {
    repeat(op, || call() as isize).map(drop)
}

/// Repeats an interrupted call, and takes its error number.
fn repeat(op: Op, mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        let error = match fault(op) {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => match usize::try_from(call()) {
                Ok(result) => return Ok(result),
                Err(_) => io::Error::last_os_error(),
            },
        };
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A directory of its own, removed at the end.
    struct Temp(std::path::PathBuf);

    impl Temp {
        fn new(name: &str) -> (Temp, Dir) {
            let path = std::env::temp_dir().join(format!("mudev-fs-{name}-{}", std::process::id()));
            std::fs::create_dir(&path).expect("a temporary directory");
            let dir = Dir::open(&path).expect("to open it");
            (Temp(path), dir)
        }
    }

    impl Drop for Temp {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Option<i32> {
        result.expect_err("an error").raw_os_error()
    }

    #[test]
    fn files_are_created_once_and_read_up_to_the_limit() {
        let (_temp, dir) = Temp::new("files");
        dir.create_file(b"a", 0o1600).unwrap().write_all(b"12345").unwrap();
        assert_eq!(dir.stat(b"a").unwrap().permissions(), 0o1600);
        assert_eq!(errno(dir.create_file(b"a", 0o600)), Some(libc::EEXIST));
        assert_eq!(dir.read_file(b"a", 5).unwrap(), b"12345");
        assert_eq!(errno(dir.read_file(b"a", 4)), Some(libc::EFBIG));
        assert_eq!(errno(dir.read_file(b"b", 4)), Some(libc::ENOENT));
        assert_eq!(errno(dir.read_file(b".", 4)), Some(libc::EISDIR));
        let long = [7; 10_000];
        dir.create_file(b"long", 0o600).unwrap().write_all(&long).unwrap();
        assert_eq!(dir.read_file(b"long", 10_000).unwrap(), long);
        assert_eq!(errno(dir.read_file(b"long", 9_999)), Some(libc::EFBIG));
        dir.unlink(b"long").unwrap();
        dir.rename(b"a", b"b").unwrap();
        assert!(!dir.exists(b"a") && dir.exists(b"b"));
        dir.unlink(b"b").unwrap();
        assert!(dir.names().unwrap().is_empty());
    }

    #[test]
    fn symlinks_are_not_followed() {
        let (_temp, dir) = Temp::new("symlinks");
        dir.create_dir(b"sub", 0o755).unwrap();
        dir.create_file(b"sub/f", 0o600).unwrap();
        dir.symlink(b"sub", b"d").unwrap();
        dir.symlink(b"sub/f", b"l").unwrap();
        assert_eq!(dir.read_link(b"l").unwrap(), "sub/f");
        assert_eq!(errno(dir.read_link(b"sub")), Some(libc::EINVAL));
        assert!(dir.stat(b"l").unwrap().is_symlink());
        assert_eq!(errno(dir.open_file(b"l", libc::O_RDONLY)), Some(libc::ELOOP));
        assert!(dir.open_dir(b"d").is_err() && dir.open_dir(b"sub").is_ok());
        assert_eq!(errno(dir.remove_dir(b"sub")), Some(libc::ENOTEMPTY));
    }

    #[test]
    fn names_with_a_nul_are_refused_and_long_ones_are_not_cut() {
        let (_temp, dir) = Temp::new("names");
        assert_eq!(errno(dir.create_dir(b"a\0b", 0o755)), Some(libc::EINVAL));
        let long = [&b"./".repeat(300)[..], b"x"].concat();
        dir.create_dir(&long, 0o755).unwrap();
        assert_eq!(dir.names().unwrap(), ["x"]);
        assert_eq!(errno(dir.create_dir(&[b'y'; 256], 0o755)), Some(libc::ENAMETOOLONG));
    }

    #[test]
    fn a_long_listing_is_complete() {
        let (_temp, dir) = Temp::new("listing");
        for i in 0..1500 {
            dir.symlink(b"t", format!("a-rather-long-name-{i:05}").as_bytes()).unwrap();
        }
        for _ in 0..2 {
            let mut names = dir.names().unwrap();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), 1500);
        }
    }

    #[test]
    fn an_exclusive_lock_is_busy_for_others() {
        let (_temp, dir) = Temp::new("locks");
        let mine = dir.create_file(b"f", 0o600).unwrap();
        let other = dir.open_file(b"f", libc::O_RDONLY).unwrap();
        assert!(try_lock(&mine, Lock::Shared).unwrap() && try_lock(&other, Lock::Shared).unwrap());
        assert!(!try_lock(&mine, Lock::Exclusive).unwrap());
        drop(other);
        assert!(try_lock(&mine, Lock::Exclusive).unwrap());
    }
}
