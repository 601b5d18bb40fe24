//! Our own process and its descriptors: pipes, standard streams, limits, detaching. Children: [`super::child`].

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// What programs get that should read and write nothing.
pub const NULL: &str = "/dev/null";

/// [`NULL`], open both ways. Where there is none (an empty root), or none that may be opened, an empty file in
/// memory that is sealed: reading it ends at once, and writing is refused.
pub fn open_null() -> io::Result<File> {
    File::options().read(true).write(true).open(NULL).or_else(|_| sealed_empty_file())
}

fn sealed_empty_file() -> io::Result<File> {
    // SAFETY: a constant name; the new descriptor is ours alone.
    let file = unsafe {
        match libc::memfd_create(c"null".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) {
            fd if fd < 0 => return Err(io::Error::last_os_error()),
            fd => File::from_raw_fd(fd),
        }
    };
    let seals = libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    // SAFETY: a descriptor that we hold, and plain numbers.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        r if r < 0 => Err(io::Error::last_os_error()),
        _ => Ok(file),
    }
}

/// Sends a signal to one process; EINVAL for a number that would mean several.
pub fn kill(pid: u32, signal: c_int) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().filter(|&pid| pid > 1);
    let pid = pid.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: no memory involved.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets us open as many descriptors as the hard limit says.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes, then reads, one rlimit of ours.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) < 0 {
            return Err(io::Error::last_os_error());
        }
        limit.rlim_cur = limit.rlim_max;
        if libc::setrlimit(libc::RLIMIT_NOFILE, &limit) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// A pipe, close-on-exec on both sides, non-blocking on the reading side: (reader, writer).
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [-1; 2];
    // SAFETY: the kernel writes two descriptors that are ours then.
    unsafe {
        if libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        let pair = (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]));
        if libc::fcntl(fds[0], libc::F_SETFL, libc::O_NONBLOCK) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(pair)
    }
}

/// read(2).
pub fn read(fd: BorrowedFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is ours and as long as we say.
    let n = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
}

/// write(2).
pub fn write(fd: BorrowedFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the bytes are ours and as many as we say.
    let n = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
}

/// The two sides of a fork.
pub enum Forked {
    Parent,
    Child,
}

