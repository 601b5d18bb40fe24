//! Signals as a readable descriptor.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A signalfd. The signals it reports stay blocked.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Blocks these signals for the calling thread and reports them from now on.
    pub fn new(signals: &[c_int]) -> io::Result<SignalFd> {
        // SAFETY: the set is ours; all-zero is the empty set, and the calls below fill it.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for &signal in signals {
                libc::sigaddset(&mut set, signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) < 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(SignalFd(OwnedFd::from_raw_fd(fd))) }
        }
    }

    /// The next signal; WouldBlock if there is none.
    pub fn read(&self) -> io::Result<c_int> {
        // SAFETY: plain data, filled by the kernel as far as we say.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = size_of_val(&info);
        // SAFETY: as above.
        let n = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut info).cast(), size) };
        match n {
            n if n < 0 => Err(io::Error::last_os_error()),
            n if n as usize == size => Ok(info.ssi_signo as c_int),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Gives all classic signals their default action, whatever our parent left ignored.
pub fn reset_actions() {
    for signal in 1..32 {
        if matches!(signal, libc::SIGKILL | libc::SIGSTOP | libc::SIGPIPE) {
            continue;
        }
        // SAFETY: SIG_DFL is a valid action for each of them.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_signal_is_read() {
        let fd = SignalFd::new(&[libc::SIGUSR2]).unwrap();
        assert_eq!(fd.read().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // SAFETY: the signal is blocked in this thread.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) };
        assert_eq!(fd.read().unwrap(), libc::SIGUSR2);
    }
}
