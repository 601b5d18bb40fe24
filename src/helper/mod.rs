//! Operations that may block, each in a process of its own: our executable under another name,
//! started lazily, one operation at a time, over a socket pair.

use std::ffi::OsString;
use std::process::ExitCode;

/// argv[0] of a helper.
pub const PROGRAM_NAME: &str = "mudev-helper";

/// Serves the socket on file descriptor 0 until its other end closes.
pub fn main(_args: Vec<OsString>) -> ExitCode {
    todo!()
}
