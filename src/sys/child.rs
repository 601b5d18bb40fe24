//! Starting and ending children: clone with a pidfd, process groups, exit status.
//!
//! Nobody waits for the exec: looking up, opening and reading a program may take as long as its file
//! system likes. So between clone and exec the child shares our memory (CLONE_VM without CLONE_VFORK: no
//! page table is copied) and runs *beside* us, on a piece of memory of its own that holds all it needs
//! and stays until the kernel says that it uses it no more (CLONE_CHILD_CLEARTID).
//!
//! Must stay true: there it makes system calls and nothing else, by instructions of our own: no allocation,
//! no lock, no panic, and no function of libc, whose `errno` would be ours. Where we have no such
//! instructions (see [`raw`]) the child gets a copy of our memory instead, as by fork.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::{AtomicI32, Ordering};

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
        all.chain([null()]).collect()
    }
}

/// The file to execute.
#[derive(Clone, Debug)]
pub enum Program<'a> {
    /// No search in PATH.
    Path(CString),
    /// An open one, whatever became of its name. A script cannot be started so: its interpreter would have
    /// to open it by /dev/fd.
    File(BorrowedFd<'a>),
}

/// What to start.
pub struct Spawn<'a> {
    pub program: Program<'a>,
    pub argv: ExecStrings,
    pub envp: ExecStrings,
    /// File descriptors 0, 1 and 2 of the child. A descriptor below 3 may stand only at its own place.
    pub stdio: [BorrowedFd<'a>; 3],
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    /// By a signal.
    Killed(i32),
    /// The program could not be executed: an errno.
    NotExecuted(i32),
}

/// A started child, the leader of a process group of its own. Dropping it neither ends nor reaps it.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    pidfd: OwnedFd,
    /// The memory that it uses until the exec.
    launch: Launch,
    ended: Option<Ended>,
}

impl AsFd for Child {
    /// Readable when the child has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Child {
    /// Its number, in messages: another's once it was reaped.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it has not yet executed its program. Where the kernel does not say so: no.
    fn is_starting(&self) -> bool {
        self.ended.is_none() && self.launch.is_in_use()
    }

    /// How it ended: reaps it if it has; None if it still runs.
    pub fn try_wait(&mut self) -> io::Result<Option<Ended>> {
        self.reap(libc::WNOHANG)
    }

    /// Waits until it has ended and reaps it.
    #[cfg(test)]
    pub fn wait(&mut self) -> io::Result<Ended> {
        self.reap(0)?.ok_or_else(|| io::Error::from_raw_os_error(libc::ECHILD))
    }

    fn reap(&mut self, flags: c_int) -> io::Result<Option<Ended>> {
        if self.ended.is_some() {
            return Ok(self.ended);
        }
        let ended = waitid(&self.pidfd, flags)?;
        if let Some(ended) = ended {
            self.launch.release();
            self.ended = Some(match self.launch.error() {
                0 => ended,
                errno => Ended::NotExecuted(errno),
            });
        }
        Ok(self.ended)
    }

    /// Sends a signal to its process group. A child that executes nothing yet is killed whatever the signal:
    /// there is nobody to heed it, and a core that it dumped could be ours. ESRCH once it was reaped: the
    /// number may be another's.
    pub fn signal(&self, signal: c_int) -> io::Result<()> {
        if self.ended.is_some() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        if self.is_starting() {
            self.signal_leader(libc::SIGKILL)?;
        }
        // SAFETY: no memory involved, and the number is still our child's.
        if unsafe { libc::kill(-self.pid, signal) } == 0 {
            return Ok(());
        }
        // It does not lead its group yet.
        self.signal_leader(signal)
    }

