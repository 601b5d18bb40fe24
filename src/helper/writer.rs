//! A helper that writes to a file that may answer late: a trace, or a log on a disk or in a network (`--ready-fd`
//! too). The daemon sends it as much as the socket has room for, and never waits.
//!
//! Must stay true: once it is started, nobody but the helper has the file open. Closing any descriptor of a file may
//! wait as writing does. So one that ends is not started again: nobody has the file to give to it.
//!
//! The first message names the kind of the file and passes it. Each further one is written to it; the end of file is
//! the end. When a trace can no longer be written, one message with the number of the error goes back. A log goes on:
//! what it lost is counted and said when there is room again.

use super::pool::Launcher;
use crate::model::Errno;
use crate::sys::child::Child;
use crate::sys::clock::monotonic;
use crate::sys::process;
use crate::sys::unix;
use crate::world::logger::FileLog;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes of one message at most.
const MAX_PIECE: usize = 64 * 1024 + 1;

/// The kind of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Trace,
    Log,
}

impl Content {
    fn word(self) -> &'static [u8] {
        match self {
            Content::Trace => b"trace",
            Content::Log => b"log",
        }
    }
}

/// Starts a writer for an open file; returns it, and the non-blocking socket over which the text goes to it.
pub fn start(launcher: &Launcher, content: Content, file: BorrowedFd) -> io::Result<(Child, OwnedFd)> {
    let (child, socket) = launcher.start(super::WRITER)?;
    pass_file(socket.as_fd(), content, file)?;
    Ok((child, socket))
}

/// The first message.
pub(crate) fn pass_file(socket: BorrowedFd, content: Content, file: BorrowedFd) -> io::Result<()> {
    unix::send_passing(socket, content.word(), Some(file))
}

/// Serves a writer's socket. It also writes all that was sent before the daemon died: the end of a trace tells most
/// about a crash.
pub fn serve_writer(socket: BorrowedFd) -> io::Result<()> {
    process::outlive_parent();
    let mut buffer = vec![0; MAX_PIECE];
    let (received, Some(file)) = unix::receive_passed(socket, &mut buffer)? else { return Ok(()) };
    let file = File::from(file);
    let is_log = buffer[..received.len] == *Content::Log.word();
    let receive = |buffer: &mut [u8]| {
        let received = unix::receive(socket, buffer)?;
        Ok::<_, io::Error>((received.len > 0).then_some(received.len))
    };
    if is_log {
        let mut log = FileLog::new(file);
        while let Some(len) = receive(&mut buffer)? {
            log.say(&buffer[..len], monotonic());
        }
        return Ok(());
    }
    while let Some(len) = receive(&mut buffer)? {
        if let Err(error) = (&file).write_all(&buffer[..len]) {
            return unix::send(socket, &Errno::of(&error).0.to_ne_bytes());
        }
    }
    Ok(())
}

/// Why the writer of a trace has ended; None if it did not say.
pub fn failure(socket: BorrowedFd) -> Option<Errno> {
    let mut number = [0; 4];
    let received = unix::receive(socket, &mut number).ok()?;
    (received.len == number.len()).then(|| Errno(i32::from_ne_bytes(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_cannot_be_written_goes_on() {
        let (ours, theirs) = unix::seqpacket_pair().unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        pass_file(ours.as_fd(), Content::Log, full.as_fd()).unwrap();
        let helper = std::thread::spawn(move || serve_writer(theirs.as_fd()));
        for _ in 0..3 {
            unix::send(ours.as_fd(), b"line\n").unwrap();
        }
        unix::end_sending(ours.as_fd()).unwrap();
        helper.join().unwrap().expect("it has read all of them");
        assert_eq!(failure(ours.as_fd()), None);
    }
}
