//! Runs a process from one system call to the next (ptrace(2)) and kills it in front of a chosen one. All of it must
//! happen in the thread that attached.
#![allow(dead_code)]

use std::io;
use std::time::{Duration, Instant};

/// How long one run may take.
const LIMIT: Duration = Duration::from_secs(20);

/// A process that is stopped at its system calls.
pub struct Stepper {
    pid: libc::pid_t,
}

/// How it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Killed in front of this call.
    Killed(String),
    /// The awaited event has happened before.
    Over,
}

fn ptrace(request: libc::c_uint, pid: libc::pid_t, address: usize, data: usize) -> io::Result<i64> {
    // SAFETY: the kernel checks the process; addresses are ours and as long as said.
    let result = unsafe { libc::ptrace(request, pid, address, data) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl Stepper {
    /// Stops a child of ours.
    pub fn attach(pid: u32) -> io::Result<Stepper> {
        let pid = pid as libc::pid_t;
        ptrace(libc::PTRACE_SEIZE, pid, 0, libc::PTRACE_O_TRACESYSGOOD as usize)?;
        ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0)?;
        let stepper = Stepper { pid };
        let mut status = 0;
        // SAFETY: the status is ours.
        unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
        Ok(stepper)
    }

    /// Lets it run; kills it in front of its n-th call (from 0) that may change something. `is_over` is asked while it
    /// waits.
    pub fn kill_at(self, n: usize, mut is_over: impl FnMut() -> bool) -> io::Result<Ended> {
        let end = Instant::now() + LIMIT;
        let mut left = n;
        ptrace(libc::PTRACE_SYSCALL, self.pid, 0, 0)?;
        loop {
            let mut status = 0;
            // SAFETY: the status is ours.
            match unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL | libc::WNOHANG) } {
                0 if is_over() => {
                    ptrace(libc::PTRACE_INTERRUPT, self.pid, 0, 0)?;
                    // SAFETY: the status is ours.
                    unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) };
                    ptrace(libc::PTRACE_DETACH, self.pid, 0, 0)?;
                    return Ok(Ended::Over);
                }
                0 => {
                    assert!(Instant::now() < end, "neither killed nor over");
                    std::thread::yield_now();
                    continue;
                }
                -1 => return Err(io::Error::last_os_error()),
                _ if !libc::WIFSTOPPED(status) => return Err(io::Error::other("it has ended by itself")),
                _ => {}
            }
            let signal = libc::WSTOPSIG(status);
            if signal == libc::SIGTRAP | 0x80 {
                if let Some(call) = self.changing_call()? {
                    if left == 0 {
                        // SAFETY: no memory is passed.
                        unsafe { libc::kill(self.pid, libc::SIGKILL) };
                        return Ok(Ended::Killed(call));
                    }
                    left -= 1;
                }
                ptrace(libc::PTRACE_SYSCALL, self.pid, 0, 0)?;
            } else {
                // A stop by PTRACE_EVENT has no signal to deliver.
                let signal = if status >> 16 == 0 { signal } else { 0 };
                ptrace(libc::PTRACE_SYSCALL, self.pid, 0, signal as usize)?;
            }
        }
    }

    /// The call that it is about to make, if it may change what others see.
    fn changing_call(&self) -> io::Result<Option<String>> {
        // struct ptrace_syscall_info of <linux/ptrace.h>: op, flags and reserved, arch, two addresses, then for op 1
        // (entry) the number and six arguments.
        let mut info = [0u64; 11];
        let size = size_of_val(&info);
        ptrace(libc::PTRACE_GET_SYSCALL_INFO, self.pid, size, info.as_mut_ptr() as usize)?;
        let (op, number, args) = (info[0] as u8, info[3] as libc::c_long, &info[4..10]);
        if op != 1 {
            return Ok(None);
        }
        let name = match number {
            libc::SYS_openat if args[2] as i32 & libc::O_CREAT != 0 => "openat",
            libc::SYS_write => "write",
            libc::SYS_sendmsg => "sendmsg",
            libc::SYS_sendto => "sendto",
            libc::SYS_renameat => "renameat",
            libc::SYS_renameat2 => "renameat2",
            libc::SYS_unlinkat => "unlinkat",
            libc::SYS_symlinkat => "symlinkat",
            libc::SYS_mkdirat => "mkdirat",
            libc::SYS_mknodat => "mknodat",
            libc::SYS_fchmod => "fchmod",
            libc::SYS_fchmodat => "fchmodat",
            libc::SYS_fchownat => "fchownat",
            libc::SYS_inotify_add_watch => "inotify_add_watch",
            #[cfg(target_arch = "x86_64")]
            libc::SYS_unlink => "unlink",
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename => "rename",
            #[cfg(target_arch = "x86_64")]
            libc::SYS_mkdir => "mkdir",
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rmdir => "rmdir",
            #[cfg(target_arch = "x86_64")]
            libc::SYS_symlink => "symlink",
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => "chmod",
            _ => return Ok(None),
        };
        Ok(Some(name.to_owned()))
    }
}
