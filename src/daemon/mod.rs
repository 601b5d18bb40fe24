//! The loop and its sources: reads inputs, drives the engine, has what it wants tried, and meets the needs.
//!
//! * [`shell`]: the one owner and its loop; [`source`]: what the loop watches;
//! * in: [`intake`] (events of the kernel or of a file), [`links`], [`control`], [`status`];
//! * out: [`answer`] (what jobs want, [`crate::tasks`], and what they need for it), [`questions`], [`children`];
//! * around: [`options`], [`passed`], [`readiness`], [`reload`], [`coldplug`], [`mend`], [`leftovers`], [`trace`], [`recorder`].

pub mod answer;
pub mod options;
pub mod questions;
mod readiness;
pub mod recorder;
pub mod shell;
#[cfg(test)]
mod simulation;
pub mod sources;
pub mod stats;
pub mod trace;
mod turn;
pub mod upkeep;
pub mod work;

mod start;

use crate::world::logger::complain;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

/// Prints what was asked for; a reader that goes away ends us without a word.
fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

/// `mudevd`.
pub fn main(args: Vec<OsString>) -> ExitCode {
    match options::parse(args) {
        Err(error) => {
            complain(&format!("mudevd: {error}"));
            ExitCode::FAILURE
        }
        Ok(options::Invocation::Help) => print(options::HELP),
        Ok(options::Invocation::Version) => print(&format!("{}\n", crate::LEVEL)),
        Ok(options::Invocation::Run(line)) => match start::run(*line) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                log::error!("{error}");
                ExitCode::FAILURE
            }
        },
    }
}
