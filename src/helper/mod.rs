//! Operations that may block, each in a process of its own: our executable under another name,
//! started lazily, one operation at a time, over a socket pair.
//!
//! ```text
//!   daemon                                   helper (one of a few)
//!   pool: request --- SEQPACKET, one message --->  operations: perform
//!         reply   <-- one message ---------------  (may wait for hardware, locks, RTNL)
//! ```
//!
//! An operation may come with an open file; then a second message says that the daemon's own is closed. So may a
//! reply: it brings a file that the helper has opened, and a second message says that the daemon has it. The last
//! close of a disk may have to wait, and a helper must be the one that waits: until that second message it keeps its
//! own descriptor.
//!
//! A helper ends when its socket is closed. One that is past its deadline is killed; the next
//! request starts another.

mod contention;
pub mod dying;
pub mod hanging;
pub mod messages;
pub mod operations;
pub mod pool;
pub mod reading;
pub mod rtnl;
pub mod subject;
pub mod writer;

use crate::model::operation::OperationReply;
use crate::sys;
use crate::world::logger::complain_at_once;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;

/// `argv[0]` of a helper.
pub const PROGRAM_NAME: &str = "mudev-helper";

/// What follows an operation that an open file is passed with, when the daemon has closed it; and a reply with one,
/// when the daemon has it.
const GO: &[u8] = b"go";

/// `argv[1]` of a helper that performs [`operations`].
const OPERATIONS: &str = "operations";

/// `argv[1]` of the helper that passes rtnetlink requests on.
pub const RTNL: &str = "rtnl";

/// `argv[1]` of the helper that writes to a file.
const WRITER: &str = "writer";

/// Serves the socket on file descriptor 0 until its other end closes.
pub fn main(args: Vec<OsString>) -> ExitCode {
    sys::process::set_comm(c"mudev-helper");
    let stdin = std::io::stdin();
    let socket = stdin.as_fd();
    if sys::unix::socket_kind(socket).is_err() {
        return fail("is started by mudevd, with a socket as standard input");
    }
    let served = match args.get(1).and_then(|a| a.to_str()) {
        Some(OPERATIONS) => serve_operations(socket),
        Some(RTNL) => rtnl::serve_rtnl(socket),
        Some(WRITER) => writer::serve_writer(socket),
        other => return fail(&format!("cannot serve {other:?}")),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

/// Logs why the helper ends. The reader of the log must hold up a helper as little as the daemon.
fn fail(text: &str) -> ExitCode {
    complain_at_once(&format!("{PROGRAM_NAME}: {text}"));
    ExitCode::FAILURE
}

/// Receives one operation, performs it, sends the reply, until the other end closes.
fn serve_operations(socket: BorrowedFd) -> std::io::Result<()> {
    let mut buffer = vec![0; messages::MAX_MESSAGE];
    loop {
        let (received, passed) = sys::unix::receive_passed(socket, &mut buffer)?;
        if received.len == 0 {
            return Ok(());
        }
        let operation = messages::decode(&buffer[..received.len]).filter(|_| !received.truncated);
        if passed.is_some() {
            // Not before the daemon has closed its own: our close must be the last one.
            sys::unix::receive(socket, &mut [0; GO.len()])?;
        }
        let (reply, opened) = match operation {
            // A disk that did not come cannot be closed.
            Some(operation) if operation.passes_file() == passed.is_some() => {
                operations::perform(&operation, passed)
            }
            _ => (OperationReply::Died, None),
        };
        let (bytes, text) = messages::pack(&reply);
        let passed = text.as_ref().or(opened.as_ref());
        sys::unix::send_passing(socket, &bytes, passed.map(AsFd::as_fd))?;
        if opened.is_some() && sys::unix::receive(socket, &mut [0; GO.len()])?.len == 0 {
            return Ok(());
        }
    }
}