/// Forks. EINVAL if this process has more than one thread: the child would have only this one, and whatever the
/// others held would stay locked.
pub fn fork() -> io::Result<Forked> {
    // SAFETY: no memory involved. For a process with one thread this changes nothing, for others it fails
    // (unshare(2)).
    if unsafe { libc::unshare(libc::CLONE_THREAD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: there is one thread, this one, so the child may go on as it likes.
    match unsafe { libc::fork() } {
        0 => Ok(Forked::Child),
        pid if pid > 0 => Ok(Forked::Parent),
        _ => Err(io::Error::last_os_error()),
    }
}

/// setsid(2).
pub fn new_session() -> io::Result<()> {
    // SAFETY: no memory involved.
    if unsafe { libc::setsid() } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The descriptors that every process has. Nobody owns them in the sense of [`OwnedFd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    Input = 0,
    Output = 1,
    Error = 2,
}

/// Makes a standard descriptor refer to the open file of `fd`.
pub fn redirect(fd: BorrowedFd, target: Standard) -> io::Result<()> {
    // SAFETY: no memory involved, and no owned descriptor has these numbers.
    if unsafe { libc::dup2(fd.as_raw_fd(), target as RawFd) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Whether a descriptor number is open.
pub fn is_open(fd: RawFd) -> bool {
    // SAFETY: no memory involved.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

/// Takes over a descriptor that this process was started with, by its number; close-on-exec from now on.
///
/// EBADF if it is not open or one of the [`Standard`] ones. EBUSY if it is ours: exec leaves no descriptor that
/// is close-on-exec, and whatever is opened here is, as is what was taken by this before.
pub fn take_inherited(fd: RawFd) -> io::Result<OwnedFd> {
    if fd <= Standard::Error as RawFd {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: no memory involved; the descriptor has no owner here, as said above, until this one.
    unsafe {
        match libc::fcntl(fd, libc::F_GETFD) {
            flags if flags < 0 => return Err(io::Error::last_os_error()),
            flags if flags & libc::FD_CLOEXEC != 0 => return Err(io::Error::from_raw_os_error(libc::EBUSY)),
            _ => {}
        }
        if libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// The path by which this process was executed, as the caller of execve gave it: perhaps relative to the working
/// directory of then. None if the kernel does not say.
pub fn executed_path() -> Option<PathBuf> {
    // SAFETY: no memory involved.
    let address = unsafe { libc::getauxval(libc::AT_EXECFN) };
    // SAFETY: the kernel has put a terminated string there that stays as long as the process, or nothing.
    let path = (address != 0).then(|| unsafe { CStr::from_ptr(address as *const c_char) })?;
    Some(OsStr::from_bytes(path.to_bytes()).into())
}

/// Sets the file mode creation mask.
pub fn set_umask(mask: libc::mode_t) {
    // SAFETY: no memory involved; never fails.
    unsafe { libc::umask(mask) };
}

/// The name that ps and killall know a process by (comm), cut to 15 bytes by the kernel.
pub fn set_comm(name: &CStr) {
    // SAFETY: the kernel reads a terminated string. Cannot fail.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// SCHED_BATCH (sched(7)): this thread gets as much of the processors as before, but does not take one from another
/// thread when it wakes up.
pub fn be_patient() -> io::Result<()> {
    // SAFETY: sched_param is plain data, for which zero is valid, and what this policy demands.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // The system call itself: musl's function of that name only says ENOSYS.
    // SAFETY: the kernel reads one sched_param of ours.
    match unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_BATCH, &parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Undoes what [`spawn`](super::child::spawn) asks for: that we are told to end when our parent does.
pub fn outlive_parent() {
    // SAFETY: no memory involved. Cannot fail.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
}

/// Whether our effective user is root.
pub fn is_root() -> bool {
    // SAFETY: no memory involved.
    unsafe { libc::geteuid() == 0 }
}

/// Number of CPUs we may run on; 1 if that cannot be told.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Bytes of main memory; 0 if that cannot be told.
pub fn memory() -> u64 {
    // SAFETY: sysinfo is plain data that the kernel fills.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    if unsafe { libc::sysinfo(&mut info) } < 0 {
        return 0;
    }
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
}

/// Waits until the descriptor is readable or the time is over; true if it is readable or hung up.
/// For the tool and for helpers: the daemon never waits outside its loop.
pub fn wait_readable(fd: BorrowedFd, limit: Duration) -> io::Result<bool> {
    let millis = c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX);
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd of ours.
    match unsafe { libc::poll(&mut poll, 1, millis) } {
        n if n < 0 => Err(io::Error::last_os_error()),
        n => Ok(n > 0),
    }
}

/// Whether a write of some bytes would not wait, or would fail.
pub fn is_writable(fd: BorrowedFd) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one pollfd of ours.
    match unsafe { libc::poll(&mut poll, 1, 0) } {
        n if n < 0 => Err(io::Error::last_os_error()),
        n => Ok(n > 0),
    }
}

/// Waits until one of the descriptors is readable or the time (None: without end) is over; says which
/// are. For the tool.
pub fn wait_any_readable<const N: usize>(
    fds: [BorrowedFd; N],
    limit: Option<Duration>,
) -> io::Result<[bool; N]> {
    let millis = limit.map_or(-1, |l| c_int::try_from(l.as_millis()).unwrap_or(c_int::MAX));
    let mut polls = fds.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    // SAFETY: N pollfds of ours.
    match unsafe { libc::poll(polls.as_mut_ptr(), N as libc::nfds_t, millis) } {
        n if n < 0 => Err(io::Error::last_os_error()),
        _ => Ok(polls.map(|poll| poll.revents != 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_for_dev_null_is_empty_and_takes_nothing() {
        use std::io::{Read, Write};
        let mut file = sealed_empty_file().unwrap();
        let mut text = Vec::new();
        assert_eq!(file.read_to_end(&mut text).unwrap(), 0);
        assert_eq!(file.write(b"x").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn only_what_was_inherited_is_taken_and_only_once() {
        let errno = |fd| take_inherited(fd).map(|_| ()).unwrap_err().raw_os_error();
        let (reader, _writer) = pipe().unwrap();
        assert_eq!(errno(reader.as_raw_fd()), Some(libc::EBUSY), "it is ours");
        for fd in [-1, 0, 1, 2, 1_000_000] {
            assert_eq!(errno(fd), Some(libc::EBADF), "{fd}");
        }
        // As if it had been there from the start.
        // SAFETY: a number of an open file that nobody owns comes from it.
        let inherited = unsafe { libc::dup(reader.as_raw_fd()) };
        let taken = take_inherited(inherited).unwrap();
        assert_eq!((taken.as_raw_fd(), errno(inherited)), (inherited, Some(libc::EBUSY)));
    }

    #[test]
    fn a_process_with_threads_does_not_fork() {
        // The harness has at least one more.
        std::thread::scope(|scope| {
            let error = scope.spawn(|| fork().map(|_| ()).unwrap_err().raw_os_error()).join().unwrap();
            assert_eq!(error, Some(libc::EINVAL));
        });
    }

    #[test]
    fn a_process_knows_what_it_was_executed_by() {
        let path = std::fs::canonicalize(executed_path().unwrap()).unwrap();
        assert_eq!(path, std::env::current_exe().unwrap());
    }
}
