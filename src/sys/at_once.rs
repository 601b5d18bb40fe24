//! Looking up and reading files without waiting, as far as the kernel can.
//!
//! Each call answers EAGAIN where it would have to wait, and ENOSYS, EINVAL or EOPNOTSUPP where kernel or file system
//! do not know it: RESOLVE_CACHED came with 5.12, openat2 with 5.6, statx with 4.11 (the mount in it with 5.8),
//! RWF_NOWAIT for reads with 4.14.

use super::fs::with_name;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// How a path is looked up.
#[derive(Clone, Copy, Debug)]
pub enum Lookup<'a> {
    /// An absolute path, as far as the kernel has all of it in memory; EAGAIN otherwise.
    Cached,
    /// A path below a directory that may wait, but leads to no other mount, whatever symlinks there are; EXDEV
    /// otherwise.
    OnMountOf(&'a OwnedFd),
}

/// Opens, with flags of open(2) such as `libc::O_PATH`; not to create.
pub fn open(lookup: Lookup, path: &[u8], flags: i32) -> io::Result<OwnedFd> {
    let (folder, resolve) = match lookup {
        Lookup::Cached => (libc::AT_FDCWD, libc::RESOLVE_CACHED),
        Lookup::OnMountOf(folder) => {
            (folder.as_raw_fd(), libc::RESOLVE_NO_XDEV | libc::RESOLVE_NO_MAGICLINKS)
        }
    };
    // SAFETY: open_how is plain data, for which zero is valid.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (flags | libc::O_CLOEXEC) as u64;
    how.resolve = resolve;
    with_name(path, |path| {
        // SAFETY: the kernel reads the path and as many bytes of `how` as it has; the new descriptor is ours.
        unsafe {
            match libc::syscall(libc::SYS_openat2, folder, path.as_ptr(), &raw const how, size_of_val(&how)) {
                fd if fd < 0 => Err(io::Error::last_os_error()),
                fd => Ok(OwnedFd::from_raw_fd(fd as i32)),
            }
        }
    })
}

/// Facts about an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// `st_mode`.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
    /// The mount it was found on, as in `mountinfo`.
    pub mount: u64,
}

/// What the kernel knows of a file, without asking a server. ENOSYS if it does not tell the mount.
pub fn known(file: &impl AsFd) -> io::Result<Known> {
    const STATX_MNT_ID: u32 = 0x1000;
    let fd = file.as_fd().as_raw_fd();
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let wanted = libc::STATX_TYPE | libc::STATX_MODE | libc::STATX_SIZE | STATX_MNT_ID;
    // SAFETY: statx is plain data, for which zero is valid; the kernel writes one of it and reads the path.
    let stat = unsafe {
        let mut stat: libc::statx = std::mem::zeroed();
        match libc::syscall(libc::SYS_statx, fd, c"".as_ptr(), flags, wanted, &raw mut stat) {
            0 => stat,
            _ => return Err(io::Error::last_os_error()),
        }
    };
    match stat.stx_mask & wanted == wanted {
        true => Ok(Known { mode: stat.stx_mode.into(), size: stat.stx_size, mount: stat.stx_mnt_id }),
        false => Err(io::Error::from_raw_os_error(libc::ENOSYS)),
    }
}

/// Reads what is in memory, from an offset into the room that the buffer has; returns how many bytes were
/// added, 0 at the end.
pub fn read(file: &File, offset: u32, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let room = buffer.spare_capacity_mut();
    let part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    // As words of the call's own width: there is no other form that all libraries have.
    let (low, high) = (offset as libc::c_long, 0 as libc::c_long);
    let fd = file.as_raw_fd();
    // SAFETY: the kernel writes at most the given number of bytes to the spare room.
    let got =
        unsafe { libc::syscall(libc::SYS_preadv2, fd, &raw const part, 1, low, high, libc::RWF_NOWAIT) };
    match usize::try_from(got) {
        Ok(got) => {
            // SAFETY: the kernel wrote the first `got` bytes of the spare room.
            unsafe { buffer.set_len(buffer.len() + got) };
            Ok(got)
        }
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Whether a file of /proc that tells changes by poll(2) has changed since it was last asked or opened.
pub fn has_changed(file: &File) -> bool {
    let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLPRI, revents: 0 };
    // SAFETY: one pollfd of ours.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready != 0
}