    fn signal_leader(&self, signal: c_int) -> io::Result<()> {
        let fd = self.pidfd.as_raw_fd();
        // SAFETY: numbers, and a null pointer for the default siginfo.
        match unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, null::<c_void>(), 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
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

/// How a child gets at what it needs before it executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// In our memory.
    Shared,
    /// In a copy of it.
    Copied,
}

/// Stack of the child between clone and exec: a handful of small frames.
const STACK_SIZE: usize = 16 * 1024;

/// Bytes of the mapping for a child: its stack, which grows downward, and above it its [`Plan`].
const MAPPING_SIZE: usize = STACK_SIZE + size_of::<Plan>();

/// What the child is to do, in a mapping of its own that a copied child shares too.
#[repr(C, align(64))]
struct Plan {
    path: *const c_char,
    /// Executed if there is no path.
    file: RawFd,
    argv: *const *const c_char,
    envp: *const *const c_char,
    stdio: [RawFd; 3],
    /// Not zero while the child uses our memory: the kernel clears it.
    in_use: AtomicI32,
    /// Why it could not execute: an errno.
    errno: AtomicI32,
}

/// A [`Plan`], and what it points to.
#[derive(Debug)]
struct Launch {
    plan: NonNull<Plan>,
    /// The child was reaped: it uses nothing.
    is_over: bool,
    /// What the pointers of the plan point to.
    held: Option<Box<Held>>,
}

#[derive(Debug)]
struct Held {
    _path: Option<CString>,
    _strings: [ExecStrings; 2],
    _pointers: [Vec<*const c_char>; 2],
}

// SAFETY: a launch owns what it points to; only the child beside us reads it, whichever thread has it.
unsafe impl Send for Launch {}

impl Launch {
    fn new(what: Spawn, stdio: [RawFd; 3]) -> io::Result<Launch> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, zeroed by the kernel, for which a plan of zeroes is valid.
        let mapped = unsafe { libc::mmap(null_mut(), MAPPING_SIZE, protection, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: inside the mapping, whose stack has a size that keeps the plan aligned.
        let plan = unsafe { NonNull::new_unchecked(mapped.cast::<u8>().add(STACK_SIZE).cast::<Plan>()) };
        let (path, file) = match what.program {
            Program::Path(path) => (Some(path), -1),
            Program::File(file) => (None, file.as_raw_fd()),
        };
        let pointers = [what.argv.pointers(), what.envp.pointers()];
        // SAFETY: the mapping is ours, as large as a plan, and aligned to it; nobody else has it yet. The data it
        // points to stay in place when the plan is moved below.
        unsafe {
            let plan = plan.as_ptr();
            (*plan).path = path.as_ref().map_or(null(), |path| path.as_ptr());
            (*plan).file = file;
            (*plan).argv = pointers[0].as_ptr();
            (*plan).envp = pointers[1].as_ptr();
            (*plan).stdio = stdio;
        }
        let held = Held { _path: path, _strings: [what.argv, what.envp], _pointers: pointers };
        Ok(Launch { plan, is_over: false, held: Some(Box::new(held)) })
    }

    /// Whether the child may still use it.
    fn is_in_use(&self) -> bool {
        // SAFETY: the plan is there as long as we are, and only the atomic is looked at.
        !self.is_over && unsafe { (*self.plan.as_ptr()).in_use.load(Ordering::Acquire) } != 0
    }

    fn error(&self) -> c_int {
        // SAFETY: as above.
        unsafe { (*self.plan.as_ptr()).errno.load(Ordering::Acquire) }
    }

    /// The child has ended.
    fn release(&mut self) {
        self.is_over = true;
        self.held = None;
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        if self.is_in_use() {
            // The child still reads it, and nobody will say when it does no more: it stays.
            std::mem::forget(self.held.take());
            return;
        }
        // SAFETY: the mapping is ours, and no child of ours uses it. A copied child has it mapped itself.
        unsafe { libc::munmap(self.plan.as_ptr().cast::<u8>().sub(STACK_SIZE).cast(), MAPPING_SIZE) };
    }
}

/// Starts a child with everything of rules.md 10.2: parent-death SIGTERM, NOFILE soft limit 1024,
/// umask 022, signals as by default. All other descriptors must be close-on-exec.
///
/// Returns before the child executes: whether it can is told by how it ends, [`Ended::NotExecuted`].
/// Errors: what clone and mmap say; EINVAL for descriptors that cannot stand where they should.
pub fn spawn(what: Spawn) -> io::Result<Child> {
    let shares = raw::LEAVES_ERRNO && std::env::var_os(COPY_MEMORY).is_none();
    spawn_in(what, if shares { Memory::Shared } else { Memory::Copied })
}

/// The variable of the environment that has children get a copy of our memory: for valgrind, which has no
/// other way to start one.
const COPY_MEMORY: &str = "MUDEV_COPY_MEMORY";

fn spawn_in(what: Spawn, memory: Memory) -> io::Result<Child> {
    let stdio = [what.stdio[0].as_raw_fd(), what.stdio[1].as_raw_fd(), what.stdio[2].as_raw_fd()];
    let is_misplaced = stdio.iter().enumerate().any(|(place, &fd)| fd < 3 && fd as usize != place);
    if is_misplaced || matches!(what.program, Program::File(file) if file.as_raw_fd() < 3) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let launch = Launch::new(what, stdio)?;
    let plan = launch.plan.as_ptr();
    let shared = match memory {
        Memory::Shared => libc::CLONE_VM | libc::CLONE_CHILD_CLEARTID,
        Memory::Copied => 0,
    };
    let mut pidfd: c_int = -1;
    // SAFETY: plan and what it points to stay until the child has executed or ended (Launch sees to it), and
    // nothing but its atomics is written by us or by the child from here on. The stack lies below it.
    let pid = unsafe {
        (*plan).in_use.store(c_int::from(memory == Memory::Shared), Ordering::Release);
        libc::clone(
            child_main,
            plan.cast(),
            shared | libc::CLONE_PIDFD | libc::SIGCHLD,
            plan.cast(),
            &raw mut pidfd,
            null_mut::<c_void>(),
            (*plan).in_use.as_ptr(),
        )
    };
    if pid < 0 {
        let error = io::Error::last_os_error();
        // SAFETY: as above; there is no child.
        unsafe { (*plan).in_use.store(0, Ordering::Release) };
        return Err(error);
    }
    // SAFETY: clone has just made this descriptor for us.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Child { pid, pidfd, launch, ended: None })
}

/// What the child does; see the module.
extern "C" fn child_main(arg: *mut c_void) -> c_int {
    // SAFETY: the plan stays until we have executed, and nobody writes to it but for its atomics.
    let plan = unsafe { &*arg.cast::<Plan>() };
    let errno = -execute(plan);
    plan.errno.store(errno as c_int, Ordering::Release);
    loop {
        // SAFETY: ends this process.
        unsafe { raw::call(libc::SYS_exit_group, [1, 0, 0, 0, 0]) };
    }
}

/// Where a child has the open file that it executes.
const PROGRAM_FD: usize = 3;

/// Executes the plan; returns only what went wrong, an errno below zero.
fn execute(plan: &Plan) -> isize {
    let none = null::<c_void>() as usize;
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // Zeroes: no signal, and the default action, in whatever form the kernel has them.
    let zeroes = [0usize; 16];
    let zeroes = (&raw const zeroes) as usize;
    // SAFETY: system calls on the plan's own data and on our stack.
    unsafe {
        raw::call(libc::SYS_setpgid, [0; 5]);
        raw::call(libc::SYS_prctl, [libc::PR_SET_PDEATHSIG as usize, libc::SIGTERM as usize, 0, 0, 0]);
        for (target, &fd) in plan.stdio.iter().enumerate() {
            let moved = match fd as usize == target {
                true => raw::call(raw::SYS_FCNTL, [target, libc::F_SETFD as usize, 0, 0, 0]),
                false => raw::call(libc::SYS_dup3, [fd as usize, target, 0, 0, 0]),
            };
            if moved < 0 {
                return moved;
            }
        }
        let files = libc::RLIMIT_NOFILE as usize;
        let at = &raw mut limit;
        if raw::call(libc::SYS_prlimit64, [0, files, none, at as usize, 0]) == 0 && (*at).rlim_cur != 1024 {
            (*at).rlim_cur = (*at).rlim_max.min(1024);
            raw::call(libc::SYS_prlimit64, [0, files, at as usize, none, 0]);
        }
        raw::call(libc::SYS_umask, [0o022, 0, 0, 0, 0]);
        // Handlers end with exec by themselves; the one ignored signal is Rust's SIGPIPE.
        raw::call(libc::SYS_rt_sigaction, [libc::SIGPIPE as usize, zeroes, none, SIGSET_SIZE, 0]);
        raw::call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, zeroes, none, SIGSET_SIZE, 0]);
        let (argv, envp) = (plan.argv as usize, plan.envp as usize);
        let (has_path, cloexec) = (!plan.path.is_null(), libc::O_CLOEXEC as usize);
        if !has_path && plan.file as usize != PROGRAM_FD {
            let moved = raw::call(libc::SYS_dup3, [plan.file as usize, PROGRAM_FD, cloexec, 0, 0]);
            if moved < 0 {
                return moved;
            }
        }
        // The exec may wait for long, beyond our end too. Descriptors that the exec would close must not stay open
        // until then: sockets that nobody serves would take clients, disks would stay in use. Linux before 5.9 does
        // not know this call.
        let first = PROGRAM_FD + usize::from(!has_path);
        raw::call(libc::SYS_close_range, [first, u32::MAX as usize, 0, 0, 0]);
        if !has_path {
            let (empty, flags) = (c"".as_ptr() as usize, libc::AT_EMPTY_PATH as usize);
            return raw::call(libc::SYS_execveat, [PROGRAM_FD, empty, argv, envp, flags]);
        }
        raw::call(libc::SYS_execve, [plan.path as usize, argv, envp, 0, 0])
    }
}

