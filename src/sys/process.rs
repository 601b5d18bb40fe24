//! Starting and ending children: clone with a pidfd, process groups, exit status.
//!
//! Must stay true: between clone and exec the child shares our memory and runs on a piece of the
//! caller's stack, so it makes system calls and nothing else: no allocation, no lock, no panic.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// NUL-terminated strings in one block of memory, as execve wants them. A string ends at its first
/// NUL byte: execve cannot carry more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecStrings {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl ExecStrings {
    /// No strings.
    pub fn new() -> ExecStrings {
        ExecStrings::default()
    }

    /// Adds one string, given in parts.
    pub fn push(&mut self, parts: &[&[u8]]) {
        self.starts.push(self.bytes.len());
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.bytes.push(0);
    }

    fn pointers(&self) -> Vec<*const c_char> {
        let all = self.starts.iter().map(|&start| self.bytes[start..].as_ptr().cast());
        all.chain([std::ptr::null()]).collect()
    }
}

/// What to start.
pub struct Spawn<'a> {
    /// The file to execute: no search in PATH.
    pub path: &'a CStr,
    pub argv: &'a ExecStrings,
    pub envp: &'a ExecStrings,
    /// File descriptors 0, 1 and 2 of the child. A descriptor below 3 may stand only at its own place.
    pub stdio: [BorrowedFd<'a>; 3],
    /// The child leads a process group of its own.
    pub new_group: bool,
}

/// A started child. Dropping it neither ends nor reaps it.
#[derive(Debug)]
pub struct Child {
    pub pid: i32,
    /// Readable when the child has ended.
    pub pidfd: OwnedFd,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    /// By a signal.
    Killed(i32),
}

/// What programs get that should read and write nothing.
pub const NULL: &str = "/dev/null";

/// [`NULL`], open both ways. Where there is none (an empty root) an empty file in memory that is sealed:
/// reading it ends at once, and writing is refused.
pub fn open_null() -> io::Result<File> {
    File::options().read(true).write(true).open(NULL).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => sealed_empty_file(),
        _ => Err(error),
    })
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

/// Stack of the child between clone and exec: a handful of small frames.
const STACK_SIZE: usize = 32 * 1024;

#[repr(C, align(64))]
struct Stack(std::mem::MaybeUninit<[u8; STACK_SIZE]>);

struct Plan {
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    stdio: [RawFd; 3],
    new_group: bool,
    empty_set: libc::sigset_t,
    default_action: libc::sigaction,
    /// Written by the child when it cannot execute.
    errno: c_int,
}

