//! Holds the kernel's RTNL lock, to show what does not wait for it.
//!
//! How: an ETHTOOL_GLINK ioctl copies its result to user space under the lock, and the page it copies to is
//! left to userfaultfd(2), so that the copy, and with it the lock, waits for us. The lock is one for the whole
//! machine, namespaces or not: hold it for a moment only. Should the process die, the lock is free again.
//!
//! `struct ethtool_value` lies across a page boundary: the kernel reads the command (first page, there)
//! before it takes the lock, and writes the value (second page, missing) under it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const PAGE: usize = 4096;
// linux/userfaultfd.h
const UFFD_API: u64 = 0xaa;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;
// linux/ethtool.h, linux/sockios.h
const ETHTOOL_GLINK: u32 = 10;
const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// The lock is held until this is dropped.
pub struct Held {
    fault: OwnedFd,
    pages: usize,
    holder: Option<std::thread::JoinHandle<()>>,
}

/// Takes the lock. An error says why it cannot be held here (no userfaultfd in this kernel, not root).
pub fn hold() -> io::Result<Held> {
    // SAFETY: system calls on memory and descriptors of our own; the pages stay mapped until the holder has
    // ended.
    unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) as i32;
        let fault = OwnedFd::from_raw_fd(super::cell::check(fd)?);
        let mut api = [UFFD_API, 0, 0];
        super::cell::check(libc::ioctl(fault.as_raw_fd(), UFFDIO_API as _, api.as_mut_ptr()))?;
        let pages = libc::mmap(
            std::ptr::null_mut(),
            2 * PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if pages == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let pages = pages as usize;
        let mut register = [(pages + PAGE) as u64, PAGE as u64, UFFDIO_REGISTER_MODE_MISSING, 0];
        super::cell::check(libc::ioctl(fault.as_raw_fd(), UFFDIO_REGISTER as _, register.as_mut_ptr()))?;
        let value = pages + PAGE - 4;
        (value as *mut u32).write(ETHTOOL_GLINK);

        // Namespaces belong to threads: the socket is opened here, in the caller's.
        let socket =
            super::cell::check(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))?;
        let socket = OwnedFd::from_raw_fd(socket);
        let holder = std::thread::spawn(move || {
            let mut request: libc::ifreq = std::mem::zeroed();
            request.ifr_name[0] = b'l' as _;
            request.ifr_name[1] = b'o' as _;
            request.ifr_ifru.ifru_data = value as *mut _;
            libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request);
        });
        let held = Held { fault, pages, holder: Some(holder) };
        // The fault is reported once the kernel waits in it, lock in hand. (Non-blocking, or poll says POLLERR.)
        let mut poll = libc::pollfd { fd: held.fault.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        super::cell::check(libc::poll(&raw mut poll, 1, 10_000))?;
        if poll.revents != libc::POLLIN {
            return Err(io::Error::other("the copy under RTNL did not come"));
        }
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut zero = [(self.pages + PAGE) as u64, PAGE as u64, 0, 0];
        // SAFETY: gives the waiting copy its page, then waits for the thread that uses it.
        unsafe {
            libc::ioctl(self.fault.as_raw_fd(), UFFDIO_ZEROPAGE as _, zero.as_mut_ptr());
            if let Some(holder) = self.holder.take() {
                let _ = holder.join();
            }
            libc::munmap(self.pages as *mut _, 2 * PAGE);
        }
    }
}
