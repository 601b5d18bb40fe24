//! Operations that may block, each in a process of its own: our executable under another name,
//! started lazily, one operation at a time, over a socket pair.
//!
//! ```text
//!   daemon                                   helper (one of a few)
//!   pool: request --- SEQPACKET, one message --->  operations: perform
//!         reply   <-- one message ---------------  (may wait for hardware, locks, RTNL)
//! ```
//!
//! A helper ends when its socket is closed. One that is past its deadline is killed; the next
//! request starts another.

pub mod operations;
pub mod pool;
pub mod rtnl;

use crate::sys;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;

/// argv[0] of a helper.
pub const PROGRAM_NAME: &str = "mudev-helper";

/// argv[1] of a helper that performs [`operations`].
pub const OPERATIONS: &str = "operations";

/// argv[1] of the helper that passes rtnetlink requests on.
pub const RTNL: &str = "rtnl";

/// Serves the socket on file descriptor 0 until its other end closes.
pub fn main(args: Vec<OsString>) -> ExitCode {
    sys::process::set_comm(c"mudev-helper");
    let socket = match sys::process::take_fd(0) {
        Ok(socket) if sys::unix::socket_kind(socket.as_fd()).is_ok() => socket,
        _ => {
            eprintln!("{PROGRAM_NAME}: is started by mudevd, with a socket as standard input");
            return ExitCode::FAILURE;
        }
    };
    let served = match args.get(1).and_then(|a| a.to_str()) {
        Some(OPERATIONS) => serve_operations(socket.as_fd()),
        Some(RTNL) => rtnl::serve_rtnl(socket.as_fd()),
        other => {
            eprintln!("{PROGRAM_NAME}: cannot serve {other:?}");
            return ExitCode::FAILURE;
        }
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{PROGRAM_NAME}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Receives one operation, performs it, sends the reply, until the other end closes.
fn serve_operations(socket: BorrowedFd) -> std::io::Result<()> {
    let mut buffer = vec![0; operations::MAX_MESSAGE];
    loop {
        let received = sys::unix::receive(socket, &mut buffer)?;
        if received.len == 0 {
            return Ok(());
        }
        let reply = match operations::Operation::decode(&buffer[..received.len]) {
            Some(operation) if !received.truncated => operation.perform(),
            _ => operations::Reply::Died,
        };
        sys::unix::send(socket, &reply.encode())?;
    }
}
