//! Writing to where somebody else reads, without ever waiting for that reader.
//!
//! `O_NONBLOCK` belongs to the open file description, which others share: a shell its terminal, helpers
//! the pipe of the log. So it is never set on what was handed to us.

use super::process::{self, write};
use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// What a pipe takes in one piece once poll(2) calls it writable.
const AT_ONCE: usize = libc::PIPE_BUF;

/// File systems that hold files in memory (linux/magic.h).
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;

/// What a descriptor leads to, as far as a writer must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A pipe or a FIFO.
    Pipe,
    Socket,
    Terminal,
    /// A regular file, /dev/null, any other device.
    File,
}

/// How to write without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// write(2): the open file description is ours alone and non-blocking, or knows no waiting for a reader.
    Write,
    /// send(2), which can be told for one call.
    Send,
    /// Ask first, then write no more than fits for sure. Another writer may come between: only where the
    /// file cannot be opened a second time.
    Ask,
}

/// A descriptor that is written to without waiting for a reader.
#[derive(Debug)]
pub struct Output {
    fd: OwnedFd,
    way: Way,
    kind: Kind,
}

impl Output {
    /// Takes over a descriptor. `own_fds` is the folder of our own open files (`/proc/self/fd`): pipes and
    /// terminals are opened anew there, non-blocking.
    pub fn new(fd: OwnedFd, own_fds: &Path) -> io::Result<Output> {
        let file = File::from(fd);
        let kind = match file.metadata()?.file_type() {
            kind if kind.is_fifo() => Kind::Pipe,
            kind if kind.is_socket() => Kind::Socket,
            _ if is_terminal(file.as_fd()) => Kind::Terminal,
            _ => Kind::File,
        };
        let fd = OwnedFd::from(file);
        let (fd, way) = match kind {
            Kind::Socket => (fd, Way::Send),
            Kind::File => (fd, Way::Write),
            Kind::Pipe | Kind::Terminal => match open_again(fd.as_fd(), own_fds) {
                Ok(own) => (own, Way::Write),
                // No /proc, no right to, or nobody at the other end.
                Err(_) => (fd, Way::Ask),
            },
        };
        Ok(Output { fd, way, kind })
    }

    /// Takes a copy of a descriptor that stays with others.
    pub fn copy_of(fd: BorrowedFd, own_fds: &Path) -> io::Result<Output> {
        Output::new(fd.try_clone_to_owned()?, own_fds)
    }

