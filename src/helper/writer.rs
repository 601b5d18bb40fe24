//! A helper that writes what it is sent to a file that may answer late: a trace, or a log on a file system of
//! a network. The daemon's end of the socket takes what there is room for and never waits.
//!
//! The first message passes the file. Each further one is written to it; the end of file is the end. When
//! the file can no longer be written, one message with the number of the error goes back.

use crate::model::Errno;
use crate::sys::process;
use crate::sys::unix;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;

/// Bytes of one message at most.
pub const MAX_PIECE: usize = 64 * 1024 + 1;

/// Serves a writer's socket. What was sent before the daemon died is written too: of a crash the end of the
/// trace tells most.
pub fn serve_writer(socket: BorrowedFd) -> io::Result<()> {
    process::outlive_parent();
    let mut buffer = vec![0; MAX_PIECE];
    let (_, file) = unix::receive_passed(socket, &mut buffer)?;
    let Some(file) = file else { return Ok(()) };
    let mut file = File::from(file);
    loop {
        let received = unix::receive(socket, &mut buffer)?;
        if received.len == 0 {
            return Ok(());
        }
        if let Err(error) = file.write_all(&buffer[..received.len]) {
            return unix::send(socket, &Errno::of(&error).0.to_ne_bytes());
        }
    }
}

/// Why a writer has ended; None if it did not say.
pub fn failure(socket: BorrowedFd) -> Option<Errno> {
    let mut number = [0; 4];
    let received = unix::receive(socket, &mut number).ok()?;
    (received.len == number.len()).then(|| Errno(i32::from_ne_bytes(number)))
}
