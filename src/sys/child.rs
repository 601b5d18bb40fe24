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
    /// What it uses until it executes.
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
    pub fn is_starting(&self) -> bool {
        self.ended.is_none() && self.launch.is_in_use()
    }

    /// How it ended: reaps it if it has; None if it still runs.
    pub fn try_wait(&mut self) -> io::Result<Option<Ended>> {
        self.reap(libc::WNOHANG)
    }

    /// Waits until it has ended and reaps it.
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
        // SAFETY: the mapping is ours, as large as a plan, and aligned to it; nobody else has it yet. What it
        // points to keeps its place when it is moved below.
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
        if plan.path.is_null() {
            let (empty, flags) = (c"".as_ptr() as usize, libc::AT_EMPTY_PATH as usize);
            return raw::call(libc::SYS_execveat, [plan.file as usize, empty, argv, envp, flags]);
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
    pub const LEAVES_ERRNO: bool = cfg!(all(
        target_pointer_width = "64",
        any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
    ));

    #[cfg(target_pointer_width = "64")]
    pub const SYS_FCNTL: c_long = libc::SYS_fcntl;
    #[cfg(target_pointer_width = "32")]
    pub const SYS_FCNTL: c_long = libc::SYS_fcntl64;

    #[cfg(all(target_pointer_width = "64", target_arch = "x86_64"))]
    pub unsafe fn call(number: c_long, [a, b, c, d, e]: [usize; 5]) -> isize {
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
mod tests {
    use super::*;
    use crate::sys::process::{open_null, pipe, read, wait_readable};
    use std::ffi::CStr;
    use std::fs::File;
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_secs(10);

    fn strings(all: &[&str]) -> ExecStrings {
        let mut strings = ExecStrings::new();
        all.iter().for_each(|s| strings.push(&[s.as_bytes()]));
        strings
    }

    fn start(program: Program, argv: &[&str], envp: &[&str], memory: Memory) -> io::Result<(Child, OwnedFd)> {
        let null = open_null()?;
        let (reader, writer) = pipe()?;
        let stdio = [null.as_fd(), writer.as_fd(), null.as_fd()];
        let what = Spawn { program, argv: strings(argv), envp: strings(envp), stdio };
        Ok((spawn_in(what, memory)?, reader))
    }

    fn outcome((mut child, reader): (Child, OwnedFd)) -> io::Result<(Ended, String)> {
        let (mut output, mut buffer) = (Vec::new(), [0; 1000]);
        loop {
            assert!(wait_readable(reader.as_fd(), LIMIT)?);
            match read(reader.as_fd(), &mut buffer)? {
                0 => break,
                n => output.extend_from_slice(&buffer[..n]),
            }
        }
        assert!(wait_readable(child.as_fd(), LIMIT)?);
        let ended = child.try_wait()?.expect("it has ended");
        assert_eq!(child.try_wait()?, Some(ended), "and stays so");
        assert_eq!(child.signal(libc::SIGKILL).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        Ok((ended, String::from_utf8(output).expect("text")))
    }

    /// In shared and in copied memory: it must make no difference.
    fn run(path: &CStr, argv: &[&str], envp: &[&str]) -> (Ended, String) {
        let one = |memory| {
            outcome(start(Program::Path(path.to_owned()), argv, envp, memory).expect("starts")).expect("ends")
        };
        let (shared, copied) = (one(Memory::Shared), one(Memory::Copied));
        assert_eq!(shared, copied);
        shared
    }

    #[test]
    fn a_child_gets_its_arguments_and_only_its_environment() {
        let script = "echo \"$0 $1\"; cat; tr '\\0' ' ' </proc/$$/environ; ulimit -n; umask";
        let (ended, output) = run(c"/bin/sh", &["/bin/sh", "-c", script, "a b", "c"], &["A=1", "B=2"]);
        assert_eq!(ended, Ended::Exited(0));
        assert_eq!(output, "a b c\nA=1 B=2 1024\n0022\n");
    }

    #[test]
    fn a_child_leads_its_own_process_group_with_no_signal_blocked_or_ignored() {
        let script = "read -r pid _ _ _ pgrp _ </proc/self/stat; [ $pid = $pgrp ] || echo group $pid $pgrp; \
             exec grep -E 'Sig(Blk|Ign)' /proc/self/status";
        let (_, output) =
            run(c"/bin/sh", &["sh", "-c", &format!("exec 2>&1; {script}")], &["PATH=/bin:/usr/bin"]);
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
        assert_eq!(run(c"/bin/sh", &["sh", "-c", "exit 7"], &[]).0, Ended::Exited(7));
        assert_eq!(run(c"/bin/sh", &["sh", "-c", "kill -9 $$"], &[]).0, Ended::Killed(9));
    }

    #[test]
    fn what_cannot_be_executed_ends_with_the_reason() {
        assert_eq!(run(c"/no/such/file", &["x"], &[]).0, Ended::NotExecuted(libc::ENOENT));
        assert_eq!(run(c"/etc/passwd", &["x"], &[]).0, Ended::NotExecuted(libc::EACCES));
        let long = "x".repeat(1 << 20);
        assert_eq!(run(c"/bin/true", &["true", &long], &[]).0, Ended::NotExecuted(libc::E2BIG));
    }

    #[test]
    fn arguments_and_environment_may_be_long() {
        let long = "x".repeat(100 << 10);
        let (ended, output) = run(
            c"/bin/sh",
            &["sh", "-c", "echo ${#A} ${#B} ${#1}", "", &long],
            &[&format!("A={long}"), &format!("B={long}")],
        );
        assert_eq!((ended, output.as_str()), (Ended::Exited(0), "102400 102400 102400\n"));
    }

    #[test]
    fn an_open_file_is_executed_whatever_became_of_its_name() {
        let path = std::env::temp_dir().join(format!("mudev-program-{}", std::process::id()));
        std::fs::copy("/bin/echo", &path).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for memory in [Memory::Shared, Memory::Copied] {
            let ended = outcome(start(Program::File(file.as_fd()), &["echo", "hi"], &[], memory).unwrap());
            assert_eq!(ended.unwrap(), (Ended::Exited(0), "hi\n".to_owned()));
        }
    }

    #[test]
    fn a_descriptor_that_would_be_replaced_is_refused() {
        let null = open_null().unwrap();
        let stdin = std::io::stdin();
        let stdio = [null.as_fd(), stdin.as_fd(), null.as_fd()];
        let (argv, envp) = (strings(&["true"]), strings(&[]));
        let what = Spawn { program: Program::Path(c"/bin/true".into()), argv, envp, stdio };
        assert_eq!(spawn(what).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn a_whole_group_is_signalled() {
        let argv = ["sh", "-c", "sleep 100 & echo started; wait"];
        for memory in [Memory::Shared, Memory::Copied] {
            let (mut child, reader) =
                start(Program::Path(c"/bin/sh".into()), &argv, &["PATH=/bin:/usr/bin"], memory).unwrap();
            assert!(wait_readable(reader.as_fd(), LIMIT).unwrap());
            assert!(!child.is_starting());
            let mut buffer = [0; 100];
            assert_eq!(read(reader.as_fd(), &mut buffer).unwrap(), 8);
            assert_eq!(child.try_wait().unwrap(), None);
            child.signal(libc::SIGTERM).unwrap();
            assert_eq!(child.wait().unwrap(), Ended::Killed(libc::SIGTERM));
            // End of file only when the grandchild is gone too.
            assert!(wait_readable(reader.as_fd(), LIMIT).unwrap());
            assert_eq!(read(reader.as_fd(), &mut buffer).unwrap(), 0);
        }
    }

    #[test]
    fn a_child_that_was_just_started_can_be_killed_and_forgotten() {
        for n in 0..200 {
            let memory = if n % 2 == 0 { Memory::Shared } else { Memory::Copied };
            let (mut child, _reader) =
                start(Program::Path(c"/bin/sleep".into()), &["sleep", "100"], &[], memory).unwrap();
            child.signal(libc::SIGKILL).unwrap();
            if n % 3 == 0 {
                // Nobody is left to say when its memory is free.
                wait_readable(child.as_fd(), LIMIT).unwrap();
                continue;
            }
            assert_eq!(child.wait().unwrap(), Ended::Killed(libc::SIGKILL));
            assert!(!child.is_starting());
        }
    }

    /// An `errno` of the child must never be taken for ours.
    #[test]
    fn what_fails_in_a_child_leaves_our_errno_alone() {
        let (reader, _writer) = pipe().unwrap();
        let mut children = Vec::new();
        for _ in 0..300 {
            children
                .push(start(Program::Path(c"/no/such/file".into()), &["x"], &[], Memory::Shared).unwrap());
            for _ in 0..50 {
                assert_eq!(read(reader.as_fd(), &mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            }
        }
        for child in children {
            assert_eq!(outcome(child).unwrap().0, Ended::NotExecuted(libc::ENOENT));
        }
    }
}
