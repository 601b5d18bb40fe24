//! The tool, `mudevadm`: one file per subcommand.

use std::ffi::OsString;
use std::process::ExitCode;

/// `mudevadm`.
pub fn main(_args: Vec<OsString>) -> ExitCode {
    todo!()
}