/// Bytes of the kernel's signal set: 64 signals (128 on MIPS).
const SIGSET_SIZE: usize = if cfg!(any(target_arch = "mips", target_arch = "mips64")) { 16 } else { 8 };

/// System calls without libc. The result is what the kernel returns: below zero a negative errno.
mod raw {
    use std::ffi::c_long;

    /// Whether [`call`] does without libc, and so without its `errno`.
    pub(super) const LEAVES_ERRNO: bool = cfg!(all(
        target_pointer_width = "64",
        any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
    ));

    #[cfg(target_pointer_width = "64")]
    pub(super) const SYS_FCNTL: c_long = libc::SYS_fcntl;
    #[cfg(target_pointer_width = "32")]
    const SYS_FCNTL: c_long = libc::SYS_fcntl64;

    #[cfg(all(target_pointer_width = "64", target_arch = "x86_64"))]
    pub(super) unsafe fn call(number: c_long, [a, b, c, d, e]: [usize; 5]) -> isize {
        let mut result = number as isize;
        // SAFETY: the caller's. The kernel destroys rcx and r11.
        unsafe {
            std::arch::asm!("syscall", inlateout("rax") result, in("rdi") a, in("rsi") b, in("rdx") c,
                in("r10") d, in("r8") e, lateout("rcx") _, lateout("r11") _, options(nostack));
        }
        result
    }

