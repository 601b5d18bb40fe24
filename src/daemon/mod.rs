//! The loop and its sources: reads inputs, drives the engine, performs what it wants.

use std::ffi::OsString;
use std::process::ExitCode;

pub mod children;
pub mod source;

/// `mudevd`.
pub fn main(_args: Vec<OsString>) -> ExitCode {
    todo!()
}
