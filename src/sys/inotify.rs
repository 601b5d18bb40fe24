//! inotify.

use bstr::{BStr, ByteSlice};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// An inotify instance, non-blocking.
#[derive(Debug)]
pub struct Inotify(OwnedFd);

/// One notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification<'a> {
    pub wd: i32,
    /// IN_ bits.
    pub mask: u32,
    /// Name in a watched directory, empty for the watched file itself.
    pub name: &'a BStr,
}

impl Inotify {
    /// A new instance.
    pub fn new() -> io::Result<Inotify> {
        // SAFETY: no memory involved; the descriptor is ours.
        unsafe {
            let fd = libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK);
            if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(Inotify(OwnedFd::from_raw_fd(fd))) }
        }
    }

    /// Watches a path for the events in `mask`; the same file gives the same number.
    pub fn watch(&self, path: &CStr, mask: u32) -> io::Result<i32> {
        // SAFETY: the kernel reads a terminated string.
        let wd = unsafe { libc::inotify_add_watch(self.0.as_raw_fd(), path.as_ptr(), mask) };
        if wd < 0 { Err(io::Error::last_os_error()) } else { Ok(wd) }
    }

    /// Ends a watch; EINVAL if there is none of this number.
    pub fn unwatch(&self, wd: i32) -> io::Result<()> {
        // SAFETY: no memory involved.
        if unsafe { libc::inotify_rm_watch(self.0.as_raw_fd(), wd) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Reads what there is into the buffer (of 4 KiB or more); WouldBlock if there is nothing.
    pub fn read<'a>(
        &self,
        buffer: &'a mut [u8],
    ) -> io::Result<impl Iterator<Item = Notification<'a>> + use<'a>> {
        let n = super::process::read(self.0.as_fd(), buffer)?;
        Ok(notifications(&buffer[..n]))
    }
}

impl AsFd for Inotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Cuts a buffer into notifications: `struct inotify_event` of <sys/inotify.h>.
fn notifications(mut bytes: &[u8]) -> impl Iterator<Item = Notification<'_>> {
    std::iter::from_fn(move || {
        let (head, rest) = bytes.split_at_checked(16)?;
        let word = |at: usize| head[at..at + 4].try_into().map(u32::from_ne_bytes).ok();
        let (name, rest) = rest.split_at_checked(word(12)? as usize)?;
        bytes = rest;
        let name = name.split(|&b| b == 0).next().unwrap_or_default().as_bstr();
        Some(Notification { wd: word(0)? as i32, mask: word(4)?, name })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_after_writing_is_told() {
        let path = std::env::temp_dir().join(format!("mudev-inotify-{}", std::process::id()));
        std::fs::write(&path, "x").unwrap();
        let inotify = Inotify::new().unwrap();
        let text = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        let wd = inotify.watch(&text, libc::IN_CLOSE_WRITE).unwrap();
        let mut buffer = [0; 4096];
        assert!(inotify.read(&mut buffer).is_err());
        std::fs::write(&path, "y").unwrap();
        let all: Vec<_> = inotify.read(&mut buffer).unwrap().map(|n| (n.wd, n.mask)).collect();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(all, [(wd, libc::IN_CLOSE_WRITE)]);
        inotify.unwatch(wd + 1).unwrap_err();
    }

    #[test]
    fn a_cut_buffer_ends_the_iteration() {
        let mut bytes = vec![1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, b'a', 0, 0, 0];
        let one = Notification { wd: 1, mask: 8, name: b"a".as_bstr() };
        assert_eq!(notifications(&bytes).collect::<Vec<_>>(), [one]);
        for cut in 0..bytes.len() {
            assert_eq!(notifications(&bytes[..cut]).count(), 0);
        }
        bytes[12..16].fill(0xff);
        assert_eq!(notifications(&bytes).count(), 0);
    }
}
