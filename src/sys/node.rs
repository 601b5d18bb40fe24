//! Device nodes by open descriptor: owner, mode, times, labels.
//!
//! A node is opened with O_PATH, which touches no driver. Such a descriptor takes no fchown or
//! fchmod; what works on it instead is the `*at` form with an empty path, or the path of the
//! descriptor in /proc.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn proc_path(node: BorrowedFd) -> CString {
    CString::new(format!("/proc/self/fd/{}", node.as_raw_fd())).unwrap_or_default()
}

/// Changes owner and group of an O_PATH descriptor; None leaves one as it is.
pub fn change_owner(node: BorrowedFd, owner: Option<u32>, group: Option<u32>) -> io::Result<()> {
    let (owner, group) = (owner.unwrap_or(u32::MAX), group.unwrap_or(u32::MAX));
    // SAFETY: the path is a constant.
    done(unsafe { libc::fchownat(node.as_raw_fd(), c"".as_ptr(), owner, group, libc::AT_EMPTY_PATH) })
}

/// Sets the permission bits (07777) of an O_PATH descriptor.
pub fn change_mode(node: BorrowedFd, mode: u32) -> io::Result<()> {
    let path = proc_path(node);
    // SAFETY: the path is a NUL-terminated string of ours.
    done(unsafe { libc::chmod(path.as_ptr(), mode) })
}

/// Sets access and modification time of an O_PATH descriptor to now.
pub fn touch(node: BorrowedFd) -> io::Result<()> {
    let path = proc_path(node);
    // SAFETY: the path is a NUL-terminated string of ours; a null pointer means now.
    done(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), std::ptr::null(), 0) })
}

/// Sets an extended attribute of what an O_PATH descriptor stands for.
pub fn set_attribute(node: BorrowedFd, name: &CStr, value: &[u8]) -> io::Result<()> {
    let path = proc_path(node);
    // SAFETY: both strings are NUL-terminated, and the value is as long as we say.
    done(unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) })
}