    /// For code that writes without an [`Output`], or hands the descriptor on.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Device and number of the file.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let metadata = File::from(self.fd.try_clone()?).metadata()?;
        Ok((metadata.dev(), metadata.ino()))
    }

    /// Whether it is a file that is not in memory. A write to it may take as long as a disk or a server likes, and
    /// so may closing any descriptor of it: some file systems (FUSE, NFS, CIFS) then send what they still hold.
    pub fn may_wait(&self) -> bool {
        if self.kind != Kind::File {
            return false;
        }
        match self.file_system() {
            Ok(Some(kind)) => ![TMPFS, RAMFS].contains(&kind),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// The kind of the file system that a regular file is on, as statfs(2) numbers it; None for anything else.
    fn file_system(&self) -> io::Result<Option<u64>> {
        if !File::from(self.fd.try_clone()?).metadata()?.is_file() {
            return Ok(None);
        }
        // SAFETY: plain data that the kernel fills.
        let mut found: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: as above, of a descriptor that we hold.
        match unsafe { libc::fstatfs(self.fd.as_raw_fd(), &mut found) } {
            // The type of the number is the C library's choice; no number has more than 32 bits.
            0 => Ok(Some(u64::from(found.f_type as u32))),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Writes what can be written now: how many bytes. WouldBlock if none can, since nobody reads;
    /// BrokenPipe if nobody ever will.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.way {
            Way::Write => write(self.fd.as_fd(), bytes),
            Way::Send => send(self.fd.as_fd(), bytes),
            Way::Ask if !process::is_writable(self.fd.as_fd())? => Err(io::ErrorKind::WouldBlock.into()),
            Way::Ask => write(self.fd.as_fd(), &bytes[..bytes.len().min(AT_ONCE)]),
        }
    }
}

fn is_terminal(fd: BorrowedFd) -> bool {
    std::io::IsTerminal::is_terminal(&fd)
}

fn open_again(fd: BorrowedFd, own_fds: &Path) -> io::Result<OwnedFd> {
    let path = own_fds.join(fd.as_raw_fd().to_string());
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    File::options().write(true).custom_flags(flags).open(path).map(OwnedFd::from)
}

fn send(fd: BorrowedFd, bytes: &[u8]) -> io::Result<usize> {
    let flags: c_int = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the bytes are ours and as many as we say.
    let n = unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::process::{pipe, read};

    fn is_nonblocking(fd: BorrowedFd) -> bool {
        // SAFETY: no memory involved.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK != 0 }
    }

    fn fill(output: &Output) -> usize {
        let mut written = 0;
        loop {
            match output.write(&[b'x'; 1000]) {
                Ok(n) => written += n,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    return written;
                }
            }
        }
    }

    #[test]
    fn a_full_pipe_would_block_and_stays_as_it_is_for_others() {
        for own_fds in ["/proc/self/fd", "/nowhere"] {
            let (reader, writer) = pipe().unwrap();
            let output = Output::copy_of(writer.as_fd(), Path::new(own_fds)).unwrap();
            assert_eq!(output.kind, Kind::Pipe);
            let way = if own_fds == "/nowhere" { Way::Ask } else { Way::Write };
            assert_eq!(output.way, way);
            assert!(fill(&output) >= 60_000);
            assert!(!is_nonblocking(writer.as_fd()), "the others' description is untouched");
            let mut buffer = vec![0; 1 << 20];
            assert!(read(reader.as_fd(), &mut buffer).unwrap() > 0);
            assert_eq!(output.write(b"more").unwrap(), 4);
            drop(reader);
            assert_eq!(output.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        }
    }

    #[test]
    fn a_pipe_that_cannot_be_opened_again_is_given_no_more_than_fits_for_sure() {
        let (_reader, writer) = pipe().unwrap();
        let output = Output::new(writer, Path::new("/nowhere")).unwrap();
        assert_eq!(output.write(&[0; 100_000]).unwrap(), AT_ONCE);
    }

    #[test]
    fn a_socket_that_nobody_reads_would_block() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let output = Output::new(ours.into(), Path::new("/nowhere")).unwrap();
        assert_eq!(output.kind, Kind::Socket);
        assert!(fill(&output) > 0);
        drop(theirs);
        assert!(output.write(b"x").is_err());
    }

    #[test]
    fn a_terminal_that_is_stopped_would_block() {
        let (mut master, mut slave) = (-1, -1);
        use std::ptr::{null, null_mut};
        // SAFETY: two descriptors are written that are ours then.
        let done = unsafe { libc::openpty(&mut master, &mut slave, null_mut(), null(), null()) };
        if done < 0 {
            println!("skipped: no pseudo-terminal here: {}", io::Error::last_os_error());
            return;
        }
        use std::os::fd::FromRawFd;
        // SAFETY: just made for us.
        let (_master, slave) = unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        for own_fds in ["/proc/self/fd", "/nowhere"] {
            let output = Output::copy_of(slave.as_fd(), Path::new(own_fds)).unwrap();
            assert_eq!(output.kind, Kind::Terminal);
            assert_eq!(output.write(b"line\n").unwrap(), 5);
            // SAFETY: no memory involved.
            assert_eq!(unsafe { libc::tcflow(slave.as_raw_fd(), libc::TCOOFF) }, 0);
            assert_eq!(output.write(b"line\n").unwrap_err().kind(), io::ErrorKind::WouldBlock);
            // SAFETY: no memory involved.
            assert_eq!(unsafe { libc::tcflow(slave.as_raw_fd(), libc::TCOON) }, 0);
            assert!(!is_nonblocking(slave.as_fd()));
        }
    }
}
