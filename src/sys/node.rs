//! Device nodes behind an O_PATH descriptor, which touches no driver: owner, times, labels.
//!
//! Such a descriptor takes no fchown; the `*at` form with an empty path works on it. For the rest
//! callers give the path that the descriptor has in /proc, which leads to the node itself.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Changes owner and group of an O_PATH descriptor; None leaves one as it is.
pub fn change_owner(node: BorrowedFd, owner: Option<u32>, group: Option<u32>) -> io::Result<()> {
    let (owner, group) = (owner.unwrap_or(u32::MAX), group.unwrap_or(u32::MAX));
    // SAFETY: the path is a constant.
    done(unsafe { libc::fchownat(node.as_raw_fd(), c"".as_ptr(), owner, group, libc::AT_EMPTY_PATH) })
}

/// Sets access and modification time to now; symlinks are followed.
pub fn touch(path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the path is a NUL-terminated string of ours; a null pointer means now.
    done(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), std::ptr::null(), 0) })
}

/// Sets an extended attribute; symlinks are followed.
pub fn set_attribute(path: &Path, name: &CStr, value: &[u8]) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: both strings are NUL-terminated, and the value is as long as we say.
    done(unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) })
}