extern "C" fn child_main(arg: *mut c_void) -> c_int {
    // SAFETY: the parent is suspended until exec or exit and keeps the plan alive and unused.
    let plan = unsafe { &mut *arg.cast::<Plan>() };
    // SAFETY: plain system calls on the plan's own data.
    unsafe {
        if plan.new_group {
            libc::setpgid(0, 0);
        }
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
        for (target, &fd) in plan.stdio.iter().enumerate() {
            let target = target as c_int;
            let moved = if fd == target { libc::fcntl(fd, libc::F_SETFD, 0) } else { libc::dup2(fd, target) };
            if moved < 0 {
                plan.errno = *libc::__errno_location();
                libc::_exit(1);
            }
        }
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && limit.rlim_cur != 1024 {
            limit.rlim_cur = limit.rlim_max.min(1024);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
        libc::umask(0o022);
        // Handlers end with exec by themselves; the one ignored signal is Rust's SIGPIPE.
        libc::sigaction(libc::SIGPIPE, &plan.default_action, std::ptr::null_mut());
        libc::sigprocmask(libc::SIG_SETMASK, &plan.empty_set, std::ptr::null_mut());
        libc::execve(plan.path, plan.argv, plan.envp);
        plan.errno = *libc::__errno_location();
        libc::_exit(1)
    }
}

/// Starts a child with everything of rules.md 10.2: parent-death SIGTERM, NOFILE soft limit 1024,
/// umask 022, signals as by default. All other descriptors must be close-on-exec.
///
/// The calling thread is suspended until the child executes. Errors: what clone says, or the reason
/// why the file cannot be executed (the child is reaped then).
pub fn spawn(what: &Spawn) -> io::Result<Child> {
    let stdio = [what.stdio[0].as_raw_fd(), what.stdio[1].as_raw_fd(), what.stdio[2].as_raw_fd()];
    if stdio.iter().enumerate().any(|(place, &fd)| fd < 3 && fd as usize != place) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let (argv, envp) = (what.argv.pointers(), what.envp.pointers());
    let mut stack = Stack(std::mem::MaybeUninit::uninit());
    let mut plan = Plan {
        path: what.path.as_ptr(),
        argv: argv.as_ptr(),
        envp: envp.as_ptr(),
        stdio,
        new_group: what.new_group,
        // SAFETY: all-zero is the empty set and the default action on Linux.
        empty_set: unsafe { std::mem::zeroed() },
        default_action: unsafe { std::mem::zeroed() },
        errno: 0,
    };
    let mut pidfd: c_int = -1;
    // SAFETY: CLONE_VFORK suspends us until the child no longer uses stack and plan; the stack grows
    // downward from its aligned end.
    let pid = unsafe {
        let top = stack.0.as_mut_ptr().cast::<u8>().add(STACK_SIZE);
        libc::clone(
            child_main,
            top.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD,
            (&raw mut plan).cast(),
            &raw mut pidfd,
        )
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: clone has just made this descriptor for us.
    let child = Child { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } };
    // SAFETY: the child wrote it through a pointer that the compiler lost sight of.
    let errno = unsafe { std::ptr::read_volatile(&raw const plan.errno) };
    if errno != 0 {
        wait(&child.pidfd)?;
        return Err(io::Error::from_raw_os_error(errno));
    }
    Ok(child)
}

fn waitid(pidfd: &OwnedFd, flags: c_int) -> io::Result<Option<Ended>> {
    // SAFETY: siginfo_t is plain data; all-zero is valid.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let id = pidfd.as_raw_fd() as libc::id_t;
    loop {
        // SAFETY: info is ours.
        if unsafe { libc::waitid(libc::P_PIDFD, id, &mut info, libc::WEXITED | flags) } == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: waitid filled the fields of SIGCHLD, or left zeroes.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    Ok(Some(match info.si_code {
        libc::CLD_EXITED => Ended::Exited(status),
        _ => Ended::Killed(status),
    }))
}

/// Reaps a child if it has ended; None if it still runs. ECHILD if it was reaped before.
pub fn try_wait(pidfd: &OwnedFd) -> io::Result<Option<Ended>> {
    waitid(pidfd, libc::WNOHANG)
}

/// Waits until a child has ended and reaps it.
pub fn wait(pidfd: &OwnedFd) -> io::Result<Ended> {
    waitid(pidfd, 0)?.ok_or_else(|| io::Error::from_raw_os_error(libc::ECHILD))
}

/// Sends a signal to a whole process group. Its leader must not be reaped yet, or the number may be
/// another's.
pub fn kill_group(leader: i32, signal: c_int) -> io::Result<()> {
    // SAFETY: no memory involved. 0 and 1 would mean our own group and everyone.
    match leader > 1 && unsafe { libc::kill(-leader, signal) } == 0 {
        true => Ok(()),
        false if leader <= 1 => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        false => Err(io::Error::last_os_error()),
    }
}

/// Sends a signal to one process, EINVAL for what would be everyone.
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
    Parent(Child),
    Child,
}

/// Forks a process with one thread.
pub fn fork() -> io::Result<Forked> {
    // SAFETY: the callers are single-threaded, so the child may go on as it likes.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => Ok(Forked::Child),
        pid if pid > 0 => {
            // SAFETY: a system call with numbers only; the descriptor is ours then.
            let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as RawFd;
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: as above.
            Ok(Forked::Parent(Child { pid, pidfd: unsafe { OwnedFd::from_raw_fd(fd) } }))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// setsid(2).
pub fn new_session() -> io::Result<()> {
    // SAFETY: no memory involved.
    if unsafe { libc::setsid() } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes `target` (0, 1, 2) refer to what `fd` refers to.
pub fn redirect(fd: BorrowedFd, target: RawFd) -> io::Result<()> {
    // SAFETY: no memory involved; Rust owns none of the three standard descriptors.
    if unsafe { libc::dup2(fd.as_raw_fd(), target) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether a descriptor number is open.
pub fn is_open(fd: RawFd) -> bool {
    // SAFETY: no memory involved.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

/// Takes over a descriptor that was handed to us by number (socket activation, notification-fd),
/// close-on-exec from now on. The caller vouches that nobody else has taken it: EBADF if it is not open.
pub fn take_fd(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: checked to be open; ownership is what the number was given to us for.
    unsafe {
        if libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
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

/// Undoes what [`spawn`] asks for: that we are told to end when our parent does.
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
    use std::os::fd::AsFd;

    fn run(path: &CStr, argv: &[&str], envp: &[&str]) -> io::Result<(Ended, Vec<u8>)> {
        let (mut args, mut env) = (ExecStrings::new(), ExecStrings::new());
        argv.iter().for_each(|a| args.push(&[a.as_bytes()]));
        envp.iter().for_each(|e| env.push(&[e.as_bytes()]));
        let null = File::options().read(true).write(true).open("/dev/null")?;
        let (reader, writer) = pipe()?;
        let stdio = [null.as_fd(), writer.as_fd(), null.as_fd()];
        let child = spawn(&Spawn { path, argv: &args, envp: &env, stdio, new_group: true })?;
        drop(writer);
        let mut output = Vec::new();
        let mut buffer = [0; 1000];
        loop {
            wait_readable(reader.as_fd(), Duration::from_secs(10))?;
            match read(reader.as_fd(), &mut buffer)? {
                0 => break,
                n => output.extend_from_slice(&buffer[..n]),
            }
        }
        assert!(wait_readable(child.pidfd.as_fd(), Duration::from_secs(10))?);
        Ok((try_wait(&child.pidfd)?.expect("it has ended"), output))
    }

    #[test]
    fn what_stands_for_dev_null_is_empty_and_takes_nothing() {
        use std::io::{Read, Write};
        let mut file = sealed_empty_file().unwrap();
        let mut text = Vec::new();
        assert_eq!(file.read_to_end(&mut text).unwrap(), 0);
        assert_eq!(file.write(b"x").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_child_gets_its_arguments_and_only_its_environment() {
        let script = "echo \"$0 $1\"; cat; tr '\\0' ' ' </proc/$$/environ; ulimit -n; umask";
        let (ended, output) =
            run(c"/bin/sh", &["/bin/sh", "-c", script, "a b", "c"], &["A=1", "B=2"]).unwrap();
        assert_eq!(ended, Ended::Exited(0));
        assert_eq!(String::from_utf8(output).unwrap(), "a b c\nA=1 B=2 1024\n0022\n");
    }

    #[test]
    fn a_child_leads_its_own_process_group_with_no_signal_blocked_or_ignored() {
        let script = "read -r pid _ _ _ pgrp _ </proc/self/stat; [ $pid = $pgrp ] || echo group $pid $pgrp; \
             exec grep -E 'Sig(Blk|Ign)' /proc/self/status";
        let (_, output) =
            run(c"/bin/sh", &["sh", "-c", &format!("exec 2>&1; {script}")], &["PATH=/bin:/usr/bin"]).unwrap();
        let output = String::from_utf8(output).unwrap();
        let mask = |text: &str, name: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(name)).expect("a line of the mask");
            u64::from_str_radix(line.trim(), 16).expect("a mask")
        };
        assert_eq!(mask(&output, "SigBlk:"), 0, "{output}");
        // What our own parent ignores stays so here: the daemon resets it once at its start.
        let ours = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        assert_eq!(mask(&output, "SigIgn:"), mask(&ours, "SigIgn:") & !(1 << (libc::SIGPIPE - 1)));
        assert!(!output.contains("group"), "{output}");
    }

    #[test]
    fn the_status_tells_exit_from_signal() {
        assert_eq!(run(c"/bin/sh", &["sh", "-c", "exit 7"], &[]).unwrap().0, Ended::Exited(7));
        assert_eq!(run(c"/bin/sh", &["sh", "-c", "kill -9 $$"], &[]).unwrap().0, Ended::Killed(9));
    }

    #[test]
    fn a_file_that_cannot_be_executed_is_an_error_of_spawn() {
        assert_eq!(run(c"/no/such/file", &["x"], &[]).unwrap_err().raw_os_error(), Some(libc::ENOENT));
        assert_eq!(run(c"/etc/passwd", &["x"], &[]).unwrap_err().raw_os_error(), Some(libc::EACCES));
    }

    #[test]
    fn a_whole_group_is_killed() {
        let (mut args, env) = (ExecStrings::new(), ExecStrings::new());
        for arg in ["sh", "-c", "sleep 100 & echo started; wait"] {
            args.push(&[arg.as_bytes()]);
        }
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let (reader, writer) = pipe().unwrap();
        let stdio = [null.as_fd(), writer.as_fd(), null.as_fd()];
        let what = Spawn { path: c"/bin/sh", argv: &args, envp: &env, stdio, new_group: true };
        let child = spawn(&what).unwrap();
        drop(writer);
        assert!(wait_readable(reader.as_fd(), Duration::from_secs(10)).unwrap());
        let mut buffer = [0; 100];
        assert_eq!(read(reader.as_fd(), &mut buffer).unwrap(), 8);
        assert_eq!(try_wait(&child.pidfd).unwrap(), None);
        kill_group(child.pid, libc::SIGKILL).unwrap();
        assert_eq!(wait(&child.pidfd).unwrap(), Ended::Killed(libc::SIGKILL));
        // End of file only when the grandchild is gone too.
        assert!(wait_readable(reader.as_fd(), Duration::from_secs(10)).unwrap());
        assert_eq!(read(reader.as_fd(), &mut buffer).unwrap(), 0);
    }
}