    #[cfg(all(target_pointer_width = "64", target_arch = "aarch64"))]
    pub unsafe fn call(number: c_long, [a, b, c, d, e]: [usize; 5]) -> isize {
        let mut result = a as isize;
        // SAFETY: the caller's.
        unsafe {
            std::arch::asm!("svc 0", in("x8") number, inlateout("x0") result, in("x1") b, in("x2") c,
                in("x3") d, in("x4") e, options(nostack));
        }
        result
    }

    #[cfg(all(target_pointer_width = "64", target_arch = "riscv64"))]
    pub unsafe fn call(number: c_long, [a, b, c, d, e]: [usize; 5]) -> isize {
        let mut result = a as isize;
        // SAFETY: the caller's.
        unsafe {
            std::arch::asm!("ecall", in("a7") number, inlateout("a0") result, in("a1") b, in("a2") c,
                in("a3") d, in("a4") e, options(nostack));
        }
        result
    }

    /// By libc: for a child with memory, and `errno`, of its own.
    #[cfg(not(all(
        target_pointer_width = "64",
        any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
    )))]
    pub unsafe fn call(number: c_long, [a, b, c, d, e]: [usize; 5]) -> isize {
        // SAFETY: the caller's.
        unsafe {
            match libc::syscall(number, a, b, c, d, e) {
                -1 => -(*libc::__errno_location() as isize),
                result => result as isize,
            }
        }
    }
}

#[cfg(test)]
mod tests;
